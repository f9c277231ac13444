"""Index arithmetic in normal form: polynomials over axes, symbols and floor-div/mod atoms.

``simplify`` maps any expression through it, so that ``(i*seq + j) // seq`` becomes ``i`` and
``(c // 64)*64 + c % 64`` becomes ``c``.  ``lower`` and ``upper`` bound an index expression over
the ranges of its axes and symbols: the basis of analysis of reads and of every proof.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from math import gcd, isqrt

from aotc.ir.dtypes import INDEX
from aotc.ir.expr import (
    Axis,
    Binary,
    Cast,
    Const,
    Expr,
    Guarded,
    Sym,
    Unary,
    Where,
    binary,
    children,
    contains,
    keep_result,
    with_children,
)
from aotc.ir.indices.polynomial import (
    ONE,
    Monomial,
    Poly,
    atom_key,
    cancel_factor,
    cancels,
    drop_atom,
    is_negated_extent,
    long_division,
    p_add,
    p_const,
    p_mul,
    relaxed_upper,
    split,
)

Ends = tuple[int | None, int | None]  # the lowest and the highest value; None: not known
Pick = Callable[[Iterable[int]], int]  # min or max

@lru_cache(maxsize=1 << 18)
def _poly_items(e: Expr) -> tuple[tuple[Monomial, int], ...]:
    return tuple(_to_poly(e).items())


def to_poly(e: Expr) -> Poly:
    """Normal form of an integer expression, as a fresh dict."""
    return dict(_poly_items(e))


def _to_poly(e: Expr) -> Poly:
    if isinstance(e, Const):
        return {ONE: e.value} if e.value else {}
    if isinstance(e, Unary) and e.op == "neg":
        return p_mul({ONE: -1}, to_poly(e.x))
    if isinstance(e, Binary):
        if e.op in ("add", "sub"):
            return recombine(p_add(to_poly(e.a), to_poly(e.b), 1 if e.op == "add" else -1))
        if e.op == "mul":
            return recombine(p_mul(to_poly(e.a), to_poly(e.b)))
        if e.op in ("floordiv", "mod"):
            return (_div if e.op == "floordiv" else _mod)(to_poly(e.a), to_poly(e.b))
        if e.op in ("min", "max"):
            return _minmax(e.op, simplify(e.a), simplify(e.b))
    if isinstance(e, Unary) and e.op == "sqrt":
        x = simplify(e.x)
        if isinstance(x, Const):
            return to_poly(Const(isqrt(max(x.value, 0))))
    if isinstance(e, Where):
        cond = simplify(e.cond)
        if isinstance(cond, Const):
            return to_poly(e.a if cond.value else e.b)
        return _padded(cond, e) or {(Where(cond, simplify(e.a), simplify(e.b)),): 1}
    return {(with_children(e, [simplify(k) for k in children(e)]),): 1}


def _padded(cond: Expr, e: Where) -> Poly | None:
    """a + -x % d for where(x % d == 0, a, a + d - x % d); None for others."""
    a, b = e.a, e.b
    if isinstance(cond, Unary) and cond.op == "not":
        cond, a, b = cond.x, b, a
    if not isinstance(cond, Binary) or cond.op not in ("eq", "ne") or cond.b != Const(0):
        return None
    (a, b), cut = ((a, b) if cond.op == "eq" else (b, a)), cond.a
    if not isinstance(cut, Binary) or cut.op != "mod" or not isinstance(
            cut.b, Const) or not are_equal(b, a + cut.b - cut):
        return None
    return p_add(to_poly(a), to_poly(Binary("mod", Const(0) - cut.a, cut.b)))


def from_poly(p: Poly) -> Expr:
    """Expression of a polynomial, terms in a fixed order, subtracting negative coefficients."""
    out: Expr | None = None
    for m, c in sorted(p.items(), key=lambda t: (t[0] == ONE, t[1] < 0,
                                                 [atom_key(a) for a in t[0]])):
        factor, op = (-c, "sub") if -(1 << 63) < c < 0 else (c, "add")
        term: Expr = Const(factor)
        for i, atom in enumerate(m):
            term = binary("mul", term, atom) if i or factor != 1 else atom
        if m and factor != 1:
            term = _coefficient_last(m, factor)
        if out is None:
            out = term if op == "add" else binary("sub", Const(0), term)
            if c < 0 and not m:
                out = Const(c)
        else:
            out = Binary(op, out, term)
    return Const(0) if out is None else out


def _coefficient_last(atoms: Monomial, c: int) -> Expr:
    term = atoms[0]
    for a in atoms[1:]:
        term = Binary("mul", term, a)
    return Binary("mul", term, Const(c))


@lru_cache(maxsize=1 << 18)
def simplify(e: Expr) -> Expr:
    """An equivalent expression in normal form.  Idempotent.  Value expressions keep their shape,
    only the indices and conditions inside them are normalised."""
    if e.dtype == INDEX and isinstance(e, (Binary, Unary, Where)) and not (
            isinstance(e, Binary) and e.op not in ("add", "sub", "mul", "floordiv", "mod",
                                                   "min", "max")):
        return from_poly(to_poly(e))
    e = with_children(e, [simplify(k) for k in children(e)])
    if isinstance(e, Binary) and e.dtype == "bool":
        return _condition(e)
    if isinstance(e, Where) and isinstance(e.cond, Const):
        return e.a if e.cond.value else e.b
    if isinstance(e, Cast) and e.x.dtype == e.dtype:
        return e.x
    if isinstance(e, Guarded) and (are_equal(e.a, e.b) if e.op == "expected" else proves(
            Binary("ge", e.a, Const(0))) and proves(Binary("lt", e.a, e.b))):
        return e.a
    return e


def _condition(e: Binary) -> Expr:
    """Decide comparisons that ranges settle; absorb constants in and/or."""
    if e.op in ("and", "or"):
        for x, y in ((e.a, e.b), (e.b, e.a)):
            if isinstance(x, Const):
                return (y if x.value else x) if e.op == "and" else (x if x.value else y)
        return e
    zero = Const(0, e.a.dtype)
    if e.a.dtype[0] == "u" and zero in (e.b if e.op in ("lt", "ge") else e.a,) and (
            e.op in ("lt", "ge", "gt", "le")):
        return Const(e.op in ("ge", "le"), "bool")  # nothing unsigned is below zero
    if e.a.dtype != INDEX or e.op not in ("lt", "le", "gt", "ge", "eq", "ne"):
        return e
    diff = p_add(to_poly(e.a), to_poly(e.b), -1)
    lo, hi = p_lower(diff), p_upper(diff)
    verdict = {"lt": _sign(hi, -1, lo, 0), "le": _sign(hi, 0, lo, 1),
               "ge": _flip(_sign(hi, -1, lo, 0)), "gt": _flip(_sign(hi, 0, lo, 1)),
               "eq": _equal(lo, hi), "ne": _flip(_equal(lo, hi))}[e.op]
    return e if verdict is None else Const(verdict, "bool")


def _sign(hi: int | None, true_below: int, lo: int | None, false_from: int) -> bool | None:
    if hi is not None and hi <= true_below:
        return True
    return False if lo is not None and lo >= false_from else None


def _flip(v: bool | None) -> bool | None:
    return None if v is None else not v


def _equal(lo: int | None, hi: int | None) -> bool | None:
    if lo is not None and lo == hi == 0:
        return True
    return False if (lo is not None and lo > 0) or (hi is not None and hi < 0) else None


def _minmax(op: str, a: Expr, b: Expr) -> Poly:
    diff = p_add(to_poly(a), to_poly(b), -1)  # a - b
    lo, hi = p_lower(diff), p_upper(diff)
    if lo is not None and lo >= 0:
        return to_poly(b if op == "min" else a)
    if hi is not None and hi <= 0:
        return to_poly(a if op == "min" else b)
    a, b = sorted((a, b), key=atom_key)
    return {(Binary(op, a, b),): 1}


# ---------------------------------------------------------------- floor division and modulo

def _within(r: Poly, d: Poly) -> bool:
    """True if 0 <= r < d is proved."""
    lo = p_lower(r)
    if lo is None or lo < 0:
        return False
    hi = p_upper(p_add(r, d, -1))
    return hi is not None and hi < 0


def _normal_remainder(p: Poly, d: Poly) -> tuple[Poly, Poly]:
    """(q, r) with p = d*q + r and, where it can be had, 0 <= r < d."""
    q, r = split(p, d)
    dc = p_const(d)
    if not _within(r, d) and dc and dc > 0 and r.get(ONE):
        k = r[ONE] // dc
        moved = p_add(r, {ONE: -k * dc}) if k else r
        q, r = (p_add(q, {ONE: k}), moved) if k else (q, r)
    if dc is None and not _within(r, d):
        whole, rest = long_division(r, d)
        for k, r_k in ((0, rest), (1, p_add(rest, d))):
            if _within(r_k, d):
                return p_add(p_add(q, whole), {ONE: k}, -1), r_k
    return q, r


def _div(p: Poly, d: Poly) -> Poly:
    if p_const(d) == 1:
        return p
    if not d:
        return {(Binary("floordiv", from_poly(p), from_poly(d)),): 1}
    q, r = _normal_remainder(p, d)
    if not r or _within(r, d):
        return q
    dc = p_const(d)
    if dc and dc > 0:
        r, dc = cancel_factor(r, dc)
        if dc == 1:
            return p_add(q, r)
        d = {ONE: dc}
        inner = _nested_div(r, dc)
        if inner is not None:
            return p_add(q, inner)
        if is_negated_extent(r):
            up = p_add(p_mul(r, {ONE: -1}), {ONE: dc - 1})
            return p_add(q, _div(up, d), -1)
    return p_add(q, {(Binary("floordiv", from_poly(r), from_poly(d)),): 1})


def _nested_div(r: Poly, dc: int) -> Poly | None:
    """(x // a + n) // b = (x + n*a) // (a*b); (x % (a*b)) // b = (x // b) % a."""
    number, terms = r.get(ONE, 0), [m for m in r if m != ONE]
    if len(terms) != 1 or len(terms[0]) != 1 or r[terms[0]] != 1:
        return None
    atom = terms[0][0]
    k = p_const(to_poly(atom.b)) if isinstance(atom, Binary) else None
    if not isinstance(atom, Binary) or k is None or k <= 0:
        return None
    if atom.op == "floordiv":
        return _div(p_add(to_poly(atom.a), {ONE: k * number}), {ONE: k * dc})
    if atom.op == "mod" and k % dc == 0 and not number:
        return _mod(_div(to_poly(atom.a), {ONE: dc}), {ONE: k // dc})
    return None


def _mod(p: Poly, d: Poly) -> Poly:
    if p_const(d) == 1:
        return {}
    if not d:
        return {(Binary("mod", from_poly(p), from_poly(d)),): 1}
    _, r = _normal_remainder(p, d)
    if not r or _within(r, d):
        return r
    dc = p_const(d)
    if dc and dc > 0:
        for m, c in r.items():
            a = m[0] if len(m) == 1 else None
            if isinstance(a, Binary) and a.op == "mod":
                k = p_const(to_poly(a.b))
                if k and k % dc == 0:  # (c * (x % k) + rest) % d = (c * x + rest) % d
                    return _mod(p_add(p_add(r, {m: -c}), to_poly(a.a), c), d)
        g = gcd(dc, *r.values())
        if g > 1:
            inner = _mod({m: c // g for m, c in r.items()}, {ONE: dc // g})
            return {m: c * g for m, c in inner.items()}
    return {(Binary("mod", from_poly(r), from_poly(d)),): 1}


def recombine(p: Poly) -> Poly:
    """x % d as x - d * (x // d) where either of these is gone then, for every one: the pairs
    d * (x // d) + x % d = x, and x - x % d, whole multiples of a constant d."""
    for m, c in list(p.items()):
        for i, atom in enumerate(m):
            if not (isinstance(atom, Binary) and atom.op == "mod"):
                continue
            outer = {m[:i] + m[i + 1:]: c}
            for x, quotient in _parted(atom):
                whole, cut = p_mul(outer, x), p_mul(outer, quotient)
                left = all(p.get(n, 0) * k > 0 and abs(p[n]) >= abs(k) for n, k in cut.items())
                if cut and left or isinstance(atom.b, Const) and cancels(p, whole):
                    return recombine(p_add(p_add(p_add(p, {m: c}, -1), whole), cut, -1))
    return p


@lru_cache(maxsize=1 << 16)
def _parted(e: Binary) -> list[tuple[Poly, Poly]]:
    """x and d * (x // d) of x % d; of x % 2 those of -x, too."""
    x, d = to_poly(e.a), to_poly(e.b)
    of = [x, p_mul(x, {ONE: -1})] if p_const(d) == 2 else [x]
    return [(y, p_mul(d, _div(y, d))) for y in of]


# ---------------------------------------------------------------- bounds

def lower(e: Expr) -> int | None:
    """A proved integer lower bound of an index expression over its ranges, or None."""
    return p_lower(to_poly(e))


def upper(e: Expr) -> int | None:
    """A proved integer upper bound, or None."""
    return p_upper(to_poly(e))


def p_lower(p: Poly) -> int | None:
    up = p_upper({m: -c for m, c in p.items()})
    return None if up is None else -up


def p_upper(p: Poly) -> int | None:
    """Largest value of p: axes go to an end of their range, then symbols are shifted to >= 0."""
    return _upper_of(tuple(p.items()))


@lru_cache(maxsize=1 << 16)
def _upper_of(terms: tuple[tuple[Monomial, int], ...]) -> int | None:
    p = dict(terms)
    top = _interval_upper(p)
    return top if top is not None else relaxed_upper(_eliminate_axes(p), _interval_upper, to_poly)


def _interval_upper(p: Poly) -> int | None:
    total = 0
    for m, c in _shift_syms(_eliminate_axes(p)).items():
        if m == ONE:
            total += c
            continue
        end = _mono_range(m)[c > 0]
        if end is None:
            return None
        total += c * end
    return total


def _eliminate_axes(p: Poly) -> Poly:
    """Replace axes that occur linearly with a coefficient of known sign by the end that
    maximises p.  Axes with other extents' axes inside are handled outermost name first."""
    while True:
        axes = sorted({a for m in p for a in m if isinstance(a, Axis)}, key=atom_key)
        for axis in axes:
            coeff: Poly = {}
            rest: Poly = {}
            for m, c in p.items():
                n = m.count(axis)
                if n == 1:
                    coeff[drop_atom(m, axis)] = c
                elif n == 0:
                    rest[m] = c
            if len(coeff) + len(rest) < len(p) or any(_inside(axis, m) for m in p):
                continue
            if all(c >= 0 for c in coeff.values()) and all(map(_nonneg, coeff)):
                last = p_add(to_poly(axis.extent), {ONE: -1})
                p = p_add(rest, p_mul(coeff, last))
                break
            if all(c <= 0 for c in coeff.values()) and all(map(_nonneg, coeff)):
                p = rest
                break
        else:
            return p


def _inside(axis: Axis, mono: Monomial) -> bool:
    """axis occurs below a floor-div, mod, min or other atom of the monomial."""
    return any(a is not axis and not isinstance(a, (Axis, Sym)) and contains(a, axis)
               for a in mono)


def _nonneg(mono: Monomial) -> bool:
    return all((_atom_range(a)[0] or -1) >= 0 if not isinstance(a, (Axis, Sym)) else True
               for a in mono)


def _shift_syms(p: Poly) -> Poly:
    """Substitute s = s.lo + s' so that every symbol's smallest value is 0."""
    out: Poly = {}
    for m, c in p.items():
        term: Poly = {tuple(a for a in m if not isinstance(a, Sym) or not a.lo): c}
        for a in m:
            if isinstance(a, Sym) and a.lo:
                term = p_mul(term, {(_from_zero(a),): 1, ONE: a.lo})
        out = p_add(out, term)
    return out


@keep_result
def _from_zero(a: Sym) -> Sym:
    return Sym(a.name, 0, None if a.hi is None else a.hi - a.lo)


def _mono_range(m: Monomial) -> Ends:
    lo: int | None = 1
    hi: int | None = 1
    for a in m:
        alo, ahi = _atom_range(a)
        if alo is None or ahi is None or lo is None or hi is None:
            lo, hi = _lower_product(lo, alo), None
            continue
        ends = (lo * alo, lo * ahi, hi * alo, hi * ahi)
        lo, hi = min(ends), max(ends)
    return lo, hi


def _lower_product(x: int | None, y: int | None) -> int | None:
    """The lower bound of a product of two factors that are not negative; None of others."""
    return x * y if x is not None and x >= 0 and y is not None and y >= 0 else None


@lru_cache(maxsize=1 << 16)
def _atom_range(a: Expr) -> Ends:
    if isinstance(a, Axis):
        end = upper(a.extent)
        return 0, None if end is None else end - 1
    if isinstance(a, Sym):
        return a.lo, a.hi
    if isinstance(a, Unary) and a.op == "sqrt":
        least, most = _pair(a.x)
        return _root(least), _root(most)
    if not isinstance(a, (Binary, Where)):
        return (0, 1) if isinstance(a, Cast) and a.x.dtype == "bool" else (None, None)
    if isinstance(a, Where):
        return _join(_pair(a.a), _pair(a.b))
    (alo, ahi), (blo, bhi) = _pair(a.a), _pair(a.b)
    if a.op == "mod" and blo is not None and blo > 0:
        return 0, None if bhi is None else bhi - 1
    if a.op == "floordiv" and blo is not None and blo > 0:
        lo = None if alo is None else (alo // blo if alo < 0 else alo // bhi if bhi else 0)
        hi = None if ahi is None else (ahi // blo if ahi >= 0 else -1)
        return lo, hi
    if a.op == "min":
        return _of_both(min, alo, blo), _of_known(min, ahi, bhi)
    if a.op == "max":
        return _of_known(max, alo, blo), _of_both(max, ahi, bhi)
    if a.op == "checked":
        return 0, None if bhi is None else bhi - 1
    return None, None


def _pair(e: Expr) -> Ends:
    return lower(e), upper(e)


def _join(x: Ends, y: Ends) -> Ends:
    return _of_both(min, x[0], y[0]), _of_both(max, x[1], y[1])


def _root(end: int | None) -> int | None:
    return None if end is None else isqrt(max(end, 0))


def _of_both(pick: Pick, x: int | None, y: int | None) -> int | None:
    return None if x is None or y is None else pick((x, y))


def _of_known(pick: Pick, x: int | None, y: int | None) -> int | None:
    known = [end for end in (x, y) if end is not None]
    return pick(known) if known else None


def proves(cond: Expr) -> bool:
    """True if a bool expression is always true over the ranges of its axes and symbols."""
    return simplify(cond) == Const(True, "bool")


def are_equal(a: Expr, b: Expr) -> bool:
    """True if two index expressions are provably equal."""
    return to_poly(a) == to_poly(b) or not recombine(p_add(to_poly(a), to_poly(b), -1))


@lru_cache(maxsize=1 << 16)
def split_linear(e: Expr, axis: Expr) -> tuple[Expr, Expr] | None:
    """(coefficient, rest) with e = coefficient*axis + rest and neither holding the axis;
    None if e is not affine in it."""
    coeff: Poly = {}
    rest: Poly = {}
    for m, c in to_poly(e).items():
        n = m.count(axis)
        inside = any(a != axis and contains(a, axis) for a in m)
        if n > 1 or inside:
            return None
        if n:
            coeff[drop_atom(m, axis)] = c
        else:
            rest[m] = c
    return from_poly(coeff), from_poly(rest)
