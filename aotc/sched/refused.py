"""The last resort: which groups of a decision its own checks refuse, so that it is made again
without these merges.  Every such decision is a defect of a decider, which is to be reported."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from aotc.ir.kernel.plan_kernels import Kernel
from aotc.ir.plan import Plan
from aotc.ir.schedule import Group
from aotc.oracle.check_plan import plan_faults
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.check.check_group import check_group
from aotc.sched.lowering.kernel_names import kernel_names
from aotc.sched.lowering.lower import lower, lower_group
from aotc.sched.lowering.threads import barrier_faults
from aotc.sched.shape_variants import Part
from aotc.target.base import Target

Apart = Collection[str]  # computes that are merged with no others


def refused_computes(found: Sequence[Part], target: Target) -> frozenset[str]:
    """The computes of groups of several that are no legal kernels, cannot be lowered or whose
    kernels may touch what is not theirs; nothing where that is no fault of single groups."""
    return frozenset(c for part in found for g in _refused(part, target) if len(g.computes) > 1
                     for c in g.computes)


def _refused(part: Part, target: Target) -> list[Group]:
    """The groups of a part that are refused, those that only the Plan shows if no others are."""
    program, schedule = part.program, part.schedule
    wrong = [g for g in schedule.groups if not _stands(part, target, g)]
    if wrong:
        return wrong
    plan = lower(program, schedule, target)
    kernels = {k.name: k for k in plan.kernels}
    names = kernel_names(apply_rewrites(program, schedule.rewrites), schedule.groups)
    named = [(g, kernels.get(name)) for g, name in zip(schedule.groups, names)]
    return [g for g, k in named if k is not None and _faults(_only(plan, k))]


def _stands(part: Part, target: Target, g: Group) -> bool:
    """True if a group is a legal kernel and can be lowered.  Whatever else goes wrong there, the
    group is what it goes wrong with."""
    try:
        if check_group(part.program, part.schedule, target, g):
            return False
        lower_group(part.program, part.schedule, target, g)
    except Exception:  # the first error is told, and this group made otherwise
        return False
    return True


def _only(plan: Plan, kernel: Kernel) -> Plan:
    """The Plan with one of its kernels."""
    return replace(plan, kernels=(kernel,), regions=())


def _faults(plan: Plan) -> list[str]:
    return [*barrier_faults(plan), *plan_faults(plan)]


__all__ = ["Apart", "refused_computes"]
