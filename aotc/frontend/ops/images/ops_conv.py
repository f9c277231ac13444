"""Convolution and transposed convolution."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import const
from aotc.frontend.building.values import Index, Result, Val
from aotc.frontend.graph import Node
from aotc.frontend.ops.images.window import guards, kernel_of, pads, spatial_names, window
from aotc.ir.expr import (
    Axis,
    Binary,
    Const,
    Expr,
    Where,
    all_hold,
    as_expr,
    axes_of,
    compare,
    int_of,
)
from aotc.ir.program import static_shape
from aotc.ir.simplify import simplify


@dataclass(frozen=True)
class Geometry:
    """Of a ConvTranspose, per spatial dimension."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pad: tuple[Expr, ...]
    out: tuple[Expr, ...]


def guarded(b: Builder, x: Val, index: Index, extra: Iterable[Expr | None] = ()) -> Expr:
    """x[index], 0 outside; no Where if nothing can lie outside."""
    cond = all_hold([c for c in (guards(index[2:], x.shape[2:]), *extra) if c is not None])
    value = b.load(x, index)
    return value if cond is None else Where(cond, value, const(0, x.dtype))


def _channels(b: Builder, x: Val, w: Val, out_axis: int) -> tuple[int, int, int]:
    """(groups, input channels per group, output channels per group) as ints."""
    groups = b.node.attr("group", 1)
    if x.rank < 3 or w.rank != x.rank:
        raise b.bad("convolution needs an input and weights of one rank, 3 or more")
    b.same_dtype(x, w)
    static = static_shape(w.shape[:2])
    if static is None:
        raise b.unsupported("a symbolic number of channels", "make those of the weights static")
    rows, cols = static
    c = cols * groups if out_axis == 0 else rows  # where the input's number is open
    if isinstance(x.shape[1], Const):
        c = int_of(x.shape[1])
    b.require("eq", x.shape[1], c, "the input has the channels of the weights")
    if out_axis == 0:
        ok, ic, oc = cols * groups == c, cols, rows
    else:
        ok, ic, oc = rows == c, c // groups, cols * groups
    if not ok or oc % groups or c % groups:
        raise b.bad(f"{groups} groups do not fit the channels")
    return groups, ic, oc // groups


def add_bias(b: Builder, v: Val, bias: Val | None, axis: int = 1,
             names: Sequence[str] | None = None) -> Val:
    """``v + bias`` along ``axis`` as a Compute of its own; ``v`` if there is no bias."""
    if bias is None:
        return v
    b.same_dtype(v, bias)
    if bias.rank != 1:
        raise b.bad(f"a bias {bias}: it must have one dimension")
    return b.map(v.shape, lambda i: b.at(v, i) + b.load(bias, (i[axis],)), [v], names=names)


@op("Conv")
def conv(node: Node, b: Builder) -> Result:
    x, w, bias = b.input(0), b.input(1), b.arg(2)
    b.need(x, "f", "use a float convolution")
    return convolve(b, x, w, bias)


