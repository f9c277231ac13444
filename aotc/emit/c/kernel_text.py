"""C functions of the kernels of Plans for one target.  Kernels that have a function together
(``Kernel.function``) call it with the tensors that each touches, stages (``Section.function``) with
those, scratch and where the work item begins."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from aotc.emit.c.arrays import declaration
from aotc.emit.c.includes import uses_tiles
from aotc.emit.c.loop_text import BracedLines, indent, signature
from aotc.emit.c.named_extents import declare_extents, with_named_extents
from aotc.emit.c.scalar_writer import heading
from aotc.emit.c.scalars import LocalNames, rule_call
from aotc.emit.c.tile_writer import Writer
from aotc.emit.text.c_names import c_comment
from aotc.emit.text.cexpr import Argument, c_index
from aotc.emit.text.dialect import Dialect
from aotc.emit.text.env import KernelEnv
from aotc.emit.text.functions import PlanKernel, shared_functions
from aotc.emit.text.locals import with_safe_names
from aotc.emit.text.places import place_text
from aotc.ir.contents import nodes
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Guarded, Sym, as_expr
from aotc.ir.kernel.plan_kernels import Kernel, Rule
from aotc.ir.plan import Plan, rules_of
from aotc.ir.simplify import simplify
from aotc.ir.statements import OWN, For, Function, Section, walk_body

Tensors = dict[str, tuple[str, str]]  # buffer -> (declaration, where it lies)


@dataclass(frozen=True)
class Text:
    """A kernel, C text of it and of those that share its function, and of the functions of stages
    that they call, {name: text}."""

    kernel: Kernel
    text: str
    stages: Mapping[str, str]


def kernel_functions(plans: Sequence[Plan], name: str, dialect: Dialect,
                     text_of: "type[KernelText] | None" = None) -> list[Text]:
    """The functions of all kernels, those that share one together.  text_of: what writes them
    where that is not ``KernelText``."""
    out, rules, stages = [], rules_of(plans), dict[str, str]()
    for shared in shared_functions(plans):
        text = (text_of or KernelText)(shared.written, name, dialect, rules)
        several = len(shared.kernels) > 1
        own = text.shared(shared.kernels) if several else text.alone()
        for stage, lines in text.writer.stages.items():
            stages.setdefault(stage, "\n".join(lines))
        out.append(Text(shared.written.kernel, own, {s: stages[s] for s in text.writer.stages}))
    return out


class KernelText:
    """The functions of one kernel.  ``rules``: those of the target."""

    def __init__(self, owned: PlanKernel, name: str, dialect: Dialect,
                 rules: Sequence[Rule]) -> None:
        plan, kernel = owned.plan, owned.kernel
        self.kernel, self.name = kernel, name
        safe = with_safe_names(kernel)
        body, self.extents = with_named_extents(safe.body)
        self.safe = replace(safe, body=body)
        local = {s.name for s in kernel.scratch}

        def buffer(b: str) -> str:
            if b.startswith(OWN):
                return b.removeprefix(OWN)
            return f"s_{b}" if b in local else f"t_{b}"

        env: KernelEnv = {"buffer": buffer, "arrays": {a.buffer: a for a in self.safe.arrays},
                          "vars": {}, "prefix": name, "dialect": dialect,
                          "rule": rule_call(rules, kernel, name, "f"), "math": plan.math}
        self.tensors, self.scratch = _tensors(plan, kernel), _scratch(kernel)
        self.writer = self.written_by(env)
        self.lines = self.writer.inside(body)

    def written_by(self, env: KernelEnv) -> "KernelWriter":
        """What writes the kernel's statements."""
        return KernelWriter(env, self.name, {**self.tensors, **self.scratch})

    def alone(self) -> str:
        """The kernel as one function."""
        order = [b for b in (*self.kernel.reads, *self.kernel.writes) if b in self.tensors]
        pointers = [f"{d} = {at};" for d, at in map(self.tensors.__getitem__, order)]
        lines = [*self._head(self.kernel), *self.items(pointers), "}"]
        return "\n".join(lines) + "\n"

    def shared(self, alike: Sequence[PlanKernel]) -> str:
        """One function that takes the tensors, and for every kernel one that calls it."""
        function, frame = f"{self.name}_{self.kernel.name}_body", f"{self.name}_frame *f"
        parameters = [frame, "int64_t begin", "int64_t end", "int worker",
                      *(d for d, _ in self.tensors.values())]
        title = c_comment(self.kernel.title)
        also = ", ".join(o.kernel.name for o in alike[1:])
        lines = [f"/* {self.kernel.name}: {title}",
                 f" * and {also} with other tensors */",
                 *signature(f"AOTC_APART void {function}", parameters), "{",
                 *self.items([], named=True), "}", ""]
        for plan, k in ((o.plan, o.kernel) for o in alike):
            places = [at for _, at in _tensors(plan, k).values()]
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
        tiles = any(map(uses_tiles, walk_body(kernel.body)))
        return indent([*frame, *pointers, *scratch, *kept, *declare_extents(self.extents),
                       *["aotc_tiles_begin();"] * tiles,
                       "for (int64_t tile = begin; tile < end; ++tile) {",
                       *indent(self.lines), "}", *["aotc_tiles_end();"] * tiles])


