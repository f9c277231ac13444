"""C functions of the kernels of Plans for one target.  Kernels that differ only in the tensors they
touch share one function, which takes those as parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from aotc.emit.c.alike import Owned, Tensors, for_all, owned, touched
from aotc.emit.c.arrays import declaration
from aotc.emit.c.loop_text import Block, indent
from aotc.emit.c.named_extents import declared, with_named_extents
from aotc.emit.c.needs import on_tiles
from aotc.emit.c.scalar_writer import heading
from aotc.emit.c.scalars import Names, rule_call
from aotc.emit.c.tile_writer import Writer
from aotc.emit.text.c_names import c_comment
from aotc.emit.text.cexpr import Argument, c_index
from aotc.emit.text.dialect import Dialect
from aotc.emit.text.env import KernelEnv
from aotc.emit.text.locals import with_safe_names
from aotc.ir.contents import buffers_in, names_in, nodes
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Guarded, Sym, as_expr
from aotc.ir.plan import Kernel, Plan, Rule, rules_of
from aotc.ir.simplify import simplify
from aotc.ir.statements import OWN, STEP, TILE, For, Section, walk_body

Function = tuple[Kernel, str]  # a kernel, C text of it and of those that share its function


def kernel_functions(plans: Sequence[Plan], name: str, dialect: Dialect,
                     text_of: "type[KernelText] | None" = None) -> list[Function]:
    """The functions of all kernels, those that share one together.  text_of: what writes them
    where that is not ``KernelText``."""
    alike: dict[object, list[Owned]] = {}
    for o in owned(plans):
        alike.setdefault(o.key, []).append(o)
    out, rules = [], rules_of(plans)
    for found in alike.values():
        kernel = for_all([o.kernel for o in found]) if len(plans) > 1 else found[0].kernel
        named: dict[str, Owned] = {}  # several plans may have one kernel
        for o in found:
            named.setdefault(o.kernel.name, o)
        first, *others = named.values()
        text = (text_of or KernelText)(replace(first, kernel=kernel), name, dialect, rules)
        out.append((kernel, text.shared((first, *others)) if others else text.alone()))
    return out


class KernelText:
    """The functions of one kernel.  ``rules``: those of the target."""

    def __init__(self, owned: Owned, name: str, dialect: Dialect, rules: Sequence[Rule]) -> None:
        plan, kernel = owned.plan, owned.kernel
        self.kernel, self.name = kernel, name
        kernel, self.extents = with_named_extents(with_safe_names(kernel))
        self.safe = kernel
        local = {s.name for s in kernel.scratch}

        def buffer(b: str) -> str:
            if b.startswith(OWN):
                return b.removeprefix(OWN)
            return f"s_{b}" if b in local else f"t_{b}"

        env: KernelEnv = {"buffer": buffer, "arrays": {a.buffer: a for a in kernel.arrays},
                          "vars": {}, "prefix": name, "dialect": dialect,
                          "rule": rule_call(rules, kernel, name, "f"), "math": plan.math}
        self.tensors, self.scratch = touched(plan, kernel), _scratch(kernel)
        self.writer = self.written_by(env)
        self.lines = self.writer.inside(kernel.body)

    def written_by(self, env: KernelEnv) -> "KernelWriter":
        """What writes the kernel's statements."""
        return KernelWriter(env, self.safe, self.name, {**self.tensors, **self.scratch},
                            [own for own, _ in self.extents])

    def alone(self) -> str:
        """The kernel as one function."""
        order = [b for b in (*self.kernel.reads, *self.kernel.writes) if b in self.tensors]
        pointers = [f"{d} = {at};" for d, at in map(self.tensors.__getitem__, order)]
        lines = [*self._head(self.kernel), *self.items(pointers), "}"]
        return "\n".join(self.writer.apart + lines) + "\n"

    def shared(self, alike: Sequence[Owned]) -> str:
        """One function that takes the tensors, and for every kernel one that calls it."""
        function, frame = f"{self.name}_{self.kernel.name}_body", f"{self.name}_frame *f"
        parameters = [frame, "int64_t begin", "int64_t end", "int worker",
                      *(d for d, _ in self.tensors.values())]
        title = c_comment(self.kernel.title)
        also = ", ".join(o.kernel.name for o in alike[1:])
        lines = [*self.writer.apart, f"/* {self.kernel.name}: {title}",
                 f" * and {also} with other tensors */",
                 *signature(f"AOTC_APART void {function}", parameters), "{",
                 *self.items([], named=True), "}", ""]
        for plan, k in ((o.plan, o.kernel) for o in alike):
            places = [at for _, at in touched(plan, k).values()]
            used = [] if any(k.scratch) or places else ["(void)f;"]
            lines += [*self._head(k), f"    {self.name}_frame *const f = frame;",
                      *indent(used), *indent(signature(
                          function, ["f", "begin", "end", "worker", *places], ";", 4)), "}", ""]
        return "\n".join(lines[:-1]) + "\n"

    def _head(self, kernel: Kernel) -> list[str]:
        origin = ", ".join(kernel.origin[:8]) + (", ..." if len(kernel.origin) > 8 else "")
        return [f"/* {kernel.name}: {c_comment(kernel.title)}", f" * from {c_comment(origin)} */",
                f"void {self.name}_{kernel.name}(void *frame, int64_t begin, int64_t end, "
                "int worker)", "{"]

    def items(self, pointers: Sequence[str], named: bool = False) -> list[str]:
        """The loop over work items behind declarations of what it uses.  named: the frame and the
        tensors are parameters."""
        kernel = self.safe
        frame = [] if named else [f"{self.name}_frame *const f = frame;"]
        if not (pointers or self.scratch or self.extents or needs_frame(kernel.body)):
            frame.append("(void)f;")
        frame += [] if kernel.scratch else ["(void)worker;"]
        scratch = [f"{d} = {at};" for d, at in self.scratch.values()]
        kept = [f"int64_t {v.name} = 0;" for v in kernel.kept]
        tiles = any(map(on_tiles, walk_body(kernel.body)))
        return indent([*frame, *pointers, *scratch, *kept, *declared(self.extents),
                       *["aotc_tiles_begin();"] * tiles,
                       "for (int64_t tile = begin; tile < end; ++tile) {",
                       *indent(self.lines), "}", *["aotc_tiles_end();"] * tiles])


