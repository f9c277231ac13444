"""``repeat_interleave`` with a number for every row, as exporters write it: a Loop over the pieces
of a tensor and of the numbers, both split into ones, that expands a piece by its number and joins
what it has made behind the loop.  It is a look-up of as many rows as the numbers add up to: row j
is of the first piece whose numbers, with those before, are more than j."""

from dataclasses import dataclass, replace

import numpy as np

from aotc.frontend.embedding_bag import GraphTensors
from aotc.frontend.graph import Body, Graph, Node
from aotc.ir.dtypes import Array
from aotc.ir.expr import Const

_OPSET = 18  # of the nodes that are made here
_I64 = 7  # Cast's number for it


def look_ups_of_repeats(graph: Graph) -> Graph:
    """A Graph whose loops that repeat rows are look-ups."""
    look = GraphTensors(graph)
    nodes: list[Node] = []
    for n in graph.nodes:
        found = _Rounds(n, look).found() if n.op == "Loop" and not n.domain else None
        nodes += [n] if found is None else found.nodes(n, look)
    if not look.replaced:
        return graph
    kept = [n for n in nodes if not look.joins(n)]
    return replace(graph, nodes=_used(kept, graph),
                   initializers={**graph.initializers, **look.constants})


def _used(nodes: list[Node], graph: Graph) -> tuple[Node, ...]:
    """The nodes without splits that nothing reads any more."""
    while True:
        read = {i for n in nodes for i in (*n.inputs, *n.captures)} | set(graph.outputs)
        kept = [n for n in nodes if n.op != "SplitToSequence" or read.intersection(n.outputs)]
        if len(kept) == len(nodes):
            return tuple(nodes)
        nodes = kept


@dataclass(frozen=True)
class _Repeat:
    """``rows`` of ``axis`` of a tensor, each as often as ``times`` says; ``shape``: of the result,
    -1 along the axis; ``out``: its name."""

    rows: str
    times: str
    axis: int
    shape: tuple[int, ...]
    out: str

    def nodes(self, loop: Node, look: GraphTensors) -> list[Node]:
        """The nodes that stand for the Loop."""
        made: list[Node] = []

        def const(values: list[int] | int, tag: str) -> str:
            name = look.fresh(f"{self.out}_{tag}")
            look.constants[name] = np.array(values, np.int64)
            return name

        def add(op: str, *inputs: str, tag: str = "", **attrs: int) -> str:
            out = look.fresh(f"{self.out}_{tag}") if tag else self.out
            made.append(Node(op, "", inputs, (out,), attrs, opset=_OPSET,
                             origin=loop.origin or (loop.label,)))
            return out
        zero = const(0, "zero")
        times = add("Cast", self.times, tag="times", to=_I64)
        ends = add("CumSum", times, zero, tag="ends")
        total = add("ReduceSum", times, tag="total", keepdims=0)
        line = add("Range", zero, total, const(1, "one"), tag="line")
        made[-1] = replace(made[-1], name=loop.label)  # whom a bound is said of
        down = add("Reshape", line, const([-1, 1], "column"), tag="down")
        over = add("LessOrEqual", ends, down, tag="over")
        count = add("Cast", over, tag="count", to=_I64)
        place = add("ReduceSum", count, const([1], "last"), tag="place", keepdims=0)
        if len(self.shape) == 1:
            add("Gather", self.rows, place, axis=self.axis)
            return made
        rows = add("Gather", self.rows, place, tag="rows", axis=self.axis)
        add("Reshape", rows, const(list(self.shape), "shape"))
        return made


