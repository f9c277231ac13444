"""Messages of nodes -> Nodes and constants.  Calls of the model's own functions are replaced by the
functions' nodes on the way (expand.py)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from aotc.errors import ModelError
from aotc.frontend.graph import Body, Node, label_of, shorten
from aotc.frontend.read.expand import Fresh, Key, body_of, has_definition, key_of, opsets_of
from aotc.frontend.read.mapped import array_of, stays_in_file
from aotc.frontend.read.read_types import codes_of, dtype_name, elem_name, stored_name
from aotc.frontend.read.sparse import make_dense
from aotc.ir.dtypes import DTYPES, TEXT, Array

_NESTING = 32  # sub-graphs within sub-graphs
_ONE_VERSION = ("com.microsoft",)  # domains that optimisers write without an import


@dataclass(frozen=True)
class Reader:
    """What reading nodes goes by: ``opset`` {domain: version} where they stand, ``functions`` of
    the model {key_of: message}, ``fresh`` names for what functions make; and what it leaves behind:
    ``faults``, ``infos``, declared types inside functions and sub-graphs, and ``stored``, which
    constants are bits of which type that is stored only; ``texts`` of its strings, with their
    places."""

    opset: dict[str, int]
    functions: dict[Key, onnx.FunctionProto] = field(default_factory=dict)
    fresh: Fresh | None = None
    faults: list[str] = field(default_factory=list)
    infos: list[onnx.ValueInfoProto] = field(default_factory=list)
    stored: dict[str, str] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)


def reader_of(model: onnx.ModelProto) -> Reader:
    """The Reader for a model's main graph."""
    functions = {key_of(f, f.name): f for f in model.functions}
    return Reader(opsets_of(model), functions, Fresh(_names(model.graph)) if functions else None)


def _names(graph: onnx.GraphProto) -> set[str]:
    """Every name of a tensor in a graph and its sub-graphs."""
    out = {i.name for i in (*graph.input, *graph.output, *graph.initializer)}
    out.update(t.values.name for t in graph.sparse_initializer)
    for node in graph.node:
        out.update(node.output)
        for a in node.attribute:
            for sub in ([a.g] if a.HasField("g") else []) + list(a.graphs):
                out |= _names(sub)
    return out


def contents(g: onnx.GraphProto, reader: Reader,
             depth: int = 0) -> tuple[list[Node], dict[str, Array]]:
    """(nodes in the file's order, {name: array} of the constants) of a graph or sub-graph."""
    constants: dict[str, Array] = {}
    nodes: list[Node] = []
    for proto in g.node:
        _read_node(proto, reader, depth, nodes, constants)
    used = used_names(nodes, g) | {i.name for i in g.input}
    for t in g.initializer:
        if t.name in used:
            constants[t.name] = _constant_array(t, t.name, f"initializer {shorten(t.name)!r}",
                                                reader)
    for sparse in g.sparse_initializer:
        name = sparse.values.name
        if name in used:
            reader.stored.pop(name, None)
            constants[name] = make_dense(sparse, f"sparse initializer {shorten(name)!r}")
    return nodes, constants


def _read_node(proto: onnx.NodeProto, reader: Reader, depth: int, nodes: list[Node],
               constants: dict[str, Array]) -> None:
    """Enter what a message of a node says: a constant, a Node, or those of the function that it
    calls."""
    function = reader.functions.get(key_of(proto, proto.op_type))
    if function is not None:
        assert reader.fresh is not None, function.name  # there is one where there are functions
        body, infos = body_of(function, proto, reader.fresh)
        inner = replace(reader, opset={**reader.opset, **opsets_of(function)})
        reader.infos.extend(infos)
        for part in body:
            _read_node(part, inner, depth, nodes, constants)
    elif proto.op_type == "Constant" and proto.domain in ("", "ai.onnx"):
        if len(proto.output) != 1:
            raise ModelError(f"node {shorten(label_of(proto))!r} (Constant): {len(proto.output)} "
                             "outputs, it must have one")
        constants[proto.output[0]] = _constant(proto, reader)
    else:
        nodes.append(_node(proto, reader, depth))


def used_names(nodes: Iterable[Node], g: onnx.GraphProto) -> set[str]:
    return {i for n in nodes for i in (*n.inputs, *n.captures)} | {o.name for o in g.output}


def _body(g: onnx.GraphProto, reader: Reader, depth: int) -> Body:
    """A sub-graph as a Body; what it reads from outside is resolved where it is built."""
    if depth > _NESTING:
        raise ModelError(f"sub-graphs are nested more than {_NESTING} deep")
    found, constants = contents(g, reader, depth)
    reader.infos.extend((*g.value_info, *g.output))
    reader.faults.extend(f"output {shorten(o.name)!r} of a sub-graph has dtype "
                         f"{elem_name(o.type.tensor_type.elem_type)}: convert it to float there"
                         for o in g.output if stored_name(o.type.tensor_type.elem_type))
    inputs, outputs = tuple(i.name for i in g.input), tuple(o.name for o in g.output)
    made = {o for n in found for o in n.outputs} | set(inputs) | set(constants)
    read = dict.fromkeys(i for n in found for i in (*n.inputs, *n.captures))
    captures = tuple(i for i in (*read, *outputs) if i and i not in made)
    nodes = order_nodes(found, set(inputs) | set(constants) | set(captures), outputs)
    return Body(inputs, outputs, nodes, constants, captures, tuple(map(_output_type, g.output)),
                {k: reader.stored[k] for k in constants if k in reader.stored})


