"""Which products go to a unit beside the vectors, and where their operands lie."""

from math import prod

from aotc.ir.access import is_unit, stride
from aotc.ir.category import Factors
from aotc.ir.dtypes import HALF
from aotc.ir.expr import Axis, Const, Load, axes_of, loads
from aotc.ir.layout import Layout, Reorder
from aotc.ir.program import static_shape
from aotc.ir.stage_choice import StageChoice
from aotc.sched.accelerator.items.unit_operands import has_columns_in_place, packed_bytes, unit_rows
from aotc.sched.cost.row_cost import unit_pays
from aotc.sched.model.size import MAX_TAPS, estimate, estimate_volume
from aotc.sched.model.stages import Stage
from aotc.sched.rows.settled_choices import Settled

PACKED_PART = 4  # of a unit's memory, one part of so many may be packed operands


def unit_choice(c: Settled, s: Stage, f: Factors | None, lane: Axis | None) -> StageChoice | None:
    """The choice of a product on a unit, if the target has one; None where vectors take less time,
    or what it would have to pack is too much.  Constants get the layout of its columns."""
    row = next(iter(c.target.units), None)
    if row is None or f is None or lane is None or lane not in f.n:
        return None
    m, n = estimate_volume(a.extent for a in f.m), estimate(lane.extent)
    if not unit_pays(row, m, n, c.target.tuning) or any(
            static_shape((r.extent,)) is None for r in f.k):
        return None
    k, rows = _row_mode(c, f)
    choice = StageChoice(row.name, lane.name, k.name, rows, _column_mode(c, f, lane, k))
    room = c.target.machine.near.capacity // PACKED_PART
    return choice if packed_bytes(f, choice, row) <= room else None


def _row_mode(c: Settled, f: Factors) -> tuple[Axis, str]:
    """(innermost reduction axis, "rows" where rows are read in place, else "packed")."""
    best = max(f.k, key=lambda r: estimate(r.extent))
    load, guard = unit_rows(f)
    if load is None or any(loads(i) for i in load.index):
        return best, "packed"
    offset = c.offset(load)
    free = [r for r in f.k if (guard is None or r not in axes_of(guard)) and stride(
        offset, r) is not None]
    if not free:
        return best, "packed"
    k = max(free, key=lambda r: (estimate(r.extent), is_unit(offset, r)))
    taps = prod(estimate(r.extent) for r in f.k if r is not k)
    return k, "rows" if taps <= MAX_TAPS["contraction"] else "packed"


def _column_mode(c: Settled, f: Factors, lane: Axis, k: Axis) -> str:
    """"direct" where columns are read in place, else "packed"."""
    b = f.b
    if not isinstance(b, Load) or b.dtype not in ("f32", HALF) or any(loads(i) for i in b.index):
        return "packed"
    plain = all(isinstance(i, Axis) or i == Const(0) for i in b.index) and len(
        {i for i in b.index if isinstance(i, Axis)}) == sum(isinstance(i, Axis) for i in b.index)
    if b.buffer in c.program.consts and b.buffer not in c.plain and plain:
        dims = {i: d for d, i in enumerate(b.index) if isinstance(i, Axis)}
        last = [dims[r] for r in (*(r for r in f.k if r != k), k, lane) if r in dims]
        order = tuple([d for d in range(len(b.index)) if d not in last] + last)
        c.layouts.setdefault(b.buffer, Layout((Reorder(order),) if order != tuple(
            range(len(order))) else ()))
    taps = tuple(r for r in f.k if r != k)
    return "direct" if has_columns_in_place(c.offset(b), lane, k, taps) else "packed"


__all__ = ["unit_choice"]