class _Rounds:
    """Looks at a Loop's body from what it appends to its list."""

    def __init__(self, loop: Node, look: GraphTensors) -> None:
        self.loop, self.look = loop, look
        body = loop.attr("body")
        self.body = body if isinstance(body, Body) else Body((), (), (), {})
        self.makers = {**look.makers, **{o: n for n in self.body.nodes for o in n.outputs if o}}
        self.constants = {**look.graph.initializers, **self.body.constants}

    def found(self) -> _Repeat | None:
        """What the Loop does, if it repeats rows."""
        loop, body = self.loop, self.body
        if len(loop.inputs) != 3 or len(body.outputs) != 2 or len(body.inputs) != 3 or not (
                self._yes(loop.inputs[1]) and self._yes(body.outputs[0])):
            return None
        start, insert = self._made(loop.inputs[2], "SequenceEmpty"), self._made(
            body.outputs[1], "SequenceInsert")
        readers = [n for n in self.look.graph.nodes if loop.outputs[0] in (*n.inputs, *n.captures)]
        if start is None or insert is None or insert.inputs[0] != body.inputs[2] or (
                len(insert.inputs) != 2 or len(readers) != 1
                or readers[0].op != "ConcatFromSequence" or readers[0].attr("new_axis", 0)):
            return None
        found = self._repeat(insert.inputs[1], readers[0].attr("axis"), readers[0].outputs[0])
        if found is None or not self._all_of(found.rows, found.axis, found.times):
            return None
        self.look.replaced.add(loop.outputs[0])
        return found

    def _all_of(self, rows: str, axis: int, times: str) -> bool:
        """True if there are as many rounds as rows, or numbers."""
        trip, ways = self.loop.inputs[0], ("Cast", "Gather", "Identity", "Reshape", "Slice",
                                           "Squeeze", "Unsqueeze")
        known, extents = self._ints(trip), self.look.graph.types.get(rows)
        if known is not None:
            return extents is None or extents[1][axis] == Const(known[0])
        while (made := self.makers.get(trip)) is not None and made.op in ways:
            trip = made.inputs[0]
        sizes = {rows, times}
        while (more := self.makers.get(times)) is not None and more.op in ("Where", "Expand"):
            times = more.inputs[-1] if more.op == "Where" else more.inputs[0]
            sizes.add(times)
        return made is not None and made.op == "Shape" and made.inputs[0] in sizes

    def _repeat(self, tensor: str, axis: int, out: str) -> _Repeat | None:
        """Of a piece that is expanded along a new axis and given the shape of the others."""
        reshape = self._made(tensor, "Reshape")
        expand = reshape and self._made(reshape.inputs[0], "Expand")
        lifted = expand and self._made(expand.inputs[0], "Unsqueeze")
        if reshape is None or expand is None or lifted is None:
            return None
        shape = self._ints(reshape.inputs[1])
        new = lifted.attr("axes") or self._ints(lifted.inputs[-1])
        rows, asked = self._pieces(lifted.inputs[0], axis), self._asked(expand.inputs[1])
        if rows is None or asked is None or not shape or list(new or ()) != [axis + 1]:
            return None
        times, before, after = asked
        others = [*before[:-1], *after]
        fits = len(before) == axis + 1 and before[-1] in (1, -1) and shape[axis] == -1 and all(
            d == n or d in (1, -1) and n == 0 for d, n in zip(
                others, [*shape[:axis], *shape[axis + 1:]], strict=True))
        return _Repeat(rows, times, axis, tuple(shape), out) if fits else None

    def _asked(self, tensor: str) -> tuple[str, list[int], list[int]] | None:
        """(numbers, extents before the one that they say, those behind it) of a piece."""
        given = self._made(tensor, "Where")
        if given is not None:  # -1, which leaves an extent as it is, as 1
            ones, tensor = given.inputs[1:]
            if not self._ones(ones):
                return None
        joined = self._made(tensor, "Concat")
        if joined is None:
            return None
        parts = [self._ints(i) for i in joined.inputs]
        if parts.count(None) != 1:
            return None
        k = parts.index(None)
        times = self._pieces(joined.inputs[k], 0)
        return None if times is None else (
            times, [d for p in parts[:k] for d in p or ()],
            [d for p in parts[k + 1:] for d in p or ()])

    def _pieces(self, tensor: str, axis: int) -> str | None:
        """The tensor of which this is the round's piece of one along an axis."""
        at = self._made(tensor, "SequenceAt")
        split = at and self._made(at.inputs[0], "SplitToSequence")
        if at is None or split is None or at.inputs[1] != self.body.inputs[0] or (
                split.attr("axis", 0) != axis or split.outputs[0] not in self.look.makers):
            return None
        one = self._ones(split.inputs[1]) if len(split.inputs) > 1 else split.attr("keepdims", 1)
        return split.inputs[0] if one else None

    def _ones(self, tensor: str) -> bool:
        """True for a tensor of ones."""
        array, made = self.constants.get(tensor), self._made(tensor, "ConstantOfShape")
        if made is not None:
            array = made.attr("value")
        return isinstance(array, np.ndarray) and array.ndim > 0 and bool((array == 1).all())

    def _ints(self, tensor: str) -> list[int] | None:
        array: Array | None = self.constants.get(tensor)
        return None if array is None else array.reshape(-1).tolist()

    def _yes(self, tensor: str) -> bool:
        """True for a condition that always holds."""
        while (made := self._made(tensor, "Cast")) or (made := self._made(tensor, "Identity")):
            tensor = made.inputs[0]
        array = self.constants.get(tensor)
        return not tensor or tensor == self.body.inputs[1] or array is not None and (
            bool(array.all()))

    def _made(self, tensor: str, op: str) -> Node | None:
        node = self.makers.get(tensor)
        return node if node is not None and node.op == op and not node.domain else None


__all__ = ["look_ups_of_repeats"]
