"""A product of few rows: each thread reads 16 bytes of neighbouring columns at a time, for all rows
of a tile, and every team of threads sums some of the terms.

Rows that do not lie evenly in memory, as a template reads them, are computed into the block's
memory first, with zeros behind the last term up to whole steps of it.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from aotc.ir.access import is_multiple, stride
from aotc.ir.block_statements import BlockArray, FewRowSums, Rounded
from aotc.ir.contents import names_in
from aotc.ir.dtypes import DTYPES, HALVES, is_int
from aotc.ir.expr import (
    Axis,
    Const,
    Expr,
    Load,
    Var,
    Where,
    all_hold,
    compare,
    substitute,
    walk,
)
from aotc.ir.kernel.plan_stages import Contract
from aotc.ir.numbers.narrow import stored_half, widen_half
from aotc.ir.simplify import simplify
from aotc.ir.statements import (
    OWN,
    Accumulate,
    Barrier,
    Body,
    Box,
    For,
    If,
    Let,
    Put,
    Range,
    Spread,
    Start,
    Store,
)
from aotc.ir.tile_statements import dot_step
from aotc.sched.expand.block.block_steps import BlockSteps
from aotc.sched.expand.block.single_rows import PARTS
from aotc.sched.expand.prune import with_single_values
from aotc.sched.rows.row_reads import may_stage, read_step, row_pitch
from aotc.target.kernel_rows import ProductRow

STAGED = f"{OWN}a_rows"


@dataclass(frozen=True)
class RowPlaces:
    """Where the rows of a tile lie: the place of the first one's first term, with the elements from
    one row to the next; ``dtype`` of those; wide: loads of several terms are at a multiple of their
    size.  body: the statements that bring them there."""

    box: Box
    dtype: str
    wide: bool
    body: Body = ()
    array: tuple[BlockArray, ...] = ()


@dataclass(frozen=True)
class FewRows:
    """One Contract on a row of few rows.  lined: buffers that begin at a multiple of 16 bytes
    outside the block's memory."""

    at: BlockSteps
    lined: Collection[str]

    @property
    def terms(self) -> Expr:
        """Of the sum, of all taps."""
        out = self.at.c.k.axis.extent
        for t in self.at.c.taps:
            out = t.axis.extent * out
        return simplify(out)

    @property
    def whole_terms(self) -> Expr:
        """The same up to whole steps of the template: what is behind the last is zeros."""
        step = read_step(*self.dtypes)
        return simplify((self.terms + (step - 1)) // step * step)

    @property
    def dtypes(self) -> tuple[str, str]:
        """Of rows and weights, as ``read_step`` has them."""
        row = self.at.row
        return row.a, row.b[0]

    # ------------------------------------------------------------ operands

    def columns_fit(self) -> bool:
        """True if columns lie side by side, at multiples of 16 bytes."""
        c = self.at.c
        if c.b.mode == "panel":
            return True
        wide = 16 // DTYPES[c.micro.dtypes.b].size
        return c.b.mode == "direct" and not c.taps and c.b.buffer in self.lined and all(
            is_multiple(e, wide) for e in (c.b.offset, c.b.stride, c.n.hi, c.n.lo))

    def rows(self) -> RowPlaces | None:
        """Where the template reads the rows; None if it cannot."""
        at, there = self.at, self._in_memory()
        if at.row.a in HALVES and there is not None and there.dtype != at.row.a:
            there = None  # pairs are multiplied as they lie
        if there is not None and (there.wide or DTYPES[there.dtype].size > 1):
            return there
        if may_stage(at.row, self.terms):
            return self._staged()
        return there

    def _in_memory(self) -> RowPlaces | None:
        """The rows where they lie, evenly apart and their terms side by side; None if they do
        not."""
        c, dtype = self.at.c, self.at.row.stored
        if c.taps or c.a.guard is not None or len(c.m) > 1 or not is_multiple(
                self.terms, read_step(*self.dtypes)):
            return None
        if c.a.mode == "rows":
            buffer, first, step = c.a.buffer, c.a.offset, c.a.stride
            dtype = c.micro.dtypes.a
        else:
            half = None if c.a.value is None else stored_half(c.a.value)
            if not isinstance(half, Load):
                return None
            buffer, dtype, found = half.buffer, half.dtype, stride(half.index[0], c.k.axis)
            step = Const(0) if found is None else found
            first = simplify(substitute(half.index[0], {c.k.axis: Const(0)}))
        apart = stride(first, c.m[0].axis) if c.m else Const(0)
        if step != Const(1) or not isinstance(apart, Const) or any(
                isinstance(n, Load) for n in walk(first)):
            return None
        here = first if not c.m else substitute(first, {c.m[0].axis: c.m[0].lo + self.at.m0})
        together = 16 if is_int(dtype) else 4
        wide = buffer in self.lined and all(is_multiple(e, together) for e in (first, apart))
        return RowPlaces(Box(buffer, simplify(here), (apart, Const(1))), dtype, wide)

    def _staged(self) -> RowPlaces:
        """The rows in the block's memory."""
        at, c = self.at, self.at.c
        most = self.terms.value if isinstance(self.terms, Const) else 0
        pitch = row_pitch(most, *self.dtypes)
        dtype = at.row.stored
        wide = "f32" if dtype in HALVES else dtype
        k, x = Axis(f"{OWN}k", Const(pitch)), Var(f"{OWN}x", wide)
        value = _row_element(c, wide)
        used = names_in(value)
        rule = all_hold([*([] if at.whole("rows") else [compare("lt", at.m0 + at.m, at.rows)]),
                         *([] if pitch == most else [compare("lt", k, self.terms)])])
        names = (*at.digits(c.m, at.m0 + at.m, used), *at.digits((*c.taps, c.k), k, used))
        value = value if rule is None else Where(rule, value, Const(0, wide))
        ranges = (Range(at.m, Const(0), Const(at.mr)), Range(k, Const(0), Const(pitch)))
        array = BlockArray(STAGED, dtype, (at.mr, pitch), at.base + at.shared.sum_bytes,
                           "rows of A")
        place = simplify(at.m * pitch + k)
        stored = Store((Put(STAGED, place, x),)) if wide == dtype else Rounded(
            Box(STAGED, place), "", 1, dtype, x)
        body: Body = (Spread(ranges, "threads", at.threads, (*names, Let(x, value), stored)),
                      Barrier())
        return RowPlaces(Box(STAGED, Const(0), (Const(pitch), Const(1))), dtype, True, body,
                         (array,))

    def _columns(self) -> Box:
        """The first term of a tile's first column, with the elements to the next term."""
        at, c = self.at, self.at.c
        first = simplify(substitute(c.b.offset, {c.n.axis: at.n0}))
        if c.b.mode == "direct":
            return Box(c.b.buffer, simplify(first + at.n0), (c.b.stride, Const(1)))
        return Box(c.b.buffer, first, (Const(at.nr * dot_step(at.row.a)), Const(1)))


def find_places(at: BlockSteps, lined: Collection[str]) -> RowPlaces | None:
    """Where a row's template reads the rows of a Contract; None if it cannot read its operands."""
    few = FewRows(at, lined)
    return few.rows() if few.columns_fit() else None


def staged_row_bytes(c: Contract, row: ProductRow, lined: Collection[str]) -> int:
    """Bytes of a block's memory for the rows of a tile of a Contract, 0 where they are read where
    they lie."""
    places = find_places(BlockSteps(plain_contract(c), row, row.threads, 0), lined)
    return 0 if places is None else sum(DTYPES[x.dtype].size * x.elements for x in places.array)


def plain_contract(c: Contract) -> Contract:
    """The Contract with its ranges of a single value put in."""
    found: Contract = with_single_values(c, (*c.outer, *c.m, *c.taps))
    return found


def _row_element(c: Contract, dtype: str) -> Expr:
    """The value of ``dtype`` of A at the loops' axes."""
    if c.a.mode == "packed":
        return c.a.packed
    of = c.micro.dtypes.a
    load: Expr = Load(c.a.buffer, (simplify(c.a.offset + c.k.axis * c.a.stride),), of)
    load = widen_half(load) if of in HALVES else load
    return load if c.a.guard is None else Where(
        c.a.guard, load, Const(0, dtype) if c.a.value is None else c.a.value)


def few_rows(of: FewRows, places: RowPlaces, followed: bool, order: str) -> Body:
    """The statements of the Contract, without the loops around it.  followed: by other stages."""
    at, c, dtypes = of.at, of.at.c, of.at.c.micro.dtypes
    lane, nr, teams = c.n.axis, at.nr, at.teams
    one = c.n.lo == Const(0) and isinstance(c.n.hi, Const) and c.n.hi.value <= nr  # tile of columns
    column, number = lane if one else Axis(f"{OWN}column", Const(nr)), at.number
    masked = c.b.mode == "direct" and not at.whole("columns")
    sums = FewRowSums(
        c.row, c.micro.template, PARTS, at.mr, nr, places.box, of._columns(),
        of.whole_terms, replace(dtypes, a=places.dtype), places.wide,
        None if at.whole("rows") or places.array else simplify(at.rows - at.m0),
        simplify(c.n.hi - at.n0) if masked else None, c.micro.grouping)
    exists = all_hold([*([] if at.whole("rows") else [compare("lt", number, at.rows)]),
                       *([] if at.whole("columns") else [compare("lt", lane, c.n.hi)])])
    team = Axis(f"{OWN}team", Const(teams))
    part = Load(PARTS, (simplify((team * at.mr + at.m) * nr + column),), dtypes.sums)
    joined: Body = (
        *at.digits(c.m, number, names_in(c.puts)), Start(c.acc, "sum"),
        For(team, Const(0), Const(teams), (Accumulate("sum", ((c.acc, part),)),)), Store(c.puts))
    points = (Range(at.m, Const(0), Const(at.mr)), Range(column, Const(0), Const(nr)))
    body: Body = (
        *places.body, sums, Barrier(),
        Spread(points, "threads", at.threads, (
            Let(number, at.m0 + at.m), *(() if one else (Let(lane, simplify(at.n0 + column)),)),
            *(joined if exists is None else (If(exists, joined),)))),
        # all wait behind the rows that the next tile brings
        *((Barrier(),) if c.again and (followed or not places.body) else ()))
    around = (at.rows_loop, at.columns) if order == "rows" else (at.columns, at.rows_loop)
    for loop in reversed(around):
        body = (loop(body),)
    array = BlockArray(PARTS, dtypes.sums, (teams, at.mr, nr), at.base, "what teams have summed")
    return (array, *places.array, *at.lets(), *body)


__all__ = ["FewRows", "few_rows", "find_places", "plain_contract", "staged_row_bytes"]
