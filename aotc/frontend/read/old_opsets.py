"""Models of opsets older than the operators' functions know, brought to the oldest of those."""

from collections.abc import Iterator

import onnx
from google.protobuf.message import EncodeError
from onnx import shape_inference, version_converter

from aotc.errors import ModelError, UnsupportedError
from aotc.frontend.read.expand import opsets_of

OLDEST = 7  # the opset from which on elementwise operators broadcast as numpy does


def _without_negative_extents(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with extents below 0, which some exporters write for "any", left open; the same
    object if there are none.  The onnx package's inference takes them for positions and reads
    outside its own arrays."""
    if not any(d.dim_value < 0 for d in _extents(model.graph)):
        return model
    out = onnx.ModelProto()
    out.CopyFrom(model)
    for d in _extents(out.graph):
        if d.dim_value < 0:
            d.Clear()
    return out


def _extents(graph: onnx.GraphProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    """Every dimension that a graph or one of its sub-graphs declares of a tensor."""
    kinds = [i.type for i in (*graph.input, *graph.output, *graph.value_info)]
    while kinds:
        kind = kinds.pop()
        match kind.WhichOneof("value"):
            case "tensor_type" | "sparse_tensor_type" as field:
                yield from getattr(kind, field).shape.dim
            case "sequence_type" | "optional_type" as field:
                kinds.append(getattr(kind, field).elem_type)
            case "map_type":
                kinds.append(kind.map_type.value_type)
    for node in graph.node:
        for a in node.attribute:
            for sub in ([a.g] if a.HasField("g") else []) + list(a.graphs):
                yield from _extents(sub)


def modernise_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in opset 7 or newer; the same object if it is.  UnsupportedError where the
    converter of the onnx package gives up."""
    version = opsets_of(model).get("", OLDEST)
    if version >= OLDEST:
        return model
    try:
        return version_converter.convert_version(
            _with_channel_slopes(_without_negative_extents(model)), OLDEST)
    except (EncodeError, RuntimeError, ValueError, TypeError, IndexError,
            version_converter.ConvertError, shape_inference.InferenceError) as err:
        reason = (str(err).strip().splitlines() or ["no reason given"])[-1]
        raise UnsupportedError(f"opset {version} is older than {OLDEST} and cannot be converted "
                               f"({reason}): export the model in a newer opset") from None


def _with_channel_slopes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Before opset 7 the slopes of a PRelu belong to the channels, which the converter does not
    know: their shape gets the trailing ones that say so."""
    if not any(n.op_type == "PRelu" for n in model.graph.node):
        return model
    model = _typed(model)
    graph = model.graph
    infos = {i.name: i for i in (*graph.input, *graph.value_info)}
    tensors = {t.name: t for t in graph.initializer}
    for node in (n for n in graph.node if n.op_type == "PRelu"):
        x, slope = (infos.get(i) for i in node.input)
        rank = len(x.type.tensor_type.shape.dim) if x is not None else 0
        tensor = tensors.get(node.input[1])
        if tensor is not None and len(tensor.dims) == 1 and tensor.dims[0] > 1 and rank > 2:
            tensor.dims.extend([1] * (rank - 2))
            if slope is not None:  # old models list initializers as inputs too
                for _ in range(rank - 2):
                    slope.type.tensor_type.shape.dim.add().dim_value = 1
    return model



def _typed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with inferred types; ModelError where they contradict each other."""
    try:
        return shape_inference.infer_shapes(model)
    except (EncodeError, shape_inference.InferenceError, RuntimeError, ValueError,
            MemoryError) as err:
        reason = (str(err).splitlines() or [type(err).__name__])[0]
        raise ModelError("the types of the model's tensors cannot be inferred: "
                         f"{reason[:300]}") from None
