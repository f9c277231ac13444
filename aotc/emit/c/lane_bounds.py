"""Which lanes: where integer comparisons hold along a vector."""

from aotc.ir.conditions import bounds, conjuncts
from aotc.ir.expr import Axis, Const, Expr, axes_of, maximum, minimum
from aotc.ir.simplify import simplify


def lanes_between(cond: Expr, lane: Axis) -> tuple[Expr, Expr | None] | None:
    """(first, end) of the values of the axis ``lane`` for which a conjunction of comparisons of
    indices holds: index expressions, ``end`` None if nothing bounds it.  None if one of the
    comparisons is no such bound."""
    first: Expr = Const(0)
    end: Expr | None = None
    for c in conjuncts(cond):
        found = bounds(c, lane) if lane in axes_of(c) else None
        if found is None:
            return None
        low, high = found
        first = first if low is None else maximum(first, low)
        end = high if end is None or high is None else minimum(end, high)
    return simplify(first), None if end is None else simplify(end)
