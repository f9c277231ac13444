"""Columns of a product that are split into heads: stored a vector at a time where no vector crosses
from one head to the next, lane by lane elsewhere."""

import numpy as np
import onnx
import pytest
from harness import DISTINCT, at_length
from onnx import TensorProto, helper, numpy_helper

import aotc
from aotc.emit.bundle.variants import EMITTERS
from aotc.options import Options
from aotc.pipeline import run_pipeline

DEPTH = 40


def heads(count, size, tokens=13):
    """x f32[tokens, DEPTH] -> y f32[count, tokens, size]: a product and a bias, turned to heads."""
    node, value, rng = helper.make_node, helper.make_tensor_value_info, np.random.default_rng(4)
    w = rng.standard_normal((DEPTH, count * size)).astype(np.float32)
    bias = rng.standard_normal(count * size).astype(np.float32)
    shape = np.array([tokens, count, size])
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "bias"], ["q"]),
             node("Reshape", ["q", "shape"], ["r"]),
             node("Transpose", ["r"], ["y"], perm=[1, 0, 2])]
    graph = helper.make_graph(
        nodes, "heads", [value("x", TensorProto.FLOAT, [tokens, DEPTH])],
        [value("y", TensorProto.FLOAT, [count, tokens, size])],
        [numpy_helper.from_array(a, n) for n, a in (("w", w), ("bias", bias), ("shape", shape))])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model, w, bias


@pytest.mark.parametrize("target", [pytest.param(t, marks=at_length(t)) for t in DISTINCT],
                         ids=lambda t: t.name)
@pytest.mark.parametrize("count, size", [(3, 32), (5, 12), (4, 7), *(
    pytest.param(*p, marks=pytest.mark.product) for p in ((2, 8), (1, 48)))])
def test_heads(tmp_path, target, count, size):
    model, w, bias = heads(count, size)
    run = aotc.compile(model, out=tmp_path / "b", target=target.name, name="heads").load().run
    x = np.random.default_rng(5).standard_normal((13, DEPTH)).astype(np.float32)
    want = (x.astype(np.float64) @ w + bias).reshape(13, count, size).transpose(1, 0, 2)
    np.testing.assert_allclose(run({"x": x})["y"], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target, size, whole", [
    ("x86-64-v3", 32, True), ("x86-64-v3", 8, True), ("x86-64-v3", 12, False),
    ("x86-64-v4", 32, True), ("x86-64-v4", 8, False), ("aarch64", 12, True)])
def test_vectors_that_lie_in_one_head_are_stored_whole(target, size, whole):
    ran = run_pipeline(Options(heads(6, size)[0], target=target, stop_after="plan"))
    text = "\n".join(EMITTERS[ran.target.emitter](ran.plan, ran.target).values())
    assert ("for (int l = 0;" not in text) == whole
