"""The bytes of grouped weights (``grouped.py``), to and from arrays."""

from collections.abc import Callable

import numpy as np

from aotc.ir.dtypes import Array
from aotc.ir.numbers.grouped import Grouping


def scale_planes(scale: Array) -> int:
    """Upper bytes of f32 scales that hold them exactly."""
    bits = np.ascontiguousarray(scale, np.float32).view(np.uint32)
    low = int(np.bitwise_or.reduce(bits, axis=None)) if bits.size else 0
    return 2 if not low & 0xFFFF else 3 if not low & 0xFF else 4


def group_bytes(g: Grouping, codes: Array, scale: Array, zero: Array | None = None) -> Array:
    """u8[groups, rows, N] of codes i8[K, N], scale f32[groups, N] and zero i8[groups, N].  What a
    last group lacks is 0."""
    count, n = scale.shape
    out = np.zeros((count, g.rows, n), np.uint8)
    whole = np.zeros((count * g.size, n), np.int8)
    whole[:len(codes)] = codes
    low = whole.view(np.uint8).reshape(count, g.size, n)
    out[:, :g.codes] = low if g.bits == 8 else low[:, 0::2] & 15 | low[:, 1::2] << 4
    if zero is not None:
        out[:, g.codes] = zero.astype(np.int8).view(np.uint8)
    bits = np.ascontiguousarray(scale, np.float32).view(np.uint32)
    for plane in range(g.planes):
        out[:, g.codes + g.zeros + plane] = bits >> np.uint32(8 * (4 - g.planes + plane)) & 255
    return out


def weights_of(g: Grouping, packed: Array, depth: int) -> Array:
    """f32[depth, ...]: the weights that bytes u8[groups, rows, ...] stand for."""
    low = packed[:, :g.codes]
    if g.bits == 4:
        low = np.stack([low & 15, low >> 4], axis=2).reshape(
            len(packed), g.size, *packed.shape[2:])
        codes = (low ^ 8).astype(np.int32) - 8
    else:
        codes = (low ^ 128).astype(np.int32) - 128
    if g.zeros:
        codes = codes - ((packed[:, g.codes:g.codes + 1] ^ 128).astype(np.int32) - 128)
    bits = np.zeros((len(packed), 1, *packed.shape[2:]), np.uint32)
    for plane in range(g.planes):
        row = g.codes + g.zeros + plane
        bits |= packed[:, row:row + 1].astype(np.uint32) << np.uint32(8 * (4 - g.planes + plane))
    w = codes.astype(np.float32) * bits.view(np.float32)
    return w.reshape(-1, *packed.shape[2:])[:depth]


def weights_at(g: Grouping, k: Array, row: Callable[[Array | int], Array]) -> Array:
    """f32: the weights at steps ``k`` of the sum; row(number): u8, the bytes in that row of their
    groups."""
    number, scale = numbers_at(g, k, row)
    found: Array = number.astype(np.float32) * scale
    return found


def numbers_at(g: Grouping, k: Array,
               row: Callable[[Array | int], Array]) -> tuple[Array, Array]:
    """(i32, f32): codes less zero points at steps ``k`` of the sum, and their scales."""
    per = 8 // g.bits
    code = row(k % g.size // per) >> (k % per * g.bits).astype(np.uint8)
    half = np.int32(1 << g.bits - 1)
    number = (code & np.int32((1 << g.bits) - 1) ^ half) - half
    if g.zeros:
        number = number - ((row(g.codes) ^ np.int32(128)) - np.int32(128))
    bits = sum((row(g.codes + g.zeros + p).astype(np.uint32) << np.uint32(
        8 * (4 - g.planes + p)) for p in range(g.planes)), np.zeros((), np.uint32))
    return number, np.ascontiguousarray(bits).view(np.float32)


__all__ = ["group_bytes", "numbers_at", "scale_planes", "weights_at", "weights_of"]
