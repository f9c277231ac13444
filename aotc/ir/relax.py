"""Bounds of polynomials whose atoms have none by themselves: ``n - (n + 1) // 2`` is at least 0 for
any n, though neither term is bounded."""

from collections.abc import Callable

from aotc.ir.expr import Binary, Const, Expr
from aotc.ir.polynomial import Poly, p_add

MOST = 3  # atoms that are replaced one after the other


def relaxed_upper(p: Poly, upper: Callable[[Poly], int | None], to_poly: Callable[[Expr], Poly],
                  depth: int = 0) -> int | None:
    """An upper bound of a polynomial, with a quotient replaced by the fraction it is cut from, a
    minimum or maximum by its parts; None if there is none.  upper: of a polynomial whose atoms are
    bounded, or None; to_poly: of ``simplify``."""
    if depth == MOST:
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


__all__ = ["relaxed_upper"]
