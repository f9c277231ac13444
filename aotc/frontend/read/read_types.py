"""ONNX element types and aotc's dtypes."""

import re

import numpy as np
import onnx

from aotc.ir.dtypes import DTYPES, STORED, TEXT, Array
from aotc.ir.expr import Const, Shape

# the types whose numpy dtype holds exactly them (INT4 and the like are widened by numpy)
_WHOLE = ("FLOAT", "DOUBLE", "FLOAT16", "INT64", "INT32", "INT16", "INT8", "UINT64", "UINT32",
          "UINT16", "UINT8", "BOOL")


def _elem_types() -> dict[int, str]:
    out = {}
    for key in _WHOLE:
        value = onnx.TensorProto.DataType.Value(key)
        held = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(value))
        out[value] = next(d.name for d in DTYPES.values() if d.numpy == held)
    return out


_DTYPES = _elem_types()
_KEYS = frozenset(onnx.TensorProto.DataType.keys())
# types that are stored only (``building.stored``), as far as the installed onnx package has them
_STORED = {onnx.TensorProto.DataType.Value(key): name for name, key in (
    ("bf16", "BFLOAT16"), ("f8e4m3fn", "FLOAT8E4M3FN"), ("f8e4m3fnuz", "FLOAT8E4M3FNUZ"),
    ("f8e5m2", "FLOAT8E5M2"), ("f8e5m2fnuz", "FLOAT8E5M2FNUZ"), ("f8e8m0", "FLOAT8E8M0"),
    ("f4e2m1", "FLOAT4E2M1"), ("i4", "INT4"), ("u4", "UINT4"), ("i2", "INT2"), ("u2", "UINT2"),
    (TEXT, "STRING"))
    if key in _KEYS}
_ELEM = {name: value for value, name in (*_DTYPES.items(), *_STORED.items())}


def dtype_name(elem_type: int) -> str | None:
    """aotc's name of an ONNX element type, or None if aotc has none."""
    return _DTYPES.get(elem_type)


def stored_name(elem_type: int) -> str | None:
    """aotc's name of an ONNX element type that is stored only, or None if it is another."""
    return _STORED.get(elem_type)


def codes_of(tensor: onnx.TensorProto, stored: str) -> Array:
    """The bits of a tensor of a stored type: u16 or u8, one element each.  ValueError if its data
    does not fit its shape."""
    bits, dtype = STORED[stored].bits, STORED[stored].numpy.newbyteorder("<")
    if tensor.HasField("raw_data"):
        data = np.frombuffer(tensor.raw_data, dtype)
    else:
        data = np.array(tensor.int32_data, np.int64).astype(dtype)
    size = int(np.prod(tensor.dims, dtype=np.int64))
    if bits < 8:
        parts = [data >> np.uint8(bits * k) & np.uint8((1 << bits) - 1) for k in range(8 // bits)]
        data = np.stack(parts, 1).reshape(-1) if size else data[:0]
        data = data[:size] if len(data) - size < 8 // bits else data
    return data.astype(dtype.newbyteorder("=")).reshape(tuple(tensor.dims))


def type_proto(dtype: str, shape: Shape) -> onnx.TypeProto:
    """The TypeProto of a tensor; symbolic extents are left open."""
    dims = [d.value if isinstance(d, Const) else None for d in shape]
    return onnx.helper.make_tensor_type_proto(_ELEM[dtype], dims)


# what tools write for an extent that they do not know: such axes have nothing to do with each other
_ANY = re.compile(r"[?*\s]*|-\d+|none|null|nan|any|dynamic|undefined|unk(nown)?(_?dim)?",
                  re.IGNORECASE)


def extent_of(d: onnx.TensorShapeProto.Dimension) -> int | str | None:
    """An extent as the model states it: a number, a name, or None: any."""
    if d.HasField("dim_value"):
        return d.dim_value if d.dim_value >= 0 else None
    return None if _ANY.fullmatch(d.dim_param) else d.dim_param


def elem_name(elem_type: int) -> str:
    """ONNX's name of an element type, for messages."""
    known = elem_type in onnx.TensorProto.DataType.values()
    return onnx.TensorProto.DataType.Name(elem_type) if known else f"number {elem_type}"
