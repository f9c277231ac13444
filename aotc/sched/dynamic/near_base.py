"""A Schedule for some calls as near to that for all calls as pays.

Where the two agree on what is stored between two parts (``sched/independent_parts.py``), each part
may come from either: one's form of a convolution here, the other's there.
"""

from collections.abc import Hashable
from math import inf
from operator import truediv
from statistics import fmean

from aotc.ir.schedule import Group, Schedule, code_of
from aotc.sched.cost.predict import Prices
from aotc.sched.dynamic.text_size import text_bytes
from aotc.sched.independent_parts import mix_schedules
from aotc.sched.model.typical_calls import TypicalCall
from aotc.sched.shape_variants import ALPHA


def keep_base_parts(prices: Prices, base: Schedule, own: Schedule, doubt: float,
                    call: TypicalCall) -> tuple[Schedule, float]:
    """(Schedule, its doubt) for a call: ``own`` with the parts of ``base``, which is in the bundle
    anyway, wherever its own save the call less time than their code and weights are worth; itself
    where nothing legal comes out.  doubt: share of its time that it may take longer than
    predicted."""
    whole = prices.call_by_workers(base, call.extents)
    spent: dict[Hashable, float] = {}  # code of a group -> its share of the call's time
    sure: dict[Hashable, float] = {}  # at most
    for schedule, more in ((base, 0.0), (own, doubt)):
        for g in schedule.groups:
            t = fmean(map(truediv, prices.by_workers(schedule, g, call.extents), whole))
            if t * (1 + more) < sure.get(code_of(g), inf):
                spent[code_of(g)], sure[code_of(g)] = t, t * (1 + more)
    known, stored = set(map(code_of, base.groups)), prices.stored(base)
    grown_by = prices.stored(own)
    payload = max(1, sum(stored.values()))
    text = sum(text_bytes(prices.rewritten(base), g, prices.target) for g in base.groups)

    def worth(g: Group) -> float:
        """The share of the call's time that a group's size is worth."""
        program = prices.rewritten(own)
        read = {b for c in g.computes for b in program.producer[c].inputs}
        grown = sum(n for k, n in grown_by.items() if k[0] in read and k not in stored)
        written = 0 if code_of(g) in known else text_bytes(program, g, prices.target)
        return ALPHA * (written / text + grown / payload)

    least = [sure[code_of(g)] for g in base.groups]
    paid = [sure[code_of(g)] + worth(g) for g in own.groups]
    found = mix_schedules(prices.program, prices.target, (base, own), (least, paid))
    if found is None:
        return own, doubt
    codes = [code_of(g) for g in found.groups]
    return found, sum(map(sure.__getitem__, codes)) / sum(map(spent.__getitem__, codes)) - 1


__all__ = ["keep_base_parts"]
