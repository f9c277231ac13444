"""How the operands of a product come to the memory of its block: where each element lies outside of
it, and whether it exists."""

from dataclasses import dataclass, replace

from aotc.ir.block_statements import Fetch, Hold, Recall, Registers, Rounded, Shares
from aotc.ir.category import copied_load
from aotc.ir.contents import names_in
from aotc.ir.dtypes import HALVES, INDEX
from aotc.ir.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Var,
    Where,
    all_hold,
    as_expr,
    compare,
    minimum,
    substitute,
    walk,
)
from aotc.ir.numbers.narrow import widen_half
from aotc.ir.simplify import simplify
from aotc.ir.statements import (
    OWN,
    Barrier,
    Body,
    Box,
    Declare,
    If,
    Let,
    Put,
    Range,
    Spread,
    Stmt,
    Store,
    Update,
)
from aotc.sched.expand.block.block_codes import BlockCodes
from aotc.sched.expand.block.block_steps import ROW_STARTS, BlockSteps
from aotc.sched.expand.tile_loops import flat_index
from aotc.sched.rows.placed_rows import first_place

_VALID = Var(f"{OWN}valid", "bool")
ALWAYS = Const(True, "bool")


@dataclass(frozen=True)
class Source:
    """One element (or the first of some neighbours) of an operand: ``names`` that it is said with,
    the condition ``rule`` on numbers for it to exist, a ``guard`` beside, its value, and for what
    is copied the place that it has; ``fill``: the value of what does not exist, where sums may
    read it."""

    names: Body
    rule: Expr
    guard: Expr | None
    value: Expr
    place: Box | None
    fill: int = 0

    @property
    def valid(self) -> Expr:
        """The whole condition; the guard is evaluated where the rule holds only."""
        if self.guard is None:
            return self.rule
        if self.rule == ALWAYS:
            return self.guard
        if any(isinstance(n, Load) for n in walk(self.guard)):
            return Where(self.rule, self.guard, Const(False, "bool"))
        return Binary("and", self.rule, self.guard)


