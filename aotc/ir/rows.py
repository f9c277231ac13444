"""Row operands of products: a tensor read along the sum, with a constant where the padding is."""

from aotc.ir.expr import Binary, Const, Load, Where


def row_source(a):
    """(Load, guard, value outside the guard) of a row operand; no Load if it is computed."""
    if isinstance(a, Where) and isinstance(a.b, Const) and isinstance(a.a, Load):
        return a.a, a.cond, a.b.value
    return (a, None, 0) if isinstance(a, Load) else (None, None, 0)


def conjuncts(cond):
    """The conditions that a conjunction joins, in order."""
    if isinstance(cond, Binary) and cond.op == "and":
        return conjuncts(cond.a) + conjuncts(cond.b)
    return [cond]


__all__ = ["conjuncts", "row_source"]
