"""The benchmark script works and writes what it prints; no number is asserted."""

import json

import numpy as np
import onnx
import pytest

from aotc.bench import interleave
from aotc.errors import AotcError
from aotc.peers import open_peer, open_reference
from benchmarks import kernels, models, zoo


@pytest.fixture
def no_zoo(monkeypatch, tmp_path):
    """Own models, as on a machine without the zoo."""
    monkeypatch.setenv("AOTC_ZOO", str(tmp_path / "absent"))


def test_own_models_are_measured_and_written(no_zoo, tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    code = zoo.main(["mlp", "convnet", "attention", "absent_model", "--seconds", "0.02",
                     "--target", "c", "--compare", "onnxruntime", "--json",
                     str(tmp_path / "r.json")])
    data = json.loads((tmp_path / "r.json").read_text())
    assert code == 1 and data["failed"] == ["absent_model"]
    assert set(data["results"]) == {"mlp", "convnet", "attention"}
    for row in data["results"].values():
        assert set(row) == {"aotc", "onnxruntime"}
        assert all(r["calls"] >= 5 and r["median_ms"] >= r["min_ms"] > 0 for r in row.values())
    text = capsys.readouterr().out
    assert "geometric mean of ratios to onnxruntime" in text and "convnet" in text


def test_own_models_mean_the_same_to_a_reference(no_zoo, tmp_path):
    for name in models.names():
        case = models.case(name, tmp_path)
        _, run = open_reference(case.path)
        assert all(np.isfinite(a).all() and a.std() > 0 for a in run(case.feeds).values())


def test_systems_take_turns():
    order = []
    timings = interleave({n: lambda n=n: order.append(n) for n in "ab"}, seconds=0, rounds=3)
    assert order[:6] == list("aaabbb")  # warm-up
    assert order[6:] == list("ababab")
    assert [(t.name, t.calls) for t in timings] == [("a", 3), ("b", 3)]


def test_peers_agree_and_unknown_ones_are_named(no_zoo, tmp_path):
    pytest.importorskip("onnxruntime")
    case = models.case("attention", tmp_path)
    a, b = (open_peer(n, case.path)(case.feeds)["y"] for n in ("onnxruntime", "onnx"))
    np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    with pytest.raises(AotcError, match="onnxruntime"):
        open_peer("caffe", case.path)


def test_kernels_are_measured_and_written(tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    code = kernels.main(["softmax 1536x128", "gemv 1x2048x1000", "no such kernel", "--seconds",
                         "0.02", "--compare", "onnxruntime", "--json", str(tmp_path / "k.json")])
    data = json.loads((tmp_path / "k.json").read_text())
    assert code == 1 and data["failed"] == ["no such kernel"]
    assert all(set(r) == {"aotc", "onnxruntime"} for r in data["results"].values())
    assert "| gemv 1x2048x1000 |" in capsys.readouterr().out


@pytest.mark.parametrize("name", kernels.CASES)
def test_every_kernel_case_is_a_model_with_inputs_that_fit(name):
    nodes, inputs, weights, output, flops = kernels.CASES[name]()
    model = kernels._model(nodes, inputs, weights, output)
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    assert inferred.graph.output[0].type.tensor_type.HasField("shape")
    assert {i.name for i in model.graph.input} == set(inputs) and flops >= 0
