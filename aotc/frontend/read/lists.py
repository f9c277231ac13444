"""Inputs that are sequences or optionals: which tensors they hold is said while compiling, and each
of these is an input of its own."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import onnx

from aotc.errors import ModelError
from aotc.frontend.graph import Node, shorten
from aotc.frontend.read.dims import Input
from aotc.frontend.read.read_types import dtype_name, elem_name, extent_of, stored_name
from aotc.ir.bundle import Part
from aotc.ir.dtypes import DTYPES

# what is said of a list: how many tensors it has, their shapes, or None: it is not there
Held = int | Sequence[Sequence[int]] | None
_OPSET = 18  # one that has the operators on lists
_KINDS = ("sequence_type", "optional_type")
MOST = 4096  # tensors of a list


@dataclass(frozen=True)
class Interface:
    """``inputs``: the tensors that a call is given; ``nodes`` make lists of them; ``parts``: each
    input of the model with its tensors, where one is a list."""

    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    parts: tuple[Part, ...]


def interface(infos: Sequence[onnx.ValueInfoProto], lists: Mapping[str, Held],
              taken: Collection[str], maps: Mapping[str, Input], faults: list[str]) -> Interface:
    """The inputs of a model as tensors.  lists: what is said of those that are none; taken: names
    of the model's tensors; maps: the tensors of inputs that are maps.  ModelError for names that
    are no such inputs; what is not said, or no tensor, becomes one of ``faults``."""
    known = [i.name for i in infos if i.type.WhichOneof("value") in _KINDS]
    for name in lists:
        if name not in known:
            raise ModelError(f"lists: the model has no sequence or optional {shorten(str(name))!r}"
                             " among its inputs; it has: "
                             + (", ".join(map(shorten, known)) or "none"))
    inputs: list[Input] = []
    nodes: list[Node] = []
    parts: list[Part] = []
    for info in infos:
        if info.name not in known:
            inputs.append(maps.get(info.name) or _tensor(info.name, info.type, faults))
            parts.append((info.name, info.name))
            continue
        made, node, held = _list(info, lists, taken, faults)
        inputs += made
        nodes += [node] if node is not None else []
        parts.append((info.name, held))
    return Interface(tuple(inputs), tuple(nodes), tuple(parts) if known else ())


def _list(info: onnx.ValueInfoProto, lists: Mapping[str, Held], taken: Collection[str],
          faults: list[str]) -> tuple[list[Input], Node | None, str | tuple[str, ...] | None]:
    """(its tensors, the node that makes the list, their names) of an input that is a list."""
    name, kind, optional = info.name, info.type, False
    if kind.WhichOneof("value") == "optional_type":
        kind, optional = kind.optional_type.elem_type, True
    held = lists.get(name, 1)
    if held is None:
        if not optional:
            raise ModelError(f"lists: input {shorten(name)!r} is a sequence: it is always there, "
                             "of 0 tensors or more")
        return [], Node("Optional", "", (), (name,), {}, f"input_{name}", _OPSET), None
    if kind.WhichOneof("value") != "sequence_type":  # an optional tensor, which is there
        shapes = _shapes(name, held, 1)
        return [_tensor(name, kind, faults, shapes[0])], None, name
    if name not in lists:
        faults.append(f"input {shorten(name)!r} is a sequence: say how many tensors it has, or of "
                      f"which shapes (--list {shorten(name)}=3, lists={{{shorten(name)!r}: 3}}; "
                      "[[2, 3], [4]] are shapes"
                      + ("; null: it is not there)" if optional else ")"))
        return [], None, ()
    shapes = _shapes(name, held)
    names: list[str] = []
    for k in range(len(shapes)):
        part = f"{name}_{k}"
        while part in taken:
            part += "_"
        names.append(part)
    inputs = [_tensor(n, kind.sequence_type.elem_type, faults, s) for n, s in zip(names, shapes)]
    return inputs, Node("SequenceConstruct", "", tuple(names), (name,), {}, f"input_{name}",
                        _OPSET), tuple(names)


def _shapes(name: str, held: Held, only: int = MOST) -> list[Sequence[int] | None]:
    """A shape per tensor, None where it is not said; ModelError for what is neither."""
    what = f"lists: input {shorten(name)!r}"
    shapes: list[Sequence[int] | None]
    if isinstance(held, int) and not isinstance(held, bool):
        shapes = [None] * held
    elif isinstance(held, (list, tuple)) and all(
            isinstance(s, (list, tuple)) and all(isinstance(d, int) and d >= 0 for d in s)
            for s in held):
        shapes = list(held)
    else:
        raise ModelError(f"{what} has {held!r}: give the number of its tensors or a list of their "
                         "shapes")
    if isinstance(held, int) and held < 0 or len(shapes) > only or only == 1 and not shapes:
        raise ModelError(f"{what} cannot hold {held if isinstance(held, int) else len(shapes)} "
                         f"tensors, at most {only}")
    return shapes


def _tensor(name: str, kind: onnx.TypeProto, faults: list[str],
            shape: Sequence[int] | None = None) -> Input:
    """A tensor by its type; ``shape``: what is said of it beside what the model declares."""
    what, found = f"input {shorten(name)!r}", kind.WhichOneof("value")
    if found != "tensor_type":
        faults.append(f"{what} is a {found}: only tensors, sequences and optionals of them can be "
                      "inputs")
        return name, "f32", ()
    t = kind.tensor_type
    dtype = dtype_name(t.elem_type) or stored_name(t.elem_type)
    if not dtype:
        faults.append(f"{what} has dtype {elem_name(t.elem_type)}: convert "
                      f"the model to {', '.join(DTYPES)}")
    if not t.HasField("shape") and shape is None:
        faults.append(f"{what} has no shape, and the model may be used with several ranks: say it, "
                      f"with numbers and names, --shape {shorten(name)}=1,3,h,w "
                      f"(shapes={{{shorten(name)!r}: (1, 3, 'h', 'w')}})")
    dims = tuple(map(extent_of, t.shape.dim))
    return name, dtype or "f32", dims if shape is None else tuple(shape)
