"""In which order the work items of a group run: which tiled axis is outermost, and which lie in a
square."""

from dataclasses import replace
from math import prod

from aotc.ir.category import PRODUCTS
from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.sched.cost.worker_bytes import concurrent_bytes, fetched_bytes
from aotc.sched.model.boxes import patch_counts
from aotc.sched.model.group_model import group_model
from aotc.sched.model.stages import Stage, stage_category
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


def patch_items(program: Program, machine: Machine, group: Group, anchor: Stage) -> Group:
    """The group of a product with ``patch``, where work items run in no order and all that it reads
    does not fit into the memory that workers share: so wide that those at work at a time fetch the
    fewest bytes, if that are clearly fewer than in plain order."""
    blocks = machine.threads and not machine.in_order and stage_category(anchor) in PRODUCTS
    counts = patch_counts(anchor, group) if blocks else {}
    if not counts or min(counts.values()) < 2 or prod(counts.values()) <= machine.workers:
        return group
    model = group_model(program, group)
    if model.moved(model.extents) <= machine.outside(machine.near).capacity:
        return group
    inner = list(counts)[-1]
    plain = concurrent_bytes(model, machine, group.tile, counts, {
        inner: min(counts[inner], machine.workers)})
    ways = [{a: n} for a, c in counts.items() for n in range(2, c) if c % n == 0]
    costs = [concurrent_bytes(model, machine, group.tile, counts, w) for w in ways]
    least = min(costs, default=plain)
    return group if plain <= machine.tuning.same_order * least else replace(
        group, patch=ways[costs.index(least)])
