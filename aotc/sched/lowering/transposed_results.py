"""Contractions whose results lie across the lanes in memory (channels of an image that is stored
channel by channel): scratch for rows of them, which is stored by transposed blocks.
"""

from dataclasses import replace

from aotc.ir.kernel.plan_kernels import LoweredKernel, largest_size
from aotc.ir.kernel.plan_stages import Contract
from aotc.ir.kernel.plan_stages import Stage as PlanStage
from aotc.ir.schedule import Group
from aotc.sched.check.choices import choices_of
from aotc.sched.expand.expansion import find_choice
from aotc.sched.expand.transposed_stores import lies_across, with_turned
from aotc.sched.items.context import end_of, scratch_behind
from aotc.sched.lowering.group_to_stages import Staged
from aotc.target.base import Target


def may_transpose(stage: PlanStage, group: Group, owner: str, target: Target) -> bool:
    """True if results of a stage of the kernel, which is of the group's ``owner``, may wait in
    scratch to be stored by transposed blocks."""
    return isinstance(stage, Contract) and lies_across(stage) and (
        "transposed_rows" in choices_of(target, group, owner))


def with_transposed_results(found: Staged, group: Group, target: Target) -> Staged:
    """A staged group whose stages have their choices, with scratch for results that wait there."""
    kernel, end, added = found.kernel, found.end, 0
    scratch, stages = list(kernel.scratch), []
    for s, owner, (count, slab) in zip(kernel.stages, found.owners, found.packed, strict=True):
        rows = _rows(s, group, owner, target, kernel)
        if rows and isinstance(s, Contract):
            s = with_turned(s, "turned", rows)
            assert s.turned is not None
            size = s.turned.rows * s.micro.nr
            made = scratch_behind(target.machine, scratch, slab, "turned", "f32", size)
            scratch.insert(count + added, made)
            end, added = largest_size([end, end_of(made)]), added + 1
            s = replace(s, turned=replace(s.turned, scratch=made.name))
        stages.append(s)
    return replace(found, kernel=replace(kernel, scratch=tuple(scratch), stages=tuple(stages)),
                   end=end)


def _rows(stage: PlanStage, group: Group, owner: str, target: Target, kernel: LoweredKernel) -> int:
    """Rows of a stage that wait in scratch at least; none where panels run inside its rows."""
    if not isinstance(stage, Contract) or not may_transpose(stage, group, owner, target):
        return 0
    where = f"kernel {kernel.about.title}"
    return 0 if find_choice(stage, "order", where) == "rows" else int(
        find_choice(stage, "transposed_rows", where))


__all__ = ["may_transpose", "with_transposed_results"]
