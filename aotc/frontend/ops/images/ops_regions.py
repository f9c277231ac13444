"""Operators that read an image in regions that are data."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import cast, conjunction, const
from aotc.frontend.building.values import Index, Result, Val
from aotc.frontend.graph import Node
from aotc.frontend.ops.images.resample import weighted
from aotc.ir.dtypes import INDEX
from aotc.ir.expr import (
    Axis,
    Binary,
    Const,
    Expr,
    Unary,
    Where,
    compare,
    maximum,
    minimum,
)
from aotc.ir.program import neutral_value
from aotc.ir.simplify import simplify

Corners = list[tuple[Expr, Expr]]  # (place, weight)
MOST_SAMPLES = 1 << 40  # of a bin, along a line


@dataclass(frozen=True)
class _Side:
    """Height or width of the regions, [regions, bins] each: ``base`` where a bin begins, ``bin``
    its length; samples ``first`` .. ``first + looped`` of its ``grid`` can lie inside the image,
    at most ``most``."""

    base: Val
    bin: Val
    grid: Val
    first: Val
    looped: Val
    most: Expr


@op("RoiAlign", since=10)
def roi_align(node: Node, b: Builder) -> Result:
    x, rois, batches = b.input(0), b.input(1), b.input(2)
    b.need(x, "f")
    sizes = node.attr("output_height", 1), node.attr("output_width", 1)
    way = node.attr("coordinate_transformation_mode",
                    "half_pixel" if node.opset >= 16 else "output_half_pixel")
    shape = (rois.shape[0], x.shape[1], Const(sizes[0]), Const(sizes[1]))
    for extent in (x.shape[0], *x.shape[2:]):
        b.nonempty(extent, shape, "pixels to sample")
    sides = [_side(b, d, sizes[d], way, node.attr("sampling_ratio", 0)) for d in (0, 1)]
    return _sampled(b, x, batches, sides, shape, node.attr("mode", "avg"))


def _side(b: Builder, d: int, size: int, way: str, ratio: int) -> _Side:
    """Side ``d`` (0: height) of all regions, cut into ``size`` bins of ``ratio`` samples; 0: as
    many as a bin has pixels, rounded up."""
    x, rois = b.input(0), b.input(1)
    f, extent, tag = x.dtype, x.shape[2 + d], "hw"[d]
    shape, scale = (rois.shape[0], Const(size)), const(b.node.attr("spatial_scale", 1.0), f)
    shift = const(0.5 if way == "half_pixel" else 0, f)

    def ends(i: Index) -> tuple[Expr, Expr]:
        start, end = (b.at(rois, (i[0], Const(k))) * scale - shift for k in (1 - d, 3 - d))
        length = end - start
        return start, length if way == "half_pixel" else maximum(length, const(1, f))
    made = b.map(shape, lambda i: ends(i)[1] / const(size, f), [rois], f"bin_{tag}")
    base = b.map(shape, lambda i: ends(i)[0] + cast(f, i[1]) * b.at(made, i), [rois, made],
                 f"base_{tag}")
    if ratio > 0:
        grid, first = b.value(shape, lambda i: Const(ratio)), b.value(shape, lambda i: Const(0))
        return _Side(base, made, grid, first, grid, Const(ratio))
    grid = b.map(shape, lambda i: minimum(cast(INDEX, Unary("ceil", b.at(made, i))), Const(
        MOST_SAMPLES)), [made], f"grid_{tag}")
    # samples lie more than half a pixel apart where there are several
    most = simplify(extent * 2 + 6)

    def before(i: Index) -> Expr:  # samples that lie outside: one fewer, whatever was rounded
        step = b.at(made, i) / cast(f, b.at(grid, i))
        low = cast(INDEX, Unary("floor", (const(-1, f) - b.at(base, i)) / step - 1.5))
        return minimum(maximum(low, Const(0)), maximum(b.at(grid, i), Const(0)))
    first = b.map(shape, before, [made, base, grid], f"first_{tag}")
    looped = b.map(shape, lambda i: minimum(b.at(grid, i) - b.at(first, i), most), [grid, first],
                   f"looped_{tag}")
    return _Side(base, made, grid, first, looped, most)


def _sampled(b: Builder, x: Val, batches: Val, sides: Sequence[_Side], shape: Index,
             mode: str) -> Val:
    """[regions, channels, bins, bins]: the samples of every bin, ``mode`` avg or max of them; 0
    where it has none."""
    f, largest = x.dtype, mode == "max"
    axes, grid = b.axes(shape), b.axes([s.most for s in sides], prefix="s")
    n = b.inside(b.index_at(batches, (axes[0],)), x.shape[0])
    lines, held = [], []
    for d, (side, sample) in enumerate(zip(sides, grid)):
        at = (axes[0], axes[2 + d])
        if side.looped is not side.grid:
            held.append(compare("lt", sample, b.at(side.looped, at)))
        number = cast(f, b.at(side.first, at) + sample) + const(0.5, f)
        place = b.at(side.base, at) + number * b.at(side.bin, at) / cast(f, b.at(side.grid, at))
        lines.append(_bilinear_taps(place, x.shape[2 + d], f))
    values = []
    for corner in product(*(line[1] for line in lines)):
        e = b.at(x, (n, axes[1]) + tuple(p for p, _ in corner))
        w = corner[0][1] * corner[1][1]
        values.append(weighted(e, w) if largest else e * w)
    total = values[0]
    for e in values[1:]:
        total = maximum(total, e) if largest else total + e
    total = Where(conjunction(line[0] for line in lines), total, const(0, f))
    fold = "max" if largest else "sum"
    total = Where(conjunction(held), total, neutral_value(fold, f)) if held else total
    found = b.compute(axes, total, grid, fold, "" if largest and not held else fold)
    if largest and not held:
        return found

    def body(i: Index) -> Expr:
        at = [(i[0], i[2]), (i[0], i[3])]
        counts = [b.at(s.grid, place) for s, place in zip(sides, at)]
        if not largest:
            return b.at(found, i) / cast(f, maximum(counts[0] * counts[1], Const(1)))
        outside = [compare("lt", b.at(s.looped, place), c)
                   for s, place, c in zip(sides, at, counts)]
        some = Binary("or", *outside)  # samples outside of the image are 0
        none = Binary("or", *(compare("le", c, Const(0)) for c in counts))
        value = Where(some, maximum(b.at(found, i), const(0, f)), b.at(found, i))
        return Where(none, const(0, f), value)
    return b.map(found.shape, body, [found])


def _bilinear_taps(place: Expr, extent: Expr, dtype: str) -> tuple[Expr, Corners]:
    """(condition that the place counts, (index, weight) of both neighbours); a place up to one
    element outside takes the edge's."""
    last = cast(dtype, extent - 1)
    counts = Binary("and", compare("ge", place, const(-1, dtype)),
                    compare("le", place, cast(dtype, extent)))
    place = minimum(maximum(place, const(0, dtype)), last)
    low = Unary("floor", place)
    rest = place - low
    at = minimum(maximum(cast(INDEX, low), Const(0)), extent - 1)
    return counts, [(at, const(1, dtype) - rest), (minimum(at + 1, extent - 1), rest)]


