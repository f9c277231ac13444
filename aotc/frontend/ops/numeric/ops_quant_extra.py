"""Quantised operators of the domain com.microsoft: what ONNX Runtime's quantiser writes besides
the standard ones (its contrib operator documentation defines them)."""

from collections.abc import Callable

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import cast, const
from aotc.frontend.building.values import Element, Index, Result, Val
from aotc.frontend.graph import Node
from aotc.frontend.ops.numeric.ops_nn import leaky_relu, sigmoid
from aotc.frontend.ops.numeric.ops_norm import softmax_over
from aotc.frontend.ops.numeric.ops_quant import (
    centred,
    per_axis,
    requantised,
    saturated,
    zero_point,
)
from aotc.ir.expr import Axis, Const, Expr

DOMAIN = "com.microsoft"


def _need_scales(b: Builder, *scales: Val | None) -> None:
    """UnsupportedError unless scales are f32."""
    for v in scales:
        if v is not None and v.dtype != "f32":
            raise b.unsupported(f"a scale of {v.dtype}", "use f32 scales")


def _real(b: Builder, v: Val, scale: Val, zero: Val | None) -> Element:
    """Reader of a quantised tensor's values: (v - zero) * scale, per tensor."""
    s, z = per_axis(b, scale, 0, 1), zero_point(b, zero, 0, 1)

    def at(index: Index) -> Expr:
        e = cast("i32", b.at(v, index))
        e = e if z is None else e - cast("i32", z((Const(0),)))
        return cast("f32", e) * s((Const(0),))
    return at


def _elementwise(b: Builder, fn: Callable[[Expr, Expr], Expr]) -> Val:
    """``fn`` of two broadcast quantised operands, quantised."""
    x, xs, y, ys, s = (b.input(k) for k in (0, 1, 3, 4, 6))
    xz, yz, z = (b.arg(k) for k in (2, 5, 7))
    _need_scales(b, xs, ys, s)
    to = x.dtype
    if to not in ("u8", "i8") or y.dtype != to:
        raise b.bad(f"operands {x} and {y}: both must be u8, or both i8")
    shape = b.broadcast(x.shape, y.shape)
    left, right = _real(b, x, xs, xz), _real(b, y, ys, yz)
    scale, zero = per_axis(b, s, 0, 1), zero_point(b, z, 0, 1)
    first = (Const(0),)

    def body(index: Index) -> Expr:
        e = fn(left(b.pick(x, index, shape)), right(b.pick(y, index, shape)))
        return saturated(e / scale(first), zero and zero(first), to)
    return b.map(shape, body, [v for v in (x, xs, xz, y, ys, yz, s, z) if v is not None])


@op("QLinearAdd", domain=DOMAIN)
def qlinear_add(node: Node, b: Builder) -> Result:
    return _elementwise(b, lambda p, q: p + q)


@op("QLinearMul", domain=DOMAIN)
def qlinear_mul(node: Node, b: Builder) -> Result:
    return _elementwise(b, lambda p, q: p * q)


@op("QLinearGlobalAveragePool", domain=DOMAIN)
def qlinear_global_average_pool(node: Node, b: Builder) -> Result:
    x, xs, s = (b.input(k) for k in (0, 1, 3))
    xz, z = b.arg(2), b.arg(4)
    _need_scales(b, xs, s)
    if x.rank < 3 or x.dtype not in ("u8", "i8"):
        raise b.bad(f"{x}: needs a u8 or i8 tensor with channels and at least one more dimension")
    last = bool(node.attr("channels_last", 0))
    inner = tuple(range(1, x.rank - 1) if last else range(2, x.rank))
    out = b.axes(tuple(Const(1) if d in inner else n for d, n in enumerate(x.shape)))
    folded = {d: Axis(f"k{d}", x.shape[d]) for d in inner}
    index = tuple(folded.get(d, a) for d, a in enumerate(out))
    total = b.compute(out, cast("f32", b.load(x, index)), tuple(folded.values()), "sum", "sum")
    count: Expr = Const(1)
    for d in inner:
        count = count * x.shape[d]
    one, scale = per_axis(b, xs, 0, 1), per_axis(b, s, 0, 1)
    before, after = zero_point(b, xz, 0, 1), zero_point(b, z, 0, 1)
    first, n = (Const(0),), cast("f32", count)

    def body(i: Index) -> Expr:
        e = b.at(total, i)
        e = e if before is None else e - cast("f32", before(first)) * n
        return saturated(e * (one(first) / (scale(first) * n)), after and after(first), x.dtype)
    return b.map(total.shape, body, [total])


