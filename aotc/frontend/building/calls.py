"""Library kernels as operators use them (``ir/library.py``): for targets that have them, where
rows are longer than what expressions compare pair by pair."""

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.declared import Count, expect, tell_count, zero_behind
from aotc.frontend.building.symbolic import cast, const
from aotc.frontend.building.values import At, Index, Val
from aotc.ir.dtypes import INDEX
from aotc.ir.expr import Const, Expr, Where, compare, maximum, minimum
from aotc.ir.library import JOINS
from aotc.ir.program import static_shape

SMALL_ROW = 32  # elements: up to here every pair is compared, in kernels that fuse with others


def calls_library(b: Builder, kernel: str, extent: Expr) -> bool:
    """True if rows of ``extent`` elements are given to a library kernel."""
    n = static_shape((extent,))
    return b.may_call(kernel) and (n is None or n[0] > SMALL_ROW)


def top_k(b: Builder, x: Val, axis: int, k: Expr, largest: bool) -> Val:
    """Places i64 of the first ``k`` elements along the axis, of x's shape but for that axis."""
    rows = x
    if axis != x.rank - 1:
        def source(i: Index) -> Index:
            return i[:axis] + (i[-1],) + i[axis:-1]
        rows = b.move(x, x.shape[:axis] + x.shape[axis + 1:] + (x.shape[axis],), source, "rows")
    order, = b.call("topk", (rows,), (rows.shape[:-1] + (k,),), largest=int(largest))
    return b.move(order, x.shape[:axis] + (k,) + x.shape[axis + 1:],
                  lambda i: i[:axis] + i[axis + 1:] + (i[axis],), out=1)


def find_places(b: Builder, flags: Val, count: Count) -> At:
    """Function from a number below ``count`` to the place of that element among the bool Val
    ``flags`` [n] that hold; another count of them is a fault."""
    place, total = b.call("kept", (flags,), ((count.extent,), ()))
    return check_place(b, place, total, count, flags.shape[0])


def check_place(b: Builder, place: Val, total: Val, count: Count, n: Expr) -> At:
    """Function from an index below ``count`` to ``place[index]``, an index below ``n``; a fault
    where ``total`` is another number than ``count``."""
    b.nonempty(n, (count.extent,), "elements to choose from")
    expect_count(b, total, count)
    # places that another count leaves over are none: that is told of, here they only stay inside
    return lambda at: minimum(maximum(b.load(place, (at,)), Const(0)), n - 1)


def expect_count(b: Builder, total: Val, count: Count) -> None:
    """The rule that the data gives ``count`` elements, ``total`` [] being their number; where there
    is room for any number, the caller is told it."""
    if count.room:
        tell_count(b, total, count)
        return
    expect(b, [(b.load(total, ()), count.extent)],
           f"the data must give the declared {count.extent} elements, their number is")


def find_unique(b: Builder, rows: Val, count: Count, ordered: int) -> tuple[Val, ...]:
    """(place, inverse, counts, total) of the rows [n, m], see ``ir/library.py``."""
    n = rows.shape[0]
    return b.call("unique", (rows,), ((count.extent,), (n,), (count.extent,), (), (n,)),
                  sorted=int(ordered))[:4]


def suppress_boxes(b: Builder, boxes: Val, scores: Val, most: Val | None, limit: Val | None,
                   least: Val | None, count: Count) -> Val:
    """The selected boxes [count.extent, 3]; most, limit, least: Vals of one element or None."""
    bound, numbers = _bounds(b, boxes.dtype, most, limit, least)
    picked, total, _ = b.call(
        "nms", (boxes, scores, bound, numbers), ((count.extent, Const(3)), (), (boxes.shape[1],)),
        threshold=int(least is not None), centred=int(bool(b.node.attr("center_point_box", 0))))
    expect_count(b, total, count)
    return b.map((count.extent, Const(3)), lambda i: zero_behind(b, count, i[0], b.at(picked, i)),
                 [picked])


def suppress_in_classes(b: Builder, boxes: Val, scores: Val, most: Val | None, limit: Val | None,
                        least: Val | None, rounds: Expr) -> Val:
    """The selected boxes of every class, at most ``rounds`` of them, then -1: i64[batch, class,
    rounds]; most, limit, least: as for ``suppress_boxes``."""
    lead = scores.shape[:2]
    owner = b.map(lead, lambda i: i[0], [], "owner")
    picked, _ = b.call(
        "suppress", (scores, owner, boxes, *_bounds(b, boxes.dtype, most, limit, least)),
        ((*lead, rounds), scores.shape), threshold=int(least is not None),
        centred=int(bool(b.node.attr("center_point_box", 0))))
    return picked


def _bounds(b: Builder, dtype: str, most: Val | None, limit: Val | None,
            least: Val | None) -> tuple[Val, Val]:
    """(most i64[], numbers [2]): how many boxes, and the overlap and score that bound them."""
    def number(v: Val | None, other: float, dtype: str) -> Expr:
        return const(other, dtype) if v is None else cast(dtype, b.at(v, (Const(0),) * v.rank))
    given = [v for v in (limit, least) if v is not None] or [b.scalar_val(0, dtype)]
    numbers = b.map((Const(2),), lambda i: Where(
        compare("eq", i[0], Const(0)), number(limit, 0, dtype), number(least, 0, dtype)), given,
        "numbers")
    bound = b.map((), lambda i: number(most, 0, INDEX),
                  [b.scalar_val(0, INDEX) if most is None else most], "most")
    return bound, numbers


def scatter_rows(b: Builder, x: Val, places: Val, updates: Val, join: str, tag: str = "") -> Val:
    """``x`` with rows of ``updates`` put in, one for every element of ``places``: where in x its
    first element belongs.  ``join``: what becomes of an element that is there (``JOINS``)."""
    return b.call("scatter", (x, places, updates), (x.shape,), (tag,), join=JOINS.index(join))[0]
