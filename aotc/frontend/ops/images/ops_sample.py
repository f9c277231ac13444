"""Operators that read an image at positions that are data, and their inverses."""

from collections.abc import Sequence
from itertools import product

from aotc.frontend.building import calls
from aotc.frontend.building.builder import Builder
from aotc.frontend.building.declared import bound_number, expect, expect_shape, reads_data
from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import add_values, cast, conjunction, const
from aotc.frontend.building.values import Index, Result, Val
from aotc.frontend.graph import Node
from aotc.frontend.ops.images.ops_grid import element
from aotc.ir.access import volume
from aotc.ir.dtypes import INDEX
from aotc.ir.expr import (
    Axis,
    Const,
    Expr,
    Shape,
    Unary,
    Where,
    as_expr,
    compare,
    maximum,
    minimum,
)
from aotc.ir.program import static_shape
from aotc.ir.simplify import are_equal, simplify

Corners = list[tuple[Expr, Expr]]  # (place, weight)


def _repeated(node: Node, name: str, rank: int, default: int) -> list[int]:
    return list(node.attr(name) or (default,) * rank)


@op("DeformConv", since=19)
def deform_conv(node: Node, b: Builder) -> Result:
    x, w, offset = (b.input(k) for k in range(3))
    bias, mask = b.arg(3), b.arg(4)
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

    def sampled(i: Index) -> Expr:
        n, c, k, o = i[0], i[1], i[2:2 + rank], i[2 + rank:]
        tap: Expr = Const(0)
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
    for d in x.shape[2:]:
        b.nonempty(d, shape, "pixels to sample")
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


def _weighted(b: Builder, x: Val, lead: Index, corners: Sequence[Corners]) -> Expr:
    """The sum over all combinations of (position, weight) per dimension; zero outside."""
    def weighted(corner: Sequence[tuple[Expr, Expr]]) -> Expr:
        e = element(b, x, lead, [cast(INDEX, p) for p, _ in corner], True)
        for _, w in corner:
            e = e * w
        return e
    return add_values(map(weighted, product(*corners)))


@op("AffineGrid", since=20)
def affine_grid(node: Node, b: Builder) -> Result:
    theta, sizes = b.input(0), b.elements(b.input(1))
    b.need(theta, "f")
    align, dtype = bool(node.attr("align_corners", 0)), theta.dtype
    rank = theta.shape[1].value if isinstance(theta.shape[1], Const) else 0
    if len(sizes) != rank + 2:
        raise b.bad(f"{len(sizes)} sizes of an image for matrices {theta}")
    dims: Shape = tuple(sizes[2:])
    if any(map(reads_data, sizes)):
        declared = b.declared(rank=len(sizes))
        expect_shape(b, [sizes[0], *dims, Const(rank)], declared)
        dims = declared[1:-1]
    b.require("eq", theta.shape[0], declared[0] if any(map(reads_data, sizes)) else sizes[0],
              "as many matrices as images")

    def coordinate(i: Expr, n: Expr) -> Expr:
        size, at = cast(dtype, as_expr(n)), cast(dtype, i)
        two, one = const(2, dtype), const(1, dtype)
        return at * two / (size - one) - one if align else (at * two + one) / size - one

    def body(index: Index) -> Expr:
        n, places, row = index[0], index[1:-1], index[-1]
        total = b.at(theta, (n, row, Const(rank)))
        for k in range(rank):  # the innermost dimension is the first coordinate
            total = total + b.at(theta, (n, row, Const(k))) * coordinate(
                places[rank - 1 - k], dims[rank - 1 - k])
        return total
    return b.map((theta.shape[0],) + dims + (Const(rank),), body, [theta])


