"""Lowering of a product whose group counts its rows through as one."""

from aotc.ir.expr import Const
from aotc.ir.kernel.plan_stages import Contract
from aotc.ir.simplify import simplify
from aotc.ir.statements import Range
from aotc.sched.items.context import Context
from aotc.sched.lowering.lower_contract import lower_contract
from aotc.sched.lowering.lower_dot import lower_dot
from aotc.sched.model.boxes import Box
from aotc.sched.model.stages import group_stages
from aotc.target.kernel_rows import ProductRow


def lower_flat(ctx: Context, row: ProductRow, box: Box) -> Contract:
    """The Contract over a box along the axis that the rows are counted through as: it has them
    along axes of their own, and its part of them all."""
    (stage,) = group_stages(ctx.program, ctx.group.by_axes)
    whole = {a: (Const(0), simplify(a.extent - 1)) for a in stage.axes if a.name in ctx.group.flat}
    flat = next(a for a in box if a.name == ctx.group.flat_axis)
    lo, last = box[flat]
    lowered = lower_dot if row.category == "dot" else lower_contract
    return lowered(ctx, stage, row, {a: whole.get(a) or box[a] for a in stage.axes},
                   part=Range(flat, lo, simplify(last + 1)))


__all__ = ["lower_flat"]
