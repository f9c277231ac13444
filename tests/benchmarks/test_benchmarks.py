"""The benchmark script works and writes what it prints; no number is asserted."""

import importlib.util
import json
import sys
from random import Random

import numpy as np
import onnx
import pytest
from te_programs import Maker, softmax

import aotc
from aotc.errors import AotcError
from aotc.runtime.compile_bundle import build, read_manifest
from aotc.target import get_target
from aotc.tools import bench, peer_ncnn
from aotc.tools.bench import interleave
from aotc.tools.peers import open_peer, open_reference
from benchmarks import (
    connect,
    decisions,
    decoder_models,
    kernels,
    low_precision,
    low_precision_cases,
    memory,
    models,
    quantised,
    threads,
    zoo,
)
from benchmarks.exported import __main__ as exported
from benchmarks.exported import images, sequences
from benchmarks.exported.build import Writer


@pytest.fixture
def no_zoo(monkeypatch, tmp_path):
    """Own models, as on a machine without the zoo."""
    monkeypatch.setenv("AOTC_ZOO", str(tmp_path / "absent"))


@pytest.mark.product
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
    assert "geometric mean of 3 ratios to onnxruntime" in text and "convnet" in text


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
    nodes, inputs, weights, output, work = kernels.CASES[name]()
    model = kernels._model(nodes, inputs, weights, output)
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    assert inferred.graph.output[0].type.tensor_type.HasField("shape")
    assert {i.name for i in model.graph.input} == set(inputs) and work


def calls(**outputs):
    return {n: lambda v=v: {"y": np.float32(v)} for n, v in outputs.items()}


def test_a_peer_with_wrong_results_does_not_count():
    right, close, wrong = [1.0, 3.0], [1.0001, 3.0], [1.01, 3.0]
    assert bench.wrong_results(calls(aotc=right, openvino=close)) == {}
    found = bench.wrong_results(calls(aotc=right, onnxruntime=close, openvino=wrong))
    assert set(found) == {"openvino"} and "wrong results: output y" in found["openvino"]
    shape = bench.wrong_results(calls(aotc=right, openvino=[right]))
    assert "reference float32[2]" in shape["openvino"]
    # whom to believe: without ONNX Runtime ourselves, with it nobody's times count
    assert set(bench.wrong_results(calls(aotc=right, ncnn=wrong))) == {"ncnn"}
    with pytest.raises(AotcError, match="aotc has wrong results"):
        bench.wrong_results(calls(aotc=wrong, onnxruntime=right))


def test_a_peer_may_round_to_8_bits_the_other_way():
    ours, one, two = [1.0, 3.0], [1.25, 3.0], [1.5, 3.0]
    assert bench.wrong_results(calls(aotc=ours, openvino=one), {"y": 0.25}) == {}
    assert "quanta" in bench.wrong_results(calls(aotc=ours, openvino=two), {"y": 0.25})["openvino"]


def test_ratios_leave_out_who_does_not_count():
    row = {"aotc": {"median_ms": 2.0}, "a": {"median_ms": 4.0}, "b": {"median_ms": 1.0},
           "c": {"fault": "wrong results"}}
    assert zoo.ratios(row, ["a", "b", "c"]) == {"a": 0.5, "b": 2.0, "best": 2.0}
    assert zoo.ratios(row, ["c"]) == {}


def test_a_peer_that_is_absent_or_refuses_the_model_is_skipped_with_a_reason(
        no_zoo, tmp_path, capsys, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec",
                        lambda n: None if n in ("ncnn", "openvino") else found(n))
    code = zoo.main(["mlp", "--seconds", "0.02", "--target", "c", "--compare", "openvino,ncnn",
                     "--json", str(tmp_path / "r.json")])
    row = json.loads((tmp_path / "r.json").read_text())["results"]["mlp"]
    assert code == 0 and set(row) == {"aotc", "openvino", "ncnn"}
    assert "not installed" in row["ncnn"]["fault"] and "median_ms" not in row["openvino"]
    assert "ncnn: peer ncnn is not installed" in capsys.readouterr().out


