"""Where the search starts: the deciders' whole Schedules, measured, and the best parts of each.

What a decider predicts to be faster is often not, so the model is measured under all of them.
"""

from collections.abc import Callable
from statistics import median

from aotc.errors import AotcError
from aotc.ir.schedule import Schedule
from aotc.options import Options
from aotc.pipeline import Work
from aotc.sched import CONNECT
from aotc.sched.independent_parts import mix_schedules
from aotc.tuner.measure.whole_model import Checker, Decisions, busy_seconds

SECONDS = 0.5  # CPU time of measuring, for every Schedule
BETTER = 0.985  # of its time in the base: what a component must leave in another Schedule


def decisions(options: Options, has_forms: bool = True) -> list[Decisions]:
    """Decisions for ``Checker.built`` that differ from those of Options: the other ways
    to connect, and no Winograd forms if there may be some: ``has_forms`` of the target."""
    plain = options.winograd == "auto" and (options.math == "exact" or options.optimize == "size")
    winograd, unfold = "off" if plain else options.winograd, options.optimize != "size"
    common = (("winograd", winograd), ("unfold", unfold))
    out: list[Decisions] = [(("how", how), *common) for how in reversed(CONNECT)
           if how not in (options.connect, "none")]
    if winograd == "auto" and has_forms:
        out.append((("how", options.connect), ("winograd", "off"), ("unfold", unfold)))
    return out


def seed_schedule(work: Work, options: Options, checker: Checker, say: Callable[[str], object],
                  in_time: Callable[[], bool]) -> Schedule:
    """The Schedule to search from: the fastest of the untuned one, those of the other deciders,
    and the best parts of all.  in_time: a function, False once no further decider is to be
    asked."""
    say("measuring the model as each decider has it")
    first, *others = decisions(options, bool(work.target.rows("transform")))
    built = checker.built([work.schedule, first])
    for wish in others:
        built += checker.built([wish]) if in_time() else []
    for b in built:
        if b.error:
            say(f"without the schedule of a decider, which does not build: {b.error}")
    found = list({b.schedule.hash: b.schedule for b in built
                  if b.schedule is not None and not b.error}.values())
    if len(found) < 2 or found[0].hash != work.schedule.hash:
        return work.schedule
    try:
        calls = checker.times(found, SECONDS * len(found))["kernels"]
        order = sorted(range(len(found)), key=lambda i: busy_seconds(calls[i]))
        best = mix_schedules(work.program, work.target, [found[i] for i in order],
                             [list(map(median, zip(*calls[i]))) for i in order], BETTER)
        tried = {s.hash: s for s in (work.schedule, found[order[0]], best) if s is not None}
        calls = checker.times(list(tried.values()), SECONDS * len(tried))["kernels"]
    except AotcError as err:
        say(f"the untuned schedule is where the search starts: {err}")
        return work.schedule
    times = {s.hash: busy_seconds(c) for s, c in zip(tried.values(), calls)}
    least = min(times, key=times.__getitem__)
    say("the search starts at " + f"{times[least] / times[work.schedule.hash]:.3f} of the untuned "
        "time")
    if times[least] <= checker.faster * times[work.schedule.hash]:
        checker.schedule = tried[least]
    checker.forget([*found, *tried.values()])
    return checker.schedule


__all__ = ["decisions", "seed_schedule"]
