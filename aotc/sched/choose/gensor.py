"""Gensor: tiles constructed by a Markov walk over the state of a group.

A state holds a tile per memory level, outermost first, up to the level the walk is in, and the
virtual threads of the last one.  Moves: ``tile`` (an axis one rung up), ``inverse`` (one rung
down), ``vthread``, ``cache`` (start on the next faster level) and ``stay``.  A move is drawn with
probability in proportion to its benefit; moves that do not fit the level have none.  Axes are the
anchor's and every reduction that may be cut, so reduction splits are found with the tile; rungs
include the multiples of the micro-kernel's rows and lanes.

Walker 0 is greedy (growth: the walk with an infinite exponent), the others are random and start
again from scratch, as long as a budget of states lasts; the best complete states of all, by
predicted seconds, are descended to a local optimum.  The same seed gives the same state.

What differs from the paper as printed:

- A tile move's benefit is ``(Q/Q')^beta``, beta from 1 to 4, not ``(Q/Q')(F'/F)``; footprints are a
  hard bound.
- ``cache`` has ``cache_multiplier`` times the mean benefit of tiles times (footprint / capacity)
  squared.  Printed are 16 to 19 beside at most 4 for a tile: such a walk leaves the first level at
  once and ends tens of times off the optimum (tests/sched/test_gensor.py).
- The roulette draws by cumulative sums, not by ``rand() >= p[i]``; the probability that a state is
  kept rises while the walk cools; ``stay`` is added to moves that else have a period of 2.
- The result is the best of all states that were kept, not the last one.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from math import exp, log
from operator import le
from random import Random
from typing import Any

from aotc.errors import ScheduleError
from aotc.sched.cost.group_cost import (
    Aligned,
    Cost,
    Free,
    bank_passes,
    buffers_at_hand,
    compute_seconds,
    fetches,
    group_cost,
    kept_bytes,
    launch_seconds,
    level_seconds,
    overlap_seconds,
    scratch_seconds,
    work_item,
)
from aotc.sched.model.group_numbers import GroupModel, Widths
from aotc.target.base import Machine

MAX_VTHREADS = 8
STEPS = 100  # of a walk; each halves the temperature


@dataclass(frozen=True)
class Budget:
    """states: that may have been looked at before a random walk begins (0: growth alone); walkers:
    walks at most, growth included; kept: states of all walks that are descended; seed: of the
    walks."""

    states: int = 0
    walkers: int = 12
    kept: int = 2
    seed: int = 0


@dataclass(frozen=True)
class TileState:
    """``tiles``: one tuple of extents per level that the walk has reached."""

    tiles: tuple[Widths, ...]
    vthreads: int = 1


@dataclass(frozen=True)
class Construction:
    """The chosen state, its Cost, the walker that found it and how many states were looked at."""

    state: TileState
    cost: Cost
    walker: int
    states: int


# ---------------------------------------------------------------- benefits and probabilities

def tile_benefit(q: float, q_new: float, beta: float) -> float:
    """Benefit of a tile move from its traffic: bytes into the level, before and after.  beta: from
    1 to 4 while a walk cools."""
    return float((q / q_new) ** beta)


def vthread_benefit(width: int, banks: int, vthreads: int) -> float:
    """Passes over the banks without virtual threads over those with them."""
    return bank_passes(width, banks) / bank_passes(width, banks, vthreads)


def cache_multiplier(t: int) -> float:
    """Growing wish for the next level: 0.5 after no step in this one, 1.5 after 10, towards 3."""
    return 3.0 / (1.0 + exp(-(log(5.0) / 10.0) * (t - 10)))


def keep_probability(temperature: float) -> float:
    """Probability that a walk at this temperature records its state: late ones rather than early
    ones."""
    return 1.0 / (1.0 + exp(-0.5 * (-log(temperature) - 10.0)))


def pick(weights: Sequence[float], point: float) -> int:
    """Index drawn from ``weights`` by a point in 0..1: the one whose cumulative part holds it."""
    left = point * sum(weights)
    for i, w in enumerate(weights):
        left -= w
        if left < 0:
            return i
    return max(i for i, w in enumerate(weights) if w > 0)


@lru_cache(maxsize=1 << 12)
def ladder(extent: int, unit: int = 1) -> Widths:
    """Extents an axis may be cut to: powers of two and divisors of its extent, ``unit`` times
    powers of two, and the whole, so that 83, 617 and 1000 have useful steps too."""
    rungs = {1, extent} | {1 << i for i in range(extent.bit_length()) if 1 << i <= extent}
    rungs |= {d for d in range(1, int(extent ** 0.5) + 1) if extent % d == 0}
    rungs |= {extent // d for d in rungs if extent % d == 0}
    if unit > 1:
        rungs |= {unit << i for i in range(extent.bit_length()) if unit << i <= extent}
    return tuple(sorted(rungs))


# ---------------------------------------------------------------- the space of states

class TileSpace:
    """Everything a walk asks: traffic, footprint and cost of tiles, each computed once.

    depth: how many levels get a tile (default: all but the slowest); grains: {axis: extent that the
    micro-kernel rows are made for}; fixed: {axis: its only extents}; strict: False lets the
    smallest tile be larger than a level, as caches that nobody manages do; aligned, free: as for
    ``group_cost``.
    """

    def __init__(self, model: GroupModel, machine: Machine, depth: int | None = None,
                 grains: Mapping[str, int] | None = None, fixed: Mapping[str, Widths] | None = None,
                 strict: bool = True, aligned: Sequence[Aligned] = (), free: Free = ()) -> None:
        self.model, self.machine, self.aligned, self.free = model, machine, aligned, free
        self.depth = len(machine.memories) - 1 if depth is None else depth
        grains, fixed = grains or {}, fixed or {}
        self.rungs = tuple(fixed[a] if a in fixed else ladder(n, grains.get(a, 1))
                           for a, n in zip(model.axes, model.extents))
        self.place = tuple({r: i for i, r in enumerate(rungs)} for rungs in self.rungs)
        self.item = work_item(machine, self.depth)
        self.kept = kept_bytes(model, free, self.depth)
        self.tiles: dict[tuple[int, Widths], tuple[int, int]] = {}
        self.looked = 0  # states that were asked for, those known among them
        self.items: dict[Widths, tuple[float, float, float, float]] = {}
        self.least = tuple(rungs[0] for rungs in self.rungs)
        inner = machine.memories[1:self.depth + 1]
        self.rooms = [machine.room(x) for x in inner]
        for i, memory in enumerate(inner):
            live = self.measure(i, self.least)[1]
            if strict and live > self.rooms[i]:
                raise ScheduleError(f"group {model.name}: its smallest tile needs {live} bytes, "
                                    f"{memory.name} has {int(self.rooms[i])}")
            self.rooms[i] = max(self.rooms[i], live)

    def measure(self, number: int, tile: Widths) -> tuple[int, int]:
        """(traffic, footprint) of a tile in level ``number`` + 1."""
        self.looked += 1
        found = self.tiles.get((number, tile))
        if found is None:
            free = self.free[number] if number < len(self.free) else frozenset()
            moved, live = self.model.measure(tile, free, self.machine.memories[number].transaction,
                                             fetches(self.machine, number),
                                             not self.machine.managed)
            found = max(1, moved), live
            self.tiles[number, tile] = found
        return found

    def room(self, number: int) -> float:
        """Usable bytes of the level that holds the tile ``number``."""
        return self.rooms[number]

    def fits(self, number: int, tile: Widths, vthreads: int = 1) -> bool:
        return self.measure(number, tile)[1] * vthreads <= self.room(number)

    def score(self, state: TileState) -> tuple[float, float]:
        """(seconds, seconds of all terms together) of a complete state, cheaply: what several
        states share is computed once.  The second breaks ties among states bound by one term."""
        last, terms = len(state.tiles) - 1, []
        for i, tile in enumerate(state.tiles):
            terms.append(level_seconds(self.model, self.machine, i, tile,
                                       self.measure(i, tile)[0],
                                       state.vthreads if i == last else 1))
        util, compute, inner, launch = self.work(state.tiles[self.item])
        terms += [compute, inner]
        return overlap_seconds(self.machine, terms) / util + launch, sum(terms) + launch

    def work(self, tile: Widths) -> tuple[float, float, float, float]:
        """(utilisation, seconds of arithmetic, of scratch, of launching) of a work item's tile."""
        if tile not in self.items:
            self.items[tile] = (*compute_seconds(self.model, self.machine, tile, self.aligned,
                                                 near=buffers_at_hand(self.machine, self.free)),
                                scratch_seconds(self.model, self.machine, tile,
                                                kept=self.kept)[1]
                                if len(self.model.stages) > 1 or self.kept else 0.0,
                                launch_seconds(self.model, self.machine, tile))
        return self.items[tile]

    def cost(self, state: TileState) -> Cost:
        """Cost of a complete state."""
        return group_cost(self.model, self.machine, state.tiles, state.vthreads, self.aligned,
                          self.free)

    def neighbours(self, tile: Widths, outer: Widths) -> Iterator[tuple[Widths, bool]]:
        """(tile one rung up or down along one axis, True if up), inside ``outer``."""
        for a, rungs in enumerate(self.rungs):
            i = self.place[a][tile[a]]
            if i + 1 < len(rungs) and rungs[i + 1] <= outer[a]:
                yield tile[:a] + (rungs[i + 1],) + tile[a + 1:], True
            if i:
                yield tile[:a] + (rungs[i - 1],) + tile[a + 1:], False


