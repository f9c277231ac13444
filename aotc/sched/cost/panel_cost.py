"""Time of what a product reads again in one work item: a term of the cost of groups whose rows are
decided.

The register tiles of a work item run through one panel of columns after the other.  All its rows
are read for every panel, and every panel for each tile of rows; what lies between two such times
has driven out more than a near memory holds, or has not.  In slices of the sum less lies between,
and what has been summed so far is loaded and stored once per slice.
"""

from collections.abc import Iterator
from math import prod

from aotc.ir.dtypes import DTYPES
from aotc.sched.cost.group_cost import Aligned, Level, home, memory_rate
from aotc.sched.model.group_numbers import GroupModel, StageModel, Widths
from aotc.target.base import Machine

SUM = DTYPES["f32"].size  # bytes


def panel_levels(model: GroupModel, machine: Machine, tile: Widths,
                 aligned: tuple[Aligned, ...]) -> tuple[Level, ...]:
    """((name, seconds, bytes), ..) of the products of a group in work items of ``tile``, whose
    sums are sliced as it says: how much longer rows and panels take from the fastest memory that
    holds what is read between two uses than from a worker's own, which rows of micro-kernels are
    as fast with as they are; and what sums of slices take.  () where scratch is no cache: what is
    there was copied for all uses."""
    if machine.managed:
        return ()
    boxes, items = model.boxes(tile), model.tiles(tile)
    return tuple(level for a in aligned for level in _of_product(
        machine, model.stages[a.stage], a, *boxes[a.stage], items))


def _of_product(machine: Machine, s: StageModel, a: Aligned, whole: Widths, sliced: Widths,
                items: int) -> Iterator[Level]:
    rows, columns, terms = prod([whole[p] for p in a.rows]), whole[a.lane], prod(whole[s.rank:])
    number = items * prod(whole[:s.rank]) // (rows * columns)  # of such products
    tiles, panels = -(-rows // a.mr), -(-columns // a.nr)
    one = sliced[:a.lane] + (min(columns, a.nr),) + sliced[a.lane + 1:]
    held, held_rows = sum(s.sizes(one)[0]), _row_bytes(s, a, one)
    panel = held - held_rows + held_rows * min(rows, a.mr) // rows
    of_rows, of_columns = a.sizes
    for what, moved, between in (("rows", of_rows * rows * terms * (panels - 1), held),
                                 ("panels", of_columns * terms * panels * a.nr * (tiles - 1),
                                  panel)):
        where, moved = home(machine, between), number * moved
        seconds = moved / memory_rate(machine, where) - moved / memory_rate(machine, machine.near)
        if seconds > 0:
            yield f"{what} in {where.name}", seconds, moved
    slices = prod([-(-w // n) for w, n in zip(whole[s.rank:], sliced[s.rank:])])
    if slices > 1:
        where = home(machine, held + SUM * rows * columns)
        moved = 2 * SUM * number * rows * columns * (slices - 1)
        yield f"sums in {where.name}", moved / memory_rate(machine, where), moved


def _row_bytes(s: StageModel, a: Aligned, widths: Widths) -> int:
    """Bytes of what a product reads for all columns alike, in widths of one panel."""
    single = widths[:a.lane] + (1,) + widths[a.lane + 1:]
    return sum(n for n, m in zip(s.sizes(widths)[0], s.sizes(single)[0]) if n == m)


__all__ = ["panel_levels"]
