"""Which memory every output is in, and where: what is live longest goes further out.

    spilled(lifetimes, capacities)   level of each, so that no step has more than fits
    placed(lifetimes, level)         offsets in one memory, reused as soon as an output is dead
"""

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heappop, heappush
from itertools import accumulate

LONGEST, LARGEST = "longest", "largest"


@dataclass(frozen=True)
class Lifetime:
    """An output of ``size`` bytes, made at step ``first`` and last read at step ``last``.
    reads: the steps that read it.  level: the memory that it cannot be nearer than."""

    name: str
    size: int
    first: int
    last: int
    reads: tuple[int, ...] = ()
    level: int = 0

    @property
    def length(self) -> int:
        """Steps that it is live for."""
        return self.last - self.first + 1

    @cached_property
    def steps(self) -> frozenset[int]:
        """The steps that make or read it."""
        return frozenset((self.first, *self.reads, self.last))

    def busy(self, step: int) -> bool:
        """True if the step makes or reads it."""
        return step in self.steps


# less (length, size) of what is live, its number, itself: what goes first is in front
Heap = list[tuple[int, int, int, Lifetime]]


@dataclass(frozen=True)
class Homes:
    """level: output -> how many memories further out than the cores' own it is.  moved: bytes out
    of their own memory and back, per level.  peak: the most bytes live, per level.  why: of what
    was spilled, the steps it lives for and the step it made room at."""

    level: Mapping[str, int]
    moved: tuple[int, ...]
    peak: tuple[int, ...]
    why: Mapping[str, str]

    def __str__(self) -> str:
        return "\n".join(f"{x}: level {n}" + (f", {self.why[x]}" if x in self.why else "")
                         for x, n in self.level.items())


def spill_outputs(lifetimes: Sequence[Lifetime], capacities: Sequence[int],
                  work: Sequence[int] = (), by: str = LONGEST) -> Homes:
    """Levels of outputs such that no step has more bytes live in a memory than its capacity
    (``capacities``: per level, the nearest first; the last one holds everything).

    work: bytes of the nearest memory that each step takes besides.  by: what goes first, of the
    outputs that the step in question neither makes nor reads; if there are none, of those that it
    reads, then what it makes: those it works on piece by piece."""
    level = {x.name: x.level for x in lifetimes}
    why: dict[str, str] = {}
    peaks = []
    for k, room in enumerate(capacities):
        here = [x for x in lifetimes if level[x.name] == k]
        last = k == len(capacities) - 1
        peaks.append(_sweep(here, room, work if k == 0 else (), by, level, why, last))
    moved = [0] * len(capacities)
    for x in lifetimes:
        for k in range(level[x.name]):
            moved[k] += x.size * (1 + max(1, len(x.reads)))
    return Homes(level, tuple(moved), tuple(peaks), why)


def _sweep(here: Sequence[Lifetime], room: int, work: Sequence[int], by: str,
           level: dict[str, int], why: dict[str, str], last: bool) -> int:
    """The peak of one memory after what does not fit has been sent one level out."""
    begins: dict[int, list[Lifetime]] = {}
    ends: dict[int, list[Lifetime]] = {}
    for x in here:
        begins.setdefault(x.first, []).append(x)
        ends.setdefault(x.last, []).append(x)
    steps = sorted({*begins, *ends, *range(len(work))})
    live: dict[str, Lifetime] = {}
    heap: Heap = []
    total = count = 0
    change: dict[int, int] = {}  # of the profile from a step on, by what was spilled later
    profile: list[int] = []
    for step in steps:
        for x in begins.get(step, ()):
            live[x.name] = x
            first, second = _order(x, by)
            heappush(heap, (-first, -second, count, x))
            total, count = total + x.size, count + 1
        extra = work[step] if step < len(work) else 0
        for x in () if last else _going(heap, live, step, total + extra - room):
            del live[x.name]
            total -= x.size
            level[x.name] += 1
            why[x.name] = f"live for {x.length} steps, made room at step {step}"
            change[x.first] = change.get(x.first, 0) - x.size
            change[step] = change.get(step, 0) + x.size
        profile.append(total + extra)
        for x in ends.get(step, ()):
            if live.pop(x.name, None):
                total -= x.size
    less = accumulate(change.get(s, 0) for s in steps)
    return max(map(sum, zip(profile, less)), default=0)