@op("MaxRoiPool")
def max_roi_pool(node: Node, b: Builder) -> Result:
    """The largest element of every bin of regions [number of the image, left, top, right, bottom],
    whose ends are rounded to pixels; 0 of a bin without any."""
    x, rois = b.input(0), b.input(1)
    b.need(x, "f")
    b.same_dtype(x, rois)
    sizes = node.attr("pooled_shape")
    if x.rank != 4 or rois.rank != 2 or sizes is None or len(sizes) != 2 or min(sizes) < 1:
        raise b.bad(f"images [n, channels, height, width], regions [k, 5] and a pooled_shape of "
                    f"two numbers expected, it has {x}, {rois} and {sizes}")
    b.require("eq", rois.shape[1], 5, "a region is the number of an image and four ends")
    shape = (rois.shape[0], x.shape[1], Const(sizes[0]), Const(sizes[1]))
    for extent in (x.shape[0], *x.shape[2:]):
        b.nonempty(extent, shape, "pixels to choose from")
    ends = [_pixels(b, d, sizes[d]) for d in (0, 1)]
    axes, pixel = b.axes(shape), (Axis("h", x.shape[2]), Axis("w", x.shape[3]))
    n = b.inside(b.index_at(rois, (axes[0], Const(0))), x.shape[0])
    held = conjunction(
        compare(way, p, b.load(v, (axes[0], axes[2 + d])))
        for d, p in enumerate(pixel) for way, v in zip(("ge", "lt"), ends[d]))
    low = neutral_value("max", x.dtype)
    found = b.compute(axes, Where(held, b.load(x, (n, axes[1], *pixel)), low), pixel, "max", "max")

    def body(i: Index) -> Expr:
        none = [compare("le", b.at(last, (i[0], i[2 + d])), b.at(first, (i[0], i[2 + d])))
                for d, (first, last) in enumerate(ends)]
        return Where(Binary("or", *none), const(0, x.dtype), b.at(found, i))
    return b.map(found.shape, body, [found, *ends[0], *ends[1]])


def _pixels(b: Builder, d: int, size: int) -> tuple[Val, Val]:
    """[regions, bins]: the first pixel of every bin along side ``d``, and that behind its last."""
    x, rois = b.input(0), b.input(1)
    f, extent, tag = x.dtype, x.shape[2 + d], "hw"[d]
    scale = const(b.node.attr("spatial_scale", 1.0), f)

    def end(i: Index, k: int) -> Expr:
        e = b.at(rois, (i[0], Const(k))) * scale
        below = compare("lt", e, const(0, f))  # halves go away from zero
        size = Unary("floor", Unary("abs", e) + const(0.5, f))
        return Where(below, Unary("neg", size), size)

    def edge(i: Index, way: str) -> Expr:
        start, last = end(i, 2 - d), end(i, 4 - d)
        length = maximum(last - start + const(1, f), const(1, f))
        place = cast(f, i[1] + (way == "ceil")) * (length / const(size, f))
        return minimum(maximum(cast(INDEX, Unary(way, place) + start), Const(0)), extent)
    shape = (rois.shape[0], Const(size))
    return (b.map(shape, lambda i: edge(i, "floor"), [rois], f"first_{tag}"),
            b.map(shape, lambda i: edge(i, "ceil"), [rois], f"behind_{tag}"))
