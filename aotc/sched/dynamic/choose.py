"""Which Schedules a model of dynamic shapes gets, and which calls each of them serves.

    candidates   one for all calls, one for each regime of extents (small, middling, large)
    table        predicted performance of every candidate on calls over the whole range
    vote         few candidates that serve all calls well (vote.py)
    tree         boxes of extents, each with one of those that were kept (tree.py)

Candidates are whole Schedules of fused groups: what DietCode does for the micro-kernels of one
operator.  What candidates have in common is the same code, and counts once in the size.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aotc.errors import ScheduleError
from aotc.ir.program import Program
from aotc.ir.schedule import Group, Schedule, Variant, When, show_when
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.check import check_schedule
from aotc.sched.dynamic.predict import call_seconds
from aotc.sched.dynamic.tree import Leaf, learn, pick
from aotc.sched.dynamic.typical_calls import Call, regimes, spread_calls, usual_extents
from aotc.sched.dynamic.vote import Selection, select_by_gain
from aotc.sched.lowering.lower import kernel_faults
from aotc.sched.memory.allocate import allocate
from aotc.sched.shape_variants import Decide, weight_layouts, within_once
from aotc.sched.within import with_usual
from aotc.target.base import Target

GAIN = 0.05  # less than so much of the calls' time is not worth variants


@dataclass(frozen=True)
class Ranges:
    """What was found out about a model's calls: ``seconds[candidate][call]`` predicted, the
    Selection of candidates, and the leaves that tell which of them serves a call."""

    whens: tuple[When, ...]
    calls: tuple[Call, ...]
    seconds: tuple[tuple[float, ...], ...]
    selection: Selection
    leaves: tuple[Leaf, ...]

    def loss(self, when: When) -> float:
        """By how much the variant of some extents is slower than the fastest candidate, at worst
        (1: it is the fastest of all its calls)."""
        at = [i for i, c in enumerate(self.calls) if c.inside(when)]
        return max((self.seconds[pick(self.leaves, self.calls[i])][i] / min(
            s[i] for s in self.seconds) for i in at), default=1.0)

    def __str__(self) -> str:
        names = [show_when(w) if w else "all calls" for w in self.whens]
        lines = ["predicted microseconds, decided for " + " | ".join(names)]
        for i, c in enumerate(self.calls):
            extents = ", ".join(f"{n} {v}" for n, v in c.extents.items())
            row = " | ".join(f"{s[i] * 1e6:.1f}" for s in self.seconds)
            lines.append(f"  {extents}: {row}; runs {names[pick(self.leaves, c)]}")
        lines += [str(self.selection)] + [
            f"when {show_when(when) or 'any call'}: decided for {names[variant]}, at most "
            f"{self.loss(when):.2f} of the fastest's time" for when, variant in self.leaves]
        return "\n".join(lines)


def decide_ranges(program: Program, target: Target, decide: Decide,
                  calls: Sequence[Call] = ()) -> tuple[Schedule, Ranges | None]:
    """The Schedule of a Program with symbols, with variants where they pay, and why; ``calls``:
    observed ones (default: spread over the ranges), whose usual extents the Schedule for all calls
    is then decided for.  Deterministic, measures nothing."""
    base = _usual(program, target, decide, calls) if calls else decide(program, target, {})
    weights = weight_layouts(program, base)
    whens = ({}, *regimes(program))
    calls = tuple(calls) or spread_calls(program)
    if len(whens) == 1 or len(calls) < 2:
        return base, None
    made = [base, *(decide(within_once(program, w), target, weights) for w in whens[1:])]
    found = _chosen(program, target, whens, made, calls)
    if len(found.leaves) == 1 and found.leaves[0][1] == 0:
        return base, found
    return _schedule(program, target, decide, made, found), found


def _usual(program: Program, target: Target, decide: Decide, calls: Sequence[Call]) -> Schedule:
    """The Schedule of a Program whose calls usually are like these."""
    inside = with_usual(program, usual_extents(program, calls))
    return _moved(program, decide(inside, target, {}), target) or decide(program, target, {})


def _chosen(program: Program, target: Target, whens: Sequence[When], made: Sequence[Schedule],
            calls: Sequence[Call]) -> Ranges:
    seconds = tuple(tuple(call_seconds(program, s, target, c.extents) for c in calls)
                    for s in made)
    least = [min(s[i] for s in seconds) for i in range(len(calls))]
    performance = [[least[i] / s[i] for i in range(len(calls))] for s in seconds]
    shares = [c.share for c in calls]
    groups = [frozenset(map(_code, s.groups)) for s in made]

    def size(kept: Sequence[int]) -> float:
        return len(frozenset().union(*(groups[c] for c in kept))) / max(1, len(groups[0]))

    selection = select_by_gain(performance, [b * s for b, s in zip(least, shares)], size,
                               shares=shares)
    mean = sum(p * s for p, s in zip(performance[0], shares)) / sum(shares)
    if selection.performance - mean < GAIN:
        selection = Selection((0,), (0,) * len(calls), mean, len(made))
    leaves = learn(program, calls, selection.best, lambda v, i: performance[v][i] / max(
        performance[c][i] for c in selection.kept))
    return Ranges(tuple(whens), tuple(calls), seconds, selection, leaves)


def _code(group: Group) -> object:
    """What makes the code of a group another's."""
    plain = replace(group, why="", name="")
    return str(plain), *(repr(getattr(plain, f)) for f in ("loops", "split", "run", "reuse"))


def _schedule(program: Program, target: Target, decide: Decide, made: Sequence[Schedule],
              found: Ranges) -> Schedule:
    """The leaves as variants; the last one serves what is left."""
    weights = weight_layouts(program, made[0])
    parts = []
    for when, candidate in found.leaves:
        inside = within_once(program, when)
        own = _moved(inside, made[candidate], target) or decide(inside, target, weights)
        why = (f"decided for {show_when(found.whens[candidate]) or 'all calls'}, at most "
               f"{found.loss(when):.2f} of the fastest")
        parts.append(Variant(when, own, why))
    *variants, last = parts
    return replace(last.schedule, variants=tuple(variants))


def _moved(program: Program, schedule: Schedule, target: Target) -> Schedule | None:
    """A Schedule for other extents than those it was decided for; None if it is not legal there."""
    try:
        rewritten = apply_rewrites(program, schedule.rewrites)
        if any(kernel_faults(rewritten, schedule, target, g) for g in schedule.groups):
            return None
        moved = replace(schedule, buffers=allocate(rewritten, schedule))
        return None if check_schedule(rewritten, moved, target) else moved
    except ScheduleError:
        return None


__all__ = ["Ranges", "decide_ranges"]