def moves(space: TileSpace, state: TileState, beta: float,
          t: int) -> list[tuple[float, str, TileState]]:
    """[(weight, kind, State)] of every move from a state; ``t``: steps since entering the level.
    ``cache`` from the last level is no move: the walk ends there."""
    number = len(state.tiles) - 1
    tile, outer = state.tiles[-1], state.tiles[-2] if number else space.model.extents
    q, f = space.measure(number, tile)
    out = []
    for new, up in space.neighbours(tile, outer):
        q_new, f_new = space.measure(number, new)
        if f_new * state.vthreads <= space.room(number):
            out.append((tile_benefit(q, q_new, beta), "tile" if up else "inverse",
                        TileState(state.tiles[:-1] + (new,), state.vthreads)))
    mean = sum(w for w, _, _ in out) / len(out) if out else 1.0
    out.append((mean / 4, "stay", state))
    if number + 1 < space.depth:
        start = TileState(state.tiles + (space.least,), state.vthreads)
        gate = (f / space.room(number)) ** 2
        out.append((cache_multiplier(t) * mean * gate, "cache", start))
        return out
    banks, width = space.machine.memories[number].banks, tile[space.model.rank - 1]
    for v in (1, 2, 4, MAX_VTHREADS) if banks else ():
        if v != state.vthreads and width % v == 0 and space.fits(number, tile, v):
            gain = vthread_benefit(width, banks, v) / vthread_benefit(width, banks, state.vthreads)
            out.append((gain, "vthread", TileState(state.tiles, v)))
    return out


