"""Copies of a work item: what it touches outside comes into scratch, and goes back from there."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from aotc.ir.access import dim_order, layout_from_json, row_major
from aotc.ir.expr import Const, Expr, maximum
from aotc.ir.plan import Stage as PlanStage
from aotc.ir.simplify import same, simplify
from aotc.ir.statements import Body, Copy, Wait, with_buffers
from aotc.ir.statements import Box as Place
from aotc.sched.lowering.context import ALIGN, Context, scratch_order, scratch_strides
from aotc.sched.model.boxes import Box, Tile
from aotc.sched.model.copied import Copied, copied_boxes, that_fit
from aotc.sched.model.stages import Stage

IN, OUT = 0, 1  # tokens


@dataclass(frozen=True)
class Copies:
    """``before`` and ``after`` the stages of a work item.  ``names``: {buffer: the one in scratch
    that stands for it}."""

    before: Body = ()
    after: Body = ()
    names: Mapping[str, str] = field(default_factory=dict)

    def renamed(self, stages: Iterable[PlanStage]) -> tuple[PlanStage, ...]:
        """The stages with what has been copied in place of what lies outside."""
        return tuple(with_buffers(s, self.names) if self.names else s for s in stages)


def place_copies(ctx: Context, stages: Sequence[Stage], tile: Tile,
                 boxes: Mapping[str, Box]) -> Copies:
    """Scratch for what a work item copies, which ``ctx`` then places there; none on a machine that
    has no engines for it."""
    machine = ctx.target.machine
    load = machine.engine(machine.memory, machine.near)
    store = machine.engine(machine.near, machine.memory)
    if load is None or store is None or not isinstance(ctx.slab, int):
        return Copies()
    program, layouts = ctx.program, ctx.schedule.layouts
    found = [c for c in copied_boxes(program, ctx.group, stages, tile, boxes, ctx.local)
             if dim_order(layout_from_json(layouts.get(c.buffer)), len(c.dims)) is not None]

    def size(c: Copied) -> int:
        return -(-c.bytes(program) // ALIGN) * ALIGN

    before: list[Copy] = []
    after: list[Copy] = []
    names: dict[str, str] = {}
    for c in that_fit(found, machine.room(machine.near) - ctx.slab, size):
        name = f"{c.buffer}_near"
        while name in program.buffers:
            name += "_"
        names[c.buffer] = ctx.add_scratch(name, program.dtype(c.buffer), c.elements)
        ctx.local = {**ctx.local, c.buffer: c.dims}
        (after if c.written else before).append(_copy(
            ctx, c, names[c.buffer], store.name if c.written else load.name))
    return Copies((*before, Wait(IN)) if before else (), (*after, Wait(OUT)) if after else (),
                  names)


def _copy(ctx: Context, c: Copied, name: str, engine: str) -> Copy:
    """The copy of one box, neighbouring dimensions as one where they lie so on both sides."""
    layout = ctx.schedule.layouts.get(c.buffer)
    order = scratch_order(layout, len(c.dims))
    shape = ctx.program.shape(c.buffer)
    steps = row_major([shape[d] for d in order])
    far = [steps[order.index(d)] for d in range(len(order))]
    near = scratch_strides(c.dims, layout)
    first: Expr = Const(0)
    for (lo, _), step in zip(c.dims, far):
        first = first + lo * step
    runs: list[tuple[Expr, Expr, Expr]] = []  # extent, step near, step far
    for d in order:
        n = simplify(maximum(c.last[d] - c.dims[d][0] + 1, Const(0)))
        if n == Const(1):
            continue
        if runs and all(same(runs[-1][k], s * n) for k, s in ((1, near[d]), (2, far[d]))):
            runs[-1] = simplify(runs[-1][0] * n), near[d], far[d]
        else:
            runs.append((n, near[d], far[d]))
    extents, inner, outer = zip(*(runs or [(Const(1), Const(1), Const(1))]))
    there = Place(c.buffer, simplify(first), outer)
    here = Place(name, Const(0), inner)
    dtype = ctx.program.dtype(c.buffer)
    return Copy(there, here, extents, dtype, "box", engine, OUT) if c.written else Copy(
        here, there, extents, dtype, "box", engine, IN)


__all__ = ["Copies", "place_copies"]
