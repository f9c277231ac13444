"""Conditions of guards: taken apart and compared."""

from collections.abc import Collection

from aotc.ir.dtypes import INDEX
from aotc.ir.expr import (
    Axis,
    Binary,
    Const,
    Expr,
    Guarded,
    Load,
    Where,
    axes_of,
    children,
    depends_on_data,
    maximum,
    minimum,
    walk,
)
from aotc.ir.program import FOLD_STEP, Fold, neutral_value
from aotc.ir.simplify import are_equal, simplify, split_linear

_TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}  # with its sides exchanged


def conjuncts(cond: Expr) -> list[Expr]:
    """The conditions that a chain of ``and`` joins, in order."""
    if isinstance(cond, Binary) and cond.op == "and":
        return conjuncts(cond.a) + conjuncts(cond.b)
    return [cond]


def same_condition(a: Expr, b: Expr) -> bool:
    """True if two integer comparisons hold for the same points, as far as their forms tell."""
    x, y = _slack(a), _slack(b)
    return x is not None and y is not None and are_equal(x, y)


def _slack(cond: Expr) -> Expr | None:
    """An expression that is >= 0 exactly where an integer comparison holds; None for others."""
    if not isinstance(cond, Binary) or cond.a.dtype != "i64":
        return None
    return {"ge": cond.a - cond.b, "gt": cond.a - cond.b - 1, "le": cond.b - cond.a,
            "lt": cond.b - cond.a - 1}.get(cond.op)


def bounds(cond: Expr, axis: Expr) -> tuple[Expr | None, Expr | None] | None:
    """(first, end) of the values of ``axis`` for which an integer comparison holds, one of them
    None: index expressions without the axis.  None if it is no comparison that is affine in the
    axis with a constant coefficient, or if it looks at data."""
    if not isinstance(cond, Binary) or cond.op not in ("lt", "le", "gt", "ge"):
        return None
    if cond.a.dtype != "i64":
        return None
    diff = simplify(cond.a - cond.b)
    parts = split_linear(diff, axis)
    if parts is None or not isinstance(parts[0], Const) or parts[0].value == 0 or any(
            isinstance(n, Load) for n in walk(diff)):
        return None
    c, rest = parts[0].value, parts[1]
    if cond.op in ("lt", "gt"):  # strict: shift by one
        rest = rest + 1 if cond.op == "lt" else rest - 1
    if cond.op in ("lt", "le"):  # c*axis + rest <= 0  ->  -c*axis - rest >= 0
        c, rest = -c, -rest
    rest = simplify(rest)
    if c > 0:  # axis >= ceil(-rest / c)
        return simplify((-rest + (c - 1)) // c), None
    return None, simplify(rest // -c + 1)  # axis <= floor(rest / -c)


def bounds_from_data(cond: Expr, axis: Axis) -> tuple[Expr | None, Expr | None] | None:
    """``bounds`` of a comparison of an axis with an index from data, which may be any number: both
    ends lie in 0 .. extent of the axis.  None if data is on the axis's side too, for what is no
    such comparison, and where the data has a rule, which only holds where the axis has steps."""
    if not isinstance(cond, Binary) or cond.op not in _TURNED or cond.a.dtype != INDEX:
        return None
    op, near, far = cond.op, cond.a, cond.b
    if axis not in axes_of(near):
        op, near, far = _TURNED[op], far, near
    parts = split_linear(near, axis)
    if parts is None or parts[0] != Const(1) or depends_on_data(near) or axis in axes_of(far) or (
            not depends_on_data(far) or any(isinstance(n, Guarded) for n in walk(far))):
        return None

    def step(base: Expr) -> Expr:
        """How far ``far`` lies behind ``base``, as far as the axis goes: no difference of two
        numbers of which one may be anything, it might wrap."""
        return simplify(minimum(maximum(far, base), base + axis.extent) - base)

    at, behind = step(parts[1]), step(simplify(parts[1] - 1))
    first = {"ge": at, "gt": behind, "eq": at}.get(op)
    return first, {"lt": at, "le": behind, "eq": behind}.get(op)


# ---------------------------------------------------------------- guards of folds

def guard_of(body: Expr, fold: str | Fold) -> tuple[Expr, Expr] | None:
    """(cond, value) if a fold's body is ``where(cond, value, neutral)``; for sums also a product
    with such a factor; None if it has no such guard."""
    found = guard_in(body, fold)
    if found is None or found is body:
        return None if found is None else (found.cond, found.a)
    assert isinstance(body, Binary), body  # a product
    x, y = (found.a if x is found else x for x in (body.a, body.b))
    return found.cond, Binary("mul", x, y)


def guard_in(body: Expr, fold: str | Fold) -> Where | None:
    """The Where that ``guard_of`` takes apart: the body or one of its factors; None if neither."""
    if not isinstance(fold, str) or fold not in FOLD_STEP:
        return None
    product = fold == "sum" and isinstance(body, Binary) and body.op == "mul"
    for x in (body, *(children(body) if product else ())):
        if isinstance(x, Where) and x.b == neutral_value(fold, x.b.dtype):
            return x
    return None


def bounds_among(cond: Expr, reduced: Collection[Axis]
                 ) -> tuple[Axis, Expr | None, Expr | None] | None:
    """(axis, first or None, end or None) of a comparison with one axis of ``reduced``, as
    ``bounds`` or ``bounds_from_data`` has them; None if it is something else."""
    found = [r for r in reduced if r in axes_of(cond)]
    if len(found) != 1:
        return None
    ends = bounds(cond, found[0]) or bounds_from_data(cond, found[0])
    return None if ends is None else (found[0], *ends)


def ends_from_data(body: Expr, fold: str | Fold, reduced: Collection[Axis]) -> list[Expr]:
    """The conditions of a fold's guard that say where its loops over ``reduced`` begin and end."""
    found = guard_of(body, fold)
    return [c for c in (conjuncts(found[0]) if found else ()) if depends_on_data(c)
            and bounds_among(c, reduced) is not None]
