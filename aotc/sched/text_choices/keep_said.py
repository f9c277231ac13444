"""Schedules without what their deciders would choose again."""

from dataclasses import replace

from aotc.ir.program import Program
from aotc.ir.schedule import Group, Schedule
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.items.group_context import choose_places
from aotc.sched.lowering.group_to_stages import kept_stages
from aotc.sched.model.stages import find_call
from aotc.sched.text_choices.choose_writing import group_writing
from aotc.target.base import Target


def keep_said(program: Program, schedule: Schedule, target: Target) -> Schedule:
    """A Schedule without variants and without the choices that ``choose_writing`` would make: what
    is moved to other tiles, rows or extents keeps only what somebody said."""
    program = apply_rewrites(program, schedule.rewrites)

    def said(group: Group) -> Group:
        if find_call(program, group) is not None:
            return group
        found = kept_stages(program, schedule, target, group)
        usual = group_writing(program, choose_places(
            program, schedule, target, group.bare), target, found)
        scratch = "" if group.scratch == usual.scratch else group.scratch
        less = replace(group, scratch=scratch, choices={
            s: c.bare.with_said({k: v for k, v in c.text.said.items()
                                 if v != usual.choice(s).said.get(k, v)})
            for s, c in group.choices.items()})
        full, whole = (group_writing(program, g, target, found) for g in (less, group))
        same = all(c.said.items() <= whole.choice(s).said.items() for s, c in full.choices.items())
        return less if same else group

    return replace(schedule, groups=tuple(map(said, schedule.groups)))


__all__ = ["keep_said"]
