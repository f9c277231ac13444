"""The graph that instances are decided on: plain numbers, made from a Program or by hand.

    Graph   nodes in topological order
    Node    one tensor, what it takes to compute it, and what it reads
    Read    a tensor that a node reads, with one Window per dimension of that tensor
    Window  which indices of a dimension a box of the reader needs
    Box     ((first, end), ...) per dimension, the end exclusive

A node without reads whose kind is ``INPUT`` comes from the caller.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

INPUT = "input"
Range = tuple[int, int]
Box = tuple[Range, ...]


@dataclass(frozen=True)
class ReadWindow:
    """Indices of one dimension that a box needs: from (sum of step * first of dimension +
    ``first``) // ``divisor`` to the same of its last ones and ``last``, as far as they are inside
    the tensor.

    terms: (dimension of the reader, step); none where the whole of ``first`` .. ``last`` is read.
    """

    terms: tuple[Range, ...] = ()
    first: int = 0
    last: int = 0
    divisor: int = 1

    def needed(self, box: Box, extent: int) -> Range:
        """(first, end) for a box of the reader; empty if the end is not above the first."""
        low, high = self.first, self.last
        for d, step in self.terms:
            a, b = box[d][0] * step, (box[d][1] - 1) * step
            low += min(a, b)
            high += max(a, b)
        if self.divisor != 1:
            low //= self.divisor
            high //= self.divisor
        return max(low, 0), min(high, extent - 1) + 1

    @property
    def dimension(self) -> int | None:
        """The reader's dimension that alone moves it, None if there is no such one."""
        return self.terms[0][0] if len(self.terms) == 1 else None


def whole_window(extent: int) -> ReadWindow:
    """The Window that is the whole dimension."""
    return ReadWindow((), 0, extent - 1)


@dataclass(frozen=True)
class Read:
    """A node reads ``source`` through ``windows``, one per dimension of the source."""

    source: str
    windows: tuple[ReadWindow, ...]


@dataclass(frozen=True)
class TensorNode:
    """A tensor of ``shape`` with ``element`` bytes per element.

    weights: bytes of constants that computing all of it reads; a box reads of them what it is of
    dimensions ``shared``.  flops: of all of it.  kind: a
    category of computes (``ir.category``), which an engine is chosen by.  ops: computes that it
    stands for, products: those among them that are sums of products.  output: the caller reads it.
    unbound: dimensions that no core may have a part of.
    """

    name: str
    shape: tuple[int, ...]
    element: int = 1
    reads: tuple[Read, ...] = ()
    weights: int = 0
    flops: int = 0
    kind: str = "map"
    ops: int = 1
    products: int = 0
    output: bool = False
    unbound: tuple[int, ...] = ()
    shared: tuple[int, ...] = ()

    @property
    def bytes(self) -> int:
        """Of the whole tensor."""
        return self.element * prod(self.shape)

    @property
    def box(self) -> Box:
        """All of it."""
        return tuple((0, n) for n in self.shape)

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the tensors it reads, each once."""
        return tuple(dict.fromkeys(r.source for r in self.reads))

    def __str__(self) -> str:
        reads = ", ".join(self.sources)
        return f"{self.name}{list(self.shape)} {self.kind} of ({reads}): {self.bytes} bytes, " \
               f"{self.weights} of weights, {self.flops} flops"


@dataclass(frozen=True)
class TensorGraph:
    """Nodes in topological order; ValueError if a node reads what comes later or is not there."""

    nodes: tuple[TensorNode, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for n in self.nodes:
            missing = [s for s in n.sources if s not in seen]
            if missing:
                raise ValueError(f"{n.name} reads {', '.join(missing)}, which no node before makes")
            seen.add(n.name)

    @cached_property
    def node(self) -> Mapping[str, TensorNode]:
        """Name -> Node."""
        return {n.name: n for n in self.nodes}

    @cached_property
    def position(self) -> Mapping[str, int]:
        """Name -> place in ``nodes``."""
        return {n.name: i for i, n in enumerate(self.nodes)}

    @cached_property
    def consumers(self) -> Mapping[str, tuple[str, ...]]:
        """Name -> names of the nodes that read it, in order."""
        out: dict[str, list[str]] = {n.name: [] for n in self.nodes}
        for n in self.nodes:
            for s in n.sources:
                out[s].append(n.name)
        return {k: tuple(v) for k, v in out.items()}

    @cached_property
    def computed(self) -> tuple[TensorNode, ...]:
        """The nodes that are no inputs."""
        return tuple(n for n in self.nodes if n.kind != INPUT)

    def __str__(self) -> str:
        return "\n".join(map(str, self.nodes))


def volume(box: Box) -> int:
    """Points of a box, 0 if it is empty."""
    n = 1
    for first, end in box:
        n *= max(0, end - first)
    return n


def join_boxes(a: Box, b: Box) -> Box:
    """The least box that holds both."""
    return tuple((min(x[0], y[0]), max(x[1], y[1])) for x, y in zip(a, b))


def overlap(a: Box, b: Box) -> bool:
    """True if both have a point in common."""
    return all(max(x[0], y[0]) < min(x[1], y[1]) for x, y in zip(a, b))


def read_box(read: Read, box: Box, shape: tuple[int, ...]) -> Box | None:
    """What a box of the reader needs of a tensor of ``shape``; None if nothing."""
    found = tuple(w.needed(box, n) for w, n in zip(read.windows, shape))
    return found if all(a < b for a, b in found) else None


def region(graph: TensorGraph, reader: str, source: str, box: Box) -> tuple[Box, ...]:
    """Boxes of ``source`` that ``box`` of ``reader`` needs, one per Read that needs any."""
    shape = graph.node[source].shape
    found = (read_box(r, box, shape) for r in graph.node[reader].reads if r.source == source)
    return tuple(b for b in found if b is not None)


def regions(graph: TensorGraph, members: Iterable[str], box: Box,
            more: Mapping[str, Box] | None = None) -> dict[str, Box]:
    """{tensor: box} of what computing ``box`` of the last member, and boxes ``more`` of others,
    takes: of the members, and of what they read from outside.  members: in topological order."""
    names = list(members)
    inside, found = set(names), {**(more or {}), names[-1]: box}
    for name in reversed(names):
        at = found.get(name)
        if at is None or name not in inside:
            continue
        for r in graph.node[name].reads:
            need = read_box(r, at, graph.node[r.source].shape)
            if need is not None:
                old = found.get(r.source)
                found[r.source] = need if old is None else join_boxes(old, need)
    return found


def match_dimension(read: Read, dimension: int) -> int | None:
    """The dimension of the tensor read that moves with ``dimension`` of the reader alone; None if
    there is none, or several."""
    found = [e for e, w in enumerate(read.windows) if w.dimension == dimension]
    return found[0] if len(found) == 1 else None


def follow_dimensions(graph: TensorGraph, members: Sequence[str]) -> dict[str, dict[int, int]]:
    """{tensor: {dimension of the last member's output: dimension of the tensor that moves with it
    alone}} of the members and what they read; only what all ways between both agree on."""
    last = members[-1]
    found = {last: {d: d for d in range(len(graph.node[last].shape))}}
    for m in reversed(members):
        for r in graph.node[m].reads if m in found else ():
            moved = {d: match_dimension(r, e) for d, e in found[m].items()}
            here = {d: e for d, e in moved.items() if e is not None}
            old = found.get(r.source)
            found[r.source] = here if old is None else {
                d: e for d, e in old.items() if here.get(d) == e}
    return found
