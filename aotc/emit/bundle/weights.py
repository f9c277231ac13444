"""The weights image: a 64-byte header and the constants at their offsets; a file or C text."""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from aotc.emit.text.cexpr import constant
from aotc.errors import AotcError
from aotc.ir.dtypes import DTYPES, Array
from aotc.ir.plan import Place, Plan

MAGIC, VERSION, HEADER_BYTES, ALIGNMENT = b"AOTCWTS1", 2, 64, 64
TEXT_BYTES = 1 << 20  # a larger image is no C text but a file that the assembler includes
_PLACE, _HALF = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
WORTH_A_RANGE = 4 << 20  # bytes: less holds hardly a page of the largest kind
_CHUNK = 1 << 14  # words at a time: the temporaries stay in the cache


def checksum(payload: bytes | bytearray | memoryview) -> int:
    """The image's 64-bit checksum of a bytes-like object (as int): the sum over its little-endian
    64-bit words w[i], the last filled up with zeros, of mix(w[i] ^ (i + 1)*PLACE), where
    mix(x) = low(x)*high(x) + rotate(x, 32), low and high its halves, all modulo 2**64."""
    data = np.frombuffer(payload, np.uint8)
    whole = data.size // 8 * 8
    words, total = data[:whole].view("<u8"), np.uint64(0)
    with np.errstate(over="ignore"):
        places = np.arange(1, min(_CHUNK, words.size) + 2, dtype=np.uint64) * _PLACE
        for start in range(0, words.size, _CHUNK):
            total += _mixed(words[start:start + _CHUNK], places, start)
        if whole < data.size:
            last = np.zeros(8, np.uint8)
            last[:data.size - whole] = data[whole:]
            total += _mixed(last.view("<u8"), places, words.size)
    return int(total)


def _mixed(words: Array, places: Array, start: int) -> Any:
    """Sum of mix over words whose first one has the index ``start``."""
    x = places[:words.size] + np.uint64(start) * _PLACE
    x ^= words
    high = x >> _HALF
    mix = (x & np.uint64(0xffffffff)) * high
    mix += x << _HALF | high
    return np.add.reduce(mix, dtype=np.uint64)


def image(plans: Sequence[Plan], model_hash: bytes) -> bytearray:
    """The weights image of ``plans`` (the variants of one model) as a bytearray: header, then every
    constant at its place's offset, zeros between, the payload's size a multiple of 64.

    ``model_hash``: 32 bytes that tie the image to its code.  AotcError if two constants overlap,
    one is not aligned to its element, or is not a place of the image.
    """
    rows: dict[tuple[int, str | bool], tuple[Place, Array]] = {}
    for plan in plans:
        for name, array in plan.weights:
            place = plan.place(name)
            # plans share what is equal; within one plan two constants at one place are a fault
            key = (place.offset, len(plans) == 1 and name)
            rows.setdefault(key, (place, np.asarray(array)))
    payload = max(-(-plan.weights_bytes // ALIGNMENT) * ALIGNMENT for plan in plans)
    out = bytearray(HEADER_BYTES + payload)
    body, end, before = memoryview(out)[HEADER_BYTES:], 0, ""
    for place, array in sorted(rows.values(), key=lambda row: row[0].offset):
        if place.storage != "weights" or place.offset % array.itemsize:
            raise AotcError(f"constant {place.name}: not a place in the weights image: {place}")
        if place.offset < end:
            raise AotcError(f"constant {place.name}: overlaps {before} in the weights image")
        end, before = place.offset + array.nbytes, place.name
        # straight to its place, in row-major order: a copy of its own might be of gigabytes
        room = np.frombuffer(body[place.offset:end], array.dtype.newbyteorder("<"))
        room.reshape(array.shape)[...] = array
    out[:HEADER_BYTES] = struct.pack("<8sIIQQ32s", MAGIC, VERSION, HEADER_BYTES, len(body),
                                     checksum(body), model_hash)
    return out


def find_untouched(plans: Sequence[Plan]) -> list[tuple[int, int]]:
    """[(begin, end)]: bytes of the image that hold tables of which a run of any plan touches
    little; tables that lie side by side are one range."""
    alike = set.intersection(*({(p.offset, p.sparse) for p in plan.places
                                if p.storage == "weights"} for plan in plans))
    ranges: list[tuple[int, int]] = []
    for place in sorted((p for p in plans[0].places if p.storage == "weights" and p.sparse
                         and (p.offset, True) in alike), key=lambda p: p.offset):
        begin = HEADER_BYTES + place.offset
        size = constant(place.elements) * DTYPES[place.dtype].size
        end = begin + -(-size // ALIGNMENT) * ALIGNMENT
        if ranges and ranges[-1][1] == begin:
            begin = ranges.pop()[0]
        ranges.append((begin, end))
    return [(a, b) for a, b in ranges if b - a >= WORTH_A_RANGE]


def needs_file(weights: str, payload_bytes: int) -> bool:
    """True if a bundle has a NAME_weights.bin: unless a small image is written out in C."""
    return weights == "file" or payload_bytes > TEXT_BYTES


def write_words(data: bytes | bytearray) -> str:
    """The text of an image as 64-bit C integers, four a line."""
    words = np.frombuffer(data, "<u8").tolist()
    rows = (words[i:i + 4] for i in range(0, len(words), 4))
    return ",\n".join("    " + ", ".join(f"0x{w:016x}u" for w in row) for row in rows)
