"""Sums and products of all elements up to each one: scans of a tensor's axis.

Long axes are scanned in blocks, as parallel machines do it (Blelloch, "Prefix sums and their
applications", 1990, section 1.2): the total of every block, a scan of these, and within each block
the few elements before the one that is asked for.  That is O(n), its inner loops are
the lanes of vectors, and sums are of few terms at a time.
"""

from dataclasses import dataclass

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import conjunction
from aotc.frontend.building.values import Index, Result, Val
from aotc.frontend.graph import Node
from aotc.ir.expr import Axis, Binary, Const, Expr, Where, binary, compare, walk
from aotc.ir.program import FOLD_STEP, neutral_value
from aotc.ir.simplify import are_equal, simplify, upper

BLOCK = 16   # elements that are folded anew for each of them: the lanes of a vector of f32
SHORT = 128  # elements: up to here every one folds all that is before it, in one kernel
ENDLESS = 3  # levels of blocks for any extent: of 10^8 elements, the last has 2 * 10^4


@op("CumProd", since=26)
def cumprod(node: Node, b: Builder) -> Result:
    return _cumulative(b, "prod")


@op("CumSum", since=11)
def cumsum(node: Node, b: Builder) -> Result:
    return _cumulative(b, "sum")


def _cumulative(b: Builder, fold: str) -> Val:
    x = b.input(0)
    b.need(x, "fiu")
    axis = b.axis(b.static_ints(b.input(1))[0], x.rank)
    exclusive, reverse = bool(b.node.attr("exclusive", 0)), bool(b.node.attr("reverse", 0))
    if fold == "sum" and b.symbolic(x):
        steady = _steady_sum(b, x, axis, exclusive, reverse)
        if steady is not None:
            return steady
    return _Scan(b, axis, fold, reverse).run(x, exclusive, _levels(x.shape[axis]))


def _levels(extent: Expr) -> int:
    """How often blocks are put together into blocks until a scan of what is left is short."""
    most, levels = upper(extent), 0
    if most is None:
        return ENDLESS
    while most > SHORT:
        most, levels = -(-most // BLOCK), levels + 1
    return levels


@dataclass(frozen=True)
class _Scan:
    """Folds along ``axis`` from its first element on, ``reverse`` from its last."""

    b: Builder
    axis: int
    fold: str
    reverse: bool

    def run(self, x: Val, exclusive: bool, levels: int, tag: str = "") -> Val:
        """x's shape: of every element the fold of all up to it, ``exclusive`` without itself; with
        so many ``levels`` of blocks."""
        n = x.shape[self.axis]
        if not levels:
            return self._short(x, exclusive, tag)
        blocks = simplify(Binary("floordiv", n + (BLOCK - 1), Const(BLOCK)))
        totals = self._totals(x, blocks, f"{tag}totals")
        ahead = self.run(totals, True, levels - 1, f"{tag}ahead")
        lanes = self.axis == x.rank - 1 and x.dtype == "f32"  # they run along the axis
        inside = self._inside if lanes else self._beside
        made = inside(x, blocks, exclusive, f"{tag}inside")

        def body(index: Index) -> Expr:
            block, place = (Binary(k, index[self.axis], Const(BLOCK)) for k in ("floordiv", "mod"))
            here = self._along(index, block, place) if made.rank > x.rank else index
            return binary(FOLD_STEP[self.fold], self.b.at(ahead, self._along(index, block)),
                          self.b.at(made, here))
        return self.b.map(x.shape, body, [ahead, made], tag)

    def _along(self, index: Index, *here: Expr) -> Index:
        """``index`` with something else where the axis is."""
        return *index[:self.axis], *here, *index[self.axis + 1:]

    def _short(self, x: Val, exclusive: bool, tag: str) -> Val:
        """Every element folds all up to it: n^2 steps."""
        axes = self.b.axes(x.shape)
        k = Axis("k", x.shape[self.axis])
        return self._folded(x, axes, k, self._along(axes, k),
                            [self._reaches(exclusive, k, axes[self.axis])], tag)

    def _totals(self, x: Val, blocks: Expr, tag: str) -> Val:
        """The fold of every block: x's shape with ``blocks`` elements along the axis."""
        axes = self.b.axes(self._along(x.shape, blocks))
        k = Axis("k", Const(BLOCK))
        at = axes[self.axis] * BLOCK + k
        return self._folded(x, axes, k, self._along(axes, at), self._within(x, blocks, at), tag)

    def _inside(self, x: Val, blocks: Expr, exclusive: bool, tag: str) -> Val:
        """The scan of every block: x's shape with (``blocks``, ``BLOCK``) in the axis's place."""
        axes = self.b.axes(self._along(x.shape, blocks, Const(BLOCK)))
        block, place = axes[self.axis:self.axis + 2]
        k = Axis("k", Const(BLOCK))
        at = block * BLOCK + k
        source = (*axes[:self.axis], at, *axes[self.axis + 2:])
        return self._folded(x, axes, k, source, [self._reaches(exclusive, k, place),
                                                 *self._within(x, blocks, at)], tag)

    def _beside(self, x: Val, blocks: Expr, exclusive: bool, tag: str) -> Val:
        """The same of x's own shape, for an axis beside which lanes run."""
        axes = self.b.axes(x.shape)
        block, place = (Binary(k, axes[self.axis], Const(BLOCK)) for k in ("floordiv", "mod"))
        k = Axis("k", Const(BLOCK))
        at = block * BLOCK + k
        return self._folded(x, axes, k, self._along(axes, at), [
            self._reaches(exclusive, k, place), compare("lt", at, x.shape[self.axis])], tag)

    def _folded(self, x: Val, axes: tuple[Axis, ...], k: Axis, source: Index, conds: list[Expr],
                tag: str) -> Val:
        """The fold over ``k`` of the elements ``source`` of x for which all ``conds`` hold."""
        element: Expr = self.b.load(x, source)
        if conds:
            element = Where(conjunction(conds), element, neutral_value(self.fold, x.dtype))
        return self.b.compute(axes, element, (k,), self.fold, tag)

    def _reaches(self, exclusive: bool, k: Expr, i: Expr) -> Expr:
        """Whether element ``k`` belongs to what is folded for element ``i``."""
        up_to = ("le", "lt"), ("ge", "gt")
        return compare(up_to[self.reverse][exclusive], k, i)

    def _within(self, x: Val, blocks: Expr, at: Expr) -> list[Expr]:
        """The condition that ``at`` is an element of x; none where all blocks are whole."""
        n = x.shape[self.axis]
        return [] if are_equal(blocks * BLOCK, n) else [compare("lt", at, n)]


def _steady_sum(b: Builder, x: Val, axis: int, exclusive: bool, reverse: bool) -> Val | None:
    """Sum of a shape value that does not change along the axis: value times count."""
    probe = b.axes(x.shape)
    if any(e == probe[axis] for e in walk(b.at(x, probe))):
        return None
    extent = x.shape[axis]

    def body(index: Index) -> Expr:
        i = index[axis]
        count = (extent - i if reverse else i + 1) - (1 if exclusive else 0)
        return simplify(b.at(x, index) * count)
    return b.map(x.shape, body, [x]) if x.dtype == "i64" else None
