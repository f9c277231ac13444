"""Row operands of products: a tensor read along the sum, with a constant where the padding is."""

from aotc.ir.expr import Axis, Const, Expr, Load, Where
from aotc.ir.simplify import upper


def row_source(a: Expr) -> tuple[Load | None, Expr | None, float]:
    """(Load, guard, value outside the guard) of a row operand; no Load if it is computed."""
    if isinstance(a, Where) and isinstance(a.b, Const) and isinstance(a.a, Load):
        return a.a, a.cond, a.b.value
    return (a, None, 0) if isinstance(a, Load) else (None, None, 0)


def zero_filled(a: Expr) -> tuple[Load | None, Expr | None]:
    """(Load, guard) of a row operand that is zero outside its guard; no Load for others."""
    load, guard, fill = row_source(a)
    return (load, guard) if fill == 0 else (None, None)


def zero_outside(e: Expr, cond: Expr | None) -> Expr:
    """``e`` where a condition holds (None: everywhere), else zero."""
    return e if cond is None else Where(cond, e, Const(0, e.dtype))



def endless(guard: Expr | None, k: Axis) -> bool:
    """True for a row operand with padding along a sum without a bound: there are no zeros that it
    could read in its place."""
    return guard is not None and upper(k.extent) is None


__all__ = ["endless", "row_source", "zero_filled", "zero_outside"]
