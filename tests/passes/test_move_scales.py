"""Scales of both factors of a product move to the smaller one; what is read elsewhere, or is no
number, stays."""

import numpy as np
import pytest
from te_programs import Maker, ax, random_feeds

from aotc.ir.expr import Const, Load
from aotc.oracle.evaluate import evaluate
from aotc.passes.sums.move_scales import move_scales


def scores(first=3.0, second=0.5, rows=4, keys=9, kept=(), twice=False):
    """y[i, j] = sum(k) (q[i, k] * first) * (x[j, k] * second); kept: maps that are outputs, too."""
    m, k = Maker("scores"), ax("k", 6)
    i, j = ax("i", rows), ax("j", keys)
    m.input("q", rows, 6)
    m.input("x", keys, 6)
    m.pointwise("qs", "q", lambda e, a: e * Const(first, "f32"))
    m.pointwise("xs", "x", lambda e, a: e * Const(second, "f32"))
    m.step("y", (i, j), m.ref("qs", i, k) * m.ref("xs", j, k), (k,), "sum")
    if twice:
        m.pointwise("z", "xs", lambda e, a: e + Const(1.0, "f32"))
    return m.done("y", *kept, *(["z"] if twice else []))


def scaled(program, name):
    return not isinstance(program.producer[name].body, Load)


@pytest.mark.parametrize("rows, keys, kept", [(4, 9, "qs"), (9, 4, "xs"), (5, 5, "qs")])
def test_the_smaller_factor_keeps_the_scale(rows, keys, kept):
    program = scores(rows=rows, keys=keys)
    made = move_scales(program)
    assert [n for n in ("qs", "xs") if scaled(made, n)] == [kept]
    feeds = random_feeds(program, np.random.default_rng())
    np.testing.assert_allclose(evaluate(made, feeds)["y"], evaluate(program, feeds)["y"],
                               rtol=1e-5, atol=1e-5)
    feeds["x"][0, 0], feeds["q"][0, 1] = np.inf, np.nan
    np.testing.assert_array_equal(np.isfinite(evaluate(made, feeds)["y"]),
                                  np.isfinite(evaluate(program, feeds)["y"]))


@pytest.mark.parametrize("form", [
    {"kept": ("xs",)}, {"twice": True}, {"first": 0.0}, {"first": 1e30, "second": 1e30},
    {"first": 1e-30, "second": 1e-30}, {"first": float("nan")}])
def test_other_scales_stay(form):
    program = scores(**form)
    assert move_scales(program) is program
