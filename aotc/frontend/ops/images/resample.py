"""Resize in general: every axis gets two small tensors, the first source element of each output
element and the weights of the elements from there on.  Where scales and extents are constant both
are folded away; else they are computed at run time, in f64, but for the nearest element: its place
is rounded as ONNX Runtime does, in f32, since rounding decides which one is read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.declared import expect, expect_shape
from aotc.frontend.building.rational import ratio, to_int
from aotc.frontend.building.symbolic import add_values, cast, conjunction, const
from aotc.frontend.building.values import Element, Index, Val
from aotc.frontend.ops.images.coordinates import (
    COORDINATES,
    CROPS,
    EXACT,
    ROUNDED,
    SAID,
    Box,
    Line,
    nearest,
    place_of,
    real,
)
from aotc.ir.dtypes import DTYPES, INDEX, is_float
from aotc.ir.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Shape,
    Unary,
    Where,
    binary,
    compare,
    int_of,
    maximum,
    minimum,
)
from aotc.ir.simplify import are_equal, proves, simplify

WRITTEN_OUT = 16  # terms of a sum, at most

@dataclass(frozen=True)
class Sampling:
    """Attributes of a Resize.  ``coord``: coordinate_transformation_mode; ``nearest``: its
    rounding; ``cubic``: the cubic coefficient; ``outside``: the extrapolation value."""

    coord: str
    nearest: str = "round_prefer_floor"
    cubic: float = -0.75
    antialias: bool = False
    exclude: bool = False
    outside: float = 0.0

    @property
    def special(self) -> bool:
        return self.antialias or self.exclude or self.coord == CROPS


@dataclass(frozen=True)
class Axis1:
    """Axis ``number`` being resized along ``line``, whose factor and region are f64 expressions."""

    number: int
    line: Line

    @property
    def n(self) -> Expr:
        return self.line.n

    @property
    def m(self) -> Expr:
        return self.line.m

    @property
    def scale(self) -> Expr:
        return self.line.scale


def _real(value: Expr | float) -> Expr:
    """A number or an expression as an f64 expression."""
    return cast(EXACT, value) if isinstance(value, Expr) else const(value, EXACT)


def resample(b: Builder, x: Val, axes: Sequence[int], scales: Val | None, sizes: Val | None,
             policy: str, how: Sampling) -> Val:
    """``x`` resized along ``axes`` by ``scales`` or to ``sizes`` (one of them None).

    UnsupportedError for modes that are none of the standard's."""
    mode = b.node.attr("mode", "nearest")
    if mode not in _WEIGHTS or how.coord not in COORDINATES:
        raise b.unsupported(f"mode {mode!r} with coordinates {how.coord!r}",
                            f"use one of {', '.join(_WEIGHTS)} and {', '.join(SAID)}")
    old = [x.shape[a] for a in axes]
    given = scales if scales is not None else sizes
    if given is None:
        raise b.bad("neither scales nor sizes are given")
    if given.size != len(axes):
        raise b.bad(f"{given} for {len(axes)} axes of {x}")
    factors, wanted = _factors(b, old, axes, scales, sizes, policy)
    crops = how.coord == CROPS
    roi = b.arg(1) if crops else None
    roi = None if roi is None or roi.size == 0 else roi
    if roi is not None and roi.size != 2 * len(axes):
        raise b.bad(f"{how.coord} needs a region (roi) of {2 * len(axes)} numbers, it has {roi}")
    out = x
    whole = mode != "nearest" and not is_float(x.dtype)
    if whole:  # weights are fractions: rounded once, at the end
        out = b.map(x.shape, lambda i: cast("f32", b.at(x, i)), [x], "real")
    work = [Axis1(a, Line(d, m, s, _box(b, roi, k, len(axes)) if crops else None))
            for k, (a, d, m, s) in enumerate(zip(axes, old, wanted, factors))
            if roi is not None or not are_equal(d, m) or scales is not None and
            s != const(1, EXACT)]
    for place, axis in enumerate(work):
        tag = "" if place == len(work) - 1 and not whole else f"axis{axis.number}"
        out = _one(b, out, axis, mode, how, tag)
    if not whole:
        return out
    return b.map(out.shape, lambda i: _rounded(b.at(out, i), x.dtype), [out])


