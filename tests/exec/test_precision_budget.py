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
from aotc.errors import AotcError
from aotc.ir.schedule import Schedule
from aotc.options import Options
from aotc.oracle.shares import share_of_range
from aotc.pipeline import run_pipeline
from aotc.sched.choose.precision import choose_precision
from aotc.sched.precision.budget import MARGIN
from aotc.sched.precision.levels import Level
from aotc.sched.precision.offers import Offer, join_lots, lots_of
from aotc.sched.precision.trials import Trials
from aotc.target import TARGETS
from aotc.tools.verify import verify

F32 = TensorProto.FLOAT
NAME = next(t.name for t in RUNNABLE if any(u.a == "bf16" for u in t.rows("dot")))


@pytest.fixture(autouse=True)
def quick_builds(monkeypatch):
    monkeypatch.setenv("CFLAGS", LEVEL)


def offer(monkeypatch, *precisions):
    """Let a budget choose from these levels alone: each one more is decided and measured, too."""
    monkeypatch.setattr(aotc.as_asked, "LEVELS", tuple(map(Level, precisions)))


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
    offer(monkeypatch, "bf16")  # f16 is fast and near here
    model, counts = chain(), []
    whole = 0.0
    for budget in (0.9, 1e-7, 1e-2):
        budget = min(budget, whole or budget)
        work = _decided(model, error=budget)
        found = work.narrowed
        rewrites = {c for rule, c, _ in work.schedule.rewrites if rule == "narrow"}
        assert rewrites == set(found.levels) and found.error <= MARGIN * budget
        assert work.schedule.precision == ("bf16" if rewrites else "f32")
        whole = whole or found.whole
        assert found.whole == pytest.approx(whole)
        counts.append(len(rewrites))
        assert (found.summary.startswith(f"{len(rewrites)} of 4 products rounded")
                and str(found).count("\n") == len(found.lots))
    assert counts[1] == 0 < counts[2] < counts[0] == 4
    assert found.seconds < found.exact_seconds and all(u.offers[0].gain > 0 for u in found.lots)


def one_and_many(rows=48, seed=0):
    """Two products: y of one row, which waits for its weights, z of ``rows``, which do not."""
    rng = np.random.default_rng(seed)
    w = {n: (rng.standard_normal((size, size)) / 16).astype(np.float32)
         for n, size in (("v", 256), ("w", 64))}
    return make_model([helper.make_node("MatMul", ["x", "v"], ["y"]),
                       helper.make_node("MatMul", ["t", "w"], ["z"])],
                      {"x": (F32, [1, 256]), "t": (F32, [rows, 64])},
                      {"y": (F32, [1, 256]), "z": (F32, [rows, 64])}, w)


def test_products_have_levels_of_their_own_in_one_model(tmp_path, monkeypatch):
    """What the evaluator says of them is what the bundle does; its Schedule says it, too."""
    offer(monkeypatch, "bf16", "int8w", "int4w")
    rng = np.random.default_rng(3)
    feeds = {"x": rng.standard_normal((1, 256)), "t": rng.standard_normal((48, 64))}
    feeds = {n: a.astype(np.float32) for n, a in feeds.items()}
    np.savez(tmp_path / "x.npz", **feeds)
    how = {"error": 0.2, "inputs": tmp_path / "x.npz"}
    work = _decided(one_and_many(), **how)
    assert {c: str(x) for c, x in work.narrowed.levels.items()} == {"y": "int4w", "z": "bf16"}
    assert "(1 int4w, 1 bf16)" in work.narrowed.summary and work.schedule.precision == "mixed"
    consts = work.program.consts
    work = run_pipeline(Options(one_and_many(), tmp_path / "b", NAME, precision="auto",
                                schedule_out=tmp_path / "s.json", **how))
    got = aotc.load(tmp_path / "b").run(feeds)
    f32 = feeds["x"] @ consts["v"], feeds["t"] @ consts["w"]
    errors = [share_of_range(got[n], want) for n, want in zip("yz", f32)]
    assert max(errors) == pytest.approx(work.narrowed.error, rel=0.02) and min(errors) > 0
    assert json.loads((tmp_path / "b" / "manifest.json").read_text())["precision"] == (
        work.schedule.precision)
    aotc.compile(one_and_many(), tmp_path / "again" / "b", target=NAME,
                 schedule=tmp_path / "s.json")
    same = [p.name for p in (tmp_path / "again" / "b").iterdir() if p.suffix in (".c", ".bin")]
    assert same and all((tmp_path / "again" / "b" / n).read_bytes() == (
        tmp_path / "b" / n).read_bytes() for n in same)


