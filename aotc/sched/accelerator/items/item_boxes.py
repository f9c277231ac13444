"""The boxes of tensors that a work item of an opened group touches."""

from collections.abc import Hashable

from aotc.ir.access import dim_order, layout_from_json
from aotc.ir.contents import names_in
from aotc.ir.statements import STEP
from aotc.sched.accelerator.items.copied import Copied, copied_boxes
from aotc.sched.accelerator.items.unit_operands import slice_of
from aotc.sched.items.open_group import Opened


def moves(at: Opened, what: object) -> bool:
    """True if a value in statements differs from step to step of a work item."""
    names = {STEP.name, *(v.name for v, _ in (*at.tile.step_let, *at.step.lets, *at.lets))}
    return bool(names & names_in(what))


def item_boxes(at: Opened) -> tuple[Copied, ...]:
    """The boxes of a work item that can be copied."""
    ctx = at.ctx
    if not isinstance(ctx.slab, int):
        return ()
    layouts = ctx.schedule.layouts
    slices = {s.name: found for s in at.stages
              if (found := slice_of(ctx.target, ctx.group, s)) is not None}
    # deciders ask of one group again and again, with its tensors at other places
    known: dict[Hashable, tuple[Copied, ...]] = ctx.program.known("copied boxes")
    key = ctx.group, tuple(ctx.group.tile.items()), tuple(slices.items())
    if key not in known:
        known[key] = copied_boxes(ctx.program, ctx.group, at.stages, at.tile, at.boxes, ctx.local,
                                  slices)
    return tuple(c for c in known[key] if dim_order(
        layout_from_json(layouts.get(c.buffer)), len(c.dims)) is not None)


__all__ = ["item_boxes", "moves"]
