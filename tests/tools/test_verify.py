"""When two arrays count as equal."""

import math
import warnings

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from aotc.errors import AotcError
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.tools import peers
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
