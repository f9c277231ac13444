"""Whether the rows of a product are counted through as one, so that work items have consecutive
ones whatever axes they are along."""

from dataclasses import replace
from math import prod

from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.sched.model.size import estimate
from aotc.sched.model.stages import Stage, factors_for
from aotc.sched.rows.row_blocks import row_block
from aotc.target.base import Target


def count_rows_through(program: Program, target: Target, g: Group, s: Stage) -> Group:
    """The group of a product alone that says ``flat`` of its rows, if work items are single
    register tiles that threads share and then need fewer: no tile but the last ends where a line
    or an image does."""
    row, choice = target.product_row(g.choices[s.name].row), g.choices[s.name]
    if target.machine.item_tiles > 1 or row.staging is None:
        return g
    rows = [a for a in s.axes if a in factors_for(s, choice.lanes).m]
    mr, sizes = row.tile.mr, [estimate(a.extent) for a in rows]
    tile = row_block(tuple(rows), mr, mr, target.tuning.symbols_grow)
    cut = prod(-(-n // tile.get(a.name, n)) for a, n in zip(rows, sizes))
    return replace(g, flat=tuple(a.name for a in rows)) if (
        -(-prod(sizes) // mr) < cut and sum(n > 1 for n in sizes) > 1) else g


__all__ = ["count_rows_through"]
