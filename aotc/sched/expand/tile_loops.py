"""The loops around register tiles, by the names their statements use: ``~n0``, the first column of
a panel, ``~m0``, the first of a tile's ``~rows``, ``~i``, a row in it, and of sums in slices
``~tap0`` and ``~k_lo``, where a slice begins.
"""

from dataclasses import dataclass
from math import prod

from aotc.ir.dtypes import INDEX
from aotc.ir.expr import Axis, Binary, Const, Expr, Load, as_expr, minimum
from aotc.ir.kernel.plan_stages import Contract
from aotc.ir.simplify import simplify
from aotc.ir.statements import OWN, For, Let, Range, Stmt
from aotc.ir.tile_statements import slice_start

B_COL, B_NEXT = (OWN + n for n in ("b_col", "b_next"))


@dataclass(frozen=True)
class TileLoops:
    """The loops of one Contract."""

    c: Contract

    @property
    def nr(self) -> int:
        """Columns of a tile."""
        return self.c.micro.nr

    @property
    def n0(self) -> Axis:
        return Axis(f"{OWN}n0", self.c.n.axis.extent)

    @property
    def rows(self) -> Axis:
        return Axis(f"{OWN}rows", simplify(self.c.row_count + 1))

    @property
    def m0(self) -> Axis:
        return Axis(f"{OWN}m0", self.c.row_count)

    @property
    def i(self) -> Axis:
        return Axis(f"{OWN}i", Const(self.c.micro.mr))

    @property
    def j(self) -> Axis:
        """A vector of columns in a tile."""
        return Axis(f"{OWN}j", Const(self.c.micro.nv))

    @property
    def k_lo(self) -> Axis:
        return slice_start(self.c.k.axis)

    @property
    def tap0(self) -> Axis:
        return Axis(f"{OWN}tap0", self.taps)

    @property
    def ahead(self) -> Axis:
        """Elements of the next panel that a row tile fetches per step, where rows decide."""
        return Axis(f"{OWN}ahead", Const(self.nr + 1))

    @property
    def taps(self) -> Expr:
        """How many taps are slices of their own."""
        return Const(prod(_constant(r.axis.extent) for r in self._sliced_taps))

    @property
    def _sliced_taps(self) -> tuple[Range, ...]:
        """Taps in each of which the sum's slices are, if any."""
        return self.c.slices.taps if self.c.slices else ()

    @property
    def columns_left(self) -> Expr:
        return self.c.n.hi - self.n0

    def slice_offset(self) -> Expr:
        """Elements from where a panel, or columns read in place, begin to this slice's."""
        if not self.c.slices:
            return Const(0)
        if self.c.b.mode == "direct":
            return simplify(self.k_lo * self.c.b.stride)
        at = self.tap0 * self.c.k.axis.extent + self.k_lo if self._sliced_taps else self.k_lo
        return simplify(at * self.nr)

    def slice_before(self) -> Expr:
        """The condition that there was a slice before this one."""
        at = self.tap0 + self.k_lo if self._sliced_taps else self.k_lo
        return Binary("gt", at, Const(0))

    def slice_follows(self) -> Expr:
        """The condition that another slice follows."""
        assert self.c.slices is not None, self.c
        in_tap = Binary("lt", self.k_lo + self.c.slices.steps, self.c.k.axis.extent)
        if not self.c.slices.taps:
            return in_tap
        return Binary("or", Binary("lt", self.tap0 + 1, self.taps), in_tap)

    def in_slices(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """``body`` in the loops over the slices of a sum: every tap, and steps of k in it."""
        found = self.c.slices
        if not found:
            return body
        body = (For(self.k_lo, Const(0), self.c.k.axis.extent, (*found.fed, *body),
                    step=found.steps),)
        if not found.taps:
            return body
        tap: Expr = self.tap0
        bound: list[Stmt] = []
        for r in reversed(found.taps):  # their numbers are digits of tap0's, the last the lowest
            at = tap if r is found.taps[0] else simplify(tap % r.axis.extent)
            bound.insert(0, Let(r.axis, at))
            tap = simplify(tap // r.axis.extent)
        return (For(self.tap0, Const(0), self.taps, (*bound, *body)),)

    def row(self, r: Range, i: Expr, plain: bool) -> Expr:
        """The value of a row axis in row ``i`` of a tile: it follows from the row's number where
        that is ``plain``, else it stands in a table."""
        if plain:
            return simplify(r.lo + self.m0 + i)
        return Load(f"{OWN}{r.axis.name}_at", (i,), INDEX)

    def last_row(self, r: Range, i: Expr, plain: bool) -> Expr:
        """The same, of the last row in those past the end."""
        return simplify(r.lo + minimum(self.m0 + i, self.rows - 1)) if plain else self.row(
            r, i, plain)


def flat_index(ranges: tuple[Range, ...]) -> Expr:
    """Flat index over ranges that start at 0, row-major."""
    at = as_expr(0)
    for r in ranges:
        at = at * r.axis.extent + r.axis
    return simplify(at)


def extent_of(ranges: tuple[Range, ...]) -> Expr:
    """The number of points of ranges that start at 0."""
    n = as_expr(1)
    for r in ranges:
        n = n * r.axis.extent
    return simplify(n)


def _constant(e: Expr) -> int:
    assert isinstance(e, Const), f"{e} is no constant"
    return int(e.value)
