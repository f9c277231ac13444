"""What is decided for one cluster, as one value that prints as text."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from aotc.sched.accelerator.instances.binding import BoundInstances
from aotc.sched.accelerator.instances.grouping import MergeRules
from aotc.sched.accelerator.instances.instance_order import Ordered
from aotc.sched.accelerator.instances.instances import InstanceGraph, SubGraph
from aotc.sched.accelerator.instances.moves import Move
from aotc.sched.accelerator.instances.spill import Homes, Lifetime, OutputPlace
from aotc.sched.accelerator.instances.tensor_graph import Box, TensorGraph


@dataclass(frozen=True)
class Held:
    """Where an instance has the result of a node (memory 0 is the cores' own): what box of it, and
    how many cores compute that."""

    instance: str
    node: str
    box: Box
    level: int
    cores: int


@dataclass(frozen=True)
class Weights:
    """Constants of a node for one instance: bytes; fetched: those of them that come from the
    outermost memory (the others are still in the next one)."""

    instance: str
    node: str
    bytes: int
    fetched: int


@dataclass(frozen=True)
class InstancePlan:
    """Sub-graphs, their instances and edges, the chosen order (the best of ``ordered``), bindings
    and scopes, moves between instances, memories and offsets of outputs, and which weights come
    when.  lifetimes: of the instances' outputs, in steps of the order."""

    graph: TensorGraph = field(repr=False)
    rules: MergeRules
    subgraphs: tuple[SubGraph, ...]
    instances: InstanceGraph
    ordered: tuple[Ordered, ...]
    bound: BoundInstances
    moves: tuple[Move, ...]
    lifetimes: tuple[Lifetime, ...]
    homes: Homes
    places: tuple[OutputPlace, ...]
    held: tuple[Held, ...]
    weights: tuple[Weights, ...]

    @property
    def order(self) -> tuple[str, ...]:
        """Names of instances as they run."""
        return self.ordered[0].order

    @property
    def subgraph(self) -> Mapping[str, SubGraph]:
        """Name -> SubGraph."""
        return {s.name: s for s in self.subgraphs}

    def reasons(self, instance: str) -> Mapping[str, str]:
        """Output of an instance -> why it is further out than the cores' own memory; "" if it is
        not, or if the caller reads it."""
        x = self.instances.instance[instance]
        names = (x.name, *(x.output(o) for o, _ in x.more))
        return {o: self.homes.why.get(o) or self.bound.why.get(instance, "") for o in names}

    def uses(self) -> tuple[int, ...]:
        """How many outputs of instances' nodes each memory holds, the nearest first; what the
        caller reads is none of them."""
        count = [0] * len(self.homes.peak)
        for h in self.held:
            if not self.graph.node[h.node].output:
                count[h.level] += 1
        return tuple(count)

    def __str__(self) -> str:
        best = self.ordered[0]
        lines = [f"rules: {self.rules}", *map(str, self.subgraphs),
                 f"{len(self.instances.instances)} instances, {len(self.instances.edges)} edges, "
                 f"{self.instances.redundant} redundant", str(best)]
        lines += [f"  instead of {o.how}: peak {o.peak}, {o.moved} moved"
                  for o in self.ordered[1:]]
        for x in self.order:
            lines.append(f"{x}: parts {self.bound.bind[x]}")
            lines += [f"  {o}: at {self.homes.level[o]}" + (f": {why}" if why else "")
                      for o, why in self.reasons(x).items()]
        return "\n".join([*lines, *map(str, self.moves)])
