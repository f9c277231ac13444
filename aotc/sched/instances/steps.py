"""What runs on a cluster, step by step: a node's computing and the moves it needs.

    steps_of_plan(plan, cluster)        of an InstancePlan
    layer_by_layer(graph, cluster, ..)  every node a kernel, outputs in a memory further out
    traffic(steps)                      bytes per memory, direction and kind
    seconds(steps, cluster)             without overlap between steps
    task_times(steps, cluster)            with overlap, by list scheduling
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aotc.sched.instances.cluster import Cluster
from aotc.sched.instances.cost import node_seconds, weights_of
from aotc.sched.instances.instance_plan import Held, InstancePlan
from aotc.sched.instances.task_times import Task, TaskTimes, scheduled
from aotc.sched.instances.tensor_graph import INPUT, Box, Graph, region, volume

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


def _loads(graph: Graph, plan: InstancePlan, h: Held, here: Mapping[str, tuple[int, Box, int]],
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


def layer_by_layer(graph: Graph, cluster: Cluster, levels: Mapping[str, int] | None = None
                   ) -> tuple[Step, ...]:
    """Every node a kernel of its own, its output in memory ``levels`` (those not named: the
    outermost), weights from the outermost."""
    last = len(cluster.outer)
    where = levels or {}
    place: dict[str, int] = {}
    out: list[Step] = []
    for node in graph.computed:
        loads = []
        for s in node.sources:
            source = graph.node[s]
            kind = INPUTS if source.kind == INPUT else OUTPUTS
            level = last if source.kind == INPUT or source.output else where.get(s, last)
            for box in region(graph, node.name, s, node.box):
                loads.append(Transfer(s, level, volume(box) * source.element, READ, kind))
        if node.weights:
            loads.append(Transfer(node.name, last, weights_of(node, node.box), READ, WEIGHTS))
        level = last if node.output else where.get(node.name, last)
        store = Transfer(node.name, level, node.bytes, WRITTEN,
                         RESULTS if node.output else OUTPUTS)
        boxes = {node.name: node.box}
        after = tuple(place[s] for s in node.sources if s in place)
        place[node.name] = len(out)
        out.append(Step(node.name, cluster.unit(node.kind).name,
                        node_seconds(graph, cluster, node, boxes), tuple(loads), (store,), after,
                        True))
    return tuple(out)


def traffic(steps: Sequence[Step]) -> dict[tuple[int, str, str], int]:
    """{(memory, direction, kind): bytes} between each memory and the next one in: what comes from
    further out passes all memories in between, and counts at every one."""
    out: dict[tuple[int, str, str], int] = {}
    for s in steps:
        for t in (*s.loads, *s.stores):
            for level in range(1, t.level + 1):
                key = level, t.direction, t.kind
                out[key] = out.get(key, 0) + t.bytes
    return dict(sorted(out.items()))


def _moving(cluster: Cluster, found: Sequence[Transfer]) -> dict[int, tuple[float, int]]:
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
        moved = [t for t, _ in _moving(cluster, (*s.loads, *s.stores)).values()]
        total += max([s.seconds, *moved]) + (cluster.launch if s.starts else 0.0)
    return total


def task_times(steps: Sequence[Step], cluster: Cluster) -> TaskTimes:
    """All engines at once: weights and outputs for the steps to come are moved while others are
    computed, as far as there are slots."""
    tasks: list[Task] = []
    computed: list[int] = []  # step -> its task
    stored: list[int] = []  # step -> the task after which its output can be read
    fetched: list[dict[int, int]] = []  # step -> memory -> task that brought its weights
    for k, s in enumerate(steps):
        free = [computed[k - cluster.slots]] if k >= cluster.slots else []
        moved: list[int] = []
        rows: dict[int, int] = {}
        for kinds in ((WEIGHTS,), (OUTPUTS, INPUTS)):
            before: list[int] = []
            wait = [] if kinds == (WEIGHTS,) else [stored[j] for j in s.after]
            found = [t for t in s.loads if t.kind in kinds]
            for level, (_, size) in _moving(cluster, found).items():
                slot = free if level == 1 else _slot(fetched, k, cluster.slots, level - 1)
                before = _append(tasks, _move(cluster, f"{s.name} {kinds[0]}", level, size,
                                              (*before, *wait, *slot)))
                if kinds == (WEIGHTS,):
                    rows[level] = before[0]
            moved += before
        fetched.append(rows)
        start = cluster.launch if s.starts else 0.0
        last = _append(tasks, Task(s.name, s.engine, s.seconds + start,
                                   (*moved, *(computed[j] for j in s.after))))
        computed.append(last[0])
        for level, (_, size) in sorted(_moving(cluster, s.stores).items()):
            last = _append(tasks, _move(cluster, f"{s.name} stored", level, size, tuple(last)))
        stored.append(last[0])
    return scheduled(tasks)


def _move(cluster: Cluster, name: str, level: int, size: int, after: tuple[int, ...]) -> Task:
    """A transfer: the engine takes the next one while the first bytes of this are on their way."""
    return Task(name, cluster.mover(level), cluster.busy(level, size), after, size,
                cluster.memories[level].latency)


def _append(tasks: list[Task], task: Task) -> list[int]:
    tasks.append(task)
    return [len(tasks) - 1]


def _slot(fetched: Sequence[Mapping[int, int]], k: int, slots: int, level: int) -> list[int]:
    """The task that last read the slot which weights of step ``k`` get in memory ``level``."""
    if k < slots:
        return []
    found = fetched[k - slots].get(level)
    return [] if found is None else [found]
