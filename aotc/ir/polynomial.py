"""Polynomials: the normal form of index arithmetic, a dict from monomial to integer coefficient."""

from collections.abc import Iterable

from aotc.ir.expr import Expr, kept, show

Monomial = tuple[Expr, ...]  # atoms, sorted
Poly = dict[Monomial, int]  # no coefficient is 0
ONE: Monomial = ()  # the empty monomial


@kept
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


def without(m: Monomial, sub: Monomial) -> Monomial | None:
    """The monomial divided by another one; None if it does not divide it."""
    left = list(m)
    for a in sub:
        if a not in left:
            return None
        left.remove(a)
    return tuple(left)


def drop(m: Monomial, atom: Expr) -> Monomial:
    """The monomial divided by one of its atoms."""
    at = m.index(atom)
    return m[:at] + m[at + 1:]
