"""Whether a model of dynamic shapes gets a second Schedule, and which calls it serves.

    candidates   one for all calls, and one for the smallest: forms, layouts and merges that small
                 extents want, wherever they save more than their size is worth (near_base.py)
    table        predicted seconds of both on calls over the whole range
    box          the extents up to which the second one gains (small_calls.py)

Both are whole Schedules of fused groups, as micro-kernels are of an operator in DietCode: what they
have in common is the same code and the same weights, and counts once in the size.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from aotc.ir.program import Program
from aotc.ir.schedule import Schedule, Variant, When, code_of, show_when
from aotc.sched.cost.predict import Local, Prices
from aotc.sched.dynamic.moved import move_to_extents
from aotc.sched.dynamic.near_base import keep_base_parts
from aotc.sched.dynamic.small_calls import Leaf, lowest_box, pick
from aotc.sched.dynamic.text_size import text_bytes
from aotc.sched.model.typical_calls import (
    TypicalCall,
    calls_between,
    small_regime,
    spread_calls,
    usual_extents,
)
from aotc.sched.narrowed_program import with_usual_extents
from aotc.sched.shape_variants import ALPHA, Decide, restrict_once, served_extents, weight_layouts
from aotc.target.base import Target

ALL = "all calls"
GAIN = 0.05  # less than so much of the calls' time is not worth a variant
LOST = 0.1  # unless a call takes longer by more than this than it could
WORSE = 0.02  # of its time is the most that a call may lose by it
DOUBT = 0.35  # of a variant's time, as padding of few rows costs less than predicted
MOST = 2.0  # times the code and the weights of the first candidate, at most


@dataclass(frozen=True)
class ScheduleCandidate:
    """A Schedule, and what it was decided for; ``doubt``: share of its time that it may take longer
    than predicted."""

    label: str
    schedule: Schedule
    doubt: float = 0.0


@dataclass(frozen=True)
class Ranges:
    """What was found out about a model's calls: ``seconds[candidate][call]`` predicted (as
    ``Prices.beside`` has them), and the leaves that tell which candidate serves a call.  ``small``:
    the Schedule that the second candidate has parts of, as decided for the smallest call alone."""

    candidates: tuple[ScheduleCandidate, ...]
    calls: tuple[TypicalCall, ...]
    seconds: tuple[tuple[float, ...], ...]
    leaves: tuple[Leaf, ...]
    small: Schedule

    @property
    def labels(self) -> tuple[str, ...]:
        """What each candidate was decided for."""
        return tuple(c.label for c in self.candidates)

    def loss(self, when: When) -> float:
        """By how much the variant of some extents is slower than the fastest candidate, at worst
        (1: it is the fastest of all its calls)."""
        at = [i for i, c in enumerate(self.calls) if next(
            w for w, _ in self.leaves if c.inside(w)) == when]
        return max((self.seconds[pick(self.leaves, self.calls[i])][i] / min(
            s[i] for s in self.seconds) for i in at), default=1.0)

    def __str__(self) -> str:
        names = self.labels
        lines = ["predicted microseconds, decided for " + " | ".join(names)]
        for i, c in enumerate(self.calls):
            extents = ", ".join(f"{n} {v}" for n, v in c.extents.items())
            row = " | ".join(f"{s[i] * 1e6:.1f}" for s in self.seconds)
            lines.append(f"  {extents}: {row}; runs {names[pick(self.leaves, c)]}")
        rest = "other extents" if len(self.leaves) > 1 else "any call"
        lines += [
            f"when {show_when(when) or rest}: decided for {names[variant]}, at most "
            f"{self.loss(when):.2f} of the fastest's time" for when, variant in self.leaves]
        return "\n".join(lines)


def decide_ranges(program: Program, target: Target, decide: Decide,
                  calls: Sequence[TypicalCall] = ()) -> tuple[Schedule, Ranges | None]:
    """The Schedule of a Program with symbols, with variants where they pay, and why; ``calls``:
    observed ones (default: spread over the ranges), whose usual extents the Schedule for all calls
    is then decided for.  Deterministic, measures nothing."""
    base = _usual(program, target, decide, calls) if calls else decide(program, target, {})
    more = () if calls else calls_between(program)
    calls = tuple(calls) or spread_calls(program)
    least = _smallest(program, calls)
    if least is None or len(calls) < 2:
        return base, None
    inside = with_usual_extents(restrict_once(program, small_regime(program) or {}), least.extents)
    own = decide(inside, target, weight_layouts(program, base))
    found = _chosen(Prices(program, target), base, own, calls, more)
    return _schedule(program, target, decide, found), found


def decide_measured(program: Program, target: Target, decide: Decide, found: Ranges,
                    local: Local) -> tuple[Schedule, Ranges]:
    """The same with what work items were measured to reach, by what they were predicted to."""
    more = calls_between(program) if found.calls == spread_calls(program) else ()
    base = found.candidates[0].schedule
    chosen = _chosen(Prices(program, target, local), base, found.small, found.calls, more)
    return _schedule(program, target, decide, chosen), chosen


def _smallest(program: Program, calls: Sequence[TypicalCall]) -> TypicalCall | None:
    """The smallest of the calls with small extents; None where no range is wide."""
    when = small_regime(program)
    inside = [c for c in calls if when is not None and c.inside(when)]
    return min(inside, key=lambda c: prod(c.extents.values()), default=None)


def _usual(program: Program, target: Target, decide: Decide,
           calls: Sequence[TypicalCall]) -> Schedule:
    """The Schedule of a Program whose calls usually are like these."""
    inside = with_usual_extents(program, usual_extents(program, calls))
    return move_to_extents(program, decide(inside, target, {}),
                           target) or decide(program, target, {})


def _chosen(prices: Prices, base: Schedule, small: Schedule, calls: Sequence[TypicalCall],
            more: Sequence[TypicalCall] = ()) -> Ranges:
    """Which calls the parts of ``small`` serve that are worth it.  ``more``: calls that count
    nothing, but that these must serve as well."""
    least = _smallest(prices.program, calls)
    assert least is not None, "no call is small"
    near, doubt = keep_base_parts(prices, base, small, DOUBT, least)
    label = ", ".join(f"{n} {v}" for n, v in least.extents.items())
    made, seen = (ScheduleCandidate(ALL, base),
                  ScheduleCandidate(label, near, doubt)), (*calls, *more)
    table = [[prices.beside(base, c.schedule, call.extents) for call in seen] for c in made]
    gains = [1 - own * (1 + made[1].doubt) / first for first, own in zip(*table)]
    box = lowest_box(prices.program, seen, gains, -WORSE)
    leaves: tuple[Leaf, ...] = (({}, 0),)
    if box is not None:
        inside = [i for i, c in enumerate(calls) if c.inside(box)]
        mean = sum(calls[i].share * gains[i] for i in inside) / sum(c.share for c in calls)
        size = _size(prices, made[0], made if box else made[1:])
        worth = max(gains[i] for i in inside) > LOST or mean >= max(GAIN, 1 - size ** -ALPHA)
        if size <= MOST and worth:
            leaves = ((box, 1), ({}, 0)) if box else (({}, 1),)
    return Ranges(made, tuple(calls), tuple(tuple(row[:len(calls)]) for row in table), leaves,
                  small)


def _size(prices: Prices, first: ScheduleCandidate, kept: Sequence[ScheduleCandidate]) -> float:
    """What candidates take, by what the first takes: code times weights."""
    def code(candidates: Sequence[ScheduleCandidate]) -> int:
        return sum({code_of(g): text_bytes(prices.rewritten(c.schedule), g, prices.target)
                    for c in candidates for g in c.schedule.groups}.values())

    def weights(candidates: Sequence[ScheduleCandidate]) -> int:
        found = {k: n for c in candidates for k, n in prices.stored(c.schedule).items()}
        return sum(found.values())

    return code(kept) / max(1, code([first])) * (
        weights(kept) / max(1, weights([first])) if weights(kept) else 1.0)


def _schedule(program: Program, target: Target, decide: Decide, found: Ranges) -> Schedule:
    """The leaves as variants; the last one serves what is left."""
    base = found.candidates[0].schedule
    if len(found.leaves) == 1 and found.leaves[0][1] == 0:
        return base
    weights = weight_layouts(program, base)
    each = served_extents(program, [when for when, _ in found.leaves[:-1]])
    parts = []
    for i, (when, candidate) in enumerate(found.leaves):
        inside = restrict_once(program, each[i])
        own = move_to_extents(inside, found.candidates[candidate].schedule, target) or decide(
            inside, target, weights)
        why = (f"decided for {found.labels[candidate]}, at most "
               f"{found.loss(when):.2f} of the fastest")
        parts.append(Variant(when, own, why))
    *variants, last = parts
    return replace(last.schedule, variants=tuple(variants))


__all__ = ["ScheduleCandidate", "Ranges", "decide_measured", "decide_ranges"]
