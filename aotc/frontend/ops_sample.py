"""Operators that read an image at positions that are data, and their inverses."""

from itertools import product

from aotc.frontend import calls
from aotc.frontend.ops_grid import element
from aotc.frontend.registry import op
from aotc.frontend.symbolic import cast, const
from aotc.ir.access import volume
from aotc.ir.dtypes import INDEX
from aotc.ir.expr import (
    Axis,
    Binary,
    Const,
    Load,
    Unary,
    Where,
    all_of,
    as_expr,
    compare,
    maximum,
    minimum,
    walk,
)
from aotc.ir.program import static_shape
from aotc.ir.simplify import same, simplify


def _repeated(node, name, rank, default):
    return list(node.attr(name) or (default,) * rank)


@op("DeformConv", since=19)
def deform_conv(node, b):
    x, w, offset, bias, mask = (b.arg(k) for k in range(5))
    b.need(x, "f")
    rank = x.rank - 2
    kernel = static_shape(w.shape[2:])
    channels = static_shape((x.shape[1], w.shape[0], w.shape[1]))
    if kernel is None or channels is None:
        raise b.unsupported("a symbolic kernel or channel count", "pin the dimensions")
    stride, dilation = (_repeated(node, k, rank, 1) for k in ("strides", "dilations"))
    pads = _repeated(node, "pads", 2 * rank, 0)
    group, moved = node.attr("group", 1), node.attr("offset_group", 1)
    each, taps = channels[0] // moved, 1
    for k in kernel:
        taps *= k

    def sampled(i):
        n, c, k, o = i[0], i[1], i[2:2 + rank], i[2 + rank:]
        tap = Const(0)
        for d in range(rank):
            tap = tap * kernel[d] + k[d]
        tap = tap + (c // each) * taps
        corners = []
        for d in range(rank):
            place = cast(x.dtype, o[d] * stride[d] + k[d] * dilation[d] - pads[d]) + b.at(
                offset, (n, tap * rank + d) + o)
            low = Unary("floor", place)
            rest = place - low
            corners.append([(low, const(1, x.dtype) - rest), (low + 1.0, rest)])
        value = _weighted(b, x, (n, c), corners)
        return value if mask is None else value * b.at(mask, (n, tap) + o)
    shape = x.shape[:2] + w.shape[2:] + offset.shape[2:]
    taken = b.map(shape, sampled, [x, offset], "sampled")
    axes = b.axes((x.shape[0], w.shape[0]) + offset.shape[2:])
    ic = Axis("ic", w.shape[1])
    ks = b.axes(w.shape[2:], prefix="k")
    channel = (axes[1] // (channels[1] // group)) * channels[2] + ic
    body = b.load(taken, (axes[0], channel) + ks + axes[2:]) * b.load(w, (axes[1], ic) + ks)
    total = b.compute(axes, body, (ic,) + ks, "sum", "" if bias is None else "sum")
    if bias is None:
        return total
    return b.map(total.shape, lambda i: b.at(total, i) + b.at(bias, (i[1],)), [total, bias])


def _weighted(b, x, lead, corners):
    """The sum over all combinations of (position, weight) per dimension; zero outside."""
    total = None
    for corner in product(*corners):
        e = element(b, x, lead, [cast(INDEX, p) for p, _ in corner], True)
        for _, w in corner:
            e = e * w
        total = e if total is None else total + e
    return total


@op("RoiAlign", since=10)
def roi_align(node, b):
    x, rois, batches = b.arg(0), b.arg(1), b.arg(2)
    b.need(x, "f")
    height, width = node.attr("output_height", 1), node.attr("output_width", 1)
    count = node.attr("sampling_ratio", 0)
    if count < 1:
        raise b.unsupported("a sampling_ratio that depends on the regions", "give a number")
    mode = node.attr("mode", "avg")
    way = node.attr("coordinate_transformation_mode",
                    "half_pixel" if node.opset >= 16 else "output_half_pixel")
    scale, f = node.attr("spatial_scale", 1.0), x.dtype
    axes = b.axes((rois.shape[0], x.shape[1], Const(height), Const(width)))
    grid = b.axes((Const(count), Const(count)), prefix="s")
    shift = const(0.5 if way == "half_pixel" else 0, f)
    lines = []
    for d, (size, extent) in enumerate(((height, x.shape[2]), (width, x.shape[3]))):
        start, end = (b.at(rois, (axes[0], Const(k))) * const(scale, f) - shift
                      for k in (1 - d, 3 - d))
        span = end - start
        if way != "half_pixel":
            span = maximum(span, const(1, f))
        bin_size = span / const(size, f)
        place = start + cast(f, axes[2 + d]) * bin_size + (
            cast(f, grid[d]) + const(0.5, f)) * bin_size / const(count, f)
        lines.append(_bilinear_taps(place, extent, f))
    n = b.inside(b.index_at(batches, (axes[0],)), x.shape[0])
    inside = all_of([line[0] for line in lines])
    values = []
    for corner in product(*(line[1] for line in lines)):
        e = b.at(x, (n, axes[1]) + tuple(p for p, _ in corner))
        values.append(e * (corner[0][1] * corner[1][1]))
    total = values[0]
    for e in values[1:]:
        total = maximum(total, e) if mode == "max" else total + e
    body = Where(inside, total, const(0, f))
    if mode == "max":
        return b.compute(axes, body, grid, "max")
    summed = b.compute(axes, body, grid, "sum", "sum")
    return b.map(summed.shape, lambda i: b.at(summed, i) * const(1 / count**2, f), [summed])


def _bilinear_taps(place, extent, dtype):
    """(condition that the place counts, ((index, weight) of both neighbours)); a place up to one
    element outside takes the edge's."""
    last = cast(dtype, extent - 1)
    counts = Binary("and", compare("ge", place, const(-1, dtype)),
                    compare("le", place, cast(dtype, extent)))
    place = minimum(maximum(place, const(0, dtype)), last)
    low = Unary("floor", place)
    rest = place - low
    at = minimum(maximum(cast(INDEX, low), Const(0)), extent - 1)
    return counts, ((at, const(1, dtype) - rest), (minimum(at + 1, extent - 1), rest))


@op("AffineGrid", since=20)
def affine_grid(node, b):
    theta, sizes = b.arg(0), b.elements(b.arg(1))
    b.need(theta, "f")
    align, dtype = bool(node.attr("align_corners", 0)), theta.dtype
    if any(isinstance(n, Load) for e in sizes for n in walk(e)):
        dims = b.declared(rank=len(sizes))[1:-1]
    else:
        dims = tuple(sizes[2:])
    rank = len(dims)

    def coordinate(i, n):
        size, at = cast(dtype, as_expr(n)), cast(dtype, i)
        two, one = const(2, dtype), const(1, dtype)
        return at * two / (size - one) - one if align else (at * two + one) / size - one

    def body(index):
        n, places, row = index[0], index[1:-1], index[-1]
        total = b.at(theta, (n, row, Const(rank)))
        for k in range(rank):  # the innermost dimension is the first coordinate
            total = total + b.at(theta, (n, row, Const(k))) * coordinate(
                places[rank - 1 - k], dims[rank - 1 - k])
        return total
    return b.map((theta.shape[0],) + tuple(dims) + (Const(rank),), body, [theta])


@op("Col2Im", since=18)
def col2im(node, b):
    """Every element of the image sums the columns' elements that were taken from it."""
    x = b.arg(0)
    image, block = b.elements(b.arg(1)), b.elements(b.arg(2))
    rank = len(image)
    dilation, stride = (_repeated(node, k, rank, 1) for k in ("dilations", "strides"))
    pads = _repeated(node, "pads", 2 * rank, 0)
    if any(isinstance(n, Load) for e in image + block for n in walk(e)):
        shape = tuple(map(as_expr, b.declared(rank=2 + rank)))
        per = simplify(x.shape[1] // shape[1])
    else:
        per = Const(1)
        for k in block:
            per = per * k
        per = simplify(per)
        shape = (x.shape[0], simplify(x.shape[1] // per), *image)
    axes, tap = b.axes(shape), Axis("tap", per)
    # taps and positions are numbered row-major over the block and over its places in the image
    left, conds, where, step = tap, [], Const(0), Const(1)
    for d in reversed(range(rank)):
        k, left = left % block[d], left // block[d]
        room = image[d] + pads[d] + pads[rank + d] - ((block[d] - 1) * dilation[d] + 1)
        count = room // stride[d] + 1
        at = axes[2 + d] + pads[d] - k * dilation[d]
        conds += [compare("ge", at, Const(0)), compare("eq", at % stride[d], Const(0)),
                  compare("lt", at // stride[d], count)]
        where, step = where + (at // stride[d]) * step, step * count
    column = b.load(x, (axes[0], axes[1] * per + tap, _reachable(where, x.shape[2])))
    body = Where(all_of([simplify(c) for c in conds]), column, const(0, x.dtype))
    return b.compute(axes, body, (tap,), "sum")


def _reachable(where, n):
    """A position that data may have decided is checked."""
    data = any(isinstance(e, Load) for e in walk(where))
    return Binary("checked", where, as_expr(n)) if data else simplify(where)


@op("MaxUnpool", since=9)
def max_unpool(node, b):
    """Zeros, but for what the indices name: places in a result without ``output_shape``; with one,
    that result lies in the corner of it."""
    x, indices = b.arg(0), b.arg(1)
    rank = x.rank - 2
    kernel = node.attr("kernel_shape")
    stride, pads = _repeated(node, "strides", rank, 1), _repeated(node, "pads", 2 * rank, 0)
    small = x.shape[:2] + tuple(
        simplify((d - 1) * stride[k] + kernel[k] - pads[k] - pads[rank + k])
        for k, d in enumerate(x.shape[2:]))
    shape = small
    if b.arg(2) is not None:
        shape = b.declared(rank=x.rank) if b.from_data(b.arg(2)) else tuple(b.ints(b.arg(2)))
    if not b.library:
        return _unpool_by_search(b, x, indices, small, shape)
    size = volume(small)
    zeros = b.compute(b.axes(small), const(0, x.dtype), tag="zeros")
    places = b.compute(b.axes(x.shape), Binary("checked", b.index_at(
        indices, b.axes(x.shape)), size), tag="places")
    whole = all(map(same, small, shape))
    y = calls.scattered(b, zeros, places, x, "none", "" if whole else "small")
    return y if whole else b.map(shape, lambda i: Where(
        all_of([compare("lt", d, n) for d, n in zip(i, small)]), b.at(y, i), const(0, x.dtype)),
        [y])


def _unpool_by_search(b, x, indices, small, shape):
    """Every element of the result is the input whose index names it, else zero."""
    axes, taps = b.axes(shape), b.axes(x.shape[2:], prefix="k")
    here = Const(0)
    for d, n in zip(axes, small):
        here = here * n + d
    at = axes[:2] + taps
    hit = all_of([compare("eq", b.index_at(indices, at), simplify(here)),
                  *(compare("lt", d, n) for d, n in zip(axes[2:], small[2:]))])
    return b.compute(axes, Where(hit, b.load(x, at), const(0, x.dtype)), taps, "sum")
