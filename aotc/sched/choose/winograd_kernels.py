"""Winograd forms in a Schedule: their kernels (this file) and which layers get one
(winograd_choice.py)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import lcm, prod

from aotc.errors import ScheduleError
from aotc.ir.expr import Axis, Const, Load, as_expr, axes_of
from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.passes.winograd import stages_of
from aotc.sched.memory.scratch import elements
from aotc.sched.model.boxes import stage_boxes, tile_anchor
from aotc.sched.model.size import estimate, estimate_volume, reach
from aotc.sched.model.stages import Stage, group_stages
from aotc.sched.model.tilegraph import merged, ordered
from aotc.sched.model.unroll import find_transform
from aotc.target.base import Machine, Target


def transform_lanes(program: Program) -> dict[str, Axis]:
    """{stage name: lane axis} of the input and output transforms of all rewritten computes: both
    run over the channels, innermost in the scratch between the stages."""
    out = {}
    for rule, compute, _ in program.rewrites:
        if rule == "winograd":
            v, m, y = stages_of(program, compute)
            out[v.out] = v.axes[-1]
            out[y.out] = _whole(y.out, [a for a in y.axes if a.name == m.axes[-1].name])
    return out


def _whole(name, found):
    """The one item of ``found``.  ScheduleError if a layout has taken a form's channels apart."""
    if not found:
        raise ScheduleError(f"rewrites: the Winograd form at {name} needs its channels in one "
                            "dimension; choose a layout that only reorders, or drop the form")
    return found[0]


def transform_inputs(program: Program) -> dict[str, tuple[Load, int]]:
    """{buffer: (load, its channel dimension)} of what the input transforms read."""
    out: dict[str, tuple[Load, int]] = {}
    for rule, compute, _ in program.rewrites:
        if rule == "winograd":
            v = stages_of(program, compute)[0]
            load = next(n for n in v.loads if n.buffer not in program.consts)
            dims = [d for d, i in enumerate(load.index) if i == v.axes[-1]]
            out.setdefault(load.buffer, (load, _whole(load.buffer, dims)))
    return out


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
                    merged(program, a, b, machine.scratch)]
                groups = ordered(program, groups)
    return tuple(groups)


def slab_tile(program: Program, target: Target, group: Group, stages: Sequence[Stage],
              anchor: Stage) -> dict[str, int]:
    """Tile of a group with transforms: boxes of the leading axes (batch, depth), whole blocks of
    the outermost sliding axis and panels of the columns, the cheapest by ``_Item.cost`` whose
    scratch is not far too large for its level."""
    blocks: dict[str, int] = {}
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
    row = target.row(group.ukernel[products.name])
    steps = {a.name: 1 for a in lead} | {sliding[0].name: blocks[sliding[0].name],
                                         lane.name: row.tile.get("nr", target.lanes)}
    extent = {a.name: estimate(a.extent) for a in (*lead, sliding[0], lane)}
    static = {a.name for a in (*lead, sliding[0], lane) if isinstance(a.extent, Const)}
    parts = [_even_parts(extent[a.name]) if isinstance(a.extent, Const) else [1] for a in lead]
    best: tuple[tuple[float, ...], dict[str, int]] | None = None
    for inner in product(*parts):
        cut = {a.name: n for a, n in zip(lead, inner)}
        sizes = _scratch_elements(program, group, stages, anchor, cut | {
            n: steps[n] for n in (sliding[0].name, lane.name)})
        for high in _even_parts(-(-extent[sliding[0].name] // steps[sliding[0].name])):
            for wide in _even_parts(-(-extent[lane.name] // steps[lane.name])):
                box = cut | {sliding[0].name: high * steps[sliding[0].name],
                             lane.name: wide * steps[lane.name]}
                items = prod(-(-extent[n] // t) for n, t in box.items())
                item = _Item(sizes[0] * high, sizes[1] * high * wide, items, wide)
                key = item.cost(program, target, products, row)
                if best is None or key < best[0]:
                    best = key, box
    assert best is not None  # every axis has one part at least
    # more of an axis than it usually has is cut all the same: its scratch has an end
    return {n: t for n, t in best[1].items() if t < extent[n] or n not in static}


def _even_parts(count):
    """Sizes of parts of ``count`` things that are as equal as can be, largest first."""
    return sorted({-(-count // n) for n in range(1, count + 1)}, reverse=True)


@dataclass(frozen=True)
class _Item:
    """One of ``count`` work items: elements of its transformed input and of its products, and how
    many panels of columns it has."""

    inputs: int
    products: int
    count: int
    panels: int

    def cost(self, program, target, stage, row):
        """(scratch far too large by, seconds of all items, size): register tiles at their edges
        are padded, weights stream past every item, as does scratch that does not fit its level, an
        input is transformed in every item that reads it, workers wait for the longest."""
        machine = target.machine
        level = machine.near
        weights = next(n for n in stage.loads() if n.buffer in program.consts)
        points = estimate_volume(a.extent for a in stage.axes if a in axes_of(weights)
                                 and a != stage.axes[-1])
        nr, mr = row.tile.get("nr", target.lanes), row.tile.get("mr", 1)
        rows = -(-self.products // (points * self.panels * nr))
        depth = estimate_volume(a.extent for a in stage.raxes)
        flops = 2 * points * -(-rows // mr) * mr * self.panels * nr * depth
        flops += (self.inputs + self.products) * machine.tuning.winograd_flops
        scratch, last = 4 * (self.inputs + self.products), machine.outside(level)
        moved = 4 * points * depth * self.panels * nr
        moved += 4 * scratch if scratch > level.capacity * level.usable else 0
        seconds = flops / machine.flops + moved / last.bandwidth
        waves = -(-self.count // machine.workers) * machine.workers
        spill = 1 if machine.managed else machine.tuning.winograd_spill
        most = min(level.capacity * spill, last.capacity * last.usable / machine.workers)
        return max(0, scratch - most), seconds * waves, scratch


def _scratch_elements(program, group, stages, anchor, tile):
    """Elements of the transformed input and of the products that one work item holds."""
    g = replace(group, tile=tile, parallel=tuple(tile))
    _, places = stage_boxes(program, g, stages, tile_anchor(anchor, g))
    made = [s.outputs[0].buffer for s in stages if s is not anchor]
    return [reach(as_expr(elements(places[b]))) if b in places else 0 for b in made]


def has_transform(program: Program, group: Group) -> bool:
    """True if a group holds the stages of a rewritten compute."""
    return any(rule == "winograd" and compute in group.computes
               and len(group_stages(program, group)) > 1
               for rule, compute, _ in program.rewrites)
