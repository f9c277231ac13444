"""Scratch of a group's work items for the largest extents, and tiles that keep it in bounds.

The cost model takes a typical value for every dynamic dimension.  Scratch is reserved for the
largest one, so a tile that is small by the model may not be.  Where there is no largest one,
scratch grows with the extent, and tiles are bounded for the largest that is likely.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from math import prod

from aotc.errors import ScheduleError
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Const, as_expr
from aotc.ir.kernel.plan_kernels import Size
from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.ir.simplify import simplify, upper
from aotc.sched.model.boxes import Dims, stage_boxes, tile_anchor
from aotc.sched.model.size import estimate, reach
from aotc.sched.model.stages import Stage, group_stages
from aotc.sched.model.stored_sizes import ALIGN
from aotc.sched.model.tilegraph import best_fit
from aotc.sched.rows.placed_rows import PlacedRows
from aotc.target.base import Machine, Target


def round_up_bytes(size: int) -> int:
    """Bytes that ``size`` bytes of scratch take."""
    return -(-size // ALIGN) * ALIGN


def elements(dims: Dims) -> Size:
    """Elements of a scratch buffer with ((lo, size) per dim), for the largest sizes: an int, or an
    expression over symbols where a size has no bound."""
    count = simplify(prod((as_expr(n) for _, n in dims), start=Const(1)))
    most = upper(count)
    return count if most is None else most


def scratch_elements(dims: Dims, placed: PlacedRows | None) -> Size:
    """The same of scratch that lies for products that read it in place."""
    most = None if placed is None else placed.elements(dims)
    return elements(dims) if most is None else most


def scratch_bytes(program: Program, group: Group, likely: bool = False) -> int:
    """Bytes of scratch that the tiles of a group take at most, wherever its work items lie.
    likely: where extents have no bound, for the largest that decisions reckon with.
    ScheduleError if its boxes cannot be formed or, else, have no bound."""
    stages = group_stages(program, group)
    anchor = next(s for s in stages if group.anchor in s.computes)
    _, local = stage_boxes(program, group, stages, tile_anchor(anchor, group))
    made = {o.buffer: i for i, s in enumerate(stages) for o in s.outputs}
    read = {n.buffer: i for i, s in enumerate(stages) for n in s.loads()}
    lives = []
    for b, dims in local.items():
        n = reach(as_expr(elements(dims))) if likely else elements(dims)
        if not isinstance(n, int):
            raise ScheduleError(f"group {group.name}: scratch {b} has no constant bound; tile the "
                                "axis or store the tensor")
        lives.append((round_up_bytes(n * DTYPES[program.dtype(b)].size), made[b], read[b]))
    return best_fit(lives)


def bounded_tile(program: Program, target: Target, group: Group, room: float,
                 grains: Mapping[str, int], whole: Collection[str]) -> dict[str, int] | None:
    """``group.tile``, or where its scratch may take more than ``room`` bytes, one that does not:
    axes in single steps from the outermost in, the last of them in as many as make a work item of
    ``row_points``, as do those whose scratch is no cache.  None if there is none.

    grains: {axis: extent of a step}; whole: axes that are not cut further.
    """
    def fits(tile: dict[str, int]) -> bool:
        try:
            cut = replace(group, tile=tile, parallel=tuple(tile))
            return scratch_bytes(program, cut, likely=not managed) <= room
        except ScheduleError:
            return False

    tile, managed = dict(group.tile), target.machine.managed
    anchor = next(s for s in group_stages(program, group) if group.anchor in s.computes)
    extents = {a.name: reach(a.extent) or 1 << 62 for a in anchor.axes}
    top = extents | tile
    last = next(reversed(tile), None)
    if (_dynamic(program, group) or managed) and not fits(tile):
        for a in extents:
            if a in whole or top[a] <= grains.get(a, 1):
                continue
            tile[a], last = grains.get(a, 1), a
            if fits(tile):
                break
        else:
            return None
    elif not managed:
        return tile
    while last is not None and 2 * tile[last] <= extents[last] and 2 * _points(
            target.machine, anchor, tile) <= target.machine.row_points and fits(
            tile | {last: 2 * tile[last]}):
        tile[last] *= 2
    return {a: tile[a] for a, n in extents.items() if tile.get(a, n) < n}


def _dynamic(program: Program, group: Group) -> bool:
    """True if a tensor that the group makes has an extent that is not known."""
    return any(not isinstance(n, Const) for c in group.computes
               for o in program.producer[c].outs for n in program.shape(o))


def _points(machine: Machine, anchor: Stage, tile: Mapping[str, int]) -> int:
    """Points of a work item; at most, where scratch is no cache but must fit."""
    return prod(tile.get(a.name) or (upper(a.extent) if machine.managed else None)
                or estimate(a.extent) for a in anchor.axes)


__all__ = ["bounded_tile", "elements", "round_up_bytes", "scratch_bytes", "scratch_elements"]
