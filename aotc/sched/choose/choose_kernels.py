"""Step ``kernels`` of ``decide``: groups as kernels: layouts and rows, then tiles, then copies."""

from collections.abc import Mapping, Sequence

from aotc.ir.layout import Layout
from aotc.ir.program import Program
from aotc.ir.schedule import Group, Schedule
from aotc.sched.accelerator.kernels import choose_copies
from aotc.sched.choose.connect import part_groups
from aotc.sched.choose.loops import choose_loops
from aotc.sched.choose.tile import choose_tiles
from aotc.sched.text_choices.choose_writing import kernel_faults
from aotc.target.base import Target


def choose_kernels(program: Program, target: Target, groups: Sequence[Group],
                   given: Mapping[str, Layout], tiled: Target | None = None) -> Schedule:
    """A Schedule of a rewritten Program with layouts, rows, tiles and copies.  given: {buffer:
    Layout} that are settled; tiled: the target that tiles are made for, if that is another.
    Layouts that other groups wanted can make a group illegal that was legal by itself: it is
    parted, and all is chosen again."""
    while True:
        schedule = _chosen(program, tiled or target, groups, given)
        refused = {g.name for g in schedule.groups if g.why and kernel_faults(
            program, schedule, target, g)}
        if not refused:
            return schedule
        groups = part_groups(program, groups, refused)


def _chosen(program: Program, target: Target, groups: Sequence[Group],
            given: Mapping[str, Layout]) -> Schedule:
    """The Schedule of groups as they are; one that comes with its work items keeps them."""
    groups, layouts = choose_loops(program, target, groups, given)
    groups = choose_tiles(program, target, groups, layouts)
    stored = {b: x.to_json() for b, x in layouts.items()}
    return Schedule(target.name, choose_copies(program, target, groups, stored), stored)


__all__ = ["choose_kernels"]
