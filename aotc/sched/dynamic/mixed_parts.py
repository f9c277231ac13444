"""Schedules of which every part is the best for some calls: forms, layouts and merges may differ
from layer to layer between variants.

Candidates are decided for some extents as wholes, but what serves a range of calls best is here one
candidate's form of a convolution, there another's.  Where two candidates agree on what is stored
between two parts (``sched/components.py``), each part may come from either.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from aotc.ir.schedule import Schedule
from aotc.sched.components import mixed
from aotc.sched.dynamic.predict import Prices, code_of
from aotc.sched.dynamic.typical_calls import Call

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
    asked = calls[::-(-len(calls) // ASKED)]
    whole = [prices.call(sources[0].schedule, c.extents) for c in asked]
    kept = [[sum(prices.group(s.schedule, g, c.extents) / n for c, n in zip(asked, whole))
             for g in s.schedule.groups] for s in sources]
    first, *others = sorted(range(len(sources)), key=lambda i: sum(kept[i]))
    best = sources[first].schedule
    known: dict[Hashable, tuple[float, float]] = {}  # group -> (its time, how sure that is)
    for i in (first, *others):
        for g, t in zip(sources[i].schedule.groups, kept[i]):
            known.setdefault(code_of(g), (t, t * (1 + sources[i].doubt)))

    def sure(schedule: Schedule) -> list[float]:
        return [known[code_of(g)][1] for g in schedule.groups]

    for i in others:
        found = mixed(prices.program, prices.target, (best, sources[i].schedule),
                      (sure(best), sure(sources[i].schedule)))
        best = found if found is not None and sum(sure(found)) < sum(sure(best)) else best
    if best is sources[first].schedule:
        return None
    return Source(best, sum(sure(best)) / sum(known[code_of(g)][0] for g in best.groups) - 1)


__all__ = ["Source", "mixed_for"]
