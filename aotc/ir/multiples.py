"""Multiples of a constant: what says that no register tile is cut at its end."""

from collections.abc import Mapping
from math import gcd

from aotc.ir.expr import Axis, Binary, Const, Expr
from aotc.ir.simplify import simplify, to_poly


def is_multiple(e: Expr, d: int, values: Mapping[Expr, Expr] | None = None) -> bool:
    """True if an index expression is provably a multiple of the positive integer ``d`` for all
    values of its axes and symbols.  values: {Axis: expression} of axes that stand for others, such
    as the ends of a tile."""
    if simplify(e % d) == Const(0):
        return True
    return all(any(_atom(a, d // gcd(c, d), values) for a in mono)
               for mono, c in to_poly(e).items() if c % d)


def _atom(a: Expr, d: int, values: Mapping[Expr, Expr] | None) -> bool:
    if isinstance(a, Axis) and values and a in values:
        return is_multiple(values[a], d, values)
    return isinstance(a, Binary) and a.op in ("min", "max") and all(
        is_multiple(x, d, values) for x in (a.a, a.b))
