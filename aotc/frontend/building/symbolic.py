"""Arithmetic on shape values: what a model computes about its own extents is done here.

A shape value is an index expression over symbols and axes.  Three things go beyond simplify:
``tidy`` pulls ``Where`` outward so that piecewise values can cancel, ``cast`` turns float detours
(Cast, Mul by a scale, Floor, Cast) into exact arithmetic (rational.py), and ``limit_of`` solves a
condition for the one symbol in it.
"""

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache, reduce

from aotc.frontend.building.rational import condition, ratio, to_int
from aotc.ir.dtypes import DTYPES, INDEX, is_float
from aotc.ir.expr import (
    COMPARE,
    Axis,
    Binary,
    Cast,
    Const,
    Expr,
    Sym,
    Unary,
    Where,
    all_hold,
    axes_of,
    binary,
    compare,
    loads,
    rewrite,
    show,
    substitute,
    walk,
)
from aotc.ir.simplify import lower, simplify, split_linear, to_poly, upper

FAR = 1 << 40  # stands for the largest value of a symbol without a bound
MAX_PIECES = 12  # Wheres in one expression beyond which pulling them outward does not pay


# ---------------------------------------------------------------- piecewise values

def tidy(e: Expr) -> Expr:
    """simplify, then pull Wheres outward and merge equal branches where that is cheap."""
    if any(map(_tests_float, walk(e))):
        e = rewrite(e, _float_condition)
    e = simplify(_narrow(e) if e.dtype == "i32" else e)
    pieces = sum(1 for n in walk(e) if isinstance(n, Where))
    if not pieces or pieces > MAX_PIECES or loads(e):
        return e
    return simplify(rewrite(e, _pull))


