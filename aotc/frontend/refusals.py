"""What is legal but not compiled: all nodes of a model that are refused are told at once, those
that are refused for the same reason in one line."""

from collections.abc import Sequence
from typing import Any

from aotc.errors import UnsupportedError
from aotc.frontend.building.registry import OPS, lookup
from aotc.frontend.graph import Graph, Node, all_nodes, limit_lines, shorten, show_type
from aotc.frontend.nearest import suggest_instead

_NAMES = 40  # nodes named in one line
UNKNOWN = "no implementation"


class Refusal(UnsupportedError):
    """One node that is refused.  ``label``, ``op``: of the node; ``types``: what it is given, for
    messages; ``what``, ``instead``: what is not compiled, and what to do instead."""

    def __init__(self, node: Node, types: str, what: str, instead: str) -> None:
        self.label, self.types, self.what, self.instead = node.label, types, what, instead
        self.op, self.opset = f"{node.domain + '.' if node.domain else ''}{node.op}", node.opset
        super().__init__(_line([self]))

    @property
    def key(self) -> tuple[str, int, str, str]:
        """Refusals for the same reason have the same one."""
        return self.op, self.opset, self.what, self.instead


class Undecided(Refusal):
    """A node of whose result extents decide the rank.  ``result``: its name; ``readings``: what it
    may be."""

    def __init__(self, refusal: Refusal, node: Node, readings: Sequence[tuple[int, ...]]) -> None:
        super().__init__(node, refusal.types, refusal.what, refusal.instead)
        self.result, self.readings = node.outputs[0], readings


class Refusals(UnsupportedError):
    """Several nodes that are refused, ``parts``."""

    def __init__(self, parts: Sequence[UnsupportedError], text: str) -> None:
        self.parts = parts
        super().__init__(text)


def parts_of(error: UnsupportedError) -> Sequence[UnsupportedError]:
    """The refusals of single nodes that an UnsupportedError stands for."""
    return error.parts if isinstance(error, Refusals) else [error]


def raise_refused(graph: Graph, refusals: Sequence[UnsupportedError]) -> None:
    """Raise an UnsupportedError for the refusals of a graph's nodes, if there are any."""
    if not refusals:
        return
    unknown = [r for r in refusals if getattr(r, "what", "") == UNKNOWN]
    if len(refusals) == 1 and not unknown:
        raise refusals[0]
    groups: dict[Any, list[UnsupportedError]] = {}
    for r in refusals:
        groups.setdefault(getattr(r, "key", str(r)), []).append(r)
    lines = [_line(alike) if (alike := [r for r in rs if isinstance(r, Refusal)]) else str(rs[0])
             for rs in groups.values()]
    what = ("use operators that aotc does not compile" if len(unknown) == len(refusals)
            else "are refused")
    head = f"{len(refusals)} node(s) of model {shorten(graph.name)!r} {what}:\n"
    text = head + limit_lines(lines)
    if unknown:
        text += ("\nexport the model without them, simplify it first so that constants are folded, "
                 f"or write the operator as one of the {len(OPS)} supported ones")
    raise Refusals(refusals, text)


def _line(refusals: Sequence[Refusal]) -> str:
    """One line for refusals of the same reason: the names of all, the types of the first."""
    first, count = refusals[0], len(refusals)
    names = ", ".join(repr(shorten(r.label)) for r in refusals[:_NAMES])
    names += f" and {count - _NAMES} more" if count > _NAMES else ""
    who, times = ("node", "") if count == 1 else ("nodes", f" x{count}")
    if first.what == UNKNOWN:
        domain, _, op = first.op.rpartition(".")
        on = f" on {first.types}" if first.types else ""
        hint = suggest_instead(domain, op)
        return (f"{who} {names}: operator {shorten(domain or 'ai.onnx')}.{shorten(op)}{times} "
                f"(opset {first.opset}){on}{'; ' if hint else ''}{hint}")
    return (f"{who} {names} ({first.op}{times}, opset {first.opset}, inputs "
            f"{first.types or 'none'}): {first.what}; {first.instead}")


def check_supported(graph: Graph, nodes: Sequence[Node]) -> None:
    """UnsupportedError that lists those of ``nodes`` without an implementation."""
    raise_refused(graph, refuse_unknown(graph, nodes))


def refuse_unknown(graph: Graph, nodes: Sequence[Node]) -> list[UnsupportedError]:
    """A Refusal for every node without an implementation.  Where all of them are in branches there
    is none: the If says later which of its branches can run."""
    faults = [n for n in all_nodes(nodes) if is_unknown(n)]
    sure = {id(n) for n in all_nodes(nodes, branches=False)}
    if not any(id(n) in sure for n in faults):
        return []
    return [Refusal(n, _types(graph, n), UNKNOWN, "") for n in faults]


def is_unknown(node: Node) -> bool:
    """True for an operator with neither an implementation nor a definition."""
    return node.proto is None and lookup(node.domain, node.op, node.opset) is None


def _types(graph: Graph, node: Node) -> str:
    return ", ".join(show_type(graph.types[i]) for i in node.inputs if i in graph.types)
