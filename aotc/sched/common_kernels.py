"""The Plans of a Schedule's parts, which have kernels in common.

Every part lowers the Program of its own calls, and narrower ranges leave other bounds and fewer
tails.  A group that several parts have with the same decisions would so be written once for each of
them; it is lowered once, for the calls of all, and its kernel stands in every one of their Plans.
How its statements are written is chosen for all those calls, but for what its Schedules say
otherwise than the rules would.
"""

from collections.abc import Sequence

from aotc.errors import ScheduleError
from aotc.ir.plan import Kernel, Plan
from aotc.ir.program import Program
from aotc.ir.schedule import Group, Schedule, When
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.dynamic.predict import code_of, touched
from aotc.sched.lowering.lower import lower, lower_group
from aotc.sched.lowering.staged import staged
from aotc.sched.model.stages import group_stages
from aotc.sched.shape_variants import Part, hulls, within_once
from aotc.sched.writing.choose_writing import group_writing, kernel_faults, only_said
from aotc.target.base import Target

Member = tuple[int, Group]  # number of a part, a group of it


def lower_parts(program: Program, parts: Sequence[Part], target: Target) -> tuple[Plan, ...]:
    """The Plan of each part of a checked Schedule of ``program``; parts of one Program and one
    Schedule have the same.  ScheduleError lists all faults of an illegal one."""
    number: dict[tuple[int, str], int] = {}
    which = [number.setdefault((id(p.program), p.schedule.hash), len(number)) for p in parts]
    own = [parts[which.index(n)] for n in range(len(number))]
    common = common_kernels(program, own, target)
    plans = [lower(p.program, p.schedule, target, kernels) for p, kernels in zip(own, common)]
    return tuple(plans[n] for n in which)


def common_kernels(program: Program, parts: Sequence[Part],
                   target: Target) -> list[dict[str, Kernel]]:
    """Of each part, {group: the kernel that other parts have, too}; none where clusters of workers
    have memories of their own, in which parts differ.  program: of all calls, before rewrites."""
    out: list[dict[str, Kernel]] = [{} for _ in parts]
    if len(parts) == 1 or target.machine.stores:
        return out
    for members in _same_groups(program, parts, target):
        first, group = members[0]
        kernel = _lowered(program, [parts[i] for i, _ in members], group, target)
        if kernel is not None:
            for i, g in members:
                out[i][g.name] = kernel
    return out


def _same_groups(program: Program, parts: Sequence[Part], target: Target) -> list[list[Member]]:
    """Groups of stages that are the same in several parts, those of the last part first, without
    the choices of writing that follow from a part's own extents."""
    found: dict[object, list[Member]] = {}
    for i, part in reversed(list(enumerate(parts))):
        whole = apply_rewrites(program, part.schedule.rewrites)
        for g in only_said(part.program, part.schedule, target).groups:
            if group_stages(whole, g):
                found.setdefault(_meaning(whole, part.schedule, g), []).append((i, g))
    return [members for members in found.values() if len(members) > 1]


def _meaning(whole: Program, schedule: Schedule, group: Group) -> object:
    """What a group computes of a rewritten Program and every decision of it."""
    return (code_of(group), tuple(whole.producer[c] for c in group.computes), tuple(
        (whole.buffers[b], str(schedule.layouts.get(b))) for b in touched(whole, group)))


def _lowered(program: Program, parts: Sequence[Part], group: Group,
             target: Target) -> Kernel | None:
    """A group of the first of ``parts`` for the calls of all of them; None where it is not legal
    for all."""
    schedule = parts[0].schedule
    ranges: list[When] = [{s.name: (s.lo, s.hi) for s in p.program.syms} for p in parts]
    box = hulls([0] * len(parts), ranges)[0]
    try:
        inside = apply_rewrites(within_once(program, box), schedule.rewrites)
        if kernel_faults(inside, schedule, target, group):
            return None
        group = group_writing(inside, group, target, staged(inside, schedule, target, group))
        return lower_group(inside, schedule, target, group, 0)
    except ScheduleError:
        return None


__all__ = ["common_kernels", "lower_parts"]
