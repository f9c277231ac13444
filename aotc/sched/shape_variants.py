"""Variants of a Schedule: the calls that each of them serves, and the Program it may assume."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from math import prod
from typing import TypeVar

from aotc.errors import ScheduleError
from aotc.ir.access import layout_from_json
from aotc.ir.layout import Layout
from aotc.ir.program import Program
from aotc.ir.schedule import Schedule, When, show_when
from aotc.passes.rewrites import apply_rewrites, forget_rewritten
from aotc.sched.narrowed_program import restrict_to_box
from aotc.target.base import Target

ALPHA = 0.05  # how much size counts against performance: p * size ** -ALPHA (DietCode)
MOST_PIECES = 1 << 14  # of the box of all extents, cut along the ends of variants
# (Program, Target, {constant: Layout} that are settled) -> Schedule
Decide = Callable[[Program, Target, Mapping[str, Layout]], Schedule]
Range = tuple[int, int | None]  # the lowest and the highest extent; None: no end
K = TypeVar("K", int, str)


@dataclass(frozen=True)
class Part:
    """One of the Schedules of a Program.  ``when``: the extents of its calls, {} for all; ``why``
    is for readers; ``program``: what it may assume, with the rewrites of ``schedule`` applied;
    ``schedule`` has no variants; ``left``: the box around the calls that the base serves."""

    when: When
    why: str
    program: Program
    schedule: Schedule
    left: When = field(default_factory=dict)

    @property
    def title(self) -> str:
        """What messages call it, one of several."""
        return f"variant {show_when(self.when)}" if self.when else "all other calls"


def parts(program: Program, schedule: Schedule) -> tuple[Part, ...]:
    """Every variant of a Schedule in the order in which calls choose, the base last; it serves the
    extents that are left.  Variants with the same Schedule have the same program, which assumes
    what all of them serve, so that their kernels are the same.  ScheduleError lists what cannot be
    a variant, and rewrites that cannot be applied."""
    if not schedule.variants:
        only = Part({}, "", apply_rewrites(program, schedule.rewrites), schedule)
        forget_rewritten(program)  # the Part has it, and no one else asks
        return (only,)
    faults = when_faults(program, schedule)
    if faults:
        raise ScheduleError(faults)
    found = [(v.when, v.why, replace(
        v.schedule, target=schedule.target, math=schedule.math, optimize=schedule.optimize,
        precision=schedule.precision))
        for v in schedule.variants]
    rows = (*found, ({}, "", schedule.base))
    each = boxes(program, schedule)
    keys = [own.hash for _, _, own in rows]
    around = hulls(keys, each)
    out, made = [], dict[str, Program]()
    for (when, why, own), key, box in zip(rows, keys, each):
        try:
            if key not in made:
                made[key] = apply_rewrites(restrict_once(program, around[key]), own.rewrites)
            out.append(Part(when, why, made[key], own, {} if when else box))
        except ScheduleError as err:
            faults += [f"variant {show_when(when)}: {f}" if when else f for f in err.faults]
    if faults:
        raise ScheduleError(faults)
    return tuple(out)


def restrict_once(program: Program, when: When) -> Program:
    """``restrict_to_box``, the same object every time: what is found out about it is kept with it.
    A Program that is itself within the box is not kept with itself: such a ring would hold its
    weights until the collector of rings comes by."""
    known = program.known("within")
    key = tuple(sorted(when.items()))
    made: Program = known.get(key) or restrict_to_box(program, when)
    if made is not program:
        known[key] = made
    return made


def hulls(keys: Sequence[K], boxes: Sequence[When]) -> dict[K, When]:
    """{key: the least box around all boxes of that key}; each names the same symbols."""
    out: dict[K, When] = {}
    for key, box in zip(keys, boxes, strict=True):
        known = out.setdefault(key, box)
        out[key] = {n: _hull(known[n], ends) for n, ends in box.items()}
    return out


def boxes(program: Program, schedule: Schedule) -> tuple[When, ...]:
    """The extents that each part of a Schedule serves, in order; () if it has no variants."""
    whens = [v.when for v in schedule.variants]
    found = served_extents(program, whens)
    return tuple(found[i] for i in range(len(whens) + 1)) if whens else ()


def combine_ranges(ranges: Mapping[str, Sequence[Range]]) -> tuple[When, ...]:
    """A box for each combination of the ranges of symbols, the last symbol's first."""
    chosen = product(*ranges.values()) if ranges else ()
    return tuple(dict(zip(ranges, box)) for box in chosen)


def weight_layouts(program: Program, schedule: Schedule) -> dict[str, Layout]:
    """How a Schedule stores every constant: variants that have them so share them."""
    consts = apply_rewrites(program, schedule.rewrites).consts
    return {name: layout_from_json(schedule.layouts.get(name)) for name in consts}


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
    found = served_extents(program, whens)
    return [f"variants[{i}].when: {show_when(when)} holds no call that variants in front of it "
            "leave; remove it, or shrink theirs" for i, when in enumerate(whens)
            if i not in found] + ([] if len(whens) in found else [
                "variants: they leave no call for the schedule around them; make the last of them "
                "that schedule"])


def served_extents(program: Program, whens: Sequence[When]) -> dict[int, When]:
    """The extents of the calls that each box of ``whens`` is the first to hold, and under their
    number those that none holds, as the least box around them; nothing where there are none."""
    syms = [s for s in program.syms if any(s.name in when for when in whens)]
    pieces = [_pieces((s.lo, s.hi), [when[s.name] for when in whens if s.name in when])
              for s in syms]
    found: dict[int, When] = {}
    for cell in product(*pieces) if prod(map(len, pieces)) <= MOST_PIECES else ():
        box = {s.name: ends for s, ends in zip(syms, cell)}
        first = next((i for i, when in enumerate(whens)
                      if all(_covers(ends, box[n]) for n, ends in when.items())), len(whens))
        known = found.setdefault(first, box)
        found[first] = {n: _hull(known[n], ends) for n, ends in box.items()}
    if not found:  # too many to look at: whatever the boxes say
        found = {**dict(enumerate(whens)), len(whens): {}}
    whole: When = {s.name: (s.lo, s.hi) for s in program.syms}
    return {i: whole | box for i, box in found.items()}


def _pieces(whole: Range, cuts: Sequence[Range]) -> list[Range]:
    """A range cut where one of ``cuts`` begins or ends."""
    starts = {whole[0], *(lo for lo, _ in cuts), *(hi + 1 for _, hi in cuts if hi is not None)}
    inside = sorted(n for n in starts if n >= whole[0] and (whole[1] is None or n <= whole[1]))
    return [(lo, end - 1) for lo, end in pairwise(inside)] + [(inside[-1], whole[1])]


def _covers(a: Range, b: Range) -> bool:
    return a[0] <= b[0] and (a[1] is None or b[1] is not None and b[1] <= a[1])


def _hull(a: Range, b: Range) -> Range:
    return min(a[0], b[0]), None if a[1] is None or b[1] is None else max(a[1], b[1])


__all__ = ["Decide", "Part", "boxes", "combine_ranges", "hulls", "parts", "served_extents",
           "weight_layouts", "when_faults", "restrict_once"]
