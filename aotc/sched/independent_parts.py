"""Parts of several Schedules of one Program beside each other.

Where two Schedules agree on nothing but what is stored between, a part of one can stand beside a
part of the other: a **component** is the least set of computes that no group, rewrite or layout of
either Schedule reaches out of.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from aotc.errors import AotcError
from aotc.ir.layout import LayoutJson
from aotc.ir.program import Program, Rewrite
from aotc.ir.schedule import Group, Schedule
from aotc.json_text import freeze_json
from aotc.passes.rewrites import RULES, apply_rewrites
from aotc.sched.check.check_schedule import check_schedule
from aotc.sched.memory.allocate import allocate
from aotc.sched.model.tilegraph import order_groups
from aotc.target.base import Target

LOCAL = ("winograd", "unfold", "split_k")  # rules that change one compute and nothing around it


@dataclass(frozen=True)
class Traced:
    """What rewrites do to a Program, in names: ``owner`` as of ``owners``; (rewrite, computes
    before all of them that it changes); (compute, buffers it touches) of every step after them."""

    owner: dict[str, str]
    changed: tuple[tuple[Rewrite, tuple[str, ...]], ...]
    steps: tuple[tuple[str, tuple[str, ...]], ...]


def owners(program: Program, rewrites: Iterable[Rewrite]) -> dict[str, str]:
    """{compute after rewriting: the compute before it that it belongs to}.  What is made of an
    input belongs to the first that reads it."""
    return trace_rewrites(program, tuple(rewrites)).owner


def trace_rewrites(program: Program, rewrites: Sequence[Rewrite]) -> Traced:
    """What rewrites do to a Program, found once: forms take the weights' arithmetic."""
    known: dict[str, Traced] = program.known("traced")
    key = str(rewrites)
    if key not in known:
        known[key] = _traced(program, rewrites)
    return known[key]


def _traced(program: Program, rewrites: Sequence[Rewrite]) -> Traced:
    owner = {s.outs[0]: s.outs[0] for s in program.steps}
    out: list[tuple[Rewrite, tuple[str, ...]]] = []
    for item in rewrites:
        rule, compute, parameters = item
        before = {id(s) for s in program.steps}
        program = RULES[rule][1](program, compute, parameters)
        for c in reversed([s.outs[0] for s in program.steps if s.outs[0] not in owner]):
            near = [owner[r.outs[0]] for r in program.consumers.get(c, ())
                    if r.outs[0] in owner]
            owner[c] = owner.get(compute) or next(iter(near), c)
        changed = [compute] if rule in LOCAL else [
            s.outs[0] for s in program.steps if id(s) not in before]
        out.append((item, tuple(owner.get(c, c) for c in changed)))
    steps = tuple((s.outs[0], (*s.inputs, *s.outs)) for s in program.steps)
    return Traced(owner, tuple(out), steps)


def mix_schedules(program: Program, target: Target, schedules: Sequence[Schedule],
                  seconds: Sequence[Sequence[float]], better: float = 1.0) -> Schedule | None:
    """The Schedule with the fastest of ``schedules`` for every component; the first where none
    takes less than ``better`` of its time.  program: before rewrites; seconds: per group of each.
    None if what comes out is not legal."""
    components = _components(program, schedules)
    spent = [_by_component(program, s, components, t) for s, t in zip(schedules, seconds)]
    best = {}
    for r in set(components.values()):
        times = [x.get(r, 0.0) for x in spent]
        i = min(range(len(times)), key=times.__getitem__)
        best[r] = i if times[i] < better * times[0] else 0
    return _joined(program, target, schedules, components, best)


def _joined(program: Program, target: Target, schedules: Sequence[Schedule],
            components: Mapping[str, str], best: Mapping[str, int]) -> Schedule | None:
    rewrites: list[Rewrite] = []
    groups: list[Group] = []
    layouts: dict[str, LayoutJson] = {}
    for i, s in enumerate(schedules):
        found = trace_rewrites(program, s.rewrites)
        rewrites += [r for r, changed in found.changed if best[components[changed[0]]] == i]
        mine = {c for c, o in found.owner.items() if best[components[o]] == i}
        groups += [replace(g, name=f"s{i}_{g.name}") for g in s.groups if g.computes[0] in mine]
        near = {b for c, touched in found.steps if c in mine for b in touched}
        layouts |= {b: x for b, x in s.layouts.items() if b in near}
    try:
        after = apply_rewrites(program, tuple(rewrites))
        named = tuple(replace(g, name=f"g{i:03d}")
                      for i, g in enumerate(order_groups(after, groups)))
        schedule = replace(schedules[0], groups=named, layouts=layouts, buffers={},
                           rewrites=tuple(rewrites))
        schedule = replace(schedule, buffers=allocate(after, schedule))
        return None if check_schedule(after, schedule, target) else schedule
    except AotcError:
        return None  # the parts do not fit together


def _by_component(program: Program, schedule: Schedule, components: Mapping[str, str],
                  seconds: Sequence[float]) -> dict[str, float]:
    owner, out = owners(program, schedule.rewrites), dict[str, float]()
    for g, s in zip(schedule.groups, seconds):
        component = components[owner[g.computes[0]]]
        out[component] = out.get(component, 0.0) + s
    return out


def _components(program: Program, schedules: Sequence[Schedule]) -> dict[str, str]:
    """{compute of the program: a compute that stands for its component}."""
    root = {s.outs[0]: s.outs[0] for s in program.steps}

    def find(c: str) -> str:
        while root[c] != c:
            root[c] = root[root[c]]
            c = root[c]
        return c

    def tie(computes: Sequence[str]) -> None:
        for c in computes[1:]:
            root[find(c)] = find(computes[0])

    differ = {b for s in schedules for b in s.layouts
              if len({freeze_json(t.layouts.get(b)) for t in schedules}) > 1}
    for s in schedules:
        found = trace_rewrites(program, s.rewrites)
        for g in s.groups:
            tie([found.owner[c] for c in g.computes])
        near: dict[str, list[str]] = {}
        for c, touched in found.steps:
            for b in touched:
                near.setdefault(b, []).append(found.owner[c])
        for b in differ:
            tie(near.get(b, []))
        for _, changed in found.changed:
            tie(changed)
    return {c: find(c) for c in root}


__all__ = ["LOCAL", "Traced", "mix_schedules", "owners", "trace_rewrites"]
