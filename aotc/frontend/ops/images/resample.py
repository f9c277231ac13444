"""Resize in general: every axis gets two small tensors, the first source element of each output
element and the weights of the elements from there on.  Where scales are constant both are folded
away; where they are data they are computed at run time, for the declared shape of the result."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.declared import expect_shape
from aotc.frontend.building.symbolic import cast, conjunction, const, summed
from aotc.frontend.building.values import Element, Index, Val
from aotc.ir.dtypes import DTYPES, INDEX, is_float
from aotc.ir.expr import (
    Binary,
    Const,
    Expr,
    Unary,
    Where,
    binary,
    compare,
    int_of,
    maximum,
    minimum,
)
from aotc.ir.simplify import same

REAL = "f64"  # coordinates: their rounding decides which elements are read

Box = tuple[Expr, Expr]  # start and end of a region, f64 expressions


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
        return self.antialias or self.exclude or self.coord == "tf_crop_and_resize"


@dataclass(frozen=True)
class Axis1:
    """One axis being resized: extents ``n`` to ``m`` by the factor ``scale`` (an f64 expression);
    ``roi`` is (start, end) as f64 expressions, or None."""

    number: int
    n: int
    m: int
    scale: Expr
    roi: Box | None = None


def real(value: Expr | float) -> Expr:
    """A number or an expression as an f64 expression."""
    return cast(REAL, value) if isinstance(value, Expr) else const(value, REAL)


def resample(b: Builder, x: Val, axes: Sequence[int], scales: Val | None, sizes: Val | None,
             policy: str, how: Sampling) -> Val:
    """``x`` resized along ``axes`` by ``scales`` or to ``sizes`` (one of them None).

    UnsupportedError for symbolic extents and for modes that are none of the standard's."""
    mode = b.node.attr("mode", "nearest")
    if mode not in _WEIGHTS or how.coord not in _COORDINATES:
        raise b.unsupported(f"mode {mode!r} with coordinates {how.coord!r}",
                            f"use one of {', '.join(_WEIGHTS)} and {', '.join(_COORDINATES)}")
    old = [x.shape[a] for a in axes]
    given = scales if scales is not None else sizes
    if given is None:
        raise b.bad("neither scales nor sizes are given")
    if given.size != len(axes) or not all(isinstance(d, Const) for d in old):
        raise b.unsupported(f"{given} for {len(axes)} axes of {x}", "pin the dimensions")
    factors, wanted = _factors(b, list(map(int_of, old)), axes, scales, sizes, policy)
    roi = b.arg(1) if how.coord == "tf_crop_and_resize" else None
    if how.coord == "tf_crop_and_resize" and (roi is None or roi.size != 2 * len(axes)):
        raise b.bad(f"{how.coord} needs a region (roi) of {2 * len(axes)} numbers, it has "
                    + ("none" if roi is None else str(roi)))
    out = x
    whole = mode != "nearest" and not is_float(x.dtype)
    if whole:  # weights are fractions: rounded once, at the end
        out = b.map(x.shape, lambda i: cast("f32", b.at(x, i)), [x], "real")
    work = [Axis1(a, int_of(d), m, s, _box(b, roi, k, len(axes)))
            for k, (a, d, m, s) in enumerate(zip(axes, old, wanted, factors))
            if roi is not None or not same(d, Const(m)) or s != const(1, REAL)]
    for place, axis in enumerate(work):
        tag = "" if place == len(work) - 1 and not whole else f"axis{axis.number}"
        out = _one(b, out, axis, mode, how, tag)
    if not whole:
        return out
    return b.map(out.shape, lambda i: _rounded(b.at(out, i), x.dtype), [out])


def _factors(b: Builder, old: Sequence[int], axes: Sequence[int], scales: Val | None,
             sizes: Val | None, policy: str) -> tuple[list[Expr], list[int]]:
    """(factor per axis as an f64 expression, new extent per axis as an int)."""
    if scales is not None:
        factors = [real(b.at(scales, (Const(k),))) for k in range(len(axes))]
    else:
        ends = b.elements(b.input(3) if sizes is None else sizes)
        factors = [_ratio(e, n) for e, n in zip(ends, old)]
        if policy != "stretch":
            name = {"not_larger": "min", "not_smaller": "max"}[policy]
            best = factors[0]
            for f in factors[1:]:
                best = _fold(binary(name, best, f))
            factors = [best] * len(axes)
    bias = 0.5 if policy != "stretch" else 1e-9 if scales is None else 0.0
    known = [f.value for f in factors if isinstance(f, Const)]
    if len(known) == len(factors):
        return factors, [int(np.floor(f * n + bias)) for f, n in zip(known, old)]
    declared = b.declared()
    wanted = {a: extent_by(f, Const(n), bias, declared[a]) for a, f, n in zip(axes, factors, old)}
    expect_shape(b, [wanted.get(k, d) for k, d in enumerate(b.input(0).shape)], declared)
    return factors, [b.fixed(declared[a]) for a in axes]


