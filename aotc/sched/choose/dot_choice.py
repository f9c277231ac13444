"""Which row a contraction of narrow numbers gets, and where its operands lie."""

from math import inf

from aotc.ir.access import is_unit
from aotc.ir.category import Factors, row_source
from aotc.ir.dtypes import Array
from aotc.ir.expr import Axis, Const
from aotc.ir.numbers.narrow import is_lane_value
from aotc.ir.stage_choice import StageChoice
from aotc.sched.cost.even_rows import uneven_share
from aotc.sched.cost.product_rows import waste_of
from aotc.sched.model.size import estimate, estimate_volume
from aotc.sched.model.stages import Stage
from aotc.sched.rows.dots import (
    dot_factors,
    dot_layout,
    holds_all,
    may_pack,
    rows_fault,
    rows_of,
    stage_weights,
    typed_rows,
)
from aotc.sched.rows.row_reads import shared_fault
from aotc.sched.rows.settled_choices import Settled
from aotc.target.kernel_rows import ProductRow


def dot_choice(c: Settled, s: Stage) -> StageChoice:
    """The choice of a stage, with the layout of its weights in ``c.layouts``; the plain nest
    where the target has no row or the operands no such form."""
    rows, found = serving_rows(c, s), dot_factors(s)
    if not rows or found is None:
        return StageChoice("loops")
    f, b = found
    weights = c.program.consts.get(b.buffer)
    m, depth = (estimate_volume(a.extent for a in axes) for axes in (f.m, f.k))
    for row in sorted(rows, key=lambda u: (_readings(u, m), waste_of(
            c.target, u, m, estimate(f.lane.extent), depth))):
        k, where = _row_mode(c, f, row)
        mode = "packed" if _pays_even(c, s, f, row) else where
        # computed, or weights that become factors while they are staged
        if weights is None or row.staging is not None and not (row.by_columns or row.in_codes):
            return StageChoice(row.name, f.lane.name, k.name, mode, "packed")
        layout = dot_layout(f, b, k, row, weights.shape, stage_weights(s) is not None)
        if layout is not None and c.layouts.setdefault(b.buffer, layout) == layout:
            first = "rows" if mode == "rows" and _rows_first(c, row, weights) else None
            return StageChoice(row.name, f.lane.name, k.name, mode, "panel", order=first)
    return StageChoice("loops")  # another stage packs it differently


def serving_rows(c: Settled, s: Stage) -> list[ProductRow]:
    """The rows that can compute a stage of narrow numbers, whatever its weights are packed as by
    others."""
    found = dot_factors(s)
    if found is None:
        return []
    f, b = found
    weights = c.program.consts.get(b.buffer)
    if weights is None and not may_pack(f, b) or not all(
            is_lane_value(o.value) for o in s.outputs):
        return []
    if weights is not None and not holds_all(s, f, b, weights.shape):
        return []
    m = estimate_volume(a.extent for a in f.m)
    able = [u for u in typed_rows(c.program, c.target, s) if u.shared is None or shared_fault(
        f, u, c.offset, weights is None) is None]
    # a single row that its own rows cannot read takes a part of a tile
    return [u for u in able if u.serves(m)] or [u for u in able if u.by_columns]


def _readings(row: ProductRow, m: int) -> float:
    """How often a row of few rows reads all weights, which its products wait for: the first measure
    of those; 0 for others."""
    if row.shared is None:
        return 0
    return -(-m // row.tile.mr) if row.shared.most else inf


def _row_mode(c: Settled, f: Factors, row: ProductRow) -> tuple[Axis, str]:
    """(innermost reduction axis, whether a row reads those of A where they lie)."""
    best = max(f.k, key=lambda r: estimate(r.extent))
    load, guard = rows_of(f, row)
    if load is None:
        return best, "packed"
    for r in f.k:
        if rows_fault(f, r, c.offset(load), guard) is None:
            return r, "rows"
    unit = [r for r in f.k if is_unit(c.offset(load), r) and r.extent != Const(1)]
    return unit[0] if unit else best, "packed"  # copied in runs


def _rows_first(c: Settled, row: ProductRow, weights: Array) -> bool:
    """True if a tile of rows meets all panels before the next one, so that where its rows lie is
    found once: the row takes many of them, and the panels stay in the memory nearest to the
    vectors."""
    near = c.target.machine.near
    return bool(row.even_rows) and row.tile.mr > row.tile.nr and (
        weights.nbytes <= near.capacity * near.usable)


def _pays_even(c: Settled, s: Stage, f: Factors, row: ProductRow) -> bool:
    """True if rows of a window are packed once for all panels of columns: the row reads those in
    place that lie evenly apart, and copies others for every panel, which is more than one copy of
    all."""
    best = max(f.k, key=lambda r: estimate(r.extent))
    taps = [r for r in f.k if r != best and r.extent != Const(1)]
    load, guard, _ = row_source(f.a)
    if not row.even_rows or not taps or load is None:
        return False
    rows, at = [a for a in s.axes if a in f.m], c.offset(load)
    panels = -(-estimate(f.lane.extent) // row.tile.nr)
    return panels * uneven_share(rows, taps, at, guard, row.even_rows) > 1


__all__ = ["dot_choice", "serving_rows"]
