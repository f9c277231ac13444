"""Winograd forms in a Schedule: their stages (winograd_stages.py), kernels of them and tiles of
those, the cheapest of those whose scratch is not far too large (this file), and which layers get
one (winograd_choice.py)."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import lcm, prod

from aotc.ir.expr import Axis, Const
from aotc.ir.layout import Layout
from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.passes.winograd import stages_of
from aotc.sched.cost.decided import Decided
from aotc.sched.cost.group_cost import resident_buffers
from aotc.sched.model.size import estimate, reach
from aotc.sched.model.stages import Stage
from aotc.sched.model.tilegraph import merge_groups, order_groups
from aotc.sched.rows.transforms import find_transform
from aotc.sched.rows.winograd_stages import transform_lanes
from aotc.target.base import Machine, Target
from aotc.target.kernel_rows import ProductRow

Tile = dict[str, int]


def join_transforms(program: Program, machine: Machine,
                    groups: Sequence[Group]) -> tuple[Group, ...]:
    """The groups with the three stages of every rewritten compute in one kernel: tiles of the
    transformed input and of the products stay in the worker's slab."""
    for rule, compute, _ in program.rewrites:
        if rule != "winograd":
            continue
        v, m, y = (s.out for s in stages_of(program, compute))
        for source, sink in ((m, y), (v, m)):
            a, b = (next(g for g in groups if n in g.computes) for n in (source, sink))
            if a is not b and len(a.computes) == 1:
                groups = [g for g in groups if g is not a and g is not b] + [
                    merge_groups(program, a, b, machine.scratch)]
                groups = order_groups(program, groups)
    return tuple(groups)


def slab_tile(program: Program, target: Target, group: Group, stages: Sequence[Stage],
              anchor: Stage, layouts: Mapping[str, Layout]) -> Tile:
    """Tile of a group with transforms: boxes of the leading axes (batch, depth), whole blocks of
    the outermost sliding axis and panels of the columns.  layouts: of stored buffers."""
    blocks: Tile = {}
    for s in stages:
        t = find_transform(program, s)
        for name, n in t.blocks.items() if t is not None else ():
            blocks[name] = lcm(blocks.get(name, 1), n)
    lane = transform_lanes(program).get(anchor.name)
    sliding = [a for a in anchor.axes if a.name in blocks]
    lead = [a for a in anchor.axes if a not in sliding and a != lane]
    if lane is None or len(stages) != 3:
        return {}  # no whole form, or anchored at its products: hand-written, one work item
    if not sliding:  # smaller than a tile: one block
        return {a.name: 1 for a in lead if a.extent != Const(1)}
    products = next(s for s in stages if s.name not in transform_lanes(program))
    row = target.row(group.choices[products.name].row)
    columns = row.tile.nr if isinstance(row, ProductRow) else target.lanes
    steps = {a.name: 1 for a in lead} | {sliding[0].name: blocks[sliding[0].name],
                                         lane.name: columns}
    axes = (*lead, sliding[0], lane)
    asked = Decided(program, target, group, layouts, resident_buffers(program, target.machine))
    # of an axis that stays whole, whatever its extent is
    grown = prod((reach(a.extent) or 1) / estimate(a.extent) for a in sliding[1:])
    found = [(grown * asked.scratch(tile), tile) for tile in _tiles(axes, steps)]
    most = max(_most(target.machine), min(found, key=lambda x: x[0])[0])
    costs = [(asked.cost(tile).seconds, -size, tile) for size, tile in found if size <= most]
    alike = min(costs, key=lambda x: x[:2])[0] * (1 + target.tuning.slack)
    # of tiles that take as long the largest: it starts fewer products and work items
    tile = min((x for x in costs if x[0] <= alike), key=lambda x: x[1])[2]
    # more of an axis than it usually has is cut all the same: its scratch has an end
    return {a.name: tile[a.name] for a in axes if tile[a.name] < estimate(a.extent)
            or not isinstance(a.extent, Const)}


def _most(machine: Machine) -> float:
    """Bytes of scratch that a form may have: it may go through the memory outside."""
    outside = machine.outside(machine.near)
    spill = 1 if machine.managed else machine.tuning.winograd_spill
    return min(machine.near.capacity * spill,
               outside.capacity * outside.usable / machine.workers)


def _tiles(axes: Sequence[Axis], steps: Tile) -> Iterator[Tile]:
    """The ways to cut ``axes`` evenly, each in whole ``steps``; axes of symbols, but for the last
    two, in single ones."""
    sizes = [_even_parts(-(-estimate(a.extent) // steps[a.name]))
             if isinstance(a.extent, Const) or a in axes[-2:] else [1] for a in axes]
    for parts in product(*sizes):
        yield {a.name: n * steps[a.name] for a, n in zip(axes, parts)}


def _even_parts(count: int) -> list[int]:
    """Sizes of parts of ``count`` things that are as equal as can be, largest first."""
    return sorted({-(-count // n) for n in range(1, count + 1)}, reverse=True)


__all__ = ["join_transforms", "slab_tile"]
