"""Calls with extents that a bundle does not have: an error that names the dimension, before
anything runs; and those at the ends of what is allowed."""

import numpy as np
import pytest

from aotc import compile as compile_model
from aotc import load
from aotc.errors import ModelError
from aotc.runtime.status import ShapeError
from benchmarks.exported.build import Writer


def twice():
    """x + y, which share the dimension n, and z of k rows behind a product."""
    g = Writer("twice", 1)
    x, y = g.input("x", ["n", 4]), g.input("y", ["n", 4])
    rows = g.op("Gemm", g.input("z", ["k", 5]), g.weight(5, 3), g.weight(3))
    return g.model(g.op("Add", x, y), rows)


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    folder = tmp_path_factory.mktemp("twice") / "b"
    compile_model(twice(), folder, target="c", dims={"n": (0, 8), "k": {2, 6}},
                  variants={"n": [(0, 1)]})
    return load(folder)


def feeds(n, k, other=None):
    return {"x": np.ones((n, 4), np.float32), "z": np.ones((k, 5), np.float32),
            "y": np.ones((n if other is None else other, 4), np.float32)}


@pytest.mark.parametrize("n", [0, 1, 2, 8])
def test_extents_at_both_ends_run(ours, n):
    total, rows = ours.run(feeds(n, 6)).values()
    assert total.shape == (n, 4) and (total == 2).all() and rows.shape == (6, 3)


@pytest.mark.parametrize("n, k, other, said", [
    (9, 2, None, r"must be 0\.\.8 .n."), (3, 5, None, r"k is one of 2, 6"),
    (3, 7, None, r"must be 2\.\.6 .k."),
    (3, 2, 4, "y: dimension 0 .n. is 4, but it is 3"),
    (0, 2, 1, "y: dimension 0 .n. is 1, but it is 0")], ids=str)
def test_others_are_refused(ours, n, k, other, said):
    with pytest.raises((ShapeError, ValueError), match=said):
        ours.run(feeds(n, k, other))


@pytest.mark.parametrize("dims, said", [
    ({"n": 3, "m": 4}, "3 == 4|4 == 3"), ({"n": {2, 4}, "m": {6, 8}}, "m == n does not hold"),
    ({"n": (5, 8), "m": (2, 3)}, "m == n does not hold"), ({"n": (8, 2)}, "neither an extent nor"),
    ({"n": -1}, "neither an extent nor")], ids=str)
def test_dimensions_that_cannot_be_are_refused_before_anything_is_written(tmp_path, dims, said):
    g = Writer("sum", 1)
    model = g.model(g.op("Add", g.input("x", ["n", 4]), g.input("y", ["m", 4])))
    with pytest.raises(ModelError, match=said):
        compile_model(model, tmp_path / "b", target="c", dims=dims)
    assert not (tmp_path / "b").exists()
