"""Products of few rows on rows whose threads read weights 16 bytes at a time: what such a row asks
of the other factor."""

from collections.abc import Callable

from aotc.ir.access import is_multiple, is_unit, stride
from aotc.ir.category import Factors, row_source
from aotc.ir.dtypes import DTYPES, HALVES, is_int
from aotc.ir.expr import Const, Expr, Load, as_expr, walk
from aotc.ir.numbers.narrow import stored_half
from aotc.ir.simplify import simplify, upper
from aotc.target.kernel_rows import ProductRow


def read_step(a: str, b: str) -> int:
    """Terms of the sum that a template of few rows reads together, of rows of dtype ``a`` and
    weights of ``b``, bytes of which are in groups where rows are floats: whole numbers of them are
    there."""
    return 4 if is_int(a) else 16 if is_int(b) else 1


def row_pitch(terms: int, a: str, b: str) -> int:
    """Elements from one row of ``terms`` to the next in a block's memory: whole steps, and whole
    loads of 16 bytes."""
    step = max(read_step(a, b), 16 // DTYPES[a].size)
    return -(-terms // step) * step


def may_stage(row: ProductRow, terms: Expr) -> bool:
    """True if the rows of a tile of so many terms have room in a block's memory."""
    most = upper(terms)
    if most is None or row.shared is None:
        return False
    elements = row.tile.mr * row_pitch(most, row.a, row.b[0])
    return elements * DTYPES[row.a].size <= row.shared.row_bytes


def rows_fit(f: Factors, row: ProductRow, offset: Callable[[Load], Expr]) -> bool:
    """True if a row of few rows can read the factor of rows: from a block's memory, or evenly apart
    where it lies.  offset: of an element that is loaded."""
    b, terms = row.b[0], as_expr(1)
    for r in f.k:
        terms = terms * r.extent
    halves = row.a in HALVES and is_int(b)  # pairs of them are multiplied as they lie
    return may_stage(row, simplify(terms)) or _lie_evenly(f, offset) and (
        is_multiple(terms, read_step(row.a, b))) and not (halves and stored_half(f.a) is None)


def shared_fault(f: Factors, row: ProductRow, offset: Callable[[Load], Expr],
                 computed: bool = False) -> str | None:
    """Why the threads of a block cannot share a product of constant weights, or of ``computed``
    columns, on a row; None if they can."""
    if computed and not row.by_columns:
        return "needs constant weights"
    if row.staging is not None or rows_fit(f, row, offset):
        return None
    return (f"needs rows that lie evenly apart, or a bound that lets {row.tile.mr} of them into a "
            "block's memory")


def _lie_evenly(f: Factors, offset: Callable[[Load], Expr]) -> bool:
    """True if rows lie evenly apart, their terms side by side."""
    load, guard, _ = row_source(stored_half(f.a) or f.a)
    terms, rows = ([a for a in axes if a.extent != Const(1)] for axes in (f.k, f.m))
    if load is None or guard is not None or len(terms) != 1 or len(rows) > 1:
        return False
    at = offset(load)
    return is_unit(at, terms[0]) and all(isinstance(stride(at, r), Const) for r in rows) and (
        not any(isinstance(n, Load) for n in walk(at)))


__all__ = ["may_stage", "read_step", "row_pitch", "rows_fit", "shared_fault"]
