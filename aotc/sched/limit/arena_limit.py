"""A Schedule whose arena stays under a limit (Welder's host-memory case, one level down).

    decide_within(program, target, limit)

What makes the peak is found by liveness; tensors are then not stored but computed inside the
kernels that need them, tile by tile with their halo, several times if several kernels do
(``recompute``).  State of the search: the set of lumps that store (``arena_cones.py``); its arena
is known from liveness and the scratch of the tiles, its time from the cost model.  Starting from
everything stored, and from nothing stored that need not be, lumps are dropped or stored again
until the arena fits, then as long as that takes predicted time off.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from aotc.errors import LimitError, ScheduleError
from aotc.ir.layout import Layout
from aotc.ir.program import Program, Rewrite
from aotc.ir.schedule import PRECISION, Group, Schedule
from aotc.passes.recompute import faults_of, rewrite_readers, twin_names
from aotc.passes.rewrites import apply_rewrites
from aotc.passes.winograd import stages_of
from aotc.sched.candidates.choose_groups import choose_groups
from aotc.sched.candidates.winograd_choice import Winograd, form_shares
from aotc.sched.choose.connect import part_groups
from aotc.sched.decide import decide
from aotc.sched.limit.arena import ArenaLimit, arena_need
from aotc.sched.limit.arena_cones import Cone, Cones
from aotc.sched.memory.scratch import scratch_bytes
from aotc.sched.memory.slots import Lifetime
from aotc.sched.model.tilegraph import merge_groups, order_groups
from aotc.sched.precision.levels import Levels
from aotc.sched.text_choices.choose_writing import choose_writing
from aotc.target.base import Target

Rewrites = tuple[Rewrite, ...]
ATTEMPTS = 6  # finished schedules that may turn out too large or illegal before giving up
ROUNDS = 200  # improvements of one search
NEAR = 1.01  # the smallest limit that works is found to within this factor
LOWER = (0.9, 0.8, 0.7, 0.6, 0.5)  # of one that works: tried, for smaller ones may work again
KIB = 1024


@dataclass(frozen=True)
class LumpState:
    """stored: lumps that store; cones: {lump: its cone}; peak: bytes of temps that live at once;
    budget: bytes left for one worker's scratch; excess: by how much the limit is missed, summed
    over the kernels (0: it is kept); seconds: predicted, with the tiles that fit."""

    stored: Cone
    cones: dict[int, Cone]
    peak: int
    budget: int
    excess: int
    seconds: float


class Search:
    """States for one limit; tilings of kernels are shared between searches through ``cones``."""

    def __init__(self, cones: Cones, limit: int, workers: int) -> None:
        self.cones, self.limit, self.workers = cones, limit, workers
        self.known: dict[Cone, LumpState | None] = {}

    def state(self, stored: Cone) -> LumpState | None:
        """The State of a set of stored lumps; None if one of its kernels is impossible."""
        if stored not in self.known:
            self.known[stored] = self._state(stored)
        return self.known[stored]

    def best(self) -> LumpState | None:
        """The cheapest State found that keeps the limit; None if none does."""
        lumps = self.cones.lumps
        least = frozenset(i for i, u in enumerate(lumps) if u.fixed)
        ends = []
        for start in (frozenset(range(len(lumps))), least):
            state = self.state(start)
            if state is not None:
                ends.append(self.improved(self.fitted(state)))
        return min((s for s in ends if not s.excess), key=lambda s: s.seconds, default=None)

    def fitted(self, state: LumpState) -> LumpState:
        """Lumps dropped or stored one by one, the best value for its time first, until the limit is
        kept or nothing brings it nearer."""
        while state.excess:
            near = [s for s in self.neighbours(state, True) if s.excess < state.excess]
            if not near:
                return state
            now = state
            state = min(near, key=lambda s: (s.seconds - now.seconds) / (now.excess - s.excess))
        return state

    def improved(self, state: LumpState) -> LumpState:
        """The state after every single change that keeps the limit and saves predicted time."""
        for _ in range(ROUNDS if not state.excess else 0):
            better = min((s for s in self.neighbours(state, False) if not s.excess),
                         key=lambda s: s.seconds, default=state)
            if better.seconds >= state.seconds * (1 - 1e-6):
                break
            state = better
        return state

    def neighbours(self, state: LumpState, peak_only: bool) -> Iterator[LumpState]:
        """States with one lump dropped or one more stored; ``peak_only``: drop only what lives
        where the limit is missed."""
        live = self._live(state.stored, state.cones)
        for i, u in enumerate(self.cones.lumps):
            if i not in state.stored:
                found = self.state(state.stored | {i})
            elif u.fixed or peak_only and not self._at_peak(state, live, i):
                continue
            else:
                found = self.state(state.stored - {i})
            if found is not None:
                yield found

    def _at_peak(self, state: LumpState, live: Mapping[int, Lifetime], lump: int) -> bool:
        first, last = live[lump]
        return any(first <= k <= last and self._missed(state, live, k) for k in state.stored)

    def _missed(self, state: LumpState, live: Mapping[int, Lifetime], step: int) -> bool:
        lumps = self.cones.lumps
        held = sum(lumps[u].bytes for u, (lo, hi) in live.items() if lo <= step <= hi)
        return held + self.workers * self.cones.least(step, state.cones[step]) > self.limit

    def _live(self, stored: Cone, cones: Mapping[int, Cone]) -> dict[int, Lifetime]:
        """{stored lump: (first, last) lump during whose kernel it lives}."""
        live = {i: (i, i) for i in stored}
        for sink in sorted(stored):
            for u in self.cones.sources(cones[sink]):
                live[u] = live[u][0], max(live[u][1], sink)
        return live

    def _state(self, stored: Cone) -> LumpState | None:
        cones = {i: self.cones.cone(i, stored) for i in stored}
        if not all(self.cones.tilings(i, c) and self.cones.least(i, c) <= self.cones.room
                   for i, c in cones.items()):
            return None
        live = self._live(stored, cones)
        held = {k: sum(self.cones.lumps[u].bytes for u, (lo, hi) in live.items() if lo <= k <= hi)
                for k in stored}
        peak = max(held.values(), default=0)
        least = {k: self.workers * self.cones.least(k, cones[k]) for k in stored}
        over = max(0, peak + max(least.values(), default=0) - self.limit)
        excess = over + sum(max(0, held[k] + least[k] - self.limit) for k in stored)
        budget = max(self.limit - peak, 0) // self.workers if self.workers else self.cones.room
        seconds = sum(min((t.seconds for t in self.cones.tilings(k, c) if t.slab <= budget),
                          default=self.cones.tilings(k, c)[-1].seconds) for k, c in cones.items())
        return LumpState(stored, cones, peak, budget, excess, seconds)


# ---------------------------------------------------------------- from a state to a Schedule

def decide_within(program: Program, target: Target, limit: ArenaLimit, how: str = "all",
                  winograd: Winograd = "off", unfold: bool = False,
                  layouts: Mapping[str, Layout] | None = None,
                  precision: str = PRECISION[0],
                  levels: Levels | None = None, written: bool = True) -> Schedule:
    """Schedule of ``program`` for ``target`` whose arena keeps an ArenaLimit; the other parameters
    are those of ``decide``, whose Schedule this is if it keeps the limit by itself, or if the
    Program has regions: whether that one keeps it, only its Plan tells (``check_arena``).
    LimitError, with the smallest limit that works, if no Schedule is found."""
    free = decide(program, target, how, winograd, unfold, layouts, precision=precision,
                  levels=levels, written=False)
    found = free if free.regions else _within(program, target, limit, how, free)
    return choose_writing(program, found, target) if written else found


def _within(program: Program, target: Target, limit: ArenaLimit, how: str,
            free: Schedule) -> Schedule:
    """``decide_within``; ``free``: the Schedule without a limit."""
    workers = _workers(target, limit)
    need = _need(program, free, target, workers)
    if need <= limit.bytes:
        return free
    planners = []
    # what is merged already is recomputed as a whole: smaller lumps keep smaller limits
    for way in dict.fromkeys((how, "register" if how == "all" else how)):
        planners.append(Planner(program, target, way, free.rewrites, workers))
        schedule = planners[-1].within(limit.bytes)
        if schedule is not None:
            return replace(schedule, precision=free.precision)
    least, schedule = min((p.smallest(need, free) for p in planners), key=lambda found: found[0])
    if least <= limit.bytes:
        return replace(schedule, precision=free.precision)
    raise LimitError([
        f"arena limit: no schedule of {program.name} keeps {limit}; the smallest limit that works "
        f"is {least // KIB}K ({least} bytes), without a limit it takes {need}"])


def _lower(kib: int) -> list[int]:
    """Limits in KiB to try below one that works, largest first."""
    return [n for n in dict.fromkeys(int(kib * f) for f in LOWER) if n]


def _workers(target: Target, limit: ArenaLimit) -> int:
    """How many slabs the arena holds: none where scratch is a memory of its own."""
    return 0 if target.machine.threads else limit.workers


def _need(program: Program, schedule: Schedule, target: Target, workers: int) -> int:
    stored, slabs = arena_need(apply_rewrites(program, schedule.rewrites), schedule, target)
    return stored + workers * max(slabs, default=0)


class Planner:
    """Schedules of one Program under any limit.  rewrites: those of a Schedule without one; the
    Winograd forms among them are for convolutions that remain kernels by themselves."""

    def __init__(self, program: Program, target: Target, how: str, rewrites: Rewrites,
                 workers: int) -> None:
        self.program, self.target, self.workers = program, target, workers
        self.forms = tuple(r for r in rewrites if r[0] == "winograd")
        self.rewrites = tuple(r for r in rewrites if r[0] != "winograd")
        rewritten = apply_rewrites(program, self.rewrites)
        shares = form_shares(program, target, self.forms)
        groups = choose_groups(rewritten, target, how)
        several = {g.name for g in groups if not shares.keys().isdisjoint(g.computes)
                   and any(level != "register" for level in g.connect.values())}
        groups = part_groups(rewritten, groups, several)
        self.cones = Cones(rewritten, target, order_groups(rewritten, groups), shares)

    def within(self, limit: int) -> Schedule | None:
        """The Schedule for a limit in bytes; None if none is found."""
        room = limit
        for _ in range(ATTEMPTS):
            state = Search(self.cones, room, self.workers).best()
            if state is None:
                return None
            over, schedule = self._finished(state, limit)
            if schedule is not None:
                return schedule
            room -= over  # layouts and what stages pack are known only now
            if room <= 0:
                return None
        return None

    def smallest(self, need: int, schedule: Schedule) -> tuple[int, Schedule]:
        """(smallest limit that works, in whole KiB, a Schedule that keeps it), by bisection up to
        ``NEAR`` below ``need``, which ``schedule`` keeps, and from there on by trying ``LOWER``
        ones: the search is greedy, it may miss a limit and keep a smaller one.  The same for every
        limit asked for, so that what an error names works."""
        low, high = 0, -(-need // KIB)
        while high - low > 1 and high > low * NEAR:
            middle = max(low + 1, min(high - 1, int((max(low, 1) * high) ** 0.5)))
            found = self.within(middle * KIB)
            if found is None:
                low = middle
            else:
                schedule, high = found, self._kib(found)
                low = min(low, high - 1)
        tries = _lower(high)
        while tries:
            found = self.within(tries.pop(0) * KIB)
            if found is not None:
                schedule, high = found, self._kib(found)
                tries = _lower(high)
        return high * KIB, schedule

    def _kib(self, schedule: Schedule) -> int:
        return -(-_need(self.program, schedule, self.target, self.workers) // KIB)

    def _finished(self, state: LumpState, limit: int) -> tuple[int, Schedule | None]:
        """(0, Schedule of a State), or (bytes it is over the limit, None); 0 bytes where a kernel
        is refused, which the next search avoids."""
        alone = {c for sink, cone in state.cones.items() if len(cone) == 1
                 for c in self.cones.lumps[sink].group.computes}
        forms = tuple(r for r in self.forms if r[1] in alone)
        while True:
            try:
                schedule, refused = self.schedule(state, forms)
            except _Tangled as err:
                sink, = err.args
                self.cones.refuse(sink, state.cones[sink])
                return 0, None
            if refused and not forms:
                for sink in refused:
                    self.cones.refuse(sink, state.cones[sink])
                return 0, None
            program = apply_rewrites(self.program, schedule.rewrites)
            stored, slabs = arena_need(program, schedule, self.target)
            over = stored + self.workers * max(slabs, default=0) - limit
            if over <= 0 and not refused:
                return 0, schedule
            if not forms:
                return over, None
            # their tiles are of a size of their own: those that are too large go, else all
            large = {c for g, n in zip(schedule.groups, slabs) for c in g.computes
                     if stored + self.workers * n > limit}
            kept = tuple(r for r in forms if r[1] not in large)
            forms = kept if len(kept) < len(forms) else ()

    def schedule(self, state: LumpState, forms: Rewrites = ()) -> tuple[Schedule, list[int]]:
        """(Schedule of a State, stored lumps whose kernel is refused); forms: the Winograd forms it
        gets."""
        rewrites, groups = self._groups(state)
        if forms:
            program = apply_rewrites(self.program, forms + rewrites)
            parts = [s.out for _, c, _ in forms for s in stages_of(program, c)[:2]]
            together = order_groups(program, [*groups, *(
                Group(f"g_{c}", (c,), (c,), c) for c in parts)])
        schedule = decide(self.program, self.target, winograd=forms + rewrites,
                          groups=together if forms else groups, written=False)
        legal = {g.computes for g in schedule.groups}
        return schedule, [sink for sink, g in zip(sorted(state.cones), groups)
                          if len(state.cones[sink]) > 1 and g.computes not in legal]

    def _groups(self, state: LumpState) -> tuple[Rewrites, tuple[Group, ...]]:
        """(rewrites, groups in call order): each kernel with a copy of what an earlier one already
        computes for itself."""
        cones, program, rewrites = self.cones, self.cones.program, list(self.rewrites)
        versions: dict[str, list[str]] = {}  # {claimed compute: itself and its twins}
        named: list[tuple[int, dict[str, str]]] = []
        for sink in sorted(state.cones):
            cone, twins = state.cones[sink], dict[str, str]()
            members = [c for u in sorted(cone) for c in cones.lumps[u].group.computes]
            for c in reversed(members):
                if c not in versions:
                    continue
                found = _source(program, versions[c], [twins.get(m, m) for m in members])
                if found is None or faults_of(program, found[0], {"readers": found[1]}):
                    raise _Tangled(sink)
                source, readers = found
                names = twin_names(program, source)
                rewrites.append(("recompute", source, {"readers": readers}))
                program = rewrite_readers(program, source, {"readers": readers})
                new = tuple(names.values())
                twins |= dict(zip(cones.program.producer[c].outs, new))
                versions[c].append(new[0])
            for c in members:
                versions.setdefault(c, [c])
            named.append((sink, twins))
        return tuple(rewrites), tuple(self._group(program, state, sink, twins, i)
                                      for i, (sink, twins) in enumerate(named))

    def _group(self, program: Program, state: LumpState, sink: int, twins: Mapping[str, str],
               number: int) -> Group:
        """One kernel of the final Program, with its tile."""
        lumps, cone = self.cones.lumps, state.cones[sink]
        parts = [_renamed(lumps[u].group, twins) for u in sorted(cone)]
        if len(parts) == 1:
            return replace(parts[0], name=f"g{number:03d}")
        scratch = self.cones.target.machine.scratch
        whole = reduce(lambda a, b: merge_groups(program, a, b, scratch), parts)
        room = state.budget
        while True:
            found = self.cones.refined(sink, cone, room)
            group = replace(whole, name=f"g{number:03d}", tile=dict(found.tile),
                            parallel=tuple(a for a, _ in found.tile))
            slab = _scratch(program, group)
            # tiles that lie across the steps of a pool or a stride take more than the model says
            room = min(found.slab - 1, room * state.budget // max(1, slab))
            if slab <= state.budget or room < self.cones.least(sink, cone):
                return replace(group, why="so that the arena keeps its limit: "
                               f"{slab} bytes of scratch, about {found.seconds * 1e3:.3g} ms")


def _scratch(program: Program, group: Group) -> int:
    """Bytes of scratch of a group; 0 if its boxes cannot be formed, which ``check_group``
    explains."""
    try:
        return scratch_bytes(program, group)
    except ScheduleError:
        return 0


class _Tangled(Exception):
    """A kernel, by its stored lump, whose stages would read several copies of one tensor, or would
    leave an earlier kernel a copy that nobody reads."""


def _source(program: Program, versions: Sequence[str],
            members: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    """(the compute among ``versions`` that members read, those members): a twin reads what its
    original read, which may be a twin itself.  None if they read several versions."""
    found: dict[str, tuple[str, ...]] = {}
    for v in versions:
        made = set(program.producer[v].outs)
        readers = tuple(r for r in members if made.intersection(program.producer[r].inputs))
        if readers:
            found[v] = readers
    return next(iter(found.items())) if len(found) == 1 else None


def _renamed(group: Group, twins: Mapping[str, str]) -> Group:
    """A group that computes twins instead of the originals."""
    def here(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(twins.get(n, n) for n in names)

    return replace(group, computes=here(group.computes), outputs=here(group.outputs),
                   anchor=twins.get(group.anchor, group.anchor),
                   connect={twins.get(b, b): level for b, level in group.connect.items()},
                   choices={twins.get(s, s): c for s, c in group.choices.items()})


__all__ = ["Planner", "Search", "LumpState", "decide_within"]
