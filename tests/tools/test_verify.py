"""When two arrays count as equal."""

import math
import re
import warnings

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_models import make_model

from aotc.errors import AotcError
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.tools import peers
from aotc.tools.exact import BesideDouble, exact_outputs, exact_program
from aotc.tools.verify import Match, compare, read_inputs, summary, verify

F32 = np.float32


def test_the_bound_is_a_share_of_the_range():
    want = np.linspace(100, 110, 11).astype(F32)
    near, far = want.copy(), want.copy()
    near[3] += 0.0009
    far[3] += 0.0012
    assert compare("y", near, want).ok and not compare("y", far, want).ok
    assert compare("y", far, want).error == pytest.approx(0.0012, rel=0.01)


def test_a_flat_output_is_judged_by_its_magnitude():
    want = np.full(5, 3, F32)
    assert compare("y", want + F32(1e-6), want).ok
    assert not compare("y", want + F32(1e-4), want).ok
    zero = np.zeros(5, F32)
    assert compare("y", zero, zero).ok and not compare("y", zero + F32(1e-9), zero).ok


def test_integers_and_bools_must_be_equal():
    want = np.array([2**62, 2**62 + 1])
    assert compare("y", want, want).ok
    assert not compare("y", want + 1, want).ok
    assert not compare("y", np.array([True, False]), np.array([True, True])).ok


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_must_agree(bad):
    want = np.array([1, bad, 2], F32)
    assert compare("y", want, want).ok
    assert not compare("y", np.array([1, 5, 2], F32), want).ok
    assert not compare("y", want, np.array([1, 5, 2], F32)).ok


def test_shapes_and_dtypes_must_be_equal():
    want = np.zeros((2, 3), F32)
    assert "float64" in compare("y", want.astype(float), want).fault
    assert "[3, 2]" in compare("y", want.T, want).fault
    assert compare("y", want[:0], want[:0]).ok


def test_summary_shows_the_worst_run_of_each_output():
    rows = [("a", Match("y", 1e-6, 1e-5, 1e-4)), ("b", Match("y", 1e-3, 1e-2, 1e-4)),
            ("a", Match("z", 0.0, 0.0, 0.0))]
    first, second = summary(rows)
    assert "y: MISMATCH" in first and "worst: b" in first and "[2 runs" in first
    assert "z: ok" in second


def test_inputs_must_be_an_npz(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, x=np.ones(3))
    assert list(read_inputs(path).feeds) == ["x"]
    path.write_text("no")
    with pytest.raises(AotcError, match="npz"):
        read_inputs(path)


def small_model(op, dtype, path, opset=18):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    infos = [helper.make_tensor_value_info(n, kind, [64]) for n in "xy"]
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"])], "g", infos[:1], infos[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)],
                                ir_version=9), path)
    return path


def refusing(path, threads):
    def run(feeds):
        raise RuntimeError("not these inputs\nfor reasons of its own")
    return run


def test_a_reference_that_refuses_gives_way_to_the_other(tmp_path, monkeypatch):
    """... when it opens the model, or when it is given the inputs, and the report says so."""
    path = small_model("Relu", np.float32, tmp_path / "m.onnx")
    for first, says in ((refusing, "onnxruntime refuses x [64]: not these inputs"),
                        (lambda *_: 1 / 0, "onnxruntime cannot run this model: division by zero")):
        monkeypatch.setitem(peers.REFERENCES, "onnxruntime", first)
        lines = []
        results = verify(path, target="c", report=lines.append)
        assert results and all(m.ok for _, m in results)
        assert any(line.strip() == says for line in lines)
    monkeypatch.setitem(peers.REFERENCES, "onnx", refusing)
    with pytest.raises(AotcError, match="onnx refuses x .64.: not these inputs; no reference for"):
        verify(path, target="c", report=lambda line: None)


def test_a_reference_that_could_be_installed_is_named(tmp_path, monkeypatch):
    find = peers.importlib.util.find_spec
    path = small_model("Relu", np.float32, tmp_path / "m.onnx")
    monkeypatch.setattr(peers.importlib.util, "find_spec",
                        lambda name: None if name == "onnxruntime" else find(name))
    monkeypatch.setitem(peers.REFERENCES, "onnx", refusing)
    with pytest.raises(AotcError, match="onnx refuses x .64.: .*; no reference for this model: "
                                        "install onnxruntime"):
        verify(path, target="c", report=lambda line: None)


def test_the_reference_evaluator_keeps_double_precision(tmp_path):
    path = small_model("Erf", np.float64, tmp_path / "erf.onnx")
    x = np.linspace(-3, 3, 64)
    got = peers.REFERENCES["onnx"](path, 1)({"x": x})["y"]
    assert got.tolist() == [math.erf(v) for v in x]


def test_no_warning_of_numpy_while_verifying(tmp_path):
    """Infinities and NaN on both sides."""
    path = small_model("Log", np.float32, tmp_path / "log.onnx")
    np.savez(tmp_path / "in.npz", x=np.resize(np.array([0, -1, 1, np.inf], np.float32), 64))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        results = verify(path, target="c", inputs=tmp_path / "in.npz", report=lambda line: None)
        assert all(m.ok for _, m in results)
        run = peers.REFERENCES["onnx"](path, 1)
        assert np.isneginf(run({"x": np.zeros(64, np.float32)})["y"]).all()


