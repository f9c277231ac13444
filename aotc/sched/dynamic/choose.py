"""Which Schedules a model of dynamic shapes gets, and which calls each of them serves.

    candidates   one for all calls, one for each regime of extents (small, middling, large), for
                 the smallest calls and for the largest; those that serve some calls best, with
                 other work items for some groups (group_tiles.py)
    table        predicted performance of every candidate on calls over the whole range
    vote         few candidates that serve all calls well (asking/vote.py)
    tree         boxes of extents, each with one of those that were kept (tree.py)

Candidates are whole Schedules of fused groups: forms, layouts and merges differ between ranges, as
micro-kernels do in DietCode.  What candidates have in common is the same code and the same weights,
and counts once in the size.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

from aotc.ir.program import Program
from aotc.ir.schedule import Schedule, Variant, When, code_of, show_when
from aotc.sched.asking.vote import Selection, select_by_gain
from aotc.sched.cost.predict import Local, Prices
from aotc.sched.dynamic.group_tiles import tile_candidates
from aotc.sched.dynamic.mixed_parts import Source, mixed_for, near_base
from aotc.sched.dynamic.moved import moved
from aotc.sched.dynamic.text_size import text_bytes
from aotc.sched.dynamic.tree import Leaf, learn, pick
from aotc.sched.model.typical_calls import (
    Call,
    calls_between,
    regimes,
    spread_calls,
    usual_extents,
)
from aotc.sched.shape_variants import Decide, hulls, served, weight_layouts, within_once
from aotc.sched.within import with_usual
from aotc.target.base import Target

ALL = "all calls"
GAIN = 0.05  # less than so much of the calls' time is not worth variants
LOST = 0.1  # unless a call takes longer by more than this than it could
LEAST = 1 - LOST  # of the best performance that is kept for it, which every call shall have
ENDS, OTHERS = 0.35, 0.1  # doubt of what is decided for calls at the ends, and of all others
MOST = 2.0  # times the code and the weights of the first candidate, at most


@dataclass(frozen=True)
class Candidate:
    """A Schedule, and what it was decided for; ``doubt``: share of its time that it may take longer
    than predicted."""

    label: str
    schedule: Schedule
    doubt: float = 0.0


@dataclass(frozen=True)
class Ranges:
    """What was found out about a model's calls: ``seconds[candidate][call]`` predicted (as
    ``Prices.beside`` has them), the Selection of candidates, and the leaves that tell which of them
    serves a call."""

    candidates: tuple[Candidate, ...]
    calls: tuple[Call, ...]
    seconds: tuple[tuple[float, ...], ...]
    selection: Selection
    leaves: tuple[Leaf, ...]

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
        lines += [str(self.selection)] + [
            f"when {show_when(when) or rest}: decided for {names[variant]}, at most "
            f"{self.loss(when):.2f} of the fastest's time" for when, variant in self.leaves]
        return "\n".join(lines)


def decide_ranges(program: Program, target: Target, decide: Decide,
                  calls: Sequence[Call] = ()) -> tuple[Schedule, Ranges | None]:
    """The Schedule of a Program with symbols, with variants where they pay, and why; ``calls``:
    observed ones (default: spread over the ranges), whose usual extents the Schedule for all calls
    is then decided for.  Deterministic, measures nothing."""
    base = _usual(program, target, decide, calls) if calls else decide(program, target, {})
    cut = regimes(program)
    more = () if calls else calls_between(program)
    calls = tuple(calls) or spread_calls(program)
    if not cut or len(calls) < 2:
        return base, None
    weights = weight_layouts(program, base)
    prices, made = Prices(program, target), [Candidate(ALL, base)]
    for when, usual, label in _boxes(cut, calls):
        inside = with_usual(within_once(program, when), usual)
        own = Source(decide(inside, target, weights), ENDS if usual else OTHERS)
        there = [Call(usual)] if usual else [c for c in calls if c.inside(when)]
        near = near_base(prices, base, own, there) if there else own
        made.append(Candidate(label, near.schedule, near.doubt))
    found = _chosen(prices, _varied(prices, made, calls, cut), calls, more)
    return _schedule(program, target, decide, found), found


def decide_measured(program: Program, target: Target, decide: Decide, found: Ranges,
                    local: Local) -> tuple[Schedule, Ranges]:
    """The same with what work items were measured to reach, by what they were predicted to."""
    more = calls_between(program) if found.calls == spread_calls(program) else ()
    chosen = _chosen(Prices(program, target, local), found.candidates, found.calls, more)
    return _schedule(program, target, decide, chosen), chosen


def _boxes(cut: Sequence[When], calls: Sequence[Call]) -> list[tuple[When, dict[str, int], str]]:
    """(extents, usual ones among them, what to call both) that candidates are decided for."""
    def size(call: Call) -> int:
        return prod(call.extents.values())

    ends = [(min, cut[0]), (max, cut[-1])]
    found: list[tuple[When, dict[str, int], str]] = [(w, {}, show_when(w)) for w in cut]
    for pick_one, when in ends:
        inside = [c for c in calls if c.inside(when)]
        if inside:
            usual = pick_one(inside, key=size).extents
            found.append((when, usual, ", ".join(f"{n} {v}" for n, v in usual.items())))
    return found


def _usual(program: Program, target: Target, decide: Decide, calls: Sequence[Call]) -> Schedule:
    """The Schedule of a Program whose calls usually are like these."""
    inside = with_usual(program, usual_extents(program, calls))
    return moved(program, decide(inside, target, {}), target) or decide(program, target, {})


def _varied(prices: Prices, made: Sequence[Candidate], calls: Sequence[Call],
            cut: Sequence[When]) -> list[Candidate]:
    """The candidates, some with parts of several of them, and varied ones of those that serve some
    calls best."""
    table = [_row(prices, made[0], c, calls) for c in made]
    best = {min(range(len(table)), key=lambda c: table[c][i]) for i in range(len(calls))}
    sources = [Source(made[n].schedule, made[n].doubt) for n in sorted(best | {0})]
    for when in ({}, *cut):
        inside = [c for c in calls if c.inside(when)]
        found = mixed_for(prices, sources, inside) if len(sources) > 1 and inside else None
        if found is not None:
            near = near_base(prices, made[0].schedule, found, inside)
            label = f"parts of several for {show_when(when) or ALL}"
            made = [*made, Candidate(label, near.schedule, near.doubt)]
            table.append(_row(prices, made[0], made[-1], calls))
    best = {min(range(len(table)), key=lambda c: table[c][i]) for i in range(len(calls))}
    return [*made, *(
        Candidate(f"{made[n].label}, other tiles", way, max(OTHERS, made[n].doubt))
        for n in sorted(best) for way in tile_candidates(prices, made[n].schedule, calls,
                                                         table[n]))]


def _chosen(prices: Prices, made: Sequence[Candidate], calls: Sequence[Call],
            more: Sequence[Call] = ()) -> Ranges:
    """``more``: calls that no candidate is voted for by, which the tree must serve as well."""
    table = [_row(prices, made[0], c, calls) for c in made]
    sure = [_sure(row, c) for row, c in zip(table, made)]
    least = [min(s[i] for s in sure) for i in range(len(calls))]
    performance = [[least[i] / s[i] for i in range(len(calls))] for s in sure]
    shares = [c.share for c in calls]
    selection = select_by_gain(performance, [b * s for b, s in zip(least, shares)],
                               _size(prices, made), shares=shares, most=MOST,
                               always=0, least=LEAST)
    mean = sum(p * s for p, s in zip(performance[0], shares)) / sum(shares)
    better = [performance[b][i] - performance[0][i] for i, b in enumerate(selection.best)]
    if selection.performance - mean < GAIN and max(better) < LOST:
        selection = Selection((0,), (0,) * len(calls), mean, len(made))
    kept, seen = selection.kept, (*calls, *(more if len(selection.kept) > 1 else ()))
    rows = {c: (*sure[c], *_sure(_row(prices, made[0], made[c], seen[len(calls):]), made[c]))
            for c in kept}
    best = [min(kept, key=lambda c: rows[c][i]) for i in range(len(seen))]
    leaves = learn(prices.program, seen, best, lambda v, i: rows[best[i]][i] / rows[v][i])
    return Ranges(tuple(made), tuple(calls), tuple(table), selection, leaves)


def _sure(row: Sequence[float], candidate: Candidate) -> tuple[float, ...]:
    """Seconds that a candidate is believed to need at most."""
    return tuple(s * (1 + candidate.doubt) for s in row)


def _row(prices: Prices, first: Candidate, candidate: Candidate,
         calls: Sequence[Call]) -> tuple[float, ...]:
    return tuple(prices.beside(first.schedule, candidate.schedule, c.extents) for c in calls)


def _size(prices: Prices, made: Sequence[Candidate]) -> Callable[[Sequence[int]], float]:
    """What a set of candidates takes, by what the first takes: code times weights."""
    text = [{code_of(g): text_bytes(prices.rewritten(c.schedule), g, prices.target)
             for g in c.schedule.groups} for c in made]
    weights = [prices.stored(c.schedule) for c in made]

    def size(kept: Sequence[int]) -> float:
        written = {k: n for c in kept for k, n in text[c].items()}
        code = sum(written.values()) / max(1, sum(text[0].values()))
        stored = {k: n for c in kept for k, n in weights[c].items()}
        return code * sum(stored.values()) / max(1, sum(weights[0].values())) if stored else code

    return size


def _schedule(program: Program, target: Target, decide: Decide, found: Ranges) -> Schedule:
    """The leaves as variants; the last one serves what is left.  Leaves of one candidate have one
    Schedule, for all extents of theirs."""
    base = found.candidates[0].schedule
    if len(found.leaves) == 1 and found.leaves[0][1] == 0:
        return base
    weights = weight_layouts(program, base)
    each = served(program, [when for when, _ in found.leaves[:-1]])
    around = hulls([c for _, c in found.leaves], [each[i] for i in range(len(found.leaves))])
    fitted = {}
    for candidate, box in around.items():
        inside = within_once(program, box)
        fitted[candidate] = moved(inside, found.candidates[candidate].schedule, target) or decide(
            inside, target, weights)
    parts = []
    for when, candidate in found.leaves:
        own = fitted[candidate]
        why = (f"decided for {found.labels[candidate]}, at most "
               f"{found.loss(when):.2f} of the fastest")
        parts.append(Variant(when, own, why))
    *variants, last = parts
    return replace(last.schedule, variants=tuple(variants))


__all__ = ["Candidate", "Ranges", "decide_measured", "decide_ranges"]
