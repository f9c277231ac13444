"""``aotc.compile``, ``aotc.load`` and what they refuse."""

import gc
import subprocess
import sys
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from small_models import dense, embedding, make_model

import aotc
from aotc.options import Options
from aotc.pipeline import STAGES, run_pipeline
from aotc.samples import input_kinds
from aotc.tools.show import plain_data
from aotc.tools.verify import verify


def expected(model, x):
    """relu(x @ w + b) with the weights of ``dense``."""
    w, b = (onnx.numpy_helper.to_array(t) for t in model.graph.initializer)
    return np.maximum(x @ w + b, 0)


def test_the_collector_of_rings_is_left_as_it_was(tmp_path):
    before = gc.get_threshold()
    aotc.compile(dense(), tmp_path / "a", target="c")
    with pytest.raises(aotc.AotcError):
        aotc.compile(dense(), tmp_path / "b", target="c", schedule=tmp_path / "absent.json")
    assert gc.get_threshold() == before


def test_compile_from_path_bytes_and_proto_gives_the_same_bytes(tmp_path):
    model = dense()
    onnx.save(model, tmp_path / "tiny.onnx")
    sources = (tmp_path / "tiny.onnx", model.SerializeToString(), model)
    bundles = [aotc.compile(s, out=tmp_path / f"b{k}", target="c", name="tiny")
               for k, s in enumerate(sources)]
    files = [{p.name: p.read_bytes() for p in b.path.iterdir()} for b in bundles]
    assert files[0] == files[1] == files[2]
    assert bundles[0].manifest["name"] == "tiny"
    assert list(bundles[0].seconds) == [s.name for s in STAGES]


def test_load_runs_and_compiles_nothing_the_second_time(tmp_path, monkeypatch):
    model, x = dense(), np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    bundle = aotc.compile(model, out=tmp_path / "b", target="c", name="tiny")
    np.testing.assert_allclose(bundle.load().run({"x": x})["y"], expected(model, x), rtol=1e-5,
                               atol=1e-6)
    monkeypatch.setattr(subprocess, "run", None)  # a compiler call would fail now
    loaded = aotc.load(tmp_path / "b", threads=2)
    np.testing.assert_allclose(loaded([x])["y"], expected(model, x), rtol=1e-5, atol=1e-6)


def test_pinned_and_given_dimensions(tmp_path, capsys):
    pinned = aotc.compile(dense(), out=tmp_path / "p", target="c", name="t", dims={"n": 4}).load()
    assert pinned.run([np.zeros((4, 8), np.float32)])["y"].shape == (4, 4)
    with pytest.raises(ValueError):
        pinned.run([np.zeros((5, 8), np.float32)])
    ranged = aotc.compile(dense(), out=tmp_path / "r", target="c", name="t", dims={"n": (2, 9)})
    assert capsys.readouterr().err == ""
    with pytest.raises(ValueError, match="10"):
        ranged.load().run([np.zeros((10, 8), np.float32)])
    with pytest.raises(aotc.ModelError, match="rows"):
        aotc.compile(dense(), out=tmp_path / "x", target="c", dims={"rows": 4})


def test_ranges_that_were_not_given_are_printed(tmp_path, capsys):
    aotc.compile(embedding(), out=tmp_path / "b", target="c", dims={"batch": 2})
    text = capsys.readouterr().err
    assert "'seq' of any extent from 1" in text and "batch" not in text


