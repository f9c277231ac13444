"""``aotc verify --per-node``: kernels judged one by one against double precision."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save
from small_models import two_convolutions
from te_programs import random_feeds
from te_random import random_program

import aotc.tools.nodes as nodes
from aotc.cli import main
from aotc.oracle.evaluate import evaluate
from aotc.passes.double_precision import promote_to_f64


@pytest.fixture
def model(tmp_path):
    """MatMul, then a softmax: three kernels or more."""
    w = np.random.default_rng(0).standard_normal((24, 40)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"], name="first"),
         helper.make_node("Softmax", ["h"], ["p"], name="second"),
         helper.make_node("MatMul", ["p", "v"], ["y"], name="third")],
        "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 24])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 24])],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(w.T.copy(), "v")])
    path = tmp_path / "three.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def test_a_right_model_is_within_its_bounds(model):
    lines = []
    found = nodes.verify_nodes(model, report=lines.append)
    assert found and all(r.ok for r in found)
    assert "within their bounds" in lines[0]
    assert {n for r in found for n in r.nodes} == {"first", "second", "third"}


def test_the_first_wrong_kernel_is_named(model, monkeypatch, capsys):
    """A defect planted in the sum of the softmax: what follows it is right by itself."""
    real = nodes.render_bundle

    def planted(*args):
        bundle = real(*args)
        files = {n: d.replace(b"aotc_hsum(", b"1.001f * aotc_hsum(") if "_kernels_" in n else d
                 for n, d in bundle.files.items()}
        assert files != bundle.files
        return replace(bundle, files=files)
    monkeypatch.setattr(nodes, "render_bundle", planted)
    assert main(["verify", str(model), "--per-node", "--target", "native"]) == 1
    out = capsys.readouterr().out
    assert "first beyond its bound" in out and "second" in out


@pytest.mark.parametrize("seed", range(8))
def test_promoted_programs_compute_the_same(seed):
    program = random_program(seed)
    syms = {s.name: 3 for s in program.syms}
    feeds = random_feeds(program, np.random.default_rng(seed), syms)
    wide = {n: a.astype(np.float64) if a.dtype == np.float32 else a for n, a in feeds.items()}
    want, got = evaluate(program, feeds, syms), evaluate(promote_to_f64(program), wide, syms)
    for name, array in want.items():
        assert got[name].dtype == (np.float64 if array.dtype == np.float32 else array.dtype)
        np.testing.assert_allclose(got[name], array, rtol=1e-3, atol=1e-3)


def test_kernels_around_a_library_kernel_are_judged(tmp_path):
    graph = helper.make_graph(
        [helper.make_node("Exp", ["x"], ["e"], name="before"),
         helper.make_node("TopK", ["e", "k"], ["v", "places"], name="picked"),
         helper.make_node("Mul", ["v", "v"], ["y"], name="behind")],
        "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 300])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 7])],
        [numpy_helper.from_array(np.array([7], np.int64), "k")])
    path = tmp_path / "topk.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    lines = []
    found = nodes.verify_nodes(path, report=lines.append)
    assert all(r.ok for r in found) and "within their bounds" in lines[0]
    assert {"before", "behind"} <= {n for r in found for n in r.nodes}


def test_winograd_forms_and_recorded_inputs_are_judged_too(tmp_path):
    path = tmp_path / "two.onnx"
    save(two_convolutions(), path)
    np.savez(tmp_path / "x.npz", x=np.ones((1, 32, 24, 24), np.float32))
    lines = []
    found = nodes.verify_nodes(path, report=lines.append, winograd=4, runs=2)
    assert len(found) == 2 * len(nodes.verify_nodes(path, report=lines.append, winograd=4,
                                                    inputs=tmp_path / "x.npz"))
    assert all(f.ok for f in found) and "within their bounds" in lines[0]


@pytest.mark.parametrize("option", [["--out", "b"], ["--vlen", "128"], ["--simulate"]])
def test_what_cannot_be_judged_is_wrong_usage(option, tmp_path, capsys):
    path = tmp_path / "two.onnx"
    save(two_convolutions(), path)
    with pytest.raises(SystemExit) as stop:
        main(["verify", str(path), "--per-node", *option])
    assert stop.value.code == 2 and option[0] in capsys.readouterr().err


def test_dynamic_extents_stay_within_what_the_evaluator_computes_in_time(model, monkeypatch):
    program = nodes.run_pipeline(nodes.Options(model, target="c", stop_after="inline")).program
    assert nodes._cap(program) == nodes.EXTENT_CAP
    most = nodes.run_work(program, {program.syms[0].name: 16})
    monkeypatch.setattr(nodes, "SAMPLE_FLOPS", most)
    assert nodes._cap(program) in (10, 20)
    assert all(nodes.run_work(program, s) <= most
               for s in nodes.extents(program, nodes._cap(program)))
    monkeypatch.setattr(nodes, "SAMPLE_FLOPS", 0)  # the smallest there are, whatever they cost
    assert nodes._cap(program) == 10


@pytest.mark.zoo
@pytest.mark.parametrize("name", ("bert_tiny", "squeezenet1_1", "dlrm", "bert_small_dyn"))
def test_kernels_of_the_zoo_are_within_their_bounds(name, zoo_model):
    found = nodes.verify_nodes(zoo_model(name), report=lambda _: None)
    assert found and [f for f in found if not f.ok] == []
