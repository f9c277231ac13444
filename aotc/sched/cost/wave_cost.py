"""Time of work items that are single register tiles: they go in waves, one for each worker, which
reaches a part of its multipliers and has a part of the memory, whatever the others do."""

from dataclasses import replace

from aotc.sched.cost.group_cost import Aligned, Cost, fork_join_seconds, overlap_seconds, padding
from aotc.sched.model.group_numbers import GroupModel, Widths
from aotc.target.base import Machine


def spread_over_waves(cost: Cost, model: GroupModel, machine: Machine, tile: Widths,
                      aligned: tuple[Aligned, ...]) -> Cost:
    """The Cost of a group in work items of ``tile``, at least what their waves take: each as long
    as an item, of whose products ``tile_rate`` says what they reach; of the outermost memory an
    item has a worker's part."""
    if machine.item_tiles > 1:
        return cost
    items = model.tiles(tile)
    waves = -(-items // machine.workers)
    boxes = model.boxes(tile)
    deep = max([a.deep for a in aligned], default=1.0)
    work = model.work(tile, boxes)[0] * padding(model, aligned, boxes) * deep
    busy = waves * work / (machine.flops * machine.tuning.tile_rate)
    _, _, moved = cost.levels[0]
    fetched = waves * moved / items / (machine.memory.bandwidth / machine.workers)
    return replace(cost, seconds=max(cost.seconds, max(busy, fetched) + cost.launch))


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


__all__ = ["spread_over_waves", "shared_seconds"]
