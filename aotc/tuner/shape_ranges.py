"""``tune --variants auto``: what the work items of candidates reach is measured once per group,
in full waves, and it is chosen again with it (DietCode's ``f_local``).

    measure    what was decided for all calls and for the smallest, at the largest call, kernel by
               kernel
    price      other calls by prediction, times what was measured there by what was predicted there
    choose     parts of the one and the other as without measuring (sched/dynamic/choose.py)
"""

from collections.abc import Callable, Hashable, Mapping
from math import prod

from aotc.errors import AotcError
from aotc.ir.layout import Layout
from aotc.ir.program import Program
from aotc.ir.schedule import Schedule, code_of
from aotc.pipeline import Work
from aotc.samples import random_inputs
from aotc.sched import decide
from aotc.sched.cost.predict import Prices
from aotc.sched.dynamic.choose import Ranges, decide_measured
from aotc.target.base import Target
from aotc.tuner.measure.measure_worker import typical_seconds
from aotc.tuner.measure.whole_model import TICK, Checker

SECONDS = 0.5  # CPU time of measuring, for every candidate


def measured_ranges(work: Work, checker: Checker, say: Callable[[str], object],
                    in_time: Callable[[], bool]) -> tuple[Schedule, Ranges, int]:
    """(Schedule, why, groups measured) of a Work whose ranges were chosen by cost.  in_time: a
    function, False once no further candidate is to be measured."""
    assert work.found is not None, "no ranges were looked for"
    local = _local(work, work.found, checker, say, in_time)

    def decided(program: Program, target: Target, layouts: Mapping[str, Layout]) -> Schedule:
        return decide(program, target, layouts=layouts, written=False)

    schedule, found = decide_measured(work.program, work.target, decided, work.found, local)
    return schedule, found, len(local)


def _local(work: Work, found: Ranges, checker: Checker, say: Callable[[str], object],
           in_time: Callable[[], bool]) -> dict[Hashable, float]:
    """{code of a group: seconds measured by those predicted}, at the largest call."""
    extents = max((c.extents for c in found.calls), key=lambda e: prod(e.values()))
    checker.feeds = random_inputs(work.program, extents)
    prices, local = Prices(work.program, work.target), dict[Hashable, float]()
    made = zip(found.labels, (found.candidates[0].schedule, found.small))
    for label, schedule in {s.hash: (label, s) for label, s in made}.values():
        if local and not in_time():
            say(f"not measured for want of time: {label}")
            continue
        say(f"measuring what was decided for {label}")
        try:
            calls = checker.times([schedule], SECONDS)["kernels"][0]
        except AotcError as err:
            say(f"without {label}: {err}")
            continue
        for group, seconds in zip(schedule.groups, typical_seconds(calls)):
            predicted = prices.group(schedule, group, extents)
            local.setdefault(code_of(group), max(seconds, TICK) / max(predicted, TICK))
        checker.forget([schedule])
    return local


__all__ = ["measured_ranges"]
