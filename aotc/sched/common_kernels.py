"""The Plans of a Schedule's parts, which have kernels in common.

A group that several parts have with the same decisions would be written once for each of them; it
is lowered once, for the calls of all, and its kernel stands in every one of their Plans.
"""

from collections.abc import Sequence

from aotc.errors import ScheduleError
from aotc.ir.kernel.plan_kernels import LoweredKernel
from aotc.ir.plan import Plan
from aotc.ir.program import Program
from aotc.sched.check.check_group import check_group
from aotc.sched.common_groups import CommonGroup, common_groups
from aotc.sched.lowering.lower import lower, lower_group
from aotc.sched.shape_variants import Part
from aotc.target.base import Target


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
                   target: Target) -> list[dict[str, LoweredKernel]]:
    """Of each part, {group: the kernel that other parts have, too}.  program: of all calls, before
    rewrites."""
    out: list[dict[str, LoweredKernel]] = [{} for _ in parts]
    for common in common_groups(program, parts, target):
        kernel = _lowered(common, target)
        if kernel is not None:
            for part, at in common.members:
                out[part][parts[part].schedule.groups[at].name] = kernel
    return out


def _lowered(common: CommonGroup, target: Target) -> LoweredKernel | None:
    """A group for the calls of all parts that have it; None where it is not legal for all."""
    try:
        if check_group(common.program, common.schedule, target, common.group):
            return None
        return lower_group(common.program, common.schedule, target, common.group)
    except ScheduleError:
        return None


__all__ = ["common_kernels", "lower_parts"]