# ---------------------------------------------------------------- walks

def construct(model: GroupModel, machine: Machine, budget: Budget = Budget(),
              **how: Any) -> Construction:
    """Construction of a group on a machine; keywords as for ``TileSpace``.  ScheduleError if not
    even tiles of one element fit."""
    space = TileSpace(model, machine, **how)
    found = {grow_greedily(space): 0}
    for walker in range(1, budget.walkers):
        if space.looked >= budget.states:
            break
        for state in walk(space, Random(f"{budget.seed}/{walker}")):
            found.setdefault(state, walker)
    first: dict[Widths, TileState] = {}  # per tile of the first level: those descended differ
    for state in sorted(found, key=space.score):
        first.setdefault(state.tiles[0], state)
    best = list(first.values())[:budget.kept]
    ends = {descend(space, _recombined(space, s)): found[s] for s in reversed(best)}
    state = min(ends, key=space.score)
    walker = ends[state]
    # the descents have measured more inner tiles
    state = descend(space, _recombined(space, state))
    return Construction(state, space.cost(state), walker, space.looked)


def _recombined(space: TileSpace, state: TileState) -> TileState:
    """The state with each inner tile replaced by the best one that any walk has measured and that
    lies inside: traffic of a level depends on that level's tile alone."""
    tiles = state.tiles[:1]
    for number in range(1, space.depth):
        inside = [(level_seconds(space.model, space.machine, number, tile, moved), tile)
                  for (n, tile), (moved, live) in space.tiles.items()
                  if n == number and live <= space.room(number)
                  and all(map(le, tile, tiles[-1]))]
        tiles += (min(inside)[1],)
    other = TileState(tiles)
    return min(state, other, key=space.score)


def grow_greedily(space: TileSpace) -> TileState:
    """Walker 0: in every level the tile grows along the axis that saves most traffic, until
    nothing that fits saves any; outside the last level growth that costs nothing goes on, for it
    leaves the next level more room."""
    tiles: tuple[Widths, ...] = ()
    for number in range(space.depth):
        outer = tiles[-1] if tiles else space.model.extents
        tiles += (grow_tile(space, number, space.least, outer, number + 1 < space.depth),)
    return TileState(tiles)


