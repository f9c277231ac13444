"""Time of work items that are single register tiles: they go in waves, one for each worker, which
reaches a part of its multipliers and has a part of the memory, whatever the others do."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from aotc.ir.dtypes import ELEMENTS
from aotc.sched.cost.block_figures import block_figures, product_figures, tile_reach
from aotc.sched.cost.group_cost import (
    Aligned,
    Cost,
    fork_join_seconds,
    memory_rate,
    overlap_seconds,
    padding,
)
from aotc.sched.cost.row_cost import row_rate
from aotc.sched.model.group_numbers import Boxes, GroupModel, Widths
from aotc.target.base import Machine
from aotc.target.kernel_rows import ProductRow


def spread_over_waves(cost: Cost, model: GroupModel, machine: Machine, tile: Widths,
                      aligned: tuple[Aligned, ...], rows: Sequence[ProductRow]) -> Cost:
    """The Cost of a group in work items of ``tile``, at least what its waves take: each as long as
    an item, of whose products ``tile_reach`` says what they reach; of the outermost memory an
    item has a worker's part, or, where workers hold several, what others leave it.  rows: of its
    products."""
    if machine.item_tiles > 1:
        return cost
    items = model.tiles(tile)
    waves = -(-items // machine.workers)
    boxes = model.boxes(tile)
    if machine.threads and len(model.stages) > 1 and rows:
        busy, several = _stages_seconds(model, machine, tile, boxes, aligned, rows)
        inner = machine.position(machine.near.name) - 1  # each worker has a part of that, too
        busy = max(busy, waves * cost.levels[inner][2] / items * machine.workers / memory_rate(
            machine, machine.memories[inner]))
    else:
        deep = max([a.deep for a in aligned], default=1.0)
        work = model.work(tile, boxes)[0] * padding(model, aligned, boxes) * deep
        reach = min([tile_reach(machine, r, waves) for r in rows],
                    default=machine.tuning.tile_rate)
        several = machine.threads > 0 and all(product_figures(machine, r).blocks > 1 for r in rows)
        busy = waves * work / (machine.flops * reach)
    _, _, moved = cost.levels[0]
    turns = max(1.0, items / machine.workers) if several else waves
    fetched = turns * moved / items / (machine.memory.bandwidth / machine.workers)
    return replace(cost, seconds=max(cost.seconds, max(busy, fetched) + cost.launch))


def _stages_seconds(model: GroupModel, machine: Machine, tile: Widths, boxes: Boxes,
                    aligned: Sequence[Aligned], rows: Sequence[ProductRow]) -> tuple[float, bool]:
    """(seconds of a worker's work items, whether it holds several) where the threads of a block go
    through several stages, one after the other.  What stages hand each other leaves room for fewer
    blocks; those that there are wait for each tile's first columns and at barriers while others
    work."""
    tuning, waves = machine.tuning, -(-model.tiles(tile) // machine.workers)
    threads, (_, live) = max(r.threads for r in rows), model.inner(tile, boxes)
    held = min(waves, *(block_figures(machine, r, threads, live + staged_columns(r)).blocks
                        for r in rows))
    busy = waited = 0.0
    for a, row in zip(aligned, rows, strict=True):
        widths = boxes[a.stage][0]
        work = prod(widths) * model.stages[a.stage].per_point * padding(model, (a,), boxes) * a.deep
        busy += work / (machine.flops * tile_reach(machine, row, held))
        tiles = -(-prod(widths[p] for p in a.rows) // a.mr) * -(-widths[a.lane] // a.nr)
        waited += tiles * (tuning.far_wait + 2 * tuning.barrier)
    for s in {*range(len(boxes))} - {a.stage for a in aligned}:
        far = any(x.buffer not in model.scratch for x in model.stages[s].reads)
        step = tuning.fold_step if far else tuning.fold_part
        waited += -(-prod(boxes[s][0]) // threads) * step + tuning.barrier
    return waves * (busy + waited / held), held > 1


def staged_columns(row: ProductRow) -> int:
    """Bytes of a block's memory for the usual steps of a product's columns."""
    return 0 if row.staging is None else row.staging.usual * (row.step_bytes - row.rows_bytes)


def tiles_seconds(machine: Machine, row: ProductRow, m: int, n: int, k: int) -> float:
    """Seconds of an M x N product of sums of K terms (0: of one) in work items of one tile of a
    row, whose operands come from the memory behind a block's."""
    tiles = -(-m // row.tile.mr) * -(-n // row.tile.nr)
    waves = -(-tiles // machine.workers)
    tuning, teams = machine.tuning, 1 if row.shared is None else row.shared.teams
    work = 2.0 * row.tile.mr * row.tile.nr * -(-max(1, k) // row.steps) * row.steps
    joined = 0 if row.shared is None else row.shared.sum_bytes // 4  # stored, and loaded again
    busy = (work / row_rate(row, tuning) + 2.0 * 2 * joined * tuning.access_cost) / (
        machine.flops * tile_reach(machine, row, waves))
    near = machine.outside(machine.near)
    # of that memory each worker has a part; steps that come to a block's ahead of time hide it
    alone = waves * machine.workers if row.staging is None else tiles
    fetched = alone * (row.tile.mr + row.tile.nr) * max(1, k) * ELEMENTS[row.a].size
    return max(waves * (busy + (2 * tuning.barrier if teams > 1 else 0.0)),
               fetched / memory_rate(machine, near))


def shared_seconds(machine: Machine, cost: Cost, items: int) -> float:
    """Seconds of a kernel of so many work items, where it is asked what more of them would save.
    The Cost has all of the time waiting for idle workers in part.  Here arithmetic waits for the
    slowest of few workers to the end; memory gives each of those that have a work item a worker's
    part; starting and awaiting the others counts."""
    busy, part = min(items, machine.workers), machine.tuning.wave
    waves = 1 / cost.util
    if items <= machine.workers:
        waves = (waves - 1 + part) / part
    terms = [cost.compute * waves, *(s * machine.workers / busy for _, s, _ in cost.levels)]
    return overlap_seconds(machine, terms) + cost.launch + fork_join_seconds(machine, items)


__all__ = ["shared_seconds", "spread_over_waves", "staged_columns",
           "tiles_seconds"]
