"""Contractions of narrow numbers (u8 and s8, two bf16, grouped weights and f32 or integers): which
rows take them, where the weights lie.

The lane operand lies in panels: NR columns, and of each of them a step of the sum, four neighbours
of 8 bits or two of 16 side by side, so that one lane adds as many products at a time.  Constants
are stored so; columns that are computed every work item packs so.  The sum runs over
(taps, k) as one axis, padded with zeros to a multiple of a step.  Grouped weights
(``ir/numbers/grouped.py``) are bytes of NR columns side by side, row by row of every group.
"""

from collections.abc import Sequence
from math import prod

from aotc.ir.access import is_multiple, is_unit
from aotc.ir.category import Factors, dot_dtypes, factor_pairs, row_source, zero_filled_load
from aotc.ir.dtypes import ELEMENTS, HALVES
from aotc.ir.expr import Axis, Binary, Const, Expr, Load, axes_of
from aotc.ir.layout import Fuse, Layout, Movement, Pad, Reorder, Split
from aotc.ir.numbers.byte_panels import panel_fault
from aotc.ir.numbers.grouped import INTEGER_ROWS, Grouped, grouped_weights
from aotc.ir.program import Program
from aotc.ir.tile_statements import dot_step, whole_steps
from aotc.passes.digits import static_extent
from aotc.passes.precision.narrow_operands import are_columns, is_whole
from aotc.sched.model.held_numbers import is_held
from aotc.sched.model.size import MAX_TAPS
from aotc.sched.model.stages import Stage
from aotc.target.base import Target
from aotc.target.kernel_rows import ProductRow


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


def dot_layout(f: Factors, weights: Load, k: Axis, row: ProductRow,
               shape: Sequence[int], grouped: bool = False) -> Layout | None:
    """Layout of the weights for a row: N/NR, (taps K)/step, NR, step, behind axes that they have
    beside; of ``grouped`` ones N/NR, groups, rows, NR; by columns N, (taps K), of whole 16
    bytes."""
    nr, step = row.panel, column_grain(row) if row.by_columns else dot_step(f.a.dtype)
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
    if n % nr and not row.by_columns:
        out.append(Pad(at, 0, -n % nr))
    if depth % step:
        out.append(Pad(at + 1, 0, -depth % step))
    if row.by_columns:
        return Layout(tuple(out))
    out += [Split(at + 1, (-(-depth // step), step)), Split(at, (-(-n // nr), nr)),
            Reorder((*range(at), at, at + 2, at + 1, at + 3))]
    return Layout(tuple(out))


def column_grain(row: ProductRow) -> int:
    """Terms that the columns of weights are padded to a multiple of, where each lies by itself: so
    all begin at a multiple of 16 bytes."""
    return 16 // ELEMENTS[row.stored_b].size


def axes_beside(f: Factors, weights: Load) -> list[Axis]:
    """Axes of constant weights beside the lanes and those of the sum: there are panels for every
    value of them."""
    return [i for i in weights.index if isinstance(i, Axis) and i not in (f.lane, *f.k)]


def typed_rows(program: Program, target: Target, s: Stage) -> list[ProductRow]:
    """The rows of a target for the types of a stage that multiplies narrow numbers; [] for others
    and where it has none."""
    dtypes, held = dot_dtypes(s.body), held_halves(program, s)
    return [u for u in target.rows("dot") if u.takes(dtypes, held)
            and grouping_fault(s, u) is None]


def held_halves(program: Program, s: Stage) -> tuple[str, ...]:
    """The dtypes of 16 bits that surely hold the rows, of f32, of a product by grouped weights."""
    found = dot_factors(s)
    return tuple(d for d in HALVES if found is not None and found[0].a.dtype == "f32"
                 and is_held(program, found[0].a, d))


def grouping_fault(s: Stage, row: ProductRow) -> str | None:
    """Why a row cannot read the grouped weights of a stage; None if it can, or there are none."""
    w = stage_weights(s)
    if w is None or row.grouped is None:
        return None
    why = panel_fault(w.grouping, dot_step(row.a)) if row.a in INTEGER_ROWS else None
    if why is None and not row.reads_groups_of(w.grouping.size, static_extent(w.k)):
        why = f"groups of a multiple of {row.grouped.steps}" + (
            f", as long as {row.steps} steps or several times that or a part of it"
            if row.in_codes else "")
    return None if why is None else f"takes {why}, not {w.grouping}"


def holds_all(s: Stage, f: Factors, b: Load, shape: tuple[int, ...]) -> bool:
    """True if the constant holds all of the weights and no more."""
    w = stage_weights(s)
    if w is None:
        return is_whole(f, b, shape)
    depth, groups = static_extent(w.k), shape[0]
    return groups == -(-depth // w.grouping.size) and shape[1:] == (
        w.grouping.rows, static_extent(f.lane)) and w.n == f.lane and all(
        r == w.k or r.extent == Const(1) for r in f.k)


def may_pack(f: Factors, columns: Load) -> bool:
    """True for computed columns that a work item packs: narrow ones."""
    return dot_step(columns.dtype) > 1 and are_columns(f, columns)


def rows_of(f: Factors, row: ProductRow) -> tuple[Load | None, Expr | None]:
    """(Load, guard) of the factor of rows, if a row may read its elements where they lie: in floats
    of 16 bits, if those are what it multiplies."""
    load, guard, _ = row_source(f.a)
    return zero_filled_load(f.a) if row.in_codes else (load, guard)


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


__all__ = ["axes_beside", "column_grain", "dot_factors", "dot_layout", "held_halves",
           "padded_depth", "stage_weights", "typed_rows"]