def grow_tile(space: TileSpace, number: int, tile: Widths, outer: Widths,
              idle: bool = False) -> Widths:
    """A tile of a level grown inside ``outer`` along the axis that saves most traffic, until
    nothing that fits saves any; ``idle``: growth that costs nothing goes on."""
    while True:
        q = space.measure(number, tile)[0]
        better = [(space.measure(number, new)[0], new)
                  for new, up in space.neighbours(tile, outer) if up and space.fits(number, new)]
        if not better or min(better)[0] >= q + idle:
            return tile
        tile = min(better)[1]


def walk(space: TileSpace, rng: Random) -> list[TileState]:
    """States that one random walk records: the complete ones it kept, and its last."""
    state, t, found = TileState((space.least,)), 0, []
    for step in range(STEPS):
        temperature = 2.0 ** -step
        options = moves(space, state, 1.0 + 3.0 * step / STEPS, t)
        _, kind, state = options[pick([w for w, _, _ in options], rng.random())]
        t = 0 if kind == "cache" else t + 1
        if len(state.tiles) == space.depth and rng.random() < keep_probability(temperature):
            found.append(state)
    while len(state.tiles) < space.depth:
        state = TileState(state.tiles + (space.least,), state.vthreads)
    return found + [state]


def descend(space: TileSpace, state: TileState) -> TileState:
    """The local optimum below a complete state: one axis of one level at a time to any rung; where
    none helps, two axes a few rungs in opposite directions."""
    now = space.score(state)
    while True:
        for near in (_single, _swapped):
            better = min(_around(space, state, near), key=space.score, default=state)
            found = space.score(better)
            if found[0] < now[0] * (1 - 1e-9) or found < now and found[1] < now[1] * (1 - 1e-9):
                break
        else:
            return state
        state, now = better, found


def _around(space: TileSpace, state: TileState,
            near: Callable[[TileSpace, Widths, Widths], Iterator[Widths]]) -> Iterator[TileState]:
    """Complete states near a state that fit."""
    for number, tile in enumerate(state.tiles):
        outer = state.tiles[number - 1] if number else space.model.extents
        v = state.vthreads if number == space.depth - 1 else 1
        for new in near(space, tile, outer):
            if space.fits(number, new, v):
                inner = tuple(tuple(map(min, new, x)) for x in state.tiles[number + 1:])
                yield TileState(state.tiles[:number] + (new,) + inner, state.vthreads)
                if near is _single and inner and all(
                        space.fits(i, new) for i in range(number + 1, space.depth)):
                    yield TileState(state.tiles[:number] + (new,) * (len(inner) + 1),
                                    state.vthreads)
    if space.machine.memories[space.depth - 1].banks and near is _single:
        width = state.tiles[-1][space.model.rank - 1]
        for v in (1, 2, 4, MAX_VTHREADS):
            if width % v == 0 and space.fits(space.depth - 1, state.tiles[-1], v):
                yield TileState(state.tiles, v)


def _single(space: TileSpace, tile: Widths, outer: Widths) -> Iterator[Widths]:
    for a, rungs in enumerate(space.rungs):
        for r in rungs[:bisect_right(rungs, outer[a])]:
            if r != tile[a]:
                yield tile[:a] + (r,) + tile[a + 1:]


def _swapped(space: TileSpace, tile: Widths, outer: Widths) -> Iterator[Widths]:
    at = [place[x] for place, x in zip(space.place, tile)]
    tops = [bisect_right(rungs, o) for rungs, o in zip(space.rungs, outer)]
    for a, b in permutations(range(len(tile)), 2):
        for up, down in ((1, 1), (1, 2), (2, 1), (2, 2)):
            if at[a] + up < tops[a] and at[b] >= down:
                new = list(tile)
                new[a] = space.rungs[a][at[a] + up]
                new[b] = space.rungs[b][at[b] - down]
                yield tuple(new)


__all__ = ["Budget", "Construction", "TileSpace", "TileState", "cache_multiplier",
           "construct", "descend", "grow_greedily", "grow_tile", "keep_probability", "ladder",
           "moves", "pick", "tile_benefit", "vthread_benefit", "walk"]