@dataclass(frozen=True)
class Operands:
    """Both operands of a Contract."""

    at: BlockSteps

    # ------------------------------------------------------------ rows of A

    def row_table(self) -> Body:
        """Where every row of the tile starts, for every tap."""
        at, c = self.at, self.at.c
        if c.a.mode != "rows" or c.placed:
            return ()
        offset: Expr = c.a.offset
        if c.a.guard is not None:
            offset = Where(c.a.guard, offset, Const(-1))
        if not at.whole("rows"):
            offset = Where(compare("lt", at.number, at.rows), offset, Const(-1))
        names = (Let(at.number, at.m0 + at.m), *at.digits(c.m, at.number, names_in(offset)))
        if at.keeps_starts:
            (points, _, _), of = self._points("a"), self._starts
            found = Var(at.start.name, "i32")
            return (of, Shares(of, points, (*names, Let(found, Cast("i32", offset)),
                                            Hold(of.name, 1, None, ALWAYS, found))))
        place = simplify(flat_index(c.taps) * at.mr + at.m)
        body: Body = (*names, Store((Put(ROW_STARTS, place, Cast("i32", offset)),)))
        ranges = (*c.taps, Range(at.m, Const(0), Const(at.mr)))
        return (Spread(ranges, "threads", at.threads, body), Barrier())

    @property
    def _starts(self) -> Registers:
        """Of the rows that threads copy from, where those start; -1: a row of zeros."""
        at = self.at
        elements = at.mr * at.bk // at.way("a")[1]
        return Registers("a_starts", elements, 1, at.threads, "i32")

    def zeros_behind(self) -> Body:
        """Zeros in what a tile reads of rows where they lie that are not there: behind the last
        term up to whole steps, and behind the last row."""
        at, c = self.at, self.at.c
        by, terms = c.placed or (0, 0)
        first, (m, k) = first_place(c), (at.m, at.k)
        spot = simplify(first + (at.m0 + m) * by + k)
        nothing: Expr = Const(0.0, "f32")
        nothing = Cast(at.dtype("a"), nothing) if at.dtype("a") in HALVES else nothing
        zero = Store((Put(c.a.buffer, spot, nothing),))
        whole = Range(k, Const(0), Const(terms))
        last = simplify(minimum(at.rows - at.m0, as_expr(at.mr)))
        left = {"sum": (Range(m, Const(0), Const(at.mr)), replace(whole, lo=c.k.axis.extent)),
                "rows": (Range(m, last, Const(at.mr)), whole)}
        return tuple(Spread(r, "threads", at.threads, (zero,)) for what, r in left.items()
                     if c.placed and not at.whole(what))

    # ------------------------------------------------------------ steps

    def _points(self, which: str) -> tuple[tuple[Range, ...], Expr, Expr]:
        """(ranges over a step of an operand, neighbouring threads last; the number in the step of
        the sum, that of the row or column)."""
        at = self.at
        _, width, along = at.way(which)
        other, count = (at.m, at.mr) if which == "a" else (at.n, at.nr)
        k, beside = Range(at.k, Const(0), Const(at.bk)), Range(other, Const(0), Const(count))
        if width == 1:
            return ((beside, k) if along == "sum" else (k, beside)), at.k, other
        if along == "sum":
            inner = Range(at.quarter, Const(0), Const(at.bk // width))
            return (beside, inner), simplify(at.quarter * width), other
        inner = Range(at.quarter, Const(0), Const(count // width))
        return (k, inner), at.k, simplify(at.quarter * width)

    def _source(self, which: str) -> Source:
        _, k, other = self._points(which)
        return self._row_source(k, other) if which == "a" else self._lane_source(k, other)

    def _row_source(self, k: Expr, m: Expr) -> Source:
        """A's element (row m0 + m, step k0 + k)."""
        at, c = self.at, self.at.c
        rules = self._in_sum(k)
        if c.a.mode == "rows":
            start, term = self._row_start(k, m)
            place = Box(c.a.buffer, simplify(at.start + term * c.a.stride))
            rules = () if at.joins_taps else rules  # rows have no start behind the last term
            if not at.whole("rows") or c.a.guard is not None or at.joins_taps and not at.whole(
                    "sum"):
                rules += (compare("ge", at.start, 0),)
            return Source((start,), _all(rules), None, _element(place, c.micro.dtypes.a), place,
                          _fill_of(c.a.value))
        if not at.whole("rows"):
            rules = (compare("lt", at.m0 + m, at.rows), *rules)
        used = names_in(c.a.packed)
        names = (*at.digits(c.m, at.m0 + m, used),
                 *at.digits((*c.taps, c.k), at.k0 + k, used))
        return self._made("a", names, _all(rules), c.a.packed)

    def _row_start(self, k: Expr, m: Expr) -> tuple[Stmt, Expr]:
        """(the name of where row m0 + m starts for the tap of step k0 + k, the term in that)."""
        at, number = self.at, simplify(self.at.k0 + k)
        if at.keeps_starts:
            return Recall(at.start, self._starts.name), number
        each = at.c.k.axis.extent
        tap, term = (simplify(number // each), simplify(number % each)) if at.joins_taps else (
            at.tap, number)
        one = at.one_tap and not at.joins_taps
        start: Expr = Load(ROW_STARTS, (m if one else simplify(tap * at.mr + m),), "i32")
        if at.joins_taps and not at.whole("sum"):
            start = Where(compare("lt", number, at.kc), start, Const(-1, "i32"))
        return Let(at.start, Cast(INDEX, start)), term

    def _lane_source(self, k: Expr, n: Expr) -> Source:
        """B's element (step k0 + k, column n0 + n)."""
        at, c = self.at, self.at.c
        number, lane = at.k0 + k, c.n.axis
        rules = self._in_sum(k)
        if not at.whole("columns") and c.b.mode != "panel":
            rules += (compare("lt", at.n0 + n, c.n.hi),)
        if c.b.mode == "packed":
            used = names_in(c.b.packed)
            ranges = (*c.taps, c.k) if at.flat else (c.k,)
            taps = () if at.flat else at.digits(c.taps, as_expr(at.tap), used)
            column = (Let(lane, at.n0 + n),) if lane.name in used else ()
            return self._made("b", (*taps, *at.digits(ranges, number, used), *column),
                              _all(rules), c.b.packed)
        if c.b.mode == "columns":
            return self._column_source(k, n, _all(rules))
        first = simplify(substitute(c.b.offset, {lane: at.n0}))
        panel = c.b.mode == "panel"
        by: Expr = Const(at.nr) if panel else c.b.stride
        tap: Expr = Const(0)
        if not at.one_tap:
            tap = at.tap * (c.b.tap if c.b.tap is not None else at.kc * by)
        column_at = n if panel else at.n0 + n
        place = Box(c.b.buffer, simplify(first + tap + number * by + column_at))
        return Source((), _all(rules), None, _element(place, c.micro.dtypes.b), place)

    def _column_source(self, k: Expr, n: Expr, rule: Expr) -> Source:
        """The same of weights whose columns lie one behind the other."""
        at, c = self.at, self.at.c
        tap: Expr = Const(0) if at.one_tap else at.tap * at.kc
        place = Box(c.b.buffer, simplify(
            c.b.offset + (at.n0 + n) * c.b.stride + tap + (at.k0 + k)))
        return Source((), rule, None, _element(place, c.micro.dtypes.b), place)

    def _in_sum(self, k: Expr) -> tuple[Expr, ...]:
        """The condition that step k0 + k is one of the sum, unless all are."""
        at = self.at
        return () if at.whole("sum") else (compare("lt", at.k0 + k, at.kc),)

    def _made(self, which: str, names: Body, rule: Expr, value: Expr) -> Source:
        """An element that is computed, or copied, or loaded with its neighbours, from where it
        lies."""
        fetch, width, _ = self.at.way(which)
        if fetch != "copy" and width == 1:
            return Source(names, rule, None, value, None)
        load, guard, fill = copied_load(value)
        assert load is not None, value  # nothing else is fetched so
        return Source(names, rule, guard, value, Box(load.buffer, load.index[0]), int(fill))

    def _spot(self, which: str, step: Expr) -> Box:
        """Where the element lies in the block's memory."""
        _, k, other = self._points(which)
        a, b = self.at.step_places(step)
        by_rows = which == "a" or self.at.by_columns
        box, (row, column) = a if which == "a" else b, (other, k) if by_rows else (k, other)
        swizzle = self.at.swizzle[which == "b"]
        if swizzle is not None:
            column = simplify(swizzle.column(row, column))
        return Box(box.buffer, box.offset + row * box.strides[0] + column)

    def fetched(self, which: str, step: Expr | None = None) -> Body:
        """All of an operand's next step, or of another, to the block's memory."""
        at = self.at
        if which == "b" and at.grouping is not None:
            return BlockCodes(at).fetched()
        x, (fetch, width, _) = self._source(which), at.way(which)
        ranges, _, _ = self._points(which)
        to, dtype = self._spot(which, at.next if step is None else step), at.dtype(which)
        own = Var(f"{OWN}x", "f32" if dtype in HALVES else dtype)
        if fetch == "copy":
            assert x.place is not None, which
            always = x.valid == ALWAYS
            names = x.names if always else (*x.names, Let(_VALID, x.valid))
            body: Body = (*names, Fetch(to, x.place, width, ALWAYS if always else _VALID,
                                        dtype, x.fill))
        elif width > 1:
            of = self.registers(which)
            return (of, Shares(of, ranges, (
                *x.names, Hold(of.name, width, x.place, x.valid),
                Rounded(to, of.name, width, dtype))))
        elif at.is_rounded(which):
            body = (*_computed(x, own), Rounded(to, "", 1, dtype, own))
        else:
            body = (*_computed(x, own), Store((Put(to.buffer, to.offset, own),)))
        if which == "a" and at.keeps_starts:
            return (Shares(self._starts, ranges, body),)
        return (Spread(ranges, "threads", at.threads, body),)

    def registers(self, which: str) -> Registers:
        """Of the next step of an operand."""
        at, width = self.at, self.at.way(which)[1]
        elements = at.bk * (at.mr if which == "a" else at.nr)
        return Registers(f"{which}_held", elements // width, width, at.threads)


def _all(rules: tuple[Expr, ...]) -> Expr:
    return all_hold(rules) or ALWAYS


def _element(place: Box, dtype: str) -> Expr:
    """The f32, or the integer, that an element of ``dtype`` at a place is."""
    load = Load(place.buffer, (place.offset,), dtype)
    return widen_half(load) if dtype in HALVES else load


def _fill_of(value: Expr | None) -> int:
    """What rows have outside of their guard."""
    return int(value.value) if isinstance(value, Const) else 0


def _computed(x: Source, own: Var) -> Body:
    """``own`` is an element's value, ``Source.fill`` where there is none."""
    assert x.guard is None, x
    outside, inside = _outside(x.names, x.rule)
    if x.rule == ALWAYS:
        return (*x.names, Let(own, x.value))
    fill = float(x.fill) if own.dtype == "f32" else x.fill
    return (Declare(own, Const(fill, own.dtype)), *outside, If(x.rule, (
        *inside, Update((own,), (x.value,)))))


def _outside(names: Body, rule: Expr) -> tuple[Body, Body]:
    """Names that the rule needs, and those of an element that exists."""
    used = names_in(rule)
    first = tuple(s for s in names if isinstance(s, Let) and s.var.name in used)
    return first, tuple(s for s in names if s not in first)


__all__ = ["Operands", "Source"]
