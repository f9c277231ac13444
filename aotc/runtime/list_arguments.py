"""Inputs and outputs of a model that are sequences or optionals: a bundle has a tensor for each
element, a caller lists.  ``parts``: (name, its tensors) of all inputs or outputs.  Inputs that are
maps: a bundle has a matrix, a caller one or several dicts."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aotc.ir.bundle import Manifest
from aotc.ir.dtypes import Array
from aotc.runtime.device_arrays import DeviceView

Parts = Sequence[Sequence[Any]]


def parts_of(manifest: Manifest | None, side: str) -> Parts:
    """Of the "inputs" or "outputs" of a bundle; nothing if all are tensors."""
    found: Parts = (manifest or {}).get("lists", {}).get(side, ())
    return found


def take_lists_apart(name: str, parts: Parts, feeds: Any) -> Any:
    """``feeds``, by name or in order, with the tensors of lists in their place.  ValueError for a
    list of another length than was compiled for."""
    if not parts:
        return feeds
    if isinstance(feeds, Mapping):
        given = dict(feeds)
    elif isinstance(feeds, (list, tuple)) and len(feeds) == len(parts):
        given = {n: v for (n, _), v in zip(parts, feeds)}
    else:
        return feeds
    out: dict[str, Any] = {n: v for n, v in given.items() if n not in {n for n, _ in parts}}
    for n, held in parts:
        if n not in given:
            continue
        value = given[n]
        if isinstance(held, str):
            if value is None:
                raise ValueError(f"{name}: input {n} is not there; the bundle is for calls that "
                                 f"have it: compile another with lists={{{n!r}: None}}")
            out[held] = value
            continue
        count = None if value is None else len(value)
        if count != (None if held is None else len(held)):
            wanted = "nothing" if held is None else f"{len(held)} tensors"
            raise ValueError(f"{name}: input {n} is for {wanted}, "
                             f"{'nothing' if count is None else count} given; compile another "
                             f"bundle with lists={{{n!r}: {count}}}")
        out.update(zip(held or (), value or ()))
    return out


def put_lists_together(parts: Parts, found: Mapping[str, Any]) -> dict[str, Any]:
    """``found`` by name, the tensors of lists as lists, None for what is not there; what is no
    part stays."""
    if not parts:
        return dict(found)
    of = {t for _, held in parts if not isinstance(held, str) for t in held or ()}
    out = {n: None if held is None else found[held] if isinstance(held, str)
           else [found[t] for t in held] for n, held in parts
           if not isinstance(held, str) or held in found}
    return out | {n: a for n, a in found.items() if n not in of and n not in out}


def array_of(given: Any, dtype: "np.dtype[Any]", keys: Sequence[str | int] | None) -> Array:
    """What a caller gives for an input, as an array; ``keys``: of an input that is a map, whose
    matrix has a column for each: of a dict, or a list of them, what has another key is left out,
    and what has none is 0."""
    rows = [given] if isinstance(given, Mapping) else given
    if isinstance(given, DeviceView):
        return given  # type: ignore[return-value]  # with what is asked of an array before a call
    if keys is None or not isinstance(rows, (list, tuple)) or not all(
            isinstance(r, Mapping) for r in rows):
        only_dlpack = hasattr(given, "__dlpack__") and not hasattr(given, "__array__")
        return np.from_dlpack(given) if only_dlpack else np.asarray(given)
    values = [[row.get(k, 0) for k in keys] for row in rows]
    return np.array(values, dtype).reshape(len(rows), len(keys))
