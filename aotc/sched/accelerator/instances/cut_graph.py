"""A graph cut into instances, with what the deciders of order and places ask about them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from aotc.sched.accelerator.instances.cluster import Cluster
from aotc.sched.accelerator.instances.instance_order import Tasks
from aotc.sched.accelerator.instances.instances import (
    Instance,
    InstanceGraph,
    SubGraph,
    instances,
    match_dimensions,
)
from aotc.sched.accelerator.instances.split import outs_of
from aotc.sched.accelerator.instances.tensor_graph import Box, TensorGraph, regions, volume


@dataclass(frozen=True)
class CutGraph:
    """``graph`` for one cluster, its sub-graphs in topological order, their instances and edges."""

    graph: TensorGraph
    cluster: Cluster
    subgraphs: tuple[SubGraph, ...]
    split: InstanceGraph

    @cached_property
    def parts(self) -> Mapping[str, SubGraph]:
        """Name -> SubGraph."""
        return {s.name: s for s in self.subgraphs}

    @cached_property
    def outs(self) -> Mapping[str, tuple[str, ...]]:
        """Sub-graph -> its outputs in order."""
        return {s.name: outs_of(self.graph, s.members) for s in self.subgraphs}

    def part(self, x: Instance) -> SubGraph:
        """The sub-graph of an instance."""
        return self.parts[x.subgraph]

    @cached_property
    def boxes(self) -> Mapping[str, Mapping[str, Box]]:
        """Instance -> tensor -> box of all that computing it takes."""
        return {x.name: regions(self.graph, self.part(x).members, x.box, dict(x.more))
                for x in self.split.instances}

    @cached_property
    def shapes(self) -> Mapping[str, Sequence[int]]:
        """Instance -> extents of its box of the last output."""
        return {x.name: [b - a for a, b in x.box] for x in self.split.instances}

    @cached_property
    def unbound(self) -> Mapping[str, tuple[int, ...]]:
        """Instance -> dimensions of its last output that no core may have a part of."""
        return {x.name: self.graph.node[self.part(x).out].unbound for x in self.split.instances}

    def bytes(self, x: Instance, node: str) -> int:
        """That an instance holds of an output: of all that it computes of it."""
        return volume(self.boxes[x.name][node]) * self.graph.node[node].element

    @cached_property
    def tasks(self) -> Tasks:
        """Instances with the bytes of their outputs together.  What the caller reads is written out
        piece by piece and fills no memory of the cluster."""
        size, kept = {}, set()
        for x in self.split.instances:
            mine = [o for o in self.outs[x.subgraph] if not self.graph.node[o].output]
            size[x.name] = sum(self.bytes(x, o) for o in mine)
            if not mine:
                kept.add(x.name)
        return Tasks(size, self.split.producers, frozenset(kept))

    @cached_property
    def carries(self) -> Mapping[tuple[str, str], tuple[tuple[int, int], ...]]:
        """(consumer, producer) -> dimensions of both that match, for every edge."""
        known: dict[tuple[str, str], tuple[tuple[int, int], ...]] = {}
        out = {}
        for e in self.split.edges:
            pair = (self.split.instance[e.consumer].subgraph,
                    self.split.instance[e.producer].subgraph)
            if pair not in known:
                known[pair] = match_dimensions(self.graph, *(self.parts[p] for p in pair))
            out[e.consumer, e.producer] = known[pair]
        return out

    @cached_property
    def readers(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """(instance, output) -> instances that read of it what that instance has."""
        out: dict[tuple[str, str], list[str]] = {}
        for e in self.split.edges:
            out.setdefault((e.producer, e.source), []).append(e.consumer)
        return {k: tuple(v) for k, v in out.items()}


def cut_graph(graph: TensorGraph, cluster: Cluster, subgraphs: Sequence[SubGraph]) -> CutGraph:
    """The graph with the instances of ``subgraphs``, which are in topological order."""
    return CutGraph(graph, cluster, tuple(subgraphs), instances(graph, subgraphs))
