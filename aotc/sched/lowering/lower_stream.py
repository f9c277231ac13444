"""Lowering of a group that streams onto the two rows of its products."""

from dataclasses import replace

from aotc.ir.access import linearise
from aotc.ir.expr import Const, substitute
from aotc.ir.kernel.operands import Operand
from aotc.ir.kernel.plan_stages import Stream
from aotc.ir.simplify import simplify
from aotc.sched.items.context import Context
from aotc.sched.lowering.lower_contract import lower_contract
from aotc.sched.model.boxes import Box
from aotc.sched.rows.stream_bounds import key_bound
from aotc.sched.rows.stream_stages import SCORE, TOTAL, find_stream


def lower_stream(ctx: Context, boxes: dict[str, Box]) -> Stream:
    """The Stream of a group, over the box of its last product."""
    group, target = ctx.group, ctx.target
    found = find_stream(ctx.program, group)
    assert found is not None, group.name  # ``check_group`` refuses others
    scores, values = found.scores, found.values
    box = boxes[values.name] | {found.key: (Const(0), simplify(found.key.extent - 1))}
    first = lower_contract(ctx, scores, target.product_row(group.choices[scores.name].row),
                           {a: box[a] for a in scores.axes}, found.scored)
    last = lower_contract(ctx, values, target.product_row(group.choices[values.name].row),
                          boxes[values.name], found.valued)
    single = {a: lo for a, (lo, end) in box.items() if lo == end}
    element = simplify(substitute(linearise(found.element, ctx.place), single))
    held = Operand("held", "", last.a.offset, last.a.stride)
    bound = key_bound(ctx.program, found)
    return Stream(replace(first, puts=()), element, replace(last, a=held), SCORE, TOTAL,
                  scores.name, None if bound is None else simplify(substitute(bound, single)))


__all__ = ["lower_stream"]
