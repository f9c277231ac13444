"""Weights of few bits in bytes, with a scale for every block of neighbours: what quantisers of
large language models write."""

import numpy as np

from aotc.frontend.building.spelling import Spelling, spells
from aotc.frontend.building.symbolic import cast, const
from aotc.frontend.building.values import Index, Result, Val
from aotc.ir.expr import Binary, Const, Expr, maximum, minimum
from aotc.ir.program import static_shape

BITS = (2, 4, 8)


def unpacked(s: Spelling, v: Val, bits: int, columns: int) -> Val:
    """The first ``columns`` numbers of every row of bytes, which hold the lowest bits first."""
    if v.dtype != "u8" or v.stored:
        raise s.b.unsupported(f"packed numbers of {v.stored or v.dtype}", "pack them into u8")
    if bits not in BITS:
        raise s.b.unsupported(f"numbers of {bits} bits",
                              f"quantise to {', '.join(map(str, BITS))} bits")
    per, mask = 8 // bits, (1 << bits) - 1
    if static_shape(v.shape[-1:]) != (-(-columns // per),):
        raise s.b.bad(f"{v} does not hold rows of {columns} numbers of {bits} bits")
    if bits == 8:
        return v
    if v.array is not None and not s.b.only_shapes:
        shifts = np.arange(per, dtype=np.uint8) * np.uint8(bits)
        each = (v.array[..., None] >> shifts) & np.uint8(mask)
        return s.b.const(each.reshape(*v.array.shape[:-1], -1)[..., :columns], v.name)

    def number(index: Index) -> Expr:
        byte = s.b.at(v, (*index[:-1], index[-1] // per))
        shift = cast("u8", index[-1] % per * bits)
        return Binary("and", Binary("shr", byte, shift), const(mask, "u8"))
    return s.b.map((*v.shape[:-1], Const(columns)), number, [v], tag="unpacked")


def _rows(s: Spelling, v: Val, rows: int, columns: int) -> Val:
    """``v`` as a matrix."""
    if v.array is not None and v.array.size == rows * columns:
        return s.b.const(v.array.reshape(rows, columns), v.name)
    return s("Reshape", v, s.ints(rows, columns))


def dequantised(s: Spelling, v: Val, scale: Val, zero: Val | None, block: int, bits: int,
                axis: int) -> Val:
    """(v - zero) * scale of u8 numbers of a few bits, scale and zero per block of neighbours along
    ``axis``; the middle of the range is zero where the model does not say."""
    zero = s.number(1 << bits - 1, "u8") if zero is None else zero
    if zero.dtype == "u8":
        return s("DequantizeLinear", v, scale, zero, axis=axis, block_size=block)
    wide = s("DequantizeLinear", s.cast(v, "i32"), s.number(1, scale.dtype))
    places = s("Div", s.places(v.shape[axis]), s.number(block, "i64"))
    zeros, scales = (s("Gather", x, places, axis=axis) for x in (zero, scale))
    return s("Mul", s("Sub", wide, zeros), scales)


@spells("MatMulNBits", "A B scales zero_points g_idx bias", "K N bits block_size accuracy_level",
        only={"weight_prepacked": 0})
def matmul_bits(s: Spelling) -> Result:
    """Products are of the numbers that the bits stand for, whatever ``accuracy_level`` allows."""
    k, n, block, bits = *(s.given(a) for a in ("K", "N", "block_size")), s.attr("bits", 4)
    if min(k, n, block) < 1:
        raise s.b.bad("K, N and block_size must be positive")
    blocks, zero = -(-k // block), s.opt("zero_points")
    w = unpacked(s, _rows(s, s.val("B"), n, blocks * block * bits // 8), bits, blocks * block)
    scale = _turned(s, _rows(s, s.val("scales"), n, blocks))
    if zero is not None and zero.dtype == "u8":
        zero = unpacked(s, _rows(s, zero, n, -(-blocks * bits // 8)), bits, blocks)
    zero = None if zero is None else _turned(s, _rows(s, zero, n, blocks))
    order, bias = s.opt("g_idx"), s.opt("bias")
    if order is not None and order.array is not None and np.array_equal(
            order.array, np.arange(k) // block):
        order = None
    x, w = s.val("A"), _turned(s, w, k)
    if order is not None and order.array is not None and not s.b.only_shapes:
        by_group = np.argsort(order.array, kind="stable")
        if w.array is not None and np.array_equal(order.array[by_group], np.arange(k) // block):
            x = s("Gather", x, s.b.const(by_group.astype(np.int64), "by_group"), axis=-1)
            w, order = s.b.const(w.array[by_group], w.name), None
    if order is not None:  # columns say of which group they are
        scale = s("Gather", scale, order, axis=0)
        zero = None if zero is None else s("Gather", zero, order, axis=0)
        block = 1
    w = dequantised(s, w, scale, zero, block, bits, 0)
    y = s("MatMul", x, w, out=0 if bias is None else None)
    return y if bias is None else s("Add", y, bias, out=0)


def _turned(s: Spelling, v: Val, rows: int | None = None) -> Val:
    """The transpose of a matrix, the first ``rows`` of it: a constant is turned here and now, so
    that products read what is made of it as it lies."""
    if v.array is not None and not s.b.only_shapes:
        return s.b.const(np.ascontiguousarray(v.array.T[:rows]), v.name)
    turned = s.transpose(v, 1, 0)
    return turned if rows is None else s.cut(turned, 0, 0, rows)


# what four bits stand for, times the largest magnitude of a block: a sign and seven magnitudes, and
# the quantiles of a normal distribution (T. Dettmers et al., QLoRA, NeurIPS 2023, appendix E)
_FP4 = (0.0, 0.005208333333333333, 2 / 3, 1.0, 1 / 3, 0.5, 1 / 6, 0.25)
_CODES = {0: (*_FP4, *(-v for v in _FP4)),
          1: (-1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.09105004, 0.0,
              0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0)}


@spells("MatMulBnb4", "A B absmax", "K N block_size quant_type transB training_mode")
def matmul_codes(s: Spelling) -> Result:
    """``B`` is a matrix [N, K] of codes, two in a byte, the first one higher, with a scale for
    every block of neighbours of the whole."""
    k, n, block = (s.given(a) for a in ("K", "N", "block_size"))
    codes = _CODES.get(s.given("quant_type"))
    if codes is None or min(k, n, block) < 1:
        raise s.b.bad("quant_type is 0 (FP4) or 1 (NF4); K, N and block_size are positive")
    x, packed, scale = s.val("A"), s.val("B"), s.val("absmax")
    for v, count in ((packed, -(-n * k // 2)), (scale, -(-n * k // block))):
        if static_shape(v.shape) not in ((count,), (count, 1)):
            raise s.b.bad(f"{v} has no {count} elements for {n} x {k} codes")
    table = np.array(codes, np.float32)
    if packed.array is not None and scale.array is not None and not s.b.only_shapes:
        byte = packed.array.reshape(-1, 1)
        each = np.concatenate([byte >> 4, byte & 15], 1).reshape(-1)[:n * k]
        blocks = scale.array.reshape(-1).astype(np.float32)[np.arange(n * k) // block]
        w = s.b.const((table[each] * blocks).reshape(n, k), packed.name)
    else:
        w = _decoded(s, s.b.const(table), packed, scale, (n, k), block)
    w = s.cast(w, x.dtype)
    return s("MatMul", x, _turned(s, w) if s.attr("transB", 1) else w, out=0)


def _decoded(s: Spelling, table: Val, packed: Val, scale: Val, shape: tuple[int, int],
             block: int) -> Val:
    """Codes that are data as a matrix."""
    packed, scale = s("Reshape", packed, s.ints(-1)), s.cast(s("Reshape", scale, s.ints(-1)), "f32")
    rest = cast("u8", Const(4))

    def number(i: Index) -> Expr:
        at = i[0] * shape[1] + i[1]
        byte = s.b.at(packed, (at // 2,))
        code = Binary("and", Binary("shr", byte, rest - cast("u8", at % 2 * 4)), const(15, "u8"))
        place = maximum(minimum(cast("i64", code), Const(15)), Const(0))
        return s.b.load(table, (place,)) * s.b.at(scale, (at // block,))
    return s.b.map(shape, number, [packed, scale], tag="decoded")


@spells("GatherBlockQuantized", "data indices scales zero_points",
        "bits block_size quantize_axis gather_axis", kinds="iu")
def gather_block_quantized(s: Spelling) -> Result:
    data, places, scale, zero = (s.val("data"), s.val("indices"), s.val("scales"),
                                 s.opt("zero_points"))
    rank = data.rank
    first, axis = (s.b.axis(s.attr(f"{name}_axis", n), rank)
                   for n, name in enumerate(("gather", "quantize")))
    if first == axis or not data.stored and (first, axis) != (0, rank - 1):
        raise s.b.unsupported(f"to gather on axis {first} what is quantised on axis {axis}",
                              "quantise along the last axis, gather along the first")
    packed = None if data.stored else _packed(s, data, scale)
    data, scale = (s("Gather", v, places, axis=first) for v in (data, scale))
    zero = None if zero is None else s("Gather", zero, places, axis=first)
    block, axis = s.attr("block_size", 128), axis + (places.rank - 1 if axis > first else 0)
    if packed is None:
        return s("DequantizeLinear", data, scale, zero, axis=axis, block_size=block, out=0)
    columns, blocks, bits = packed
    zero = None if zero is None else unpacked(s, zero, bits, blocks)
    y = dequantised(s, unpacked(s, data, bits, columns), scale, zero, block, bits, axis)
    return s("Identity", y, out=0)


def _packed(s: Spelling, data: Val, scale: Val) -> tuple[int, int, int]:
    """Numbers and blocks of every row of bytes, and bits of a number."""
    sizes, bits = static_shape((data.shape[-1], scale.shape[-1])), s.attr("bits", 4)
    if sizes is None:
        raise s.b.unsupported("a symbolic number of columns", "make it static")
    if bits not in BITS:
        raise s.b.unsupported(f"numbers of {bits} bits",
                              f"quantise to {', '.join(map(str, BITS))} bits")
    return sizes[0] * 8 // bits, sizes[1], bits