def test_no_warning_of_numpy_while_compiling():
    """Constants that overflow half precision and have no logarithm, and a scale of none."""
    consts = {"a": np.array([6e4, -1], np.float16), "b": np.array([0, 1e-7], np.float16)}
    nodes = [helper.make_node("Div", ["a", "b"], ["d"]), helper.make_node("Log", ["a"], ["l"]),
             helper.make_node("Sqrt", ["a"], ["s"]),
             helper.make_node("Sum", ["d", "l", "s"], ["t"]),
             helper.make_node("Cast", ["t"], ["i"], to=TensorProto.INT32),
             helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT16),
             helper.make_node("Add", ["x", "f"], ["y"])]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT16, [2]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], [
        numpy_helper.from_array(v, k) for k, v in consts.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run_pipeline(Options(model, target="c", name="m", stop_after="bundle")).bundle


def deep_net(layers, path, width=32):
    """(file, f64 function) of a chain of tanh(h w), y f32[8, width], that amplifies roundings, the
    more of them the more."""
    rng = np.random.default_rng(layers)
    w = {f"w{i}": (3 / np.sqrt(width) * rng.standard_normal((width, width))).astype(F32)
         for i in range(layers)}
    names = ["x", *(f"h{i}" for i in range(1, layers)), "y"]
    nodes = [node for i in range(layers) for node in (
        helper.make_node("MatMul", [names[i], f"w{i}"], [f"p{i}"]),
        helper.make_node("Tanh", [f"p{i}"], [names[i + 1]]))]
    onnx.save(make_model(nodes, {"x": (TensorProto.FLOAT, [8, width])},
                         {"y": (TensorProto.FLOAT, [8, width])}, w), path)

    def exact(x):
        h = x.astype(np.float64)
        for a in w.values():
            h = np.tanh(h @ a)
        return h
    return path, exact


@pytest.mark.parametrize("layers, share, says, ok", [
    (20, 4e-4, "", True), (36, 0.0, "the reference: ", False),
    (3, 3e-4, "ours: .* from the reference, more than rounding explains", False)],
    ids=["rounding", "ours is off", "the reference computes something else"])
def test_double_precision_is_asked_beyond_the_limit(tmp_path, monkeypatch, layers, share, says,
                                                    ok):
    """Where roundings take both about as far the outputs match; not where one of them computes
    something else."""
    path, exact = deep_net(layers, tmp_path / "deep.onnx")

    def reference(*_):
        def run(feeds):
            y = exact(feeds["x"])
            off = np.zeros_like(y)
            off[::2, 1] = share * np.ptp(y)
            return {"y": (y + off).astype(F32)}
        return run
    monkeypatch.setitem(peers.REFERENCES, "onnxruntime", reference)
    lines = []
    (_, match), = verify(path, target="c", report=lines.append)
    assert match.share > match.limit and match.ok == ok
    assert re.search(f"y: {'ok' if ok else 'MISMATCH'} .* double precision is nearer to .*{says}",
                     lines[-1])
    assert match.exact.theirs == pytest.approx(share, rel=1e-2, abs=1e-6)


@pytest.mark.parametrize("ours, theirs, rounding, right", [
    (9e-5, 6e-5, 1e-9, True), (1.1e-4, 6e-5, 1e-9, False), (1.1e-4, 6e-5, 1e-5, True),
    (3e-4, 6e-5, 1e-5, False), (1e-3, 4e-3, 1e-4, False), (1e-3, 4e-3, 2e-4, True)])
def test_who_is_right_beside_double_precision(ours, theirs, rounding, right):
    assert BesideDouble(ours, theirs, rounding).right(1e-4) == right


def test_double_precision_has_regions_too(tmp_path):
    """Rounds of a recurrence are f64, as what is around them is."""
    path = tmp_path / "rnn.onnx"
    rng = np.random.default_rng(2)
    w = {n: rng.standard_normal(s).astype(F32) / 4 for n, s in (("w", (1, 8, 6)), ("r", (1, 8, 8)))}
    onnx.save(make_model([helper.make_node("RNN", ["x", "w", "r"], ["y"], hidden_size=8)],
                         {"x": (TensorProto.FLOAT, [9, 2, 6])},
                         {"y": (TensorProto.FLOAT, [9, 1, 2, 8])}, w), path)
    x = rng.standard_normal((9, 2, 6)).astype(F32)
    want, h = [], np.zeros((2, 8))
    for row in x.astype(np.float64):
        h = np.tanh(row @ w["w"][0].T.astype(np.float64) + h @ w["r"][0].T.astype(np.float64))
        want.append(h)
    program = exact_program(Options(path, target="c"))
    got = exact_outputs(program, {"x": x})["y"]
    np.testing.assert_allclose(got[:, 0], want, rtol=1e-13)
