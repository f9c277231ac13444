"""Lowering of a group that streams onto the two rows of its products."""

from dataclasses import replace

from aotc.ir.access import linearise
from aotc.ir.category import Factors
from aotc.ir.dtypes import TF32
from aotc.ir.expr import Const, Expr, minimum, substitute
from aotc.ir.kernel.operands import Operand
from aotc.ir.kernel.plan_stages import Stream
from aotc.ir.simplify import simplify
from aotc.sched.items.context import Context
from aotc.sched.lowering.lower_contract import lower_contract
from aotc.sched.model.boxes import Box
from aotc.sched.model.held_numbers import is_held
from aotc.sched.rows.stream_bounds import key_bound
from aotc.sched.rows.stream_stages import GREATEST, SCORE, TOTAL, find_stream, strip_factor
from aotc.target.kernel_rows import ProductRow


def lower_stream(ctx: Context, boxes: dict[str, Box]) -> Stream:
    """The Stream of a group, over the box of its last product."""
    group, target = ctx.group, ctx.target
    found = find_stream(ctx.program, group)
    assert found is not None, group.name  # ``check_group`` refuses others
    scores, values, key = found.scores, found.values, found.key
    box = boxes[values.name] | {key: (Const(0), simplify(key.extent - 1))}
    single = {a: lo for a, (lo, end) in box.items() if lo == end}

    def here(e: Expr) -> Expr:
        return simplify(substitute(e, single))
    end = key.extent if found.end is None else here(minimum(key.extent, found.end))
    box[key] = Const(0), simplify(end - 1)
    rows = [target.product_row(group.choices[s.name].row) for s in (scores, values)]
    scored, valued = (_as_stored(f, r) for f, r in zip((found.scored, found.valued), rows))
    first = lower_contract(ctx, scores, rows[0], {a: box[a] for a in scores.axes}, scored,
                           apart=True)
    stored = replace(values, outputs=(*values.outputs, *found.states))
    last = lower_contract(ctx, stored, rows[1], boxes[values.name], valued, apart=True)
    puts = last.puts
    count = len(values.outputs)
    last = replace(last, a=Operand("held", "", last.a.offset, last.a.stride),
                   k=replace(last.k, hi=end), puts=puts[:count],
                   rounds=rows[1].a == TF32 and not is_held(ctx.program, valued.b, TF32))
    bound = key_bound(ctx.program, found)
    return Stream(replace(first, puts=()), here(linearise(found.element, ctx.place)), last, SCORE,
                  TOTAL, scores.name, None if bound is None else here(bound), GREATEST,
                  puts[count:])


def _as_stored(f: Factors, row: ProductRow) -> Factors:
    """Factors of a row that rounds what it multiplies."""
    return replace(f, a=strip_factor(f.a), b=strip_factor(f.b)) if row.a == TF32 else f


__all__ = ["lower_stream"]
