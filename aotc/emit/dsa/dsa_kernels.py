"""Plan -> C text of its kernels for the scratchpad accelerator: code of a core, which reaches its
memories, engines and units through ``runtime_c/dsa/aotc_dsa.h``."""

from collections.abc import Callable, Sequence

from aotc.emit.c import kernels as c_kernels
from aotc.emit.c.kernel_text import KernelText, KernelWriter
from aotc.emit.c.loop_text import brace_lines, indent
from aotc.emit.c.named_extents import declare_extents
from aotc.emit.c.scalars import Scalars
from aotc.emit.dsa.device_text import device_lines, kept_text
from aotc.emit.text.cexpr import c_index, c_size
from aotc.emit.text.dialect import Dialect
from aotc.emit.text.env import KernelEnv
from aotc.emit.text.functions import PlanKernel
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Expr
from aotc.ir.kernel.plan_kernels import Rule
from aotc.ir.plan import Plan
from aotc.ir.simplify import simplify
from aotc.ir.statements import OWN, Box, Copy, Fill, Function, Section, Wait
from aotc.ir.tile_statements import Pack, Tile
from aotc.target.base import Target


def render_kernels(plan: Plan, target: Target, others: Sequence[Plan] = ()) -> dict[str, str]:
    """``c.kernels.render_kernels`` for a core of the accelerator."""
    return c_kernels.render_kernels(plan, target, others, CoreText, device_lines(target)
                                    + '#include "aotc_dsa.h"\n\n')


class CoreText(KernelText):
    """The functions of one kernel, whose work items run on cores in turn.  Library kernels run on
    the processor that shares DDR with them."""

    def __init__(self, owned: PlanKernel, name: str, dialect: Dialect,
                 rules: Sequence[Rule]) -> None:
        self.plan = owned.plan
        super().__init__(owned, name, dialect, rules)

    def written_by(self, env: KernelEnv) -> KernelWriter:
        self.hosted = self.kernel.lowered.calls_library
        if self.hosted:
            return super().written_by(env)
        at, shared = env["buffer"], {b for b in self.tensors if self.plan.place(b).memory}
        local = set(self.scratch) | {b for b in shared if self._held(b)}
        env["buffer"] = lambda b: f"g_{b}" if b in shared else at(b)

        def call(what: str, buffer: str, at: str, dtype: str) -> str:
            far = "" if buffer in local else "far_"
            return f"aotc_dsa_{far}{what}_{dtype}(core, {env['buffer'](buffer)} + ({at})"

        def get(buffer: str, at: str, dtype: str) -> str:
            if buffer.startswith(OWN):  # an array of the kernel's, on the core's stack
                return f"{env['buffer'](buffer)}[{at}]"
            return call("get", buffer, at, dtype) + ")"

        def run(what: str) -> Callable[[str, str, str], str]:
            return lambda buffer, at, count: at if buffer.startswith(OWN) else (
                f"aotc_dsa_{'' if buffer in local else 'far_'}{what}(core, {at}, {count})")

        env["get"], env["reads"], env["writes"] = get, run("reads"), run("writes")
        env["put"] = lambda buffer, at, value, dtype: call(
            "put", buffer, at, dtype) + f", {value});"
        named = {b: (f"{d.removesuffix(f't_{b}')}g_{b}" if b in shared else d, where)
                 for b, (d, where) in self.tensors.items()}
        writer = _CoreWriter(env, self.name, {**named, **self.scratch})
        writer.rings = frozenset(b for b in shared if self.plan.place(b).ring)
        return writer

    def _held(self, b: str) -> bool:
        """True for what stays in the cores' own memories from kernel to kernel."""
        return self.plan.place(b).memory == self.plan.memories[0][0]

    def items(self, pointers: Sequence[str], named: bool = False) -> list[str]:
        if self.hosted:
            return super().items(pointers, named)
        kernel = self.safe
        frame = [] if named else [f"{self.name}_frame *const f = frame;"]
        title = f"{self.name}_{kernel.name}"
        scratch = []
        for s, (start, _) in zip(kernel.scratch, self.scratch.values()):
            t = DTYPES[s.dtype]
            scratch.append(f'{start} = aotc_dsa_local(core, "{s.name}", {s.offset}, '
                           f"{s.elements} * sizeof({t.c}));")
        places = [self.plan.place(b) for b in self.tensors]
        shared = [p for p in places if p.memory]
        held = {p.name: f"{self.tensors[p.name][0]} = " for p in shared if self._held(p.name)}
        pointers = [x for x in pointers if not x.startswith(tuple(held.values()))]
        frame += [f"(void)t_{b};" for b in held] * named
        for p in shared:
            start = self.tensors[p.name][0].removesuffix(f"t_{p.name}")
            size = f"{c_size(p.room)} * sizeof({DTYPES[p.dtype].c}));"
            if p.name in held:
                scratch.append(f'{start}g_{p.name} = aotc_dsa_held(core, "{p.name}", '
                               f"{p.offset}, {size}")
                continue
            # negative: places count from what a cluster has
            parts = -p.holders if p.each or p.ring else p.parts
            scratch.append(f'{start}g_{p.name} = aotc_dsa_shared(core, "{p.name}", t_{p.name}, '
                           f"{parts}, {size}")
        count = c_index(simplify(kernel.tiles))
        turn = ["const int64_t tile = aotc_dsa_item(at, f->turn_first, f->turn_items, "
                f"{count}, {kernel.clusters});"] if self.plan.turns else []
        name = "at" if turn else "tile"
        return indent([
            *frame, *pointers, *declare_extents(self.extents),
            "aotc_dsa *const machine = aotc_dsa_open(f->slab + worker * f->slab_stride,",
            f"    {kept_text(self.plan)});",
            f"for (int64_t {name} = begin; {name} < end; ++{name}) {{",
            *indent([*turn, f'aotc_dsa_core *const core = aotc_dsa_begin(machine, "{title}", tile,',
                     f"    {count}, {kernel.clusters});",
                     *scratch, *self.lines, "aotc_dsa_end(core);"]), "}",
            f"{self.name}_refuse(f, machine->refusal);"])


