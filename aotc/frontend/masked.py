"""Assignment under a mask, ``x[mask] = value``, as exporters write it: the places that NonZero
finds are scattered to.  How many there are depends on data; what becomes of an element does not, it
is a choice between the old one and the new one, so the places need not be found.

Updates that are one row repeated, or made element by element of the rows of a tensor at the same
places, are taken at every place instead.  Where the model declares how many there are, it is left
as it is."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from aotc.frontend.graph import Graph, Node
from aotc.ir.dtypes import Array

MASK = "mask"  # the attribute that holds an OfMask
# what keeps the values of a tensor, if they are all alike
_SHAPING = ("Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Tile", "Transpose", "Unsqueeze")
ELEMENTWISE = frozenset("""
    Abs Add Cast Ceil Clip Cos Div Elu Erf Exp Floor Gelu HardSigmoid HardSwish Identity LeakyRelu
    Log Max Mean Min Mod Mul Neg Pow Reciprocal Relu Round Selu Sigmoid Sign Sin Softplus Softsign
    Sqrt Sub Sum Tanh
""".split())


@dataclass(frozen=True)
class OfMask:
    """Attribute of a ScatterND whose inputs are (x, mask, value) instead.  ``rows``: what the value
    is, ``one`` element, ``alike`` (a row, or one broadcast to it), ``all`` (a row at every place of
    the mask).  No model can hold it."""

    rows: str


def choices_by_mask(graph: Graph) -> Graph:
    """A Graph whose assignments under masks are choices; what only found the places is gone."""
    look = _Look(graph)
    nodes: list[Node] = []
    for n in graph.nodes:
        new = look.chosen(n) if n.op == "ScatterND" and not n.domain else None
        nodes += [*look.take(), new or n]
    if len(nodes) == len(graph.nodes) and not look.found:
        return graph
    constants = {**graph.initializers, **look.constants}
    live = _used(nodes, graph.outputs)
    return replace(graph, nodes=_without(nodes, look.found, graph.outputs), initializers={
        k: a for k, a in constants.items() if k in graph.initializers or k in live})


def _used(nodes: list[Node], outputs: tuple[str, ...]) -> set[str]:
    return {i for n in nodes for i in (*n.inputs, *n.captures)} | set(outputs)


def _without(nodes: list[Node], places: list[Node], outputs: tuple[str, ...]) -> tuple[Node, ...]:
    """The nodes but those behind ``places`` that nothing reads any more."""
    behind = {o for n in places for o in n.outputs}
    for n in nodes:
        if behind.intersection(n.inputs):
            behind.update(n.outputs)
    while True:
        used = _used(nodes, outputs)
        kept = [n for n in nodes if used.intersection(n.outputs)
                or not behind.intersection(n.outputs)]
        if len(kept) == len(nodes):
            return tuple(nodes)
        nodes = kept


class _Look:
    """Looks at a Graph's nodes from their results; ``found``: the NonZero nodes that are not needed
    for an assignment."""

    def __init__(self, graph: Graph) -> None:
        self.makers = {o: n for n in graph.nodes for o in n.outputs if o}
        self.initializers: Mapping[str, Array] = graph.initializers
        self.constants: dict[str, Array] = {}
        self.declared = graph.declared
        self.names = {*self.makers, *graph.initializers, *(t.name for t in graph.inputs)}
        self.found: list[Node] = []
        self.nodes: list[Node] = []  # that a choice needs before it

    def take(self) -> list[Node]:
        """The new nodes since the last call."""
        made, self.nodes = self.nodes, []
        return made

    def chosen(self, node: Node) -> Node | None:
        """The assignment as a node that takes the mask; None if it is none under a mask."""
        if node.attr("reduction", "none") != "none" or len(node.inputs) != 3:
            return None
        found = self._places(node.inputs[1])
        value = found and (self._alike(node.inputs[2]) or self._rows(node.inputs[2], found, {}))
        if found is None or not value or {*found.outputs, node.inputs[1]} & self.declared.keys():
            self.nodes = []
            return None
        mask = self._lead(found.inputs[0], node.inputs[0])
        self.found.append(found)
        return replace(node, inputs=(node.inputs[0], mask, value[0]),
                       attrs={**node.attrs, MASK: OfMask(value[1])})

    def _made(self, tensor: str, *ops: str) -> Node | None:
        node = self.makers.get(tensor)
        return node if node is not None and node.op in ops and not node.domain else None

    def _places(self, tensor: str) -> Node | None:
        """The NonZero whose result, a row for every place, is the tensor."""
        turned = self._made(tensor, "Transpose", "Identity")
        if turned is None:
            return None
        if turned.op == "Identity":
            return self._places(turned.inputs[0])
        if list(turned.attr("perm", [1, 0])) != [1, 0]:
            return None
        return self._made(turned.inputs[0], "NonZero")

    def _lead(self, mask: str, into: str) -> str:
        """The mask along the first axes, of one that is expanded along the others to the shape of
        what is assigned to."""
        wide = self._made(mask, "Expand")
        line = wide and self._made(wide.inputs[0], "Unsqueeze")
        shape = wide and self._made(wide.inputs[1], "Shape")
        if not line or not shape or shape.inputs[0] != into or shape.attrs.get("start", 0) or (
                "end" in shape.attrs):
            return mask
        axes = line.attr("axes")
        if axes is None and len(line.inputs) > 1:
            axes = self.initializers.get(line.inputs[1])
        last = sorted(np.asarray([0] if axes is None else axes).reshape(-1).tolist())
        return line.inputs[0] if last == list(range(-len(last), 0)) else mask

    def _counted(self, tensor: str) -> bool:
        """True for a tensor that is made of places found, and may have a row for each."""
        todo, seen = [tensor], {tensor}
        while todo:
            node = self.makers.get(todo.pop())
            if node is None:
                continue
            if node.op in ("Compress", "NonZero", "NonMaxSuppression", "Unique"):
                return True
            todo += [i for i in node.inputs if i not in seen]
            seen.update(node.inputs)
        return False

    def _alike(self, tensor: str) -> tuple[str, str] | None:
        """(value, kind) of updates that are one element or one row everywhere."""
        if tensor in self.initializers:
            return (tensor, "one") if self.initializers[tensor].size == 1 else None
        made = self._made(tensor, *_SHAPING, "ConstantOfShape")
        if made is None:
            return None
        if made.op == "ConstantOfShape":
            value = np.asarray(made.attr("value", np.zeros(1, np.float32))).reshape(-1)
            return (self._constant(value, tensor), "one") if value.size == 1 else None
        if made.op == "Expand" and self._alike(made.inputs[0]) is None:
            return None if self._counted(made.inputs[0]) else (made.inputs[0], "alike")
        return self._alike(made.inputs[0])

    def _rows(self, tensor: str, found: Node, made: dict[str, str]) -> tuple[str, str] | None:
        """(value at every place, kind) of updates that are made of rows at the same places."""
        node = self.makers.get(tensor)
        if node is None or node.domain or len(node.outputs) != 1:
            return None
        if node.op == "GatherND":
            same = not node.attr("batch_dims", 0) and self._places(node.inputs[1]) is found
            return (node.inputs[0], "all") if same else None
        if node.op not in ELEMENTWISE:
            return None
        inputs: list[str] = []
        for i in node.inputs:
            single = not i or i in self.initializers and self.initializers[i].size == 1 and (
                self.initializers[i].ndim <= 1)
            rows = (i, "") if single else self._rows(i, found, made)
            if rows is None:
                return None
            inputs.append(rows[0])
        if tensor not in made:
            made[tensor] = self._fresh(f"{tensor}_everywhere")
            self.nodes.append(replace(node, inputs=tuple(inputs), outputs=(made[tensor],),
                                      origin=node.origin or (node.label,)))
        return made[tensor], "all"

    def _constant(self, array: Array, tensor: str) -> str:
        name = self._fresh(f"{tensor}_value")
        self.constants[name] = array
        return name

    def _fresh(self, name: str) -> str:
        while name in self.names:
            name += "_"
        self.names.add(name)
        return name
