"""Equal expressions are one object, for as long as anything holds it."""

import copy
import gc
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pytest

from aotc.emit.text.cexpr import Argument
from aotc.ir.expr import Axis, Binary, Const, Guarded, Load, Sym, Var, Where, compare, walk

A = Axis("a", Sym("n", 1, 9))


def written():
    """An expression with most kinds of nodes, written anew."""
    a = Axis("a", Sym("n", 1, 9))
    x = Load("x", (a * 3 + Const(2), Guarded("checked", a, Const(4))), "f32")
    return Where(compare("lt", x, Const(0.5, "f32")), x * Const(-0.0, "f32"), Var("v", "f32"))


def test_what_is_written_again_is_the_same_object():
    assert written() is written()
    assert Const(value=7) is Const(7) is Const(True + 6, "i64")
    assert Axis(extent=Const(7), name="b") is Axis("b", Const(7)) is replace(A, name="b",
                                                                            extent=Const(7))


@pytest.mark.parametrize("one, other", [
    (Const(0.0, "f32"), Const(-0.0, "f32")), (Const(1), Const(1, "i32")),
    (Const(1, "bool"), Const(1)), (Const(1, "f32"), Const(1, "f64")),
    (Binary("add", A, A), Guarded("add", A, A)), (Guarded("checked", A, A), Guarded(
        "checked", A, A, "of the node")), (Sym("n", 1, 9), Sym("n", 1, 9, usual=3)),
    (Var("a"), Axis("a", Const(3))), (Sym("n"), Argument("n"))], ids=str)
def test_what_differs_is_another(one, other):
    assert one != other and len({one, other}) == 2


def test_no_number_is_itself():
    nan, again = (Const(float("nan"), "f32") for _ in range(2))
    assert nan is again


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
def test_copies_and_pickles_are_the_node_itself(how):
    assert how(written()) is written()


def test_a_pickle_opens_where_nothing_of_it_lives():
    data, text = pickle.dumps(written()), str(written())
    gc.collect()
    assert str(pickle.loads(data)) == text and pickle.loads(data) is written()


def test_what_nobody_holds_is_forgotten():
    kinds = {type(n) for n in walk(written())}
    gc.collect()
    before = {k: len(k.nodes) for k in kinds}
    many = [written() + Const(i, "f32") for i in range(100_000, 100_050)]
    assert len(Const.nodes) >= before[Const] + 50 and len(many) == 50
    del many
    gc.collect()
    assert {k: len(k.nodes) for k in kinds} == before


def test_threads_that_write_the_same_get_the_same():
    workers, rounds = 4, 200
    ready = Barrier(workers)

    def write(_):
        ready.wait()
        return [Binary("add", Var(f"thread{i}"), Const(i, "i32")) for i in range(rounds)]
    with ThreadPoolExecutor(workers) as pool:
        first, *others = pool.map(write, range(workers))
    assert all(a is b for other in others for a, b in zip(first, other))
