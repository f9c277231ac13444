"""The GPU benchmark, run dry on the simulator; no number is asserted."""

import json
import shutil

import numpy as np
import pytest
from cusim_build import needs_cxx
from small_models import dense

from benchmarks import cuda, models, torch_models

pytestmark = needs_cxx


@pytest.fixture
def no_zoo(monkeypatch, tmp_path):
    monkeypatch.setenv("AOTC_ZOO", str(tmp_path / "absent"))


@pytest.mark.product
def test_dry_run_checks_and_writes_what_it_can(no_zoo, digits_model, tmp_path, capsys):
    shutil.copy(digits_model[0], tmp_path / "digits.onnx")
    out = tmp_path / "r.json"
    code = cuda.main(["digits", "squeezenet1_1", "--simulate", "--target", "cuda:sm_90",
                      "--models", str(tmp_path), "--json", str(out)])
    data, text = json.loads(out.read_text()), capsys.readouterr().out
    assert code == 0 and data["simulated"] and data["target"] == "cuda:sm_90"
    assert data["results"]["digits"]["ok"] and list(data["results"]) == ["digits"]
    assert "squeezenet1_1   skipped: neither" in text and "digits          ok" in text


@pytest.mark.product
def test_checks_and_timings(no_zoo, tmp_path, monkeypatch):
    """The rest of a run on a GPU, with the simulator in its place."""
    feeds = {"x": np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)}
    monkeypatch.setitem(models.OWN, "mlp", lambda: (dense(4), feeds))
    case = cuda.find_case("mlp", tmp_path)
    model, feeds, seconds = cuda.open_case(case, "cuda", tmp_path, simulate=True)
    assert set(seconds) == {"compile", "build"}
    share, right = cuda.check(case, model, feeds)
    assert right and share < 1e-4
    monkeypatch.setattr(torch_models, "why_not", lambda: "torch finds no GPU")
    systems, skipped = cuda.open_systems("mlp", model, feeds, True)
    assert skipped == dict.fromkeys(("torch eager", "torch.compile"), "torch finds no GPU")
    monkeypatch.setattr(cuda, "BATCH_SECONDS", 0.001)
    times = cuda.time_systems(systems, 0.01)
    assert times["aotc"]["median_ms"] >= times["aotc"]["min_ms"] > 0
    right_run = model.run
    monkeypatch.setattr(model, "run", lambda feeds: {n: a + np.float32(1)
                                                     for n, a in right_run(feeds).items()})
    assert not cuda.check(case, model, feeds)[1]


def test_batches_grow_until_they_take_a_while(monkeypatch):
    now, waits = [0.0], []
    monkeypatch.setattr(cuda.time, "perf_counter", lambda: now[0])

    def call():
        now[0] += 1e-4
    batch, size = cuda.batched(call, lambda: waits.append(now[0]))
    assert 0.5 * cuda.BATCH_SECONDS <= size * 1e-4 <= 2 * cuda.BATCH_SECONDS
    before = now[0]
    batch()
    assert now[0] - before == pytest.approx(size * 1e-4) and len(waits) < 12


def test_without_a_gpu_it_says_what_to_do(monkeypatch, capsys):
    monkeypatch.setattr(cuda, "devices", lambda: ())
    with pytest.raises(SystemExit) as end:
        cuda.main([])
    assert end.value.code == 2 and "--simulate" in capsys.readouterr().err
    assert cuda.pick_target(simulate=True) == "cuda"


def test_the_target_is_the_gpus_own_or_the_one_for_any(monkeypatch):
    for capability, target in (("sm_90", "cuda:sm_90"), ("sm_100", "cuda")):
        monkeypatch.setattr(cuda, "devices", lambda c=capability: (("a GPU", c),))
        assert cuda.pick_target(simulate=False) == target


def test_models_without_a_module_are_looked_up_in_vain():
    with pytest.raises((LookupError, ImportError)):
        torch_models.open_torch("mlp", [], False)
