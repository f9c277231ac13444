"""The GPU benchmark, run dry on the simulator; no number is asserted."""

import json
import subprocess
import sys

import numpy as np
import onnx
import pytest
from cusim_build import needs_cxx

from benchmarks import cuda
from benchmarks.gpu import cases, checks, nets, providers, stages, timing
from benchmarks.gpu.cases import GpuCase
from benchmarks.gpu.prepare import prepare


def test_a_dry_run_writes_what_it_finds(tmp_path, monkeypatch):
    """A refusal is a row, not an end; a stage that fails leaves the others."""
    small = [GpuCase("map", (3, 40)), GpuCase("matmul", (3, 64, 40), "tf32x")]
    monkeypatch.setattr(cuda, "operators", lambda simulate: small)
    monkeypatch.setattr(cuda, "networks", lambda simulate: [])
    monkeypatch.setattr(checks, "run_row_tests", lambda *_: 1 / 0)
    code = cuda.main(["--out", str(tmp_path), "--stages", "1", "2", "3", "6", "--simulate",
                      "--target", "cuda:sm_90", "--jobs", "1", "--scratch", str(tmp_path / "s")])
    found = json.loads((tmp_path / "cuda.json").read_text())
    assert found["about"]["target"] == "cuda:sm_90" and found["about"]["simulated"]
    assert found["1 ceilings"]["skipped"] == "a dry run"
    assert code == 1 and "ZeroDivisionError" in found["2 rows"]["failed"]
    row = found["3 operators"]["map 3x40 f32"]
    assert row["ok"] and row["kernels"] == 1 and row["predicted ms"] > 0
    assert found["6 cost"]["skipped"] == "a dry run" and found["6 cost"]["kernels"] >= 2


@needs_cxx
@pytest.mark.product
def test_the_whole_dry_run(tmp_path):
    done = subprocess.run([sys.executable, "-m", "benchmarks.cuda", "--out", str(tmp_path),
                           "--simulate", "--jobs", "2"], capture_output=True, text=True,
                          timeout=3600, cwd=cuda.models.ROOT)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = json.loads((tmp_path / "cuda.json").read_text())
    rows = [r for name in ("3 operators", "4 nets") for r in found[name].values()
            if isinstance(r, dict)]
    assert len(rows) > 8 and all(r.get("ok") for r in rows), rows


def test_stages_keep_what_they_have_when_time_is_over(tmp_path):
    now = [0.0]
    run = stages.Stages(tmp_path, 100, {}, clock=lambda: now[0])

    def slow(s, rows):
        assert s.left == 30
        s.note(rows, "first", {"ms": 1.5})
        now[0] += 60
        assert s.late()
        assert json.loads(run.path.read_text())["a"] == {"first": {"ms": 1.5}}
    run.run("a", 30, slow)
    run.run("b", 60, lambda s, rows: rows.update(left=s.left))
    now[0] = 101
    run.run("c", 60, slow)
    found = json.loads(run.path.read_text())
    assert found["b"]["left"] == 40 and found["c"]["skipped"] == "no time is left"
    assert found["a"]["seconds"] == 60


@pytest.mark.parametrize("one", [*cuda.operators(True), GpuCase("matmul", (4, 64, 40), "int8w")],
                         ids=lambda c: c.name)
def test_small_operators_are_models_that_a_reference_takes(one, tmp_path):
    model = one.model()
    onnx.save(model, tmp_path / "m.onnx")
    from aotc.tools.peers import open_reference
    from benchmarks.gpu.prepare import _described
    feeds = cases.make_feeds(map(_described, model.graph.input))
    (out,) = open_reference(tmp_path / "m.onnx")[1](feeds).values()
    assert np.isfinite(out.astype("f8")).all() and out.dtype == {
        "s8": np.int32, "f16": np.float16}.get(one.type, np.float32)


def test_cases_have_names_of_their_own():
    for wanted in (cuda.operators(False), cuda.operators(True), cuda.networks(False),
                   cuda.networks(True)):
        assert len({w.name for w in wanted}) == len({w.stem for w in wanted}) == len(wanted)
    square = cases.CUBE[0]
    assert square.flops() == 2 * 4096**3 and square.weight_bytes() == 4 * 4096**2
    assert GpuCase("conv", (128, 128, 28, 128, 3, 1)).flops() == pytest.approx(25.5e9, rel=0.01)
    assert sum(cuda.SHARES.values()) <= 8.7 * 60


