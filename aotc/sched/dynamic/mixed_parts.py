"""Schedules of which every part is the best for some calls: forms, layouts and merges may differ
from layer to layer between variants.

Candidates are decided for some extents as wholes, but what serves a range of calls best is here one
candidate's form of a convolution, there another's.  Where two candidates agree on what is stored
between two parts (``sched/components.py``), each part may come from either.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import fmean

from aotc.ir.schedule import Group, Schedule, code_of
from aotc.sched.asking.vote import ALPHA
from aotc.sched.components import mixed
from aotc.sched.cost.predict import Prices
from aotc.sched.dynamic.text_size import text_bytes
from aotc.sched.model.typical_calls import Call

ASKED = 5  # calls of a set that parts are compared on


@dataclass(frozen=True)
class Source:
    """A Schedule whose parts may be taken; ``doubt``: share of its time that it may take longer
    than predicted."""

    schedule: Schedule
    doubt: float


def mixed_for(prices: Prices, sources: Sequence[Source],
              calls: Sequence[Call]) -> Source | None:
    """The Schedule with those parts of the sources that serve the calls best, each call counting
    alike; None where one of them has them all, or nothing legal comes out."""
    table = _Table(prices, sources, calls)
    first, *others = sorted(range(len(sources)), key=lambda i: table.spent(sources[i].schedule))
    best = sources[first].schedule
    for i in others:
        found = mixed(prices.program, prices.target, (best, sources[i].schedule),
                      (table.sure(best), table.sure(sources[i].schedule)))
        best = found if found is not None and sum(table.sure(found)) < sum(
            table.sure(best)) else best
    return None if best is sources[first].schedule else table.source(best)


def near_base(prices: Prices, base: Schedule, source: Source, calls: Sequence[Call]) -> Source:
    """The source with the parts of ``base``, which is in the bundle anyway, wherever its own save
    the calls less time than their code and weights are worth; itself where nothing legal comes
    out."""
    table = _Table(prices, (Source(base, 0.0), source), calls)
    known, stored = set(map(code_of, base.groups)), prices.stored(base)
    more = prices.stored(source.schedule)
    payload = max(1, sum(stored.values()))
    text = sum(text_bytes(prices.rewritten(base), g, prices.target) for g in base.groups)

    def worth(g: Group) -> float:
        """The share of the calls' time that a group's size is worth."""
        program = prices.rewritten(source.schedule)
        read = {b for c in g.computes for b in program.producer[c].inputs}
        grown = sum(n for k, n in more.items() if k[0] in read and k not in stored)
        written = 0 if code_of(g) in known else text_bytes(program, g, prices.target)
        return ALPHA * (written / text + grown / payload)

    paid = [t + worth(g) for t, g in zip(table.sure(source.schedule), source.schedule.groups)]
    found = mixed(prices.program, prices.target, (base, source.schedule),
                  (table.sure(base), paid))
    return source if found is None else table.source(found)


class _Table:
    """What groups take of calls that count alike, by all workers and by one, by what all of the
    first source takes there."""

    def __init__(self, prices: Prices, sources: Sequence[Source], calls: Sequence[Call]) -> None:
        asked = calls[::-(-len(calls) // ASKED)]
        whole = [prices.call_by_workers(sources[0].schedule, c.extents) for c in asked]
        self.known: dict[Hashable, tuple[float, float]] = {}  # (its time, how sure that is)
        for s in sources:
            for g in s.schedule.groups:
                t = fmean(x / n for c, first in zip(asked, whole)
                          for x, n in zip(prices.by_workers(s.schedule, g, c.extents), first))
                had = self.known.get(code_of(g), (t, float("inf")))
                self.known[code_of(g)] = min(had, (t, t * (1 + s.doubt)), key=lambda x: x[1])

    def spent(self, schedule: Schedule) -> float:
        """What a Schedule of their groups takes."""
        return sum(self.known[code_of(g)][0] for g in schedule.groups)

    def sure(self, schedule: Schedule) -> list[float]:
        """What each of its groups is believed to take at most."""
        return [self.known[code_of(g)][1] for g in schedule.groups]

    def source(self, schedule: Schedule) -> Source:
        """A Schedule of their groups as a Source."""
        return Source(schedule, sum(self.sure(schedule)) / self.spent(schedule) - 1)


__all__ = ["Source", "mixed_for", "near_base"]
