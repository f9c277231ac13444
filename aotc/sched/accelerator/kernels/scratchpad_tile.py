"""Tiles of work items whose data engines copy: everything that an item touches lies in scratch.

From a given tile down, the axis is halved whose cut makes a kernel move least, until all boxes fit
into scratch; and on until every worker has an item, where a cut makes nothing twice.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Axis
from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.ir.stage_choice import StageChoice
from aotc.sched.accelerator.items.unit_operands import cuts_evenly, sum_elements, unit_needs
from aotc.sched.cost.decided import aligned_products
from aotc.sched.cost.group_cost import group_cost
from aotc.sched.model.group_model import group_model
from aotc.sched.model.group_numbers import GroupModel, Widths
from aotc.sched.model.size import estimate, estimate_volume
from aotc.sched.model.stages import Stage, contraction_factors
from aotc.sched.model.stored_sizes import ALIGN
from aotc.sched.rows.row_blocks import row_block
from aotc.target.base import Machine, Target

Cut = tuple[dict[str, int], dict[str, dict[str, int]]]  # (tile, {stage: how its sum is sliced})


def item_bytes(model: GroupModel, tile: Widths) -> int:
    """Bytes of scratch of a work item: what it copies in and out, and what its stages hand each
    other."""
    live = sum(n for b, n, _, _ in model.lifetimes(tile) if b in model.scratch)
    return model.moved(tile) + live


def fitted_tile(model: GroupModel, machine: Machine, first: Mapping[str, int],
                whole: Collection[str] = (), share: float = 1.0, taken: int = 0
                ) -> dict[str, int] | None:
    """{axis: extent} of the largest tile found inside ``first`` (an axis not named is whole) whose
    boxes fit into a share of scratch beside ``taken`` bytes; None if there is none.  whole: axes
    that are not cut further."""
    room = (machine.room(machine.near) - taken) * share
    tile = model.variables(first)
    while item_bytes(model, tile) > room:
        found = _cut(model, tile, whole)
        if found is None:
            return None
        tile = found
    alone = len(model.stages) == 1  # halos of several stages are computed again
    while alone and model.tiles(tile) < machine.workers and model.moved(
            tile) > machine.row_points:
        found = _cut(model, tile, whole)
        if found is None:
            break
        tile = found
    return {a: t for a, t, n in zip(model.axes[:model.rank], tile, model.extents) if t < n}


def _cut(model: GroupModel, tile: Widths, whole: Collection[str]) -> Widths | None:
    """The tile with one axis halved, that after which the kernel moves least; None if no axis can
    be."""
    cuts = []
    for i in range(model.rank):
        if tile[i] > 1 and model.axes[i] not in whole:
            half = tile[:i] + (_half(model.extents[i], tile[i]),) + tile[i + 1:]
            cuts.append((model.traffic(half), i, half))
    return min(cuts)[2] if cuts else None


def _half(extent: int, tile: int) -> int:
    """About half of a tile, so that all tiles are nearly equal."""
    count = -(-extent // ((tile + 1) // 2))
    return -(-extent // count)


def copied_tile(program: Program, target: Target, g: Group, s: Stage) -> Cut | None:
    """The Cut of a group of one stage, whose boxes fit into scratch; None if none do, or whole
    tensors do."""
    needs, model = unit_needs(target, g, [s]), group_model(program, g)
    packed = max((n for _, n in needs.values()), default=0)
    found = _unit_tile(program, target, g, s, model, packed) if needs else None
    tile = fitted_tile(model, target.machine, {}, taken=packed) if found is None else None
    return (tile, {}) if tile else found


def _unit_tile(program: Program, target: Target, g: Group, s: Stage, model: GroupModel,
              packed: int) -> Cut | None:
    """The Cut of a product on a unit, made of whole register tiles, that are predicted to
    take least time, of those with an item for each worker if there are some; what an item touches
    fits into scratch beside ``packed`` bytes, slice by slice of the sum where need be.  None if
    none does."""
    f, choice = contraction_factors(program, s), g.choices[s.name]
    row = target.product_row(choice.row)
    assert f is not None, s
    machine, lane = target.machine, next(a for a in f.n if a.name == choice.lanes)
    k = next(r for r in f.k if r.name == choice.k)
    aligned = aligned_products([s], g, target)
    found: list[tuple[bool, float, int, int, dict[str, int], dict[str, dict[str, int]]]] = []
    for columns in _doubled(row.tile.nr, estimate(lane.extent)):
        for rows in _doubled(row.tile.mr, estimate_volume(a.extent for a in f.m)):
            tile = {a.name: 1 for a in s.axes if a not in f.m and a != lane}
            tile |= {lane.name: columns} | row_block(
                f.m, rows, row.tile.mr, target.tuning.symbols_grow)
            item = model.variables(tile)
            sums = sum_elements(replace(g, tile=tile), f.m, lane, row)
            steps = _steps(model, s, k, choice, tile, sums,
                           machine.room(machine.near) - packed, cuts_evenly(f, k))
            if steps is not None:
                slices = -(-estimate(k.extent) // steps)
                cost = group_cost(model, machine, (item,), aligned=aligned).seconds
                cost += _waiting(machine, model.tiles(item), slices)
                split = {s.name: {k.name: steps}} if slices > 1 else {}
                found.append((model.tiles(item) < machine.workers, cost, -columns * rows,
                              len(found), tile, split))
    if not found:
        return None
    *_, tile, split = min(found)
    return tile, split


def _waiting(machine: Machine, items: int, copies: int) -> float:
    """Seconds that workers wait for the outermost memory to begin, where each of ``items`` work
    items copies so many times, one after the other."""
    return copies * -(-items // machine.workers) * machine.memory.latency


def _doubled(first: int, last: int) -> list[int]:
    """``first``, twice that and so on below ``last``, and that."""
    out = []
    while first < last:
        out.append(first)
        first *= 2
    return [*out, last]


def _steps(model: GroupModel, s: Stage, k: Axis, choice: StageChoice, tile: Mapping[str, int],
           sums: int, room: float, evenly: bool) -> int | None:
    """The most steps of the sum, all or a power of two (if its slices are boxes: ``evenly``), whose
    operands fit into ``room`` with ``sums`` and what else a work item touches; None if none do."""
    whole = estimate(k.extent)
    if _copied_bytes(model, model.variables(tile)) <= room:
        return whole
    if not evenly or f"{s.name}.{k.name}" not in model.axes or (
            choice.a != "rows" or choice.b != "direct"):
        return None
    room -= sums * DTYPES["f32"].size
    for steps in reversed(_doubled(1, whole)):
        item = model.variables(tile, {s.name: {k.name: steps}})
        if _copied_bytes(model, item) <= room:
            return steps
    return None


def _copied_bytes(model: GroupModel, item: Widths) -> int:
    """Bytes of scratch for what a work item of one stage copies, of its sum what a slice reads."""
    (stage,), ((whole, sliced),) = model.stages, model.boxes(item)
    found: dict[str, int] = {}
    for accesses, sizes in ((stage.reads, stage.sizes(sliced)[0]),
                            (stage.writes, stage.sizes(whole)[1])):
        for a, n in zip(accesses, sizes):
            found[a.buffer] = max(found.get(a.buffer, 0), -(-n // ALIGN) * ALIGN)
    return sum(found.values())


__all__ = ["copied_tile", "fitted_tile", "item_bytes"]
