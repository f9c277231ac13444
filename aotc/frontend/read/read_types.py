"""ONNX element types and aotc's dtypes."""

import numpy as np
import onnx

from aotc.ir.dtypes import DTYPES
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
_ELEM = {name: value for value, name in _DTYPES.items()}


def dtype_name(elem_type: int) -> str | None:
    """aotc's name of an ONNX element type, or None if aotc has none."""
    return _DTYPES.get(elem_type)


def type_proto(dtype: str, shape: Shape) -> onnx.TypeProto:
    """The TypeProto of a tensor; symbolic extents are left open."""
    dims = [d.value if isinstance(d, Const) else None for d in shape]
    return onnx.helper.make_tensor_type_proto(_ELEM[dtype], dims)


def elem_name(elem_type: int) -> str:
    """ONNX's name of an element type, for messages."""
    known = elem_type in onnx.TensorProto.DataType.values()
    return onnx.TensorProto.DataType.Name(elem_type) if known else f"number {elem_type}"
