"""Inputs that are settings: held as constants (``fix``), or with a value of their own that a caller
may replace (initializers that are also inputs)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from aotc.errors import ModelError
from aotc.frontend.graph import Node, Settings, all_nodes, shorten
from aotc.frontend.read.dims import Given, Input, Range
from aotc.frontend.read.read_types import dtype_name, extent_of
from aotc.ir.dtypes import DTYPES, Array

# from these versions on an initializer that is an input is a default; before, all were listed
OVERRIDABLE_IR, OVERRIDABLE_OPSET = 4, 9
SEED = "random_seed"  # the input that random operators without a seed of their own draw by
_DRAW = frozenset("""RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli
    Multinomial""".split())
SMALL = 4096  # elements: a larger initializer is a weight, which kernels want to know
HABIT = 4  # a model that lists every one of more initializers follows old exporters' habit


def choices(model: onnx.ModelProto, constants: Mapping[str, Array], fix: Mapping[str, Any],
            wanted: Collection[str]) -> list[Settings]:
    """The Settings to try, the first that compiles counts.

    model: as it was given; constants: {initializer that is read: array}; fix: {input: value, None:
    the initializer's own}; wanted: initializers that must become inputs with a default.  Without a
    wish, small ones are inputs in models that list only some of theirs (or few), where they compile
    as inputs.
    ModelError for names that are no inputs and for values that do not fit them.
    """
    infos = {i.name: i for i in model.graph.input}
    listed = [t.name for t in model.graph.initializer if t.name in infos]
    free = [n for n in listed if n in constants and n not in fix]
    for name in wanted:
        if name not in listed or name not in constants:
            raise ModelError(f"input default {shorten(str(name))!r}: no initializer of that name "
                             f"is also an input; those are: {_names(listed)}")
        if name in fix:
            raise ModelError(f"input {shorten(str(name))!r} is fixed and has a default: choose one")
    fixed = {}
    for name, value in fix.items():
        if name not in infos:
            raise ModelError(f"fix: the model has no input {shorten(str(name))!r}; it has: "
                             f"{_names(infos)}")
        if value is None and name not in listed:
            raise ModelError(f"fix: input {shorten(name)!r} has no value of its own: give one, "
                             f"{shorten(name)}=VALUE")
        fixed[name] = constants.get(name, np.zeros(())) if value is None else _array(
            infos[name], value)
    asked = [n for n in free if n in wanted]
    likely = [n for n in free if n in wanted or constants[n].size <= SMALL]
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=1)
    if model.ir_version < OVERRIDABLE_IR or opset < OVERRIDABLE_OPSET or (
            len(listed) == len(model.graph.initializer) > HABIT):
        likely = asked
    return [Settings(fixed, {n: constants[n] for n in names},
                     tuple(n for n in free if n not in names))
            for names in ([likely, asked] if likely != asked else [asked])]


def needs_seed(nodes: Iterable[Node], constants: Mapping[str, Array]) -> bool:
    """True if a node draws numbers and states no seed."""
    for n in all_nodes(nodes):
        if n.domain or "seed" in n.attrs:
            continue
        mode = n.inputs[2] if n.op == "Dropout" and len(n.inputs) > 2 else ""
        if n.op in _DRAW or mode and (mode not in constants or constants[mode].any()):
            return True
    return False


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(shorten, names)) or "none"


def _array(info: onnx.ValueInfoProto, value: Any) -> Array:
    """A value for an input as an array of its dtype and rank; ModelError if it does not fit."""
    what, kind = f"fix: input {shorten(info.name)!r}", info.type.tensor_type
    dtype = dtype_name(kind.elem_type)
    if dtype is None:
        raise ModelError(f"{what} has a dtype that aotc does not compile")
    array = _loaded(what, value)
    with np.errstate(all="ignore"):
        made = array.astype(DTYPES[dtype].numpy) if array.dtype.kind in "biuf" else None
    if made is None or made.dtype.kind != "f" and not np.array_equal(made, array):
        raise ModelError(f"{what} is {dtype}, {_shown(value)} is no such value")
    if not kind.HasField("shape"):
        return made
    stated = list(map(extent_of, kind.shape.dim))
    dims = [d if isinstance(d, int) else None for d in stated]
    if made.size == 1 and all(d in (1, None) for d in dims):
        made = made.reshape((1,) * len(dims))
    if made.ndim != len(dims) or any(d not in (None, n) for d, n in zip(dims, made.shape)):
        raise ModelError(f"{what} has the shape "
                         f"{['?' if d is None else d for d in stated]}, the "
                         f"value {list(made.shape)}")
    return np.ascontiguousarray(made).reshape(made.shape)


def _loaded(what: str, value: Any) -> Array:
    """A number, a list, an array, or the path of a .npy file, as an array."""
    try:
        if isinstance(value, str):
            held: Array = np.load(value, allow_pickle=False)
            return held
        return np.asarray(value)
    except (OSError, ValueError) as err:
        raise ModelError(f"{what}: {_shown(value)} is neither a number, a list of numbers nor a "
                         f".npy file: {err}") from None


def _shown(value: object) -> str:
    return shorten(str(value))


def pins(inputs: Sequence[Input], settings: Settings, given: Given) -> dict[str, Range]:
    """``given`` and the dimensions that the fixed inputs' shapes decide for the others.  inputs:
    (name, dtype, dims) of all; ModelError where they contradict each other."""
    rest = {d for n, _, dims in inputs if n not in settings.fixed for d in dims
            if isinstance(d, str)}
    out: dict[str, Range] = dict(given)
    for name, _, dims in inputs:
        for d, n in zip(dims, settings.fixed[name].shape if name in settings.fixed else ()):
            if d not in rest:
                continue
            ends = out.get(d, n)
            lo, hi = ends if isinstance(ends, tuple) else (ends, ends)
            if not lo <= n <= hi:
                raise ModelError(f"fix: input {shorten(name)!r} makes dimension {shorten(d)!r} "
                                 f"{n}, but it is given as {out[d]!r}")
            out[d] = n
    return out