def wrap_to_64_bits(value: int) -> int:
    """An integer as 64 bits hold it."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def leaves_64_bits(nodes: Iterable[Expr]) -> bool:
    """True if some number of an index expression is none of 64 bits."""
    return any(isinstance(n, Const) and n.dtype == INDEX and
               n.value != wrap_to_64_bits(int(n.value)) for n in nodes)


def _tests_float(n: Expr) -> bool:
    if isinstance(n, Unary):
        return n.op in ("isnan", "isinf")
    return isinstance(n, Binary) and n.op in COMPARE and is_float(n.a.dtype)


def _float_condition(n: Expr) -> Expr | None:
    """A comparison or test of floats that are extents as one of integers, else None."""
    if isinstance(n, Binary) and n.dtype == "bool" and is_float(n.a.dtype):
        return condition(n)
    test = isinstance(n, Unary) and n.op in ("isnan", "isinf") and ratio(n.x) is not None
    return Const(False, "bool") if test else None


def _pull(n: Expr) -> Expr | None:
    if isinstance(n, Where):
        return _merge(n.cond, n.a, n.b)
    if isinstance(n, Binary) and isinstance(n.a, Where):
        w = n.a
        return _merge(w.cond, _pull_or_keep(binary(n.op, w.a, _assume(n.b, w.cond))),
                      _pull_or_keep(binary(n.op, w.b, n.b)))
    if isinstance(n, Binary) and isinstance(n.b, Where):
        w = n.b
        return _merge(w.cond, _pull_or_keep(binary(n.op, _assume(n.a, w.cond), w.a)),
                      _pull_or_keep(binary(n.op, n.a, w.b)))
    if isinstance(n, Unary) and isinstance(n.x, Where):
        return _merge(n.x.cond, Unary(n.op, n.x.a), Unary(n.op, n.x.b))
    if isinstance(n, Cast) and isinstance(n.x, Where):
        return _merge(n.x.cond, cast(n.dtype, n.x.a), cast(n.dtype, n.x.b))
    return None


def _pull_or_keep(n: Expr) -> Expr:
    return _pull(n) or n


def _merge(cond: Expr, a: Expr, b: Expr) -> Expr:
    cond = simplify(cond)
    if isinstance(cond, Const):
        return a if cond.value else b
    a, b = _fold_bool(simplify(_assume(a, cond))), _fold_bool(simplify(b))
    return a if a == b else Where(cond, a, b)


def _fold_bool(e: Expr) -> Expr:
    if isinstance(e, Unary) and e.op == "not" and isinstance(e.x, Const):
        return Const(not e.x.value, "bool")
    return e


def _assume(e: Expr, cond: Expr) -> Expr:
    """``e`` where ``cond`` holds: a condition like ``axis < 1`` says which axis is 0."""
    if (isinstance(cond, Binary) and isinstance(cond.a, Axis) and isinstance(cond.b, Const)
            and (cond.op, cond.b.value) in (("lt", 1), ("le", 0), ("eq", 0))):
        return substitute(e, {cond.a: Const(0)})
    return e


def conjunction(conds: Iterable[Expr]) -> Expr:
    """The condition that all of them hold; true of none."""
    out = all_hold(conds)
    return Const(True, "bool") if out is None else out


def add_values(values: Iterable[Expr]) -> Expr:
    """The sum of one expression or more, from the left."""
    return reduce(operator.add, values)


# ---------------------------------------------------------------- conversions

def cast(dtype: str, e: Expr) -> Expr:
    """Cast that folds constants, drops itself where it changes nothing, and sees through
    float detours of shape arithmetic."""
    if e.dtype == dtype:
        return e
    if isinstance(e, Const):
        return _cast_const(dtype, e)
    if dtype == INDEX and isinstance(e, Cast) and _keeps(e):
        return e.x
    if DTYPES[dtype].kind == "i" and is_float(e.dtype) and not _has_load(e):
        exact = to_int(e)
        if exact is not None:
            return cast(dtype, exact)
    return Cast(dtype, e)


def _keeps(e: Cast) -> bool:
    """True for an index that a narrower dtype holds; extents fit 32 bits."""
    if e.x.dtype != INDEX or DTYPES[e.dtype].kind not in "iu":
        return False
    if e.dtype in ("i32", "i64"):
        return True
    least = 0 if DTYPES[e.dtype].kind == "u" else -(1 << (8 * DTYPES[e.dtype].size - 1))
    lo, hi = lower(e.x), upper(e.x)
    return lo is not None and lo >= least and (e.dtype == "u64" or hi is not None and (
        hi < least + (1 << 8 * DTYPES[e.dtype].size)))


def _cast_const(dtype: str, e: Const) -> Expr:
    if dtype != "bool" and is_float(e.dtype) and not abs(e.value) < 2.0**31:
        # what does not fit an integer has its own rules: the evaluator knows them
        return const(e.value, dtype) if is_float(dtype) else Cast(dtype, e)
    return const(e.value != 0 if dtype == "bool" else e.value, dtype)


def const(value: float, dtype: str) -> Const:
    """A Const whose value is representable in ``dtype`` (floats rounded, integers wrapped)."""
    if is_float(dtype):
        return Const(float(DTYPES[dtype].numpy.type(value)), dtype)
    if dtype == "bool":
        return Const(bool(value), dtype)
    bits = 8 * DTYPES[dtype].size
    value = int(value) & ((1 << bits) - 1)
    signed = DTYPES[dtype].kind == "i" and value >> (bits - 1)
    return Const(value - (1 << bits) if signed else value, dtype)


def _has_load(e: Expr) -> bool:
    return bool(loads(e))


def _narrow(e: Expr) -> Expr:
    """A 32-bit shape value as Cast(i32, 64-bit value), so that simplify can work on it."""
    wide = _widen(e)
    if wide is None:
        return e
    wide = simplify(wide)
    return const(wide.value, "i32") if isinstance(wide, Const) else Cast("i32", wide)


def _widen(e: Expr) -> Expr | None:
    if isinstance(e, Cast) and e.x.dtype == INDEX:
        return e.x
    if isinstance(e, Const):
        return Const(e.value)
    if isinstance(e, Binary) and e.op in ("add", "sub", "mul", "floordiv", "mod", "min", "max"):
        a, b = _widen(e.a), _widen(e.b)
        return None if a is None or b is None else binary(e.op, a, b)
    if isinstance(e, Where):
        a, b = _widen(e.a), _widen(e.b)
        return None if a is None or b is None else Where(e.cond, a, b)
    return None


def show_condition(cond: Expr) -> str:
    """A condition for a message."""
    if isinstance(cond, Binary) and cond.op in ("and", "or") and cond.dtype == "bool":
        return f"{show_condition(cond.a)} {cond.op} {show_condition(cond.b)}"
    return show(cond)


# ---------------------------------------------------------------- limits

def worst_case(e: Expr) -> Expr | None:
    """The largest value of ``e`` over its axes, as an expression over symbols; None if unknown."""
    e = simplify(e)
    if _grows(e):
        return simplify(substitute(e, {a: a.extent - 1 for a in axes_of(e)}))
    if _grows(simplify(0 - e)):
        return simplify(substitute(e, {a: Const(0) for a in axes_of(e)}))
    for axis in sorted(axes_of(e), key=lambda a: a.name):
        parts = split_linear(e, axis)
        if parts is None:
            return None
        c, rest = parts
        if not isinstance(c, Const):
            return None
        e = simplify(rest + c * (axis.extent - 1) if c.value > 0 else rest)
    return e


def _grows(e: Expr) -> bool:
    """True if ``e`` never falls where one of its axes grows: sums and quotients of axes."""
    return all(c > 0 and all(_grows_atom(a) for a in m)
               for m, c in to_poly(e).items() if any(map(axes_of, m)))


def _grows_atom(a: Expr) -> bool:
    if not axes_of(a):
        low = lower(a)
        return low is not None and low >= 0
    if isinstance(a, Binary) and a.op in ("min", "max"):
        return _grows(a.a) and _grows(a.b)
    return isinstance(a, Axis) or isinstance(a, Binary) and a.op == "floordiv" and _grows(a.a) and (
        not axes_of(a.b)) and (lower(a.b) or 0) >= 1


@lru_cache(maxsize=1 << 12)  # the same few conditions hold of many nodes
def remove_axes(cond: Expr) -> Expr | None:
    """A condition ``a < b`` (or le, gt, ge) that holds for every value of the axes in it, as a
    condition on symbols; None if it cannot be stated."""
    if not isinstance(cond, Binary) or cond.op not in ("lt", "le", "gt", "ge"):
        return None
    a, b = (cond.a, cond.b) if cond.op in ("lt", "le") else (cond.b, cond.a)
    top = worst_case(a - b + (1 if cond.op in ("lt", "gt") else 0))
    return None if top is None or axes_of(top) else simplify(compare("le", top, Const(0)))


@dataclass(frozen=True)
class Limit:
    """``sym`` must lie in lo..hi (an open end is None).  ``firm``: exactly then does the condition
    hold; otherwise that is only known at the ends, and a range the user gave stands."""

    sym: Sym
    lo: int | None
    hi: int | None
    why: str = ""
    firm: bool = True


def limit_of(cond: Expr) -> Limit | None:
    """The Limit that a condition over one symbol implies; None if it cannot be solved."""
    syms = {n for n in walk(cond) if isinstance(n, Sym)}
    if not isinstance(cond, Binary) or len(syms) != 1:
        return None
    sym, = syms
    a, b = (cond.a, cond.b) if cond.op not in ("gt", "ge") else (cond.b, cond.a)
    poly = to_poly(a - b + (1 if cond.op in ("lt", "gt") else 0))  # must be <= 0, or == 0
    k, c = poly.get((), 0), poly.get((sym,), 0)
    linear = set(poly) <= {(), (sym,)} and c != 0
    if cond.op == "eq":
        return Limit(sym, -k // c, -k // c) if linear and k % c == 0 and -k // c >= 0 else None
    if cond.op not in ("lt", "le", "gt", "ge"):
        return None
    if not linear:
        return _bisected(cond, sym)
    return Limit(sym, None, -k // c) if c > 0 else Limit(sym, max(0, -(-k // -c)), None)


def _bisected(cond: Expr, sym: Sym) -> Limit | None:
    """Where a condition that holds at one end of the symbol's range stops holding."""
    def holds(value: int) -> bool:
        return simplify(substitute(cond, {sym: Const(value)})) == Const(True, "bool")
    most = FAR if sym.hi is None else sym.hi
    good, bad = (most, sym.lo) if holds(most) else (sym.lo, most)
    if not holds(good) or holds(bad):
        return None
    while abs(good - bad) > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return (Limit(sym, good, None, firm=False) if good > bad
            else Limit(sym, None, good, firm=False))
