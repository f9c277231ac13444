"""Folds of runs of rows, as many as there are bags (``frontend/embedding_bag.py``)."""

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.declared import reads_data
from aotc.frontend.building.symbolic import cast, const
from aotc.frontend.building.values import Index, Val
from aotc.frontend.embedding_bag import Bags
from aotc.ir.dtypes import INDEX
from aotc.ir.expr import Axis, Binary, Const, Expr, Where, compare, maximum, minimum
from aotc.ir.program import neutral_value
from aotc.ir.simplify import simplify


def folded_bags(b: Builder, bags: Bags, fold: str, mean: bool = False) -> Val:
    """[bags, ..]: the rows of every run put together by ``fold``; ``mean``: divided by their
    number.  UnsupportedError where data says how many bags there are."""
    rows, starts, ends = (b.input(k) for k in range(3))
    count = b.elements(b.known(b.input(3)))[0]
    if reads_data(count):
        raise b.unsupported("bags of which data says how many there are",
                            "compute their number from the shapes of inputs")
    if starts.rank != 1 or ends.rank != 1 or not rows.rank:
        raise b.bad(f"lists of ends and rows expected, got {starts}, {ends} and {rows}")
    number = simplify(maximum(count, Const(0)))
    for v, shift in ((starts, bags.first), (ends, bags.last)):
        b.require("le", number + shift, v.shape[0], "every bag needs its ends")
    rest = b.arg(4)
    first = _place(b, starts, bags.first, number, rows)
    last = _place(b, ends, bags.last, number, rows, None if bags.divisor else rest)
    shape = (number, *rows.shape[1:])
    axes, row = b.axes(shape), Axis("row", rows.shape[0])
    held = Binary("and", compare("ge", row, b.at(first, axes[:1])),
                  compare("lt", row, b.at(last, axes[:1])))
    total = b.compute(axes, Where(held, b.at(rows, (row, *axes[1:])),
                                  neutral_value(fold, rows.dtype)),
                      (row,), fold, "folded" if mean or bags.zero else "")
    if not mean and not bags.zero:
        return total

    def body(i: Index) -> Expr:
        e = b.at(total, i)
        if mean:
            length = maximum(b.at(last, i[:1]) - b.at(first, i[:1]), Const(0))
            if rest is not None and bags.divisor:
                left = _element(b, rest) - cast(INDEX, b.at(starts, (i[0] + bags.first,)))
                length = Where(compare("eq", i[0], number - 1), maximum(left, Const(1)), length)
            e = e / cast(rows.dtype, length)
        if not bags.zero:
            return e
        equal = compare("eq", b.at(starts, (i[0] + bags.first,)), b.at(ends, (i[0] + bags.last,)))
        return Where(equal, const(0, rows.dtype), e)
    return b.map(shape, body, [total, first, last, starts, ends])


def _place(b: Builder, numbers: Val, shift: int, count: Expr, rows: Val,
           rest: Val | None = None) -> Val:
    """Where runs begin or end among the rows, as Slice clamps it; ``rest``: where the last one
    does."""
    extent = rows.shape[0]

    def body(i: Index) -> Expr:
        at = cast(INDEX, b.at(numbers, (i[0] + shift,)))
        if rest is not None:
            at = Where(compare("eq", i[0], count - 1), _element(b, rest), at)
        return minimum(maximum(Where(compare("lt", at, Const(0)), at + extent, at), Const(0)),
                       extent)
    return b.map((count,), body, [v for v in (numbers, rows, rest) if v is not None], "end")


def _element(b: Builder, v: Val) -> Expr:
    return cast(INDEX, b.at(v, (Const(0),) * v.rank))
