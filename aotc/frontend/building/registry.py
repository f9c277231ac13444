"""The table of operators: (domain, name) -> implementations by opset."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from aotc.frontend.building.values import Result
from aotc.frontend.graph import Node

if TYPE_CHECKING:  # which needs this table
    from aotc.frontend.building.builder import Builder

Build = Callable[[Node, "Builder"], Result]
B = TypeVar("B", bound=Build)
OPS: dict[tuple[str, str], list["Implementation"]] = {}  # newest first


@dataclass(frozen=True)
class Implementation:
    """``build(node, builder)`` returns the Val of the output, or a tuple of Vals.  ``spelt``: it
    does so by building other operators (spelling.py), which look after dtypes themselves."""

    since: int
    build: Build
    spelt: bool = False


def op(name: str, since: int = 1, domain: str = "", spelt: bool = False) -> Callable[[B], B]:
    """Decorator: register an implementation of an ONNX operator from opset ``since`` on."""
    def register(fn: B) -> B:
        rows = OPS.setdefault((domain, name), [])
        rows.append(Implementation(since, fn, spelt))
        rows.sort(key=lambda e: -e.since)
        return fn
    return register


def lookup(domain: str, name: str, opset: int) -> Implementation | None:
    """The implementation for this opset, or None."""
    for entry in OPS.get((domain, name), ()):
        if entry.since <= opset:
            return entry
    return None
