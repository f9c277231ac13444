"""Sizes as floating-point C expressions that bound them, for extents without an upper bound: what
would not fit 64 bits is refused before any index is computed."""

from collections.abc import Iterable

from aotc.emit.text.cexpr import sym_field
from aotc.ir.expr import Binary, Cast, Const, Expr, Sym, Unary, Where, walk
from aotc.ir.simplify import simplify


def magnitude(e: Expr) -> str:
    """C expression (double, over the frame) that is at least |value| of an index expression over
    symbols and of every part of it."""
    if isinstance(e, Const):
        return f"{abs(e.value)}.0"
    if isinstance(e, Sym):
        return f"(double)f->{sym_field(e.name)}"
    if isinstance(e, Cast):
        return "1.0" if e.x.dtype == "bool" else magnitude(e.x)
    if isinstance(e, Unary):
        return magnitude(e.x)
    if isinstance(e, Where):
        return f"({magnitude(e.a)} + {magnitude(e.b)})"
    assert isinstance(e, Binary), e
    if e.op in ("floordiv", "div"):
        return magnitude(e.a)
    return f"({magnitude(e.a)} {'*' if e.op == 'mul' else '+'} {magnitude(e.b)})"


def checked_sizes(sizes: Iterable[Expr]) -> list[str]:
    """Magnitudes of those of ``sizes`` (index expressions of bytes) that have no upper bound, each
    once."""
    found = dict.fromkeys(map(simplify, sizes))
    return list(dict.fromkeys(magnitude(e) for e in found if any(
        isinstance(n, Sym) and n.hi is None for n in walk(e))))


__all__ = ["checked_sizes", "magnitude"]
