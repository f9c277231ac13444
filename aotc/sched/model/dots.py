"""Contractions of narrow numbers (u8 and s8, two bf16, grouped weights and f32 or integers): which
row, where the operands lie, what is legal.

The lane operand lies in panels: NR columns, and of each of them a step of the sum, four neighbours
of 8 bits or two of 16 side by side, so that one lane adds as many products at a time.  Constants
are stored so; columns that are computed every work item packs so.  The sum runs over
(taps, k) as one axis, padded with zeros to a multiple of a step.  Grouped weights
(``ir/numbers/grouped.py``) are bytes of NR columns side by side, row by row of every group.
"""

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from aotc.ir.access import is_multiple, is_unit, layout_from_json, offset_of
from aotc.ir.category import Factors, dot_dtypes, factor_pairs, row_source
from aotc.ir.dtypes import Array
from aotc.ir.expr import Axis, Binary, Const, Expr, Load, axes_of
from aotc.ir.layout import Fuse, Layout, Movement, Pad, Reorder, Split
from aotc.ir.numbers.byte_panels import panel_fault
from aotc.ir.numbers.grouped import INTEGER_ROWS, Grouped, grouped_weights
from aotc.ir.numbers.narrow import is_lane_value
from aotc.ir.program import Program
from aotc.ir.schedule import Schedule
from aotc.ir.stage_choice import StageChoice
from aotc.ir.tile_statements import dot_step, whole_steps
from aotc.passes.digits import static_extent
from aotc.passes.precision.narrow_operands import are_columns, is_whole
from aotc.sched.cost.even_rows import uneven_share
from aotc.sched.cost.row_cost import row_waste
from aotc.sched.model.size import MAX_TAPS, estimate, estimate_volume
from aotc.sched.model.stages import Stage
from aotc.target.base import Target
from aotc.target.kernel_rows import ProductRow

if TYPE_CHECKING:  # which needs this module
    from aotc.sched.choose.loops import Choices


def dot_factors(stage: Stage) -> tuple[Factors, Load] | None:
    """(Factors, their lane operand) of a stage that multiplies narrow numbers (``dot_dtypes``), the
    second of them loaded; None if it is none."""
    pairs = factor_pairs(stage.axes, stage.raxes, stage.fold, stage.body)
    weights = pairs[0].b if pairs and dot_dtypes(stage.body) is not None else None
    return (pairs[0], weights) if isinstance(weights, Load) else None


def padded_depth(f: Factors) -> Expr:
    """Products per column, up to a multiple of a step."""
    return whole_steps(prod((r.extent for r in f.k), start=Const(1)), f.a.dtype)


def stage_weights(stage: Stage) -> Grouped | None:
    """The grouped weights that a stage multiplies by; None if it has none."""
    body = stage.body
    return grouped_weights(body.a) or grouped_weights(body.b) if isinstance(body, Binary) else None


