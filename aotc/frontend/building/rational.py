"""Float arithmetic on extents, as models write it (Cast, Mul by a scale, Floor, Sqrt, Cast), in
exact rational numbers: its integer parts and comparisons are index expressions.

What comes out is compared with the arithmetic that the model asks for, in its own dtype with its
own roundings, over the ranges of its symbols: where one symbol's values differ in a few runs, they
are corrected there, and otherwise there is no index expression."""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np

from aotc.ir.dtypes import DTYPES, INDEX, Array, is_float
from aotc.ir.expr import (
    Axis,
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Sym,
    Unary,
    Var,
    Where,
    any_holds,
    as_expr,
    binary,
    children,
    compare,
    rewrite,
    substitute,
    walk,
)
from aotc.ir.simplify import lower, simplify, to_poly, upper
from aotc.oracle.eval_expr import EvalScope

_POINTS = 4096  # values of several symbols that are compared
_FARTHEST = 1 << 15  # values of one symbol
_RUNS = 48  # runs of values that are treated apart
_WHOLE = ("add", "sub", "mul", "min", "max")  # of narrow integers, where they do not wrap
_STEPS = 192  # of an extent's function that are told apart
_RISING = ("sqrt", "log", "exp", "floor", "ceil", "round", "tanh", "atan", "asinh", "sinh")
_LARGE = 1 << 40  # of a numerator or a denominator

Ratio = tuple[Expr, Expr]  # numerator and denominator, index expressions


@lru_cache(maxsize=1 << 14)
def to_int(e: Expr) -> Expr | None:
    """The integer that a float expression of extents truncates to, as an index expression; None if
    it is no rational arithmetic on them, or one that rounds in too many places."""
    if not any(isinstance(n, (Axis, Load, Sym, Var)) for n in walk(e)):
        return _agreeing(Cast(INDEX, e), Const(0))
    for form in (e, _meant(e)):
        whole = _whole("trunc", form)
        exact = whole and _agreeing(Cast(INDEX, e), simplify(whole))
        if exact is not None:
            return exact
    return truncate_by_steps(e)


@lru_cache(maxsize=1 << 14)
def truncate_while_exact(e: Expr) -> tuple[Expr, tuple[Expr, ...]] | None:
    """(index expression, conditions): the integer that a float expression of extents truncates to
    as long as the whole numbers in it are not too large for their dtypes; None if it rounds before
    that."""
    whole = _whole("trunc", e)
    if whole is None or any(isinstance(n, (Axis, Load, Var)) for n in walk(e)):
        return None
    fits: dict[Expr, None] = {}
    for n in walk(e):
        parts = ratio(n) if is_float(n.dtype) else None
        if parts is not None and parts[1] == Const(1):
            fits.setdefault(simplify(compare("le", parts[0], Const(_most(n.dtype)))))
    exact, conds = simplify(whole), [c for c in fits if not isinstance(c, Const)]
    _, scope = _scope(_leaves(e))
    with np.errstate(all="ignore"):
        wanted, made, *held = np.broadcast_arrays(*map(
            scope.value, (Cast(INDEX, e), exact, *conds)))
    small = np.logical_and.reduce([np.ones(wanted.shape, bool), *held])
    return None if (wanted != made)[small].any() else (exact, tuple(conds))


def _most(dtype: str) -> int:
    """Integers up to this one are what they are in a float dtype."""
    return 2 << int(np.finfo(DTYPES[dtype].numpy).nmant)


@lru_cache(maxsize=1 << 14)
def condition(e: Binary) -> Expr | None:
    """A comparison of float expressions of extents as one of index expressions; None likewise."""
    a, b = ratio(e.a), ratio(e.b)
    if a is None or b is None:
        return None
    (an, ad), (bn, bd) = a, b
    return _agreeing(e, simplify(compare(e.op, simplify(an * bd), simplify(bn * ad))))


def _meant(e: Expr) -> Expr:
    """``e`` with its constants as they were meant, if they have been rounded to half precision."""
    def plain(n: Expr) -> Expr | None:
        if not isinstance(n, Const) or not is_float(n.dtype) or (
                abs(n.value) > 65504 or float(np.float16(n.value)) != n.value):
            return None
        for most in (8, 64, 512):
            f = Fraction(n.value).limit_denominator(most)
            if float(np.float16(float(f))) == n.value:
                return Const(float(f), n.dtype)
        return None
    return rewrite(e, plain)


# ---------------------------------------------------------------- roundings

