"""Non-maximum suppression: by library kernels, of everything or of each class; of known elements
round by round the best box that is left, for all batches and classes at once, and the boxes that
overlap it too much are struck out."""

from collections.abc import Sequence

import numpy as np

from aotc.frontend.building import calls
from aotc.frontend.building.bodies import MOST_UNROLLED
from aotc.frontend.building.builder import Builder
from aotc.frontend.building.declared import Count, reads_data, room, zero_behind
from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import cast, const
from aotc.frontend.building.values import Index, Result, Val
from aotc.frontend.graph import Node
from aotc.frontend.ops.tensors.ops_control import stack
from aotc.frontend.ops.tensors.ops_select import kept_places
from aotc.frontend.ops.tensors.ops_shape import product
from aotc.frontend.ops.tensors.reshape import source_index
from aotc.frontend.ranges import most_of
from aotc.ir.dtypes import INDEX
from aotc.ir.expr import (
    Axis,
    Binary,
    Const,
    Expr,
    Var,
    Where,
    compare,
    maximum,
    minimum,
)
from aotc.ir.program import Fold, static_shape
from aotc.ir.simplify import simplify

Given = tuple[Val | None, Val | None, Val | None]  # most boxes of a class, overlap, score


def _area(box: Sequence[Expr]) -> Expr:
    return (box[2] - box[0]) * (box[3] - box[1])


def _corners(b: Builder, boxes: Val, batch: Expr, at: Expr,
             centred: bool) -> tuple[Expr, Expr, Expr, Expr]:
    """(low, low, high, high) of a box as expressions."""
    p = [b.at(boxes, (batch, at, Const(k))) for k in range(4)]
    if centred:
        half = const(0.5, boxes.dtype)
        return (p[0] - p[2] * half, p[1] - p[3] * half, p[0] + p[2] * half, p[1] + p[3] * half)
    return (minimum(p[0], p[2]), minimum(p[1], p[3]), maximum(p[0], p[2]), maximum(p[1], p[3]))


def _overlap(one: Sequence[Expr], two: Sequence[Expr], dtype: str) -> Expr:
    """Intersection over union; 0 where either has no area."""
    zero = const(0, dtype)
    sides = [maximum(minimum(one[k + 2], two[k + 2]) - maximum(one[k], two[k]), zero)
             for k in (0, 1)]
    common = sides[0] * sides[1]
    ratio = common / (_area(one) + _area(two) - common)
    empty = Binary("or", compare("le", _area(one), zero), compare("le", _area(two), zero))
    return Where(empty, zero, ratio)


@op("NonMaxSuppression", since=10)
def non_max_suppression(node: Node, b: Builder) -> Result:
    """The boxes that are declared to be selected; another number of them is a fault.  Where no
    number is declared, room for all that may be."""
    boxes, scores = b.input(0), b.input(1)
    b.need(boxes, "f")
    b.same_dtype(boxes, scores)
    if boxes.rank != 3 or scores.rank != 3:
        raise b.bad("boxes must be [batch, box, 4] and scores [batch, class, box]")
    for mine, other, why in ((boxes.shape[0], scores.shape[0], "as many batches of scores as of "
                              "boxes"), (boxes.shape[1], scores.shape[2], "a score for every box"),
                             (boxes.shape[2], 4, "four numbers a box")):
        b.require("eq", mine, other, why)
    given = b.arg(2), b.arg(3), b.arg(4)
    if given[2] is None and b.met.folds:  # boxes that are none have this score
        given = *given[:2], b.scalar_val(float("-inf"), scores.dtype)
    count = room(b, [(0, 0)], _most(b, scores, given[0])) or Count(b.declared(rank=2)[0])
    if b.may_call("nms"):
        return calls.suppress_boxes(b, boxes, scores, *given, count)
    if Const(0) in scores.shape:
        b.require("eq", count.extent, 0, "of no boxes none is selected")
        return b.const(np.zeros((0, 3), np.int64))
    table = _by_calls(b, boxes, scores, given, count) if b.may_call("suppress") else _by_rounds(
        b, boxes, scores, given, count)
    flat = (product(table.shape),)

    def at(i: Expr) -> Index:
        return tuple(source_index(table.shape, flat)((i,)))
    flags = b.map(flat, lambda i: compare("ge", b.at(table, at(i[0])), Const(0)), [table], "flags")
    place = kept_places(b, flags, count, "kept")

    def row(i: Index) -> Expr:
        to = at(place(i[0]))
        return zero_behind(b, count, i[0], Where(compare("eq", i[1], Const(0)), to[0], Where(
            compare("eq", i[1], Const(1)), to[1], b.at(table, to))))
    return b.map((count.extent, Const(3)), row, [table])