def test_ncnn_computes_the_same_or_says_why_not(no_zoo, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    if not (importlib.util.find_spec("ncnn") and importlib.util.find_spec("pnnx")):
        pytest.skip("ncnn and pnnx are not installed")
    case = models.case("convnet", tmp_path)
    a, b = (open_peer(n, case.path, 1, case.feeds)(case.feeds)["h3"]
            for n in ("onnxruntime", "ncnn"))
    np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    with pytest.raises(AotcError, match="inputs' shapes"):
        open_peer("ncnn", case.path)
    several = {n: np.concatenate([v, v]) for n, v in case.feeds.items()}
    with pytest.raises(AotcError, match="first extent must be 1"):
        open_peer("ncnn", case.path, 1, several)
    (tmp_path / "broken.onnx").write_bytes(case.path.read_bytes()[:-9])
    with pytest.raises(AotcError, match="ncnn cannot run this model"):
        open_peer("ncnn", tmp_path / "broken.onnx", 1, case.feeds)


@pytest.mark.parametrize("code, seconds, why", [
    ("import os; os.abort()", 60, "it failed: signal 6"),
    ("raise SystemExit('no such layer')", 60, "it failed: no such layer"),
    ("import time; time.sleep(60)", 1, "it took more than 1 s")])
def test_a_tool_that_crashes_fails_or_hangs_is_an_error(tmp_path, code, seconds, why):
    with pytest.raises(AotcError, match=why):
        peer_ncnn._tool([sys.executable, "-c", code], tmp_path, seconds, "it")


@pytest.mark.product
def test_memory_of_running_models_is_measured_in_fresh_processes(no_zoo, tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    code = memory.main(["mlp", "absent_model", "--target", "c", "--compare", "onnxruntime,absent",
                        "--json", str(tmp_path / "m.json")])
    data = json.loads((tmp_path / "m.json").read_text())
    assert code == 1 and data["failed"] == ["absent_model"]
    row = data["results"]["mlp"]
    own, peer = row["aotc"], row["onnxruntime"]
    floats = 784 * 512 + 512 * 512 + 512 * 10
    assert own["weights"] > 4 * floats and own["arena"] > 0
    # all weights are read, so they and little else are resident; the peer's code is larger
    assert 4 * floats < own["peak"] < peer["peak"]
    assert all(r["first_ms"] > 0 and r["warm_ms"] > 0 for r in (own, peer))
    assert "absent" in row["absent"]["fault"]
    table = capsys.readouterr().out.splitlines()
    assert {line.count("|") for line in table} == {14} and table[-1].startswith("| mlp |")


def test_a_bundle_runs_through_its_c_functions_alone(no_zoo, tmp_path):
    case = models.case("mlp", tmp_path)
    aotc.compile(case.path, out=tmp_path / "b", target="c", name="mlp")
    run, arena = _opened(tmp_path / "b", case.feeds)
    model = aotc.load(tmp_path / "b")
    for _ in range(2):
        for name, value in model.run(case.feeds).items():
            np.testing.assert_array_equal(run()[name], value)
    (tmp_path / "b" / "mlp_weights.bin").unlink()
    with pytest.raises(AotcError, match="mlp_weights_open: status"):
        _opened(tmp_path / "b", case.feeds)


def test_ways_to_connect_are_compared(no_zoo, tmp_path, capsys):
    code = connect.main(["mlp", "absent_model", "--seconds", "0.02", "--target", "c",
                         "--how", "none,all", "--json", str(tmp_path / "c.json")])
    data = json.loads((tmp_path / "c.json").read_text())
    assert code == 1 and data["failed"] == ["absent_model"]
    none, every = data["results"]["mlp"]["none"], data["results"]["mlp"]["all"]
    assert none["speedup"] == 1 and every["speedup"] > 0
    assert none["kernels"] > every["kernels"] and none["stored_bytes"] > every["stored_bytes"]
    assert "all: geometric mean" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        connect.main(["mlp", "--how", "most"])


def test_decisions_are_built_both_ways(no_zoo, tmp_path, capsys):
    code = decisions.main(["attention", "--count", "2", "--seconds", "0.02", "--json",
                           str(tmp_path / "d.json")])
    rows = json.loads((tmp_path / "d.json").read_text())
    assert code == 0 and len({r["name"] for r in rows}) == len(rows) == 2
    assert all(min(r["predicted"] + r["measured"]) > 0 for r in rows)
    assert "2 decisions" in capsys.readouterr().out


def test_only_decisions_that_a_scheduler_has_are_sampled():
    """Normalised rows need their sum: what makes the exponentials cannot be their kernel alone."""
    m = Maker()
    m.input("x", 64, 48)
    softmax(m, "y", "x")
    found = decisions.decisions("s", m.done("y"), get_target("x86-64-v4"), 99, Random(0))
    names = {d.name for d in found}
    assert names and all(name.split(" + ")[1] != "y" or "sum" in name for name in names)


def test_a_quantised_model_is_measured(no_zoo, tmp_path, capsys):
    pytest.importorskip("onnxruntime.quantization")
    case = models.case("mlp", tmp_path)
    assert quantised.main([str(case.path), "--forms", "dynamic", "--seconds", "0.02",
                           "--target", "c"]) == 0
    text = capsys.readouterr().out
    assert "aotc dynamic" in text and "onnxruntime f32" in text and "of the range" in text
    with pytest.raises(SystemExit):
        quantised.main([str(case.path), "--forms", "int3"])


def test_differences_in_quanta():
    want = np.array([0.5, 1.0, 3.0, 3.0], np.float32)
    assert quantised.difference(want + np.float32(0.5), want) == (0.2, 1.0)
    assert quantised.difference(want, want + np.array([0, 0.1, 0.03, 0], np.float32))[1] is None


def _opened(folder, feeds):
    return memory.open_bundle(folder, read_manifest(folder), str(build(folder)), feeds)


def test_one_thread_and_two_take_turns(no_zoo, monkeypatch, capsys):
    monkeypatch.setattr(threads, "pin", lambda count: None)  # of the test's own process
    assert threads.main(["mlp", "--seconds", "0.02", "--target", "c", "--worst", "1"]) == 0
    head, line, kernel = capsys.readouterr().out.splitlines()
    assert head.split() == ["model", "1", "thread", "ms", "2", "threads", "ratio"]
    name, one, two, ratio = line.split()
    assert name == "mlp" and abs(float(one) / float(two) - float(ratio)) < 0.05
    assert "mlp_k" in kernel


def test_exported_networks_are_measured_and_plain_loops_named(tmp_path, monkeypatch, capsys):
    pytest.importorskip("onnxruntime")
    g = Writer("plain")
    model = g.model(g.op("ArgMax", g.input("x", [64, 300]), axis=1, keepdims=0))
    monkeypatch.setattr(exported, "MODELS", {"plain": lambda: model})
    file = tmp_path / "r.json"
    assert exported.main(["plain", "absent", "--seconds", "0.02", "--target", "x86-64-v3",
                          "--json", str(file)]) == 1
    data = json.loads(file.read_text())
    row = data["results"]["plain"]
    assert data["failed"] == ["absent"] and row["ratio"] > 0 and row["plain"] > 0.05
    assert "plain loops take about" in capsys.readouterr().out
    assert len(images.MODELS | sequences.MODELS) >= 20


def test_a_ratio_of_low_precision_is_to_the_fastest_peer():
    assert low_precision.ratio({"aotc": (2.0, 1.0), "aotc f32": (1.0, 1.0),
                                "onnxruntime": (3.0, 1.0), "openvino": (4.0, 1.0)}) == 1.5


@pytest.mark.product  # every system is measured in a process of its own
def test_low_precisions_are_measured_and_say_where_time_goes(no_zoo, tmp_path, capfd):
    pytest.importorskip("onnxruntime")
    code = low_precision.main(["mlp", "absent", "--target", "x86-64-v1", "--base", "x86-64-v1",
                               "--threads", "1", "--seconds", "0.01", "--top", "1"])
    text = capfd.readouterr().out
    assert code == 1 and "absent: failed: KeyError" in text
    assert "mlp threads 1: aotc" in text and "best / aotc" in text and "GFLOP/s" in text


def test_weights_in_groups_are_what_they_were(tmp_path):
    pytest.importorskip("onnxruntime")
    sizes = decoder_models.Sizes(vocabulary=64, width=64, heads=4, shared=2, inner=96)
    model = decoder_models.llama(sizes)
    onnx.save(model, tmp_path / "a.onnx")
    onnx.save(low_precision_cases.in_groups(model), tmp_path / "b.onnx")
    feeds = {"input_ids": np.arange(5)[None]} | {
        i.name: np.zeros((1, 2, 0, 16), np.float32) for i in model.graph.input[1:]}
    a, b = (open_peer("onnxruntime", tmp_path / n)(feeds)["logits"] for n in ("a.onnx", "b.onnx"))
    assert 0 < np.max(np.abs(a - b)) < 0.3 * np.ptp(a)
