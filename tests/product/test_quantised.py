"""Models that ONNX Runtime's own tools have quantised: its answers within one quantum, on integer
sums, on every target that this machine runs."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aotc
from aotc.peers import open_peer
from aotc.pipeline import Options, run_pipeline
from aotc.target import TARGETS, native, runs_here
from benchmarks.quantised import FORMS, difference, quantise

pytest.importorskip("onnxruntime.quantization")
pytestmark = pytest.mark.product
HERE = [t.name for t in TARGETS.values() if runs_here(t) and (
    t in (native(), TARGETS["c"], TARGETS["x86-64-v3"]))]


def _model(kind, rng):
    """A residual net on x f32[1, 3, 13, 13], or a layer of a transformer on x f32[1, 7, 24]."""
    weights = []

    def w(*shape):
        weights.append(numpy_helper.from_array(
            (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1)).astype(np.float32),
            f"w{len(weights)}"))
        return weights[-1].name

    def node(op, inputs, output, **attributes):
        return helper.make_node(op, inputs, [output], name=f"node_{output}", **attributes)

    if kind == "net":
        shape = [1, 3, 13, 13]
        nodes = [node("Conv", ["x", w(20, 3, 3, 3), w(20)], "a", pads=[1] * 4),
                 node("Relu", ["a"], "b"),
                 node("MaxPool", ["b"], "c", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
                 node("Conv", ["c", w(20, 20, 3, 3), w(20)], "d", pads=[1] * 4),
                 node("Conv", ["c", w(20, 20, 1, 1)], "e"), node("Add", ["d", "e"], "f"),
                 node("Relu", ["f"], "g"), node("GlobalAveragePool", ["g"], "h"),
                 node("Flatten", ["h"], "i"), node("Gemm", ["i", w(10, 20), w(10)], "y", transB=1)]
    else:
        shape = [1, 7, 24]
        nodes = [node("MatMul", ["x", w(24, 40)], "a"), node("Add", ["a", w(40)], "b"),
                 node("Tanh", ["b"], "c"), node("MatMul", ["c", w(40, 24)], "d"),
                 node("Add", ["d", "x"], "e"),
                 node("Transpose", ["e"], "f", perm=[0, 2, 1]), node("MatMul", ["e", "f"], "g"),
                 node("Softmax", ["g"], "h"), node("MatMul", ["h", w(7, 11)], "y")]
    graph = helper.make_graph(nodes, kind, [helper.make_tensor_value_info(
        "x", TensorProto.FLOAT, shape)], [helper.make_tensor_value_info(
            "y", TensorProto.FLOAT, None)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model), shape


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ("net", "layer"))
def test_the_answers_are_onnx_runtimes(kind, form, tmp_path):
    rng = np.random.default_rng(8)
    model, shape = _model(kind, rng)
    onnx.save(model, tmp_path / "f32.onnx")
    path = tmp_path / "quantised.onnx"
    sets = [{"x": rng.standard_normal(shape).astype(np.float32)} for _ in range(4)]
    quantise(tmp_path / "f32.onnx", form, path, sets[:3])
    program = run_pipeline(Options(path, target="c", stop_after="inline")).program
    assert sum(s.outs[0].count("_dot") for s in program.steps) >= 3
    want = open_peer("onnxruntime", path)(sets[3])["y"]
    for target in HERE:
        bundle = aotc.compile(path, out=tmp_path / target, target=target)
        got = bundle.load().run(sets[3])["y"]
        share, quanta = difference(got, want)
        assert (share < 1e-2 if quanta is None else quanta < 1.5), target
