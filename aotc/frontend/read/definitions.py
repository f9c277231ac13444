"""Operators that are compiled through their definition in the ONNX standard: a function, for many
of them one that depends on the types of the inputs, so it is asked for where those are known."""

from dataclasses import replace

import onnx

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.values import Value
from aotc.frontend.graph import Body, Node
from aotc.frontend.read.expand import Fresh, body_of, definition_of, opsets_of
from aotc.frontend.read.read_nodes import Reader, contents, order_nodes
from aotc.frontend.read.read_types import type_proto

_INSTEAD = "write it as the operators that it stands for"


def build_by_definition(node: Node, b: Builder) -> tuple[Value | None, ...]:
    """The node's Vals; the nodes of its definition are built in its place, and messages about them
    begin with its name.  UnsupportedError where there is no definition for its inputs."""
    assert node.proto is not None, node  # what is compiled by its definition has its message
    kinds = [b"" if v is None else type_proto(v.stored or v.dtype, v.shape).SerializeToString()
             for v in b.args()]
    try:
        function = definition_of(node.proto, node.domain, node.opset, kinds)
    except (RuntimeError, ValueError, TypeError, IndexError) as err:
        reason = (str(err).strip().splitlines() or [type(err).__name__])[0]
        raise b.unsupported(f"its definition in the standard fails ({reason[:200]})",
                            _INSTEAD) from None
    if function is None:
        raise b.unsupported("the standard does not define it for these inputs", _INSTEAD)
    body = _body(function, node.proto, node, b)
    made = b.inline(body, (), made=body.outputs)
    by_name = dict(zip((o for o in node.outputs if o), made, strict=True))
    return tuple(by_name.get(o) for o in node.outputs)


def _body(function: onnx.FunctionProto, message: onnx.NodeProto, node: Node, b: Builder) -> Body:
    """The definition as a Body without inputs, in the names of the node's own tensors."""
    call = onnx.NodeProto()
    call.CopyFrom(message)
    call.name = node.label
    call.input[:], call.output[:] = node.inputs, node.outputs
    protos, _ = body_of(function, call, Fresh([*b.env, *b.preset]))
    reader = Reader({**b.graph.opset, **opsets_of(function)})
    found, constants = contents(onnx.GraphProto(node=protos), reader)
    if reader.faults:
        raise b.unsupported(f"its definition holds what is not compiled ({reader.faults[0]})",
                            _INSTEAD)
    outputs = tuple(o for o in node.outputs if o)
    origin = node.origin or (node.label,)
    known = {*(i for i in node.inputs if i), *constants}
    nodes = tuple(replace(n, origin=origin) for n in order_nodes(found, known, outputs))
    return Body((), outputs, nodes, constants)
