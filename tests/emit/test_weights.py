"""The weights image: checksum, and every way a file can be wrong has its own status."""

from dataclasses import replace

import numpy as np
import pytest
from bundle_plans import lookup_plan, number
from hypothesis import given
from hypothesis import strategies as st

from aotc.emit.bundle import weights
from aotc.errors import AotcError
from aotc.runtime.loading import load
from aotc.runtime.status import WeightsError

MASK = (1 << 64) - 1


def _slow_checksum(data):
    data, total = data + bytes(-len(data) % 8), 0
    for i in range(len(data) // 8):
        w = int.from_bytes(data[8 * i:8 * i + 8], "little")
        x = w ^ (i + 1) * 0x9E3779B97F4A7C15 & MASK
        low, high = x % 2 ** 32, x >> 32
        total += low * high + (low << 32) + high
    return total & MASK


@given(st.binary(max_size=200))
def test_checksum_is_what_its_definition_says(data):
    assert weights.checksum(data) == _slow_checksum(data)


def test_checksum_over_several_chunks(monkeypatch):
    data = np.arange(1000, dtype=np.uint64).tobytes()
    whole = weights.checksum(data)
    monkeypatch.setattr(weights, "_CHUNK", 7)
    assert weights.checksum(data) == whole == _slow_checksum(data)


def _status_of(folder, change):
    path = folder / "lookup_weights.bin"
    data = bytearray(path.read_bytes())
    path.write_bytes(change(data))
    with pytest.raises(WeightsError) as found:
        load(folder)
    return found.value.status


def _flip(at):
    def change(data):
        data[at] ^= 1
        return data
    return change


def _swap_words(data):
    data[64:72], data[72:80] = data[72:80], data[64:72]
    return data


@pytest.mark.parametrize("change, status", [
    (_flip(0), "AOTC_WEIGHTS_MAGIC"), (_flip(8), "AOTC_WEIGHTS_VERSION"),
    (_flip(12), "AOTC_WEIGHTS_VERSION"), (_flip(16), "AOTC_WEIGHTS_TRUNCATED"),
    (_flip(24), "AOTC_WEIGHTS_CHECKSUM"), (_flip(40), "AOTC_WEIGHTS_WRONG_MODEL"),
    (_flip(64), "AOTC_WEIGHTS_CHECKSUM"), (_flip(-1), "AOTC_WEIGHTS_CHECKSUM"),
    (_swap_words, "AOTC_WEIGHTS_CHECKSUM"),
    (lambda d: d[:-1], "AOTC_WEIGHTS_TRUNCATED"), (lambda d: d + b"\0", "AOTC_WEIGHTS_TRUNCATED"),
    (lambda d: d[:63], "AOTC_WEIGHTS_TRUNCATED"), (lambda d: b"", "AOTC_WEIGHTS_TRUNCATED")])
def test_damaged_files(lookup, lookup_copy, change, status):
    assert lookup.name == "lookup"  # built already: the copy brings the library along
    assert _status_of(lookup_copy, change) == status


def test_missing_file(lookup, lookup_copy):
    (lookup_copy / "lookup_weights.bin").unlink()
    with pytest.raises(WeightsError, match="lookup_weights.bin") as found:
        load(lookup_copy)
    assert found.value.status == "AOTC_WEIGHTS_MISSING"


def _in_memory(data):
    """(array that holds the bytes at a multiple of 64, their address)"""
    room = np.zeros(len(data) + 64, np.uint8)
    start = -room.__array_interface__["data"][0] % 64
    room[start:start + len(data)] = np.frombuffer(data, np.uint8)
    return room, room.__array_interface__["data"][0] + start


def test_from_memory(lookup, lookup_folder):
    ffi, lib = lookup._ffi, lookup._library
    data = (lookup_folder / "lookup_weights.bin").read_bytes()
    _room, address = _in_memory(data)
    w = ffi.new("aotc_weights *")
    from_memory = lib.function("weights_from_memory")
    assert from_memory(w, ffi.cast("void *", address), len(data)) == number(lib, "AOTC_OK")
    assert w.payload_bytes == len(data) - 64
    lib.function("weights_close")(w)
    assert w.payload == ffi.NULL
    for args, status in (((w, ffi.cast("void *", address + 8), len(data)), "WEIGHTS_MISALIGNED"),
                         ((ffi.NULL, ffi.cast("void *", address), 9), "NULL_POINTER"),
                         ((w, ffi.NULL, 9), "NULL_POINTER")):
        assert from_memory(*args) == number(lib, f"AOTC_{status}")


@pytest.mark.parametrize("change, checked, trusted", [
    (lambda d: d, "OK", "OK"), (_flip(64), "WEIGHTS_CHECKSUM", "OK"),
    (_flip(0), "WEIGHTS_MAGIC", "WEIGHTS_MAGIC"),
    (_flip(40), "WEIGHTS_WRONG_MODEL", "WEIGHTS_WRONG_MODEL"),
    (lambda d: d[:-8], "WEIGHTS_TRUNCATED", "WEIGHTS_TRUNCATED")])
def test_an_image_that_is_trusted_has_its_header_checked_alone(lookup, lookup_folder, change,
                                                               checked, trusted):
    ffi, lib = lookup._ffi, lookup._library
    data = change(bytearray((lookup_folder / "lookup_weights.bin").read_bytes()))
    _room, address = _in_memory(data)
    for function, status in (("weights_from_memory", checked), ("weights_trusted", trusted)):
        w = ffi.new("aotc_weights *")
        found = lib.function(function)(w, ffi.cast("void *", address), len(data))
        assert found == number(lib, f"AOTC_{status}")
        # what is refused opens nothing
        assert (w.payload != ffi.NULL) == (status == "OK")
    assert lib.function("weights_embedded_trusted")(w) == number(lib, "AOTC_NOT_AVAILABLE")
    assert lib.function("weights_trusted")(w, ffi.NULL, 9) == number(lib, "AOTC_NULL_POINTER")


def test_image_refuses_overlaps_and_other_places():
    plan = lookup_plan()
    hidden = tuple(replace(p, offset=64) if p.name == "scale" else p for p in plan.places)
    with pytest.raises(AotcError, match="scale: overlaps table"):
        weights.image([replace(plan, places=hidden)], bytes(32))
    odd = tuple(replace(p, offset=194) if p.name == "scale" else p for p in plan.places)
    with pytest.raises(AotcError, match="scale: not a place"):
        weights.image([replace(plan, places=odd)], bytes(32))