def extent_by(factor: Expr, n: Expr, bias: float, declared: Expr) -> Expr:
    """The extent that a factor from data gives: f32(0.7) * 10 is 6 or, in f32, 7."""
    exact, rounded = (cast(INDEX, Unary("floor", cast(kind, factor) * cast(kind, n) + bias))
                      for kind in (REAL, "f32"))
    return Where(compare("eq", rounded, declared), rounded, exact)


def _ratio(size: Expr, n: int) -> Expr:
    return const(size.value / n, REAL) if isinstance(size, Const) else real(size) / float(n)


def _fold(e: Expr) -> Expr:
    """min or max of two constants."""
    if isinstance(e, Binary) and isinstance(e.a, Const) and isinstance(e.b, Const):
        return const((min if e.op == "min" else max)(e.a.value, e.b.value), REAL)
    return e


def _box(b: Builder, roi: Val | None, k: int, count: int) -> Box | None:
    if roi is None:
        return None
    return real(b.at(roi, (Const(k),))), real(b.at(roi, (Const(k + count),)))


def _rounded(e: Expr, dtype: str) -> Expr:
    """A float as an integer; cubic weights overshoot, so it may lie outside the range."""
    info = np.iinfo(DTYPES[dtype].numpy)
    e = Unary("round", e)
    if DTYPES[dtype].size < 4:
        e = minimum(maximum(e, const(info.min, e.dtype)), const(info.max, e.dtype))
    return cast(dtype, e)


# ---------------------------------------------------------------- coordinates

def _pixel(o: Expr, a: Axis1) -> Expr:
    return (o + 0.5) / a.scale - 0.5


def _unless_one(a: Axis1, value: Expr, single: Expr) -> Expr:
    return Where(compare("eq", a.scale * float(a.n), const(1, REAL)), single, value)


def _crop(o: Expr, a: Axis1) -> Expr:
    assert a.roi is not None, a  # the mode has one
    start, end = a.roi
    step = _unless_one(a, o * (end - start) * float(a.n - 1) / (a.scale * float(a.n) - 1.0),
                       (end - start) * (float(a.n - 1) / 2))
    return step + start * float(a.n - 1)


# source coordinate of the output element ``o`` (an f64 expression)
_COORDINATES: dict[str, Callable[[Expr, Axis1], Expr]] = {
    "half_pixel": _pixel,
    "pytorch_half_pixel": lambda o, a: _unless_one(a, _pixel(o, a), const(-0.5, REAL)),
    "align_corners": lambda o, a: _unless_one(
        a, o * float(a.n - 1) / (a.scale * float(a.n) - 1.0), const(0, REAL)),
    "asymmetric": lambda o, a: o / a.scale,
    "half_pixel_symmetric": lambda o, a: (
        const(a.n / 2, REAL) * (const(1, REAL) - const(a.m, REAL) / (a.scale * float(a.n)))
        + _pixel(o, a)),
    "tf_crop_and_resize": _crop,
}


# ---------------------------------------------------------------- weights

_ROUND = {"floor": lambda x: Unary("floor", x), "ceil": lambda x: Unary("ceil", x),
          "round_prefer_floor": lambda x: Unary("ceil", x - 0.5),
          "round_prefer_ceil": lambda x: Unary("floor", x + 0.5)}


def _hat(t: Expr, how: Sampling) -> Expr:
    return maximum(const(1, REAL) - t, const(0, REAL))


def _cubic(t: Expr, how: Sampling) -> Expr:
    a = how.cubic
    near = ((const(a + 2, REAL) * t - (a + 3)) * t) * t + 1.0
    far = ((const(a, REAL) * t - 5 * a) * t + 8 * a) * t - 4 * a
    return Where(compare("le", t, const(1, REAL)), near,
                 Where(compare("lt", t, const(2, REAL)), far, const(0, REAL)))


