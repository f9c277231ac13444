"""Element types: one row each.  A dtype is its short name (``"f32"``) everywhere in aotc.

f16 and bf16 are dtypes of storage: expressions load them, store them and convert them to and from
other dtypes, but never compute in them (their C type holds the bits; so do numpy's arrays of bf16,
which numpy itself does not know).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]  # of any shape and dtype: a Buffer or Place tells both


@dataclass(frozen=True)
class DType:
    """One element type: ``bits`` that an element takes, ``c`` the C11 name and ``numpy`` the dtype
    of what holds it, ``kind`` one of f, i, u, b."""

    name: str
    numpy: np.dtype[Any]
    c: str
    bits: int
    kind: str

    @property
    def size(self) -> int:
        """Bytes of an element by itself."""
        return -(-self.bits // 8)


_ROWS = (
    DType("f64", np.dtype("float64"), "double", 64, "f"),
    DType("f32", np.dtype("float32"), "float", 32, "f"),
    DType("i64", np.dtype("int64"), "int64_t", 64, "i"),
    DType("i32", np.dtype("int32"), "int32_t", 32, "i"),
    DType("i16", np.dtype("int16"), "int16_t", 16, "i"),
    DType("i8", np.dtype("int8"), "int8_t", 8, "i"),
    DType("u64", np.dtype("uint64"), "uint64_t", 64, "u"),
    DType("u32", np.dtype("uint32"), "uint32_t", 32, "u"),
    DType("u16", np.dtype("uint16"), "uint16_t", 16, "u"),
    DType("u8", np.dtype("uint8"), "uint8_t", 8, "u"),
    DType("bool", np.dtype("bool"), "uint8_t", 8, "b"),
    DType("f16", np.dtype("float16"), "uint16_t", 16, "f"),
    DType("bf16", np.dtype("uint16"), "uint16_t", 16, "f"),  # behind u16, whose arrays those are
)
DTYPES = {row.name: row for row in _ROWS}
HALF = "f16"  # half precision
BF16 = "bf16"  # the upper half of an f32
LARGEST_HALF = 65504.0  # of f16
HALVES = (HALF, BF16)  # floats of 16 bits, which nothing computes in
# types that a caller's tensors may have and that nothing computes in: their elements lie in the
# lowest bits of u16 or u8
_FEW_BITS = {"f8e4m3fn": 8, "f8e4m3fnuz": 8, "f8e5m2": 8, "f8e5m2fnuz": 8, "f8e8m0": 8,
             "f4e2m1": 4, "i4": 4, "u4": 4, "i2": 2, "u2": 2}
STORED = {BF16: DTYPES[BF16]} | {n: DType(n, np.dtype("uint8"), "uint8_t", bits, n[0])
                                 for n, bits in _FEW_BITS.items()}
TF32 = "tf32"  # an f32 with the 10 bits of mantissa that f16 has
# what operands of products may be: read as they are stored, or rounded as they are multiplied
ELEMENTS = DTYPES | STORED | {TF32: DType(TF32, np.dtype("float32"), "float", 32, "f")}
TEXT = "string"  # stored only, too: as i64, places in the Program's table of texts
CHARS = "chars"  # strings as their bytes: u8 with a last dimension of bytes, zeros behind them
INDEX = "i64"  # the dtype of every index, extent and loop variable


def dtype_of(array: Array) -> str:
    """Name of the dtype of a numpy array; KeyError if aotc has no such dtype."""
    for row in _ROWS:
        if row.numpy == array.dtype:
            return row.name
    raise KeyError(str(array.dtype))


def array_dtype(dtype: str) -> str:
    """Name of the dtype of the arrays that hold elements of one: u16 of bf16."""
    return next(row.name for row in _ROWS if row.numpy == DTYPES[dtype].numpy)


def is_float(dtype: str) -> bool:
    return ELEMENTS[dtype].kind == "f"


def to_bf16(x: Array) -> Array:
    """u16: the bits of floats as bf16, of the same shape; to nearest, ties to even, a NaN stays a
    quiet NaN, and what is no normal number becomes a zero of its sign, as in the instructions."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).reshape(np.shape(x))
    size, sign = bits & np.uint32(0x7fffffff), bits >> np.uint32(16) & np.uint32(0x8000)
    near = (bits + np.uint32(0x7fff) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    quiet = bits >> np.uint32(16) | np.uint32(0x40)
    out = np.where(size > np.uint32(0x7f800000), quiet, near)
    return np.asarray(np.where(size < np.uint32(0x00800000), sign, out)).astype(np.uint16)


def from_bf16(bits: Array) -> Array:
    """f32: the floats that have these bits as bf16, of the same shape."""
    wide = np.ascontiguousarray(bits, np.uint16).astype(np.uint32) << np.uint32(16)
    return wide.view(np.float32).reshape(np.shape(bits))


def to_f32(array: Array, dtype: str) -> Array:
    """f32: the numbers of an array whose elements are f32, f16 or bf16."""
    return from_bf16(array) if dtype == BF16 else array.astype(np.float32, copy=False)


def is_finite(array: Array, dtype: str) -> bool:
    """True if an array of such elements has no infinity and no NaN."""
    if dtype == BF16:  # by its exponents
        return not np.any(array & np.uint16(0x7F80) == np.uint16(0x7F80))
    return bool(np.isfinite(array).all())


def to_tf32(x: Array) -> Array:
    """f32: floats with 10 bits of mantissa, to the nearest, halves away from zero, as the
    instruction has it; a NaN stays as it is."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).reshape(np.shape(x))
    near = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    out = np.where(bits & np.uint32(0x7FFFFFFF) > np.uint32(0x7F800000), bits, near)
    return np.asarray(out, np.uint32).view(np.float32)


def exceeds_half(array: Array) -> bool:
    """True if an array has finite numbers beyond those of f16."""
    return bool(np.any(np.isfinite(array) & (np.abs(array) > LARGEST_HALF)))


_NEAR: dict[str, Callable[[Array], Array]] = {
    BF16: lambda x: from_bf16(to_bf16(x)), TF32: to_tf32,
    HALF: lambda x: x.astype(np.float16).astype(np.float32)}


def holds(dtype: str, array: Array) -> bool:
    """True if a float dtype, f16, bf16 or tf32, has every element of an array of f32."""
    with np.errstate(over="ignore"):
        near = _NEAR[dtype](array)
    return np.array_equal(near, array, equal_nan=True)


def is_int(dtype: str) -> bool:
    return ELEMENTS[dtype].kind in "iu"