def dot_layout(f: Factors, weights: Load, k: Axis, nr: int,
               shape: Sequence[int], grouped: bool = False) -> Layout | None:
    """Layout of the weights: N/NR, (taps K)/step, NR, step, behind axes that they have beside; of
    ``grouped`` ones N/NR, groups, rows, NR."""
    step = dot_step(f.a.dtype)
    if grouped:
        n = shape[2]
        padded: list[Movement] = [Pad(2, 0, -n % nr)] if n % nr else []
        return Layout((*padded, Split(2, (-(-n // nr), nr)), Reorder((2, 0, 1, 3))))
    dim = {i: d for d, i in enumerate(weights.index) if isinstance(i, Axis)}
    order = [dim[r] for r in (*(r for r in f.k if r != k), k) if r in dim]
    beside = [dim[a] for a in axes_beside(f, weights)]
    ones = [d for d in range(len(shape)) if d != dim[f.lane] and d not in (*beside, *order)]
    n, depth, at = shape[dim[f.lane]], prod(map(static_extent, f.k)), len(beside)
    if not ones and not order:
        return None
    out: list[Movement] = [Reorder((*beside, dim[f.lane], *ones, *order)),
                           Fuse(at + 1, len(shape) - at - 1)]
    if n % nr:
        out.append(Pad(at, 0, -n % nr))
    if depth % step:
        out.append(Pad(at + 1, 0, -depth % step))
    out += [Split(at + 1, (-(-depth // step), step)), Split(at, (-(-n // nr), nr)),
            Reorder((*range(at), at, at + 2, at + 1, at + 3))]
    return Layout(tuple(out))


def axes_beside(f: Factors, weights: Load) -> list[Axis]:
    """Axes of constant weights beside the lanes and those of the sum: there are panels for every
    value of them."""
    return [i for i in weights.index if isinstance(i, Axis) and i not in (f.lane, *f.k)]


def typed_rows(target: Target, s: Stage) -> list[ProductRow]:
    """The rows of a target for the types of a stage that multiplies narrow numbers; [] for others
    and where it has none."""
    dtypes = dot_dtypes(s.body)
    return [u for u in target.rows("dot") if u.takes(dtypes) and grouping_fault(s, u) is None]


def dot_choice(c: "Choices", s: Stage) -> StageChoice:
    """The choice of a stage, with the layout of its weights in ``c.layouts``; the plain nest
    where the target has no row or the operands no such form."""
    found = dot_factors(s)
    plain = StageChoice("loops")
    if found is None:
        return plain
    f, b = found
    weights = c.program.consts.get(b.buffer)
    if weights is None and not _may_pack(f, b) or not all(
            is_lane_value(o.value) for o in s.outputs):
        return plain
    m = estimate_volume(a.extent for a in f.m)
    rows = [u for u in typed_rows(c.target, s) if u.serves(m)]
    if not rows or weights is not None and not _is_whole(s, f, b, weights.shape):
        return plain
    k, where = _row_mode(c, f)
    for row in sorted(rows, key=lambda u: row_waste(
            u, m, estimate(f.lane.extent), c.target.tuning)):
        mode = "packed" if _pays_even(c, s, f, row) else where
        if weights is None:
            return StageChoice(row.name, f.lane.name, k.name, mode, "packed")
        layout = dot_layout(f, b, k, row.tile.nr, weights.shape, stage_weights(s) is not None)
        if layout is not None and c.layouts.setdefault(b.buffer, layout) == layout:
            first = "rows" if mode == "rows" and _rows_first(c, row, weights) else None
            return StageChoice(row.name, f.lane.name, k.name, mode, "panel", order=first)
    return plain  # another stage packs it differently


def grouping_fault(s: Stage, row: ProductRow) -> str | None:
    """Why a row cannot read the grouped weights of a stage; None if it can, or there are none."""
    w = stage_weights(s)
    if w is None or row.grouped is None:
        return None
    why = panel_fault(w.grouping, dot_step(row.a)) if row.a in INTEGER_ROWS else None
    if why is None and w.grouping.size % row.grouped.steps:
        why = f"groups of a multiple of {row.grouped.steps}"
    return None if why is None else f"takes {why}, not {w.grouping}"


def _is_whole(s: Stage, f: Factors, b: Load, shape: tuple[int, ...]) -> bool:
    """True if the constant holds all of the weights and no more."""
    w = stage_weights(s)
    if w is None:
        return is_whole(f, b, shape)
    depth, groups = static_extent(w.k), shape[0]
    return groups == -(-depth // w.grouping.size) and shape[1:] == (
        w.grouping.rows, static_extent(f.lane)) and w.n == f.lane and all(
        r == w.k or r.extent == Const(1) for r in f.k)


def _may_pack(f: Factors, columns: Load) -> bool:
    """True for computed columns that a work item packs: narrow ones."""
    return dot_step(columns.dtype) > 1 and are_columns(f, columns)


def _row_mode(c: "Choices", f: Factors) -> tuple[Axis, str]:
    """(innermost reduction axis, whether rows are read where they lie)."""
    best = max(f.k, key=lambda r: estimate(r.extent))
    load, guard, _ = row_source(f.a)
    if load is None:
        return best, "packed"
    for r in f.k:
        if rows_fault(f, r, c.offset(load), guard) is None:
            return r, "rows"
    unit = [r for r in f.k if is_unit(c.offset(load), r) and r.extent != Const(1)]
    return unit[0] if unit else best, "packed"  # copied in runs


def _rows_first(c: "Choices", row: ProductRow, weights: Array) -> bool:
    """True if a tile of rows meets all panels before the next one, so that where its rows lie is
    found once: the row takes many of them, and the panels stay in the memory nearest to the
    vectors."""
    near = c.target.machine.near
    return bool(row.even_rows) and row.tile.mr > row.tile.nr and (
        weights.nbytes <= near.capacity * near.usable)


def _pays_even(c: "Choices", s: Stage, f: Factors, row: ProductRow) -> bool:
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


def rows_fault(f: Factors, k: Axis, offset: Expr, guard: Expr | None) -> str | None:
    """Why rows cannot be read in place along ``k``; None if they can."""
    if not is_unit(offset, k):
        return f"unit stride along {k.name}"
    if guard is not None and f.a.dtype == "f32":
        return "rows without padding"
    if not is_multiple(k.extent, dot_step(f.a.dtype)):
        return f"a multiple of {dot_step(f.a.dtype)} steps along {k.name}"
    if guard is not None and k in axes_of(guard):
        return f"a padding that {k.name} does not reach"
    most = MAX_TAPS["dot"]
    if prod(static_extent(r) for r in f.k if r != k) > most:
        return f"at most {most} taps"
    return None


def dot_faults(program: Program, schedule: Schedule, s: Stage, row: ProductRow, choice: StageChoice,
               where: str) -> list[str]:
    """Faults of a stage's ``loops`` for a row of narrow products."""
    dtypes = dot_dtypes(s.body)
    if dtypes is not None and not row.takes(dtypes):
        return [f"{where}: {row.name} multiplies {row.a} by {' or '.join(row.b)}, not {dtypes[0]} "
                f"by {dtypes[1]}; use loops, or a row for those"]
    found = dot_factors(s)
    if found is None or choice.lanes != found[0].lane.name:
        return [f"{where}: lanes {choice.lanes or None!r}; the weights' longest axis of their own "
                "is " + (found[0].lane.name if found is not None else "missing: use loops")]
    f, b = found
    weights = program.consts.get(b.buffer)
    if weights is None and not _may_pack(f, b) or weights is not None and not _is_whole(
            s, f, b, weights.shape):
        return [f"{where}: {row.name} needs constant weights of the lane axis and the reduction "
                "axes, or computed columns along one; use loops"]
    wrong = grouping_fault(s, row)
    if wrong is not None:
        return [f"{where}: {row.name} {wrong}"]
    k = next((r for r in f.k if r.name == choice.k), None)
    if k is None:
        return [f"{where}: k {choice.k or None!r}; choose from {', '.join(r.name for r in f.k)}"]
    faults = [f"{where}: {row.name} cannot store {o.buffer} : {o.value.dtype}; end the group before"
              for o in s.outputs if not is_lane_value(o.value)]
    layout = None if weights is None else dot_layout(
        f, b, k, row.tile.nr, weights.shape, stage_weights(s) is not None)
    if weights is None:
        faults += [f"{where}: b {choice.b or None!r}; {b.buffer} is computed, use packed"] * (
            choice.b != "packed")
    elif choice.b != "panel" or layout is None or (
            layout_from_json(schedule.layouts.get(b.buffer)) != layout):
        faults.append(f"{where}: b 'panel' needs {b.buffer} in panels of {row.tile.nr} x "
                      f"{dot_step(row.a)} for k {k.name}")
    load, guard, _ = row_source(f.a)
    if choice.a == "rows":
        layout = layout_from_json(schedule.layouts.get(load.buffer)) if load is not None else None
        why = "a plain load" if load is None else rows_fault(
            f, k, offset_of(load.index, program.shape(load.buffer), layout), guard)
        faults += [f"{where}: a 'rows' needs {why}; use packed"] if why else []
    elif choice.a != "packed":
        faults.append(f"{where}: a {choice.a or None!r}; choose rows or packed")
    return faults


__all__ = ["axes_beside", "dot_choice", "dot_factors", "dot_faults", "dot_layout",
           "padded_depth", "stage_weights", "typed_rows"]
