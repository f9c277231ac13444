"""Resize: each resized axis is a short weighted sum of source elements."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.declared import bound_number, expect_shape
from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import add_values, cast, conjunction, const
from aotc.frontend.building.values import At, Index, Result, Val
from aotc.frontend.graph import Node
from aotc.frontend.ops.images.coordinates import (
    BY_DATA,
    CROPS,
    EXACT,
    SAID,
    SIMPLE,
    Line,
    known,
    nearest,
    place_of,
)
from aotc.frontend.ops.images.free_axis import FreeAxis, free_axis
from aotc.frontend.ops.images.resample import (
    Sampling,
    extent_by,
    resample,
    scale_factors,
    scaled,
)
from aotc.ir.dtypes import DTYPES, Array, is_float
from aotc.ir.expr import Cast, Const, Expr, Unary, Where, compare, maximum, minimum
from aotc.ir.program import static_shape
from aotc.ir.simplify import are_equal, simplify

Factor = Expr | float | None
Taps = tuple[Array, Array]  # [element, tap]: place in the source; weight


@op("Upsample")
def upsample(node: Node, b: Builder) -> Result:
    """Opsets 7 to 9: scales only, asymmetric, rounding down."""
    x = b.input(0)
    if "scales" in node.attrs:
        scales = b.const(np.array(node.attrs["scales"], np.float32))
    else:
        scales = b.input(1)
    return _asymmetric(b, x, scales)


@op("Resize", since=10)
def resize_10(node: Node, b: Builder) -> Result:
    return _asymmetric(b, b.input(0), b.input(1))


def _asymmetric(b: Builder, x: Val, scales: Val) -> Val:
    axes = list(range(x.rank))
    how = Sampling("asymmetric", SIMPLE)
    known = all(isinstance(d, Const) for d in x.shape)
    if known and _to_numbers(b, axes, scales):
        return resample(b, x, axes, scales, None, "stretch", how)
    return _resize(b, x, axes, scales, None, how)


@op("Resize", since=11)
def resize(node: Node, b: Builder) -> Result:
    x, scales, sizes = b.input(0), b.arg(2), b.arg(3)
    axes = [b.axis(a, x.rank) for a in node.attr("axes", range(x.rank))]
    coord = node.attr("coordinate_transformation_mode", "half_pixel")
    if coord not in SAID:
        raise b.unsupported(f"coordinate_transformation_mode {coord!r}",
                            f"use one of {', '.join(SAID)}")
    scales = None if scales is None or scales.size == 0 else scales
    shaping = sizes if scales is None else scales
    if shaping is None:
        raise b.bad("neither scales nor sizes; give one of them")
    if coord == "align_corners" and scales is not None and b.from_data(scales):
        coord = BY_DATA
    how = Sampling(coord, node.attr("nearest_mode", "round_prefer_floor"),
                   node.attr("cubic_coeff_a", -0.75), bool(node.attr("antialias", 0)),
                   bool(node.attr("exclude_outside", 0)), node.attr("extrapolation_value", 0.0))
    policy = node.attr("keep_aspect_ratio_policy", "stretch")
    known = all(isinstance(x.shape[a], Const) for a in axes)
    if how.antialias or coord == CROPS or policy != "stretch" or known and (
            how.exclude or _to_numbers(b, axes, shaping)):
        return resample(b, x, axes, scales, sizes, policy, how)
    return _resize(b, x, axes, scales, sizes, how)


def _to_numbers(b: Builder, axes: Sequence[int], shaping: Val) -> bool:
    """True if data resizes the axes to extents that are declared as numbers."""
    if not b.from_data(shaping):
        return False
    declared = b.declared(rank=b.input(0).rank)
    return all(isinstance(declared[a], Const) for a in axes)


def _by_data(b: Builder, x: Val, axes: Sequence[int], scales: Val | None,
             sizes: Val | None) -> tuple[list[Factor], list[Expr]]:
    """(factors, extents as declared) of axes that data resizes; data that gives other extents is
    a fault."""
    declared = b.declared(rank=x.rank)
    factors: list[Factor] = [None] * len(axes)
    given: list[Expr] = []
    if scales is not None:
        loads = [Cast("f32", b.at(scales, (Const(k),))) if scales.dtype != "f32" else b.at(
            scales, (Const(k),)) for k in range(len(axes))]
        factors = [e.value if isinstance(e, Const) else e for e in loads]
        given = [extent_by(e, x.shape[a], 0.0, declared[a]) for a, e in zip(axes, loads)]
    elif sizes is not None:
        given = [bound_number(e) for e in b.elements(sizes)]
    wanted = dict(zip(axes, given, strict=True))
    expect_shape(b, [wanted.get(k, d) for k, d in enumerate(x.shape)], declared)
    return factors, [declared[a] for a in axes]


def _resize(b: Builder, x: Val, axes: Sequence[int], scales: Val | None, sizes: Val | None,
            how: Sampling) -> Val:
    mode = b.node.attr("mode", "nearest")
    if mode not in _MODES:
        raise b.unsupported(f"mode {mode!r}", f"use one of {', '.join(_MODES)}")
    b.need(x, "fiub" if mode == "nearest" else "fiu")
    factors: list[Factor] = [None] * len(axes)
    shaping = sizes if scales is None else scales
    if shaping is not None and b.from_data(shaping):
        factors, wanted = _by_data(b, x, axes, scales, sizes)
    elif scales is not None:
        given = scale_factors(b, scales, len(axes))
        factors = [*given]
        wanted = [scaled(b, x.shape[a], f) for a, f in zip(axes, given)]
    else:
        wanted = b.ints(b.input(3) if sizes is None else sizes)
    if len(wanted) != len(axes):
        raise b.bad(f"{len(wanted)} sizes for {len(axes)} axes")
    work = [(a, n, f) for a, n, f in zip(axes, wanted, factors)
            if not are_equal(x.shape[a], n) or f not in (None, 1)]
    source, whole = x, mode != "nearest" and not is_float(x.dtype) and work
    if whole:  # weights are fractions: rounded once, at the end
        x = b.map(x.shape, lambda i: cast("f32", b.at(source, i)), [source], "real")
    keeps = conjunction([compare("eq", source.shape[a], n) if f is None else Const(
        False, "bool") for a, n, f in work])
    for place, (axis, n, factor) in enumerate(work):
        tag = "" if place == len(work) - 1 and not whole else f"axis{axis}"
        x = _one_axis(b, x, FreeAxis(axis, x.shape[axis], n, None, keeps), factor, mode, how, tag)
    return b.map(x.shape, lambda i: _rounded(b.at(x, i), source.dtype), [x]) if whole else x


def _rounded(e: Expr, dtype: str) -> Expr:
    """A float as an integer; cubic weights overshoot, so it may lie outside the range."""
    lo, hi = np.iinfo(DTYPES[dtype].numpy).min, np.iinfo(DTYPES[dtype].numpy).max
    e = Unary("round", e)
    if DTYPES[dtype].size < 4:
        e = minimum(maximum(e, const(lo, e.dtype)), const(hi, e.dtype))
    return cast(dtype, e)


def _linear(x: Array, how: Sampling) -> Taps:
    low = np.floor(x)
    return np.stack([low, low + 1], 1), np.stack([1 - (x - low), x - low], 1)


def _cubic(x: Array, how: Sampling) -> Taps:
    a, low = how.cubic, np.floor(x)
    t = np.abs(x[:, None] - (low[:, None] + np.arange(-1, 3)))
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return low[:, None] + np.arange(-1, 3), np.where(t <= 1, near, np.where(t < 2, far, 0.0))


LONGEST = 1 << 22  # extents whose taps are constants: four places and weights for every element
_TAPS = {"linear": _linear, "cubic": _cubic}
_MODES = ("nearest", *_TAPS)


def _one_axis(b: Builder, x: Val, a: FreeAxis, factor: Factor, mode: str, how: Sampling,
              tag: str) -> Val:
    axis, old, n = a.number, a.n, a.m
    shape = x.shape[:axis] + (n,) + x.shape[axis + 1:]
    if not isinstance(old, Const) or not isinstance(n, Const) or how.exclude or isinstance(
            factor, Expr):
        return _symbolic_axis(b, x, a, factor, mode, how, tag)
    if n.value > LONGEST:
        raise b.unsupported(f"{n.value} places along axis {axis}", f"resize to at most {LONGEST}")
    scale = factor if isinstance(factor, float) else n.value / old.value
    index, weight = _taps(mode, Line(old, n, const(scale, EXACT)), how)
    index = np.clip(index, 0, old.value - 1).astype(np.int64)
    if mode == "linear":  # no weight of zero where both are the edge: an infinity stays one
        weight = np.where(index[:, :1] == index[:, 1:], 0.5, weight)
    label = b.node.label
    taps = [(_index_reader(b, index[:, t], old.value, f"{label}_index{t}_{axis}"),
             b.const(weight[:, t].astype(DTYPES[x.dtype].numpy), f"{label}_weight{t}_{axis}"))
            for t in range(index.shape[1])]

    def body(i: Index) -> Expr:
        def term(source: At, w: Val) -> Expr:
            e = b.at(x, i[:axis] + (source(i[axis]),) + i[axis + 1:])
            return e if mode == "nearest" else e * b.at(w, (i[axis],))
        return add_values(term(*tap) for tap in taps)
    return b.map(shape, body, [x], tag)


def _taps(mode: str, a: Line, how: Sampling) -> Taps:
    if mode == "nearest":
        place = known(lambda o: nearest(o, a, how.coord, how.nearest), a.m)
        return place[:, None], np.ones((len(place), 1))
    return _TAPS[mode](known(lambda o: place_of(o, a, how.coord, EXACT), a.m), how)


def _index_reader(b: Builder, index: Array, old: int, name: str) -> At:
    """Function from an output index to a source index: arithmetic where it fits, else a table."""
    n = len(index)
    if np.array_equal(index, np.arange(n) * old // n):
        return lambda o: simplify(o * old // n)
    table = b.const(index, name)
    return lambda o: b.index_at(table, (o,))


def _symbolic_axis(b: Builder, x: Val, a: FreeAxis, factor: Factor, mode: str, how: Sampling,
                   tag: str) -> Val:
    """An axis of symbolic extent: by integer arithmetic where the ratio is whole and rounds to the
    same elements, else by places that are computed at run time."""
    axis, old, n = a.number, a.n, a.m
    ratio = int(factor) if isinstance(factor, float) and factor == int(factor) else None
    whole = static_shape((simplify(n // old),))
    if factor is None and are_equal(n // old * old, n) and whole is not None:
        ratio = whole[0]
    if ratio and not how.special and mode == "nearest" and _divides(how):
        shape = x.shape[:axis] + (n,) + x.shape[axis + 1:]
        return b.map(shape, lambda i: b.at(x, i[:axis] + (simplify(i[axis] // ratio),)
                                           + i[axis + 1:]), [x], tag)
    if ratio and mode == "linear" and how.coord in (*_CENTRED, "asymmetric"):
        return _whole_ratio(b, x, axis, n, ratio, how, tag)
    scale = const(factor, "f32") if isinstance(factor, float) else factor
    if scale is not None and scale.dtype != "f32":
        scale = Cast("f32", scale)
    return free_axis(b, x, replace(a, scale=scale), mode, how, tag)


# coordinates that put every source element in the middle of the elements that are nearest to it
_CENTRED = ("half_pixel", "pytorch_half_pixel")


def _divides(how: Sampling) -> bool:
    """True if the nearest element, resizing by a whole ratio, is the quotient by it."""
    return (how.coord in _CENTRED and how.nearest.startswith("round")
            or how.coord == "asymmetric" and how.nearest in ("floor", SIMPLE))


def _whole_ratio(b: Builder, x: Val, axis: int, n: Expr, ratio: int, how: Sampling,
                 tag: str) -> Val:
    """Linear, by a whole ratio: the weights are remainders."""
    old = x.shape[axis]
    shape = x.shape[:axis] + (n,) + x.shape[axis + 1:]
    shift = 0 if how.coord == "asymmetric" else ratio - 1

    def body(i: Index) -> Expr:
        # (o + 0.5)/r - 0.5 = (2o + 1 - r) / 2r, so the weight is the remainder over 2r
        line = i[axis] * 2 - shift
        low, rest = line // (2 * ratio), line % (2 * ratio)
        rest = Where(compare("lt", low + 1, old), rest, Const(ratio))  # halves of the edge
        w = cast(x.dtype, simplify(rest)) * const(1 / (2 * ratio), x.dtype)
        ends = [b.at(x, i[:axis] + (simplify(minimum(maximum(p, Const(0)), old - 1)),)
                     + i[axis + 1:]) for p in (low, low + 1)]
        return ends[0] * (const(1, x.dtype) - w) + ends[1] * w
    return b.map(shape, body, [x], tag)
