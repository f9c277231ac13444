"""Loops that append a tensor to a list in each round: what they append is stacked, as what other
loops gather, and the list is the entries of that."""

from dataclasses import dataclass, replace

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.values import Sequence
from aotc.frontend.graph import Body, Node, all_nodes

APPEND = "SequenceInsert"


@dataclass(frozen=True)
class Grown:
    """``node``: the Loop that gathers tensors, behind all others, in the place of the lists that
    are the states ``lists``, by number."""

    node: Node
    lists: tuple[int, ...]


def gather_lists(b: Builder, node: Node) -> Grown | None:
    """The Loop without lists, if it has any and all it does with them is to append a tensor."""
    body, given = node.attr("body"), node.inputs[2:]
    lists = tuple(k for k, i in enumerate(given) if isinstance(b.env[i], Sequence))
    added = {k: _appended(body, k) for k in lists}
    if not lists or None in added.values() or len(body.inputs) != 2 + len(given):
        return None
    inserts = {body.outputs[1 + k] for k in lists}

    def kept(names: tuple[str, ...], first: int) -> tuple[str, ...]:
        return tuple(n for j, n in enumerate(names) if j - first not in lists)
    tensors = tuple(t for t in added.values() if t is not None)
    small = replace(
        body, inputs=kept(body.inputs, 2), outputs=kept(body.outputs, 1) + tensors,
        nodes=tuple(n for n in body.nodes if not inserts.intersection(n.outputs)),
        types=tuple(t for j, t in enumerate(body.types) if j - 1 not in lists) + tuple(
            (None, None) for _ in lists))
    outputs = (*node.outputs, *("" for _ in range(len(body.outputs) - 1 - len(node.outputs))))
    made = replace(node, inputs=kept(node.inputs, 2), attrs={**node.attrs, "body": small},
                   outputs=kept(outputs, 0) + tuple(outputs[k] for k in lists))
    return Grown(made, lists)


def _appended(body: Body, k: int) -> str | None:
    """The tensor that is appended to a list in each round; None if more is done with it."""
    name, out = body.inputs[2 + k], body.outputs[1 + k]
    made = next((n for n in body.nodes if out in n.outputs), None)
    if made is None or made.op != APPEND or made.domain or made.inputs[0] != name or (
            len(made.inputs) > 2 and made.inputs[2]):
        return None
    users = [n for n in all_nodes(body.nodes) if {name, out}.intersection(n.inputs)]
    return made.inputs[1] if users == [made] and body.outputs.count(out) == 1 and (
        name not in body.outputs) else None


__all__ = ["Grown", "gather_lists"]
