"""In which order the work items of a group run: which tiled axis is outermost."""

from dataclasses import replace

from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.sched.cost.worker_bytes import fetched_bytes
from aotc.sched.model.group_model import group_model
from aotc.target.base import Machine


def order_items(program: Program, machine: Machine, group: Group) -> Group:
    """The group with ``parallel`` in the order that lets a worker fetch the fewest bytes.

    Neighbouring items go to one worker, so it reads all of a tensor that the outermost axis does
    not cut, and its own part of one that the axis cuts.  What one step along the outermost axis
    reads is read again in every step if it does not fit in the worker's own cache.  Among orders
    that are alike, an axis that is no lane axis comes first: the next kernel finds the rows that a
    worker has written in that worker's cache.  Where
    items run in no order (``machine.in_order``) there is nothing to choose.
    """
    if not machine.in_order or len(group.parallel) < 2:
        return group
    model = group_model(program, group)
    extent = dict(zip(model.axes, model.extents))
    counts = {a: -(-extent[a] // group.tile[a]) for a in group.parallel}
    cut = {a: n for a, n in counts.items() if n > 1}
    if len(cut) < 2:
        return group
    lanes = {c.lanes for c in group.choices.values()}
    cost = {a: fetched_bytes(model, machine, group.tile, cut, a) for a in cut}
    least = machine.tuning.same_order * min(cost.values())
    first = min((a for a in cut if cost[a] <= least), key=lambda a: a in lanes)
    order = sorted(group.parallel, key=lambda a: (a in cut, a != first))
    return replace(group, parallel=tuple(order))
