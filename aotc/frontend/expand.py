"""Models brought into the form that the operators' functions know: old opsets are converted, and
operators that the ONNX standard defines by other operators are replaced by that definition where
aotc has no implementation of its own."""

import onnx
from onnx import inliner, shape_inference, version_converter

from aotc.errors import ModelError, UnsupportedError
from aotc.frontend.registry import lookup

OLDEST = 7  # the opset from which on elementwise operators broadcast as numpy does
_LIMIT = 1 << 31  # protobuf cannot serialise more, and the expansion has to
_OWN = "aotc.definition"  # domain of definitions made for one node
_DEPTH = 4  # definitions that use operators with definitions


def without_negative_extents(model):
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


def _extents(graph):
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


def modernised(model):
    """The model in opset 7 or newer; the same object if it is.  UnsupportedError where the
    converter of the onnx package gives up."""
    version = _opsets(model).get("", OLDEST)
    if version >= OLDEST:
        return model
    try:
        return version_converter.convert_version(_with_channel_slopes(model), OLDEST)
    except (RuntimeError, ValueError, TypeError, IndexError, version_converter.ConvertError,
            shape_inference.InferenceError) as err:
        reason = (str(err).strip().splitlines() or ["no reason given"])[-1]
        raise UnsupportedError(f"opset {version} is older than {OLDEST} and cannot be converted "
                               f"({reason}): export the model in a newer opset") from None


def _with_channel_slopes(model):
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


def expand_functions(model):
    """The model with such operators expanded; the same object if there are none."""
    for _ in range(_DEPTH):
        expanded = _expand(model)
        if expanded is model:
            break
        model = expanded
    return model


def _opsets(model):
    return {"" if o.domain == "ai.onnx" else o.domain: o.version for o in model.opset_import}


def _expand(model):
    opset = _opsets(model)
    wanted = sorted({(n.domain, n.op_type) for n in _nodes(model.graph)
                     if _has_definition(n, opset)})
    if not wanted or model.ByteSize() >= _LIMIT:
        return model
    typed = _typed(model)  # some definitions depend on input types
    for node in _nodes(typed.graph):
        if (node.domain, node.op_type) in wanted:
            _add_defaults(node, _schema(node, opset))
    typed = _with_own_definitions(typed, opset)
    wanted = sorted({(n.domain, n.op_type) for n in _nodes(typed.graph)
                     if _has_definition(n, opset)})
    if not wanted:
        return typed
    try:
        return inliner.inline_selected_functions(typed, wanted, inline_schema_functions=True)
    except RuntimeError:  # a definition needs a type that is unknown: the operator stays as it is,
        return model      # and is reported with all others that have no implementation


def _with_own_definitions(model, opset):
    """Nodes that leave out an input in the middle, whose type the inliner would ask for: each gets
    its definition as a function of the model, which is inlined."""
    types = {i.name: i.type for i in (*model.graph.input, *model.graph.value_info)}
    for t in model.graph.initializer:
        types[t.name] = onnx.helper.make_tensor_type_proto(t.data_type, t.dims)
    for node in model.graph.node:
        if not _has_definition(node, opset) or "" not in node.input or any(
                i and i not in types for i in node.input):
            continue
        schema = _schema(node, opset)
        if not schema.has_context_dependent_function:
            continue
        given = [types[i] if i else onnx.TypeProto() for i in node.input]
        text = schema.get_context_dependent_function(
            node.SerializeToString(), [t.SerializeToString() for t in given])
        made = onnx.FunctionProto.FromString(text)
        made.name, made.domain = f"{node.op_type}_{len(model.functions)}", _OWN
        model.functions.append(made)
        node.op_type, node.domain = made.name, made.domain
    if not model.functions:
        return model
    model.opset_import.append(onnx.helper.make_opsetid(_OWN, 1))
    return inliner.inline_local_functions(model)


def _nodes(graph):
    """Every node of a graph and of its sub-graphs."""
    for node in graph.node:
        yield node
        for a in node.attribute:
            if a.HasField("g"):
                yield from _nodes(a.g)


def _add_defaults(node, schema):
    """Attributes left at their default, stated: definitions refer to them by name."""
    given = {a.name for a in node.attribute}
    node.attribute.extend(a.default_value for a in schema.attributes.values()
                          if a.name not in given and a.default_value.name)


def _schema(node, opset):
    domain = "" if node.domain == "ai.onnx" else node.domain
    return onnx.defs.get_schema(node.op_type, opset.get(domain, 1), domain)


def _has_definition(node, opset):
    domain = "" if node.domain == "ai.onnx" else node.domain
    version = opset.get(domain, 1)
    if lookup(domain, node.op_type, version) or not onnx.defs.has(node.op_type, version, domain):
        return False
    schema = _schema(node, opset)
    return schema.has_function or schema.has_context_dependent_function


def _typed(model):
    """The model with inferred types; ModelError where they contradict each other."""
    try:
        return shape_inference.infer_shapes(model)
    except (shape_inference.InferenceError, RuntimeError, ValueError, MemoryError) as err:
        reason = (str(err).splitlines() or [type(err).__name__])[0]
        raise ModelError("the types of the model's tensors cannot be inferred: "
                         f"{reason[:300]}") from None
