"""Conditions of guards: taken apart and compared."""

from aotc.ir.expr import Binary, Const, Expr, Load, walk
from aotc.ir.simplify import linear_in, same, simplify


def conjuncts(cond: Expr) -> list[Expr]:
    """The conditions that a chain of ``and`` joins, in order."""
    if isinstance(cond, Binary) and cond.op == "and":
        return conjuncts(cond.a) + conjuncts(cond.b)
    return [cond]


def same_condition(a: Expr, b: Expr) -> bool:
    """True if two integer comparisons hold for the same points, as far as their forms tell."""
    x, y = _slack(a), _slack(b)
    return x is not None and y is not None and same(x, y)


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
    parts = linear_in(diff, axis)
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