@op("Col2Im", since=18)
def col2im(node: Node, b: Builder) -> Result:
    """Every element of the image sums the columns' elements that were taken from it."""
    x = b.input(0)
    image, block = b.elements(b.input(1)), b.elements(b.input(2))
    rank = len(image)
    dilation, stride = (_repeated(node, k, rank, 1) for k in ("dilations", "strides"))
    pads = _repeated(node, "pads", 2 * rank, 0)
    image, per = list(map(bound_number, image)), volume(block)
    if any(map(reads_data, image + block)):
        declared = b.declared(rank=2 + rank)
        b.require("ge", declared[1], 1, "an image has channels")
        taps = simplify(x.shape[1] // declared[1])
        block = [minimum(maximum(e, Const(0)), taps + 1) for e in block]  # products stay small
        per = volume(block)
        expect(b, [(per, taps)], f"the data must give blocks of {taps} elements, they have")
        expect_shape(b, [x.shape[0], declared[1], *image], declared)
        shape, per = declared, taps
    else:
        b.require("ge", per, 1, "a block has elements")
        shape = (x.shape[0], simplify(x.shape[1] // per), *image)
    b.require("eq", shape[1] * per, x.shape[1], "every channel has a column of each element")
    axes, tap = b.axes(shape), Axis("tap", per)
    # taps and positions are numbered row-major over the block and over its places in the image
    left: Expr = tap
    where: Expr = Const(0)
    step: Expr = Const(1)
    conds: list[Expr] = []
    steps = []
    for d in reversed(range(rank)):
        k, left = left % block[d], left // block[d]
        room = image[d] + pads[d] + pads[rank + d] - ((block[d] - 1) * dilation[d] + 1)
        count = room // stride[d] + 1
        at = axes[2 + d] + pads[d] - k * dilation[d]
        conds += [compare("ge", at, Const(0)), compare("eq", at % stride[d], Const(0)),
                  compare("lt", at // stride[d], count)]
        where, step = where + (at // stride[d]) * step, step * count
        steps.append(maximum(count, Const(0)))
    expect(b, [(volume(steps), x.shape[2])], "as many columns as places of the block")
    place = b.checked(where, x.shape[2]) if reads_data(where) else simplify(where)
    column = b.load(x, (axes[0], axes[1] * per + tap, place))
    body = Where(conjunction(map(simplify, conds)), column, const(0, x.dtype))
    return b.compute(axes, body, (tap,), "sum")


@op("MaxUnpool", since=9)
def max_unpool(node: Node, b: Builder) -> Result:
    """Zeros, but for what the indices name: places in a result without ``output_shape``; with one,
    that result lies in the corner of it."""
    x, indices = b.input(0), b.input(1)
    rank = x.rank - 2
    kernel = node.attr("kernel_shape")
    stride, pads = _repeated(node, "strides", rank, 1), _repeated(node, "pads", 2 * rank, 0)
    small = x.shape[:2] + tuple(
        simplify((d - 1) * stride[k] + kernel[k] - pads[k] - pads[rank + k])
        for k, d in enumerate(x.shape[2:]))
    wanted = b.arg(2)
    given = small if wanted is None else tuple(b.elements(wanted))
    shape = given
    if any(map(reads_data, given)):
        shape = b.declared(rank=x.rank)
        expect_shape(b, given, shape)
    if len(shape) != x.rank:
        raise b.bad(f"an output shape of {len(shape)} extents")
    for d, n in zip(x.shape[:2], shape):
        b.require("eq", d, n, "batch and channels stay")
    if not b.may_call("scatter"):
        return _unpool_by_search(b, x, indices, small, shape)
    size = volume(small)
    zeros = b.compute(b.axes(small), const(0, x.dtype), tag="zeros")
    places = b.compute(b.axes(x.shape), b.checked(b.index_at(
        indices, b.axes(x.shape)), size), tag="places")
    whole = all(map(are_equal, small, shape))
    y = calls.scatter_rows(b, zeros, places, x, "none", "" if whole else "small")
    return y if whole else b.map(shape, lambda i: Where(
        conjunction(compare("lt", d, n) for d, n in zip(i, small)), b.at(y, i), const(0, x.dtype)),
        [y])


def _unpool_by_search(b: Builder, x: Val, indices: Val, small: Shape, shape: Shape) -> Val:
    """Every element of the result is the input whose index names it, else zero."""
    axes, taps = b.axes(shape), b.axes(x.shape[2:], prefix="k")
    here: Expr = Const(0)
    for d, n in zip(axes, small):
        here = here * n + d
    at = axes[:2] + taps
    named = b.checked(b.index_at(indices, at), volume(small))
    hit = conjunction([compare("eq", named, simplify(here)),
                       *(compare("lt", d, n) for d, n in zip(axes[2:], small[2:]))])
    return b.compute(axes, Where(hit, b.load(x, at), const(0, x.dtype)), taps, "sum")
