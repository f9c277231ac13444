"""Which part of a tensor the work items of a cluster touch, and which of them run before which.

Work items are dealt to clusters as equal runs.  Where the outermost axis that is cut runs along the
outermost dimension of a tensor, and every item touches just its own part of that, each cluster
touches an equal part of the tensor alone.  What items of one group read of another's is compared
box by box, with numbers for the names that statements bind: an item waits for those whose part of a
tensor its own box meets.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from aotc.errors import ScheduleError
from aotc.ir.access import dim_order, layout_from_json
from aotc.ir.contents import names_in
from aotc.ir.dtypes import Array
from aotc.ir.expr import Axis, Const, Expr
from aotc.ir.program import Program, static_shape
from aotc.ir.schedule import Group, Schedule
from aotc.ir.simplify import are_equal, simplify, upper
from aotc.ir.statements import STEP, TILE
from aotc.sched.accelerator.clock.item_events import Named
from aotc.sched.accelerator.items.item_boxes import Copied, item_boxes
from aotc.sched.items.group_context import Opened, opened_as_chosen
from aotc.sched.model.stages import group_stages
from aotc.target.base import Machine, Target

Ends = tuple[Array, Array]  # first and last index of every work item in every dimension


@dataclass(frozen=True)
class Touched:
    """What the work items of a group copy, {buffer: its box}, and the axis that cuts them first:
    (axis, extent, tile), None if none is cut."""

    at: Opened
    boxes: Mapping[str, Copied]
    outermost: tuple[Axis, int, int] | None


def find_touched(at: Opened) -> Touched:
    """What a group touches that has been opened."""
    group, stages = at.ctx.group, at.stages
    anchor = next(s for s in stages if group.anchor in s.computes)
    axis = {a.name: a for a in anchor.axes}
    cut = [axis[n] for n in (*group.parallel, *(t for t in group.tile if t not in group.parallel))
           if group.tile[n] < (upper(axis[n].extent) or 1 << 62)]
    first = cut[0] if cut and cut[0].name not in group.run else None
    outermost = None
    if first is not None and isinstance(first.extent, Const):
        outermost = first, first.extent.value, group.tile[first.name]
    near = {b for b, m in group.copies.items() if m == at.ctx.target.machine.scratch}
    return Touched(at, {c.buffer: c for c in item_boxes(at) if c.buffer in near}, outermost)


def has_own_part(program: Program, found: Touched, buffer: str, parts: int) -> bool:
    """True if work items that are dealt to ``parts`` clusters touch a buffer, by copies alone, such
    that each cluster needs only its own part."""
    box = found.boxes.get(buffer)
    shape = static_shape(program.shape(buffer))
    if box is None or shape is None:
        return False
    if parts == 1:
        return True
    layout = layout_from_json(found.at.ctx.schedule.layouts.get(buffer))
    order = dim_order(layout, len(shape))
    if order is None or not order or found.outermost is None:
        return False
    axis, extent, tile = found.outermost
    d = next((d for d in order if shape[d] > 1), order[0])  # those in front of it have one index
    if shape[d] != extent or extent % parts or extent // parts % tile:
        return False
    lo, last = found.at.tile.box[axis]
    return are_equal(box.dims[d][0], lo) and are_equal(box.last[d], last)


def item_count(found: Touched) -> int:
    """Work items of a group; 0 if their number is not known."""
    count = simplify(found.at.tile.count)
    return count.value if isinstance(count, Const) else 0


def readers_of(program: Program, schedule: Schedule, b: str) -> list[int]:
    """Numbers of the groups that read a tensor."""
    return [i for i, g in enumerate(schedule.groups)
            if any(b in program.producer[c].inputs for c in g.computes)]


def users_of(program: Program, schedule: Schedule, b: str) -> list[int]:
    """Numbers of the groups that make or read a tensor."""
    readers = readers_of(program, schedule, b)
    return [i for i, g in enumerate(schedule.groups) if b in g.outputs or i in readers]


def count_clusters(machine: Machine, group: Group) -> int:
    """Clusters that a group's work items are dealt to."""
    return group.clusters or machine.clusters


