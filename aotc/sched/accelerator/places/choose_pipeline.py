"""Work items in steps, whose next boxes are copied while one is computed.

A kernel of many tiles has every worker start its copies, wait for them and compute, tile after
tile.  Where a work item walks along several tiles, what they all read is copied once, and the boxes
of the next one arrive meanwhile, in a second place.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from aotc.ir.program import Program
from aotc.ir.schedule import Group, Schedule
from aotc.sched.accelerator.items.own_parts import count_clusters, find_group_touched, has_own_part
from aotc.sched.accelerator.kernels.scratchpad_tile import fitted_tile
from aotc.sched.accelerator.places.item_seconds import group_seconds, step_cost
from aotc.sched.model.group_model import group_model
from aotc.sched.model.group_numbers import GroupModel
from aotc.sched.model.stages import group_stages
from aotc.target.base import Machine, Target


def choose_pipelines(program: Program, schedule: Schedule, target: Target) -> Schedule:
    """The Schedule, whose ``copies`` and places in clusters' memories are chosen, with ``run``,
    ``pipeline`` and the tile for it in groups that are predicted to take less time by it."""
    if not target.machine.engines:
        return schedule
    return replace(schedule, groups=tuple(
        _chosen(program, schedule, target, g) for g in schedule.groups))


def _chosen(program: Program, schedule: Schedule, target: Target, group: Group) -> Group:
    machine = target.machine
    outside = set(group.copies.values()) - {machine.scratch}
    if not group.copies or outside or not group.tile or group.run or group.splits or (
            group.threads or not group_stages(program, group)):
        return group
    model = group_model(program, group)
    best, least = group, group_seconds(program, schedule, target, group)
    for tile in _tiles(model, machine, group):
        for axis in group.parallel:
            walked = _walking(machine, group, model, tile, axis)
            if walked is None:
                continue
            seconds = _seconds(program, schedule, target, walked)
            if seconds < least:
                best, least = walked, seconds
    return best


def _tiles(model: GroupModel, machine: Machine, group: Group) -> list[dict[str, int]]:
    """The group's tile, and one inside it that leaves room for second places."""
    half = fitted_tile(model, machine, group.tile,
                       [a for a in model.axes if a not in group.tile], 0.5)
    return [group.tile] if half is None or half == group.tile else [group.tile, half]


def _walking(machine: Machine, group: Group, model: GroupModel, tile: Mapping[str, int],
             axis: str) -> Group | None:
    """The group with work items that walk along ``axis``, as far as leaves one to each worker; None
    if that is one tile."""
    if set(tile) != set(group.tile):
        return None
    there = -(-model.extents[model.axes.index(axis)] // tile[axis])
    workers = machine.cores * count_clusters(machine, group)
    steps = min(there, model.tiles(model.variables(tile)) // workers)
    if steps < 2:
        return None
    steps = -(-there // -(-there // steps))
    return replace(group, tile=dict(tile), run={axis: steps * tile[axis]}, pipeline=2)


def _seconds(program: Program, schedule: Schedule, target: Target, group: Group) -> float:
    """Of a group whose work items walk; infinite if no box moves, or a cluster would need more of
    a tensor than its part."""
    found = find_group_touched(program, schedule, target, group)
    cost = None if found is None else step_cost(found.at, target.machine)
    if found is None or cost is None or not cost.moving:
        return inf
    homes = {b: s for b, s in schedule.buffers.items() if s.memory and b in found.boxes}
    if not all(has_own_part(program, found, b, s.parts) for b, s in homes.items()):
        return inf
    return group_seconds(program, schedule, target, group)


__all__ = ["choose_pipelines"]
