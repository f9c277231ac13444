"""Bags of rows, as exporters write EmbeddingBag: a Loop of which every round cuts a run of rows out
of a tensor, from one number of a list to one of another, and folds it.  How long a run is depends
on data, the shape of what is folded does not: it is a fold over all rows that leaves out those
outside the run.

Rounds gather what they make, or insert it into a sequence that is joined behind the loop.  What
happens to rows before the fold, look-ups and element-wise operators, happens to all rows once."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from aotc.frontend.graph import Body, Graph, Node
from aotc.frontend.masked import ELEMENTWISE
from aotc.ir.dtypes import Array

BAGS = "bags"  # the attribute that holds a Bags
_FOLDS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin")
_SCALAR = ("Identity", "Reshape", "Squeeze", "Unsqueeze")  # what one number goes through


@dataclass(frozen=True)
class Bags:
    """Attribute of a fold whose inputs are (rows, starts, ends, number of bags) instead: bag k is
    the run of rows from ``starts[k + first]`` to before ``ends[k + last]``; ``zero``: equal ends
    give zeros, whatever the fold.  With a fifth input, a number of rows, the last bag goes up to
    there, of its mean the ``divisor`` alone.  No model can hold it."""

    first: int
    last: int
    zero: bool
    divisor: bool = False


def folds_of_bags(graph: Graph) -> Graph:
    """A Graph whose loops over bags are folds."""
    look = GraphTensors(graph)
    nodes: list[Node] = []
    for n in graph.nodes:
        nodes += _Rounds(n, look).folded() if n.op == "Loop" and not n.domain else [n]
    if not look.replaced:
        return graph
    return replace(graph, nodes=tuple(n for n in nodes if not look.joins(n)),
                   initializers={**graph.initializers, **look.constants})


class GraphTensors:
    """A Graph's tensors; ``constants``: new ones; ``replaced``: what loops made that are folds
    now."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.makers = {o: n for n in graph.nodes for o in n.outputs if o}
        self.taken = {*self.makers, *graph.initializers, *(t.name for t in graph.inputs)}
        self.constants: dict[str, Array] = {}
        self.replaced: set[str] = set()

    def fresh(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def joined(self, sequence: str) -> Node | None:
        """The node that joins a sequence to one tensor along its first axis, if that is all that
        becomes of it."""
        users = [n for n in self.graph.nodes if sequence in (*n.inputs, *n.captures)]
        alone = len(users) == 1 and sequence not in self.graph.outputs
        return users[0] if alone and users[0].op == "ConcatFromSequence" and (
            users[0].attr("axis") == 0) else None

    def first(self, tensor: str) -> str:
        """The tensor that this one is by another name."""
        while tensor in self.makers and self.makers[tensor].op == "Identity":
            tensor = self.makers[tensor].inputs[0]
        return tensor

    def read(self, tensor: str) -> bool:
        """True if anything reads a tensor."""
        return tensor in self.graph.outputs or any(
            tensor in (*n.inputs, *n.captures) for n in self.graph.nodes)

    def joins(self, n: Node) -> bool:
        return n.op == "ConcatFromSequence" and n.inputs[0] in self.replaced

    def yes(self, tensor: str) -> bool:
        """True for a tensor that is known to be true."""
        while tensor in self.makers and self.makers[tensor].op in ("Cast", "Identity"):
            tensor = self.makers[tensor].inputs[0]
        return not tensor or _all(self.graph.initializers.get(tensor))


class _Rounds:
    """Looks at a Loop's body from its results.  ``run``: the ends of its runs, ``nodes``: what all
    rows go through before it."""

    def __init__(self, loop: Node, names: GraphTensors) -> None:
        self.loop, self.names = loop, names
        body = loop.attr("body")
        self.body = body if isinstance(body, Body) else Body((), (), (), {})
        self.makers: dict[str, Node] = {}
        self.constants = dict(names.graph.initializers)
        self.held: set[str] = set()  # constants of bodies
        self.inside = {*self.body.inputs}  # what rounds may have for themselves
        self._enter(self.body)
        self.run: tuple[tuple[str, int], tuple[str, int]] | None = None
        self.zero: tuple[str, str] | None = None  # what is compared to find a run empty
        self.turn = self.body.inputs[0] if self.body.inputs else ""  # the round's number
        self.count = loop.inputs[0]  # of the rounds
        self.rest: str | None = None  # where the last bag ends, or
        self.divisor = False  # what its mean is divided by
        self.nodes: list[Node] = []
        self.made: dict[str, str | None] = {}

    def _enter(self, body: Body) -> None:
        self.makers.update((o, n) for n in body.nodes for o in n.outputs if o and not n.domain)
        self.inside.update(o for n in body.nodes for o in n.outputs)
        self.constants.update((k, a) for k, a in body.constants.items() if k not in body.stored)
        self.held.update(body.constants)

    def folded(self) -> list[Node]:
        """The nodes that stand for the Loop: itself if it is none over bags."""
        loop, body = self.loop, self.body
        counted = not loop.inputs[0] and self._counts()
        states = [k for k in range(len(loop.inputs) - 2) if body.inputs[2 + k] != self.turn]
        carried = len(states)
        if not (carried in (0, 1) and len(loop.outputs) == 1 + counted and (
                len(body.outputs) == 2 + counted) and len(body.inputs) == len(loop.inputs) and (
                counted or loop.inputs[0] and self.names.yes(loop.inputs[1])
                and self._goes_on(body.outputs[0]))):
            return [loop]
        at = states[0] if carried else counted
        out, tensor, kept = loop.outputs[at], body.outputs[1 + at], False
        if carried:
            insert, join = self.makers.get(tensor), self.names.joined(out)
            start = self.names.makers.get(loop.inputs[2 + at])
            if not insert or not join or not start or start.op != "SequenceEmpty" or (
                    insert.op != "SequenceInsert" or insert.inputs[0] != body.inputs[2 + at]
                    or len(insert.inputs) != 2):
                return [loop]
            out, tensor, kept = join.outputs[0], insert.inputs[1], not join.attr("new_axis", 0)
        fold = self._fold(tensor, kept)
        if fold is None or self.run is None:
            return [loop]
        self.names.replaced.add(loop.outputs[at])
        return [*self.nodes, self._node(fold, out)]

    def _counts(self) -> bool:
        """True for a loop that counts its rounds itself, ``while turn < count``; then these are
        entered, and nothing else reads the last number."""
        test = self.makers.get(self.body.outputs[0]) if self.body.outputs else None
        if test is None or test.op != "Less":
            return False
        after, count = test.inputs
        more = self.makers.get(after)
        for k, before in enumerate(self.body.inputs[2:]):
            if more is None or more.op != "Add" or before not in more.inputs or (
                    after != self.body.outputs[1 + k] or count in self.inside) or self.names.read(
                    self.loop.outputs[k]):
                continue
            step = more.inputs[1 - more.inputs.index(before)]
            if self._number(step) == 1 and self._number(self.loop.inputs[2 + k]) == 0 and (
                    self._begins(count)):
                self.turn, self.count = before, self._outside(count)
                return True
        return False

    def _begins(self, count: str) -> bool:
        """True if the first round runs where there is one to count."""
        going = self.loop.inputs[1]
        test = self.names.makers.get(going)
        if test is None:
            number = self._number(count)
            return self.names.yes(going) and number is not None and number > 0
        return test.op == "Less" and self._number(test.inputs[0]) == 0 and (
            self.names.first(test.inputs[1]) == self.names.first(count))

    def _node(self, fold: Node, out: str) -> Node:
        assert self.run is not None, self.loop
        (starts, first), (ends, last) = self.run
        rows = self.made[fold.inputs[0]]
        assert rows, fold
        rest = () if self.rest is None else (self.rest,)
        return replace(fold, inputs=(rows, starts, ends, self.count, *rest), outputs=(out,),
                       attrs={BAGS: Bags(first, last, self.zero is not None, self.divisor)},
                       name=self.loop.label, origin=self.loop.origin or (self.loop.label,))

    def _goes_on(self, tensor: str) -> bool:
        """True for a condition that is that of the round before, or true."""
        node = self._peeled(tensor, ("Identity", "Cast"))
        return node == self.body.inputs[1] or _all(self.constants.get(node))

    def _peeled(self, tensor: str, ops: Iterable[str] = _SCALAR) -> str:
        while tensor in self.makers and self.makers[tensor].op in ops:
            tensor = self.makers[tensor].inputs[0]
        return tensor

    # ---------------------------------------------------------------- what is folded

    def _fold(self, tensor: str, kept: bool) -> Node | None:
        """The fold of a run that makes the tensor, ``kept``: with one element along its axis."""
        node = self.makers.get(tensor)
        if node is None:
            return None
        if node.op == "Identity":
            return self._fold(node.inputs[0], kept)
        if node.op == "Squeeze" and not kept and self._axes(node) == [0]:
            return self._fold(node.inputs[0], True)
        if node.op == "If":
            return self._unless_empty(node, kept) if self.zero is None else self._mean(node, kept)
        if node.op not in _FOLDS or self._axes(node) != [0] or (
                bool(node.attr("keepdims", 1)) != kept):
            return None
        return node if self._rows(node.inputs[0]) else None

    def _unless_empty(self, node: Node, kept: bool) -> Node | None:
        """The fold of a branch; the other, where both ends are equal, is zeros."""
        test = self.makers.get(self._peeled(node.inputs[0]))
        branches = node.attr("then_branch"), node.attr("else_branch")
        if test is None or test.op != "Equal" or not all(
                isinstance(v, Body) and len(v.outputs) == 1 for v in branches):
            return None
        empty, full = branches
        self._enter(empty)
        self._enter(full)
        self.zero = test.inputs[0], test.inputs[1]
        fold = self._fold(full.outputs[0], kept) if self._zeros(empty.outputs[0]) else None
        compared = {self._end(t) for t in self.zero}
        return fold if self.run and compared == set(self.run) else None

    def _at_last(self, node: Node) -> tuple[Body, Body] | None:
        """(what the last round does, what the others do) of an If that tells them apart."""
        test = self.makers.get(self._peeled(node.inputs[0]))
        last, others = node.attr("then_branch"), node.attr("else_branch")
        if test is None or test.op != "Equal" or not all(
                isinstance(v, Body) and len(v.outputs) == 1 for v in (last, others)):
            return None
        turn, end = map(self._peeled, test.inputs)
        less = self.makers.get(end)
        number, count = self._number(end), self._number(self.count)
        is_last = number is not None and count is not None and number == count - 1
        if less is not None and less.op == "Sub":
            is_last = self.names.first(less.inputs[0]) == self.names.first(self.count) and (
                self._number(less.inputs[1]) == 1)
        if turn != self.turn or not is_last:
            return None
        self._enter(last)
        self._enter(others)
        return last, others

    def _mean(self, node: Node, kept: bool) -> Node | None:
        """The mean of a run, of which the last one is a sum divided by the rows that are left, if
        there are any."""
        found = self._at_last(node)
        fold = found and self._fold(found[1].outputs[0], kept)
        inner = self.makers.get(found[0].outputs[0]) if found else None
        if found is None or not fold or fold.op != "ReduceMean" or not inner or inner.op != "If":
            return None
        some, none = inner.attr("then_branch"), inner.attr("else_branch")
        if not isinstance(some, Body) or not isinstance(none, Body):
            return None
        self._enter(some)
        self._enter(none)
        test = self.makers.get(self._peeled(inner.inputs[0]))
        quotient, added = (self.makers.get(self._peeled(v.outputs[0], ("Identity",)))
                           for v in (some, none))
        if not test or test.op != "Greater" or self._number(test.inputs[1]) != 0 or (
                not quotient or quotient.op != "Div" or not added or added.op != "ReduceSum"
                or self.makers.get(quotient.inputs[0]) is not added
                or self._axes(added) != [0] or bool(added.attr("keepdims", 1)) != kept
                or added.inputs[0] != fold.inputs[0]):
            return None
        left = self.makers.get(self._peeled(quotient.inputs[1], ("Cast", *_SCALAR)))
        if not left or left is not self.makers.get(self._peeled(test.inputs[0])) or (
                left.op != "Sub" or self.run is None or self._end(left.inputs[1]) != self.run[0]):
            return None
        self.rest, self.divisor = self._extent(left.inputs[0]), True
        return fold if self.rest else None

    def _extent(self, tensor: str) -> str | None:
        """A number of rows that rounds do not change, by a name outside of them."""
        node = self.makers.get(tensor)
        if node is None:
            return None if tensor in self.inside else self._outside(tensor)
        if node.op != "Shape" or node.inputs[0] in self.inside:
            return None
        out = self.names.fresh(f"{tensor}_of_all")
        self.nodes.append(replace(node, outputs=(out,), origin=node.origin or (node.label,)))
        return out

    def _up_to_the_end(self, node: Node) -> str | None:
        """The rows that an If cuts runs from, of which the last one goes on to a number of rows."""
        found = self._at_last(node)
        if found is None or self.rest is not None:
            return None
        last, run = (self.makers.get(body.outputs[0]) for body in found)
        if not last or not run or last.op != "Slice" or run.op != "Slice" or (
                last.inputs[:2] != run.inputs[:2] or last.inputs[3:] != run.inputs[3:]):
            return None
        self.rest = self._extent(last.inputs[2])
        return self._whole(run) if self.rest else None

    def _zeros(self, tensor: str) -> bool:
        """True for a tensor of zeros."""
        node = self.makers.get(self._peeled(tensor, ("Cast", "CastLike", "Expand", *_SCALAR)))
        if node is None:
            array = self.constants.get(self._peeled(tensor, ("Cast", "CastLike", "Expand",
                                                             *_SCALAR)))
            return array is not None and not array.any()
        value = node.attr("value")
        return node.op == "ConstantOfShape" and (value is None or not np.any(value))

    def _axes(self, node: Node) -> list[int] | None:
        axes = node.attr("axes")
        if axes is None and len(node.inputs) > 1:
            axes = self.constants.get(node.inputs[1])
        return None if axes is None else np.asarray(axes).reshape(-1).tolist()

    # ---------------------------------------------------------------- rows

    def _rows(self, tensor: str) -> str | None:
        """The tensor of all rows, of which rounds take runs."""
        if tensor not in self.made:
            self.made[tensor] = self._made(tensor)
        return self.made[tensor]

    def _made(self, tensor: str) -> str | None:
        node = self.makers.get(tensor)
        if node is None or len(node.outputs) != 1:
            return None
        if node.op == "Slice":
            return self._whole(node)
        if node.op == "If":
            return self._up_to_the_end(node)
        if node.op == "Gather" and not node.attr("axis", 0) and node.inputs[0] not in self.inside:
            places = self._rows(node.inputs[1])
            return places and self._everywhere(node, [self._outside(node.inputs[0]), places])
        if node.op == "Unsqueeze" and all(a > 0 or a == -1 for a in self._axes(node) or [0]):
            rows = self._rows(node.inputs[0])
            return rows and self._everywhere(node, [rows, *map(self._outside, node.inputs[1:])])
        if node.op not in ELEMENTWISE:
            return None
        inputs = [self._outside(i) if self._single(i) else self._rows(i) for i in node.inputs]
        found = [i for i in inputs if i is not None]
        return self._everywhere(node, found) if len(found) == len(inputs) else None

    def _single(self, tensor: str) -> bool:
        """True for an input that is left out, or a constant of one element."""
        array = self.constants.get(tensor)
        return not tensor or array is not None and array.size == 1 and array.ndim <= 1

    def _whole(self, node: Node) -> str | None:
        """What a Slice takes a run of rows from."""
        if len(node.inputs) < 3 or node.inputs[0] in self.inside:
            return None
        for k, value in ((3, 0), (4, 1)):  # axes, steps
            given = node.inputs[k] if k < len(node.inputs) else ""
            array = self.constants.get(given)
            if given and (array is None or array.reshape(-1).tolist() != [value]):
                return None
        first, last = self._end(node.inputs[1]), self._end(node.inputs[2])
        if first is None or last is None or self.run not in (None, (first, last)):
            return None
        self.run = first, last
        return self._outside(node.inputs[0])

    def _end(self, tensor: str) -> tuple[str, int] | None:
        """(list, what is added to the round's number) of a number that is looked up in a list, or
        cut out of it."""
        node = self.makers.get(self._peeled(tensor))
        if node is None or node.attr("axis", 0) or not node.inputs or (
                node.inputs[0] in self.inside):
            return None
        if node.op == "Gather":
            added = self._added(node.inputs[1])
        elif node.op == "Slice" and len(node.inputs) >= 3 and all(
                self._number(i) == k for i, k in zip(node.inputs[3:], (0, 1))):
            added, end = map(self._added, node.inputs[1:3])
            added = added if added is not None and end == added + 1 else None
        else:
            return None
        return None if added is None else (self._outside(node.inputs[0]), added)

    def _added(self, place: str) -> int | None:
        """What is added to the round's number."""
        place = self._peeled(place)
        if place == self.turn:
            return 0
        add = self.makers.get(place)
        if add is None or add.op != "Add":
            return None
        for turn, more in (add.inputs, add.inputs[::-1]):
            if self._peeled(turn) == self.turn:
                return self._number(more)
        return None

    def _number(self, tensor: str) -> int | None:
        """The integer that a tensor of one element is known to be."""
        array = self.constants.get(self._peeled(tensor, ("Cast", "CastLike", *_SCALAR)))
        known = array is not None and array.size == 1 and array.dtype.kind in "iu"
        return int(array.reshape(-1)[0]) if known and array is not None else None

    def _everywhere(self, node: Node, inputs: list[str]) -> str:
        """The result of the node on all rows."""
        out = self.names.fresh(f"{node.outputs[0]}_of_all")
        self.nodes.append(replace(node, inputs=tuple(inputs), outputs=(out,),
                                  origin=node.origin or (node.label,)))
        return out

    def _outside(self, tensor: str) -> str:
        """A tensor that rounds do not make, a body's constant under a name of its own."""
        if tensor not in self.held:
            return tensor
        if tensor not in self.made:
            self.made[tensor] = name = self.names.fresh(tensor)
            self.names.constants[name] = self.constants[tensor]
        return self.made[tensor] or ""


def _all(array: Array | None) -> bool:
    return array is not None and bool(array.all())