def test_bytes_of_what_memory_bounds():
    assert GpuCase("attention", (32, 1, 4096, 128), "f16").moved_bytes() == 2 * 32 * 4096 * 128 * 2
    assert GpuCase("norm", (128, 64)).moved_bytes() == 2 * 128 * 64 * 4
    assert GpuCase("matmul", (1, 64, 32), "f16").moved_bytes() == 64 * 32 * 2
    assert not cases.CUBE[0].moved_bytes() and not GpuCase("conv", (1,) * 6).moved_bytes()
    assert any(c.source == "128 MB" and c.moved_bytes() >= 128 << 20 for c in cases.OTHERS)


def test_nets_of_the_zoo_are_models_at_their_batch(zoo_model):
    zoo_model("nerf_mlp")  # skips where there is no zoo
    found = {n.name: n for n in nets.zoo_nets()}
    assert len(found) > len(nets.WELDER) and "nerf_mlp batch 32 f16" not in found
    net = found["mobilenet_v2 batch 32 f16"]
    (x,) = net.model().graph.input
    assert x.type.tensor_type.shape.dim[0].dim_value == 32
    assert x.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16


def test_a_provider_that_is_missing_is_told(tmp_path):
    pytest.importorskip("onnxruntime")
    row = {}
    assert providers.provider_systems(tmp_path / "no.onnx", {}, row) == {}
    assert all(f"onnxruntime {name}" in row for name in providers.PROVIDERS)


def test_a_model_that_is_refused_has_the_reason(tmp_path):
    made = prepare(lambda: nets.Net("bert_base", 1, small=True).model(), tmp_path / "n.onnx",
                   "cuda", None, {"precision": "no such"}, True)
    assert "no such" in made.fault and not made.folder.exists()


def test_costs_are_ranked_by_kernels_that_were_timed():
    pairs = {f"k{i}": (p, m) for i, (p, m) in enumerate([(1, 1), (2, 3), (3, 2.5), (9, 10)])}
    found = checks.compare_costs(pairs)
    assert found["kernels"] == 4 and found["rank correlation"] == pytest.approx(0.8)
    assert set(found["worst"]) == {"k0", "k1", "k2", "k3"}
    assert checks.compare_costs({"k": (1, 1)})["skipped"]
    assert checks.rank_correlation([1, 2, 3], [9, 5, 1]) == pytest.approx(-1)


def test_what_is_wrong_is_told():
    found = cuda.wrong_rows({"about": {"failed": "no"}, "3 operators": {
        "a": {"ok": True}, "b": {"ok": False}, "c": {"failed": "x"}, "d": {"refused": "y"}},
        "2 rows": {"passed": False}})
    assert found == ["3 operators: b", "3 operators: c", "2 rows: 2 rows"]


def test_batches_grow_until_they_take_a_while(monkeypatch):
    now, waits = [0.0], []
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])

    def call():
        now[0] += 1e-4
    batch, size = timing.batched(call, lambda: waits.append(now[0]))
    assert 0.5 * timing.BATCH_SECONDS <= size * 1e-4 <= 2 * timing.BATCH_SECONDS
    before = now[0]
    batch()
    assert now[0] - before == pytest.approx(size * 1e-4) and len(waits) < 12


def test_calls_come_in_turn_and_times_are_of_one_inference(monkeypatch):
    made = []
    call = timing.in_turn([lambda: made.append("a"), lambda: made.append("b")])
    for _ in range(3):
        call()
    assert made == ["a", "b", "a"]
    monkeypatch.setattr(timing, "BATCH_SECONDS", 0.001)
    one = timing.time_systems({"x": timing.System(lambda: None, lambda: None)}, 0.01)["x"]
    assert one > 0


def test_without_a_gpu_it_says_what_to_do(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(cuda, "devices", lambda: ())
    with pytest.raises(SystemExit) as end:
        cuda.main(["--out", str(tmp_path)])
    assert end.value.code == 2 and "--simulate" in capsys.readouterr().err
    assert cuda.pick_target(simulate=True) == "cuda"


def test_the_target_is_the_gpus_own_or_the_one_for_any(monkeypatch):
    for capability, target in (("sm_90", "cuda:sm_90"), ("sm_100", "cuda")):
        monkeypatch.setattr(cuda, "devices", lambda c=capability: (("a GPU", c),))
        assert cuda.pick_target(simulate=False) == target
