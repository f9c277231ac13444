"""``precision="auto"``: as many products are rounded as a budget of error allows, and no more."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from harness import RUNNABLE
from onnx import TensorProto, helper
from quick_builds import LEVEL
from small_models import make_model

import aotc
import aotc.as_asked
from aotc.cli import main
from aotc.errors import AotcError, ScheduleError
from aotc.options import Options
from aotc.oracle.shares import share_of_range
from aotc.pipeline import run_pipeline
from aotc.sched.precision.budget import MARGIN, Trials
from aotc.tools.verify import verify

F32 = TensorProto.FLOAT
NAME = next(t.name for t in RUNNABLE if any("bf16" in u.dtypes for u in t.rows("dot")))


@pytest.fixture(autouse=True)
def quick_builds(monkeypatch):
    monkeypatch.setenv("CFLAGS", LEVEL)


def chain(layers=4, width=48, seed=0):
    """y f32[13, width]: ``layers`` products of ``width`` columns, a tanh behind each, the first one
    of large weights: what comes in is amplified."""
    rng = np.random.default_rng(seed)
    tensors, nodes, now = {}, [], "x"
    for i in range(layers):
        scale = 0.3 if i == 0 else 0.05
        tensors[f"w{i}"] = (scale * rng.standard_normal((width, width))).astype(np.float32)
        out = "y" if i == layers - 1 else f"h{i}"
        nodes += [helper.make_node("MatMul", [now, f"w{i}"], [f"p{i}"]),
                  helper.make_node("Tanh", [f"p{i}"], [out])]
        now = out
    return make_model(nodes, {"x": (F32, [13, width])}, {"y": (F32, [13, width])}, tensors)


def _decided(model, **more):
    return run_pipeline(Options(model, target="x86-64-v4-bf16", precision="auto",
                                stop_after="schedule", **more))


def test_a_budget_takes_as_many_products_as_it_allows(monkeypatch):
    """More of them for a larger one, all and none at the ends; what is measured keeps it."""
    monkeypatch.setattr(aotc.as_asked, "LEVELS", ("bf16",))  # f16 is fast and near here
    model, counts = chain(), []
    whole = 0.0
    for budget in (0.9, 1e-7, 1e-2):
        budget = min(budget, whole or budget)
        work = _decided(model, error=budget)
        found = work.narrowed
        rewrites = {c for rule, c, _ in work.schedule.rewrites if rule == "narrow"}
        assert rewrites == found.taken and found.error <= MARGIN * budget
        assert work.schedule.precision == ("bf16" if rewrites else "f32")
        whole = whole or found.whole
        assert found.whole == pytest.approx(whole)
        counts.append(len(rewrites))
        assert (found.summary.startswith(f"{len(rewrites)} of 4 products rounded")
                and str(found).count("\n") == len(found.units))
    assert counts[1] == 0 < counts[2] < counts[0] == 4
    assert found.seconds < found.exact_seconds and all(u.gain > 0 for u in found.units)


@pytest.mark.product
def test_errors_of_trials_are_those_of_bundles(tmp_path):
    """What the evaluator says of some products is what the compiled ones do."""
    model = chain()
    feeds = {"x": np.random.default_rng(3).standard_normal((13, 48)).astype(np.float32)}
    np.savez(tmp_path / "x.npz", **feeds)
    work = _decided(model, error=4e-3, inputs=tmp_path / "x.npz")
    outs = []
    for precision, more in (("f32", {}), ("auto", {"error": 4e-3, "inputs": tmp_path / "x.npz"})):
        made = aotc.compile(model, tmp_path / precision, target=NAME, precision=precision, **more)
        outs.append(made.load().run(feeds)["y"])
    measured = share_of_range(outs[1], outs[0])
    assert 0 < work.narrowed.error <= 4e-3
    assert measured == pytest.approx(work.narrowed.error, rel=0.02)
    manifest = json.loads((tmp_path / "auto" / "manifest.json").read_text())
    assert manifest["precision"] == "bf16"


def test_weights_of_few_bits_are_taken_where_they_are_fastest(tmp_path):
    """One row waits for its weights: the more is allowed, the fewer bits they have; many rows gain
    more by bf16; what is measured keeps the budget."""
    rng = np.random.default_rng(0)
    w = {n: (rng.standard_normal((512, 512)) / 23).astype(np.float32) for n in "vw"}

    def two(rows):
        return make_model([helper.make_node("MatMul", ["x", "v"], ["h"]),
                           helper.make_node("MatMul", ["h", "w"], ["y"])],
                          {"x": (F32, [rows, 512])}, {"y": (F32, [rows, 512])}, w)
    found = {e: _decided(two(1), error=e) for e in (1e-7, 3e-2, 0.5)}
    assert [x.schedule.precision for x in found.values()] == ["f32", "int8w", "int4w"]
    assert all(x.narrowed.error <= MARGIN * e for e, x in found.items())
    assert found[0.5].narrowed.summary.startswith("weights in int4w, ")
    assert found[0.5].narrowed.seconds < found[3e-2].narrowed.seconds
    assert _decided(two(64), error=0.5).schedule.precision == "bf16"


def test_trials_run_what_differs_only():
    """The same errors, whether tensors of the exact run are kept or not; no product: no error."""
    model = chain(3)
    work = run_pipeline(Options(model, target="c", precision="bf16", stop_after="schedule"))
    feeds = [{"x": np.random.default_rng(s).standard_normal((13, 48)).astype(np.float32)}
             for s in range(2)]
    one, two = (Trials(work.program, work.schedule.rewrites, feeds) for _ in range(2))
    two.runs = [{"y": run["y"]} for run in two.runs]
    last = list(one.wanted)[-1]
    assert one.error(()) == 0 < one.error([last]) == two.error([last])
    assert one.error(one.wanted) == two.error(two.wanted) > one.error([last])


@pytest.mark.product
def test_verify_judges_by_the_budget(tmp_path, capsys):
    path = tmp_path / "chain.onnx"
    onnx.save(chain(), path)
    lines = []
    for precision, error in (("auto", 5e-3), ("bf16", 0.2)):
        found = verify(path, NAME, precision=precision, error=error, report=lines.append)
        assert all(m.ok and m.limit == error for _, m in found)
    assert any("products rounded" in line for line in lines)
    assert main(["show", str(path), "precision", "--precision", "auto", "--error", "5e-3"]) == 0
    assert "budget 0.005" in capsys.readouterr().out
    assert main(["show", str(path), "precision", "--precision", "bf16", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["products"]) == 4


@pytest.mark.parametrize("options, error, why", [
    ({"error": 0.0}, AotcError, "between 0 and 1"),
    ({"precision": "bf16", "inputs": "x.npz"}, AotcError, "for precision 'auto' only"),
    ({"inputs": "nothing.npz"}, AotcError, "not an .npz"),
    ({"variants": "auto"}, ScheduleError, "leave variants out")])
def test_what_cannot_be_measured_is_refused(options, error, why, tmp_path):
    with pytest.raises(error, match=why):
        aotc.compile(chain(1), tmp_path / "b", target="c", **{"precision": "auto", **options})
    assert not Path(tmp_path / "b").exists()


def test_inputs_that_are_not_the_models_are_named(tmp_path):
    np.savez(tmp_path / "x.npz", z=np.zeros(3, np.float32))
    with pytest.raises(AotcError, match="is missing"):
        _decided(chain(1), inputs=tmp_path / "x.npz")
