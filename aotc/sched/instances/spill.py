"""Which memory every output is in, and where: what is live longest goes further out.

    spilled(lifetimes, capacities)   level of each, so that no step has more than fits
    placed(lifetimes, level)         offsets in one memory, reused as soon as an output is dead
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

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

    def busy(self, step: int) -> bool:
        """True if the step makes or reads it."""
        return step == self.first or step in self.reads or step == self.last


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


def spilled(lifetimes: Sequence[Lifetime], capacities: Sequence[int],
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
    total = 0
    profile: dict[int, int] = {}
    for step in steps:
        for x in begins.get(step, ()):
            live[x.name] = x
            total += x.size
        extra = work[step] if step < len(work) else 0
        while total + extra > room and live and not last:
            x = max(live.values(), key=lambda y: _rank(y, step, by))
            del live[x.name]
            total -= x.size
            level[x.name] += 1
            why[x.name] = f"live for {x.length} steps, made room at step {step}"
            for s in [s for s in profile if s >= x.first]:
                profile[s] -= x.size
        profile[step] = total + extra
        for x in ends.get(step, ()):
            if x.name in live:
                del live[x.name]
                total -= x.size
    return max(profile.values(), default=0)


def _rank(x: Lifetime, step: int, by: str) -> tuple[int, int, int]:
    idle = 2 if not x.busy(step) else 1 if step != x.first else 0
    return (idle, x.length, x.size) if by == LONGEST else (idle, x.size, x.length)


@dataclass(frozen=True)
class Place:
    """An output at ``offset`` of memory ``level``, from step ``first`` to ``last``."""

    name: str
    level: int
    offset: int
    size: int
    first: int
    last: int


def placed(lifetimes: Sequence[Lifetime], homes: Homes, align: int = 64) -> tuple[Place, ...]:
    """Offsets: each output in the smallest gap that it fits between those live with it, larger
    ones of the same step first (best fit).  Offsets and sizes are multiples of ``align``."""
    done: list[Place] = []
    active: dict[int, list[Place]] = {}
    for x in sorted(lifetimes, key=lambda y: (y.first, -y.size, y.name)):
        k = homes.level[x.name]
        size = -(-x.size // align) * align
        active[k] = [p for p in active.get(k, ()) if p.last >= x.first]
        at, best = 0, None
        for p in sorted(active[k], key=lambda p: p.offset):
            if p.offset - at >= size and (best is None or p.offset - at < best[0]):
                best = (p.offset - at, at)
            at = max(at, p.offset + p.size)
        place = Place(x.name, k, at if best is None else best[1], size, x.first, x.last)
        active[k].append(place)
        done.append(place)
    return tuple(done)


def pinned(x: Lifetime, level: int) -> Lifetime:
    """The same, no nearer than ``level``."""
    return replace(x, level=max(x.level, level))
