"""Building and timing in processes that crash and hang."""

import json
import pickle
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from tuner_models import convolutions, scheduled, untuned_candidates

from aotc.ir.expr import Axis, Const, Load
from aotc.target import TARGETS
from aotc.tuner.measure import executor as module
from aotc.tuner.measure import measure_worker, rigs
from aotc.tuner.measure.executor import LocalExecutor, Result, order_in_turns
from aotc.tuner.measure.measure_worker import compare_with_first, median_interval, typical_seconds
from aotc.tuner.measure.rigs import find_rig

WORKER = """
import json, os, pickle, sys, time
from pathlib import Path
folder = Path(sys.argv[2])
job = pickle.loads((folder / "job").read_bytes())
points = [c.point[0] for c in job.candidates]
if "hang" in points:
    time.sleep(600)
if "crash" in points:
    os.kill(os.getpid(), 11)
if "refused" in points:
    raise ValueError("no such thing")
(folder / "times").write_text(json.dumps([[len(points) * 1.0, [1, 1]]] * len(points)))
"""


class Point:
    """A candidate that only has a name; picklable."""

    def __init__(self, name, site="s"):
        self.point, self.site = (name, ()), site


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Workers that do what their candidates are called."""
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    real = module.subprocess.Popen

    def started(command, **kwargs):
        env = kwargs.pop("env")
        env["PYTHONPATH"] = ":".join(sys.path) + ":" + env["PYTHONPATH"]
        return real([sys.executable, str(script), *command[3:]], env=env, **kwargs)

    monkeypatch.setattr(module.subprocess, "Popen", started)
    return LocalExecutor(find_rig(TARGETS["c"]))


@pytest.mark.product
def test_one_crash_spoils_no_other_candidate(stand_in):
    found = stand_in.build_and_measure([Point(n) for n in ("a", "crash", "b", "c")])
    assert found[1].seconds is None and "signal 11" in found[1].error
    assert [r.seconds is not None for r in found] == [True, False, True, True]


@pytest.mark.product
def test_a_hang_ends(stand_in):
    stand_in.timeout, start = 4.0, time.monotonic()
    found = stand_in.build_and_measure([Point("a"), Point("hang")])
    assert "took longer" in found[1].error
    assert time.monotonic() - start < 120


def test_a_refusal_says_why(stand_in):
    found, = stand_in.build_and_measure([Point("refused")])
    assert found.seconds is None and "ValueError: no such thing" in found.error
    assert stand_in.build_and_measure([]) == []


def test_what_breaks_everything_is_not_looked_for_in_each(stand_in, monkeypatch):
    calls = []
    monkeypatch.setattr(stand_in, "_batch", lambda some: calls.append(len(some)) or "no compiler")
    found = stand_in.build_and_measure([Point("a") for _ in range(64)])
    assert all(r == Result(None, "no compiler") for r in found)
    assert len(calls) <= module.MAX_BATCHES


def test_candidates_of_one_site_run_far_apart():
    order = order_in_turns(["a", "a", "b", "a", "b", "c"])
    assert sorted(order) == list(range(6)) and order == [0, 2, 5, 1, 4, 3]


def test_disturbed_calls_do_not_count():
    runs = [[1.0, 5.0]] * 20 + [[90.0, 70.0]] * 20
    assert typical_seconds(runs).tolist() == [1.0, 5.0]
    assert typical_seconds([[3.0]]).tolist() == [3.0]


def test_a_site_is_judged_call_by_call():
    quiet = np.array([[1.0, 0.5, 3.0]] * 10)
    loud = quiet * np.linspace(1, 9, 10)[:, None]  # the machine gets slower, for all alike
    for calls in (quiet, loud):
        assert compare_with_first(calls, ["a", "a", "b"]) == [
            (1.0, (1.0, 1.0)), (0.5, (0.5, 0.5)), (3.0, (1.0, 1.0))]
    assert [s for s, _ in compare_with_first(quiet[:, ::-1], ["a", "b", "a"])] == [3.0, 0.5, 1.0]


def test_the_interval_of_a_median():
    draws = np.random.default_rng(0).normal(size=(2000, 41))
    found = np.array([median_interval(x) for x in draws])
    assert 0.94 < np.mean((found[:, 0] <= 0) & (found[:, 1] >= 0)) < 0.99
    assert median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)  # too few to leave any out
    assert median_interval(np.full(9, 2.0)) == (2.0, 2.0)


PRINTS = """
import pickle, sys
from aotc.ir.expr import Axis, Const, Load
from aotc.sched.lowering.lower import lower
from aotc.target import get_target
from aotc.tuner.space.trial import trial_program
some, expr = pickle.loads(sys.stdin.buffer.read())
assert expr in {Load("x", (Axis("i", Const(4)),), "f32")}
program, schedule, _ = trial_program(some, get_target("x86-64-v4"))
print(len(lower(program, schedule, get_target("x86-64-v4")).kernels))
"""


def test_candidates_mean_the_same_in_another_process():
    work = scheduled(convolutions(size=14, channels=64), "x86-64-v4")
    some = [c for _, c in untuned_candidates(work)]
    assert any(g.rows[s].startswith("transform") for c in some for g in c.groups
               for s in g.rows)
    expr = Load("x", (Axis("i", Const(4)),), "f32")
    assert hash(expr) == hash(expr)  # hashes that depend on the process have been made
    for seed in ("1", "2"):
        done = subprocess.run([sys.executable, "-c", PRINTS], input=pickle.dumps((some, expr)),
                              capture_output=True, env={
                                  "PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)})
        assert done.returncode == 0, done.stderr.decode()
        assert int(done.stdout) >= len(some)


def test_real_candidates_are_built_and_timed():
    work = scheduled(convolutions(size=8, channels=16), "native")
    some = [c for _, c in untuned_candidates(work)]
    found = LocalExecutor(find_rig(work.target), seconds=0.02).build_and_measure(some + some[:1])
    assert all(r.error == "" and 0 < r.seconds < 1 for r in found), json.dumps(
        [r.error for r in found])
    assert found[0].interval == (1, 1) and found[-1].interval[0] <= found[-1].interval[1]


def test_bundles_are_compared_in_both_orders_of_loading(tmp_path, monkeypatch):
    loaded = []

    def fake(bundle, threads):
        loaded.append(bundle.name)
        seconds = {"a": 1.0, "b": 2.0}[bundle.name]
        return SimpleNamespace(
            manifest={"profile": True}, bind=lambda feeds: lambda: {"y": np.ones(2)},
            profile=lambda reset: [SimpleNamespace(seconds=seconds)])

    monkeypatch.setattr(rigs, "load", fake)
    monkeypatch.setattr(rigs, "use_cpus", lambda threads: None)
    (tmp_path / "job").write_bytes(pickle.dumps(
        {"bundles": ["a", "b"], "feeds": {}, "seconds": 0.0, "rig": find_rig(TARGETS["c"])}))
    measure_worker.compare(tmp_path)
    times = json.loads((tmp_path / "times").read_text())
    assert loaded == ["a", "b", "b", "a"] and times["worst"] == 0.0
    calls = [{s for call in kernels for s in call} for kernels in times["kernels"]]
    assert calls == [{1.0}, {2.0}] and len({len(k) for k in times["kernels"]}) == 1