def item_boxes_of(found: Touched, buffer: str) -> Ends | None:
    """What each work item of a group touches of a tensor, over all steps of its run: two arrays
    [items, dimensions].  None if it touches it by no box, extents are not all known, or what a
    step computes depends on the one before."""
    box, items = found.boxes.get(buffer), item_count(found)
    if box is None or not items or found.at.step.carried or found.at.ctx.program.syms:
        return None
    tile = found.at.tile
    names: dict[str, Array] = {TILE.name: np.arange(items)}
    scope = Named({}, names)
    for v, e in tile.let:
        names[v.name] = scope.value(e)
    own = np.broadcast_to(1 if tile.steps is None else scope.value(tile.steps), items)
    steps = max(1, int(own.max()))
    names |= {n: np.repeat(np.broadcast_to(x, items), steps) for n, x in names.items()}
    # of items with fewer steps than others the last one stands for those
    names[STEP.name] = np.minimum(np.tile(np.arange(steps), items), np.repeat(own, steps) - 1)
    scope = Named({}, names)
    for v, e in (*tile.step_let, *found.at.step.lets, *found.at.lets):
        names[v.name] = scope.value(e)

    shape = static_shape(found.at.ctx.program.shape(buffer))
    if shape is None:
        return None

    def numbers(e: Expr) -> Array:
        return np.broadcast_to(scope.value(e), items * steps).reshape(items, steps)

    low, last = np.zeros((2, items, len(box.dims)), np.int64)  # of a scalar: nothing
    for d, ((first, _), end) in enumerate(zip(box.dims, box.last)):
        if not set(names_in((first, end))) <= set(names):  # it comes slice by slice
            last[:, d] = shape[d] - 1
            continue
        low[:, d], last[:, d] = numbers(first).min(axis=1), numbers(end).max(axis=1)
    return low, last


def has_own_item(program: Program, schedule: Schedule, found: Touched, buffer: str) -> bool:
    """True if each work item touches nothing but its own one of as many equal parts of a tensor, as
    it lies in memory, as there are items."""
    ends, shape = item_boxes_of(found, buffer), static_shape(program.shape(buffer))
    if ends is None or shape is None:
        return False
    layout = layout_from_json(schedule.layouts.get(buffer))
    order = dim_order(layout, len(shape))
    items, size = len(ends[0]), prod(shape)
    if order is None or size % items:
        return False
    steps = np.ones(len(shape), np.int64)
    for d, inner in zip(order[-2::-1], order[:0:-1]):
        steps[d] = steps[inner] * shape[inner]
    number = np.arange(items) * (size // items)
    return bool(np.all(ends[0] @ steps >= number)
                and np.all(ends[1] @ steps < number + size // items))


def find_meeting(reads: Ends, makes: Ends) -> Array:
    """[items that read, items that make]: whether their boxes have an index in common."""
    (a, b), (c, d) = reads, makes
    common: Array = np.all((a[:, None] <= d[None]) & (c[None] <= b[:, None]), axis=2)
    return common


def own_items(machine: Machine, group: Group, count: int) -> int:
    """Work items of a group that each of its clusters has; 0 if some have more than others."""
    clusters = count_clusters(machine, group)
    return count // clusters if count % clusters == 0 else 0


def find_group_touched(program: Program, schedule: Schedule, target: Target,
                       g: Group) -> Touched | None:
    """What the work items of a group touch; None for library kernels and faulty groups."""
    if not group_stages(program, g):
        return None
    try:
        return find_touched(opened_as_chosen(program, schedule, target, g))
    except ScheduleError:
        return None  # ``check_schedule`` lists why


def own_number(machine: Machine, g: Group, count: int) -> Array:
    """The number of each work item among those of its cluster."""
    clusters = count_clusters(machine, g)
    cluster = np.arange(count) * clusters // count
    return np.arange(count) - -(-cluster * count // clusters)


def items_of_turn(machine: Machine, g: Group, count: int, first: int, end: int) -> Array:
    """Which of the work items of a group a turn has; first and end 0: all of them."""
    number = own_number(machine, g, count)
    return (number >= first) & (number < end) if end else np.ones(count, bool)


__all__ = ["Ends", "Touched", "count_clusters", "has_own_item", "has_own_part", "items_of_turn",
           "item_boxes_of", "item_count", "find_meeting", "find_group_touched", "own_items",
           "own_number", "readers_of", "find_touched", "users_of"]