def _by_calls(b: Builder, boxes: Val, scores: Val, given: Given, count: Count) -> Val:
    """The boxes selected of every class, in order, then -1: i64[batch, class, rounds]."""
    each = b.scalar(given[0])
    rounds = minimum(count.extent + 1, scores.shape[2])
    if each is not None:
        rounds = minimum(rounds, Const(max(1, int(each))))
    return calls.suppress_in_classes(b, boxes, scores, *given, simplify(rounds))


def _by_rounds(b: Builder, boxes: Val, scores: Val, given: Given, count: Count) -> Val:
    """The same by expressions, of known extents."""
    dims = static_shape(scores.shape)
    if dims is None:
        raise b.unsupported("symbolic batches, classes or boxes", "pin the dimensions")
    each = b.scalar(given[0])  # of a class, no later round counts
    rounds = min(b.fixed(count.extent) + 1, dims[2], dims[2] if each is None else max(1, int(each)))
    if rounds > MOST_UNROLLED:
        raise b.unsupported(f"{rounds} selected boxes",
                            f"at most {MOST_UNROLLED} rounds are unrolled")
    most, limit, least = (_one(b, v) for v in given)
    most = Const(0) if most is None else cast(INDEX, most)
    limit = const(0, boxes.dtype) if limit is None else limit
    alive = b.map(scores.shape, lambda i: Const(True, "bool") if least is None else compare(
        "gt", b.at(scores, i), least), [scores], "alive")
    chosen = []
    for r in range(rounds):
        best = _best(b, scores, alive, r)
        chosen.append(best)
        alive = _left(b, boxes, alive, best, limit, r)
    table = stack(b, chosen, 2)
    return b.map(table.shape, lambda i: Where(compare("lt", i[2], most), b.at(table, i), Const(-1)),
                 [table], "table")


def _most(b: Builder, scores: Val, most: Val | None) -> Expr:
    """The largest number of boxes that can be selected."""
    batches, classes, boxes = scores.shape
    each = Const(0) if most is None else cast(INDEX, b.at(most, (Const(0),) * most.rank))
    each = (most_of(b, each) or boxes) if reads_data(each) else maximum(each, Const(0))
    each = minimum(each, boxes)
    return batches * classes * each


def _one(b: Builder, v: Val | None) -> Expr | None:
    return None if v is None else b.at(v, (Const(0),) * v.rank)


def _best(b: Builder, scores: Val, alive: Val, r: int) -> Val:
    """[batch, class]: the box with the highest score among those alive, -1 if there is none."""
    outer, j = b.axes(scores.shape[:2]), Axis("j", scores.shape[2])
    at = outer + (j,)
    low = const(float("-inf"), scores.dtype)
    element, best, arg = Var("x", scores.dtype), Var("best", scores.dtype), Var("arg", INDEX)
    wins = compare("gt", element, best)
    fold = Fold((("best", scores.dtype), ("arg", INDEX)), (low, Const(-1)),
                (Where(wins, element, best), Where(wins, j, arg)))
    body = Where(b.load(alive, at), b.load(scores, at), low)
    return b.compute_fold(outer, (j,), fold, body, (f"score{r}", f"best{r}"))[1]


def _left(b: Builder, boxes: Val, alive: Val, best: Val, limit: Expr, r: int) -> Val:
    """The boxes alive after a round: not the chosen one, nor what overlaps it beyond the limit."""
    centred = bool(b.node.attr("center_point_box", 0))
    n = alive.shape[2]

    def body(i: Index) -> Expr:
        first = b.at(best, i[:2])
        at = b.checked(maximum(first, Const(0)), n)
        apart = compare("le", _overlap(_corners(b, boxes, i[0], at, centred),
                                       _corners(b, boxes, i[0], i[2], centred), boxes.dtype), limit)
        stays = Binary("and", apart, compare("ne", i[2], first))
        gone = Binary("or", compare("lt", first, Const(0)), stays)
        return Binary("and", b.at(alive, i), gone)
    return b.map(alive.shape, body, [alive, best, boxes], f"left{r}")