def convolve(b: Builder, x: Val, w: Val, bias: Val | None = None, acc: str = "",
             tag: str = "") -> Val:
    """Convolution of Vals with the node's attributes: dense, grouped or depthwise."""
    groups, ic, oc = _channels(b, x, w, 0)
    win = window(b, x.shape[2:], kernel_of(b, w))
    rank = len(win.kernel)
    o = b.axes(win.out, spatial_names("o", rank))
    k = b.axes(win.kernel, spatial_names("k", rank))
    n, c = Axis("n", x.shape[0]), Axis("ic", Const(ic))
    inner = tuple(win.at(d, o[d], k[d]) for d in range(rank))
    tag = tag if bias is None else "sum"
    names = ["n", "oc"] + [a.name for a in o]
    if groups == 1:
        q = Axis("oc", Const(oc))
        body = guarded(b, x, (n, c) + inner) * b.load(w, (q, c) + k)
        y = b.compute((n, q) + o, body, (c,) + k, "sum", tag, acc=acc)
    elif ic == oc == 1:
        q = Axis("c", Const(groups))
        body = guarded(b, x, (n, q) + inner) * b.load(w, (q, Const(0)) + k)
        y = b.compute((n, q) + o, body, k, "sum", tag, acc=acc)
        names[1] = "c"
    else:
        g, q = Axis("g", Const(groups)), Axis("o", Const(oc))
        w = b.move(w, (Const(groups), Const(oc), *w.shape[1:]),
                   lambda i: (i[0] * oc + i[1], *i[2:]), "grouped")
        body = guarded(b, x, (n, g * ic + c) + inner) * b.load(w, (g, q, c) + k)
        y = b.compute((n, g, q) + o, body, (c,) + k, "sum", "group", acc=acc)
        y = b.move(y, (x.shape[0], Const(groups * oc)) + win.out,
                   lambda i: (i[0], i[1] // oc, i[1] % oc) + i[2:], tag, names=names)
    return add_bias(b, y, bias, names=names)


@op("ConvTranspose")
def conv_transpose(node: Node, b: Builder) -> Result:
    x, w, bias = b.input(0), b.input(1), b.arg(2)
    b.need(x, "f", "use a float convolution")
    groups, ic, oc = _channels(b, x, w, 1)
    geometry = _transposed(b, x, kernel_of(b, w))
    make = _gathered if any(d > 1 for d in geometry.dilation) else _sub_pixel
    y = make(b, x, w, groups, ic, oc, geometry, "" if bias is None else "move")
    return add_bias(b, y, bias, names=["n", "oc"] + spatial_names("o", x.rank - 2))


def _transposed(b: Builder, x: Val, kernel: tuple[int, ...]) -> Geometry:
    """The Geometry of the current ConvTranspose."""
    rank, size, node = len(kernel), x.shape[2:], b.node
    stride, dilation = (tuple(node.attr(a) or (1,) * rank) for a in ("strides", "dilations"))
    if min((*stride, *dilation), default=1) < 1:
        raise b.bad(f"strides {list(stride)} and dilations {list(dilation)} must be positive")
    extra = tuple(node.attr("output_padding") or (0,) * rank)
    full = [simplify((size[k] - 1) * stride[k] + extra[k] + (kernel[k] - 1) * dilation[k] + 1)
            for k in range(rank)]
    auto, wanted = node.attr("auto_pad", "NOTSET"), node.attr("output_shape")
    if wanted is not None or auto.startswith("SAME"):
        out = (list(map(Const, wanted[-rank:])) if wanted is not None
               else [simplify(size[k] * stride[k]) for k in range(rank)])
        pad = []
        for k in range(rank):
            total = simplify(full[k] - out[k])
            half = total // 2 if auto != "SAME_LOWER" else total - total // 2
            pad.append(simplify(half))
        if auto == "NOTSET":  # the standard puts the larger half first unless SAME_UPPER is asked
            pad = [simplify(full[k] - out[k] - pad[k]) for k in range(rank)]
    else:
        before, after = pads(b, size, kernel, stride, dilation)
        pad = list(before)
        out = [simplify(full[k] - before[k] - after[k]) for k in range(rank)]
    for d in out:
        b.require("ge", d, 1, "ConvTranspose must leave an output")
    return Geometry(kernel, stride, dilation, tuple(pad), tuple(out))


def _sub_pixel(b: Builder, x: Val, w: Val, groups: int, ic: int, oc: int, geo: Geometry,
               tag: str) -> Val:
    """out[n, oc, i, a, j, b] at oh = i*stride + a: no multiplication by zeros between pixels."""
    rank, stride = x.rank - 2, geo.stride
    letters = spatial_names("", rank)
    block = [Axis(f"i{s}", simplify((geo.out[k] + (stride[k] - 1)) // stride[k]))
             for k, s in enumerate(letters)]
    phase = [Axis(f"a{s}", Const(stride[k])) for k, s in enumerate(letters)]
    taps = [Axis(f"q{s}", Const(-(-geo.kernel[k] // stride[k]))) for k, s in enumerate(letters)]
    source, weight, conds = [], [], []
    for k in range(rank):
        s, q = stride[k], Const(0) if taps[k].extent == Const(1) else taps[k]
        source.append(simplify(block[k] + (phase[k] + geo.pad[k]) // s - q))
        weight.append(simplify(q * s + (phase[k] + geo.pad[k]) % s))
        if geo.kernel[k] % s:
            conds.append(simplify(compare("lt", weight[k], Const(geo.kernel[k]))))
    inside = all_hold(c for c in conds if not isinstance(c, Const))
    raxes = tuple(q for q in taps if q.extent != Const(1))
    own = [a for a in phase + list(raxes) if any(a in axes_of(e) for e in weight)]
    w = _phase_weights(b, w, own, weight, inside)
    y = _contract(b, x, w, groups, ic, oc, source, own, block + phase, raxes)

    def place(index: Index) -> list[Expr]:
        out = [index[0]] + ([index[1] // oc, index[1] % oc] if groups > 1 else [index[1]])
        for k in range(rank):
            out += [index[2 + k] // stride[k], index[2 + k] % stride[k]]
        return out
    return b.move(y, (x.shape[0], Const(groups * oc), *geo.out), place, tag,
                  names=["n", "oc"] + spatial_names("o", rank))


def _phase_weights(b: Builder, w: Val, own: Sequence[Axis], weight: Sequence[Expr],
                   inside: Expr | None) -> Val:
    """The weights by phase and tap: constant ones are brought into this order by the compiler.  A
    tap beyond the kernel is a zero."""
    row, q = Axis("row", w.shape[0]), Axis("q", w.shape[1])
    tap: Expr = b.load(w, (row, q, *weight))
    tap = tap if inside is None else Where(inside, tap, const(0, w.dtype))
    return b.compute((row, q, *own), tap, tag="phases")


def _contract(b: Builder, x: Val, w: Val, groups: int, ic: int, oc: int, source: Sequence[Expr],
              taps: Sequence[Axis], spatial: Sequence[Axis], raxes: tuple[Axis, ...]) -> Val:
    """The contraction.  taps: axes of the weights beyond their channels."""
    n, c, half = Axis("n", x.shape[0]), Axis("ic", Const(ic)), len(spatial) // 2
    spatial = tuple(a for pair in zip(spatial[:half], spatial[half:]) for a in pair)
    row: Expr = c
    if groups == 1:
        q = Axis("oc", Const(oc))
        axes = (n, q) + spatial
    else:
        g, q = Axis("g", Const(groups)), Axis("o", Const(oc))
        row, axes = g * ic + c, (n, g, q) + spatial
    tap = b.load(w, (row, q, *taps))
    return b.compute(axes, guarded(b, x, (n, row, *source)) * tap, (c,) + raxes, "sum", "sum")


def _gathered(b: Builder, x: Val, w: Val, groups: int, ic: int, oc: int, geo: Geometry,
              tag: str) -> Val:
    """Dilated kernels: each output asks every tap whether it hits an input pixel."""
    rank = x.rank - 2
    o = b.axes(geo.out, spatial_names("o", rank))
    k = b.axes(geo.kernel, spatial_names("k", rank))
    source, extra = [], []
    for d in range(rank):
        place = o[d] + geo.pad[d] - k[d] * geo.dilation[d]
        source.append(simplify(place // geo.stride[d]))
        if geo.stride[d] > 1:
            extra.append(Binary("eq", simplify(place % geo.stride[d]), as_expr(0)))
    n, c = Axis("n", x.shape[0]), Axis("ic", Const(ic))
    q = Axis("oc", Const(groups * oc))
    row = simplify(q // oc * ic + c)
    body = guarded(b, x, (n, row, *source), extra) * b.load(w, (row, q % oc, *k))
    return b.compute((n, q) + o, body, (c,) + k, "sum", tag)
