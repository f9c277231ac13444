"""Statements that need not be there: names that rename, loops of one turn."""

import pytest

from aotc.ir.expr import Axis, Binary, Const, Load, Var
from aotc.ir.statements import (
    TILE,
    For,
    If,
    Let,
    Put,
    Range,
    Section,
    Spread,
    Start,
    Store,
    Update,
    walk_body,
)
from aotc.sched.expand.prune import prune_body

N = Const(8)
I, LO, ROW = (Axis(name, N) for name in ("i", "i_lo", "row"))


def store(at):
    return Store((Put("y", at, Load("x", (at,), "f32")),))


def test_a_name_of_a_name_is_that_name():
    """A work item's keeps its own bounds: of the number of a work item few are known."""
    body = prune_body((Let(LO, TILE),
                       Section("", (For(I, LO, LO + 1, (Let(ROW, I), store(ROW))),))))
    assert body == (Section("", (store(Axis(TILE.name, N)),)),)
    assert prune_body((For(I, Const(0), N, (Let(ROW, I), store(ROW))),)) == (
        For(I, Const(0), N, (store(I),)),)


@pytest.mark.parametrize("between", [Update((LO,), (LO + 1,)), For(LO, Const(0), N, (store(LO),)),
                                     For(ROW, Const(0), N, (store(ROW),))])
def test_a_name_stays_where_either_one_changes(between):
    body = (Let(ROW, LO), between, store(ROW))
    assert prune_body(body) == body


def test_names_of_other_values_stay():
    body = (Let(ROW, LO * 2), store(ROW))
    assert prune_body(body) == body


def test_points_of_threads_take_the_only_value_of_an_axis():
    points = (Range(ROW, LO, LO + 1), Range(I, Const(0), N))
    spread, = prune_body((Spread(points, "threads", 1, (store(ROW + I),)),))
    assert spread.ranges == points  # whose places count
    assert spread.body == (store(LO + I),) or spread.body == (store(I + LO),)


def test_a_loop_of_one_turn_keeps_its_names_apart():
    acc = Var("acc", "f32")
    inner = (Start(acc, "sum"), store(I))
    body = prune_body((For(I, LO, LO + 1, inner), store(LO)))
    assert not any(isinstance(s, For) for s in walk_body(body))
    assert [type(s).__name__ for s in body] == ["Start", "Store", "Store"]  # no other has them
    again = prune_body((For(I, LO, LO + 1, inner), For(I, LO, LO + 1, inner)))
    assert [type(s).__name__ for s in again] == ["Scope", "Scope"]


def test_a_long_step_that_takes_one_value_decides_conditions_on_it():
    first = If(Binary("eq", I, LO * 64), (store(I),), (store(I + 1),))
    body = prune_body((For(I, LO * 64, LO * 64 + 64, (first, store(I)), step=64),))
    assert body == (Let(I, LO * 64), store(I), store(I))
    cut = For(I, Const(0), Const(40), (store(I),), step=64)
    assert prune_body((cut,)) == (store(Const(0)),)
    two = For(I, Const(0), Const(65), (store(I),), step=64)
    assert prune_body((two,)) == (two,)
    rest = For(I, Const(0), Const(40), (store(I),), step=64, rest=(store(I),))
    assert prune_body((rest,)) == (rest,)  # no whole step fits


def test_names_inside_of_others_keep_a_loop_of_one_turn_apart():
    """Compilers warn of a name that hides another."""
    turn = For(I, LO, LO + 1, (Let(ROW, I + LO), store(ROW + 1), store(ROW)))
    loop = For(ROW, Const(0), N, (store(ROW),))
    assert [type(s).__name__ for s in prune_body((turn, loop))] == ["Scope", "For"]