def test_variants_of_a_model_round_alike(tmp_path, monkeypatch):
    """Calls of one row and of several read the same weights; both keep the budget."""
    offer(monkeypatch, "bf16", "int8w")
    rng = np.random.default_rng(1)
    w = (rng.standard_normal((512, 512)) / 23).astype(np.float32)
    model = make_model([helper.make_node("MatMul", ["x", "w"], ["h"]),
                        helper.make_node("Tanh", ["h"], ["y"])],
                       {"x": (F32, ["n", 512])}, {"y": (F32, ["n", 512])}, {"w": w})
    made = aotc.compile(model, tmp_path / "b", target=NAME, precision="auto", error=2e-2,
                        dims={"n": (1, 4)}, variants={"n": [(1, 1), (2, 4)]},
                        schedule_out=tmp_path / "s.json")
    schedule = Schedule.from_json((tmp_path / "s.json").read_text())
    assert schedule.variants and schedule.precision != "f32"
    assert {str(s.rewrites) for s in (schedule, *(v.schedule for v in schedule.variants))} == {
        str(schedule.rewrites)}
    for rows in (1, 3):
        x = rng.standard_normal((rows, 512)).astype(np.float32)
        assert 0 < share_of_range(made.load().run({"x": x})["y"], np.tanh(x @ w)) < 2e-2


def test_weights_of_few_bits_are_taken_where_they_are_fastest(tmp_path):
    """One row waits for its weights: the more is allowed, the fewer bits they have; many rows gain
    more by bf16 where rows may not be bytes; what is measured keeps the budget."""
    rng = np.random.default_rng(0)
    w = {n: (rng.standard_normal((128, 128)) / 11).astype(np.float32) for n in "vw"}

    def two(rows):
        return make_model([helper.make_node("MatMul", ["x", "v"], ["h"]),
                           helper.make_node("MatMul", ["h", "w"], ["y"])],
                          {"x": (F32, [rows, 128])}, {"y": (F32, [rows, 128])}, w)
    found = {e: _decided(two(1), error=e) for e in (1e-7, 3e-2, 0.5)}
    assert [x.schedule.precision for x in found.values()] == ["f32", "int8w", "int4w"]
    assert all(x.narrowed.error <= MARGIN * e for e, x in found.items())
    assert found[0.5].narrowed.summary.startswith("2 of 2 products rounded (2 int4w): ")
    assert found[0.5].narrowed.seconds < found[3e-2].narrowed.seconds
    assert _decided(two(8), error=4e-3).schedule.precision == "bf16"


def test_trials_run_what_differs_only():
    """The same errors, whether tensors of the exact run are kept or not; no product: no error."""
    program = run_pipeline(Options(chain(3), target="c", stop_after="inline")).program
    feeds = [{"x": np.random.default_rng(s).standard_normal((13, 48)).astype(np.float32)}
             for s in range(2)]
    one, two = (Trials(program, program, feeds) for _ in range(2))
    two.runs = [{"y": run["y"]} for run in two.runs]
    every = choose_precision(program, TARGETS["c"], "bf16")
    assert len(every) == 3
    assert one.error(()) == 0 < one.error(every[-1:]) == two.error(every[-1:])
    assert one.error(every) == two.error(every) > one.error(every[-1:])


def test_offers_are_those_that_gain_more_for_more_error():
    """A level that gains no more than one that rounds less is none; two lots' are one unit's."""
    near, far, rows = (Level(p, r) for p, r in (("f16", ""), ("int8w", ""), ("int8w", "s8")))
    offers = [{n: Offer(level, (("rule", n, {}),), gain) for n, gain in gains.items()}
              for level, gains in ((near, {"a": 2.0, "b": 1.0}), (far, {"a": 2.0, "c": 3.0}),
                                   (rows, {"a": 1.0, "b": 4.0}))]
    lots = lots_of({"a": "x", "b": "y", "c": "x"}, dict.fromkeys("abc", 9.0), offers)
    assert [(u.computes, u.seconds) for u in lots] == [(("a", "c"), 18.0), (("b",), 9.0)]
    assert [[(o.level, o.gain) for o in u.offers] for u in lots] == [
        [(near, 2.0), (far, 5.0)], [(near, 1.0), (rows, 4.0)]]
    one, = join_lots(lots, 1, 1)
    assert one.computes == ("a", "c", "b") and one.seconds == 27.0
    assert [(o.level, o.gain, o.computes) for o in one.offers] == [
        (near, 3.0, {"a", "b"}), (far, 5.0, {"a", "c"})]
    assert join_lots(lots, 2, 1) == lots


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
    ({"inputs": "nothing.npz"}, AotcError, "not an .npz")])
def test_what_cannot_be_measured_is_refused(options, error, why, tmp_path):
    with pytest.raises(error, match=why):
        aotc.compile(chain(1), tmp_path / "b", target="c", **{"precision": "auto", **options})
    assert not Path(tmp_path / "b").exists()


def test_inputs_that_are_not_the_models_are_named(tmp_path):
    np.savez(tmp_path / "x.npz", z=np.zeros(3, np.float32))
    with pytest.raises(AotcError, match="is missing"):
        _decided(chain(1), inputs=tmp_path / "x.npz")
