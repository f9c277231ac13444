"""Instances of sub-graphs and the edges between them: two are joined where regions intersect."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from aotc.sched.instances.split import Members, SplitInfo, pieces_of
from aotc.sched.instances.tensor_graph import INPUT, Box, Graph, matched, overlap, region, regions


@dataclass(frozen=True)
class SubGraph:
    """Nodes that run together, in order, the last one being the output, with their split.
    why: what joined them."""

    name: str
    members: Members
    split: SplitInfo
    why: str = ""

    @property
    def out(self) -> str:
        """The node whose output others read."""
        return self.members[-1]

    def __str__(self) -> str:
        return f"{self.name} = {' '.join(self.members)}\n  split: {self.split}" + (
            f"\n  {self.why}" if self.why else "")


@dataclass(frozen=True)
class Instance:
    """Piece ``number`` of a sub-graph: ``box`` of its output."""

    name: str
    subgraph: str
    number: int
    box: Box


@dataclass(frozen=True)
class Edge:
    """An instance reads the output of another one, ``boxes`` of it."""

    producer: str
    consumer: str
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class InstanceGraph:
    """Instances in breadth-first order, the edges that are needed, and how many were not.
    inputs: (instance, tensor of the caller's) -> box that it reads."""

    instances: tuple[Instance, ...]
    edges: tuple[Edge, ...]
    redundant: int
    inputs: Mapping[tuple[str, str], Box]

    @cached_property
    def producers(self) -> Mapping[str, tuple[str, ...]]:
        """Instance -> those whose outputs it reads, in order."""
        out: dict[str, dict[str, None]] = {x.name: {} for x in self.instances}
        for e in self.edges:
            out[e.consumer][e.producer] = None
        return {k: tuple(v) for k, v in out.items()}

    @cached_property
    def instance(self) -> Mapping[str, Instance]:
        """Name -> Instance."""
        return {x.name: x for x in self.instances}

    def __str__(self) -> str:
        lines = [f"{x.name}: {list(x.box)} of ({', '.join(self.producers[x.name])})"
                 for x in self.instances]
        return "\n".join([*lines, f"{len(self.edges)} edges, {self.redundant} redundant"])


def instances(graph: Graph, subgraphs: Sequence[SubGraph]) -> InstanceGraph:
    """The instances of sub-graphs, which are in topological order."""
    owner = {m: s for s in subgraphs for m in s.members}
    made: dict[str, list[Instance]] = {}
    edges: list[Edge] = []
    inputs: dict[tuple[str, str], Box] = {}
    redundant = 0
    for s in subgraphs:
        shared = graph.node[s.out].shared
        boxes = sorted(pieces_of(graph.node[s.out].shape, s.split.cuts),
                       key=lambda b: [b[d] for d in shared])  # same weights together
        made[s.name] = [Instance(f"{s.name}.{k}", s.name, k, b) for k, b in enumerate(boxes)]
        for x in made[s.name]:
            need = needed(graph, s.members, x.box)
            reads: dict[str, list[tuple[str, Box]]] = {}
            for source, box in need:
                if graph.node[source].kind == INPUT:
                    inputs[x.name, source] = box
                else:
                    reads.setdefault(owner[source].name, []).append((source, box))
            for name, found in reads.items():
                for p in made[name]:
                    hit = tuple(b for _, b in found if overlap(b, p.box))
                    redundant += not hit
                    edges += [Edge(p.name, x.name, hit)] if hit else []
    return InstanceGraph(tuple(x for s in subgraphs for x in made[s.name]), tuple(edges),
                         redundant, inputs)


def needed(graph: Graph, members: Members, box: Box) -> tuple[tuple[str, Box], ...]:
    """(tensor, box) of what computing a box of the last member reads from outside, one for every
    way it is read: their union may hold much that nobody reads."""
    inside = set(members)
    boxes = regions(graph, members, box)
    found: dict[tuple[str, Box], None] = {}
    for m in members:
        for source in graph.node[m].sources if m in boxes else ():
            if source not in inside:
                for b in region(graph, m, source, boxes[m]):
                    found[source, b] = None
    return tuple(found)


def matches(graph: Graph, consumer: SubGraph, producer: SubGraph) -> tuple[tuple[int, int], ...]:
    """Dimensions of both outputs that move together, ((the consumer's, the producer's), ..): those
    of the first way from one to the other on which any do."""
    inside = set(consumer.members)
    here: dict[str, dict[int, int]] = {
        consumer.out: {d: d for d in range(len(graph.node[consumer.out].shape))}}
    for m in reversed(consumer.members):
        for r in graph.node[m].reads if m in here else ():
            if r.source not in here and (r.source in inside or r.source == producer.out):
                moved = ((d, matched(r, e)) for d, e in here[m].items())
                here[r.source] = {d: e for d, e in moved if e is not None}
    return tuple(sorted(here.get(producer.out, {}).items()))
