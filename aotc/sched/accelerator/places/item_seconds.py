"""What the work items of a group copy and compute, and the seconds of that: one by one, or with the
next boxes on their way."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from aotc.ir.contents import names_in
from aotc.ir.program import Program
from aotc.ir.schedule import Group, Schedule
from aotc.ir.simplify import upper
from aotc.ir.tile_statements import slice_start
from aotc.sched.accelerator.items.item_boxes import Copied, item_boxes, moves, slices_of
from aotc.sched.accelerator.items.own_parts import count_clusters, find_group_touched
from aotc.sched.accelerator.kernels.lower_copies import held_temps
from aotc.sched.cost.decided import aligned_products
from aotc.sched.cost.group_cost import compute_seconds
from aotc.sched.items.group_context import Opened
from aotc.sched.memory.scratch import round_up_bytes
from aotc.sched.model.group_model import group_model
from aotc.sched.model.size import estimate
from aotc.sched.model.stages import group_stages
from aotc.sched.model.stored_sizes import part_bytes
from aotc.target.base import Machine, Memory, Target

Boxes = tuple[tuple[Memory, int], ...]  # (memory that a box is copied from or to, its bytes)


@dataclass(frozen=True)
class StepCost:
    """What a step of a work item copies: ``moving`` boxes differ from step to step, ``still`` ones
    do not, ``made`` ones go out; ``compute``: seconds of its arithmetic."""

    moving: Boxes
    still: Boxes
    made: Boxes
    compute: float


def _item_by_item(machine: Machine, cost: StepCost, items: int, workers: int) -> float:
    """Seconds of ``items`` work items of one step on so many workers."""
    active = max(1, min(items, workers))
    one = _copying(machine, (*cost.still, *cost.moving, *cost.made), active) + cost.compute
    return -(-items // workers) * one


def _pipelined(machine: Machine, cost: StepCost, items: int, steps: int, workers: int) -> float:
    """Seconds of ``items`` work items of ``steps`` steps on so many workers."""
    active = max(1, min(items, workers))
    first = _copying(machine, cost.moving, active)
    busy = cost.compute + _copying(machine, cost.made, active)
    one = _copying(machine, cost.still, active) + first + (steps - 1) * max(first, busy) + busy
    return -(-items // workers) * one


def _copying(machine: Machine, boxes: Sequence[tuple[Memory, int]], active: int) -> float:
    """Seconds of copies one after the other, while ``active`` workers share the outermost memory,
    or those of a cluster its own."""
    return sum(m.latency + n * (active if m == machine.memory else machine.cores) / m.bandwidth
               for m, n in boxes)


def step_cost(at: Opened, machine: Machine) -> StepCost | None:
    """The StepCost of a group that has been opened; None if its boxes are not all that it copies,
    or do not fit into scratch."""
    ctx, group = at.ctx, at.ctx.group
    boxes = item_boxes(at)
    stays = held_temps(ctx.schedule, machine)
    near = {b for b, m in group.copies.items() if m == machine.scratch} - stays
    if not {c.buffer for c in boxes} >= near or not isinstance(ctx.slab, int):
        return None
    sizes: tuple[list[tuple[Memory, int]], ...] = [], [], []
    room = machine.room(machine.near) - ctx.slab - sum(
        round_up_bytes(upper(part_bytes(ctx.program, ctx.schedule, b)) or 0)
        for b in stays.intersection(group.copies))
    for c in (c for c in boxes if c.buffer in near):
        slot = ctx.schedule.buffers.get(c.buffer)
        home = machine.store(slot.memory if slot is not None else "")
        twice = bool(group.pipeline) and not c.written and moves(at, c)
        size = c.bytes(ctx.program)
        count = _slices(at, c)
        sizes[2 if c.written else 0 if twice else 1].extend([(home, size)] * count)
        room -= round_up_bytes(size * (2 if twice else 1))
    if room < 0:
        return None
    model = group_model(ctx.program, group)
    tile = model.variables(group.tile)
    _, whole = compute_seconds(model, machine, tile, aligned_products(
        at.stages, group, ctx.target))
    moving, still, made = map(tuple, sizes)
    return StepCost(moving, still, made, whole * machine.workers / model.tiles(tile))


def _slices(at: Opened, c: Copied) -> int:
    """How often a work item copies a box: once for every slice of a sum that it belongs to."""
    return next((-(-estimate(k.extent) // steps) for k, steps in slices_of(at).values()
                 if slice_start(k).name in names_in(c)), 1)


def group_seconds(program: Program, schedule: Schedule, target: Target, group: Group) -> float:
    """Seconds of a group, its tensors where ``schedule`` stores them; infinite for one that cannot
    be opened or whose boxes do not fit, 0 for library kernels, of which nothing is known."""
    if not group_stages(program, group):
        return 0.0
    machine = target.machine
    found = find_group_touched(program, schedule, target, group)
    cost = step_cost(found.at, machine) if found is not None else None
    if cost is None:
        return inf
    model = group_model(program, group)
    tile = model.variables(group.tile)
    workers = machine.cores * count_clusters(machine, group)
    if not group.pipeline or not group.run:
        return _item_by_item(machine, cost, model.tiles(tile), workers)
    (axis, extent), = group.run.items()
    whole = model.extents[model.axes.index(axis)]
    there, runs = -(-whole // group.tile[axis]), -(-whole // extent)
    items = model.tiles(tile) // there * runs
    return _pipelined(machine, cost, items, -(-there // runs), workers)


__all__ = ["group_seconds", "step_cost"]
