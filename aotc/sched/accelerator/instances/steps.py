"""What runs on a cluster, step by step: a node's computing and the moves it needs.

    steps_of_plan(plan, cluster)    of an InstancePlan
    seconds(steps, cluster)         without overlap between steps
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aotc.sched.accelerator.instances.cluster import Cluster
from aotc.sched.accelerator.instances.cost import node_seconds
from aotc.sched.accelerator.instances.instance_plan import Held, InstancePlan
from aotc.sched.accelerator.instances.tensor_graph import INPUT, Box, TensorGraph, region, volume

READ, WRITTEN = "read", "written"
OUTPUTS, INPUTS, RESULTS, WEIGHTS = "outputs", "inputs", "results", "weights"


@dataclass(frozen=True)
class Transfer:
    """``bytes`` read from memory ``level`` into the cores' own ones, or written there.  kind:
    outputs of nodes, the caller's inputs, results for the caller, or weights."""

    what: str
    level: int
    bytes: int
    direction: str
    kind: str


@dataclass(frozen=True)
class Step:
    """One node of one instance: the engine that computes it and for how long, what is moved
    before and after, and the steps (before it) whose results it reads.  starts: an instance, and
    with it a kernel, begins."""

    name: str
    engine: str
    seconds: float
    loads: tuple[Transfer, ...]
    stores: tuple[Transfer, ...]
    after: tuple[int, ...]
    starts: bool


def steps_of_plan(plan: InstancePlan, cluster: Cluster) -> tuple[Step, ...]:
    """The steps of an InstancePlan in its order."""
    graph = plan.graph
    weights = {(w.instance, w.node): w for w in plan.weights}
    # instance -> node -> (level, box, step)
    inside: dict[str, dict[str, tuple[int, Box, int]]] = {}
    made: dict[tuple[str, str], int] = {}  # (instance, output) -> step
    out: list[Step] = []
    for h in plan.held:
        node, here = graph.node[h.node], inside.setdefault(h.instance, {})
        instance = plan.instances.instance[h.instance]
        loads, after = _loads(graph, plan, h, here, made)
        w = weights.get((h.instance, h.node))
        if w is not None:
            sizes = (len(cluster.outer), w.fetched), (1, w.bytes - w.fetched)
            loads += [Transfer(h.node, k, n, READ, WEIGHTS) for k, n in sizes if n]
        outs = {plan.subgraph[instance.subgraph].out, *(o for o, _ in instance.more)}
        size = volume(instance.share(h.node) if h.node in outs else h.box) * node.element
        kind = RESULTS if node.output else OUTPUTS
        stores = (Transfer(h.node, h.level, size, WRITTEN, kind),) if h.level else ()
        boxes = {h.node: h.box, **{s: here[s][1] for s in node.sources if s in here}}
        taken = node_seconds(graph, cluster, node, boxes)
        out.append(Step(f"{h.instance} {h.node}", cluster.unit(node.kind).name, taken,
                        tuple(loads), stores, tuple(sorted(after)), not here))
        here[h.node] = h.level, h.box, len(out) - 1
        made[h.instance, h.node] = len(out) - 1
    return tuple(out)


def _loads(graph: TensorGraph, plan: InstancePlan, h: Held,
           here: Mapping[str, tuple[int, Box, int]],
           made: Mapping[tuple[str, str], int]) -> tuple[list[Transfer], set[int]]:
    """(Transfers that a node of an instance reads, steps that it waits for).  here: node of the
    same instance -> its memory, box and step; made: (instance, node) -> step."""
    loads: list[Transfer] = []
    after: set[int] = set()
    before = [plan.instances.instance[p] for p in plan.instances.producers[h.instance]]
    for source in graph.node[h.node].sources:
        if source in here:
            level, box, step = here[source]
            after.add(step)
            if level:
                size = volume(box) * graph.node[source].element
                loads.append(Transfer(source, level, size, READ, OUTPUTS))
            continue
        element = graph.node[source].element
        for box in region(graph, h.node, source, h.box):
            if graph.node[source].kind == INPUT:
                loads.append(Transfer(source, len(plan.homes.peak) - 1, volume(box) * element,
                                      READ, INPUTS))
                continue
            for p in before:
                if (p.name, source) not in made:
                    continue
                cut = volume(tuple((max(a, c), min(b, d))
                                   for (a, b), (c, d) in zip(box, p.share(source))))
                if cut:
                    after.add(made[p.name, source])
                    level = plan.homes.level[p.output(source)]
                    if level:
                        loads.append(Transfer(source, level, cut * element, READ, OUTPUTS))
    return loads, after


def moved_by_memory(cluster: Cluster, found: Sequence[Transfer]) -> dict[int, tuple[float, int]]:
    """{memory: (seconds, bytes)} of its mover for transfers, those further out included."""
    out: dict[int, tuple[float, int]] = {}
    for level in range(len(cluster.outer), 0, -1):
        size = sum(t.bytes for t in found if t.level >= level)
        if size:
            out[level] = cluster.moving(level, size), size
    return out


def seconds(steps: Sequence[Step], cluster: Cluster) -> float:
    """One step after the other; within one, tiles are moved while others are computed."""
    total = 0.0
    for s in steps:
        moved = [t for t, _ in moved_by_memory(cluster, (*s.loads, *s.stores)).values()]
        total += max([s.seconds, *moved]) + (cluster.launch if s.starts else 0.0)
    return total
