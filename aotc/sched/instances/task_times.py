"""When everything runs: list scheduling of tasks over engines.

A task takes one engine for some seconds after all it depends on has ended.  A slot (of weights in
a near memory) is a dependency, too: what fills it waits for what last read it.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property


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
