"""Networks that see, as either exporter of PyTorch writes them with a free height and width: small
ones in ``tests/exec/vision``, without their weights."""

import gzip
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

FOLDER = Path(__file__).parents[1] / "exec" / "vision"
GRAPHS = sorted(p.name.removesuffix(".onnx.gz") for p in FOLDER.glob("*.onnx.gz"))


def weightless(model):
    """The model as a file of ``FOLDER`` has it: no text, no shapes of tensors inside, and no
    numbers in weights of two and more dimensions.  Bytes."""
    del model.graph.value_info[:], model.metadata_props[:], model.graph.metadata_props[:]
    for part in (*model.graph.node, *model.graph.initializer):
        part.ClearField("doc_string")
        del part.metadata_props[:]
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) > 1 and (
                np.prod(tensor.dims) > 32):
            tensor.ClearField("raw_data")
            tensor.ClearField("float_data")
    return gzip.compress(model.SerializeToString(), mtime=0)


def graph(name):
    """The ModelProto of a name in ``GRAPHS``, with random weights that keep the size of what they
    multiply."""
    model = onnx.load_from_string(gzip.decompress((FOLDER / f"{name}.onnx.gz").read_bytes()))
    rng = np.random.default_rng(7)
    for tensor in model.graph.initializer:
        dims = tuple(tensor.dims)
        if tensor.data_type == onnx.TensorProto.FLOAT and 0 not in dims and not (
                tensor.raw_data or tensor.float_data):
            fan = np.prod(dims[1:] if len(dims) > 2 else dims[:1])
            weights = rng.standard_normal(dims) / np.sqrt(fan)
            tensor.CopyFrom(numpy_helper.from_array(weights.astype(np.float32), tensor.name))
    return model
