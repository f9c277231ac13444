"""Variants of a Schedule: the calls that each of them serves, and the Program it may assume."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from aotc.errors import ScheduleError
from aotc.ir.program import Program
from aotc.ir.schedule import Schedule, Variant, When, show_when
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.within import within
from aotc.target.base import Target

Range = tuple[int, int | None]  # the lowest and the highest extent; None: no end

@dataclass(frozen=True)
class Part:
    """One of the Schedules of a Program.  ``when``: the extents of its calls, {} for all; ``why``
    is for readers; ``program``: what it may assume, with the rewrites of ``schedule`` applied;
    ``schedule`` has no variants."""

    when: When
    why: str
    program: Program
    schedule: Schedule

    @property
    def title(self) -> str:
        """What messages call it, one of several."""
        return f"variant {show_when(self.when)}" if self.when else "all other calls"


def parts(program: Program, schedule: Schedule) -> tuple[Part, ...]:
    """Every variant of a Schedule in the order in which calls choose, the base last; it serves the
    extents that are left.  ScheduleError lists what cannot be a variant, and rewrites that cannot
    be applied."""
    if not schedule.variants:
        return (Part({}, "", apply_rewrites(program, schedule.rewrites), schedule),)
    faults = when_faults(program, schedule)
    if faults:
        raise ScheduleError(faults)
    found = [(v.when, v.why, replace(
        v.schedule, target=schedule.target, math=schedule.math, optimize=schedule.optimize))
        for v in schedule.variants]
    rest = left_over(program, [v.when for v in schedule.variants]) or {}
    out = []
    for when, why, own in (*found, ({}, "", schedule.base)):
        inside = within_once(program, when or rest)
        try:
            out.append(Part(when, why, apply_rewrites(inside, own.rewrites), own))
        except ScheduleError as err:
            faults += [f"variant {show_when(when)}: {f}" if when else f for f in err.faults]
    if faults:
        raise ScheduleError(faults)
    return tuple(out)


def within_once(program: Program, when: When) -> Program:
    """``within``, the same object every time: what is found out about it is kept with it."""
    known = program.known("within")
    key = tuple(sorted(when.items()))
    if key not in known:
        known[key] = within(program, when)
    made: Program = known[key]
    return made


def boxes(program: Program, schedule: Schedule) -> tuple[When, ...]:
    """The extents that each part of a Schedule serves, in order; () if it has no variants."""
    whens = [v.when for v in schedule.variants]
    return (*whens, left_over(program, whens) or {}) if whens else ()


def combined(ranges: Mapping[str, Sequence[Range]]) -> tuple[When, ...]:
    """A box for each combination of the ranges of symbols, the last symbol's first."""
    chosen = product(*ranges.values()) if ranges else ()
    return tuple(dict(zip(ranges, box)) for box in chosen)


def with_variants(program: Program, target: Target, boxes: Sequence[Mapping[str, Range]],
                  decide: Callable[[Program, Target], Schedule]) -> Schedule:
    """A Schedule with a variant for each of ``boxes`` ({symbol: (lowest, highest extent)}), in
    that order, ``decide``d for a Program of those extents, and for the calls that are left; where
    none are, the last box becomes the base.  ScheduleError lists what is wrong with the boxes."""
    whens = [dict(box) for box in boxes]
    known = all({s.name for s in program.syms}.issuperset(w) for w in whens)
    if len(whens) > 1 and known and left_over(program, whens) is None:
        whens.pop()
    none = Schedule(target.name, ())
    faults = when_faults(program, replace(none, variants=tuple(Variant(w, none) for w in whens)))
    if faults:
        raise ScheduleError(faults)
    made = tuple(Variant(w, decide(within_once(program, w), target)) for w in whens)
    rest = left_over(program, whens) if whens else {}
    return replace(decide(within_once(program, rest or {}), target), variants=made)


def when_faults(program: Program, schedule: Schedule) -> list[str]:
    """What is wrong with the boxes of a Schedule's variants, with the legal choices."""
    syms = {s.name: s for s in program.syms}
    legal = ", ".join(f"{s.name} {s.range}" for s in program.syms) or "none"
    faults: list[str] = []
    for i, v in enumerate(schedule.variants):
        where = f"variants[{i}].when"
        if not v.when:
            faults.append(f"{where}: it names no dimension; choose from {legal}")
        for name, (lo, hi) in v.when.items():
            if name not in syms:
                faults.append(f"{where}: no dimension {name!r}; choose from {legal}")
                continue
            s = syms[name]
            if hi is not None and hi < lo:
                faults.append(f"{where}: {show_when({name: (lo, hi)})} is empty; choose from "
                              f"{name} {s.range}")
            elif lo < s.lo or s.hi is not None and (hi is None or hi > s.hi):
                faults.append(f"{where}: {show_when({name: (lo, hi)})} is not inside "
                              f"{name} {s.range}, all there is")
        if v.schedule.variants:
            faults.append(f"variants[{i}]: a variant has no variants; list them one after another")
    return faults or _unreachable(program, [v.when for v in schedule.variants])


def _unreachable(program: Program, whens: Sequence[When]) -> list[str]:
    """Variants that no call reaches behind those in front of them, and a base that none does."""
    for i in range(1, len(whens) + 1):
        left = left_over(program, whens[:i])
        mine = whens[i] if i < len(whens) else {}
        if left is None or any(_apart(left[n], ends) for n, ends in mine.items()):
            what = f"variants[{i}]: {show_when(mine)}" if mine else "the schedule around them"
            return [f"{what} serves no call that variants in front of it leave; remove it, or "
                    "the last of them, or shrink theirs"]
    return []


def _apart(a: Range, b: Range) -> bool:
    return (a[1] is not None and a[1] < b[0]) or (b[1] is not None and b[1] < a[0])


def left_over(program: Program, whens: Sequence[When]) -> When | None:
    """The least box that holds all calls which no box of ``whens`` holds, as far as cutting one
    dimension after the other finds it; None if there are none."""
    left = {s.name: (s.lo, s.hi) for s in program.syms}
    before = None
    while before != left:
        before = dict(left)
        for when in whens:
            cut = [n for n, ends in when.items() if not _covers(ends, left[n])]
            if not cut:
                return None
            if len(cut) == 1:
                left[cut[0]] = _without(left[cut[0]], when[cut[0]])
    return left


def _covers(a: Range, b: Range) -> bool:
    return a[0] <= b[0] and (a[1] is None or b[1] is not None and b[1] <= a[1])


def _without(whole: Range, part: Range) -> Range:
    """A range without one that covers one of its ends; any other leaves it as it is."""
    (lo, hi), (first, last) = whole, part
    if first <= lo and last is not None and last >= lo:
        return last + 1, hi
    if first > lo and (last is None or hi is not None and last >= hi >= first):
        return lo, first - 1
    return whole


__all__ = ["Part", "boxes", "combined", "left_over", "parts", "when_faults", "with_variants",
           "within_once"]
