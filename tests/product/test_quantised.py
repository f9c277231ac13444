"""Models that ONNX Runtime's own tools have quantised: its answers within one quantum, on integer
sums, on every target that this machine runs."""

import numpy as np
import onnx
import pytest
from attention_model import attention
from onnx import TensorProto, helper, numpy_helper
from quantised_nodes import judge, observed

import aotc
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.samples import extents, random_inputs
from aotc.target import TARGETS, native_target, runs_here
from aotc.tools.peers import open_literal, open_reference
from benchmarks.quantised import FORMS, Feeds, difference, quantise

pytest.importorskip("onnxruntime.quantization")
pytestmark = pytest.mark.product
HERE = [t.name for t in TARGETS.values() if runs_here(t) and (
    t in (native_target(), TARGETS["c"], TARGETS["x86-64-v3"]))]


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
    want = open_reference(path)[1](sets[3])["y"]
    for target in HERE:
        bundle = aotc.compile(path, out=tmp_path / target, target=target)
        got = bundle.load().run(sets[3])["y"]
        share, quanta = difference(got, want)
        assert (share < 1e-2 if quanta is None else quanta < 1.5), target


@pytest.mark.parametrize("calibration, variants", [
    ("u8s8 per channel", None), ("s8s8 per tensor", {"seq": [(1, 4)]}),
    ("u8u8 operators", None)])
def test_attention_over_any_length_sums_bytes(calibration, variants, tmp_path):
    """Against ONNX Runtime's literal mode: nothing but exponentials, by their last bits, can round
    apart there."""
    rng, path = np.random.default_rng(7), tmp_path / "quantised.onnx"
    onnx.save(attention("seq"), tmp_path / "f32.onnx")
    sets = [{"x": rng.standard_normal((n, 64)).astype(np.float32)} for n in (16, 16, 128)]
    _calibrated(tmp_path / "f32.onnx", path, sets, CALIBRATIONS[calibration])
    literal = open_literal("onnxruntime", path)
    program = run_pipeline(Options(path, target="c", stop_after="inline")).program
    assert sum(s.outs[0].endswith("_dot") for s in program.steps) == 6
    model = aotc.compile(path, out=tmp_path / "b", variants=variants).load()
    for n in (1, 2, 3, 5, 7, 16, 33, 77, 128):
        x = {"x": rng.standard_normal((n, 64)).astype(np.float32) * (1 if n % 3 else 100)}
        got, want = model.run(x)["y"], literal(x)["y"]
        assert np.abs(got - want).mean() <= 2e-4 * np.ptp(want), n


# ---------------------------------------------------------------- tensor by tensor

TIE = 1e-4  # quanta: how near to a tie a value lies that two systems may round apart
CALIBRATIONS = {
    "u8s8 per channel": {}, "u8s8 entropy": {"calibrate_method": "Entropy"},
    "u8s8 percentile, per tensor": {"calibrate_method": "Percentile", "per_channel": False},
    "u8s8 reduced": {"reduce_range": True}, "s8s8": {"activation_type": "QInt8"},
    "s8s8 per tensor": {"activation_type": "QInt8", "per_channel": False},
    "u8u8": {"weight_type": "QUInt8", "per_channel": False},
    "u8u8 per channel": {"weight_type": "QUInt8"},
    "u8s8 operators": {"quant_format": "QOperator"},
    "u8u8 operators": {"quant_format": "QOperator", "weight_type": "QUInt8", "per_channel": False},
    "s8s8 operators": {"quant_format": "QOperator", "activation_type": "QInt8"}}
_ENUMS = {"calibrate_method": "CalibrationMethod", "activation_type": "QuantType",
          "weight_type": "QuantType", "quant_format": "QuantFormat"}


def _calibrated(path, out, sets, changes):
    from onnxruntime import quantization as q
    chosen = {"quant_format": "QDQ", "per_channel": True, "activation_type": "QUInt8",
              "weight_type": "QInt8", **changes}
    q.quantize_static(path, out, Feeds(sets), **{
        k: getattr(getattr(q, _ENUMS[k]), v) if k in _ENUMS else v for k, v in chosen.items()})


def _judged(path, feeds, folder):
    """Every tensor of our bundle against its exact value; (what the bundle gave, the observed
    model's path, the tensors)."""
    model, seen = observed(onnx.load(path))
    onnx.save(model, folder / "observed.onnx")
    bundle = aotc.compile(folder / "observed.onnx", out=folder / "observed", name="observed")
    got = bundle.load().run(feeds)
    for r in judge(folder / "observed.onnx", seen, feeds, got):
        assert r.off <= 1 and r.over < TIE, r
    return got, folder / "observed.onnx", seen


@pytest.mark.parametrize("calibration", CALIBRATIONS)
@pytest.mark.parametrize("kind", ("net", "layer"))
def test_every_tensor_is_its_exact_value_rounded(kind, calibration, tmp_path):
    rng = np.random.default_rng(9)
    model, shape = _model(kind, rng)
    onnx.save(model, tmp_path / "f32.onnx")
    sets = [{"x": rng.standard_normal(shape).astype(np.float32)} for _ in range(4)]
    _calibrated(tmp_path / "f32.onnx", tmp_path / "q.onnx", sets[:3], CALIBRATIONS[calibration])
    got, path, seen = _judged(tmp_path / "q.onnx", sets[3], tmp_path)
    want = open_reference(path)[1](sets[3])
    for name, (tensor, scale, _) in seen.items():
        assert np.abs(got[name] - want[name]).max() < 1.5 * scale, tensor


@pytest.mark.zoo
@pytest.mark.parametrize("calibration", ("u8s8 per channel", "s8s8 per tensor"))
@pytest.mark.parametrize("name", ("resnet50", "bert_tiny", "bert_small"))
def test_every_tensor_of_a_real_model(zoo_model, name, calibration, tmp_path):
    """A difference of one quantum where a value lies at a tie grows from layer to layer on the
    zoo's random weights, in every system.  At the end we are about as far from ONNX Runtime as its
    optimised kernels are from its literal ones, or a few elements differ."""
    program = run_pipeline(Options(zoo_model(name), target="c", stop_after="fold")).program
    syms = extents(program)[0]
    sets = [random_inputs(program, syms, seed) for seed in range(3)]
    _calibrated(zoo_model(name), tmp_path / "q.onnx", sets[1:], CALIBRATIONS[calibration])
    got, path, seen = _judged(tmp_path / "q.onnx", sets[0], tmp_path)
    fast, literal = open_reference(path)[1](sets[0]), open_literal("onnxruntime", path)(sets[0])
    for output in set(got) - set(seen):
        apart = [np.abs(np.float64(a[output]) - fast[output]).mean() for a in (got, literal)]
        assert apart[0] <= 3 * apart[1] + 1e-4 * np.ptp(fast[output]), (output, apart)