def _agreeing(e: Expr, exact: Expr) -> Expr | None:
    """``exact``, corrected where it is not what ``e`` computes; None if that is in many places."""
    leaves = _leaves(e)
    if any(isinstance(n, (Load, Var)) for n in walk(e)):
        return None
    points, scope = _scope(leaves)
    with np.errstate(all="ignore"):
        wanted, made = np.broadcast_arrays(scope.value(e), scope.value(exact))
    if not leaves:
        return Const(wanted.item(), e.dtype)
    wrong = np.flatnonzero(wanted != made)
    if not wrong.size:
        return exact
    return _corrected(leaves[0], points[0][wrong], wanted[wrong], made[wrong],
                      exact) if len(leaves) == 1 else None


def _leaves(e: Expr) -> list[Axis | Sym]:
    return sorted({n for n in walk(e) if isinstance(n, (Axis, Sym))}, key=lambda n: n.name)


def _scope(leaves: Sequence[Axis | Sym]) -> tuple[list[Array], EvalScope]:
    """Values of the leaves at which expressions are compared, and what evaluates there."""
    points = _points(leaves)
    scope = EvalScope({}, None, {n.name: p for n, p in zip(leaves, points) if isinstance(n, Sym)})
    scope.grid.update((n, p) for n, p in zip(leaves, points) if isinstance(n, Axis))
    return points, scope


def _corrected(leaf: Expr, at: Array, wanted: Array, made: Array, exact: Expr) -> Expr | None:
    """``exact`` with another value at the points ``at`` of its one symbol, which lie at equal
    distances in a few runs: the mantissas at which a product rounds to the other side."""
    if exact.dtype == "bool":
        return None
    for off in np.unique(wanted - made).tolist():
        these = at[wanted - made == off]
        gaps = np.diff(these)
        step = int(np.gcd.reduce(gaps)) if gaps.size else 1
        cuts = np.flatnonzero(gaps != step) + 1
        if len(cuts) >= _RUNS:
            return None
        runs = any_holds([Binary("and", compare("ge", leaf, Const(r[0])),
                                 compare("le", leaf, Const(r[-1]))) for r in np.split(these, cuts)])
        assert runs is not None, these
        aligned = compare("eq", (leaf - int(these[0])) % step, Const(0))
        exact = exact + Where(Binary("and", aligned, runs), Const(off), Const(0))
    return simplify(exact)


def _points(leaves: Sequence[Axis | Sym]) -> list[Array]:
    """An array of values per leaf: of one leaf all there are, up to _FARTHEST of them."""
    open_ends = [(0, upper(n.extent - 1)) if isinstance(n, Axis) else (n.lo, n.hi)
                 for n in leaves]
    ends = [(lo, lo + _FARTHEST if hi is None else max(lo, min(hi, lo + _FARTHEST)))
            for lo, hi in open_ends]
    if len(leaves) == 1:
        return [np.arange(ends[0][0], ends[0][1] + 1)]
    rng, half = np.random.default_rng(0), _POINTS // 2
    return [np.concatenate([np.minimum(lo + rng.permutation(half) % 64, hi),
                            rng.integers(lo, hi + 1, half)]) for lo, hi in ends]


# ---------------------------------------------------------------- integer parts