class KernelWriter(Writer):
    """C text of one kernel.  ``tensors``: {buffer: (declaration, where it lies)}; ``apart``: lines
    of the functions of stages that stand apart; ``extents``: those that have names."""

    def __init__(self, env: KernelEnv, kernel: Kernel, name: str,
                 tensors: Mapping[str, tuple[str, str]], extents: Sequence[Argument] = ()) -> None:
        super().__init__(env, Names())
        self.kernel, self.name, self.tensors, self.extents = kernel, name, tensors, extents
        self.apart: list[str] = []
        self.sections = 0

    def section(self, s: Section) -> list[str]:
        number, self.sections = self.sections, self.sections + 1
        note = heading(s)
        if not s.apart:
            lines = self.statement(s.body[0]) if len(s.body) == 1 else Block(self.body(s.body))
            inside = isinstance(lines, Block) or not isinstance(s.body[0], For)
            return Block(lines, note) if inside else [*note, *lines]  # it declares all inside
        function = f"{self.name}_{self.kernel.name}_stage{number}"
        parameters, arguments = self._passed(s)
        self.apart += [*note, *signature(f"AOTC_APART void {function}", parameters), "{",
                       *indent(self.inside(s.body)), "}", ""]
        return [f"{function}({', '.join(arguments)});"]

    def _passed(self, s: Section) -> tuple[list[str], list[str]]:
        """(parameters, arguments) of a stage's function: what it uses of the kernel's."""
        buffers, names = buffers_in(s), names_in(s)
        used = [(d, self.env["buffer"](b)) for b, (d, _) in self.tensors.items() if b in buffers]
        bound = [v.name for v, _ in (*self.kernel.let, *self.kernel.step_let,
                                     *self.kernel.carried)]
        bound = [TILE.name.removeprefix(OWN), STEP.name.removeprefix(OWN), *dict.fromkeys(bound)]
        used += [(f"int64_t {n}", n) for n in bound if n in names]
        found = {n for n in nodes(s) if isinstance(n, Argument)}
        used += [(f"int64_t {c_index(n, 0)}", c_index(n, 0)) for n in self.extents if n in found]
        if needs_frame(s):
            used.insert(0, (f"{self.name}_frame *f", "f"))
        return [d for d, _ in used], [n for _, n in used]


def needs_frame(value: object) -> bool:
    """True if statements read a symbol or may find a value from data at fault."""
    return any(isinstance(n, (Sym, Guarded)) and not isinstance(n, Argument) for n in nodes(value))


def signature(head: str, items: Sequence[str], end: str = "", depth: int = 0) -> list[str]:
    """C lines of ``head(items)``, to be set in by ``depth`` columns."""
    lines, line = [], f"{head}("
    for i, item in enumerate(items):
        item += ")" + end if i + 1 == len(items) else ","
        if depth + len(line) + len(item) > 98:
            lines.append(line)
            line = "   "
        line += item if line.endswith("(") else f" {item}"
    return lines + [line if items else f"{head}(void){end}"]


def _scratch(kernel: Kernel) -> Tensors:
    """The scratch of a worker."""
    arrays = {a.buffer: a for a in kernel.arrays}
    return {s.name: (declaration(DTYPES[s.dtype].c, f"s_{s.name}", arrays.get(s.name)),
                     f"AOTC_SLAB({c_index(simplify(as_expr(s.offset)), 0)})")
            for s in kernel.scratch}
