"""Quantisation: what the standard says, as elementwise arithmetic and integer contractions."""

from collections.abc import Callable

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.registry import op
from aotc.frontend.building.stored import SMALL_FLOATS, convert_to_stored
from aotc.frontend.building.symbolic import cast, const
from aotc.frontend.building.values import Element, Index, Result, Val
from aotc.frontend.graph import Node
from aotc.frontend.ops.images.ops_conv import convolve
from aotc.frontend.ops.numeric.ops_matmul import matmul
from aotc.frontend.ops.numeric.ops_reduce import fold_axes
from aotc.frontend.read.read_types import dtype_name, stored_name
from aotc.ir.dtypes import STORED, is_float
from aotc.ir.expr import Const, Expr, Shape, Unary, Where, binary, compare
from aotc.ir.simplify import are_equal

RANGES = {"u8": (0, 255), "i8": (-128, 127), "u16": (0, 65535), "i16": (-32768, 32767),
          "u4": (0, 15), "i4": (-8, 7), "u2": (0, 3), "i2": (-2, 1)}
_WIDE = {"u4": "u8", "i4": "i8", "u2": "u8", "i2": "i8"}  # dtypes that hold those of a few bits


def per_axis(b: Builder, v: Val, axis: int, of: Shape | int) -> Element:
    """Reader of a scale or zero point that is one number or one per index of ``axis``; ``of``: the
    shape of what it is for, or its rank."""
    if v.rank == 0 or v.rank == 1 and v.size == 1:
        return lambda index: b.at(v, (Const(0),) * v.rank)
    shape, rank = (None, of) if isinstance(of, int) else (of, len(of))
    k = b.axis(axis, rank)
    if v.rank == 1 and shape is not None:
        b.joins.fits(v.shape[0], shape[k])
        return lambda index: b.at(v, (b.joins.at(v.shape[0], shape[k], index[k]),))
    if v.rank == 1:
        return lambda index: b.at(v, (index[k],))
    size = b.node.attr("block_size", 0)
    if v.rank != rank or size < 1:
        raise b.bad(f"{v} is no scale per tensor, per axis or per block")
    return lambda index: b.at(v, index[:k] + (index[k] // size,) + index[k + 1:])


def zero_point(b: Builder, v: Val | None, axis: int, of: Shape | int) -> Element | None:
    """``per_axis`` of a zero point, None where the node has none."""
    return None if v is None else per_axis(b, v, axis, of)


@op("DequantizeLinear", since=10)
def dequantize(node: Node, b: Builder) -> Result:
    x, scale, zero = b.input(0), b.input(1), b.arg(2)
    axis = node.attr("axis", 1)
    s, z = per_axis(b, scale, axis, x.shape), zero_point(b, zero, axis, x.shape)

    def body(index: Index) -> Expr:
        e = b.at(x, index)
        if z is None:
            return cast(scale.dtype, e) * s(index)
        if is_float(x.dtype):
            return (cast(scale.dtype, e) - cast(scale.dtype, z(index))) * s(index)
        return cast(scale.dtype, cast("i32", e) - cast("i32", z(index))) * s(index)
    return b.map(x.shape, body, [v for v in (x, scale, zero) if v is not None])


@op("QuantizeLinear", since=10)
def quantize(node: Node, b: Builder) -> Result:
    x, scale, zero = b.input(0), b.input(1), b.arg(2)
    named = node.attr("output_dtype", 0)
    to = b.kinds.get(2) or (zero.dtype if zero is not None else "u8" if not named else
                            dtype_name(named) or stored_name(named))
    if to not in RANGES and to not in SMALL_FLOATS:
        raise b.unsupported(f"quantisation to {to}",
                            f"use one of {', '.join((*RANGES, *SMALL_FLOATS))}")
    axis = node.attr("axis", 1)
    s, z = per_axis(b, scale, axis, x.shape), zero_point(b, zero, axis, x.shape)

    def body(index: Index) -> Expr:
        e = cast("f32", b.at(x, index)) / cast("f32", s(index))
        if to in RANGES:
            return saturated(e, z and z(index), to)
        return e if z is None else e + cast("f32", z(index))
    sources = [v for v in (x, scale, zero) if v is not None]
    if to not in STORED:
        return b.map(x.shape, body, sources)
    wide = b.map(x.shape, body, sources, "wide")
    return convert_to_stored(b, wide, to, saturate=bool(node.attr("saturate", 1)))


@op("DynamicQuantizeLinear", since=11)
def dynamic_quantize(node: Node, b: Builder) -> Result:
    """Range and quantisation to u8 of the whole input; the range always has 0.  The scale of a
    range of 0 is 1, as ONNX Runtime has it."""
    b.need(b.input(0), "f")
    return to_bytes(b, b.input(0))


def to_bytes(b: Builder, x: Val, tags: tuple[str, ...] = ("", "", ""),
             counts: Callable[[Index], Expr] | None = None) -> tuple[Val, Val, Val]:
    """``x`` rounded to u8, scale and zero point, by the range of its elements (``counts``: of those
    where that holds) and 0; ``tags``: their names, "" for outputs of the node."""
    to = "u8"
    lo, hi = RANGES[to]
    zero, axes = const(0, x.dtype), list(range(x.rank))

    def counted(e: Expr, i: Index) -> Expr:
        return e if counts is None else Where(counts(i), e, zero)
    ends = [fold_axes(b, x, axes, fold, counted, f"{tags[0]}_{fold}" if tags[0] else fold,
                      keep=False) for fold in ("min", "max")]

    def width(i: Index) -> Expr:
        low, high = (binary(fold, b.at(v, i), zero) for fold, v in zip(("min", "max"), ends))
        return (high - low) / const(hi, x.dtype)
    scale = b.map((), lambda i: Where(compare("eq", width(i), zero), const(1, x.dtype), width(i)),
                  ends, tags[1], out=1)

    def place(i: Index) -> Expr:
        e = const(lo, x.dtype) - binary("min", b.at(ends[0], i), zero) / b.at(scale, i)
        e = binary("min", binary("max", e, const(lo, x.dtype)), const(hi, x.dtype))
        return cast(to, Unary("round", e))
    at = b.map((), place, [ends[0], scale], tags[2], out=2)
    y = b.map(x.shape, lambda i: saturated(b.at(x, i) / b.at(scale, ()), b.at(at, ()), to),
              [x, scale, at], tags[0])
    return y, scale, at


def saturated(e: Expr, zero: Expr | None, to: str) -> Expr:
    """round(e) + zero in the range of ``to``."""
    lo, hi = RANGES[to]
    e = Unary("round", e)
    if zero is not None:
        e = e + cast("f32", zero)
    return cast(_WIDE.get(to, to), binary("min", binary("max", e, const(lo, "f32")),
                                          const(hi, "f32")))


def centred(b: Builder, v: Val, zero: Val | None, axis: int, tag: str) -> Val:
    """``v`` minus its zero point, as i32."""
    if zero is None:
        return b.map(v.shape, lambda i: cast("i32", b.at(v, i)), [v], tag=tag)
    z = per_axis(b, zero, axis, v.shape)
    return b.map(v.shape, lambda i: cast("i32", b.at(v, i)) - cast("i32", z(i)), [v, zero], tag=tag)


@op("MatMulInteger", since=10)
def matmul_integer(node: Node, b: Builder) -> Result:
    x, y = b.input(0), b.input(1)
    left = centred(b, x, b.arg(2), -2, "a")
    right = centred(b, y, b.arg(3), -1, "b")
    return matmul(b, left, right, acc="i32")


@op("ConvInteger", since=10)
def conv_integer(node: Node, b: Builder) -> Result:
    x, w = b.input(0), b.input(1)
    return convolve(b, centred(b, x, b.arg(2), 1, "x"), centred(b, w, b.arg(3), 0, "w"),
                    acc="i32")


@op("QLinearMatMul", since=10)
def qlinear_matmul(node: Node, b: Builder) -> Result:
    x, xs, xz, y, ys, yz, s, z = b.inputs()
    total = matmul(b, centred(b, x, xz, -2, "a"), centred(b, y, yz, -1, "b"), acc="i32", tag="sum")
    return requantised(b, total, (xs, -2), (ys, -1), s, z)


@op("QLinearConv", since=10)
def qlinear_conv(node: Node, b: Builder) -> Result:
    x, xs, xz, w, ws, wz, s, z = (b.input(k) for k in range(8))
    total = convolve(b, centred(b, x, xz, 1, "x"), centred(b, w, wz, 0, "w"), acc="i32", tag="sum")
    bias = b.arg(8)
    if bias is not None:
        raw = total
        total = b.map(raw.shape, lambda i: b.at(raw, i) + b.load(bias, (i[1],)), [raw], "biased")
    return requantised(b, total, (xs, 1), (ws, 1), s, z)


def requantised(b: Builder, total: Val, left: tuple[Val, int], right: tuple[Val, int], scale: Val,
                zero: Val, alpha: Expr | None = None) -> Val:
    """An i32 sum times its two scales, divided by the output's, rounded and saturated.  ``left``
    and ``right`` are (scale, axis of the sum that a scale per channel runs along); ``alpha`` is one
    more factor."""
    one, two = (per_axis(b, v, axis, total.shape) for v, axis in (left, right))
    s, z = (per_axis(b, v, 0, total.shape) for v in (scale, zero))
    channels, axis = right
    by_channel = channels.rank == 1 and are_equal(channels.shape[0], total.shape[axis]) and (
        channels.size != 1 and left[0].size == scale.size == 1)

    def factor(i: Index) -> Expr:
        return (one(i) * two(i) if alpha is None else alpha * one(i) * two(i)) / s(i)
    if by_channel:  # once per channel, not once per element
        at = b.axis(axis, total.rank)
        ratio = b.map(channels.shape, lambda i: factor((Const(0),) * at + i + (Const(0),) * (
            total.rank - at - 1)), [channels, left[0], scale], "ratio")

    def body(i: Index) -> Expr:
        e = cast("f32", b.at(total, i)) * (b.load(ratio, (i[at],)) if by_channel else factor(i))
        return saturated(e, z(i), zero.dtype)
    return b.map(total.shape, body, [total])