def _factors(b: Builder, old: Sequence[Expr], axes: Sequence[int], scales: Val | None,
             sizes: Val | None, policy: str) -> tuple[list[Expr], list[Expr]]:
    """(factor per axis as an f64 expression, new extent per axis)."""
    if scales is not None and not b.from_data(scales):
        given = scale_factors(b, scales, len(axes))
        return [_real(f) for f in given], [
            Const(int(np.floor(f * n.value))) if isinstance(f, float) and isinstance(n, Const)
            else scaled(b, n, f) for f, n in zip(given, old)]
    if scales is not None:
        factors = [_real(b.at(scales, (Const(k),))) for k in range(len(axes))]
    else:
        ends = b.elements(b.input(3) if sizes is None else sizes)
        factors = [_ratio(e, n) for e, n in zip(ends, old)]
        if policy != "stretch":
            name = {"not_larger": "min", "not_smaller": "max"}[policy]
            factors = [_least(name, factors)] * len(axes)
        if sizes is not None and not b.from_data(sizes):
            ends = b.ints(sizes)
            return factors, ends if policy == "stretch" else [
                _least(name, [simplify((e * n * 2 + o) // (o * 2)) for e, o in zip(ends, old)])
                for n in old]
    bias = 0.5 if policy != "stretch" else 1e-9 if scales is None else 0.0
    declared = b.declared()
    wanted = {a: extent_by(f, n, bias, declared[a]) for a, f, n in zip(axes, factors, old)}
    expect_shape(b, [wanted.get(k, d) for k, d in enumerate(b.input(0).shape)], declared)
    return factors, [declared[a] for a in axes]


def _least(name: str, values: Sequence[Expr]) -> Expr:
    """The least or the largest ("min", "max") of some expressions."""
    best = values[0]
    for v in values[1:]:
        best = _fold(binary(name, best, v))
    return best if best.dtype == EXACT else simplify(best)


def scale_factors(b: Builder, v: Val, count: int) -> list[Expr | float]:
    """Scale factors as Python floats, or as expressions where they come from shapes.
    UnsupportedError where they depend on data."""
    if v.size != count:
        raise b.bad(f"{v} scales for {count} axes")
    out = [b.at(v, (Const(k),)) for k in range(count)]
    if any(not isinstance(e, Const) and to_int(e) is None for e in out):
        raise b.unsupported("scales that depend on data", "make them constant")
    return [e.value if isinstance(e, Const) else e for e in out]


def scaled(b: Builder, extent: Expr, factor: Expr | float) -> Expr:
    """floor(extent * factor) as an index expression; UnsupportedError where there is none."""
    factor = const(factor, "f32") if isinstance(factor, float) else factor
    rounded = Unary("floor", cast("f32", extent) * factor)
    whole = to_int(rounded)
    if whole is not None:
        return whole
    exact = ratio(cast("f32", extent) * factor)
    if exact is None:
        raise b.unsupported("this scale of a symbolic extent", "give sizes instead")
    # sizes divided by extents: a few quotients, times the extent, are less than the size
    meant = simplify(exact[0] // exact[1])
    made = b.compute((), Cast(INDEX, rounded), tag="extent")
    expect(b, [(b.load(made, ()), meant)],
           f"its extent times its scale, in f32, must be the extent that is meant, {meant}, it is")
    return meant


def extent_by(factor: Expr, n: Expr, bias: float, declared: Expr) -> Expr:
    """The extent that a factor from data gives: f32(0.7) * 10 is 6 or, in f32, 7."""
    exact, rounded = (cast(INDEX, Unary("floor", cast(kind, factor) * cast(kind, n) + bias))
                      for kind in (EXACT, "f32"))
    return Where(compare("eq", rounded, declared), rounded, exact)


def _ratio(size: Expr, n: Expr) -> Expr:
    if isinstance(size, Const) and isinstance(n, Const):
        return const(size.value / n.value, EXACT)
    return _real(size) / _real(n)


def _fold(e: Expr) -> Expr:
    """min or max of two constants."""
    if isinstance(e, Binary) and isinstance(e.a, Const) and isinstance(e.b, Const):
        return const((min if e.op == "min" else max)(e.a.value, e.b.value), EXACT)
    return e


def _box(b: Builder, roi: Val | None, k: int, count: int) -> Box:
    """The region along axis ``k`` of ``count``: all of it where the node has none."""
    if roi is None:
        return _real(0.0), _real(1.0)
    return _real(b.at(roi, (Const(k),))), _real(b.at(roi, (Const(k + count),)))


def _rounded(e: Expr, dtype: str) -> Expr:
    """A float as an integer; cubic weights overshoot, so it may lie outside the range."""
    info = np.iinfo(DTYPES[dtype].numpy)
    e = Unary("round", e)
    if DTYPES[dtype].size < 4:
        e = minimum(maximum(e, const(info.min, e.dtype)), const(info.max, e.dtype))
    return cast(dtype, e)


# ---------------------------------------------------------------- weights

def _hat(t: Expr, how: Sampling) -> Expr:
    return maximum(const(1, EXACT) - t, const(0, EXACT))


def _cubic(t: Expr, how: Sampling) -> Expr:
    a = how.cubic
    near = ((const(a + 2, EXACT) * t - (a + 3)) * t) * t + 1.0
    far = ((const(a, EXACT) * t - 5 * a) * t + 8 * a) * t - 4 * a
    return Where(compare("le", t, const(1, EXACT)), near,
                 Where(compare("lt", t, const(2, EXACT)), far, const(0, EXACT)))


# mode: (elements to either side, their weight by distance)
_WEIGHTS: dict[str, tuple[int, Callable[[Expr, Sampling], Expr] | None]] = {
    "nearest": (0, None), "linear": (1, _hat), "cubic": (2, _cubic)}


def _side(a: Axis1, mode: str, how: Sampling) -> Expr:
    """How many elements to either side of a place are read."""
    reach = Const(_WEIGHTS[mode][0])
    if not how.antialias or proves(compare("ge", a.m, a.n)):
        return reach
    if isinstance(a.scale, Const) and not isinstance(a.n, Const):
        return Const(int(np.ceil(reach.value / min(a.scale.value, 1.0))))
    # the factor is at least m / n, for m = floor(n * factor): farther elements weigh nothing
    m = a.m if proves(compare("ge", a.m, Const(1))) else maximum(a.m, Const(1))
    return simplify(maximum(reach, (a.n * reach + (m - 1)) // m))


def _first(place: Expr, a: Axis1, mode: str, how: Sampling) -> Expr:
    """f64 expression of the first element that has a weight."""
    return Unary("ceil", place) - _real(_side(a, mode, how))


def _one(b: Builder, x: Val, a: Axis1, mode: str, how: Sampling, tag: str) -> Val:
    """``x`` with one axis resized."""
    node, dtype = f"axis{a.number}", x.dtype if is_float(x.dtype) else "f32"

    def place(i: Index) -> Expr:
        return place_of(i[0], a.line, how.coord, EXACT)
    count = Const(1) if mode == "nearest" else simplify(_side(a, mode, how) * 2)
    first = _table(b, (a.m,), lambda i: nearest(i[0], a.line, how.coord, how.nearest)
                   if mode == "nearest" else cast(INDEX, _first(place(i), a, mode, how)),
                   f"{node}_first")
    weights = None if mode == "nearest" else _normalised(b, place, a, mode, how, count, dtype,
                                                         node)
    inside = None
    if a.line.roi is not None:
        inside = _table(b, (a.m,), lambda i: _inside(place_of(
            i[0], a.line, how.coord, ROUNDED), a.n), f"{node}_inside")

    def term(i: Index, t: Expr) -> Expr:
        at = i[a.number]
        source = minimum(maximum(b.load(first, (at,)) + t, Const(0)), simplify(a.n - 1))
        e = b.at(x, i[:a.number] + (source,) + i[a.number + 1:])
        return e if weights is None else weighted(e, b.load(weights, (at, t)))
    shape = x.shape[:a.number] + (a.m,) + x.shape[a.number + 1:]
    total = _summed(b, shape, term, count, [x], tag if inside is None else f"{node}_sum")
    if inside is None:
        return total
    return b.map(shape, lambda i: Where(b.load(inside, (i[a.number],)), b.at(total, i),
                                        const(how.outside, x.dtype)), [total], tag)


def _inside(place: Expr, n: Expr) -> Expr:
    """Whether a place, as it is rounded, lies between the first and the last of ``n`` elements."""
    return conjunction([compare("ge", place, const(0, place.dtype)),
                        compare("le", place, real(simplify(n - 1), place.dtype))])


def _summed(b: Builder, shape: Shape, term: Callable[[Index, Expr], Expr], count: Expr,
            sources: Sequence[Val], tag: str) -> Val:
    """The sum of ``count`` terms: written out where they are few, else a fold."""
    if isinstance(count, Const) and count.value <= WRITTEN_OUT:
        return b.map(shape, lambda i: add_values(term(i, Const(t)) for t in range(int_of(count))),
                     sources, tag)
    axes, (r,) = b.axes(shape), b.axes((count,), prefix="r")
    return b.compute(axes, term(axes, r), (r,), "sum", tag)


def weighted(e: Expr, w: Expr) -> Expr:
    """``e`` times ``w``; zero for a weight of zero, also where ``e`` is infinite or no number."""
    zero = const(0, e.dtype)
    return Where(compare("ne", w, zero), e * w, zero)


def _normalised(b: Builder, place: Element, a: Axis1, mode: str, how: Sampling, count: Expr,
                dtype: str, node: str) -> Val:
    """The weights [m, count] of an axis."""
    kernel = _WEIGHTS[mode][1]
    grows = not how.antialias or proves(compare("ge", a.m, a.n))
    stretch = const(1, EXACT) if grows else _fold(binary("min", a.scale, const(1, EXACT)))

    def raw(i: Index, t: Expr) -> Expr:
        where = place(i)
        at = _first(where, a, mode, how) + _real(t)
        assert kernel is not None, mode  # "nearest" has no weights
        weight = kernel(Unary("abs", at - where) * stretch, how)
        if how.exclude:
            weight = Where(Binary("and", compare("ge", at, const(0, EXACT)),
                                  compare("lt", at, _real(a.n))), weight, const(0, EXACT))
        return weight
    if not how.exclude and not how.antialias:
        return _table(b, (a.m, count), lambda i: cast(dtype, raw(i, i[1])), f"{node}_weights")
    sums = _summed(b, (a.m,), raw, count, (), f"{node}_total")
    return _table(b, (a.m, count), lambda i: cast(dtype, raw(i, i[1]) / b.load(sums, i[:1])),
                  f"{node}_weights")


def _table(b: Builder, shape: Shape, fn: Element, tag: str) -> Val:
    axes = b.axes(shape)
    made = b.compute(axes, fn(axes), tag=tag)
    return Val(made.shape, made.dtype, buffer=made.buffer)
