"""Predicted seconds of a Schedule on a call, in the one currency of every decider.

How many workers a call has is said when it is made.  All of them wait for memory as one alone does,
which computes as many times longer: what saves bytes for more arithmetic may gain with all workers
what it loses with one.
"""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from statistics import geometric_mean
from typing import Any

from aotc.errors import ScheduleError
from aotc.ir.access import dim_order, layout_from_json
from aotc.ir.category import PRODUCTS
from aotc.ir.expr import Const
from aotc.ir.program import Compute, Program, Step
from aotc.ir.schedule import Group, Schedule, code_of
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.cost.accesses import access_costs
from aotc.sched.cost.decided import decided_cost
from aotc.sched.cost.group_cost import Free, resident_buffers
from aotc.sched.cost.step_cost import pays_in_registers
from aotc.sched.cost.stream_cost import stream_seconds
from aotc.sched.cost.wave_cost import shared_seconds
from aotc.sched.model.boxes import settle_items
from aotc.sched.model.group_model import group_model
from aotc.sched.model.size import float_nodes, row_tails, sum_terms
from aotc.sched.model.stages import Stage, find_factors, group_stages, touched_buffers
from aotc.sched.narrowed_program import outline_constants, restrict_to_box
from aotc.sched.rows.stream_stages import find_stream, is_stream
from aotc.target.base import Target

Local = Mapping[Hashable, float]  # by the code of groups, see ``Prices``


class Prices:
    """Predicted seconds of the Schedules of one Program, on calls.  What Schedules of the same
    rewrites have in common is made once: the Program with them, and that with a call's extents.
    ``local``: {code of a group: seconds that it was measured to take where waves are full, by those
    predicted}; the others take as much longer as these do on the whole.  ``sharing``: kernels
    of few work items count as ``shared_seconds`` says."""

    def __init__(self, program: Program, target: Target, local: Local | None = None,
                 sharing: bool = False) -> None:
        self.sharing = sharing
        self.program, self.target, self.local = replace(
            program, consts=outline_constants(program.consts)), target, dict(local or {})
        self.usual = geometric_mean(self.local.values()) if self.local else 1.0
        self._rewritten: dict[str, Program] = {}
        self._calls: dict[tuple[Any, ...], tuple[Program, Free]] = {}
        self._numbers: dict[Hashable, int] = {}
        self._numbered: dict[int, tuple[Group | Step, int]] = {}
        self._seconds: dict[Hashable, tuple[float, ...]] = {}
        alone = replace(target, machine=replace(target.machine, workers=1))
        given = target.machine.managed or target.machine.workers == 1  # whatever a call says
        self._targets = (target,) if given else (target, alone)

    def rewritten(self, schedule: Schedule) -> Program:
        """The Program with a Schedule's rewrites."""
        key = str(schedule.rewrites)
        if key not in self._rewritten:
            self._rewritten[key] = apply_rewrites(self.program, schedule.rewrites)
        return self._rewritten[key]

    def stored(self, schedule: Schedule) -> dict[tuple[str, str], int]:
        """{(constant, how it is stored): its bytes} of a Schedule."""
        return {(n, f"{a.shape} {schedule.layouts.get(n)}"): a.nbytes
                for n, a in self.rewritten(schedule).consts.items()}

    def call(self, schedule: Schedule, extents: Mapping[str, int]) -> float:
        """Seconds of a call with these extents of all symbols, by all workers."""
        return self.call_by_workers(schedule, extents)[0]

    def call_by_workers(self, schedule: Schedule, extents: Mapping[str, int]) -> tuple[float, ...]:
        """Seconds of a call by all workers, and by one where callers may have so few."""
        return tuple(map(sum, zip(*(self.by_workers(schedule, g, extents)
                                    for g in schedule.groups))))

    def beside(self, first: Schedule, schedule: Schedule, extents: Mapping[str, int]) -> float:
        """Seconds of a call by all workers where one gains as much over the first Schedule, which
        serves all calls; as much longer where it gains less, or loses."""
        known = self.call_by_workers(first, extents)
        own = self.call_by_workers(schedule, extents)
        return known[0] * max(t / n for t, n in zip(own, known))

    def group(self, schedule: Schedule, group: Group, extents: Mapping[str, int]) -> float:
        """Seconds of a group by all workers, which may be another than the Schedule's of these
        computes."""
        return self.by_workers(schedule, group, extents)[0]

    def by_workers(self, schedule: Schedule, group: Group,
                   extents: Mapping[str, int]) -> tuple[float, ...]:
        """Seconds of a group by all workers, and by one where callers may have so few.  Groups that
        no decision touches, such as library kernels, count what starting them takes, and so do
        those that these extents leave without work: they are the same in all Schedules."""
        step = self.rewritten(schedule).producer[group.anchor]
        if not isinstance(step, Compute):
            return (self.target.machine.launch,) * len(self._targets)
        inside, free = self._at(schedule, extents)
        if not has_decided_stages(inside, group, self.target):
            return (self.target.machine.launch,) * len(self._targets)
        key = self._asked(schedule, group, extents, free)
        if key not in self._seconds:
            self._seconds[key] = self._priced(schedule, group, inside, free)
        times = self.local.get(code_of(group), self.usual) if self.local else 1.0
        return tuple(s * times for s in self._seconds[key])

    def _asked(self, schedule: Schedule, group: Group, extents: Mapping[str, int],
               free: Free) -> Hashable:
        """What a group's seconds follow from: Schedules that differ elsewhere have the same."""
        program = self.rewritten(schedule)
        near = touched_buffers(program, group)
        return (self._number(group), *(self._number(program.producer[c]) for c in group.computes),
                *sorted(extents.items()), *(f.intersection(near) for f in free),
                *((b, str(schedule.layouts.get(b))) for b in near))

    def _number(self, value: Group | Step) -> int:
        """That of a group's code, or of a step: equal ones have the same."""
        if id(value) not in self._numbered:  # holding the value keeps its id its own
            what = code_of(value) if isinstance(value, Group) else value
            self._numbered[id(value)] = value, self._numbers.setdefault(what, len(self._numbers))
        return self._numbered[id(value)][1]

    def _priced(self, schedule: Schedule, group: Group, inside: Program,
                free: Free) -> tuple[float, ...]:
        if is_stream(group):
            return (_stream_seconds(inside, group, self.target),) * len(self._targets)
        given = {b: layout_from_json(schedule.layouts[b]) for b in touched_buffers(inside, group)
                 if b in schedule.layouts}
        model = group_model(inside, group, {
            b: dim_order(x, len(inside.shape(b))) for b, x in given.items()},
            access_costs(inside, self.target, group, given), self.target.tuning)
        tails = tails_of(self.rewritten(schedule), group, self.target)
        stages = group_stages(inside, group)
        anchor, found = next(s for s in stages if group.anchor in s.computes), []
        for t in self._targets:
            own = settle_items(anchor, group, t.machine.workers)
            cost = decided_cost(model, stages, own, t, free, tails)
            items = model.tiles(model.variables(own.tile | own.run))
            found.append(shared_seconds(t.machine, cost, items) if self.sharing else cost.seconds)
        return tuple(found)

    def _at(self, schedule: Schedule, extents: Mapping[str, int]) -> tuple[Program, Free]:
        key = (str(schedule.rewrites), *sorted(extents.items()))
        if key not in self._calls:
            inside = restrict_to_box(self.rewritten(schedule),
                                     {n: (v, v) for n, v in extents.items()})
            self._calls[key] = inside, self._near(inside)
        return self._calls[key]

    def _near(self, inside: Program) -> Free:
        """What is near when a kernel starts.  Weights stay in a cache that all of the Program's fit
        in, with forms the smallest first as long as there is room: those that do not fit do not
        stream past it as a whole, and a few bytes more are no step."""
        out = []
        machine, given = self.target.machine, frozenset(self.program.consts)
        for memory, found, plain in zip(machine.memories[1:], resident_buffers(inside, machine),
                                        resident_buffers(self.program, machine)):
            stay, room = set[str](), memory.capacity * memory.usable
            for b, a in sorted(inside.consts.items(), key=lambda x: (x[1].nbytes, x[0])):
                room -= a.nbytes
                stay |= {b} if room >= 0 and not given.isdisjoint(plain) else set()
            out.append(found - frozenset(inside.consts) | stay)
        return tuple(out)


