"""Turns of groups: which work items run before which, and faults of an order.

What work items of one group read of another's is compared box by box, with numbers for the names
that statements bind: an item waits for those whose part of a tensor its own box meets.
"""

from collections.abc import Mapping
from math import prod

import numpy as np

from aotc.errors import ScheduleError
from aotc.ir.access import dim_order, layout_from_json
from aotc.ir.contents import names_in
from aotc.ir.dtypes import Array
from aotc.ir.expr import Expr
from aotc.ir.program import Program, static_shape
from aotc.ir.schedule import Group, Schedule
from aotc.ir.statements import STEP, TILE
from aotc.sched.clusters.own_parts import Touched, dealt, item_count, touched_by
from aotc.sched.cost.item_events import Named
from aotc.sched.lowering.open_group import opened
from aotc.sched.model.stages import group_stages
from aotc.target.base import Machine, Target

Ends = tuple[Array, Array]  # first and last index of every work item in every dimension


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


def meets(reads: Ends, makes: Ends) -> Array:
    """[items that read, items that make]: whether their boxes have an index in common."""
    (a, b), (c, d) = reads, makes
    return np.all((a[:, None] <= d[None]) & (c[None] <= b[:, None]), axis=2)


def own_items(machine: Machine, group: Group, count: int) -> int:
    """Work items of a group that each of its clusters has; 0 if some have more than others."""
    clusters = dealt(machine, group)
    return count // clusters if count % clusters == 0 else 0


def order_faults(program: Program, schedule: Schedule, target: Target) -> list[str]:
    """Turns that do not run every work item once, in order, or one before what it reads is made."""
    if not schedule.order:
        return []
    groups = {g.name: g for g in schedule.groups}
    if not target.machine.stores or schedule.regions:
        return [f"order: {target.name} runs whole groups, remove it" if not schedule.regions else
                "order: a schedule with regions runs whole groups, remove it"]
    done: dict[str, int] = {}
    found: dict[str, Touched | None] = {}
    faults = []
    for name, first, end in schedule.order:
        g = groups.get(name)
        if g is None:
            return [f"order: {name}; choose from " + ", ".join(groups)]
        at = found.setdefault(name, opened_touch(program, schedule, target, g))
        count = item_count(at) if at is not None else 0
        own = own_items(target.machine, g, count) if count else 0
        whole = (first, end) == (0, 0)
        if not whole and (first != done.get(name, 0) or not first < end <= own):
            return [f"order: {name} from {first} to {end}; its work items from "
                    f"{done.get(name, 0)} to {own} are left, or write 0 to 0 for all of them"]
        if whole and name in done:
            return [f"order: {name} has had a turn; it cannot have all of its work items in one"]
        done[name] = own if whole else end
        faults += _before(program, schedule, target, (g, first, end), done, found)
        done[name] = max(done[name], 1)
    missing = [n for n, g in groups.items()
               if done.get(n, 0) < _all(target.machine, g, found.get(n))]
    return faults + [f"order: {n} has work items left without a turn" for n in missing]


def _all(machine: Machine, g: Group, at: Touched | None) -> int:
    return max(1, own_items(machine, g, item_count(at))) if at is not None else 1


def opened_touch(program: Program, schedule: Schedule, target: Target,
                 g: Group) -> Touched | None:
    """What the work items of a group touch; None for library kernels and faulty groups."""
    if not group_stages(program, g):
        return None
    try:
        return touched_by(opened(program, schedule, target, g))
    except ScheduleError:
        return None  # ``check_schedule`` lists why


def _before(program: Program, schedule: Schedule, target: Target, turn: tuple[Group, int, int],
            done: Mapping[str, int], found: Mapping[str, Touched | None]) -> list[str]:
    """What a turn reads that has not been made."""
    g, first, end = turn
    maker = {o: p for p in schedule.groups for o in p.outputs}
    faults = []
    for b in dict.fromkeys(b for c in g.computes for b in program.producer[c].inputs):
        p = maker.get(b)
        if p is None or p is g:
            continue
        own = _all(target.machine, p, found.get(p.name))
        if done.get(p.name, 0) >= own and p.name in done:
            continue
        late = _late(target.machine, (g, first, end), p, done.get(p.name, 0), b, found)
        if late is None or late:
            faults.append(f"order: {g.name} from {first} to {end} reads {b} before {p.name} has "
                          "made it; choose a later turn")
    return faults


def _late(machine: Machine, turn: tuple[Group, int, int], p: Group, made: int, b: str,
          found: Mapping[str, Touched | None]) -> bool | None:
    """True if items of a turn meet what items of ``p`` make behind the first ``made`` of each
    cluster; None if nobody knows."""
    g, first, end = turn
    reader, maker = found.get(g.name), found.get(p.name)
    if reader is None or maker is None:
        return None
    reads, makes = item_boxes_of(reader, b), item_boxes_of(maker, b)
    if reads is None or makes is None:
        return None
    inside = own_number(machine, g, len(reads[0]))
    chosen = (inside >= first) & (inside < end) if end else np.ones(len(reads[0]), bool)
    left = own_number(machine, p, len(makes[0])) >= made
    return bool(meets((reads[0][chosen], reads[1][chosen]),
                      (makes[0][left], makes[1][left])).any())


def own_number(machine: Machine, g: Group, count: int) -> Array:
    """The number of each work item among those of its cluster."""
    clusters = dealt(machine, g)
    cluster = np.arange(count) * clusters // count
    return np.arange(count) - -(-cluster * count // clusters)


__all__ = ["Ends", "item_boxes_of", "meets", "opened_touch", "order_faults", "own_items",
           "own_number"]