def test_out_replaces_a_bundle_and_nothing_else(tmp_path):
    out = tmp_path / "b"
    aotc.compile(dense(seed=1), out=out, target="c", name="one")
    aotc.compile(dense(seed=2), out=out, target="c", name="two")
    assert not list(out.glob("one*")) and list(out.glob("two.h"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(aotc.AotcError, match="mine"):
        aotc.compile(dense(), out=tmp_path / "mine", target="c")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_errors_name_what_is_wrong(tmp_path):
    with pytest.raises(aotc.ModelError, match="nothing.onnx"):
        aotc.compile(tmp_path / "nothing.onnx", out=tmp_path / "b")
    odd = make_model([helper.make_node("ImageDecoder", ["x"], ["y"], name="odd")],
                     {"x": (TensorProto.UINT8, [99])}, {"y": (TensorProto.UINT8, [8, 8, 3])},
                     opset=20)
    with pytest.raises(NotImplementedError, match="odd.*ImageDecoder"):
        aotc.compile(odd, out=tmp_path / "b")
    with pytest.raises(aotc.AotcError, match="x86-64-v3"):
        aotc.compile(dense(), out=tmp_path / "b", target="pdp11")
    with pytest.raises(aotc.ScheduleError, match="absent.json"):
        aotc.compile(dense(), out=tmp_path / "b", schedule=tmp_path / "absent.json")
    assert not (tmp_path / "b").exists()


def test_an_index_out_of_its_table_is_an_error_and_not_a_read(tmp_path):
    model = aotc.compile(embedding(), out=tmp_path / "b", target="c", name="lookup",
                         dims={"batch": (1, 4), "seq": (1, 16)}).load()
    ids, mask = np.array([[0, 29, 7]]), np.array([[1, 0, 1]])
    table = onnx.numpy_helper.to_array(embedding().graph.initializer[0])
    np.testing.assert_allclose(model.run({"ids": ids, "mask": mask})["y"],
                               table[[0, 7]].sum(0, keepdims=True), rtol=1e-5, atol=1e-6)
    with pytest.raises(aotc.AotcError, match="lookup"):
        model.run({"ids": ids + 1, "mask": mask})


def test_verify_finds_what_inputs_are_for(tmp_path):
    onnx.save(embedding(), tmp_path / "e.onnx")
    kinds = input_kinds(run_pipeline(Options(tmp_path / "e.onnx", target="c",
                                             stop_after="inline")).program)
    assert {n: k.kind for n, k in kinds.items()} == {"ids": "table", "mask": "mask"}
    assert kinds["ids"].high == 30
    results = verify(tmp_path / "e.onnx", target="c", runs=2, report=lambda line: None)
    assert len(results) >= 6 and all(m.ok for _, m in results)


def test_verify_notices_a_wrong_bundle(tmp_path, monkeypatch):
    onnx.save(dense(), tmp_path / "d.onnx")
    wrong = ("wrong", lambda feeds: {"y": np.full((feeds["x"].shape[0], 4), 7, np.float32)})
    monkeypatch.setattr("aotc.tools.verify.open_reference", lambda path, threads, told: wrong)
    lines = []
    results = verify(tmp_path / "d.onnx", target="c", report=lines.append)
    assert not any(m.ok for _, m in results)
    assert any("MISMATCH" in line for line in lines)


def test_a_stage_that_makes_a_malformed_value_is_reported(monkeypatch):
    stages = [s if s.name != "fold" else replace(
        s, faults=lambda w: ["t9: written twice"]) for s in STAGES]
    monkeypatch.setattr("aotc.pipeline.STAGES", stages)
    with pytest.raises(aotc.AotcError, match="stage fold .*\n.*t9: written twice"):
        run_pipeline(Options(dense(), target="c", stop_after="plan"))


def test_plain_data_of_every_value():
    work = run_pipeline(Options(dense(), target="c", stop_after="plan"))
    program = plain_data(work.program)
    assert program["type"] == "Program" and program["syms"]
    assert {"dtype": "float32", "shape": [8, 4]} in program["consts"].values()
    assert plain_data(work.plan)["kernels"]


def test_loading_needs_no_compiler_modules(tmp_path):
    aotc.compile(dense(), out=tmp_path / "b", target="c", name="tiny").load()
    code = ("import sys, aotc; aotc.load(sys.argv[1]); "
            "print(sorted({'onnx', 'jinja2', 'aotc.pipeline'} & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "b")], text=True,
                          capture_output=True, check=True)
    assert done.stdout.strip() == "[]"
