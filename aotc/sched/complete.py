"""Schedules that leave something out, completed by the deciders."""

from dataclasses import replace

from aotc.errors import ScheduleError
from aotc.ir.access import layout_from_json
from aotc.ir.program import Branch, Loop, Program
from aotc.ir.schedule import Group, Schedule
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.accelerator.kernels import choose_copies
from aotc.sched.accelerator.places import places
from aotc.sched.check.check_schedule import check_kernels, check_schedule, layout_faults
from aotc.sched.choose.block_threads import choose_threads
from aotc.sched.choose.loops import choose_loops
from aotc.sched.choose.tile import choose_tiles
from aotc.sched.decide import decide, decide_regions
from aotc.sched.memory.allocate import allocate
from aotc.sched.model.stages import group_stages
from aotc.sched.shape_variants import boxes, parts, restrict_once
from aotc.sched.text_choices.choose_writing import choose_writing
from aotc.target.base import Target


def complete(program: Program, schedule: Schedule, target: Target) -> Schedule:
    """A hand-written Schedule with what it leaves out decided: rows, loops and layouts (all of
    them, if any stage lacks its row), tiles of groups without one, buffers if there are none, how
    statements are written; all of a variant without groups."""
    schedule = _kernels_completed(program, schedule, target)
    if check_schedule(program, schedule, target):
        return schedule  # the caller lists what is wrong
    return choose_writing(program, schedule, target)


def _kernels_completed(program: Program, schedule: Schedule, target: Target,
                       inner: bool = False) -> Schedule:
    """``complete`` but for how statements are written.  inner: as of ``decide``."""
    if schedule.variants:
        return _with_variants_completed(program, schedule, target)
    try:
        program = apply_rewrites(program, schedule.rewrites)
    except ScheduleError:
        return schedule  # check_schedule lists why
    made = {o for s in program.steps for o in s.outs}
    if any(not made.issuperset(g.computes + g.outputs) for g in schedule.groups):
        return schedule  # check_schedule lists what is unknown
    if layout_faults(program, schedule):
        return schedule
    groups, layouts = schedule.groups, schedule.layouts
    bare = [g for g in groups if not g.rows]
    if bare and any(_anchor_inlined(program, g) for g in groups):
        return schedule  # this, too
    if bare:
        given = {b: layout_from_json(x) for b, x in layouts.items()}
        chosen, found = choose_loops(program, target, groups, given)
        groups = tuple(c if not g.rows else g for g, c in zip(groups, chosen))
        layouts = {b: x.to_json() for b, x in found.items()} | layouts
        groups = tuple(
            choose_tiles(program, target, (c,), found)[0] if not (g.rows or g.tile) else
            replace(c, parallel=c.parallel or tuple(c.tile))
            for g, c in zip(schedule.groups, groups))
    groups = choose_threads(program, target, groups)
    groups = choose_copies(program, target, groups, layouts)
    schedule = replace(schedule, target=target.name, groups=groups, layouts=layouts,
                       regions=_completed(program, schedule, target))
    if schedule.buffers or check_kernels(program, schedule, target):
        return schedule  # what is wrong with a kernel, check_schedule lists
    schedule = places(program, schedule, target, inner=inner)
    return replace(schedule, buffers=allocate(program, schedule))


def _anchor_inlined(program: Program, group: Group) -> bool:
    """True if no stage of the group is named by its anchor."""
    stages = group_stages(program, group)
    return bool(stages) and not any(group.anchor in s.computes for s in stages)


def _with_variants_completed(program: Program, schedule: Schedule, target: Target) -> Schedule:
    try:
        *found, base = parts(program, schedule)
    except ScheduleError:
        return schedule  # check_schedule lists why
    made = tuple(replace(v, schedule=_kernels_completed(p.program, p.schedule, target)
                         if p.schedule.groups else decide(
                             restrict_once(program, box), target, written=False,
                             winograd=p.schedule.rewrites or "off",
                             precision=p.schedule.precision))
                 for v, p, box in zip(schedule.variants, found, boxes(program, schedule)))
    return replace(_kernels_completed(base.program, base.schedule, target), variants=made)


def _completed(program: Program, schedule: Schedule,
               target: Target) -> dict[str, tuple[Schedule, ...]]:
    """The Schedules of regions' bodies, those that are given completed."""
    regions = {s.name: s for s in program.steps if isinstance(s, (Loop, Branch))}
    given = {name: tuple(_kernels_completed(b, s, target, True)
                         for b, s in zip(regions[name].bodies, own))
             for name, own in schedule.regions.items()
             if name in regions and len(own) == len(regions[name].bodies)}
    made = decide_regions(program, target, "all", "off", False, given, schedule.precision)
    return {**made, **schedule.regions, **given}


__all__ = ["complete"]
