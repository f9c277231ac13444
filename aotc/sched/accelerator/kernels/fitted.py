"""Tiles of work items whose data engines copy: everything that an item touches lies in scratch.

From a given tile down, the axis is halved whose cut makes a kernel move least, until all boxes fit
into scratch; and on until every worker has an item, where a cut makes nothing twice.
"""

from collections.abc import Collection, Mapping

from aotc.sched.model.tile_model import GroupModel, Widths
from aotc.target.base import Machine


def item_bytes(model: GroupModel, tile: Widths) -> int:
    """Bytes of scratch of a work item: what it copies in and out, and what its stages hand each
    other."""
    live = sum(n for b, n, _, _ in model.lifetimes(tile) if b in model.scratch)
    return model.moved(tile) + live


def fitted_tile(model: GroupModel, machine: Machine, first: Mapping[str, int],
                whole: Collection[str] = (), packed: int = 0) -> dict[str, int] | None:
    """{axis: extent} of the largest tile found inside ``first`` (an axis not named is whole) whose
    boxes fit into scratch beside ``packed`` bytes; None if there is none.  whole: axes that are not
    cut further."""
    room = machine.room(machine.near) - packed
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


__all__ = ["fitted_tile", "item_bytes"]
