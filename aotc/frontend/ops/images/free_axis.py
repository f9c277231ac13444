"""Resize along an axis whose extents are symbols: the places and weights of its elements are small
tensors that are computed at run time, in f32 and in the order of operations that ONNX Runtime has,
since rounding decides which elements are read."""

from collections.abc import Callable
from dataclasses import dataclass

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.symbolic import add_values, const
from aotc.frontend.building.values import Element, Index, Val
from aotc.frontend.ops.images.coordinates import ROUNDED, Line, nearest, place_of, real
from aotc.frontend.ops.images.resample import Sampling
from aotc.ir.dtypes import INDEX
from aotc.ir.expr import Binary, Cast, Const, Expr, Unary, Where, compare, maximum, minimum
from aotc.ir.simplify import simplify


@dataclass(frozen=True)
class FreeAxis:
    """Axis ``number`` resized from extent ``n`` to ``m`` (index expressions) by the factor
    ``scale`` (an f32 expression), or by ``m / n`` where that is None.  ``keeps``: the condition
    that no axis changes its extent: then the elements are those of the source, whatever is beside
    them."""

    number: int
    n: Expr
    m: Expr
    scale: Expr | None = None
    keeps: Expr = Const(False, "bool")

    @property
    def line(self) -> Line:
        factor = (real(self.m, ROUNDED) / real(self.n, ROUNDED) if self.scale is None
                  else self.scale)
        return Line(self.n, self.m, factor)


def _as(dtype: str, e: Expr) -> Expr:
    return e if e.dtype == dtype else Cast(dtype, e)


def _inside(e: Expr, n: Expr) -> Expr:
    return simplify(minimum(maximum(e, Const(0)), n - 1))


def _table(b: Builder, a: FreeAxis, fn: Callable[[Expr], Expr], tag: str) -> Val:
    axes = b.axes((a.m,))
    return b.compute(axes, fn(axes[0]), tag=f"axis{a.number}_{tag}")


def _nearest(b: Builder, x: Val, a: FreeAxis, how: Sampling) -> Element:
    def place(o: Expr) -> Expr:
        return _inside(nearest(o, a.line, how.coord, how.nearest), a.n)
    table = _table(b, a, place, "place")
    return lambda i: _read(b, x, a, i, _inside(b.load(table, (i[a.number],)), a.n))


def _linear(b: Builder, x: Val, a: FreeAxis, how: Sampling) -> Element:
    """Both neighbours of the coordinate, which is moved to the edge where it lies outside."""
    last = real(simplify(a.n - 1), ROUNDED)

    def place(o: Expr) -> Expr:
        return minimum(maximum(place_of(o, a.line, how.coord, ROUNDED), const(0, ROUNDED)), last)
    low = _table(b, a, lambda o: Cast(INDEX, Unary("floor", place(o))), "low")
    high = _table(b, a, lambda o: simplify(Where(a.keeps, o, minimum(
        b.load(low, (o,)) + 1, a.n - 1))), "high")

    def share(o: Expr) -> Expr:  # halves of one element: an infinity stays one
        part = place(o) - Unary("floor", place(o))
        alone = compare("eq", b.load(low, (o,)), b.load(high, (o,)))
        return Where(alone, const(0.5, ROUNDED), part)
    shares = _table(b, a, share, "share")

    def element(i: Index) -> Expr:
        o = i[a.number]
        w = _as(x.dtype, b.load(shares, (o,)))
        ends = [_read(b, x, a, i, _inside(b.load(p, (o,)), a.n)) for p in (low, high)]
        return ends[0] * (const(1, x.dtype) - w) + ends[1] * w
    return element


def _near(t: Expr, c: float) -> Expr:
    return ((const(c + 2, ROUNDED) * t - (c + 3)) * t) * t + 1.0


def _far(t: Expr, c: float) -> Expr:
    return ((const(c, ROUNDED) * t - 5 * c) * t + 8 * c) * t - 4 * c


def _cubic(b: Builder, x: Val, a: FreeAxis, how: Sampling) -> Element:
    def place(o: Expr) -> Expr:
        return place_of(o, a.line, how.coord, ROUNDED)

    def low(o: Expr) -> Expr:
        return Cast(INDEX, Unary("floor", place(o)))

    def weight(t: int) -> Callable[[Expr], Expr]:
        def at(o: Expr) -> Expr:
            part = place(o) - Unary("floor", place(o))
            distance = (part + 1.0, part, const(1, ROUNDED) - part, const(2, ROUNDED) - part)[t]
            w = (_far, _near, _near, _far)[t](distance, how.cubic)
            here = low(o) + (t - 1)
            if how.exclude:
                w = Where(Binary("and", compare("ge", here, Const(0)), compare("lt", here, a.n)),
                          w, const(0, ROUNDED))
            return simplify(Where(a.keeps, const(0.25, ROUNDED), w))
        return at
    def tap(t: int) -> Callable[[Expr], Expr]:
        return lambda o: simplify(Where(a.keeps, o, _inside(low(o) + (t - 1), a.n)))
    places = [_table(b, a, tap(t), f"place{t}") for t in range(4)]
    weights = [_table(b, a, weight(t), f"weight{t}") for t in range(4)]

    def element(i: Index) -> Expr:
        o = i[a.number]
        shares = [b.load(w, (o,)) for w in weights]
        total = add_values(shares) if how.exclude else None
        terms = []
        for t, w in enumerate(shares):
            e = _read(b, x, a, i, _inside(b.load(places[t], (o,)), a.n))
            share = _as(x.dtype, w if total is None else w / total)
            terms.append(e * share)
        return add_values(terms)
    return element


def _read(b: Builder, x: Val, a: FreeAxis, i: Index, place: Expr) -> Expr:
    return b.at(x, i[:a.number] + (place,) + i[a.number + 1:])


_MODES: dict[str, Callable[[Builder, Val, FreeAxis, Sampling], Element]] = {
    "nearest": _nearest, "linear": _linear, "cubic": _cubic}


def free_axis(b: Builder, x: Val, a: FreeAxis, mode: str, how: Sampling, tag: str) -> Val:
    """``x`` with one axis resized; ``mode``: nearest, or linear or cubic of floats.  Each element
    is computed in x's dtype, places and weights in f32, as ONNX Runtime has them."""
    shape = x.shape[:a.number] + (a.m,) + x.shape[a.number + 1:]
    b.nonempty(a.n, shape, "elements to resize")
    return b.map(shape, _MODES[mode](b, x, a, how), [x], tag)
