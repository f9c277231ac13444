"""8-bit inputs and outputs of a model that has them as floats: the ``QuantizeLinear`` behind an
input and the ``DequantizeLinear`` in front of an output go, and callers do what those did."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx

from aotc.errors import ModelError
from aotc.frontend.graph import Node, limit_lines, shorten
from aotc.frontend.read.read_types import dtype_name
from aotc.ir.dtypes import Array, dtype_of
from aotc.ir.numbers.byte_scale import ByteScale

_DOMAINS = ("", "ai.onnx", "com.microsoft")
_BYTES, _REALS = ("u8", "i8"), ("f32", "f16")
_MEASURES = ("Shape", "Size")  # what reads no numbers


@dataclass(frozen=True)
class ByteEnds:
    """``nodes`` of a model whose inputs and outputs in ``scales`` are 8-bit numbers."""

    nodes: list[Node]
    scales: dict[str, ByteScale] = field(default_factory=dict)


@dataclass(frozen=True)
class _Tensors:
    """What is known of a model's tensors: its constants, without those that are bits of types that
    are stored only, and who makes the others."""

    constants: Mapping[str, Array]
    makers: Mapping[str, Node]

    def scale_of(self, node: Node, real: str) -> ByteScale | str:
        """What one number between 8 bits and ``real`` stands for at a QuantizeLinear or a
        DequantizeLinear; why not, if it is none for all elements, or has other types."""
        scale, zero = (self.constants.get(n) for n in (*node.inputs[1:], "", "")[:2])
        if scale is None or scale.size != 1 or not np.isfinite(scale).all() or scale.item() <= 0:
            return "its scale is no constant for all elements"
        given = (*node.inputs, "", "")[2]
        if given and (zero is None or zero.size != 1):
            return "its zero point is no constant of 8 bits for all elements"
        dtype = self._dtype(node) if zero is None else dtype_of(zero)
        if dtype not in _BYTES:
            return f"it is of {dtype or 'a type that it does not say'}, not 8 bits"
        return ByteScale(dtype, float(scale.item()), 0 if zero is None else int(zero.item()), real)

    def _dtype(self, node: Node) -> str:
        """The dtype of the integers of a node without a zero point; "" where it does not say."""
        if node.op == "QuantizeLinear":
            named = node.attr("output_dtype", 0)
            return (dtype_name(named) or "") if named else "u8"
        if node.inputs[0] in self.constants:
            return dtype_of(self.constants[node.inputs[0]])
        maker = self.makers.get(node.inputs[0])
        if maker is None or not _is(maker, "QuantizeLinear"):
            return ""
        found = self.scale_of(maker, "")
        return found.dtype if isinstance(found, ByteScale) else ""


def find_byte_ends(graph: onnx.GraphProto, nodes: Sequence[Node], constants: Mapping[str, Array],
                   stored: Collection[str], fixed: Collection[str]) -> ByteEnds:
    """The ByteEnds of a model.  nodes, constants: of ``graph``; stored: constants that are bits of
    types that are stored only; fixed: inputs that become constants.  ModelError for an input that
    some nodes read rounded and others as it is, and where nothing becomes 8 bits."""
    tensors = _Tensors({n: a for n, a in constants.items() if n not in stored},
                       {o: n for n in nodes for o in n.outputs if o})
    outputs = [o.name for o in graph.output]
    scales: dict[str, ByteScale] = {}
    left: list[str] = []
    for info in graph.input:
        if info.name in constants or info.name in fixed:
            continue
        found = _input_scale(info, nodes, outputs, tensors)
        if isinstance(found, str):
            left.append(f"input {shorten(info.name)!r}: {found}")
        else:
            scales[info.name] = found
            nodes = _without_rounding(nodes, info.name)
    for info in graph.output:
        found = _output_scale(info, nodes, tensors)
        if isinstance(found, str):
            left.append(f"output {shorten(info.name)!r}: {found}")
        else:
            scales[info.name] = found
            nodes = _as_stored(nodes, info.name, outputs)
    if not scales:
        raise ModelError("io 'quantised': no input is read by a QuantizeLinear alone and no output "
                         "made by a DequantizeLinear; leave io out:\n" + limit_lines(left))
    return ByteEnds(list(nodes), scales)


def _real(info: onnx.ValueInfoProto) -> str:
    """The dtype of a tensor of floats that may be 8 bits instead; "" of any other."""
    kind = info.type.WhichOneof("value") == "tensor_type"
    name = dtype_name(info.type.tensor_type.elem_type) if kind else None
    return name if name in _REALS else ""


def _is(node: Node, op: str) -> bool:
    return node.op == op and node.domain in _DOMAINS


def _input_scale(info: onnx.ValueInfoProto, nodes: Iterable[Node], outputs: Collection[str],
                 tensors: _Tensors) -> ByteScale | str:
    """What the numbers of an input stand for once it is 8 bits; why not, if it stays."""
    name, real = info.name, _real(info)
    if not real:
        return "it is no tensor of f32 or f16"
    readers = [n for n in nodes if (name in n.inputs or name in n.captures)
               and not (n.op in _MEASURES and n.domain in _DOMAINS)]
    rounds = [n for n in readers if _is(n, "QuantizeLinear")]
    if not rounds:
        return "no QuantizeLinear reads it"
    found = [tensors.scale_of(n, real) for n in rounds]
    if len(set(found)) > 1 or len(rounds) < len(readers) or name in outputs:
        told = [f"{shorten(n.label)!r} ({n.op}{_shown(n, tensors, real)})" for n in readers]
        told += ["the model's outputs"] * (name in outputs)
        raise ModelError(f"io 'quantised': input {shorten(name)!r} is read by {', '.join(told)}: "
                         "all must read it through QuantizeLinear with one scale and zero point; "
                         "let one node round it and the others read that through "
                         "DequantizeLinear, or leave io out")
    return found[0] if isinstance(found[0], ByteScale) else (
        f"{shorten(rounds[0].label)!r} (QuantizeLinear) reads it: {found[0]}")


def _shown(node: Node, tensors: _Tensors, real: str) -> str:
    if not _is(node, "QuantizeLinear"):
        return ""
    found = tensors.scale_of(node, real)
    if isinstance(found, str):
        return f": {found}"
    return f" to {found.dtype}, scale {found.factor}, zero {found.zero}"


def _output_scale(info: onnx.ValueInfoProto, nodes: Iterable[Node],
                  tensors: _Tensors) -> ByteScale | str:
    """What the numbers of an output stand for once it is 8 bits; why not, if it stays."""
    maker, real = tensors.makers.get(info.name), _real(info)
    if not real:
        return "it is no tensor of f32 or f16"
    if maker is None or not _is(maker, "DequantizeLinear"):
        return "no DequantizeLinear makes it"
    found = tensors.scale_of(maker, real)
    if isinstance(found, str):
        return f"{shorten(maker.label)!r} (DequantizeLinear) makes it: {found}"
    inside = next((n for n in nodes if info.name in n.captures), None)
    return found if inside is None else f"a sub-graph of {shorten(inside.label)!r} reads it, too"


def _moved(node: Node, source: str, to: str) -> Node:
    """A node that stands for ``node`` and only hands ``source`` on."""
    return Node("Identity", "", (source,), (to,), {}, node.name, 1, node.origin)


def _without_rounding(nodes: Iterable[Node], name: str) -> list[Node]:
    """The nodes where those that round the input ``name`` find it rounded."""
    return [_moved(n, name, n.outputs[0]) if _is(n, "QuantizeLinear") and n.inputs[0] == name
            else n for n in nodes]


def _as_stored(nodes: Sequence[Node], name: str, outputs: Collection[str]) -> list[Node]:
    """The nodes where the output ``name`` is the 8-bit numbers that it was made of; what else reads
    it reads the floats, under a name of their own."""
    maker = next(n for n in nodes if name in n.outputs)
    source = maker.inputs[0]
    taken = {o for n in nodes for o in n.outputs} | {i for n in nodes for i in n.inputs}
    floats = f"{name}_floats"
    while floats in taken:
        floats += "_"
    names = {name: floats}
    moved = source in outputs or not any(source in n.outputs for n in nodes) or any(
        source in n.captures for n in nodes)
    if not moved:  # what makes the numbers makes the output
        names[source] = name
    out: list[Node] = [_moved(maker, source, name)] if moved else []
    for n in nodes:
        read, made = (tuple(names.get(t, t) for t in tensors) for tensors in (n.inputs, n.outputs))
        out.append(n if (read, made) == (n.inputs, n.outputs) else replace(
            n, inputs=read, outputs=made))
    return out
