"""ModelProto -> Graph: nodes and constants as plain data, and every extent named and bounded."""

from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import numpy_helper

from aotc.errors import ModelError, UnsupportedError
from aotc.frontend.convert import build, check_supported
from aotc.frontend.dims import Dims
from aotc.frontend.expand import expand_functions, modernised, without_negative_extents
from aotc.frontend.graph import Body, Graph, Node, TensorType, listed, shorten
from aotc.frontend.read_types import dtype_name, elem_name
from aotc.ir.dtypes import DTYPES, dtype_of
from aotc.ir.expr import Const

_NESTING = 32  # sub-graphs within sub-graphs
_ROUNDS = 4  # trial builds until the ranges of symbols stand still


def read_graph(model, dims=None, name=None):
    """The Graph of an ``onnx.ModelProto``.

    dims: {dimension name: extent | (lo, hi)}; an extent makes the dimension static.  Ranges that
    are not given are 1..64 for a batch, else 1..2048, narrowed by what the model does with them;
    ``Graph.dims`` says which is which.  Raises ModelError for a model that contradicts itself or
    ``dims``, UnsupportedError for operators and dtypes aotc does not compile.
    """
    raw = _read(expand_functions(modernised(without_negative_extents(model))), name)
    table = Dims(raw.inputs, dims or {})
    for _ in range(_ROUNDS):
        graph = _typed_inputs(raw.graph, raw.inputs, table)
        check_supported(graph)
        trial = build(graph, trial=True)
        narrowed = table.narrow(trial.limits, trial.equal)
        if narrowed == table:
            break
        table = narrowed
    types = {k: (v.dtype, v.shape) for k, v in trial.env.items()}
    return replace(graph, types=types)


@dataclass(frozen=True)
class _Raw:
    graph: Graph
    inputs: tuple  # (name, dtype, dims as int | str | None)


def _typed_inputs(graph, inputs, table):
    typed = tuple(TensorType(n, dtype, table.shape(n)) for n, dtype, _ in inputs)
    return replace(graph, inputs=typed, dims=table.ranges,
                   types={t.name: (t.dtype, t.shape) for t in typed} | {
                       k: (dtype_of(a), tuple(map(Const, a.shape)))
                       for k, a in graph.initializers.items()})


def _read(model, name):
    g = model.graph
    opset = _opsets(model)
    faults = []
    nodes, constants = _contents(g, opset, faults)
    inputs = tuple(_input(i, faults) for i in g.input if i.name not in constants)
    if faults:
        raise UnsupportedError("this model holds what aotc does not compile:\n"
                               + listed(faults))
    used = _used(nodes, g)
    constants = {k: a for k, a in constants.items() if k in used}
    outputs = tuple(o.name for o in g.output)
    nodes = _ordered(nodes, {i[0] for i in inputs} | set(constants), outputs)
    graph = Graph(name or g.name or "model", nodes, (), outputs, constants, opset,
                  declared=_declared(g), elements=_elements(g))
    return _Raw(graph, inputs)


def _contents(g, opset, faults, depth=0):
    """(nodes in the file's order, {name: array} of the constants) of a graph or sub-graph."""
    constants, nodes = {}, []
    for proto in g.node:
        if proto.op_type == "Constant" and proto.domain in ("", "ai.onnx"):
            if len(proto.output) != 1:
                raise ModelError(f"node {shorten(proto.name)!r} (Constant): {len(proto.output)} "
                                 "outputs, it must have one")
            constants[proto.output[0]] = _constant(proto, faults)
        else:
            nodes.append(_node(proto, opset, faults, depth))
    if g.sparse_initializer:
        faults.append("sparse initializers: store them dense")
    used = _used(nodes, g) | {i.name for i in g.input}
    for t in g.initializer:
        if t.name in used:
            constants[t.name] = _array(t, f"initializer {shorten(t.name)!r}", faults)
    return nodes, constants


def _used(nodes, g):
    return {i for n in nodes for i in (*n.inputs, *n.captures)} | {o.name for o in g.output}


def _body(g, opset, faults, depth):
    """A sub-graph as a Body; what it reads from outside is resolved where it is built."""
    if depth > _NESTING:
        raise ModelError(f"sub-graphs are nested more than {_NESTING} deep")
    nodes, constants = _contents(g, opset, faults, depth)
    inputs, outputs = tuple(i.name for i in g.input), tuple(o.name for o in g.output)
    made = {o for n in nodes for o in n.outputs} | set(inputs) | set(constants)
    read = dict.fromkeys(i for n in nodes for i in (*n.inputs, *n.captures))
    captures = tuple(i for i in (*read, *outputs) if i and i not in made)
    nodes = _ordered(nodes, set(inputs) | set(constants) | set(captures), outputs)
    return Body(inputs, outputs, nodes, constants, captures, tuple(map(_output_type, g.output)))


def _output_type(info):
    kind = info.type.tensor_type
    name = dtype_name(kind.elem_type)
    dims = [d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim]
    known = kind.HasField("shape") and None not in dims
    return DTYPES[name].numpy if name else None, tuple(dims) if known else None


def _declared(g):
    """{tensor: extents} where the model states all of them in numbers."""
    out = {}
    for info in (*g.value_info, *g.output):
        kind = info.type.tensor_type
        if kind.HasField("shape") and all(d.HasField("dim_value") for d in kind.shape.dim):
            out[info.name] = tuple(d.dim_value for d in kind.shape.dim)
    return out


def _elements(g):
    """{output: dtype} where the model states one that aotc has."""
    stated = {o.name: dtype_name(o.type.tensor_type.elem_type) for o in g.output}
    return {name: dtype for name, dtype in stated.items() if dtype}