class _CoreWriter(KernelWriter):
    """C text of one kernel's statements on a core."""

    zeros = "NULL"  # the matrix engine has such rows itself
    rings: frozenset[str] = frozenset()  # buffers of which GB has room for a part at a time

    def row_type(self, dtype: str) -> str:
        return "void"

    def section(self, s: Section) -> list[str]:
        return [*brace_lines(super().section(s)), "aotc_dsa_computed(core);"]

    def passed(self, function: Function, frame: bool) -> tuple[list[str], list[str]]:
        parameters, arguments = super().passed(function, frame)
        return ["aotc_dsa_core *core", *parameters], ["core", *arguments]

    def tile(self, s: Tile) -> list[str]:
        """One product of the matrix engine, from what its sums start from."""
        assert s.micro.unit and not s.in_place, s  # the target has no other products
        nr, left = s.micro.nr, c_index(s.b.left, 0)
        kinds = ", ".join(f"sizeof({DTYPES[t].c})" for t in (s.micro.dtypes.a, s.micro.dtypes.b))
        start = [f"memset(acc_tile, 0, {s.micro.mr * nr} * sizeof(float));"]
        if s.start is not None:
            j = self.names.fresh("column")
            block = Scalars(self.env, self.names)
            at = block.text(s.start.offset, 12)
            value = self.env["get"](s.start.buffer, f"{at} + {j}", s.micro.dtypes.sums)
            start += [*block.lines, f"for (int64_t {j} = 0; {j} < {nr} && {j} < {left}; ++{j}) {{",
                      f"    const float first = {value};",
                      f"    for (int i = 0; i < {s.summed}; ++i) {{",
                      f"        acc_tile[i * {nr} + {j}] = first;", "    }", "}"]
        sizes = ", ".join(c_index(e, 0) for e in (
            s.a.first, s.taps, s.kc, s.a.step, s.b.step, s.b.tap_step, s.b.left))
        return [*start, f"aotc_dsa_multiply(core, &(const aotc_dsa_product){{{s.micro.mr}, "
                f"{s.summed}, {nr}, {kinds}, {sizes}}}, a_row, b_col, acc_tile);"]

    def pack(self, s: Pack) -> list[str]:
        """Columns that lie along the sum, gathered element by element."""
        block = Scalars(self.env, self.names)
        at, k, j = block.text(s.offset, 12), self.names.fresh("k"), self.names.fresh("column")
        source = f"{at} + {j} * {c_index(s.step, 13)} + {k}"
        value = self.env["get"](s.source, source, "f32")
        to = self.env["put"](s.to, f"{k} * {s.width} + {j}", value, "f32")
        return [*block.lines, f"for (int64_t {k} = 0; {k} < {c_index(s.depth, 11)}; ++{k}) {{",
                f"    for (int64_t {j} = 0; {j} < {c_index(s.columns, 11)}; ++{j}) {{",
                f"        {to}", "    }", "}"]

    def fill(self, s: Fill) -> list[str]:
        block, i = Scalars(self.env, self.names), self.names.fresh("element")
        at, value = block.text(s.offset, 12), block.text(s.value)
        to = self.env["put"](s.buffer, f"{at} + {i}", value, s.value.dtype)
        return [*block.lines, f"for (int64_t {i} = 0; {i} < {c_index(s.count, 11)}; ++{i}) {{",
                f"    {to}", "}"]

    def copy(self, s: Copy) -> list[str]:
        block = Scalars(self.env, self.names)
        if not s.engine:
            return self._by_itself(s, block)
        to, source = (self._address(b, block.text(b.offset, 13), DTYPES[s.dtype].c)
                      for b in (s.to, s.source))
        arrays = [self._numbers(x) for x in (s.extents, s.to.strides, s.source.strides)]
        return [*block.lines, f"aotc_dsa_{s.engine}(core, {s.token}, {to}, {source}, "
                f"sizeof({DTYPES[s.dtype].c}), {len(s.extents)}, {', '.join(arrays)});"]

    def _address(self, b: Box, at: str, kind: str) -> str:
        start = self.env["buffer"](b.buffer)
        return f"aotc_dsa_ring(core, {start}, ({at}) * sizeof({kind}))" if b.buffer in self.rings \
            else f"{start} + {at}"

    def _by_itself(self, s: Copy, block: Scalars) -> list[str]:
        """A run that the core copies, element by element."""
        assert s.form == "run", s  # others are of rows that need lanes
        to, source = block.text(s.to.offset, 12), block.text(s.source.offset, 12)
        i = self.names.fresh("element")
        value = self.env["get"](s.source.buffer, f"{source} + {i}", s.dtype)
        return [*block.lines, f"for (int64_t {i} = 0; {i} < {c_index(s.extents[0], 11)}; ++{i}) {{",
                f"    {self.env['put'](s.to.buffer, f'{to} + {i}', value, s.dtype)}", "}"]

    def _numbers(self, values: Sequence[Expr]) -> str:
        return "(const int64_t[]){" + ", ".join(c_index(v, 0) for v in values) + "}"

    def wait(self, s: Wait) -> list[str]:
        return [f"aotc_dsa_{'arrive' if s.memory else 'wait'}(core, {s.token});"]


__all__ = ["CoreText", "render_kernels"]
