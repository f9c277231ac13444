"""Linear algebra of com.microsoft: equations by elimination, which is a loop over columns."""

from collections.abc import Sequence

import numpy as np

from aotc.frontend.building.bodies import Made, loop
from aotc.frontend.building.spelling import Spelling, spells
from aotc.frontend.building.symbolic import const
from aotc.frontend.building.values import Index, Result, Val
from aotc.frontend.ops.contrib.ops_recurrence import rounded
from aotc.ir.expr import Axis, Expr, Unary, Where, as_expr, compare


@spells("Inverse", "X")
def inverse(s: Spelling) -> Result:
    """Of square matrices [.., n, n]; one without an inverse gives numbers that are not finite."""
    x = s.val("X")
    if x.rank < 2:
        raise s.b.bad(f"{x} is no matrix")
    n = x.shape[-1]
    s.b.require("eq", x.shape[-2], n, "a matrix with an inverse is square")
    wide = s.cast(x, "f32") if x.dtype == "f16" else x
    one = s.b.map((n, n), lambda i: Where(compare("eq", i[0], i[1]), as_expr(1), as_expr(0)),
                  [s.places(n)], tag="one")
    unit = s("Expand", s.cast(one, wide.dtype), s.dims(*x.shape))
    return rounded(s, solved(s, wide, unit), x.dtype, 0)


@spells("Solve", "A B", "lower transposed")
def solve(s: Spelling) -> Result:
    """X of A X = B, as skl2onnx writes it: a product with the inverse where A is constant.
    UnsupportedError for a constant that has none."""
    a, given = s.val("A"), s.val("B")
    if a.array is None:
        turned = s.transpose(a, 1, 0) if s.attr("transposed", 0) else a
        if s.attr("lower", 0):
            turned = s("Trilu", turned, upper=int(bool(s.attr("transposed", 0))))
        return s("Identity", solved(s, turned, given), out=0)
    if a.array.ndim != 2 or a.array.shape[0] != a.array.shape[1]:
        raise s.b.bad(f"{a} is no square matrix")
    wide = np.tril(a.array.astype(np.float64)) if s.attr("lower", 0) else a.array.astype(np.float64)
    try:
        made = np.linalg.inv(wide.T if s.attr("transposed", 0) else wide)
    except np.linalg.LinAlgError as err:
        raise s.b.unsupported("a matrix without an inverse", "give one of full rank") from err
    return s("MatMul", s.b.const(made.astype(a.array.dtype)), given, out=0)


def solved(s: Spelling, a: Val, wanted: Val) -> Val:
    """x of a x = ``wanted`` for matrices [.., n, n] and [.., n, m]: Gauss-Jordan elimination, the
    largest element of what is left of a column being its pivot."""
    n = a.shape[-1]

    def one(turn: Expr, states: Sequence[Val], cut: Sequence[Val]) -> Made:
        column = s.b.checked(turn, n)  # it is, of extents that are not known too
        pivot = _pivot(s, states[0], column, n)
        return [_eliminated(s, states[0], v, pivot, column, n) for v in states], [], None
    (_, made), _, _ = loop(s.b, "columns", n, [a, wanted], [], [], one)
    return made


def _pivot(s: Spelling, v: Val, turn: Expr, n: Expr) -> Val:
    """[..]: the row of the pivot of column ``turn`` of ``v``, of those that had none yet."""
    b = s.b
    batch, r = b.axes(v.shape[:-2]), Axis("row", n)
    size, left = Unary("abs", b.at(v, (*batch, r, turn))), compare("ge", r, turn)
    most = b.compute(batch, Where(left, size, const(-1, v.dtype)), (r,), "max", "most")
    best = compare("eq", size, b.load(most, batch))
    found = b.compute(batch, Where(left, Where(best, r, n), n), (r,), "min", "found")

    def place(i: Index) -> Expr:  # a column of NaN has no largest element
        return Where(compare("lt", b.at(found, i), n), b.at(found, i), turn)
    return b.map(found.shape, place, [found], tag="pivot")


def _eliminated(s: Spelling, a: Val, v: Val, pivot: Val, turn: Expr, n: Expr) -> Val:
    """``v`` [.., n, m] with the row of the pivot in its place and scaled, and taken from all others
    as often as ``a`` says."""
    b = s.b

    def row(i: Index) -> Expr:
        return b.checked(b.index_at(pivot, i), n)
    scaled = b.map((*v.shape[:-2], v.shape[-1]), lambda i: b.at(v, (*i[:-1], row(i[:-1]), i[-1]))
                   / b.at(a, (*i[:-1], row(i[:-1]), turn)), [v, pivot], tag="row")

    def element(i: Index) -> Expr:
        own = Where(compare("eq", i[-2], row(i[:-2])), turn, i[-2])  # what stood in its place
        mine = b.at(scaled, (*i[:-2], i[-1]))
        rest = b.at(v, (*i[:-2], own, i[-1])) - b.at(a, (*i[:-2], own, turn)) * mine
        return Where(compare("eq", i[-2], turn), mine, rest)
    return b.map(v.shape, element, [v, scaled, pivot], tag="eliminated")