def _output_type(info: onnx.ValueInfoProto) -> tuple[np.dtype[Any] | None, tuple[int, ...] | None]:
    kind = info.type.tensor_type
    name = dtype_name(kind.elem_type)
    dims = [d.dim_value for d in kind.shape.dim if d.HasField("dim_value") and d.dim_value >= 0]
    known = kind.HasField("shape") and len(dims) == len(kind.shape.dim)
    return DTYPES[name].numpy if name else None, tuple(dims) if known else None


# ---------------------------------------------------------------- nodes

def _node(proto: onnx.NodeProto, reader: Reader, depth: int = 0) -> Node:
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    label = label_of(proto)
    if domain not in reader.opset and domain not in _ONE_VERSION:
        op = shorten(proto.op_type)
        reader.faults.append(f"node {shorten(label)!r} ({op}): the model imports no opset for "
                             f"domain {shorten(domain)!r}: add the opset import")
    version, faults = reader.opset.get(domain, 1), reader.faults
    attrs = {a.name: _body(a.g, reader, depth + 1) if a.type == _GRAPH
             else _attribute(a, label, proto.op_type, faults) for a in proto.attribute}
    if onnx.defs.has(proto.op_type, version, domain):
        _check_schema(proto, onnx.defs.get_schema(proto.op_type, version, domain),
                      f"node {shorten(label)!r} ({proto.op_type}, opset {version})", faults)
    defined = has_definition(domain, proto.op_type, version)
    return Node(proto.op_type, domain, tuple(proto.input), tuple(proto.output), attrs,
                proto.name, version, proto=proto if defined else None)


def _check_schema(proto: onnx.NodeProto, schema: onnx.defs.OpSchema, what: str,
                  faults: list[str]) -> None:
    """Unknown attributes are faults; too few inputs or missing attributes raise ModelError."""
    kinds = {a.name: a.type for a in proto.attribute}
    faults += [f"{what}: unknown attribute {shorten(a)!r}: remove it"
               for a in sorted(set(kinds) - set(schema.attributes))]
    attributes: Mapping[str, Any] = schema.attributes  # whose stub lacks the values of enums
    for a in attributes.values():
        if a.required and a.name not in kinds:
            raise ModelError(f"{what}: attribute {a.name!r} is missing")
        if a.name in kinds and int(kinds[a.name]) != int(a.type.value):
            raise ModelError(f"{what}: attribute {a.name!r} has the wrong type")
    if not schema.min_input <= len(proto.input) <= schema.max_input:
        raise ModelError(f"{what}: {len(proto.input)} inputs, expected {schema.min_input} to "
                         f"{schema.max_input}")
    if not 1 <= len(proto.output) <= schema.max_output:
        raise ModelError(f"{what}: {len(proto.output)} outputs, at most {schema.max_output} "
                         "are defined")
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    for formal, name in zip(schema.inputs, proto.input):
        if not name and formal.option != optional:
            raise ModelError(f"{what}: input {formal.name!r} is missing")


_GRAPH = onnx.AttributeProto.GRAPH
_TENSORS = (onnx.AttributeProto.TENSOR,)
_STRINGS = (onnx.AttributeProto.STRING, onnx.AttributeProto.STRINGS)


def _attribute(a: onnx.AttributeProto, label: str, op: str, faults: list[str]) -> Any:
    """Python value of an attribute: int, float, str, numpy array, or a tuple of them."""
    what = f"node {shorten(label)!r} ({shorten(op)}): attribute {shorten(a.name)!r}"
    if a.type == onnx.AttributeProto.GRAPHS:
        faults.append(f"{what} is a list of sub-graphs: no standard operator has one")
        return None
    if a.type in _TENSORS and a.t.data_type == onnx.TensorProto.STRING:
        return tuple(t.decode("utf-8", "replace") for t in a.t.string_data)
    if a.type in _TENSORS:
        return _array(a.t, what, faults)
    if a.type == onnx.AttributeProto.SPARSE_TENSOR:
        return make_dense(a.sparse_tensor, what)
    if a.type == onnx.AttributeProto.TYPE_PROTO:
        return None  # of an optional: what it may hold
    value = onnx.helper.get_attribute_value(a)
    if a.type in _STRINGS:
        raw = [value] if isinstance(value, bytes) else list(value)
        texts = tuple(t.decode("utf-8", "replace") for t in raw)
        return texts[0] if isinstance(value, bytes) else texts
    return value if isinstance(value, (int, float)) else tuple(value)


