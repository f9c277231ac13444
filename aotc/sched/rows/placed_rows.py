"""Rows that a product of a block of threads multiplies where an earlier stage of its work item has
left them, in the block's memory: they lie as its register tile reads them, whole ones of both, with
16 bytes more from row to row, so that the same ones of neighbouring rows lie in other banks."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from aotc.ir.access import is_multiple, stride
from aotc.ir.block_statements import ACCESS
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Binary, Const, Expr, as_expr, substitute
from aotc.ir.kernel.plan_stages import Contract
from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.ir.simplify import simplify, upper
from aotc.ir.statements import Range
from aotc.sched.model.boxes import Dims, Places
from aotc.sched.model.stages import Stage, find_factors
from aotc.sched.model.stored_rows import rows_in_place
from aotc.target.base import Target
from aotc.target.kernel_rows import ProductRow


@dataclass(frozen=True)
class PlacedRows:
    """How scratch lies that such products read: ``rows`` are a multiple of that, ``columns`` each
    has, and ``pitch`` elements from one to the next."""

    rows: int
    columns: int
    pitch: int

    def elements(self, dims: Dims) -> int | None:
        """Of a tensor with ((lo, size) per dim), for the largest sizes; None without a bound."""
        count = upper(simplify(prod((as_expr(n) for _, n in dims[:-1]), start=Const(1))))
        return None if count is None else -(-count // self.rows) * self.rows * self.pitch


def may_place(row: ProductRow) -> bool:
    """True for a row that can read rows of A in the block's memory where they lie."""
    return row.staging is not None and "place" in row.staging.ways


def find_placed(program: Program, target: Target, group: Group, stages: Sequence[Stage],
                local: Places) -> dict[str, PlacedRows]:
    """{scratch of a group that its products read so: how it lies}.  local: its boxes."""
    found: dict[str, PlacedRows] = {}
    for s in stages if target.machine.threads else ():
        name = group.choice(s.name).row
        row = target.row(name) if name else None
        if not isinstance(row, ProductRow) or not may_place(row):
            continue
        buffer = _rows_of(program, s, group, row)
        columns = _columns(local[buffer]) if buffer in local else None
        if columns is None:
            continue
        known = found.get(buffer, PlacedRows(1, 0, 0))
        whole = max(known.columns, -(-columns // row.steps) * row.steps)
        found[buffer] = PlacedRows(max(known.rows, row.tile.mr), whole,
                                   whole + ACCESS // DTYPES[row.stored].size)
    return found


def _rows_of(program: Program, s: Stage, group: Group, row: ProductRow) -> str:
    """The tensor whose rows, in the order of its last dimension, a product sums over; "" where it
    reads its rows otherwise."""
    choice = group.choice(s.name)
    f = find_factors(s, choice.lanes)
    load, guard = (None, None) if f is None else rows_in_place(f, True)
    if f is None or load is None or guard is not None or len(f.k) != 1 or (
            load.index[-1] != f.k[0] or program.dtype(load.buffer) != row.stored):
        return ""
    return load.buffer


def _columns(dims: Dims) -> int | None:
    lo, size = dims[-1]
    size = simplify(as_expr(size))
    return size.value if lo == Const(0) and isinstance(size, Const) else None


def placed_rows(c: Contract, row: ProductRow, elements: int) -> tuple[int, int] | None:
    """(elements from row to row, terms up to whole steps) of rows of A that a product reads where
    they lie in a block's memory, in scratch of so many elements; None if it cannot."""
    size, offset, terms = DTYPES[row.stored].size, c.a.offset, c.k.axis.extent
    rows = most_steps(c.m[0]) if c.m else 1
    if not may_place(row) or c.a.mode != "rows" or c.taps or c.a.guard is not None or (
            c.micro.dtypes.a != row.stored or c.a.stride != Const(1) or len(c.m) > 1
            or rows is None or not isinstance(terms, Const)):
        return None
    by = stride(offset, c.m[0].axis) if c.m else None
    whole = -(-terms.value // row.steps) * row.steps
    if not isinstance(by, Const) or by.value < whole or by.value * size % ACCESS:
        return None
    first = first_place(c)
    fits = first == Const(0) and -(-rows // row.tile.mr) * row.tile.mr * by.value <= elements
    return (by.value, whole) if fits and is_multiple(first, ACCESS // size) else None


def most_steps(r: Range) -> int | None:
    """Upper bound of a range's steps, of a tile's that is cut at the end, too."""
    terms = (r.hi.a, r.hi.b) if isinstance(r.hi, Binary) and r.hi.op == "min" else (r.hi,)
    known = [upper(simplify(t - r.lo)) for t in terms]
    return min((n for n in known if n is not None), default=None)


def first_place(c: Contract) -> Expr:
    """The element of A with which the first row begins."""
    return simplify(substitute(c.a.offset, {r.axis: r.lo for r in c.m}))


__all__ = ["PlacedRows", "find_placed", "first_place", "may_place", "most_steps", "placed_rows"]
