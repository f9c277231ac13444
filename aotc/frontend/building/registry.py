"""The table of operators: (domain, name) -> implementations by opset."""

from dataclasses import dataclass

OPS = {}


@dataclass(frozen=True)
class Entry:
    """``build(node, builder)`` returns the Val of the output, or a tuple of Vals."""

    since: int
    build: object


def op(name, since=1, domain=""):
    """Decorator: register an implementation of an ONNX operator from opset ``since`` on."""
    def register(fn):
        rows = OPS.setdefault((domain, name), [])
        rows.append(Entry(since, fn))
        rows.sort(key=lambda e: -e.since)
        return fn
    return register


def lookup(domain, name, opset):
    """The implementation for this opset, or None."""
    for entry in OPS.get((domain, name), ()):
        if entry.since <= opset:
            return entry.build
    return None
