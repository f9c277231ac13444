"""Which boxes engines copy into scratch: as many as fit, without those that are reached in place at
the least loss."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import prod

from aotc.errors import ScheduleError
from aotc.ir.layout import LayoutJson
from aotc.ir.program import Program
from aotc.ir.schedule import Group, Schedule
from aotc.ir.stage_choice import StageChoice
from aotc.sched.accelerator.items.item_boxes import item_boxes
from aotc.sched.accelerator.items.unit_operands import unit_needs
from aotc.sched.cost.group_cost import Cost
from aotc.sched.items.group_context import opened_as_chosen
from aotc.sched.memory.scratch import round_up_bytes
from aotc.sched.model.group_model import group_model
from aotc.sched.model.group_numbers import GroupModel, Widths
from aotc.sched.model.stages import group_stages
from aotc.target.base import Machine, Target


def choose_copies(program: Program, target: Target, groups: Sequence[Group],
                  layouts: Mapping[str, LayoutJson]) -> tuple[Group, ...]:
    """Groups with ``copies`` filled for all that their work items touch outside of scratch, on a
    machine with engines; what a group says already stays.  layouts: of stored buffers."""
    if not target.machine.on_copies:
        return tuple(groups)
    return tuple(_chosen(program, target, g, Schedule(target.name, (g,), dict(layouts)))
                 for g in groups)


def _chosen(program: Program, target: Target, group: Group, schedule: Schedule) -> Group:
    stages = group_stages(program, group)
    if not stages:
        return group  # a library call or a region
    try:
        at = opened_as_chosen(program, schedule, target, group)
    except ScheduleError:
        return group  # ``check_schedule`` lists why
    machine = target.machine
    inside = at.ctx.local
    outside = dict.fromkeys(b for s in stages for b in s.buffers if b not in inside)
    boxes = {c.buffer: round_up_bytes(c.bytes(program)) for c in item_boxes(at)}
    given = {b: m for b, m in group.copies.items() if b in outside}
    fixed = [boxes.pop(b, 0) for b, m in given.items() if m == machine.scratch]
    for b in given:
        boxes.pop(b, None)
    assert isinstance(at.ctx.slab, int), at
    needs = unit_needs(target, group, stages)
    packed = max((n for _, n in needs.values()), default=0)
    room = machine.room(machine.near) - at.ctx.slab - sum(fixed) - packed
    if sum(boxes.values()) > room:
        model = group_model(program, group)
        tile = model.variables(group.tile)
        units = {b for operands, _ in needs.values() for b in operands}
        loss = {b: _in_place_seconds(model, machine, tile, (b,)) for b in boxes}
        while boxes and sum(boxes.values()) > room:
            del boxes[min(boxes, key=lambda b: (b in units, loss[b] / boxes[b], b))]
    chosen = {b: machine.scratch if b in boxes else machine.memory.name for b in outside} | given
    far = {b for b, m in chosen.items() if m != machine.scratch and b not in given}
    lost = [s for s, (operands, _) in needs.items() if far & set(operands)]
    if not lost:
        return replace(group, copies=chosen)
    return _chosen(program, target, _without(group, lost), schedule)


def _without(group: Group, lost: Sequence[str]) -> Group:
    """The group with shorter slices of the sums of ``lost``, whose operands do not all fit; where
    one has none, without units for those, whose boxes are then as long as the sums."""
    steps = {s: {k: n // 2 for k, n in group.choice(s).split.items()} for s in lost}
    if all(x and min(x.values()) for x in steps.values()):
        return group.with_splits(group.splits | steps)
    return replace(group, choices=group.choices | {
        s: StageChoice("loops", reuse=group.choice(s).reuse) for s in lost})


def _in_place_seconds(model: GroupModel, machine: Machine, tile: Widths,
                      buffers: Collection[str]) -> float:
    """Seconds that all work items of a group take to read and write the elements of ``buffers`` one
    by one: each moves a transaction of the outermost memory, as often as it is read."""
    least, moved = machine.memory.transaction, 0
    for number, part in model.parts(tile):
        for s, (whole, _) in zip(model.stages, model.boxes(part)):
            moved += number * sum(len(a.boxes) * prod(whole) * max(a.size, least)
                                  for a in s.reads if a.buffer in buffers)
            moved += number * sum(prod(whole[:s.rank]) * max(a.size, least)
                                  for a in s.writes if a.buffer in buffers)
    return moved / machine.memory.bandwidth


def add_in_place(cost: Cost, model: GroupModel, machine: Machine, tile: Widths,
                 group: Group) -> Cost:
    """The Cost of a group whose work items reach what it does not copy in place."""
    outside = [b for b, m in group.copies.items() if m == machine.memory.name]
    more = _in_place_seconds(model, machine, tile, outside)
    if not more:
        return cost
    moved = int(more * machine.memory.bandwidth)
    return replace(cost, seconds=cost.seconds + more, levels=(
        *cost.levels, (f"in place in {machine.memory.name}", more, moved)))


__all__ = ["choose_copies", "add_in_place"]
