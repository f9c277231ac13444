"""The rewrite rule ``inline``: readers compute a map's elements, the same values."""

import numpy as np
import pytest
from te_programs import Maker, ax

from aotc.errors import ScheduleError
from aotc.ir.expr import Const, Where, check_index, compare
from aotc.oracle.check_program import check_program
from aotc.oracle.evaluate import evaluate
from aotc.passes.rewrites import apply_rewrites


def program():
    """Two readers of a mask, each at other places, of a row, and what no rule takes."""
    m = Maker()
    m.input("x", 3, 4)
    m.input("keep", 4, dtype="i64")
    m.input("at", 3, dtype="i64")
    i, j, r = ax("i", 3), ax("j", 4), ax("r", 4)
    m.step("mask", (i, j), Where(compare("ne", m.ref("keep", j), 0), Const(0, "f32"),
                                 Const(-9, "f32")))
    m.step("a", (i, j), m.ref("x", i, j) + m.ref("mask", i, j))
    m.step("b", (i,), m.ref("mask", i, r) * m.ref("x", i, r), (r,), "sum")
    m.step("taken", (i,), m.ref("x", i, check_index(m.ref("at", i), 4)))
    m.step("c", (i,), m.ref("taken", i) + m.ref("b", i))
    return m.done("a", "c")


def test_readers_compute_the_same():
    before = program()
    after = apply_rewrites(before, (("inline", "mask", {}),))
    assert check_program(after) == []
    assert "mask" not in after.buffers and "keep" in after.producer["a"].inputs
    r = np.random.default_rng(3)
    feeds = {"x": r.standard_normal((3, 4)).astype("f4"), "keep": np.array([1, 0, 7, 0]),
             "at": np.array([0, 3, 1])}
    for want, got in zip(evaluate(before, feeds).values(), evaluate(after, feeds).values()):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name, parameters, text", [
    ("a", {}, "no map that computes alone read; choose from mask"),  # a result
    ("b", {}, "no map that computes alone read; choose from mask"),  # a fold
    ("taken", {}, "no map that computes alone read; choose from mask"),  # tells of wrong indices
    ("x", {}, "choose from mask"), ("mask", {"readers": ["a"]}, "takes no parameters")])
def test_what_it_does_not_fit_is_told(name, parameters, text):
    with pytest.raises(ScheduleError, match=text):
        apply_rewrites(program(), (("inline", name, parameters),))
