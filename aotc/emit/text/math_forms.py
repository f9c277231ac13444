"""Forms of f32 expressions that the vector math computes in fewer steps than their parts.

Found by structure, whichever operator or decomposition they come from.  Only where functions may
be polynomials (``math="fast"``): the steps left out round differently.
"""

from collections.abc import Collection
from typing import TypeGuard

from aotc.ir.expr import Binary, Const, Expr, Unary

SCALES = 1 / 16, 16  # of erf and tanh: with these no coefficient leaves the range of f32


def sigmoid_argument(e: Expr, kept: Collection[Expr]) -> Expr | None:
    """x of ``1 / (1 + exp(-x))``; None for another expression.  kept: expressions that are
    computed once for several uses, and therefore on their own."""
    if not _is(e, "div") or e.a != Const(1, "f32") or not _is(e.b, "add") or e.b in kept:
        return None
    for one, power in ((e.b.a, e.b.b), (e.b.b, e.b.a)):
        if one == Const(1, "f32") and _is_unary(power, "exp") and _is_unary(power.x, "neg"):
            return None if power in kept else power.x.x
    return None


def scaled_argument(e: Expr, kept: Collection[Expr]) -> tuple[str, Expr, float] | None:
    """(function, x, s) of erf or tanh of ``s * x`` with a constant s; None for others.  A
    quotient x / c counts as x * (1 / c): what one more rounding of the argument changes is less
    than the functions' own error, since both x f'(x) are at most 1/2."""
    if not isinstance(e, Unary) or e.op not in ("erf", "tanh") or e.x in kept:
        return None
    inner = e.x
    if _is(inner, "div") and isinstance(inner.b, Const):
        x, scale = inner.a, 1 / inner.b.value if inner.b.value else 0
    elif _is(inner, "mul") and isinstance(inner.b, Const):
        x, scale = inner.a, inner.b.value
    elif _is(inner, "mul") and isinstance(inner.a, Const):
        x, scale = inner.b, inner.a.value
    else:
        return None
    return (e.op, x, float(scale)) if SCALES[0] <= scale <= SCALES[1] else None


def _is(e: Expr, op: str) -> TypeGuard[Binary]:
    return isinstance(e, Binary) and e.op == op and e.dtype == "f32"


def _is_unary(e: Expr, op: str) -> TypeGuard[Unary]:
    return isinstance(e, Unary) and e.op == op and e.dtype == "f32"
