"""Step ``writing`` of ``decide``, and of whoever else makes a Schedule that is lowered: each stage
says how its statements are written (``ir/stage_choice.py``).

What a stage says already is kept; the rest is chosen from its stages and the target, so a user may
delete a choice, or all of them.  Lowering finds the very stages that were asked here.
"""

from collections.abc import Sequence
from dataclasses import replace

from aotc.errors import ScheduleError
from aotc.ir.kernel.plan_kernels import LoweredKernel
from aotc.ir.kernel.plan_stages import Contract, Nest
from aotc.ir.program import Branch, Loop, Program
from aotc.ir.schedule import Group, Schedule
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.check.check_group import check_group
from aotc.sched.common_groups import CommonGroup, common_groups
from aotc.sched.expand.expand_stages import expansion_of
from aotc.sched.expand.transposed_stores import with_turned
from aotc.sched.items.group_context import choose_places
from aotc.sched.lowering.group_to_stages import Staged, kept_stages, stage_group
from aotc.sched.lowering.lower import written_kernel
from aotc.sched.lowering.neighbours import Lined, lined_buffers
from aotc.sched.lowering.transposed_results import may_transpose
from aotc.sched.model.stages import find_call, group_stages
from aotc.sched.rows.stream_stages import is_stream
from aotc.sched.shape_variants import Part, parts
from aotc.sched.text_choices.block_writing import shared_nests, shared_product
from aotc.sched.text_choices.own_writing import choose_transposed_rows, own_fold, own_product
from aotc.sched.text_choices.row_writing import held_rows
from aotc.sched.text_choices.stream_writing import stream_writing
from aotc.target.base import Target


def choose_writing(program: Program, schedule: Schedule, target: Target) -> Schedule:
    """A legal Schedule in which every stage says how its statements are written, those of variants
    and of bodies of regions, too; groups that several parts have with the same decisions, for the
    calls of all.  ScheduleError where what one says already cannot be."""
    if not schedule.variants:
        return _written(program, schedule, target)
    *found, base = (replace(p, schedule=_written(p.program, p.schedule, target))
                    for p in _commonly_written(program, parts(program, schedule), target))
    variants = tuple(replace(v, schedule=p.schedule) for v, p in zip(schedule.variants, found))
    return replace(base.schedule, variants=variants)


def _commonly_written(program: Program, found: Sequence[Part], target: Target) -> list[Part]:
    """The parts of a Schedule with the choices of groups that several of them have, where those are
    legal for the calls of all and in every part."""
    groups = [list(p.schedule.groups) for p in found]
    for common in common_groups(program, found, target):
        group = _for_all_calls(common, target)
        if group is not None and not any(
                check_group(found[i].program, found[i].schedule, target, group)
                for i, _ in common.members):
            for i, at in common.members:
                groups[i][at] = replace(group, name=groups[i][at].name, why=groups[i][at].why)
    return [replace(p, schedule=replace(p.schedule, groups=tuple(own)))
            for p, own in zip(found, groups)]


def _for_all_calls(common: CommonGroup, target: Target) -> Group | None:
    """The group with the choices of its stages for the calls of all parts that have it; None where
    it is not legal for all."""
    program, group = common.program, common.group
    try:
        if check_group(program, common.schedule, target, group):
            return None
        group = choose_places(program, common.schedule, target, group)
        found = kept_stages(program, common.schedule, target, group)
        group = group_writing(program, group, target, found)
        written_kernel(program, target, group, found)
    except ScheduleError:
        return None
    return group


def _written(program: Program, schedule: Schedule, target: Target) -> Schedule:
    program = apply_rewrites(program, schedule.rewrites)
    regions = {s.name: s for s in program.steps if isinstance(s, (Loop, Branch))}

    def written(group: Group) -> Group:
        if find_call(program, group) is not None:
            return group
        group = choose_places(program, schedule, target, group)
        return group_writing(program, group, target, kept_stages(program, schedule, target, group))

    groups = tuple(map(written, schedule.groups))
    return replace(schedule, groups=groups, regions={
        name: tuple(_written(b, s, target) for b, s in zip(regions[name].bodies, bodies))
        for name, bodies in schedule.regions.items()})


def group_writing(program: Program, group: Group, target: Target, found: Staged) -> Group:
    """A group of computes, staged, with the choices of its stages filled in."""
    choices, lined = dict(group.choices), lined_buffers(program, found.kernel, target)
    if is_stream(group):
        return stream_writing(group, target, found, lined)
    held = held_rows(found, group, target, lined) if group.threads else {}
    for name in dict.fromkeys(found.owners):
        said = group.choice(name).text
        stages: list[Contract | Nest] = []
        chosen: dict[str, int | str] = {}
        for s, owner, (_, slab) in zip(found.kernel.stages, found.owners, found.packed):
            if owner != name or not isinstance(s, (Contract, Nest)):
                continue
            s = replace(s, writing=said)
            if isinstance(s, Contract) and may_transpose(s, group, name, target):
                rows = choose_transposed_rows(s, target, slab)
                chosen |= {} if rows is None else {"transposed_rows": rows}
                s = with_turned(s, "turned", rows) if rows else s
            stages.append(s)
        chosen |= _stage_writing(stages, found.kernel, target, lined) | held.get(name, {})
        if chosen := {k: v for k, v in chosen.items() if k not in said.said}:
            choices[name] = group.choice(name).with_said(chosen)
    return replace(group, choices=choices)


def _stage_writing(stages: list[Contract | Nest], kernel: LoweredKernel, target: Target,
                   lined: Lined) -> dict[str, int | str]:
    """The choices of one stage of a group, which is these stages of its kernel."""
    expansion = expansion_of(kernel, target)
    nests = [s for s in stages if isinstance(s, Nest)]
    found: dict[str, int | str] = {}
    for c in (s for s in stages if isinstance(s, Contract)):  # there is one, if any
        found |= shared_product(c, kernel, target, lined) if kernel.threads else own_product(
            c, len(kernel.stages) == 1, expansion, target.tuning)
    return found | (shared_nests(nests, kernel, target, lined) if kernel.threads else own_fold(
        nests, expansion, target.tuning))


def chosen_kernel(program: Program, schedule: Schedule, target: Target,
                  group: Group) -> LoweredKernel:
    """The kernel of a group of computes, with the choices of deciders where it has none of its own.
    ScheduleError as of ``lower_group``."""
    group = choose_places(program, schedule, target, group)
    found = stage_group(program, schedule, target, group)
    return written_kernel(program, target, group_writing(program, group, target, found), found)


def kernel_faults(program: Program, schedule: Schedule, target: Target, group: Group) -> list[str]:
    """Faults of ``check_group``, and where scratch is no cache, if it does not fit its memory."""
    faults = check_group(program, schedule, target, group)
    if not faults and target.machine.managed and group_stages(program, group):
        try:
            chosen_kernel(program, schedule, target, group)
        except ScheduleError as err:
            return err.faults
    return faults


__all__ = ["choose_writing", "chosen_kernel", "group_writing", "kernel_faults"]