def _constant(proto: onnx.NodeProto, reader: Reader) -> Array:
    """The array of a Constant node; what cannot be one is a fault."""
    a = proto.attribute[0] if len(proto.attribute) == 1 else None
    kinds = {"value_int": np.int64, "value_ints": np.int64,
             "value_float": np.float32, "value_floats": np.float32}
    label = label_of(proto)
    if a is not None and a.name == "value":
        return _constant_array(a.t, proto.output[0], f"node {shorten(label)!r} (Constant)", reader)
    if a is not None and a.name == "sparse_value":
        return make_dense(a.sparse_tensor, f"node {shorten(label)!r} (Constant)")
    if a is not None and a.name in ("value_string", "value_strings"):
        one = a.name == "value_string"
        reader.stored[proto.output[0]] = TEXT
        return _places_of(reader, [a.s] if one else a.strings, () if one else (len(a.strings),),
                          f"node {shorten(label)!r} (Constant)")
    if a is not None and a.name in kinds:
        return np.array(onnx.helper.get_attribute_value(a), dtype=kinds[a.name])
    reader.faults.append(f"node {shorten(label)!r} (Constant): no value: give it one")
    return np.zeros((), np.float32)


def _constant_array(tensor: onnx.TensorProto, name: str, what: str, reader: Reader) -> Array:
    """``_array`` of a constant, which may be of a type that is stored only: then its bits."""
    stored = stored_name(tensor.data_type)
    reader.stored.pop(name, None)
    if stored is None:
        return _array(tensor, what, reader.faults)
    reader.stored[name] = stored
    if stored == TEXT:
        return _places_of(reader, tensor.string_data, tuple(tensor.dims), what)
    try:
        return codes_of(tensor, stored)
    except ValueError as err:
        raise ModelError(f"{what}: its data does not fit its shape: {err}") from None


def _places_of(reader: Reader, texts: Iterable[bytes], shape: tuple[int, ...],
               what: str) -> Array:
    """Strings as their places in the table of texts."""
    found = [reader.texts.setdefault(t.decode("utf-8", "replace"), len(reader.texts))
             for t in texts]
    if len(found) != int(np.prod(shape, dtype=np.int64)):
        raise ModelError(f"{what}: its data does not fit its shape: {len(found)} strings")
    return np.array(found, np.int64).reshape(shape)


def _array(tensor: onnx.TensorProto, what: str, faults: list[str]) -> Array:
    """A tensor as a numpy array of a supported dtype; else a fault and a placeholder that is
    never used, since faults are raised before anything is built."""
    if dtype_name(tensor.data_type):
        try:
            return array_of(tensor) if stays_in_file(tensor) else numpy_helper.to_array(tensor)
        except (ValueError, TypeError) as err:
            raise ModelError(f"{what}: its data does not fit its shape: {err}") from None
    faults.append(f"{what} has dtype {elem_name(tensor.data_type)}: convert the model to "
                  f"{', '.join(DTYPES)}")
    return np.zeros((), np.float32)


def order_nodes(nodes: Sequence[Node], known: Collection[str],
                outputs: Iterable[str]) -> tuple[Node, ...]:
    """Nodes in topological order, stable; those that no output needs are dropped."""
    makers = {}
    for n in nodes:
        for o in n.outputs:
            if o and (o in makers or o in known):
                raise ModelError(f"tensor {shorten(o)!r} is written twice (second by node "
                                 f"{shorten(n.label)!r}): a model must be in SSA form")
            if o:
                makers[o] = n
    order: list[Node] = []
    state: dict[int, int] = {}
    for out in outputs:
        if out not in makers and out not in known:
            raise ModelError(f"output {shorten(out)!r} is produced by no node and is no input")
        _visit(makers.get(out), makers, known, state, order)
    position = {id(n): k for k, n in enumerate(nodes)}
    rank = {id(n): k for k, n in enumerate(order)}
    in_order = all(position[id(makers[i])] < position[id(n)] for n in order
                   for i in (*n.inputs, *n.captures) if i in makers)
    return tuple(sorted(order, key=lambda n: (position if in_order else rank)[id(n)]))


def _visit(node: Node | None, makers: Mapping[str, Node], known: Collection[str],
           state: dict[int, int], order: list[Node]) -> None:
    """Depth-first without recursion: models are deeper than Python's stack."""
    stack = [(node, False)] if node is not None else []
    while stack:
        n, done = stack.pop()
        if done:
            state[id(n)] = 2
            order.append(n)
            continue
        if state.get(id(n)) == 2:
            continue
        if state.get(id(n)) == 1:
            raise ModelError(f"the graph has a cycle through node {shorten(n.label)!r}")
        state[id(n)] = 1
        stack.append((n, True))
        for i in reversed((*n.inputs, *n.captures)):
            if i and i not in known and i not in makers:
                raise ModelError(f"node {shorten(n.label)!r} ({shorten(n.op)}) reads "
                                 f"{shorten(i)!r}, which no node, input or initializer provides")
            if i in makers and state.get(id(makers[i])) != 2:
                stack.append((makers[i], False))