def _whole(op: str, e: Expr) -> Expr | None:
    """floor, ceil, round or trunc of a float expression as an index expression, or None."""
    if isinstance(e, Where):
        a, b = _whole(op, e.a), _whole(op, e.b)
        return None if a is None or b is None else Where(e.cond, a, b)
    under = _under_root(e)
    if under is not None:
        return _whole_root(op, *under)
    parts = ratio(e)
    if parts is None:
        return None
    n, d = parts
    if op == "ceil":
        return simplify((n + d - 1) // d)
    if op == "round":  # half to even
        near = (n * 2 + d) // (d * 2)
        tie = Binary("and", compare("eq", (n * 2 + d) % (d * 2), Const(0)),
                     compare("eq", near % 2, Const(1)))
        return near if d == Const(1) else near - Where(tie, Const(1), Const(0))
    if op == "floor" or _at_least(n, 0):
        return simplify(n // d)
    return Where(compare("ge", n, Const(0)), n // d, 0 - (0 - n) // d)


def _under_root(e: Expr) -> Ratio | None:
    """(numerator, denominator) of x for sqrt(x) that is no ratio itself, else None."""
    while isinstance(e, Cast) and is_float(e.dtype) and is_float(e.x.dtype):
        e = e.x
    if isinstance(e, Binary) and e.op in ("mul", "div"):  # r * sqrt(x) is sqrt(r * r * x)
        root, by = (e.a, e.b) if isinstance(e.b, Const) or e.op == "div" else (e.b, e.a)
        inner, times = _under_root(root), ratio(by) if isinstance(by, Const) else None
        if inner is None or times is None or not _at_least(times[0], 1):
            return None
        n, d = times if e.op == "mul" else times[::-1]
        return simplify(inner[0] * n * n), simplify(inner[1] * d * d)
    if isinstance(e, Binary) and e.op == "pow" and e.b == Const(0.5, e.b.dtype):
        x = e.a
    elif isinstance(e, Unary) and e.op == "sqrt":
        x = e.x
    else:
        return None
    parts = ratio(x) if ratio(e) is None else None
    axes = parts and any(isinstance(n, Axis) for p in parts for n in walk(p))
    return None if parts is None or axes or not _at_least(parts[0], 0) else parts


def _whole_root(op: str, n: Expr, d: Expr) -> Expr:
    root = simplify(Unary("sqrt", simplify(n // d)))
    if op in ("floor", "trunc"):
        return root
    past = compare("lt", root * root * d, n) if op == "ceil" else compare(
        "gt", n * 4, (root * 2 + 1) * (root * 2 + 1) * d)
    return root + Where(past, Const(1), Const(0))


def _at_least(e: Expr, least: int) -> bool:
    low = lower(e)
    return low is not None and low >= least


# ---------------------------------------------------------------- steps

def truncate_by_steps(e: Expr) -> Expr | None:
    """The integer that a float expression of one extent truncates to as the steps that it makes,
    each with the values of the extent that it lasts; None if there are too many, or other values
    are in it."""
    inner = {n for n in _outer_indices(e) if not isinstance(n, Const)}
    if len(inner) != 1 or any(isinstance(n, (Axis, Load, Var)) for n in walk(e)):
        return None
    leaf, = inner
    lo, hi = lower(leaf), upper(leaf)
    if lo is None:
        return None
    point = Sym("~extent", lo, hi)
    whole = Cast(INDEX, substitute(e, {leaf: point}))
    last = _LARGE if hi is None else min(hi, _LARGE)
    if last - lo <= _FARTHEST:
        at = np.arange(lo, last + 1)
        values = _values_at(whole, at)
        starts = np.flatnonzero(np.diff(values)) + 1
        if len(starts) > _STEPS:
            return None
        ends, steps = [*at[starts - 1].tolist(), last], values[np.append(0, starts)].tolist()
    else:
        found = _risen(whole, lo, last) if _direction(whole, point) else None
        if found is None:
            return None
        ends, steps = found
    if any(abs(v) > _LARGE for v in steps):
        return None  # what no integer holds
    return _step_of(leaf, list(map(int, ends)), steps)


def _step_of(leaf: Expr, ends: Sequence[int], steps: Sequence[int]) -> Expr:
    """The step that ``leaf`` is in, half of them at a time."""
    if len(steps) == 1:
        return Const(steps[0])
    half = len(steps) // 2
    return Where(simplify(compare("le", leaf, Const(ends[half - 1]))),
                 _step_of(leaf, ends[:half], steps[:half]),
                 _step_of(leaf, ends[half:], steps[half:]))


def _outer_indices(e: Expr) -> set[Expr]:
    """The index expressions that a float expression is made of."""
    return {e} if e.dtype == INDEX else set().union(*map(_outer_indices, children(e)))


def _values_at(whole: Expr, at: Array) -> Array:
    with np.errstate(all="ignore"):
        values = EvalScope({}, None, {"~extent": at}).value(whole)
    return np.broadcast_to(values, at.shape)


def _risen(whole: Expr, lo: int, hi: int) -> tuple[list[int], list[int]] | None:
    """(last value of the extent, step) per step of an expression that rises or falls with it."""
    known = dict(zip((lo, hi), _values_at(whole, np.array([lo, hi])).tolist()))
    todo, ends = [(lo, hi)], [hi]
    while todo:
        first, last = todo.pop()
        if known[first] == known[last]:
            continue
        if last - first == 1:
            ends.append(first)
            if len(ends) > _STEPS:
                return None
            continue
        middle = (first + last) // 2
        known[middle] = int(_values_at(whole, np.array([middle]))[0])
        todo += [(first, middle), (middle, last)]
    ends.sort()
    return ends, [known[e] if e in known else int(_values_at(whole, np.array([e]))[0])
                  for e in ends]


def _direction(e: Expr, point: Sym) -> int:
    """1 if an expression never falls where ``point`` grows, -1 if it never rises, 0 unknown.
    Roundings keep either."""
    if e == point or isinstance(e, Const):
        return 1
    if isinstance(e, Cast):
        return _direction(e.x, point)
    if isinstance(e, Unary):
        way = _direction(e.x, point)
        return way if e.op in _RISING else -way if e.op == "neg" else 0
    if not isinstance(e, Binary):
        return 0
    a, b = _direction(e.a, point), _direction(e.b, point)
    if isinstance(e.b, Const) and e.op in ("add", "sub", "min", "max"):
        return a
    if isinstance(e.a, Const) and e.op in ("add", "sub", "min", "max"):
        return -b if e.op == "sub" else b
    for factor, way, ops in ((e.b, a, ("mul", "div")), (e.a, b, ("mul",))):
        if isinstance(factor, Const) and e.op in ops:
            return way if factor.value >= 0 else -way
    return a if a == b and e.op in ("add", "min", "max") else 0


# ---------------------------------------------------------------- ratios

def ratio(e: Expr) -> Ratio | None:
    """(numerator, denominator) of an expression as index expressions, the denominator above 0;
    None if it is no ratio of such."""
    parts = _ratio(e)
    if parts is None:
        return None
    n, d = map(simplify, parts)
    most = upper(d)
    if most is not None and most < 0:
        n, d = simplify(0 - n), simplify(0 - d)
    return (n, d) if _at_least(d, 1) else None


def _ratio(e: Expr) -> Ratio | None:
    if isinstance(e, Const):
        return _fraction(e)
    if e.dtype == INDEX:
        return e, Const(1)
    if isinstance(e, Cast):
        return _converted(e)
    if isinstance(e, Where):
        a, b = ratio(e.a), ratio(e.b)
        if a is None or b is None:
            return None
        return Where(e.cond, a[0] * b[1], b[0] * a[1]), a[1] * b[1]
    if not is_float(e.dtype) and not (isinstance(e, Binary) and e.op in _WHOLE):
        return None
    return _of_unary(e) if isinstance(e, Unary) else _of_binary(e) if isinstance(
        e, Binary) else None


def _fraction(e: Const) -> Ratio | None:
    if e.dtype == "bool" or not np.isfinite(e.value):
        return None
    f = Fraction(e.value).limit_denominator(1 << 16)
    if np.float32(float(f)) != np.float32(e.value):
        f = Fraction(e.value)
    return None if max(abs(f.numerator), f.denominator) > _LARGE else (
        Const(f.numerator), Const(f.denominator))


def _converted(e: Cast) -> Ratio | None:
    if e.x.dtype == "bool":
        return Where(e.x, Const(1), Const(0)), Const(1)
    if DTYPES[e.dtype].kind in "iu" and is_float(e.x.dtype):
        whole = _whole("trunc", e.x)
        return None if whole is None else (whole, Const(1))
    return ratio(e.x)


def _of_unary(e: Unary) -> Ratio | None:
    if e.op in ("floor", "ceil", "round"):
        whole = _whole(e.op, e.x)
        return None if whole is None else (whole, Const(1))
    x = ratio(e.x)
    if x is None or e.op not in ("neg", "abs", "sign", "sqrt"):
        return None
    n, d = x
    if e.op == "neg":
        return 0 - n, d
    if e.op == "abs":
        return (n if _at_least(n, 0) else Where(compare("ge", n, Const(0)), n, 0 - n)), d
    if e.op == "sign":
        negative = Where(compare("lt", n, Const(0)), Const(-1), Const(0))
        return Where(compare("gt", n, Const(0)), Const(1), negative), Const(1)
    above, below = _exact_root(n), _exact_root(d)
    return None if above is None or below is None else (above, below)


def _exact_root(e: Expr) -> Expr | None:
    """The square root of an expression that is a square as written, else None."""
    poly = to_poly(e)
    if len(poly) != 1:
        return None
    (mono, c), = poly.items()
    root = int(round(c**0.5)) if c > 0 else 0
    if root * root != c or any(mono.count(a) % 2 for a in mono):
        return None
    out: Expr = Const(root)
    for a in dict.fromkeys(mono):
        for _ in range(mono.count(a) // 2):
            out = out * a
    return out


def _of_binary(e: Binary) -> Ratio | None:
    if e.op == "pow":
        return _power(e)
    a, b = ratio(e.a), ratio(e.b)
    if a is None or b is None:
        return None
    (an, ad), (bn, bd) = a, b
    if e.op == "mul":
        return an * bn, ad * bd
    if e.op == "div":
        return an * bd, ad * bn
    if e.op in ("add", "sub", "min", "max"):
        if ad == bd:
            return binary(e.op, an, bn), ad
        return binary(e.op, an * bd, bn * ad), ad * bd
    if e.op == "mod" and _at_least(an, 0) and _at_least(bn, 1):  # fmod
        return (an * bd) % (bn * ad), ad * bd
    return None


def _power(e: Binary) -> Ratio | None:
    p = e.b.value if isinstance(e.b, Const) else None
    if p == 0.5:
        return _of_unary(Unary("sqrt", e.a))
    x = ratio(e.a)
    if x is None or p is None or p != int(p) or not 1 <= abs(p) <= 4:
        return None
    n, d = as_expr(1), as_expr(1)
    for _ in range(abs(int(p))):
        n, d = n * x[0], d * x[1]
    return (n, d) if p > 0 else (d, n)
