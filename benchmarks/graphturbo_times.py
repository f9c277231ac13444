"""When everything runs: what a plan computes and moves as tasks, and list scheduling of them.

    task_times(steps, cluster)          with overlap, all engines at once
    layer_by_layer(graph, cluster, ..)  steps: every node a kernel, outputs in a memory further out
    traffic(steps)                      bytes per memory, direction and kind

A task takes one engine for some seconds after all it depends on has ended.  A slot (of weights in
a near memory) is a dependency, too: what fills it waits for what last read it.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from aotc.sched.accelerator.instances.cluster import Cluster
from aotc.sched.accelerator.instances.cost import node_seconds, weights_of
from aotc.sched.accelerator.instances.steps import (
    INPUTS,
    OUTPUTS,
    READ,
    RESULTS,
    WEIGHTS,
    WRITTEN,
    Step,
    Transfer,
    moved_by_memory,
)
from aotc.sched.accelerator.instances.tensor_graph import INPUT, TensorGraph, region, volume


@dataclass(frozen=True)
class Task:
    """What one engine does: ``seconds`` after the tasks of ``after`` (places in the sequence of
    tasks, all before its own) have ended.  bytes: that it moves.  delay: seconds from its end until
    others see it, in which its engine does something else."""

    name: str
    engine: str
    seconds: float
    after: tuple[int, ...] = ()
    bytes: int = 0
    delay: float = 0.0


@dataclass(frozen=True)
class TaskTimes:
    """Tasks with the second each starts at."""

    tasks: tuple[Task, ...]
    start: tuple[float, ...]

    @cached_property
    def seconds(self) -> float:
        """When the last task ends."""
        return max((s + t.seconds + t.delay for s, t in zip(self.start, self.tasks)), default=0.0)

    @cached_property
    def busy(self) -> Mapping[str, float]:
        """Engine -> the part of the time that it works."""
        out: dict[str, float] = {}
        for t in self.tasks:
            out[t.engine] = out.get(t.engine, 0.0) + t.seconds
        return {e: n / self.seconds if self.seconds else 0.0 for e, n in sorted(out.items())}

    def __str__(self) -> str:
        return "\n".join(f"{s:.9f} {t.engine}: {t.name} ({t.seconds:.9f} s)"
                         for s, t in sorted(zip(self.start, self.tasks), key=lambda x: x[0]))


def scheduled(tasks: Sequence[Task]) -> TaskTimes:
    """Each task as soon as its engine is free and what it depends on has ended; of those that
    could start, the one with the longest way to the end."""
    after: list[list[int]] = [[] for _ in tasks]
    left = [len(set(t.after)) for t in tasks]
    for i, t in enumerate(tasks):
        for j in set(t.after):
            if j >= i:
                raise ValueError(f"task {t.name} depends on one that comes later")
            after[j].append(i)
    way = [0.0] * len(tasks)
    for i in range(len(tasks) - 1, -1, -1):
        way[i] = tasks[i].seconds + tasks[i].delay + max((way[j] for j in after[i]), default=0.0)
    start = [0.0] * len(tasks)
    ready: dict[str, list[tuple[float, int]]] = {t.engine: [] for t in tasks}
    free = dict.fromkeys(ready, True)
    for i, n in enumerate(left):
        if not n:
            heapq.heappush(ready[tasks[i].engine], (-way[i], i))
    ends: list[tuple[float, int, bool]] = []  # (when, task, others see it)
    now = 0.0
    while True:
        for engine, waiting in ready.items():
            if free[engine] and waiting:
                _, i = heapq.heappop(waiting)
                free[engine], start[i] = False, now
                done = now + tasks[i].seconds
                heapq.heappush(ends, (done, i, False))
                heapq.heappush(ends, (done + tasks[i].delay, i, True))
        if not ends:
            return TaskTimes(tuple(tasks), tuple(start))
        now = ends[0][0]
        while ends and ends[0][0] <= now:
            _, i, seen = heapq.heappop(ends)
            if not seen:
                free[tasks[i].engine] = True
                continue
            for j in after[i]:
                left[j] -= 1
                if not left[j]:
                    heapq.heappush(ready[tasks[j].engine], (-way[j], j))


def serial(tasks: Sequence[Task]) -> float:
    """Seconds that the tasks take one after the other."""
    return sum(t.seconds for t in tasks)


def prefetched(layers: Sequence[tuple[Sequence[tuple[str, float]], tuple[str, float]]],
               slots: int) -> tuple[Task, ...]:
    """Tasks of layers one after the other: ((engine, seconds) of each move of its weights, the
    outermost first; (engine, seconds) of its computing).  Every memory has ``slots`` places for the
    weights of a layer, so that those of the next ones come while one is computed."""
    tasks: list[Task] = []
    rows: list[list[int]] = []  # of each layer: the places of its tasks
    for k, (moves, (engine, seconds)) in enumerate(layers):
        row: list[int] = []
        for m, (mover, taken) in enumerate((*moves, (engine, seconds))):
            after = row[-1:]
            if m < len(moves) and k >= slots:
                after.append(rows[k - slots][m + 1])  # what last read the slot
            if m == len(moves) and rows:
                after.append(rows[-1][-1])
            row.append(len(tasks))
            tasks.append(Task(f"layer {k} {'computes' if m == len(moves) else f'move {m}'}",
                              mover, taken, tuple(after)))
        rows.append(row)
    return tuple(tasks)


def layer_by_layer(graph: TensorGraph, cluster: Cluster, levels: Mapping[str, int] | None = None
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
            for level, (_, size) in moved_by_memory(cluster, found).items():
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
        for level, (_, size) in sorted(moved_by_memory(cluster, s.stores).items()):
            last = _append(tasks, _move(cluster, f"{s.name} stored", level, size, tuple(last)))
        stored.append(last[0])
    return scheduled(tasks)


def _move(cluster: Cluster, name: str, level: int, size: int, after: tuple[int, ...]) -> Task:
    """A transfer: the engine takes the next one while the first bytes of this are on their way."""
    mover = cluster.movers[len(cluster.outer) - level]
    return Task(name, mover, cluster.busy(level, size), after, size,
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
