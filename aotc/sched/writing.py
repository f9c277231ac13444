"""A Schedule with every choice of how its statements are written, those made by rule, too."""

from dataclasses import replace

from aotc.ir.program import Program
from aotc.ir.schedule import Group, Schedule, Writing
from aotc.ir.statements import Section, walk_body
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.choices import choices_of
from aotc.sched.expand.expand_stages import expanded
from aotc.sched.lowering.lower import lower_group
from aotc.sched.model.stages import group_stages
from aotc.sched.shape_variants import parts
from aotc.target.base import Target


def with_writing(program: Program, schedule: Schedule, target: Target) -> Schedule:
    """A legal Schedule with the choices filled in that it leaves to the rules of ``sched/expand``:
    it means what it meant.  Bodies of regions keep theirs."""
    *found, base = parts(program, schedule)
    variants = tuple(replace(v, schedule=_filled(p.program, p.schedule, target))
                     for v, p in zip(schedule.variants, found))
    return replace(_filled(base.program, base.schedule, target), variants=variants)


def _filled(program: Program, schedule: Schedule, target: Target) -> Schedule:
    program = apply_rewrites(program, schedule.rewrites)
    return replace(schedule, groups=tuple(
        group_writing(program, schedule, target, g) for g in schedule.groups))


def group_writing(program: Program, schedule: Schedule, target: Target, group: Group) -> Group:
    """One group of a Schedule whose rewrites the Program has, with its stages' choices filled
    in."""
    stages = group_stages(program, group)
    if not stages:  # a call of the library, or a region
        return group
    kernel = lower_group(program, schedule, target, group, 0)
    owner = {o.buffer: s.name for s in stages for o in s.outputs}
    made: dict[str, set[Writing]] = {}
    sections = [s for s in walk_body(expanded(kernel, target).body) if isinstance(s, Section)]
    for stage, section in zip(kernel.stages, sections, strict=True):
        for name in {owner[p.buffer] for p in stage.puts if p.buffer in owner}:
            made.setdefault(name, set()).add(section.written)
    loops = {s: dict(c) for s, c in group.loops.items()}
    for name, ways in made.items():
        legal = choices_of(target, group, name)
        # a stage in several parts, each written its own way, stays with the rules
        written = [(k, v) for k, v in next(iter(ways)) if k in legal] if len(ways) == 1 else []
        if written:
            loops[name] = {**dict(written), **loops.get(name, {})}
    return replace(group, loops=loops)


__all__ = ["group_writing", "with_writing"]
