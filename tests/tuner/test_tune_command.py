"""``aotc tune`` at the command line."""

import json
import sys

import onnx
import pytest
from tuner_models import convolutions

from aotc.cli import main
from aotc.errors import UnsupportedError
from aotc.target import TARGETS
from aotc.tuner.measure import rigs


@pytest.mark.parametrize("wrong", [
    ["--budget", "soon"], ["--budget", "0s"], ["--plot", "p.png"], ["--threads", "0"]])
def test_wrong_usage(wrong, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["tune", "m.onnx", "-o", "s.json", *wrong])
    assert stopped.value.code == 2 and wrong[0] in capsys.readouterr().err


def test_a_schedule_has_to_go_somewhere(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["tune", "m.onnx"])
    assert stopped.value.code == 2 and "-o" in capsys.readouterr().err


def test_targets_of_other_machines_are_refused(tmp_path, capsys):
    onnx.save(convolutions(), tmp_path / "m.onnx")
    out = tmp_path / "s.json"
    for target in ("dsa:stcp920", "x86-64"):
        assert main(["tune", str(tmp_path / "m.onnx"), "-o", str(out), "--target", target]) == 1
        assert "choose native" in capsys.readouterr().err and not out.exists()


@pytest.mark.parametrize("gpus, nvcc, says, not_", [
    ((), True, "there is no GPU", "nvcc is not found"),
    ((("NVIDIA A100", "sm_80"),), False, "nvcc is not found (install the CUDA toolkit", "no GPU"),
    ((), False, "nvcc is not found (install the CUDA toolkit, or name yours in the environment "
     "variable NVCC); there is no GPU", "capability"),
    ((("Tesla T4", "sm_75"),), True, "its GPU (Tesla T4) has compute capability 7.5, cuda:sm_80 is "
     "for 8.0 (no target runs there)", "nvcc"),
    ((("NVIDIA H100", "sm_90"),), True, "compute capability 9.0, cuda:sm_80 is for 8.0 (choose "
     "--target cuda or cuda:sm_90)", "nvcc")])
def test_what_a_gpu_target_misses_here_is_one_error(gpus, nvcc, says, not_, tmp_path, capsys,
                                                    monkeypatch):
    monkeypatch.setattr(rigs, "devices", lambda: gpus)
    monkeypatch.setenv("NVCC", sys.executable if nvcc else "no-such-nvcc")
    onnx.save(convolutions(), tmp_path / "m.onnx")
    command = ["tune", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "s.json"), "--records",
               str(tmp_path / "r"), "--target", "cuda:sm_80"]
    assert main(command) == 1
    error = capsys.readouterr().err
    assert says in error and not_ not in error and "--simulate" in error
    assert error.count("tune: ") == 1 and "cuda:sm_80" in error
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_a_gpu_that_runs_the_code_is_timed_on(monkeypatch):
    monkeypatch.setenv("NVCC", sys.executable)
    for gpu, target in (("sm_80", "cuda:sm_80"), ("sm_86", "cuda:sm_80"), ("sm_90", "cuda")):
        monkeypatch.setattr(rigs, "devices", lambda gpu=gpu: (("a GPU", gpu),))
        rig = rigs.find_rig(TARGETS[target])
        assert isinstance(rig, rigs.GpuRig) and not rig.simulate and rig.machine == "a GPU"
    with pytest.raises(UnsupportedError, match="threads 2.*leave threads out"):
        rigs.find_rig(TARGETS["cuda"], threads=2)


def test_only_gpus_are_simulated(tmp_path, capsys):
    onnx.save(convolutions(), tmp_path / "m.onnx")
    assert main(["tune", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "s.json"),
                 "--simulate", "--target", "c"]) == 1
    assert "c is no GPU; leave simulate out" in capsys.readouterr().err


def test_a_broken_records_file_is_refused_before_anything_is_measured(tmp_path, capsys):
    onnx.save(convolutions(), tmp_path / "m.onnx")
    (tmp_path / "r").write_text("hello\n")
    assert main(["tune", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "s.json"),
                 "--records", str(tmp_path / "r")]) == 1
    assert "line 1" in capsys.readouterr().err


@pytest.mark.product
def test_a_tuned_schedule_compiles(tmp_path, capsys):
    onnx.save(convolutions(size=20), tmp_path / "m.onnx")
    out, model = tmp_path / "s.json", str(tmp_path / "m.onnx")
    assert main(["tune", model, "-o", str(out), "--budget", "5s", "--records",
                 str(tmp_path / "r"), "--plot", str(tmp_path / "p.svg")]) == 0
    assert "candidates measured" in capsys.readouterr().out
    assert json.loads(out.read_text())["groups"] and (tmp_path / "p.svg").exists()
    assert main(["compile", model, "-o", str(tmp_path / "b"), "--schedule", str(out)]) == 0
    assert main(["tune", model, "-o", str(out), "--budget", "1s", "--records",
                 str(tmp_path / "r")]) == 0
