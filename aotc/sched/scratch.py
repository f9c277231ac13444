"""Scratch of a group's work items for the largest extents, and tiles that keep it in bounds.

The cost model takes a typical value for every dynamic dimension.  Scratch is reserved for the
largest one, so a tile that is small by the model may not be.
"""

from dataclasses import replace
from math import prod

from aotc.errors import ScheduleError
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Const
from aotc.ir.simplify import upper
from aotc.sched.allocate import ALIGN
from aotc.sched.boxes import stage_boxes, tile_anchor
from aotc.sched.size import estimate
from aotc.sched.stages import group_stages
from aotc.sched.tilegraph import best_fit


def rounded(size):
    """Bytes that ``size`` bytes of scratch take."""
    return -(-size // ALIGN) * ALIGN


def scratch_bytes(program, group):
    """Bytes of scratch that the tiles of a group take at most, wherever its work items lie.
    ScheduleError if its boxes cannot be formed or have no bound."""
    stages = group_stages(program, group)
    anchor = next(s for s in stages if group.anchor in s.computes)
    _, local = stage_boxes(program, group, stages, tile_anchor(anchor, group))
    made = {o.buffer: i for i, s in enumerate(stages) for o in s.outputs}
    read = {n.buffer: i for i, s in enumerate(stages) for n in s.loads()}
    return best_fit([(rounded(prod(n for _, n in dims) * DTYPES[program.dtype(b)].size),
                      made[b], read[b]) for b, dims in local.items()])


def bounded_tile(program, target, group, room, units, whole):
    """``group.tile``, or where its scratch may take more than ``room`` bytes, one that does not:
    axes in single steps from the outermost in, the last of them in as many as make a work item of
    ``row_points``, as do those of threads that share a work item.  None if there is none.

    units: {axis: extent of a step}; whole: axes that are not cut further.
    """
    def fits(tile):
        try:
            return scratch_bytes(program, replace(group, tile=tile, parallel=tuple(tile))) <= room
        except ScheduleError:
            return False

    tile, threads = dict(group.tile), target.machine.threads
    anchor = next(s for s in group_stages(program, group) if group.anchor in s.computes)
    extents = {a.name: upper(a.extent) or 1 << 62 for a in anchor.axes}
    top = extents | tile
    last = next(reversed(tile), None)
    if (_dynamic(program, group) or threads) and not fits(tile):
        for a in extents:
            if a in whole or top[a] <= units.get(a, 1):
                continue
            tile[a], last = units.get(a, 1), a
            if fits(tile):
                break
        else:
            return None
    elif not threads:
        return tile
    while last is not None and 2 * tile[last] <= extents[last] and 2 * _points(
            target.machine, anchor, tile) <= target.machine.row_points and fits(
            tile | {last: 2 * tile[last]}):
        tile[last] *= 2
    return {a: tile[a] for a, n in extents.items() if tile.get(a, n) < n}


def _dynamic(program, group):
    """True if a tensor that the group makes has an extent that is not known."""
    return any(not isinstance(n, Const) for c in group.computes
               for o in program.producer[c].outs for n in program.shape(o))


def _points(machine, anchor, tile):
    """Points of a work item; at most, where scratch is no cache but must fit."""
    return prod(tile.get(a.name) or (upper(a.extent) if machine.threads else None)
                or estimate(a.extent) for a in anchor.axes)


__all__ = ["bounded_tile", "rounded", "scratch_bytes"]
