"""A Schedule for other extents than those that it was decided for."""

from dataclasses import replace

from aotc.errors import ScheduleError
from aotc.ir.program import Program
from aotc.ir.schedule import Schedule
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.check.check_schedule import check_schedule
from aotc.sched.memory.allocate import allocate
from aotc.sched.text_choices.choose_writing import kernel_faults
from aotc.target.base import Target


def move_to_extents(program: Program, schedule: Schedule, target: Target) -> Schedule | None:
    """A Schedule for other extents than those it was decided for; None if it is not legal there."""
    try:
        rewritten = apply_rewrites(program, schedule.rewrites)
        if any(kernel_faults(rewritten, schedule, target, g) for g in schedule.groups):
            return None
        placed = replace(schedule, buffers=allocate(rewritten, schedule))
        return None if check_schedule(rewritten, placed, target) else placed
    except ScheduleError:
        return None


__all__ = ["move_to_extents"]