class KernelWriter(Writer):
    """C text of one kernel.  ``tensors``: {buffer: (declaration, where it lies)}; ``stages``:
    lines of the functions of stages that stand apart, by name."""

    def __init__(self, env: KernelEnv, name: str, tensors: Mapping[str, tuple[str, str]]) -> None:
        super().__init__(env, LocalNames())
        self.name, self.tensors = name, tensors
        self.stages: dict[str, list[str]] = {}

    def section(self, s: Section) -> list[str]:
        env = self.env
        lines = self._section(s)
        self.env = env  # what it calls by other names ends with it
        return lines

    def _section(self, s: Section) -> list[str]:
        note = heading(s)
        if s.function is None:
            only = len(s.body) == 1
            lines = self.statement(s.body[0]) if only else BracedLines(self.body(s.body))
            inside = isinstance(lines, BracedLines) or not isinstance(s.body[0], For)
            return BracedLines(lines, note) if inside else [*note, *lines]  # it declares all inside
        function = f"{self.name}_{s.function.name}"
        body, extents = with_named_extents(s.body)
        parameters, arguments = self.passed(s.function, needs_frame(s))
        if s.function.name not in self.stages:
            self.stages[s.function.name] = [
                *note, *signature(f"AOTC_APART void {function}", parameters), "{",
                *indent([*declare_extents(extents), *self.inside(body)]), "}", ""]
        return [f"{function}({', '.join(arguments)});"]

    def passed(self, function: Function, frame: bool) -> tuple[list[str], list[str]]:
        """(parameters, arguments) of a stage's function.  frame: it reads the kernel's."""
        used = [(f"{self.name}_frame *f", "f")] * frame
        used += [(self.tensors[b][0], self.env["buffer"](b)) for b in function.buffers]
        names = [n.removeprefix(OWN) for n in function.names]
        used += [(f"int64_t {n}", n) for n in names]
        return [d for d, _ in used], [n for _, n in used]


def needs_frame(value: object) -> bool:
    """True if statements read a symbol or may find a value from data at fault."""
    return any(isinstance(n, (Sym, Guarded)) and not isinstance(n, Argument) for n in nodes(value))


def _tensors(plan: Plan, kernel: Kernel) -> Tensors:
    """The tensors that a kernel's statements touch."""
    arrays = {a.buffer: a for a in kernel.arrays}
    found: Tensors = {}
    for b in kernel.touched:
        p, const = plan.place(b), "" if b in kernel.writes else "const "
        found[b] = (declaration(f"{const}{DTYPES[p.dtype].c}", f"const t_{b}", arrays.get(b)),
                    place_text(p))
    return found


def _scratch(kernel: Kernel) -> Tensors:
    """The scratch of a worker."""
    arrays = {a.buffer: a for a in kernel.arrays}
    return {s.name: (declaration(DTYPES[s.dtype].c, f"const s_{s.name}", arrays.get(s.name)),
                     f"AOTC_SLAB({c_index(simplify(as_expr(s.offset)), 0)})")
            for s in kernel.scratch}
