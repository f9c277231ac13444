"""Determinants of matrices of any size, and rows of old opsets, which span several axes."""

import numpy as np
import pytest
from frontend_cases import by_onnxruntime, by_reference, one_node, program_of, rand, run, same

import aotc
from aotc.errors import ModelError


@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (5, 5), (3, 6, 6), (2, 2, 9, 9), (33, 33)])
def test_determinants(shape):
    x = rand(*shape)
    model, feeds = one_node("Det", [x])
    got, = run(program_of(model), feeds)
    same([got], by_onnxruntime(model, feeds), rtol=1e-3)
    same([got], [np.linalg.det(x.astype(np.float64)).astype(np.float32)], rtol=1e-4)
    same([got], by_reference(model, feeds), rtol=1e-3)


def test_determinants_without_a_pivot():
    """Columns of zero, rows that repeat, rows that must change their place, NaN and infinity."""
    x = np.stack([rand(6, 6, seed=k) for k in range(6)]).astype(np.float64)
    x[0, :, 2] = 0
    x[1, 3] = x[1, 1]
    x[2] = np.eye(6)[[5, 0, 1, 2, 3, 4]]  # an odd permutation
    x[3] = np.eye(6)[[1, 0, 3, 2, 4, 5]]
    x[4, 0, 0] = np.nan
    model, feeds = one_node("Det", [x])
    got, = run(program_of(model), feeds)
    np.testing.assert_allclose(got[:4], [0, 0, -1, 1], atol=1e-12)
    assert np.isnan(got[4]) and got[5] == pytest.approx(np.linalg.det(x[5]))


def test_a_determinant_of_any_size(tmp_path):
    model, _ = one_node("Det", [rand(2, 5, 5)], shapes={"in0": ["k", "n", "n"]})
    net = aotc.compile(model, tmp_path / "b", target="c", name="net").load(threads=1)
    for k, n in ((2, 1), (1, 2), (3, 7), (1, 20)):
        x = rand(k, n, n, seed=n)
        want = np.linalg.det(x.astype(np.float64)).astype(np.float32)
        np.testing.assert_allclose(net.run({"in0": x})["out0"], want, rtol=1e-4)


def test_what_has_no_determinant():
    with pytest.raises(ModelError, match="is square"):
        program_of(one_node("Det", [rand(2, 3)])[0])


@pytest.mark.parametrize("op", ("Hardmax", "Softmax", "LogSoftmax"))
@pytest.mark.parametrize("opset", (7, 11, 12))
def test_rows_span_the_axes_from_one_on(op, opset):
    x = np.random.default_rng(opset).integers(0, 4, (2, 3, 4, 5)).astype(np.float32)  # with ties
    for axis in (0, 1, 2, 3) if opset < 11 else (0, 1, 2, 3, -1, -2, -4):
        model, feeds = one_node(op, [x], dict(axis=axis), opset=opset)
        same(run(program_of(model), feeds), by_onnxruntime(model, feeds))
    free = {"in0": ["a", "b", 4, "c"]}
    model, feeds = one_node(op, [x], opset=opset, shapes=free)
    same(run(program_of(model), feeds), by_onnxruntime(model, feeds))
