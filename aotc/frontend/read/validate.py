"""What the protobuf reader lets through and no later code should meet: a message that is well
formed but says nothing, or the impossible."""

from collections.abc import Sequence

import onnx
from google.protobuf.message import Message

from aotc.errors import ModelError, UnsupportedError
from aotc.frontend.graph import label_of, shorten

LARGEST = 1 << 40  # bytes of one declared tensor
NEWEST = onnx.defs.onnx_opset_version()
DEPTH = 40  # sub-graphs inside sub-graphs
NODES = 1 << 16  # of a model, those of its sub-graphs and called functions too
NAMES = 1 << 18  # inputs and outputs of all of them and of the model
RANK = 64  # dimensions of a tensor

# attribute type -> the field that holds its value
_FIELDS = {"FLOAT": "f", "INT": "i", "STRING": "s", "TENSOR": "t", "GRAPH": "g",
           "FLOATS": "floats", "INTS": "ints", "STRINGS": "strings", "TENSORS": "tensors",
           "GRAPHS": "graphs", "SPARSE_TENSOR": "sparse_tensor"}
_ONE = ("FLOAT", "INT", "STRING", "TENSOR", "GRAPH", "SPARSE_TENSOR")


def check_message(model: onnx.ModelProto) -> None:
    """ModelError for names that are no text, attributes without a value of their type, opset
    versions nobody defined, negative or absurd extents; UnsupportedError for opsets newer than
    the installed onnx package, for attributes that no tensor operator has and for more nodes than
    compile in reasonable time."""
    _check_count(model)
    _check_text(model)
    for o in model.opset_import:
        if o.domain in ("", "ai.onnx") and o.version > NEWEST and o.version < 1000:
            raise UnsupportedError(f"opset {o.version} is newer than the installed onnx package "
                                   f"knows ({NEWEST}): update it, or export an older opset")
        if not 0 < o.version < 1 << 31:
            raise ModelError(f"opset {o.version} of domain {shorten(o.domain)!r} is no version")
    for function in model.functions:
        for node in function.node:
            _check_node(node, 1)
    _check_graph(model.graph, 1)


def _check_count(model: onnx.ModelProto) -> None:
    """Before anything looks at every node."""
    todo, nodes, names = [model.graph, *model.functions], 0, 0
    while todo:
        part = todo.pop()
        nodes, names = nodes + len(part.node), names + len(part.input) + len(part.output)
        for node in part.node if nodes <= NODES else ():
            names += len(node.input) + len(node.output)
            for a in node.attribute:
                todo += [a.g] if a.HasField("g") else a.graphs
        if nodes > NODES or names > NAMES:
            what = f"{NODES} nodes" if nodes > NODES else f"{NAMES} inputs and outputs of nodes"
            raise UnsupportedError(f"the model has more than {what}: simplify it, or compile parts "
                                   "of it as models of their own")


def _check_text(message: Message) -> None:
    """Protobuf hands out text that is no UTF-8 as bytes."""
    todo = [message]
    while todo:
        for field, value in todo.pop().ListFields():
            if field.type == field.TYPE_MESSAGE:
                todo += value if field.is_repeated else [value]
            elif field.type == field.TYPE_STRING:
                for text in value if field.is_repeated else [value]:
                    if not isinstance(text, str):
                        raise ModelError(f"{field.full_name} holds {bytes(text)[:40]!r}, which is "
                                         "not UTF-8: this is not an ONNX model")


def _check_graph(graph: onnx.GraphProto, depth: int) -> None:
    if depth > DEPTH:
        raise UnsupportedError(f"graph {shorten(graph.name)!r}: more than {DEPTH} sub-graphs "
                               "inside one another")
    for tensor in graph.initializer:
        _check_tensor(tensor, f"initializer {shorten(tensor.name)!r}")
    for sparse in graph.sparse_initializer:
        _check_sparse(sparse, f"sparse initializer {shorten(sparse.values.name)!r}")
    for info in (*graph.input, *graph.output):
        kind = info.type.tensor_type
        if info.type.HasField("tensor_type") and kind.HasField("shape"):
            _check_size([max(d.dim_value, 1) for d in kind.shape.dim], kind.elem_type,
                        f"tensor {shorten(info.name)!r}")
    for node in graph.node:
        _check_node(node, depth)


def _check_node(node: onnx.NodeProto, depth: int) -> None:
    what = f"node {shorten(label_of(node))!r} ({shorten(node.op_type)})"
    for a in node.attribute:
        _check_attribute(a, f"{what}: attribute {shorten(a.name)!r}", depth)


def _check_attribute(a: onnx.AttributeProto, what: str, depth: int) -> None:
    if a.ref_attr_name:
        return  # of a function's body: inlining replaces it
    kind = onnx.AttributeProto.AttributeType.Name(a.type) if (
        a.type in onnx.AttributeProto.AttributeType.values()) else str(a.type)
    if kind == "TYPE_PROTO":
        return  # of an optional: what it may hold
    field = _FIELDS.get(kind)
    if field is None:
        if kind.startswith(("SPARSE", "TYPE")):
            raise UnsupportedError(f"{what} is a {kind}: store it dense, without it")
        raise ModelError(f"{what} has no type")
    if kind in _ONE and not a.HasField(field):
        raise ModelError(f"{what} is a {kind} without a value")
    for tensor in [a.t] if kind == "TENSOR" else a.tensors:
        _check_tensor(tensor, what)
    if kind == "SPARSE_TENSOR":
        _check_sparse(a.sparse_tensor, what)
    for graph in [a.g] if kind == "GRAPH" else a.graphs:
        _check_graph(graph, depth + 1)


def _check_sparse(sparse: onnx.SparseTensorProto, what: str) -> None:
    for tensor in (sparse.values, sparse.indices):
        _check_tensor(tensor, what)
    _check_size(sparse.dims, sparse.values.data_type, what)


def _check_tensor(tensor: onnx.TensorProto, what: str) -> None:
    if any(d < 0 for d in tensor.dims):
        raise ModelError(f"{what} has a negative extent: {list(tensor.dims)}")
    _check_size(tensor.dims, tensor.data_type, what)


def _check_size(dims: Sequence[int], elem_type: int, what: str) -> None:
    """Extents multiply to something that fits a machine, and are few enough for loops."""
    if len(dims) > RANK:
        raise UnsupportedError(f"{what} has {len(dims)} dimensions; reshape it to at most {RANK}")
    size = 1
    for d in dims:
        size *= max(1, d)
        if size > LARGEST:
            raise ModelError(f"{what} has the shape {list(dims)}, more than {LARGEST >> 40} TB: no "
                             "machine holds it")
    if elem_type not in onnx.TensorProto.DataType.values():
        raise ModelError(f"{what} has the dtype {elem_type}, which ONNX does not define")
