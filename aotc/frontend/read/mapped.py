"""A model file whose large initializers stay in the file: what asks about shapes does not read
gigabytes of weights.

The message is walked field by field, as protobuf writes it (a key, then a number or a length and
that many bytes); large ``raw_data`` of initializers is left out, and where it lies in the file is
entered as external data.  What does not look like a model is left to protobuf, which says so."""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import external_data_helper

from aotc.ir.dtypes import Array

LARGE = 1 << 16  # bytes of a tensor that stays in the file
_GRAPH, _INITIALIZER = 7, 5  # fields of ModelProto and GraphProto
_TYPE, _RAW, _EXTERNAL, _LOCATION = 2, 9, 13, 14  # fields of TensorProto
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
# types whose elements lie in the file as numpy has them
PLAIN = frozenset((onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16,
                   onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.INT8,
                   onnx.TensorProto.UINT8))
_Field = tuple[int, int, int, int]  # (number, where its key starts, its value starts and ends)


def without_weights(path: str | os.PathLike[str]) -> bytes | None:
    """The serialised model of a file with its large initializers as external data of that file;
    None where the file is not made of protobuf's fields.  OSError as reading raises it."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size < LARGE:
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return b"".join(_model(data, Path(path).name))
            except (IndexError, ValueError):
                return None


def array_of(tensor: onnx.TensorProto) -> Array:
    """The array of a tensor that lies in a file whose path is its location; ValueError for another
    size than its shape has."""
    info = {e.key: e.value for e in tensor.external_data}
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).newbyteorder("<")
    shape = tuple(tensor.dims)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    offset, held = int(info.get("offset", 0)), int(info.get("length", size))
    if held != size:
        raise ValueError(f"{held} bytes for the shape {list(shape)}")
    if not size:
        return np.zeros(shape, dtype)
    mapped: Array = np.memmap(info["location"], dtype, "r", offset, shape)
    return mapped


def stays_in_file(tensor: onnx.TensorProto) -> bool:
    """True for a tensor in a file that can be read there."""
    return tensor.data_type in PLAIN and external_data_helper.uses_external_data(tensor)


def _model(data: mmap.mmap, name: str) -> Iterator[bytes]:
    for number, key, start, end in _fields(data, 0, len(data)):
        if number == _GRAPH:
            graph = b"".join(_graph(data, start, end, name))
            yield _key(_GRAPH, _BYTES) + _varint(len(graph)) + graph
        else:
            yield data[key:end]


def _graph(data: mmap.mmap, at: int, stop: int, name: str) -> Iterator[bytes]:
    for number, key, start, end in _fields(data, at, stop):
        tensor = _tensor(data, start, end, name) if (
            number == _INITIALIZER and end - start >= LARGE) else None
        if tensor is None:
            yield data[key:end]
        else:
            yield _key(_INITIALIZER, _BYTES) + _varint(len(tensor)) + tensor


def _tensor(data: mmap.mmap, at: int, stop: int, name: str) -> bytes | None:
    """A tensor without its bytes; None if it has none in the file that can stay there."""
    fields = list(_fields(data, at, stop))
    kinds = [_number(data, start)[0] for n, _, start, _ in fields if n == _TYPE]
    raw = [(start, end) for n, _, start, end in fields if n == _RAW]
    if (len(raw) != 1 or not kinds or kinds[-1] not in PLAIN or raw[0][1] - raw[0][0] < LARGE
            or any(n == _EXTERNAL or n == _LOCATION and _number(data, start)[0]
                   for n, _, start, _ in fields)):
        return None
    (start, end), = raw
    place = onnx.TensorProto(data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", name), ("offset", start), ("length", end - start)):
        place.external_data.add(key=key, value=str(value))
    rest: list[bytes] = [data[key:last] for n, key, _, last in fields if n != _RAW]
    return b"".join((*rest, place.SerializeToString()))


def _fields(data: mmap.mmap, at: int, stop: int) -> Iterator[_Field]:
    """The fields of a message; IndexError or ValueError if it is none."""
    while at < stop:
        key = at
        tag, at = _number(data, at)
        kind, start = tag & 7, at
        if kind == _VARINT:
            _, at = _number(data, at)
        elif kind == _BYTES:
            length, start = _number(data, at)
            at = start + length
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at > stop:
            raise ValueError("a field ends behind its message")
        yield tag >> 3, key, start, at


def _number(data: mmap.mmap, at: int) -> tuple[int, int]:
    """(value, where it ends) of a number in groups of 7 bits."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _key(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))
