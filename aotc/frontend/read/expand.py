"""Nodes that stand for others: calls of the model's own functions, and operators without an
implementation here that the ONNX standard defines by other operators.  Either is a function whose
body takes the place of the node, message by message, so no model is ever copied or serialised as a
whole."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import onnx

from aotc.errors import ModelError
from aotc.frontend.building.registry import lookup
from aotc.frontend.graph import label_of, shorten

Key = tuple[str, str, str]  # domain, name and overload of a function


class Fresh:
    """Gives names that are not among ``taken`` and were not given before."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = set(taken)

    def __call__(self, text: str) -> str:
        name, number = text, 1
        while name in self.taken:
            number += 1
            name = f"{text}_{number}"
        self.taken.add(name)
        return name


def opsets_of(message: onnx.FunctionProto | onnx.ModelProto) -> dict[str, int]:
    """{domain: version} that a model or a function imports."""
    return {"" if o.domain == "ai.onnx" else o.domain: o.version for o in message.opset_import}


def key_of(message: onnx.FunctionProto | onnx.NodeProto, name: str) -> Key:
    """What a node and the function that it calls have in common."""
    domain = "" if message.domain == "ai.onnx" else message.domain
    return domain, name, message.overload


# ---------------------------------------------------------------- definitions of the standard

def has_definition(domain: str, op: str, version: int) -> bool:
    """True for an operator that has no implementation here but a definition in the standard."""
    if lookup(domain, op, version) or not onnx.defs.has(op, version, domain):
        return False
    schema: Any = onnx.defs.get_schema(op, version, domain)  # whose stub lacks its functions
    return bool(schema.has_function or schema.has_context_dependent_function)


def definition_of(call: onnx.NodeProto, domain: str, version: int,
                  kinds: Sequence[bytes]) -> onnx.FunctionProto | None:
    """The function that defines the node ``call`` for inputs of the types ``kinds`` (serialised
    TypeProtos, an empty one for an input left out); None where the standard has none for them."""
    schema: Any = onnx.defs.get_schema(call.op_type, version, domain)
    node = onnx.NodeProto()
    node.CopyFrom(call)
    given = {a.name for a in node.attribute}
    node.attribute.extend(a.default_value for a in schema.attributes.values()
                          if a.name not in given and a.default_value.name)
    count = itertools.count()
    for a in node.attribute:  # the standard writes sub-graphs as text, which has plain names only
        if a.HasField("g"):
            _Renamed("", {}, lambda text: f"t{next(count)}").graph(a.g, {})
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= version]
    text = versions and schema.get_context_dependent_function_with_opset_version(
        max(versions), node.SerializeToString(), kinds)
    if not text:
        versions = [v for v in schema.function_opset_versions if v <= version]
        text = versions and schema.get_function_with_opset_version(max(versions))
    if not text:
        return None
    function: onnx.FunctionProto = onnx.FunctionProto.FromString(text)
    stated = {a.name for a in function.attribute_proto}
    function.attribute_proto.extend(a for a in node.attribute if a.name not in stated)
    return function


# ---------------------------------------------------------------- bodies

def body_of(function: onnx.FunctionProto, call: onnx.NodeProto,
            fresh: Callable[[str], str]) -> tuple[list[onnx.NodeProto], list[onnx.ValueInfoProto]]:
    """(nodes, types): the messages of a function's body that take the place of the node ``call``.

    Tensors of the call keep their names, all others get names from ``fresh``; attributes that refer
    to the function's are replaced, or left out where neither the call nor the function states them.
    ``types``: what the function declares of its tensors, renamed.  ModelError for more inputs or
    outputs than the function has.
    """
    label = label_of(call)
    if len(call.input) > len(function.input) or len(call.output) > len(function.output):
        raise ModelError(f"node {shorten(label)!r} ({shorten(call.op_type)}): {len(call.input)} "
                         f"inputs and {len(call.output)} outputs, its function has "
                         f"{len(function.input)} and {len(function.output)}")
    attributes = {a.name: a for a in (*function.attribute_proto, *call.attribute)}
    names = dict.fromkeys(function.input, "") | dict(zip(function.input, call.input)) | {"": ""}
    nodes, copies = [], []
    for formal, actual in zip(function.output, call.output):
        if formal in names and actual:  # an input, or an output that is listed twice
            copies.append(onnx.helper.make_node("Identity", [names[formal]], [actual],
                                                name=f"{label}/{actual}"))
        elif actual:
            names[formal] = actual
    renamed = _Renamed(label, attributes, fresh)
    renamed.enter((o for n in function.node for o in n.output), names)
    nodes = [renamed.node(n, names) for n in function.node] + copies
    return nodes, [renamed.info(i, names) for i in function.value_info if i.name in names]


class _Renamed:
    """Copies of messages in a body with other names and attributes."""

    def __init__(self, label: str, attributes: Mapping[str, onnx.AttributeProto],
                 fresh: Callable[[str], str]) -> None:
        self.label, self.attributes, self.fresh = label, attributes, fresh

    def enter(self, made: Iterable[str], names: dict[str, str]) -> None:
        """Give every name in ``made`` that has none yet a fresh one."""
        for name in made:
            if name not in names:
                names[name] = self.fresh(f"{self.label}/{name}")

    def node(self, node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
        out = onnx.NodeProto(op_type=node.op_type, domain=node.domain, overload=node.overload,
                             name=self.label and f"{self.label}/{node.name or node.op_type}")
        out.input.extend(names.get(i, i) for i in node.input)
        out.output.extend(names[o] for o in node.output)
        for a in node.attribute:
            given = self.attributes.get(a.ref_attr_name) if a.ref_attr_name else a
            if given is None:
                continue
            copy = out.attribute.add()
            copy.CopyFrom(given)
            copy.name = a.name
            if not a.ref_attr_name:  # sub-graphs of the call belong to where it stands
                for graph in ([copy.g] if copy.HasField("g") else []) + list(copy.graphs):
                    self.graph(graph, names)
        return out

    def graph(self, graph: onnx.GraphProto, outer: Mapping[str, str]) -> None:
        """Rename in place: what a sub-graph makes itself hides what is outside."""
        sparse = [t.values for t in graph.sparse_initializer]
        made = [i.name for i in (*graph.input, *graph.initializer, *sparse)] + [
            o for n in graph.node for o in n.output if o]
        names = {k: v for k, v in outer.items() if k not in set(made)}
        self.enter(made, names)
        for item in (*graph.input, *graph.initializer, *sparse, *graph.output):
            item.name = names.get(item.name, item.name)
        nodes = [self.node(n, names) for n in graph.node]
        del graph.node[:]
        graph.node.extend(nodes)

    def info(self, info: onnx.ValueInfoProto, names: Mapping[str, str]) -> onnx.ValueInfoProto:
        out = onnx.ValueInfoProto()
        out.CopyFrom(info)
        out.name = names[info.name]
        return out
