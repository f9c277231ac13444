"""JSON that comes from outside: its values, and what is wrong with those of a record, which its
dataclass tells."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints


def read_json(text: str | bytes) -> Any:
    """The value of a JSON text.  ValueError for what is none, and for one that is nested deeper
    than any of aotc's."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


_KINDS = {tuple: list, Mapping: dict}  # what JSON has for them


def _kind(hint: Any) -> type:
    """What JSON has for a type: str, int, list or dict."""
    found = get_origin(hint) or hint
    kind = next((j for py, j in _KINDS.items() if issubclass(found, py)), found)
    return kind if isinstance(kind, type) else dict


@cache
def json_kinds(record: type) -> dict[str, type]:
    """{field of a dataclass: what its JSON value must be}."""
    hints = get_type_hints(record)
    return {f.name: _kind(hints[f.name]) for f in fields(record)}


@cache
def item_kinds(record: type) -> dict[str, type]:
    """The same of the items of its lists and objects; not of those that are integers, which are
    checked with what they mean."""
    hints = get_type_hints(record)
    items = {f.name: next((a for a in reversed(get_args(hints[f.name])) if a is not ...), int)
             for f in fields(record)}
    return {name: _kind(item) for name, item in items.items() if item is not int}


def faulty_keys(where: str, data: object, known: Mapping[str, type],
                needed: Iterable[str]) -> list[str]:
    """Faults of an object: fields that are unknown, missing, or of another kind."""
    if not isinstance(data, dict):
        return [f"{where}: expected an object, got {type(data).__name__}"]
    faults = [f"{where}: unknown field {k!r}; known: {', '.join(known)}"
              for k in data if k not in known]
    faults += [f"{where}: field {k!r} is missing" for k in needed if k not in data]
    faults += [f"{where}.{k}: expected {known[k].__name__}, got {type(v).__name__}"
               for k, v in data.items() if k in known and not isinstance(v, known[k])]
    return faults


def faulty_items(where: str, items: Any, kind: type) -> list[str]:
    """Faults of a list's or an object's items."""
    pairs = items.items() if isinstance(items, dict) else enumerate(items)
    return [f"{where}[{k}]: expected {kind.__name__}, got {type(v).__name__}"
            for k, v in pairs if not isinstance(v, kind)]


def freeze_json(v: Any) -> Any:
    """A JSON value with tuples for lists."""
    if isinstance(v, dict):
        return {k: freeze_json(x) for k, x in v.items()}
    return tuple(map(freeze_json, v)) if isinstance(v, (list, tuple)) else v