def _unary(b: Builder, fn: Callable[[Val], Val], tag: str) -> Val:
    """``fn`` of a quantised tensor, quantised."""
    x, xs, s = (b.input(k) for k in (0, 1, 3))
    xz, z = b.arg(2), b.arg(4)
    _need_scales(b, xs, s)
    if x.dtype not in ("u8", "i8"):
        raise b.bad(f"{x}: needs a u8 or i8 tensor")
    read = _real(b, x, xs, xz)
    done = fn(b.map(x.shape, read, [v for v in (x, xs, xz) if v is not None], tag="real"))
    scale, zero, first = per_axis(b, s, 0, 1), zero_point(b, z, 0, 1), (Const(0),)
    return b.map(x.shape, lambda i: saturated(b.at(done, i) / scale(first), zero and zero(first),
                                              x.dtype), [done], tag=tag)


@op("QLinearSigmoid", domain=DOMAIN)
def qlinear_sigmoid(node: Node, b: Builder) -> Result:
    return _unary(b, lambda v: b.elementwise(sigmoid, v, tag="sigmoid"), "")


@op("QLinearLeakyRelu", domain=DOMAIN)
def qlinear_leaky_relu(node: Node, b: Builder) -> Result:
    alpha = node.attr("alpha", 0.01)
    return _unary(b, lambda v: b.elementwise(lambda e: leaky_relu(e, alpha), v, tag="leaky"), "")


@op("QLinearSoftmax", domain=DOMAIN)
def qlinear_softmax(node: Node, b: Builder) -> Result:
    """Attribute ``opset``: before 13 the dimensions from ``axis`` on count as one."""
    rank = b.input(0).rank
    flattened = node.attr("opset", 13) < 13
    axis = b.axis(node.attr("axis", 1 if flattened else -1), rank)
    axes = tuple(range(axis, rank)) if flattened else (axis,)
    return _unary(b, lambda v: softmax_over(b, v, axes), "")


@op("QGemm", domain=DOMAIN)
def qgemm(node: Node, b: Builder) -> Result:
    x, xs, w, ws = (b.input(k) for k in (0, 1, 3, 4))
    xz, wz = b.arg(2), b.arg(5)
    bias, s, z = b.arg(6), b.arg(7), b.arg(8)
    _need_scales(b, xs, ws, s)
    if x.rank != 2 or w.rank != 2:
        raise b.bad("QGemm needs matrices")
    ta, tb = bool(node.attr("transA", 0)), bool(node.attr("transB", 0))
    b.require("eq", x.shape[0 if ta else 1], w.shape[1 if tb else 0],
              "inner dimensions must be equal")
    left, right = centred(b, x, xz, 0, "a"), centred(b, w, wz, 0 if tb else 1, "b")
    m, n = Axis("m", x.shape[1 if ta else 0]), Axis("n", w.shape[0 if tb else 1])
    k = Axis("k", w.shape[1 if tb else 0])
    product = b.load(left, (k, m) if ta else (m, k)) * b.load(right, (n, k) if tb else (k, n))
    total = b.compute((m, n), product, (k,), "sum", "sum", acc="i32")
    if bias is not None:
        raw = total
        total = b.map(raw.shape, lambda i: b.at(raw, i) + b.load(bias, b.pick(bias, i, raw.shape)),
                      [raw], "biased")
    alpha = const(node.attr("alpha", 1.0), "f32")
    one, two = per_axis(b, xs, 0, 2), per_axis(b, ws, 1, 2)
    if (s is None) != (z is None):
        raise b.unsupported("one of y_scale and y_zero_point without the other",
                            "give both, or neither for a result of f32")
    if s is not None and z is not None:
        return requantised(b, total, (xs, 0), (ws, 1), s, z, alpha)
    return b.map(total.shape, lambda i: cast("f32", b.at(total, i)) * (one(i) * two(i) * alpha),
                 [total])


__all__ = ["DOMAIN"]
