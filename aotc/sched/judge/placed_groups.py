"""Groups in which products of a block of threads find their rows where earlier stages have left
them (``rows/placed_rows.py``)."""

from collections.abc import Set

from aotc.ir.program import Program
from aotc.ir.schedule import REGISTER, Group
from aotc.sched.model.boxes import stage_boxes, tile_anchor
from aotc.sched.model.size import estimate_volume
from aotc.sched.model.stages import Stage, contraction_factors, group_stages
from aotc.sched.model.stored_rows import rows_in_place
from aotc.sched.rows.placed_rows import find_placed, may_place
from aotc.sched.rows.row_blocks import row_block
from aotc.target.base import Target
from aotc.target.kernel_rows import ProductRow


def has_products(program: Program, target: Target, group: Group) -> bool:
    """True for a group of several stages, products among them, whose work items threads share."""
    if not target.machine.threads:
        return False
    stages = group_stages(program, group)
    return len(stages) > 1 and any(contraction_factors(program, s) for s in stages)


def placed_tiles(program: Program, target: Target, group: Group) -> list[dict[str, int]]:
    """The tiles that work items may have: as many rows as register tiles of the target, the most
    first, all columns of each."""
    stages = group_stages(program, group)
    anchor = next(s for s in stages if group.anchor in s.computes)
    f = contraction_factors(program, anchor)
    axes = anchor.axes[:-1] if f is None else f.m
    made = {o.buffer for s in stages for o in s.outputs}
    if not all(_may_find_rows(program, s, made) for s in stages):
        return []
    counts = sorted({r.tile.mr for r in target.rows("contraction")
                     if isinstance(r, ProductRow) and may_place(r)}, reverse=True)
    whole = estimate_volume(a.extent for a in axes)
    found = [row_block(axes, n, n, target.tuning.symbols_grow) for n in counts if n < whole]
    return [t for t in found if t]


def _may_find_rows(program: Program, s: Stage, made: Set[str]) -> bool:
    """True for a map, and for a product that reads nothing of what the group makes but rows, of one
    axis, in order."""
    f = contraction_factors(program, s)
    if f is None or made.isdisjoint(s.reads):
        return f is not None or s.fold == "none"
    rows, _ = rows_in_place(f, True)
    return rows is not None and len(f.k) == 1 and rows.index[-1] == f.k[0] and (
        s.reads & {*made} <= {rows.buffer})


def all_placed(program: Program, target: Target, group: Group) -> bool:
    """True if all scratch of a group that products read lies so that they do so in place."""
    stages = group_stages(program, group)
    anchor = next(s for s in stages if group.anchor in s.computes)
    _, local = stage_boxes(program, group, stages, tile_anchor(anchor, group))
    placed = find_placed(program, target, group, stages, local)
    read = {b for s in stages if contraction_factors(program, s) for b in s.reads if b in local}
    return read <= placed.keys()


def hands_rows(program: Program, group: Group) -> bool:
    """True for a group one of whose products reads what an earlier stage leaves in scratch."""
    inside = {b for b, level in group.connect.items() if level != REGISTER} - {*group.outputs}
    return any(contraction_factors(program, s) and s.reads & inside
               for s in group_stages(program, group))


__all__ = ["all_placed", "hands_rows", "has_products", "placed_tiles"]
