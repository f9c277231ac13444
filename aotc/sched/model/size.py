"""Sizes for decisions: symbols stand for a typical value inside their range."""

from collections.abc import Iterable
from functools import lru_cache
from math import isqrt

from aotc.ir.expr import Axis, Const, Expr, Sym, substitute, walk
from aotc.ir.simplify import simplify, upper

ENDLESS = 1 << 62  # terms of a sum without a bound
TYPICAL = 128  # assumed value of a symbol whose range begins at 0 or 1 and goes far
# of a product whose rows are read in place, a pointer for each and every row: by category
MAX_TAPS = {"contraction": 128, "dot": 64}


def typical_extent(sym: Sym) -> int:
    """The assumed value of a symbol, unless it says its own: as far, by its factor, from one end of
    its range as from the other; a range from 0 or 1 on that goes far has a usual value."""
    if sym.usual:
        return sym.usual
    if sym.lo <= 1 and sym.reach > 64:
        return min(TYPICAL, sym.reach)
    return min(max(isqrt(max(sym.lo, 1) * sym.reach), 2, sym.lo), sym.reach)


@lru_cache(maxsize=1 << 14)
def reach(expr: Expr) -> int | None:
    """``upper`` for decisions: extents without an end take their likely largest value.  None where
    data decide.  Never to reserve memory by."""
    return upper(substitute(expr, {s: Sym(s.name, s.lo, s.reach) for s in walk(expr)
                                   if isinstance(s, Sym) and s.hi is None}))


@lru_cache(maxsize=1 << 14)
def estimate(expr: Expr) -> int:
    """A typical integer value of an extent expression, at least 1."""
    syms = {s: Const(typical_extent(s)) for s in walk(expr) if isinstance(s, Sym)}
    value = simplify(substitute(expr, syms))
    if isinstance(value, Const):
        return max(1, int(value.value))
    return max(1, upper(value) or 1)


def estimate_volume(extents: Iterable[Expr]) -> int:
    n = 1
    for e in extents:
        n *= estimate(e)
    return n


def sum_terms(axes: Iterable[Axis]) -> int:
    """Terms of the longest sum over axes; ``ENDLESS`` and more where that is not known."""
    n = 1
    for a in axes:
        n *= upper(a.extent) or ENDLESS
    return n


def float_nodes(values: Iterable[Expr]) -> int:
    """f32 nodes of values."""
    return sum(n.dtype == "f32" for v in values for n in walk(v))


def row_tails(mr: int, choice: int, written_out: bool) -> tuple[int, ...]:
    """Rows of the register tiles below one of ``mr`` that the last of many rows may be, ascending,
    by what a Schedule says of ``tails``: a quarter and half of it, and one.  Sums that are written
    out where they are used are so once more for each: those do without the quarter."""
    few = {-(-mr // 2)} if written_out else {-(-mr // 4), -(-mr // 2)}
    return tuple(sorted((few | ({1} if choice > 1 else set())) - {mr})) if choice else ()