# mode: (elements to either side, their weight by distance)
_WEIGHTS: dict[str, tuple[int, Callable[[Expr, Sampling], Expr] | None]] = {
    "nearest": (0, None), "linear": (1, _hat), "cubic": (2, _cubic)}


def _first_and_taps(place: Expr, a: Axis1, mode: str,
                    how: Sampling) -> tuple[Expr, int, Expr | None]:
    """(f64 expression of the first element read, number of elements, how much the kernel is
    stretched)."""
    reach = _WEIGHTS[mode][0]
    if mode == "nearest":
        return _ROUND[how.nearest](place), 1, None
    low = Unary("ceil", place) - 1.0
    if not how.antialias or a.m >= a.n:
        return low - float(reach - 1), 2 * reach, const(1, REAL)
    # the factor is at least m / n, for m = floor(n * factor): farther elements weigh nothing
    start = int(np.floor(-reach * a.n / a.m)) + 1
    return low + float(start), 2 - 2 * start, _fold(binary("min", a.scale, const(1, REAL)))


def _one(b: Builder, x: Val, a: Axis1, mode: str, how: Sampling, tag: str) -> Val:
    """``x`` with one axis resized."""
    node, dtype = f"axis{a.number}", x.dtype if is_float(x.dtype) else "f32"

    def place(i: Index) -> Expr:
        return _COORDINATES[how.coord](cast(REAL, i[0]), a)
    count = _first_and_taps(real(0), a, mode, how)[1]
    first = _table(b, (a.m,), lambda i: cast(INDEX, _first_and_taps(
        place(i), a, mode, how)[0]), f"{node}_first")
    weights = None if mode == "nearest" else _normalised(b, place, a, mode, how, count, dtype,
                                                         node)
    inside = None
    if a.roi is not None:
        inside = _table(b, (a.m,), lambda i: conjunction([
            compare("ge", place(i), const(0, REAL)),
            compare("le", place(i), const(a.n - 1, REAL))]), f"{node}_inside")

    def body(i: Index) -> Expr:
        at = i[a.number]

        def term(t: int) -> Expr:
            source = minimum(maximum(b.load(first, (at,)) + t, Const(0)), Const(a.n - 1))
            e = b.at(x, i[:a.number] + (source,) + i[a.number + 1:])
            return e if weights is None else weighted(e, b.load(weights, (at, Const(t))))
        total = summed(map(term, range(count)))
        return total if inside is None else Where(
            b.load(inside, (at,)), total, const(how.outside, x.dtype))
    return b.map(x.shape[:a.number] + (Const(a.m),) + x.shape[a.number + 1:], body, [x], tag)


def weighted(e: Expr, w: Expr) -> Expr:
    """``e`` times ``w``; zero for a weight of zero, also where ``e`` is infinite or no number."""
    zero = const(0, e.dtype)
    return Where(compare("ne", w, zero), e * w, zero)


def _normalised(b: Builder, place: Element, a: Axis1, mode: str, how: Sampling, count: int,
                dtype: str, node: str) -> Val:
    """The weights [m, count] of an axis."""
    kernel = _WEIGHTS[mode][1]

    def raw(i: Index, t: Expr) -> Expr:
        where = place(i)
        first, _, stretch = _first_and_taps(where, a, mode, how)
        assert kernel is not None and stretch is not None, mode  # "nearest" has no weights
        weight = kernel(Unary("abs", first + real(t) - where) * stretch, how)
        if how.exclude:
            at = first + real(t)
            weight = Where(Binary("and", compare("ge", at, const(0, REAL)),
                                  compare("lt", at, const(a.n, REAL))), weight, const(0, REAL))
        return weight
    if not how.exclude and not how.antialias:
        return _table(b, (a.m, count), lambda i: cast(dtype, raw(i, i[1])), f"{node}_weights")
    sums = _table(b, (a.m,), lambda i: summed([raw(i, Const(t)) for t in range(count)]),
                  f"{node}_sum")
    return _table(b, (a.m, count), lambda i: cast(dtype, raw(i, i[1]) / b.load(sums, i[:1])),
                  f"{node}_weights")


def _table(b: Builder, shape: tuple[int, ...], fn: Element, tag: str) -> Val:
    axes = b.axes(tuple(map(Const, shape)))
    made = b.compute(axes, fn(axes), tag=tag)
    return Val(made.shape, made.dtype, buffer=made.buffer)