def _opsets(model):
    out = {}
    for o in model.opset_import:
        domain = "" if o.domain == "ai.onnx" else o.domain
        out[domain] = o.version
    return out


# ---------------------------------------------------------------- nodes

def _node(proto, opset, faults, depth=0):
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    label = proto.name or f"{proto.op_type}_{next((o for o in proto.output if o), '')}"
    if domain not in opset:
        op = shorten(proto.op_type)
        faults.append(f"node {shorten(label)!r} ({op}): the model imports no opset for "
                      f"domain {shorten(domain)!r}: add the opset import")
    version = opset.get(domain, 1)
    attrs = {a.name: _body(a.g, opset, faults, depth + 1) if a.type == _GRAPH
             else _attribute(a, label, proto.op_type, faults) for a in proto.attribute}
    if onnx.defs.has(proto.op_type, version, domain):
        _check_schema(proto, onnx.defs.get_schema(proto.op_type, version, domain),
                      f"node {shorten(label)!r} ({proto.op_type}, opset {version})", faults)
    return Node(proto.op_type, domain, tuple(proto.input), tuple(proto.output), attrs,
                proto.name, version)


def _check_schema(proto, schema, what, faults):
    """Unknown attributes are faults; too few inputs or missing attributes raise ModelError."""
    kinds = {a.name: a.type for a in proto.attribute}
    faults += [f"{what}: unknown attribute {shorten(a)!r}: remove it"
               for a in sorted(set(kinds) - set(schema.attributes))]
    for a in schema.attributes.values():
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


def _attribute(a, label, op, faults):
    """Python value of an attribute: int, float, str, numpy array, or a tuple of them."""
    what = f"node {shorten(label)!r} ({shorten(op)}): attribute {shorten(a.name)!r}"
    if a.type == onnx.AttributeProto.GRAPHS:
        faults.append(f"{what} is a list of sub-graphs: no standard operator has one")
        return None
    if a.type in _TENSORS:
        return _array(a.t, what, faults)
    value = onnx.helper.get_attribute_value(a)
    if a.type in _STRINGS:
        texts = [value] if isinstance(value, bytes) else list(value)
        texts = tuple(t.decode("utf-8", "replace") for t in texts)
        return texts[0] if isinstance(value, bytes) else texts
    return value if isinstance(value, (int, float)) else tuple(value)


def _constant(proto, faults):
    """The array of a Constant node; what cannot be one is a fault."""
    a = proto.attribute[0] if len(proto.attribute) == 1 else None
    kinds = {"value_int": np.int64, "value_ints": np.int64,
             "value_float": np.float32, "value_floats": np.float32}
    label = proto.name or f"Constant_{next(iter(proto.output), '')}"
    if a is not None and a.name == "value":
        return _array(a.t, f"node {shorten(label)!r} (Constant)", faults)
    if a is not None and a.name in kinds:
        return np.array(onnx.helper.get_attribute_value(a), dtype=kinds[a.name])
    faults.append(f"node {shorten(label)!r} (Constant): no dense numeric value: make it one")
    return np.zeros((), np.float32)


def _array(tensor, what, faults):
    """A tensor as a numpy array of a supported dtype; else a fault and a placeholder that is
    never used, since faults are raised before anything is built."""
    if dtype_name(tensor.data_type):
        try:
            return numpy_helper.to_array(tensor)
        except (ValueError, TypeError) as err:
            raise ModelError(f"{what}: its data does not fit its shape: {err}") from None
    faults.append(f"{what} has dtype {elem_name(tensor.data_type)}: convert the model to "
                  f"{', '.join(DTYPES)}")
    return np.zeros((), np.float32)


# ---------------------------------------------------------------- inputs and order

def _input(info, faults):
    what = f"input {shorten(info.name)!r}"
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        faults.append(f"{what} is a {kind}: only tensors can be inputs")
        return info.name, "f32", ()
    t = info.type.tensor_type
    if not dtype_name(t.elem_type):
        faults.append(f"{what} has dtype {elem_name(t.elem_type)}: convert "
                      f"the model to {', '.join(DTYPES)}")
    if not t.HasField("shape"):
        faults.append(f"{what} has no shape: declare its rank (dimensions may be names)")
    dims = []
    for d in t.shape.dim:
        kind = d.WhichOneof("value")
        value = d.dim_value if kind == "dim_value" else d.dim_param or None
        if isinstance(value, int) and value < 0:
            value = None  # some exporters write -1 for "any"
        dims.append(value)
    return info.name, dtype_name(t.elem_type) or "f32", tuple(dims)


def _ordered(nodes, known, outputs):
    """Nodes in topological order, stable; those that no output needs are dropped."""
    makers = {}
    for n in nodes:
        for o in n.outputs:
            if o and (o in makers or o in known):
                raise ModelError(f"tensor {shorten(o)!r} is written twice (second by node "
                                 f"{shorten(n.label)!r}): a model must be in SSA form")
            if o:
                makers[o] = n
    order, state = [], {}
    for out in outputs:
        if out not in makers and out not in known:
            raise ModelError(f"output {shorten(out)!r} is produced by no node and is no input")
        _visit(makers.get(out), makers, known, state, order)
    position = {id(n): k for k, n in enumerate(nodes)}
    rank = {id(n): k for k, n in enumerate(order)}
    in_order = all(position[id(makers[i])] < position[id(n)] for n in order
                   for i in (*n.inputs, *n.captures) if i in makers)
    return tuple(sorted(order, key=lambda n: (position if in_order else rank)[id(n)]))


def _visit(node, makers, known, state, order):
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


