"""The cheapest way through a matrix of costs, by which speech is aligned with its words."""

from collections.abc import Sequence

import numpy as np

from aotc.frontend.building.bodies import Made, loop
from aotc.frontend.building.calls import expect_count
from aotc.frontend.building.declared import Count, room, zero_behind
from aotc.frontend.building.spelling import Spelling, spells
from aotc.frontend.building.symbolic import cast, conjunction, const
from aotc.frontend.building.values import Index, Result, Val
from aotc.ir.expr import Axis, Const, Expr, Where, compare, maximum, minimum
from aotc.ir.simplify import simplify

_BOTH, _ROW, _COLUMN = range(3)  # how a way came to a place: from which neighbour before it


@spells("DynamicTimeWarping", "input")
def time_warping(s: Spelling) -> Result:
    """[2, length] of i32: the places (row, column) of the way of least cost from the first to the
    last, each step one row, one column, or one of both further."""
    b, costs = s.b, s.cast(s.val("input"), "f32")
    costs = s("Squeeze", costs, s.ints(0)) if costs.rank == 3 else costs
    rows, columns = costs.shape
    for extent in (rows, columns):
        b.nonempty(extent, costs.shape, "a place to start from")
    most = simplify(rows + columns - 1)
    steps = _steps(s, costs, most)
    path, there = _back(s, steps, rows, columns, most)
    r = Axis("r", most)
    total = b.compute((), b.load(there, (r,)), (r,), "sum", "total")
    count = room(b, [(0, 1)], most) or Count(b.declared(0, 2)[1])
    expect_count(b, total, count)

    def place(i: Index) -> Expr:
        at = maximum(minimum(b.load(total, ()) - 1 - i[1], most - 1), Const(0))
        return cast("i32", b.load(path, (at, i[0])))
    return b.map((Const(2), count.extent), lambda i: zero_behind(b, count, i[1], place(i)),
                 [path, total])


def _steps(s: Spelling, costs: Val, most: Expr) -> Val:
    """[diagonals, rows] of i64: how the best way came to every place, whose row is given and whose
    column is the diagonal's number less that."""
    b, (rows, columns) = s.b, costs.shape
    never = const(np.inf, "f32")
    start = s("Expand", s.number(np.inf, "f32"), s.dims(rows))

    def one(turn: Expr, states: Sequence[Val], cut: Sequence[Val]) -> Made:
        before, last = states  # costs of the ways to the two diagonals before this one

        def came(i: Index) -> tuple[Expr, Expr, Expr]:
            above, first = maximum(i[0] - 1, Const(0)), compare("lt", i[0], Const(1))
            return (Where(first, never, b.at(before, (above,))),
                    Where(first, never, b.at(last, (above,))), b.at(last, i))

        def step(i: Index) -> Expr:
            both, row, column = came(i)
            by_row = conjunction([compare("lt", row, both), compare("lt", row, column)])
            by_both = conjunction([compare("lt", both, row), compare("lt", both, column)])
            return Where(by_both, Const(_BOTH), Where(by_row, Const(_ROW), Const(_COLUMN)))
        chosen = b.map((rows,), step, [before, last], tag="step")

        def cost(i: Index) -> Expr:
            both, row, column = came(i)
            way = b.at(chosen, i)
            old = Where(compare("eq", way, Const(_BOTH)), both,
                        Where(compare("eq", way, Const(_ROW)), row, column))
            place = turn - i[0]
            old = Where(compare("eq", turn, Const(0)), const(0, "f32"), old)
            inside = conjunction([compare("ge", place, Const(0)), compare("lt", place, columns)])
            at = maximum(minimum(place, columns - 1), Const(0))
            return Where(inside, b.at(costs, (i[0], at)) + old, never)
        now = b.map((rows,), cost, [costs, chosen], tag="cost")
        return [last, now], [chosen], None
    _, (chosen,), _ = loop(b, "diagonals", most, [start, start], [], [False], one)
    return chosen


def _back(s: Spelling, steps: Val, rows: Expr, columns: Expr, most: Expr) -> tuple[Val, Val]:
    """The way from its end: (its places [most, 2], 1 for those that it has, else 0)."""
    b = s.b
    end = s("Sub", s.dims(rows, columns), s.ints(1, 1))

    def one(turn: Expr, states: Sequence[Val], cut: Sequence[Val]) -> Made:
        at, = states
        row, column = (b.load(at, (Const(k),)) for k in (0, 1))
        on = conjunction([compare("ge", row, Const(0)), compare("ge", column, Const(0))])
        diagonal = maximum(minimum(row + column, most - 1), Const(0))
        way = b.load(steps, (diagonal, maximum(minimum(row, rows - 1), Const(0))))
        here = b.map((Const(1),), lambda i: Where(on, Const(1), Const(0)), [at], tag="on")
        shown = b.map((Const(2),), lambda i: b.at(at, i), [at], tag="here")

        def after(i: Index) -> Expr:
            other = Where(compare("eq", i[0], Const(0)), Const(_COLUMN), Const(_ROW))
            moves = conjunction([on, compare("ne", way, other)])
            return b.at(at, i) - Where(moves, Const(1), Const(0))
        return [b.map((Const(2),), after, [at, steps], tag="before")], [shown, here], None
    _, (path, there), _ = loop(b, "back", most, [end], [], [False, False], one)
    return path, s("Reshape", there, s.ints(-1))
