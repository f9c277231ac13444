"""Inputs that are maps: a matrix with a column for every key that the model knows, one row for each
map of a call."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx

from aotc.errors import ModelError
from aotc.frontend.graph import Node, shorten
from aotc.frontend.read.dims import Input
from aotc.frontend.read.read_types import dtype_name, elem_name
from aotc.ir.dtypes import is_float

ML = "ai.onnx.ml"
COLUMNS = "columns"  # attribute of a node that reads a map: where its keys are
MOST_KEYS = 1 << 20
Key = str | int


@dataclass(frozen=True)
class Maps:
    """``inputs``: the matrices by name; ``keys`` of their columns; ``nodes`` of the model, those
    that read maps with their columns."""

    inputs: dict[str, Input]
    keys: dict[str, tuple[Key, ...]]
    nodes: tuple[Node, ...]


def maps_of(infos: Sequence[onnx.ValueInfoProto], nodes: Sequence[Node],
            faults: list[str]) -> Maps:
    """What becomes of the inputs that are maps.  A map that another operator reads, or whose values
    are no numbers, becomes one of ``faults``; ModelError for a node that has no keys."""
    found = {i.name: i.type.map_type for i in infos if i.type.WhichOneof("value") == "map_type"}
    inputs: dict[str, Input] = {}
    keys: dict[str, tuple[Key, ...]] = {}
    known = {n.outputs[0]: _keys_of(n, found[n.inputs[0]], faults) for n in nodes
             if n.domain == ML and n.op in _KEYS and n.inputs and n.inputs[0] in found}
    for name, kind in found.items():
        what = f"input {shorten(name)!r} is a map"
        readers = [n for n in nodes if name in n.inputs]
        others = sorted({n.op for n in readers if n.domain != ML or n.op not in _KEYS})
        if others:
            faults.append(f"{what} that {', '.join(map(shorten, others))} reads: only "
                          f"{' and '.join(_KEYS)} can")
        own = dict.fromkeys(k for n in readers for k in known.get(n.outputs[0], ()))
        value = kind.value_type.tensor_type.elem_type
        dtype = dtype_name(value)
        if not dtype or not (is_float(dtype) or dtype == "i64"):
            faults.append(f"{what} of {elem_name(value)}: only numbers are compiled; give their "
                          "categories as numbers, or the columns as a tensor of strings")
        inputs[name] = name, dtype or "f32", (_rows(name, infos), len(own))
        keys[name] = tuple(own)
    return Maps(inputs, keys, tuple(_read(n, keys, known) for n in nodes))


def _read(node: Node, keys: Mapping[str, tuple[Key, ...]],
          known: Mapping[str, tuple[Key, ...]]) -> Node:
    if node.domain != ML or not node.outputs or node.outputs[0] not in known:
        return node
    own = keys[node.inputs[0]]
    place = {k: at for at, k in enumerate(own)}
    columns = tuple(place[k] for k in known[node.outputs[0]])
    return replace(node, attrs={**node.attrs, COLUMNS: columns})


def _rows(name: str, infos: Iterable[onnx.ValueInfoProto]) -> str:
    """The dimension that counts a map's rows."""
    taken = {d.dim_param for i in infos for d in i.type.tensor_type.shape.dim}
    rows = f"{name}_rows"
    while rows in taken:
        rows += "_"
    return rows


def _keys_of(node: Node, kind: onnx.TypeProto.Map, faults: list[str]) -> tuple[Key, ...]:
    texts = kind.key_type == onnx.TensorProto.STRING
    return _KEYS[node.op](node, texts, faults)


def _vocabulary(node: Node, texts: bool, _: list[str]) -> tuple[Key, ...]:
    """The keys of a DictVectorizer, in the order of its results."""
    keys = node.attr("string_vocabulary" if texts else "int64_vocabulary") or ()
    if not keys or len(set(keys)) != len(keys):
        raise ModelError(f"node {node.label!r} ({node.op}): a list of different keys is expected "
                         f"for a map from {'strings' if texts else 'integers'}")
    return tuple(keys)


def _numbered(node: Node, texts: bool, faults: list[str]) -> tuple[Key, ...]:
    """The keys of a CastMap: how many there are only the form that is sparse says."""
    most = node.attr("max_map", 1)
    if texts or node.attr("map_form", "DENSE") != "SPARSE":
        faults.append(f"node {node.label!r} (CastMap): how many keys a dense map has is not known "
                      "while compiling; export it with map_form SPARSE and max_map, or give the "
                      "matrix itself")
        return ()
    if not 0 < most <= MOST_KEYS:
        raise ModelError(f"node {node.label!r} (CastMap): max_map is {most}")
    return tuple(range(most))


_KEYS = {"DictVectorizer": _vocabulary, "CastMap": _numbered}
