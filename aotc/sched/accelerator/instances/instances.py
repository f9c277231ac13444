"""Instances of sub-graphs and the edges between them: two are joined where regions intersect."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from aotc.sched.accelerator.instances.split import Members, SplitInfo, outs_of, pieces_of, shares
from aotc.sched.accelerator.instances.tensor_graph import (
    INPUT,
    Box,
    TensorGraph,
    follow_dimensions,
    overlap,
    region,
    regions,
)


@dataclass(frozen=True)
class SubGraph:
    """Nodes that run together, in order, the last one being an output, with its split.  Others that
    anything else reads are outputs, too (``split.outs_of``).  why: what joined them."""

    name: str
    members: Members
    split: SplitInfo
    why: str = ""

    @property
    def out(self) -> str:
        """The node whose output is split."""
        return self.members[-1]

    def __str__(self) -> str:
        return f"{self.name} = {' '.join(self.members)}\n  split: {self.split}" + (
            f"\n  {self.why}" if self.why else "")


@dataclass(frozen=True)
class Instance:
    """Piece ``number`` of a sub-graph: ``box`` of its last output, and (node, box) of ``more`` that
    it has."""

    name: str
    subgraph: str
    number: int
    box: Box
    more: tuple[tuple[str, Box], ...] = ()

    def output(self, node: str) -> str:
        """The name of what it has of the output ``node``."""
        return f"{self.name}/{node}" if any(o == node for o, _ in self.more) else self.name

    def share(self, node: str) -> Box:
        """The box that it has of the output ``node``."""
        return dict(self.more).get(node, self.box)


@dataclass(frozen=True)
class Edge:
    """An instance reads the output ``source`` of another one, ``boxes`` of it."""

    producer: str
    consumer: str
    boxes: tuple[Box, ...]
    source: str


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


def instances(graph: TensorGraph, subgraphs: Sequence[SubGraph]) -> InstanceGraph:
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
        made[s.name] = [
            Instance(f"{s.name}.{k}", s.name, k, b,
                     tuple((shares(graph, s.members, b) or {}).items()))
            for k, b in enumerate(boxes)]
        for x in made[s.name]:
            reads: dict[str, list[Box]] = {}
            for source, box in needed_boxes(graph, s.members, x):
                if graph.node[source].kind == INPUT:
                    inputs[x.name, source] = box
                else:
                    reads.setdefault(source, []).append(box)
            for source, found in reads.items():
                for p in made[owner[source].name]:
                    hit = tuple(b for b in found if overlap(b, p.share(source)))
                    redundant += not hit
                    edges += [Edge(p.name, x.name, hit, source)] if hit else []
    return InstanceGraph(tuple(x for s in subgraphs for x in made[s.name]), tuple(edges),
                         redundant, inputs)


def needed_boxes(graph: TensorGraph, members: Members, x: Instance) -> tuple[tuple[str, Box], ...]:
    """(tensor, box) of what an instance of a sub-graph reads from outside, one for every way it is
    read: their union may hold much that nobody reads."""
    inside = set(members)
    boxes = regions(graph, members, x.box, dict(x.more))
    found: dict[tuple[str, Box], None] = {}
    for m in members:
        for source in graph.node[m].sources if m in boxes else ():
            if source not in inside:
                for b in region(graph, m, source, boxes[m]):
                    found[source, b] = None
    return tuple(found)


def match_dimensions(graph: TensorGraph, consumer: SubGraph,
                     producer: SubGraph) -> tuple[tuple[int, int], ...]:
    """Dimensions of the last outputs of both that move together, ((the consumer's, the producer's),
    ..): those that all ways from one to the other agree on."""
    ours, theirs = follow_dimensions(graph,
                                     consumer.members), follow_dimensions(graph, producer.members)
    found: set[tuple[int, int]] | None = None
    for o in outs_of(graph, producer.members):
        if o in ours:
            back = {e: d for d, e in theirs.get(o, {}).items()}
            pairs = {(d, back[e]) for d, e in ours[o].items() if e in back}
            found = pairs if found is None else found & pairs
    return tuple(sorted(found or ()))
