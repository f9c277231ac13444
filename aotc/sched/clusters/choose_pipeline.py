"""Work items in steps, whose next boxes are copied while one is computed.

A kernel of many tiles has every worker start its copies, wait for them and compute, tile after
tile.  Where a work item walks along several tiles, what they all read is copied once, and the boxes
of the next one arrive meanwhile, in a second place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from aotc.errors import ScheduleError
from aotc.ir.layout import LayoutJson
from aotc.ir.program import Program
from aotc.ir.schedule import Group, Schedule
from aotc.sched.choose.fitted import fitted_tile
from aotc.sched.cost.pipeline_cost import StepCost, item_by_item, pipelined
from aotc.sched.lowering.lower_copies import item_boxes, moves
from aotc.sched.lowering.open_group import Opened, opened
from aotc.sched.memory.scratch import rounded
from aotc.sched.model.stages import group_stages
from aotc.sched.model.tile_model import GroupModel
from aotc.sched.model.widths import group_model
from aotc.target.base import Machine, Target


def choose_pipelines(program: Program, target: Target, groups: Sequence[Group],
                     layouts: Mapping[str, LayoutJson]) -> tuple[Group, ...]:
    """Groups whose ``copies`` are chosen with ``run``, ``pipeline`` and the tile for it, where that
    is predicted to take less time.  layouts: of stored buffers."""
    return tuple(_chosen(program, target, g, layouts) for g in groups)


def _chosen(program: Program, target: Target, group: Group,
            layouts: Mapping[str, LayoutJson]) -> Group:
    machine = target.machine
    outside = set(group.copies.values()) - {machine.scratch}
    if not group.copies or outside or not group.tile or group.run or group.threads or (
            not group_stages(program, group)):
        return group
    model = group_model(program, group)
    best, least = group, None
    for tile in _tiles(model, machine, group):
        for axis in group.parallel:
            found = _walking(program, target, group, layouts, model, tile, axis)
            if found is not None and (least is None or found[1] < least):
                best, least = found
    before = _plain_seconds(program, target, group, layouts, model)
    return best if least is not None and before is not None and least < before else group


def _tiles(model: GroupModel, machine: Machine, group: Group) -> list[dict[str, int]]:
    """The group's tile, and one inside it that leaves room for second places."""
    near = replace(machine.near, usable=machine.near.usable * 0.5)
    memories = tuple(near if m is machine.near else m for m in machine.memories)
    half = fitted_tile(model, replace(machine, memories=memories), group.tile,
                       [a for a in model.axes if a not in group.tile])
    return [group.tile] if half is None or half == group.tile else [group.tile, half]


def _walking(program: Program, target: Target, group: Group, layouts: Mapping[str, LayoutJson],
             model: GroupModel, tile: Mapping[str, int], axis: str) -> tuple[Group, float] | None:
    """(the group with work items that walk along ``axis``, its seconds); None if they cannot."""
    machine = target.machine
    sizes = model.variables(tile)
    extent = model.extents[model.axes.index(axis)]
    there = -(-extent // tile[axis]) if axis in tile else 1
    steps = min(there, max(1, model.tiles(sizes) // machine.workers))
    if steps < 2:
        return None
    steps = -(-there // -(-there // steps))
    walked = replace(group, tile=dict(tile), run={axis: steps * tile[axis]}, pipeline=2)
    try:
        at = opened(program, Schedule(target.name, (walked,), dict(layouts)), target, walked)
    except ScheduleError:
        return None
    cost = _step_cost(at, model, machine)
    if cost is None or not cost.moving:
        return None
    items = -(-model.tiles(sizes) // there * -(-there // steps) // machine.workers)
    return walked, pipelined(machine, cost, max(1, items), steps)


def _plain_seconds(program: Program, target: Target, group: Group,
                   layouts: Mapping[str, LayoutJson], model: GroupModel) -> float | None:
    """Seconds of the group as it is."""
    at = opened(program, Schedule(target.name, (group,), dict(layouts)), target, group)
    cost = _step_cost(at, model, target.machine)
    tiles = model.tiles(model.variables(group.tile))
    return None if cost is None else item_by_item(
        target.machine, cost, -(-tiles // target.machine.workers))


def _step_cost(at: Opened, model: GroupModel, machine: Machine) -> StepCost | None:
    """What a step of a group's work items copies and computes; None if its boxes are not all that
    the group copies, or do not fit."""
    program, group = at.ctx.program, at.ctx.group
    boxes = item_boxes(at)
    if {c.buffer for c in boxes} != set(group.copies) or not isinstance(at.ctx.slab, int):
        return None
    sizes: tuple[list[int], list[int], list[int]] = [], [], []
    room = machine.room(machine.near) - at.ctx.slab
    for c in boxes:
        twice = bool(group.pipeline) and not c.written and moves(at, c)
        sizes[2 if c.written else 0 if twice else 1].append(c.bytes(program))
        room -= rounded(c.bytes(program) * (2 if twice else 1))
    if room < 0:
        return None
    work = sum(model.work(model.variables(group.tile)))
    moving, still, made = map(tuple, sizes)
    return StepCost(moving, still, made, work / machine.flops)


__all__ = ["choose_pipelines"]
