"""Where the search starts: the deciders' whole Schedules, measured, and the best parts of each.

What a decider predicts to be faster is often not, so the model is measured under all of them.
Where two Schedules agree on nothing but what is stored between, a part of one can stand beside a
part of the other: a **component** is the least set of computes that no group, rewrite or layout of
either Schedule reaches out of.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

from aotc.errors import AotcError
from aotc.ir.program import Program
from aotc.ir.schedule import Schedule
from aotc.options import Options
from aotc.passes.rewrites import RULES, apply_rewrites
from aotc.pipeline import Work
from aotc.sched import CONNECT, check_schedule
from aotc.sched.memory.allocate import allocate
from aotc.sched.model.tilegraph import ordered
from aotc.target.base import Target
from aotc.tuner.measure.whole_model import Checker, Decisions, busy
from aotc.tuner.space.sites import LOCAL, owners

SECONDS = 0.5  # CPU time of measuring, for every Schedule
BETTER = 0.985  # of its time in the base: what a component must leave in another Schedule


def decisions(options: Options) -> list[Decisions]:
    """Decisions for ``Checker.built`` that differ from those of Options: the other ways
    to connect, and no Winograd forms if there may be some."""
    plain = options.winograd == "auto" and (options.math == "exact" or options.optimize == "size")
    winograd, unfold = "off" if plain else options.winograd, options.optimize != "size"
    common = (("winograd", winograd), ("unfold", unfold))
    out: list[Decisions] = [(("how", how), *common) for how in reversed(CONNECT)
           if how not in (options.connect, "none")]
    if winograd == "auto":
        out.append((("how", options.connect), ("winograd", "off"), ("unfold", unfold)))
    return out


def seeded(work: Work, options: Options, checker: Checker, say: Callable[[str], object],
           in_time: Callable[[], bool]) -> Schedule:
    """The Schedule to search from: the fastest of the untuned one, those of the other deciders,
    and the best parts of all.  in_time: a function, False once no further decider is to be
    asked."""
    say("measuring the model as each decider has it")
    first, *others = decisions(options)
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
        order = sorted(range(len(found)), key=lambda i: busy(calls[i]))
        best = mixed(work.program, work.target, [found[i] for i in order],
                     [list(map(median, zip(*calls[i]))) for i in order])
        tried = {s.hash: s for s in (work.schedule, found[order[0]], best) if s is not None}
        calls = checker.times(list(tried.values()), SECONDS * len(tried))["kernels"]
    except AotcError as err:
        say(f"the untuned schedule is where the search starts: {err}")
        return work.schedule
    times = {s.hash: busy(c) for s, c in zip(tried.values(), calls)}
    least = min(times, key=times.__getitem__)
    say("the search starts at " + f"{times[least] / times[work.schedule.hash]:.3f} of the untuned "
        "time")
    if times[least] <= checker.faster * times[work.schedule.hash]:
        checker.schedule = tried[least]
    checker.forget([*found, *tried.values()])
    return checker.schedule


def mixed(program: Program, target: Target, schedules: Sequence[Schedule],
          seconds: Sequence[Sequence[float]]) -> Schedule | None:
    """The Schedule with the fastest of ``schedules`` for every component; the first where none is
    clearly faster.  program: before rewrites; seconds: per group of each.  None if what comes out
    is not legal."""
    components = _components(program, schedules)
    spent = [_by_component(program, s, components, t) for s, t in zip(schedules, seconds)]
    best = {}
    for r in set(components.values()):
        times = [x.get(r, 0.0) for x in spent]
        i = min(range(len(times)), key=times.__getitem__)
        best[r] = i if times[i] < BETTER * times[0] else 0
    return _joined(program, target, schedules, components, best)


def _joined(program, target, schedules, components, best):
    rewrites, groups, layouts = [], [], {}
    for i, s in enumerate(schedules):
        owner = owners(program, s.rewrites)
        rewrites += [r for r, changed in _traced(program, s.rewrites)
                     if best[components[changed[0]]] == i]
        mine = {c for c, o in owner.items() if best[components[o]] == i}
        groups += [replace(g, name=f"s{i}_{g.name}") for g in s.groups if g.computes[0] in mine]
        after = apply_rewrites(program, s.rewrites)
        near = {b for step in after.steps if step.outs[0] in mine
                for b in (*step.inputs, *step.outs)}
        layouts |= {b: x for b, x in s.layouts.items() if b in near}
    try:
        after = apply_rewrites(program, tuple(rewrites))
        groups = tuple(replace(g, name=f"g{i:03d}")
                       for i, g in enumerate(ordered(after, groups)))
        schedule = replace(schedules[0], groups=groups, layouts=layouts, buffers={},
                           rewrites=tuple(rewrites))
        schedule = replace(schedule, buffers=allocate(after, schedule))
        return None if check_schedule(after, schedule, target) else schedule
    except AotcError:
        return None  # the parts do not fit together


def _by_component(program, schedule, components, seconds):
    owner, out = owners(program, schedule.rewrites), {}
    for g, s in zip(schedule.groups, seconds):
        component = components[owner[g.computes[0]]]
        out[component] = out.get(component, 0.0) + s
    return out


def _components(program, schedules):
    """{compute of the program: a compute that stands for its component}."""
    root = {s.outs[0]: s.outs[0] for s in program.steps}

    def find(c):
        while root[c] != c:
            root[c] = root[root[c]]
            c = root[c]
        return c

    def tie(computes):
        first, *rest = computes or [None]
        for c in rest:
            root[find(c)] = find(first)

    differ = {b for s in schedules for b in s.layouts
              if any(_plain(s.layouts.get(b)) != _plain(t.layouts.get(b)) for t in schedules)}
    for s in schedules:
        owner, after = owners(program, s.rewrites), apply_rewrites(program, s.rewrites)
        for g in s.groups:
            tie([owner[c] for c in g.computes])
        touched = {}
        for step in after.steps:
            for b in (*step.inputs, *step.outs):
                touched.setdefault(b, []).append(owner[step.outs[0]])
        for b in differ:
            tie(touched.get(b, []))
        for _, changed in _traced(program, s.rewrites):
            tie(changed)
    return {c: find(c) for c in root}


def _traced(program, rewrites):
    """[(rewrite, computes of ``program`` that it changes)]."""
    owner, out = owners(program, rewrites), []
    for item in rewrites:
        rule, compute, parameters = item
        before, changed = {id(s) for s in program.steps}, [owner.get(compute)]
        program = RULES[rule][1](program, compute, parameters)
        if rule not in LOCAL:  # it reaches what is around it, too
            changed = [owner[s.outs[0]] for s in program.steps if id(s) not in before]
        out.append((item, changed))
    return out


def _plain(value):
    return tuple(map(_plain, value)) if isinstance(value, (list, tuple)) else value


__all__ = ["decisions", "mixed", "seeded"]
