"""Determinants: of small matrices by expansion, else by elimination, a loop over columns."""

from collections.abc import Sequence

from aotc.frontend.building.bodies import Made, loop
from aotc.frontend.building.builder import Builder
from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import cast, const
from aotc.frontend.building.values import Index, Result, Val
from aotc.frontend.graph import Node
from aotc.ir.expr import Axis, Binary, Const, Expr, Unary, Where, compare
from aotc.ir.program import static_shape

EXPANDED = 4  # rows: an expansion has n! products
REAL = "f64"  # of an elimination: what cancels is as small as its rounding


@op("Det", since=11)
def det(node: Node, b: Builder) -> Result:
    x = b.input(0)
    b.need(x, "f")
    if x.rank < 2:
        raise b.bad(f"{x} is no matrix")
    b.require("eq", x.shape[-2], x.shape[-1], "a matrix with a determinant is square")
    n = static_shape(x.shape[-1:])
    return _expanded(b, x, n[0]) if n is not None and n[0] <= EXPANDED else _eliminated(b, x)


def _expanded(b: Builder, x: Val, n: int) -> Val:
    """Along rows, which is exact in structure."""
    def minor(index: Index, rows: list[int], columns: list[int]) -> Expr:
        if not rows:
            return const(1, x.dtype)
        terms = []
        for k, c in enumerate(columns):
            e = b.at(x, index + (Const(rows[0]), Const(c)))
            if len(rows) > 1:
                e = e * minor(index, rows[1:], columns[:k] + columns[k + 1:])
            terms.append(e)
        total = terms[0]
        for k, e in enumerate(terms[1:]):
            total = total + e if k % 2 else total - e
        return total
    every = list(range(n))
    return b.map(x.shape[:-2], lambda i: minor(i, every, every), [x])


def _eliminated(b: Builder, x: Val) -> Val:
    """The product of the pivots, each the largest element of what is left of its column."""
    n = x.shape[-1]
    wide = b.map(x.shape, lambda i: cast(REAL, b.at(x, i)), [x], "wide")
    one = b.compute(b.axes(x.shape[:-2]), const(1, REAL), tag="one")

    def column(turn: Expr, states: Sequence[Val], cut: Sequence[Val]) -> Made:
        at = b.checked(turn, n)  # it is, of extents that are not known too
        left, found = states
        pivot = _pivot(b, left, at, n)

        def value(i: Index) -> Expr:
            return b.at(left, (*i, b.checked(b.index_at(pivot, i), n), at))

        def product(i: Index) -> Expr:
            moved = compare("ne", b.index_at(pivot, i), at)
            e = b.at(found, i) * value(i)
            return Where(moved, Unary("neg", e), e)
        after = b.map(found.shape, product, [left, found, pivot], "product")

        def rest(i: Index) -> Expr:
            lead, row, c = i[:-2], i[-2], i[-1]
            place = b.checked(b.index_at(pivot, lead), n)
            own = Where(compare("eq", row, place), at, row)  # what stood in its place
            top = value(lead)
            share = Where(compare("eq", top, const(0, REAL)), const(0, REAL),
                          b.at(left, (*lead, own, at)) / top)
            below = b.at(left, (*lead, own, c)) - share * b.at(left, (*lead, place, c))
            return Where(compare("gt", row, at), below, const(0, REAL))
        return [b.map(left.shape, rest, [left, pivot], "left"), after], [], None
    (_, made), _, _ = loop(b, "columns", n, [wide, one], [], [], column)
    return b.map(made.shape, lambda i: cast(x.dtype, b.at(made, i)), [made])


def _pivot(b: Builder, v: Val, turn: Expr, n: Expr) -> Val:
    """[..]: the row of the largest element of column ``turn`` of ``v`` [.., n, n], from row
    ``turn`` on."""
    batch, r = b.axes(v.shape[:-2]), Axis("row", n)
    size, left = Unary("abs", b.at(v, (*batch, r, turn))), compare("ge", r, turn)
    most = b.compute(batch, Where(left, size, const(-1, v.dtype)), (r,), "max", "most")
    best = Binary("and", left, compare("eq", size, b.load(most, batch)))
    found = b.compute(batch, Where(best, r, n), (r,), "min", "found")

    def place(i: Index) -> Expr:  # a column of NaN has no largest element
        return Where(compare("lt", b.at(found, i), n), b.at(found, i), turn)
    return b.map(found.shape, place, [found], "pivot")
