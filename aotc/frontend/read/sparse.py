"""Sparse tensors of a model as dense arrays."""

from math import prod

import numpy as np
import onnx
from onnx import numpy_helper

from aotc.errors import ModelError, UnsupportedError
from aotc.frontend.read.read_types import dtype_name, elem_name
from aotc.ir.dtypes import Array

MOST_BYTES = 1 << 31  # of the dense tensor: a few numbers may stand for any size


def make_dense(t: onnx.SparseTensorProto, what: str) -> Array:
    """The dense array of a sparse tensor, zero where it lists nothing.  ``what`` names it in
    messages.  ModelError for places outside of it, or for fewer or more places than values;
    UnsupportedError for what is no number of a supported dtype, and beyond 2 GB."""
    if not dtype_name(t.values.data_type):
        raise UnsupportedError(f"{what} has values of {elem_name(t.values.data_type)}; store it "
                               "dense")
    try:
        values = numpy_helper.to_array(t.values).reshape(-1)
        places = numpy_helper.to_array(t.indices)
    except (ValueError, TypeError) as err:
        raise ModelError(f"{what}: its data does not fit its shape: {err}") from None
    shape = tuple(t.dims)
    if any(d < 0 for d in shape):
        raise ModelError(f"{what} has the shape {list(shape)}")
    if prod(shape) * values.itemsize > MOST_BYTES:
        raise UnsupportedError(f"{what} of shape {list(shape)[:8]} would take more than "
                               f"{MOST_BYTES >> 30} GB as a dense tensor; compute with fewer "
                               "elements")
    if places.dtype != np.int64 or places.shape not in ((len(values),), (len(values), len(shape))):
        raise ModelError(f"{what}: indices of shape {list(places.shape)} for {len(values)} values "
                         f"of a tensor of {len(shape)} dimensions")
    limits = np.array([prod(shape)] if places.ndim == 1 else shape, np.int64)
    columns = places.reshape(len(values), -1) if places.size else places.reshape(0, len(limits))
    if ((columns < 0) | (columns >= limits)).any():
        raise ModelError(f"{what}: an index outside of its shape {list(shape)}")
    out = np.zeros(shape, values.dtype)
    if len(columns):
        at = columns[:, 0] if places.ndim == 1 else np.ravel_multi_index(tuple(columns.T), shape)
        out.reshape(-1)[at] = values
    return out
