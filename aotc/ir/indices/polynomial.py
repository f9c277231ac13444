"""Polynomials: the normal form of index arithmetic, a dict from monomial to integer coefficient."""

from collections.abc import Callable, Iterable
from math import gcd

from aotc.ir.expr import Binary, Const, Expr, Sym, keep_result, leaves, show

Monomial = tuple[Expr, ...]  # atoms, sorted
Poly = dict[Monomial, int]  # no coefficient is 0
ONE: Monomial = ()  # the empty monomial
RELAXED = 3  # atoms that a bound replaces one after the other
LONGEST = 16  # monomials of a quotient by a sum


@keep_result
def atom_key(atom: Expr) -> tuple[str, str]:
    """What monomials are sorted by."""
    return type(atom).__name__, show(atom)


def _mono(atoms: Iterable[Expr]) -> Monomial:
    return tuple(sorted(atoms, key=atom_key))


def p_add(p: Poly, q: Poly, scale: int = 1) -> Poly:
    """p + scale*q."""
    out = dict(p)
    for m, c in q.items():
        v = out.get(m, 0) + scale * c
        if v:
            out[m] = v
        else:
            out.pop(m, None)
    return out


def p_mul(p: Poly, q: Poly) -> Poly:
    out: Poly = {}
    for m, c in p.items():
        for n, d in q.items():
            k = _mono(m + n) if m and n else m + n
            out[k] = out.get(k, 0) + c * d
    return {m: c for m, c in out.items() if c}


def p_const(p: Poly) -> int | None:
    """The integer value of a constant polynomial, else None."""
    return 0 if not p else p.get(ONE) if len(p) == 1 else None


def divide_monomial(m: Monomial, sub: Monomial) -> Monomial | None:
    """The monomial divided by another one; None if it does not divide it."""
    left = list(m)
    for a in sub:
        if a not in left:
            return None
        left.remove(a)
    return tuple(left)


def drop_atom(m: Monomial, atom: Expr) -> Monomial:
    """The monomial divided by one of its atoms."""
    at = m.index(atom)
    return m[:at] + m[at + 1:]


def split(p: Poly, d: Poly) -> tuple[Poly, Poly]:
    """(q, r), p = d*q + r: every monomial of p that d's single monomial divides is in q."""
    if len(d) != 1:
        return ({ONE: 1}, {}) if p == d else ({}, p)
    (dm, dc), = d.items()
    q: Poly = {}
    r: Poly = {}
    for m, c in p.items():
        rest = divide_monomial(m, dm)
        if rest is None or c % dc:
            r[m] = c
        else:
            q[rest] = c // dc
    return q, r


def long_division(p: Poly, d: Poly) -> tuple[Poly, Poly]:
    """(q, r), p = d*q + r, for a divisor of several monomials: the first of those of most factors
    divides no monomial of r."""
    first = min(d, key=lambda m: (-len(m), [atom_key(a) for a in m]))
    q: Poly = {}
    for _ in range(LONGEST):
        for m, c in p.items():
            rest = divide_monomial(m, first)
            if rest is not None and c % d[first] == 0:
                part = {rest: c // d[first]}
                q, p = p_add(q, part), p_add(p, p_mul(d, part), -1)
                break
        else:
            break
    return q, p


def cancel_factor(r: Poly, dc: int) -> tuple[Poly, int]:
    """Dividend and divisor of a floor division without their common factor."""
    g = dc
    for m, c in r.items():
        if m != ONE:
            g = gcd(g, c)
    if g <= 1:
        return r, dc
    return {m: c // g for m, c in r.items() if c // g}, dc // g


def cancels(p: Poly, q: Poly) -> bool:
    """True if every monomial of q, its constant aside, is in p and becomes less, or none, in
    p + q."""
    terms = [(m, c) for m, c in q.items() if m != ONE]
    return bool(terms) and all(p.get(m, 0) * c < 0 and abs(p[m]) >= abs(c) for m, c in terms)


def is_negated_extent(p: Poly) -> bool:
    """True if p is 0 or less in every monomial, its constant aside, and no loop decides it."""
    return all(c < 0 and all(isinstance(n, Sym) for a in m for n in leaves(a))
               for m, c in p.items() if m != ONE)


def relaxed_upper(p: Poly, upper: Callable[[Poly], int | None], to_poly: Callable[[Expr], Poly],
                  depth: int = 0) -> int | None:
    """An upper bound of a polynomial whose atoms may have none by themselves (``n - (n + 1) // 2``
    is at least 0 for any n), with a quotient replaced by the fraction it is cut from, a
    minimum or maximum by its parts; None if there is none.  upper: of a polynomial whose atoms are
    bounded, or None; to_poly: of ``simplify``."""
    if depth == RELAXED:
        return None

    def bound(q: Poly) -> int | None:
        known = upper(q)
        return known if known is not None else relaxed_upper(q, upper, to_poly, depth + 1)

    for m, c in p.items():
        e = m[0] if len(m) == 1 else None
        if not isinstance(e, Binary) or e.op not in ("floordiv", "min", "max"):
            continue
        rest = {n: k for n, k in p.items() if n != m}
        if e.op == "floordiv":
            if not isinstance(e.b, Const) or e.b.value < 1:
                continue
            d: int = e.b.value  # d * p, with x - d + 1 <= d * (x // d) <= x
            x = to_poly(e.a) if c > 0 else p_add(to_poly(e.a), {(): 1 - d})
            top = bound(p_add({n: k * d for n, k in rest.items()}, x, c))
            if top is not None:
                return top // d
            continue
        tops = [bound(p_add(rest, to_poly(side), c)) for side in (e.a, e.b)]
        known = [t for t in tops if t is not None]
        if (e.op == "min") == (c > 0):
            if known:
                return min(known)
        elif len(known) == 2:
            return max(known)
    return None
