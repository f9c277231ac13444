"""Bounds: the most elements that data may give where it decides how many, as users say."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from aotc.errors import ModelError
from aotc.frontend.graph import Graph, all_nodes, shorten

NAMED = 12  # nodes named in a message


def with_bounds(graph: Graph, bounds: Mapping[str, int]) -> Graph:
    """The Graph with its bounds.  ModelError for a name that is no node's and no result's, and for
    what is no number of elements."""
    known = {name: n.label for n in all_nodes(graph.nodes) for name in (n.label, *n.outputs)
             if name}
    for name, most in bounds.items():
        if name not in known:
            labels = list(dict.fromkeys(map(shorten, known.values())))
            more = f" and {len(labels) - NAMED} more" if len(labels) > NAMED else ""
            raise ModelError(f"bound {name!r}: no node is called so, and no result of one; nodes "
                             f"are {', '.join(labels[:NAMED])}{more}")
        if isinstance(most, bool) or not isinstance(most, int) or most < 0:
            raise ModelError(f"bound {name!r}: {most!r} is no number of elements; write an integer "
                             "of at least 0")
    return replace(graph, bounds=dict(bounds))


def refuse_idle_bounds(graph: Graph, used: Collection[str]) -> None:
    """ModelError for bounds of nodes that need none: data does not decide how many elements they
    have, or a shape is declared."""
    idle = [n for n in graph.bounds if n not in used]
    if idle:
        raise ModelError(f"bound {', '.join(map(repr, idle))}: a bound is for a node of which data "
                         "decides how many elements it has, and of which no shape is declared; "
                         "leave it out")


__all__ = ["refuse_idle_bounds", "with_bounds"]
