"""Products of rows with padding along a sum without a bound: no row of zeros is as long."""

from dataclasses import replace

import numpy as np
import pytest
from harness import RUNNABLE, compile_program
from te_programs import Maker, ax, padded

from aotc.ir.expr import Sym
from aotc.oracle.evaluate import evaluate
from aotc.sched import check_schedule, decide

TARGET = RUNNABLE[-1]


def product(most):
    """y = (x with rows of zeros in front and behind) @ w, x f32[20, k], k at most ``most``."""
    m, k = Maker(), Sym("k", 1, most)
    m.input("x", 20, k)
    m.input("w", k, 32)
    i, j, r = ax("i", 23), ax("j", 32), ax("r", k)
    m.step("y", (i, j), padded(m, "x", (i - 2, r), {0: 20}) * m.ref("w", r, j), (r,), "sum")
    return m.done("y")


def read_in_place(schedule):
    g, = schedule.groups
    return replace(schedule, groups=(g.saying(lambda c: replace(c, a="rows")),))


@pytest.mark.parametrize("most", [None, 400])
def test_rows_are_packed_unless_the_sum_is_bounded(most, tmp_path):
    program = product(most)
    schedule = decide(program, TARGET)
    assert schedule.groups[0].choices["y"].a == ("rows" if most else "packed")
    model = compile_program(program, schedule, TARGET, tmp_path / "y")
    rng = np.random.default_rng(0)
    for k in (1, 7, 330):
        feeds = {"x": rng.standard_normal((20, k)).astype(np.float32),
                 "w": rng.standard_normal((k, 32)).astype(np.float32)}
        want = np.pad(feeds["x"], ((2, 1), (0, 0))).astype(np.float64) @ feeds["w"]
        np.testing.assert_allclose(model.run(feeds)["y"], want, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(evaluate(program, feeds)["y"], want, rtol=1e-4, atol=1e-4)


def test_a_schedule_that_reads_them_in_place_is_refused():
    program = product(None)
    fault, = check_schedule(program, read_in_place(decide(program, TARGET)), TARGET)
    assert "a 'rows' with padding needs an upper bound of r" in fault and "packed" in fault
    bounded = product(400)
    assert check_schedule(bounded, read_in_place(decide(bounded, TARGET)), TARGET) == []
