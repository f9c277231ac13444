"""``aotc tune`` at the command line."""

import json

import onnx
import pytest
from tuner_models import convolutions

from aotc.cli import main


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
    assert main(["tune", str(tmp_path / "m.onnx"), "-o", str(out), "--target", "cuda"]) == 1
    assert "choose native" in capsys.readouterr().err and not out.exists()


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
