"""Products that no state goes into leave their loops; the values stay."""

import numpy as np
import pytest
from te_programs import Maker, ax, matmul

from aotc.ir.expr import Cast, Const, Sym, Unary
from aotc.ir.program import Buffer, Entry, Loop, State
from aotc.oracle.check_program import check_program
from aotc.oracle.evaluate import evaluate
from aotc.passes.hoist import hoist_products

ROUND = Sym("turn", 0, 63)
BATCH, WIDE, IN = 3, 8, 5
RNG = np.random.default_rng(11)
WEIGHTS = {"w": (IN, WIDE), "r": (WIDE, WIDE)}


def _body(product):
    """h_new = tanh(product + h r + turn); ``product(m)`` gives the name of it."""
    m = Maker("body")
    m.input("h", BATCH, WIDE)
    m.input("x_t", BATCH, IN)
    for name, shape in WEIGHTS.items():
        m.const(name, RNG.standard_normal(shape).astype(np.float32))
    xw = product(m)
    matmul(m, "hr", "h", "r")
    i, j = ax("i", BATCH), ax("j", WIDE)
    turn = Cast("f32", ROUND) * Const(0.01, "f32")
    m.step("h_new", (i, j), Unary("tanh", m.ref(xw, i, j) + m.ref("hr", i, j) + turn))
    m.step("seen", (i, j), m.ref("h_new", i, j))
    return m.done("h_new", "seen", syms=(ROUND,))


def _plain(m):
    matmul(m, "xw", "x_t", "w")
    return "xw"


def _scaled(m):
    """Of the entry's squares, which others read, too."""
    i, k = ax("i", BATCH), ax("k", IN)
    m.step("square", (i, k), m.ref("x_t", i, k) * m.ref("x_t", i, k))
    matmul(m, "sw", "square", "w")
    i, j = ax("i", BATCH), ax("j", WIDE)
    m.step("both", (i, j), m.ref("sw", i, j) + m.ref("square", i, Const(0)))
    return "both"


def _of_turned_weights(m):
    """The weights are the same in every round."""
    i, j = ax("i", IN), ax("j", WIDE)
    m.step("doubled", (i, j), m.ref("w", i, j) * 2.0)
    matmul(m, "xw", "x_t", "doubled")
    return "xw"


def _of_state(m):
    i, k = ax("i", BATCH), ax("k", IN)
    m.step("mixed", (i, k), m.ref("x_t", i, k) * m.ref("h", i, k))
    matmul(m, "xw", "mixed", "w")
    return "xw"


def _of_round(m):
    i, k = ax("i", BATCH), ax("k", IN)
    m.step("late", (i, k), m.ref("x_t", i, k) * Cast("f32", ROUND))
    matmul(m, "xw", "late", "w")
    return "xw"


def _loop(product, steps=6, backward=False, **ends):
    m = Maker("recurrent")
    m.input("x", steps, BATCH, IN)
    m.input("start", BATCH, WIDE)
    m.input("most", dtype="i64")
    trip = steps if isinstance(steps, Sym) else Const(steps)
    for name, shape, role in (("last", (), "output"), ("spare", (), "temp"),
                              ("all", (trip,), "output")):
        m.buffers[name] = Buffer(name, (*shape, Const(BATCH), Const(WIDE)), "f32", role)
    m.steps.append(Loop("layer", _body(product), trip, ROUND,
                        (State("start", "h", "h_new", "last", "spare"),),
                        (Entry("x", "x_t", backward),), (Entry("all", "seen", backward),), **ends))
    return m.done("last", "all")


def _products(steps):
    return [s.out for s in steps if getattr(s, "raxes", ())]


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("steps", [6, 1, Sym("seq", 0, 40)], ids=str)
@pytest.mark.parametrize("product", [_plain, _scaled, _of_turned_weights])
def test_a_product_of_entries_is_one_before_the_loop(product, steps, backward):
    before = _loop(product, steps, backward)
    after = hoist_products(before)
    assert check_program(after) == []
    *outside, loop = after.steps
    assert len(_products(outside)) == 1 and _products(loop.body.steps) == ["hr"]
    rng, count = np.random.default_rng(), steps if isinstance(steps, int) else 4
    feeds = {"x": rng.standard_normal((count, BATCH, IN)).astype(np.float32),
             "start": rng.standard_normal((BATCH, WIDE)).astype(np.float32), "most": np.array(9)}
    want = evaluate(before, feeds)
    for name, got in evaluate(after, feeds).items():
        np.testing.assert_allclose(got, want[name], rtol=1e-5, atol=1e-6)


def test_what_is_the_same_in_every_round_is_made_once():
    after = hoist_products(_loop(_of_turned_weights))
    shapes = {s.out: [e.value for e in after.shape(s.out)] for s in after.steps[:-1]}
    assert shapes == {"doubled_rounds": [IN, WIDE], "xw_rounds": [6, BATCH, WIDE]}


def test_what_only_the_product_read_stays_outside():
    loop = hoist_products(_loop(_plain)).steps[-1]
    assert [e.part for e in loop.slices] == ["xw"] and "w" not in loop.body.consts
    loop = hoist_products(_loop(_scaled)).steps[-1]
    assert sorted(e.part for e in loop.slices) == ["sw", "x_t"]  # its squares are read here


@pytest.mark.parametrize("program", [
    _loop(_of_state), _loop(_of_round), _loop(_plain, count="most")],
    ids=["of a state", "of the round", "data may end the loop"])
def test_other_products_stay(program):
    assert hoist_products(program) is program