def group_seconds(program: Program, schedule: Schedule, target: Target,
                  extents: Mapping[str, int]) -> dict[str, float]:
    """{group: seconds} of a call with these extents of all symbols."""
    prices = Prices(program, target)
    return {g.name: prices.group(schedule, g, extents) for g in schedule.groups}


def _stream_seconds(program: Program, group: Group, target: Target) -> float:
    """Those of a group that streams, with the rows that it has."""
    found = find_stream(program, group)
    assert found is not None, group.name
    scores, values = (target.product_row(group.choices[s.name].row)
                      for s in (found.scores, found.values))
    return stream_seconds(target.machine, found, (scores, values))


def tails_of(program: Program, group: Group, target: Target) -> dict[str, tuple[int, ...]]:
    """{stage: rows of the smaller register tiles that the last of its rows may be}, as
    ``sched/expand/row_tails`` has them; ``program``: with its symbols, rewritten."""
    out = {}
    for s in group_stages(program, group):
        if has_unknown_ends(s, group, target) and (choice := _tails(group, s)):
            mr = target.product_row(group.choices[s.name].row).tile.mr
            out[s.name] = row_tails(mr, choice, may_write_out(s, target))
    return out


def _tails(group: Group, s: Stage) -> int:
    """What is said of a product's last rows, or usual."""
    said = group.choices[s.name].tails
    return 1 if said is None else said


def has_unknown_ends(s: Stage, group: Group, target: Target) -> bool:
    """True for a product in register tiles of which nobody knows how many rows the last has."""
    if not target.vectors.fixed or s.name in group.splits or (
            target.row(group.choices[s.name].row).category != "contraction"):
        return False
    f = find_factors(s, group.choices[s.name].lanes)
    return f is not None and not all(isinstance(a.extent, Const) for a in f.m)


def has_decided_stages(inside: Program, group: Group, target: Target) -> bool:
    """True if a group has the stages that its rows and loops are of in a Program for some extents
    too: all its computes, and products where rows multiply.  Numbers in the place of symbols decide
    conditions, so that nobody reads some computes then, and a factor of a sum may be one element
    for all of it (a signal of one sample, padded by its mirror image)."""
    if not inside.producer.keys() >= set(group.computes):
        return False
    try:
        stages = group_stages(inside, group)
    except ScheduleError:
        return False
    return any(group.anchor in s.computes for s in stages) and all(s.name in group.choices and (
        target.row(group.choices[s.name].row).category not in PRODUCTS
        or find_factors(s, group.choices[s.name].lanes) is not None) for s in stages)


def may_write_out(s: Stage, target: Target) -> bool:
    """True if the sums of a product are read where they are summed, as far as its stage says: by
    what ``sums`` of its choice is decided by, but for where its results lie."""
    return pays_in_registers(sum_terms(s.raxes), float_nodes(o.value for o in s.outputs),
                             target.tuning)


__all__ = ["Local", "Prices", "has_decided_stages", "has_unknown_ends", "group_seconds",
           "may_write_out", "tails_of"]
