"""Shapes of inputs that a file leaves out or leaves open: said by the user, or the one rank with
which the model compiles."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product

import onnx

from aotc.errors import ModelError
from aotc.frontend.graph import shorten
from aotc.frontend.read.read_types import extent_of

Extents = Sequence[int | str | None]  # None: any
MOST_RANK = 6  # that is tried of an input without a shape
MOST_OPEN = 2  # such inputs of a model, of which every pair of ranks is tried


def with_shapes(infos: Sequence[onnx.ValueInfoProto],
                shapes: Mapping[str, Extents]) -> list[onnx.ValueInfoProto]:
    """The declared inputs, those in ``shapes`` with these extents: numbers, names, or any.
    ModelError for a name that is no tensor among them, and for a shape that contradicts the
    model's."""
    known = {i.name: i for i in infos if i.type.WhichOneof("value") == "tensor_type"}
    for name in shapes:
        if name not in known:
            raise ModelError(f"shapes: the model has no input {shorten(str(name))!r} that is a "
                             f"tensor; it has: {', '.join(map(shorten, known)) or 'none'}")
    return [_with_shape(i, shapes[i.name]) if i.name in shapes else i for i in infos]


def _with_shape(info: onnx.ValueInfoProto, shape: Extents) -> onnx.ValueInfoProto:
    what, kind = f"shapes: input {shorten(info.name)!r}", info.type.tensor_type
    if not isinstance(shape, (list, tuple)):
        raise ModelError(f"{what}: {shape!r} is no list of extents")
    for d in shape:
        if d is not None and not isinstance(d, str) and (
                not isinstance(d, int) or isinstance(d, bool) or d < 0):
            raise ModelError(f"{what}: {d!r} is neither an extent nor the name of a dimension")
    out = onnx.ValueInfoProto()
    out.CopyFrom(info)
    made = out.type.tensor_type
    made.shape.Clear()
    for d in shape:
        made.shape.dim.add(**({} if d is None else {
            "dim_param" if isinstance(d, str) else "dim_value": d}))
    if not kind.HasField("shape"):
        made.shape.SetInParent()
        return out
    own = list(map(extent_of, kind.shape.dim))
    if len(own) != len(shape) or any(isinstance(d, int) and d != n for d, n in zip(own, shape)):
        raise ModelError(f"{what} has the shape {['?' if d is None else d for d in own]} in the "
                         f"model, it cannot be {['?' if d is None else d for d in shape]}")
    for d, n in zip(made.shape.dim, own):  # what is left open keeps the model's name
        if extent_of(d) is None and n is not None:
            d.dim_param = str(n)
    return out


def list_shapeless(graph: onnx.GraphProto, shapes: Mapping[str, Extents]) -> list[str]:
    """Names of the tensors among the inputs of which nobody says the rank."""
    held = {t.name for t in graph.initializer}
    return [i.name for i in graph.input if i.type.WhichOneof("value") == "tensor_type"
            and not i.type.tensor_type.HasField("shape") and i.name not in (*shapes, *held)]


def find_only_ranks(names: Sequence[str], builds: Callable[[Mapping[str, Extents]], bool]
                    ) -> dict[str, Extents]:
    """{input: extents, all open} where one rank of each of ``names`` is the only one with which the
    model ``builds``; else {}."""
    if not names or len(names) > MOST_OPEN:
        return {}
    found = [s for s in _ranks(names) if builds(s)]
    return found[0] if len(found) == 1 else {}


def _ranks(names: Sequence[str]) -> Iterator[dict[str, Extents]]:
    for ranks in product(range(MOST_RANK + 1), repeat=len(names)):
        yield {n: (None,) * r for n, r in zip(names, ranks)}