def _order(x: Lifetime, by: str) -> tuple[int, int]:
    """The greatest goes first."""
    return (x.length, x.size) if by == LONGEST else (x.size, x.length)


def _going(heap: Heap, live: Mapping[str, Lifetime], step: int, excess: int) -> list[Lifetime]:
    """What goes at a step until no bytes are in excess, taken from a heap that may have more than
    what is live: first what the step does not touch, then what it reads, then what it makes."""
    going: list[Lifetime] = []
    busy: Heap = []
    while excess > 0 and heap:
        found = heappop(heap)
        x = found[-1]
        if x.name not in live:
            continue
        if x.busy(step):
            busy.append(found)
        else:
            going.append(x)
            excess -= x.size
    busy.sort(key=lambda b: (b[-1].first == step, *b[:-1]))
    taken = 0
    while excess > 0 and taken < len(busy):
        going.append(busy[taken][-1])
        excess -= busy[taken][-1].size
        taken += 1
    for b in busy[taken:]:
        heappush(heap, b)
    return going


@dataclass(frozen=True)
class OutputPlace:
    """An output at ``offset`` of memory ``level``, from step ``first`` to ``last``."""

    name: str
    level: int
    offset: int
    size: int
    first: int
    last: int


def place_outputs(lifetimes: Sequence[Lifetime], homes: Homes,
                  align: int = 64) -> tuple[OutputPlace, ...]:
    """Offsets: each output in the smallest gap that it fits between those live with it, larger
    ones of the same step first (best fit).  Offsets and sizes are multiples of ``align``."""
    done: list[OutputPlace] = []
    room: dict[int, _Room] = {}
    ends: list[tuple[int, int, int, int]] = []  # (last step, level, offset, size) of what is live
    for x in sorted(lifetimes, key=lambda y: (y.first, -y.size, y.name)):
        k = homes.level[x.name]
        size = -(-x.size // align) * align
        while ends and ends[0][0] < x.first:
            _, level, *freed = heappop(ends)
            room[level].free(*freed)
        at = room.setdefault(k, _Room()).take(size)
        heappush(ends, (x.last, k, at, size))
        done.append(OutputPlace(x.name, k, at, size, x.first, x.last))
    return tuple(done)


class _Room:
    """The gaps below ``top``, the end of what is live in one memory."""

    def __init__(self) -> None:
        self.top = 0
        self.gaps: list[tuple[int, int]] = []  # (size, offset), the smallest first
        self.begin: dict[int, int] = {}  # offset of a gap -> its end
        self.end: dict[int, int] = {}  # and back

    def take(self, size: int) -> int:
        """The offset of so many bytes in the smallest gap that has them, or at the top."""
        i = bisect_left(self.gaps, (size, 0))
        if i == len(self.gaps):
            self.top += size
            return self.top - size
        _, at = self.gaps[i]
        end = self._close(at)
        self._open(at + size, end)
        return at

    def free(self, at: int, size: int) -> None:
        """Bytes that are no longer live: one gap with those beside them."""
        end = at + size
        if at in self.end:
            at = self.end[at]
            self._close(at)
        if end in self.begin:
            end = self._close(end)
        if end == self.top:
            self.top = at
        else:
            self._open(at, end)

    def _open(self, at: int, end: int) -> None:
        if at < end:
            insort(self.gaps, (end - at, at))
            self.begin[at], self.end[end] = end, at

    def _close(self, at: int) -> int:
        end = self.begin.pop(at)
        del self.end[end], self.gaps[bisect_left(self.gaps, (end - at, at))]
        return end


def pin_lifetime(x: Lifetime, level: int) -> Lifetime:
    """The same, no nearer than ``level``."""
    return replace(x, level=max(x.level, level))
