"""The command line: each way of ending in a process of its own, as a user meets it, everything
else by a call."""

import io
import json
import os
import pty
import re
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from importlib.metadata import version

import numpy as np
import onnx
import pytest
from small_models import dense

from aotc.cli import main
from aotc.pipeline import STAGE_NAMES
from aotc.version import __version__


def aotc(*args, cwd=None):
    """The finished process of ``python -m aotc ARGS``, stdout and stderr as text."""
    return subprocess.run([sys.executable, "-m", "aotc", *map(str, args)], cwd=cwd,
                          capture_output=True, text=True, timeout=300)


def here(*args):
    """The same of a call in this process, which has read the compiler already."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(list(map(str, args)))
        except SystemExit as end:
            code = end.code
    return subprocess.CompletedProcess(args, code, out.getvalue(), err.getvalue())


def ok(*args, run=here):
    """stdout of a command that must succeed."""
    done = run(*args)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(*args, code=1, run=here):
    """stderr of a command that must fail with ``code`` and without a traceback."""
    done = run(*args)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """y = relu(x @ w + b) with x f32[n, 8], w f32[8, 4]."""
    path = tmp_path_factory.mktemp("cli") / "tiny.onnx"
    onnx.save(dense(), path)
    return path


@pytest.fixture(scope="module")
def bundle(model, tmp_path_factory):
    """The folder of the compiled and built model, n in 1..32."""
    out = tmp_path_factory.mktemp("bundle") / "tiny"
    text = ok("compile", model, "-o", out, "--target", "c", "--dim", "n=1..32", run=aotc)
    assert str(out) in text and "kernels" in text
    assert ok("build", out).strip().startswith(str(out))
    return out


def test_run_writes_outputs(model, bundle, tmp_path):
    x = np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    text = ok("run", bundle, "--input", f"x={tmp_path / 'x.npy'}", "--output-dir", tmp_path,
              run=aotc)
    assert "y: float32[5, 4]" in text
    w, b = (onnx.numpy_helper.to_array(t) for t in onnx.load(model).graph.initializer)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), np.maximum(x @ w + b, 0),
                               rtol=1e-5, atol=1e-5)


def test_run_refuses_wrong_inputs(bundle, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((5, 8), np.float64))
    assert "float64" in refused("run", bundle, "--input", f"x={tmp_path / 'x.npy'}")
    assert "x" in refused("run", bundle)
    assert "no .npy file" in refused("run", bundle, "--input", f"x={bundle / 'manifest.json'}")
    refused("run", bundle, "--input", "x", code=2)


def test_verify_reports_every_output_and_its_worst_error(model, tmp_path):
    text = ok("verify", model, "--target", "c", "--runs", 2, "--dim", "n=1..40")
    assert re.search(r"y: ok  max \|a-b\| \S+, \S+ of the range .*\[\d+ runs", text), text
    np.savez(tmp_path / "x.npz", x=np.ones((3, 8), np.float32))
    assert "[1 runs" in ok("verify", model, "--target", "c", "--inputs", tmp_path / "x.npz")


def test_dump_and_stop_after(model, tmp_path):
    text = ok("compile", model, "--stop-after", "schedule", "--dump", tmp_path)
    assert "stopped after schedule" in text
    names = sorted(p.name for p in tmp_path.iterdir())
    wanted = STAGE_NAMES[:STAGE_NAMES.index("schedule") + 1]
    assert names == [f"{k:02d}-{s}.txt" for k, s in enumerate(wanted, 1)]
    assert "Gemm" in (tmp_path / "02-graph.txt").read_text()
    assert all(p.read_text().strip() for p in tmp_path.iterdir())


def test_schedule_round_trip_and_every_fault_of_a_wrong_edit(model, bundle, tmp_path):
    path, again = tmp_path / "s.json", tmp_path / "again"
    ok("compile", model, "-o", tmp_path / "one", "--target", "c", "--schedule-out", path,
       "--dim", "n=1..32")
    ok("compile", model, "-o", again, "--target", "c", "--schedule", path, "--dim", "n=1..32",
       "--name", "tiny")
    one = {p.name: p.read_bytes() for p in (tmp_path / "one").iterdir()}
    assert one == {p.name: p.read_bytes() for p in again.iterdir()}
    data = json.loads(path.read_text())
    group = data["groups"][0]
    group["ukernel"] = dict.fromkeys(group["computes"], "no_such_row")
    group["outputs"] = ["no_such_buffer"]
    path.write_text(json.dumps(data))
    text = refused("compile", model, "-o", again, "--target", "c", "--schedule", path)
    assert "no_such_row" in text and "no_such_buffer" in text


@pytest.mark.parametrize("stage", ["graph", "program", "fold", "inline", "schedule", "plan",
                                   "bundle", "kernels", "layouts", "source"])
def test_show_text_and_json(model, stage, capsys):
    command = ["show", str(model), stage, "--target", "c"]
    assert main(command) in (0, None)
    assert len(capsys.readouterr().out) > 40
    assert main([*command, "--json"]) in (0, None)
    assert json.loads(capsys.readouterr().out)


@pytest.mark.product
def test_show_in_a_process_of_its_own(model):
    assert json.loads(ok("show", model, "plan", "--target", "c", "--json", run=aotc))


def test_targets_lists_every_target():
    text = ok("targets")
    assert all(re.search(rf"^{t}\s", text, re.M) for t in ("c", "x86-64-v3", "native"))


def test_bench_of_a_model_beside_a_peer_and_of_a_bundle(model, bundle):
    pytest.importorskip("onnxruntime")
    text = ok("bench", model, "--target", "c", "--seconds", 0.05, "--compare", "onnxruntime",
              "--dim", "n=1..32")
    assert re.search(r"^aotc .*1\.00x", text, re.M) and re.search("^onnxruntime ", text, re.M)
    assert "median" in ok("bench", bundle, "--seconds", 0.05)
    assert "needs the model" in refused("bench", bundle, "--compare", "onnxruntime").replace(
        "need the model", "needs the model")


def test_ranges_not_given_are_printed_and_pipes_see_no_progress(model, tmp_path):
    done = aotc("compile", model, "-o", tmp_path / "b", "--target", "c")
    assert done.returncode == 0
    assert re.search("dimension 'n' of any extent from 1 .*default", done.stderr), done.stderr
    assert "\r" not in done.stderr and "[1/" not in done.stderr
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.product
def test_a_terminal_sees_progress(model, tmp_path):
    command = [sys.executable, "-m", "aotc", "verify", str(model), "--target", "c", "--dim", "n=4"]
    leader, follower = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower) as process:
        os.close(follower)
        assert b"y: ok" in process.stdout.read()
    shown = b""
    while not shown.endswith(b"\x1b[K"):  # the last thing shown is the cleared line
        shown += os.read(leader, 1 << 16)
    os.close(leader)
    assert b"[1/10] load" in shown and b"/10] schedule" in shown and b"] cc " in shown


def test_user_errors(model, tmp_path):
    assert "absent.onnx" in refused("compile", tmp_path / "absent.onnx", "-o", tmp_path / "o",
                                    run=aotc)
    (tmp_path / "text.onnx").write_text("not a model")
    refused("compile", tmp_path / "text.onnx", "-o", tmp_path / "o")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("keep")
    text = refused("compile", model, "-o", tmp_path / "full", "--target", "c")
    assert "full" in text and (tmp_path / "full" / "mine.txt").read_text() == "keep"
    assert "x86-64-v3" in refused("compile", model, "-o", tmp_path / "o", "--target", "z80")
    assert "manifest" in refused("build", tmp_path / "full")


def test_wrong_usage_is_code_2(model):
    refused("compile", model, code=2)
    refused("compile", model, "-o", "x", "--dim", "n:3", code=2)
    refused("show", model, "nowhere", code=2)
    refused("frobnicate", code=2, run=aotc)
    refused(code=2)
    refused("run", "x", "--threads", "0", code=2)


def test_the_version_is_said_once(tmp_path):
    done = aotc("--version", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout == f"aotc {version('aotc')}\n"
    assert version("aotc") == __version__
