"""In which order instances run: breadth first, depth first, heaviest first, or exactly.

What is compared is the most bytes of outputs live at once, and the bytes that then go out of the
cores' memories and back.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

Order = tuple[str, ...]
EXACT_NODES = 20  # instances up to which every order is considered
EXACT_STATES = 200_000  # sets of finished instances looked at before the search gives up


@dataclass(frozen=True)
class Tasks:
    """Instances with the bytes of their outputs, in breadth-first order, and the edges that are
    left: ``producers`` of each, in order.  kept: those whose outputs stay to the end."""

    size: Mapping[str, int]
    producers: Mapping[str, tuple[str, ...]]
    kept: frozenset[str] = frozenset()

    @cached_property
    def consumers(self) -> Mapping[str, tuple[str, ...]]:
        """Instance -> those that read its output, in order."""
        out: dict[str, list[str]] = {x: [] for x in self.size}
        for x in self.size:
            for p in self.producers.get(x, ()):
                out[p].append(x)
        return {k: tuple(v) for k, v in out.items()}


@dataclass(frozen=True)
class Ordered:
    """An order by the way it was found, the most bytes live in it, and the bytes moved because
    they do not fit (out and back)."""

    how: str
    order: Order
    peak: int
    moved: int

    def __str__(self) -> str:
        return f"{self.how}: peak {self.peak} bytes, {self.moved} moved: {' '.join(self.order)}"


def breadth_first(tasks: Tasks) -> Order:
    """Stage by stage: the order that the tasks are in."""
    return tuple(tasks.size)


def depth_first(tasks: Tasks) -> Order:
    """Algorithm 3: of the instances that are ready, the one that became known last."""
    degree = {x: len(tasks.producers.get(x, ())) for x in tasks.size}
    ready = [x for x in tasks.size if not degree[x]]
    listed, order = set(ready), []
    while ready:
        at = next(i for i in range(len(ready) - 1, -1, -1) if not degree[ready[i]])
        x = ready.pop(at)
        order.append(x)
        for y in tasks.consumers[x]:
            degree[y] -= 1
            if y not in listed:
                listed.add(y)
                ready.append(y)
    return tuple(order)


def heavy_first(tasks: Tasks) -> Order:
    """Of the instances that are ready, the one after which the fewest bytes are live, at a tie the
    one with the heaviest inputs."""
    degree = {x: len(tasks.producers.get(x, ())) for x in tasks.size}
    left = {x: len(tasks.consumers[x]) for x in tasks.size}
    place = {x: i for i, x in enumerate(tasks.size)}
    ready, order = [x for x in tasks.size if not degree[x]], []

    def rank(x: str) -> tuple[int, int, int]:
        freed = sum(tasks.size[p] for p in tasks.producers.get(x, ())
                    if left[p] == 1 and p not in tasks.kept)
        read = sum(tasks.size[p] for p in tasks.producers.get(x, ()))
        return tasks.size[x] - freed, -read, place[x]

    while ready:
        x = min(ready, key=rank)
        ready.remove(x)
        order.append(x)
        for p in tasks.producers.get(x, ()):
            left[p] -= 1
        for y in tasks.consumers[x]:
            degree[y] -= 1
            if not degree[y]:
                ready.append(y)
    return tuple(order)


def exact_order(tasks: Tasks, most: int = EXACT_STATES) -> Order | None:
    """An order with the least peak, None if there are too many instances or sets to look at."""
    names = tuple(tasks.size)
    if len(names) > EXACT_NODES:
        return None
    place = {x: i for i, x in enumerate(names)}
    before = [sum(1 << place[p] for p in tasks.producers.get(x, ())) for x in names]
    after = [sum(1 << place[c] for c in tasks.consumers[x]) for x in names]
    size = [tasks.size[x] for x in names]
    stays = [x in tasks.kept for x in names]
    full = (1 << len(names)) - 1
    heap: list[tuple[int, int, int, int]] = [(0, 0, 0, 0)]  # peak, -done, live, set
    known: dict[int, int] = {0: 0}
    came: dict[int, int] = {}
    while heap:
        peak, minus, live, done = heapq.heappop(heap)
        if done == full:
            return _walked(names, came, done)
        if peak > known[done] or len(known) > most:
            if len(known) > most:
                return None
            continue
        for i in range(len(names)):
            if done >> i & 1 or before[i] & ~done:
                continue
            now = done | 1 << i
            top = max(peak, live + size[i])
            if top >= known.get(now, top + 1):
                continue
            known[now], came[now] = top, i
            dead = sum(size[j] for j in range(len(names)) if now >> j & 1 and not stays[j]
                       and not after[j] & ~now and (j == i or after[j] >> i & 1))
            heapq.heappush(heap, (top, minus - 1, live + size[i] - dead, now))
    return None


def _walked(names: Sequence[str], came: Mapping[int, int], done: int) -> Order:
    order = []
    while done:
        i = came[done]
        order.append(names[i])
        done &= ~(1 << i)
    return tuple(reversed(order))


def peak_live(tasks: Tasks, order: Sequence[str]) -> int:
    """The most bytes of outputs live at once: an instance's inputs are, while it runs."""
    return _live(tasks, order, 0)[0]


def moved_bytes(tasks: Tasks, order: Sequence[str], budget: int) -> int:
    """Bytes that leave and come back because live outputs exceed a budget, about: the excess at
    every instance that makes it larger than it has been."""
    return _live(tasks, order, budget)[1]


def _live(tasks: Tasks, order: Sequence[str], budget: int) -> tuple[int, int]:
    left = {x: len(tasks.consumers[x]) for x in tasks.size}
    live = most = moved = over = 0
    for x in order:
        live += tasks.size[x]
        most = max(most, live)
        excess = max(0, live - budget)
        moved += 2 * max(0, excess - over)
        for p in tasks.producers.get(x, ()):
            left[p] -= 1
            if not left[p] and p not in tasks.kept:
                live -= tasks.size[p]
        if not left[x] and x not in tasks.kept:
            live -= tasks.size[x]
        over = max(0, live - budget)
    return most, moved


WAYS: dict[str, Callable[[Tasks], Order | None]] = {
    "breadth first": breadth_first, "depth first": depth_first, "heavy first": heavy_first,
    "exact": exact_order}


def orders(tasks: Tasks, budget: int, ways: Sequence[str] = tuple(WAYS)) -> tuple[Ordered, ...]:
    """The orders that the ways find, the best first: fewest bytes moved, then the least peak, then
    the way named first."""
    found = []
    for how in ways:
        order = WAYS[how](tasks)
        if order is not None:
            most, moved = _live(tasks, order, budget)
            found.append(Ordered(how, order, most, moved))
    return tuple(sorted(found, key=lambda o: (o.moved, o.peak)))
