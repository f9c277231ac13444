"""What is wrong with a stage's choice for a row of narrow products."""

from functools import partial

from aotc.ir.access import layout_from_json, offset_of
from aotc.ir.category import dot_dtypes
from aotc.ir.expr import Expr, Load
from aotc.ir.numbers.narrow import is_lane_value
from aotc.ir.program import Program
from aotc.ir.schedule import Schedule
from aotc.ir.stage_choice import StageChoice
from aotc.ir.tile_statements import dot_step
from aotc.sched.model.stages import Stage
from aotc.sched.rows.dots import (
    dot_factors,
    dot_layout,
    grouping_fault,
    held_halves,
    holds_all,
    may_pack,
    rows_fault,
    rows_of,
    stage_weights,
)
from aotc.sched.rows.row_reads import shared_fault
from aotc.target.kernel_rows import ProductRow


def dot_faults(program: Program, schedule: Schedule, s: Stage, row: ProductRow, choice: StageChoice,
               where: str) -> list[str]:
    """Faults of a stage's ``loops`` for a row of narrow products."""
    dtypes = dot_dtypes(s.body)
    if dtypes is not None and not row.takes(dtypes, held_halves(program, s)):
        return [f"{where}: {row.name} multiplies {row.a} by {' or '.join(row.b)}, not {dtypes.a} "
                f"by {dtypes.b}; use loops, or a row for those"]
    found = dot_factors(s)
    if found is None or choice.lanes != found[0].lane.name:
        return [f"{where}: lanes {choice.lanes or None!r}; the weights' longest axis of their own "
                "is " + (found[0].lane.name if found is not None else "missing: use loops")]
    f, b = found
    weights = program.consts.get(b.buffer)
    if weights is None and not may_pack(f, b) or weights is not None and not holds_all(
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
    offset = partial(_offset, program, schedule)
    if row.shared is not None:
        why = shared_fault(f, row, offset, weights is None)
        faults += [] if why is None else [f"{where}: {row.name} {why}; use loops"]
    staged = row.staging is not None and not (row.by_columns or row.in_codes)
    if staged and choice.b != "packed":
        faults.append(f"{where}: b {choice.b or None!r}; {row.name} makes factors of weights while "
                      "it stages them, use packed")
    layout = None if weights is None else dot_layout(
        f, b, k, row, weights.shape, stage_weights(s) is not None)
    if weights is None:
        faults += [f"{where}: b {choice.b or None!r}; {b.buffer} is computed, use packed"] * (
            choice.b != "packed")
    elif not staged and (choice.b != "panel" or layout is None or (
            layout_from_json(schedule.layouts.get(b.buffer)) != layout)):
        form = "by columns" if row.by_columns else (
            f"in panels of {row.panel} x {1 if row.in_codes else dot_step(row.a)}")
        faults.append(f"{where}: b 'panel' needs {b.buffer} {form} for k {k.name}")
    load, guard = rows_of(f, row)
    if choice.a == "rows":
        why = "a plain load" if load is None else rows_fault(f, k, offset(load), guard)
        faults += [f"{where}: a 'rows' needs {why}; use packed"] if why else []
    elif choice.a != "packed":
        faults.append(f"{where}: a {choice.a or None!r}; choose rows or packed")
    return faults


def _offset(program: Program, schedule: Schedule, load: Load) -> Expr:
    """Of an element that is loaded, in its tensor's layout."""
    layout = layout_from_json(schedule.layouts.get(load.buffer))
    return offset_of(load.index, program.shape(load.buffer), layout)


__all__ = ["dot_faults"]
