"""Variants found by cost: calls spread over ranges, regimes, the tree, and what is decided."""

import json

import numpy as np
import onnxruntime
import pytest

from aotc import compile as compile_model
from aotc import load
from aotc.errors import AotcError, ModelError, ScheduleError
from aotc.ir.expr import Const, Sym, compare
from aotc.ir.program import Check, Program
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.runtime.status import ShapeError
from aotc.sched import decide
from aotc.sched.dynamic.choose import decide_ranges
from aotc.sched.dynamic.tree import WITHIN, learn, pick
from aotc.sched.model.typical_calls import (
    Call,
    ladder,
    observed_calls,
    read_samples,
    regimes,
    spread_calls,
    usual_extents,
)
from aotc.target import get_target
from aotc.tools.show import show_stage
from benchmarks.exported.build import Writer


def program(*syms, checks=()):
    return Program("p", (), (), {}, {}, (), syms, checks)


def test_ladders_reach_both_ends():
    assert ladder(Sym("n", 1, 512), 4) == (1, 8, 64, 512)
    assert ladder(Sym("n", 0, 1), 5) == (1,)
    assert ladder(Sym("n", 96, 512), 3) == (96, 222, 512)
    assert ladder(Sym("n", 1, None, 128), 2) == (1, 128)


def test_calls_keep_to_the_checks():
    n, m = Sym("n", 1, 8), Sym("m", 1, 8)
    found = spread_calls(program(n, m, checks=(Check(compare("ge", m, n), "node"),)))
    assert found and all(c.extents["m"] >= c.extents["n"] for c in found)


def test_regimes_cut_the_widest_ranges_together():
    assert regimes(program(Sym("n", 3, 8))) == ()
    found = regimes(program(Sym("b", 1, 2), Sym("n", 1, 512)))
    assert found == ({"n": (1, 8)}, {"n": (9, 64)}, {"n": (65, 512)})
    images = regimes(program(Sym("h", 100, 400), Sym("w", 100, 400)))
    assert images == ({"h": (100, 200), "w": (100, 200)}, {"h": (201, 400), "w": (201, 400)})


def test_observed_calls(tmp_path):
    p = program(Sym("n", 1, 8))
    file = tmp_path / "seen.json"
    file.write_text(json.dumps([{"len": 3}, {"len": 5, "share": 2}]))
    rows = read_samples(file, {"len": "n"})
    assert observed_calls(p, rows) == (Call({"n": 3}, 1.0), Call({"n": 5}, 2.0))
    for wrong in ([{"n": 9}], [{"m": 3}], [{"n": "3"}], [{"n": 3, "share": 0}], "nowhere.json", 5,
                  [], [{"n": 3.7}]):
        with pytest.raises(ScheduleError, match="observed shapes"):
            observed_calls(p, read_samples(wrong, {}))


def test_observed_calls_that_no_call_can_be():
    n = Sym("n", 1, 8)
    p = program(n, checks=(Check(compare("ge", n, Const(4)), "node: n >= 4"),))
    with pytest.raises(ScheduleError, match="n >= 4"):
        observed_calls(p, [({"n": 3}, 1.0)])


def test_the_tree_picks_what_serves_every_call():
    p = program(Sym("a", 1, 64), Sym("b", 1, 64))
    calls = spread_calls(p)
    best = [int(c.extents["a"] >= 8 and c.extents["b"] >= 8) for c in calls]
    leaves = learn(p, calls, best, lambda v, i: 1.0 if v == best[i] else 0.5)
    assert [pick(leaves, c) for c in calls] == best
    one = learn(p, calls, best, lambda v, i: 1.0 if v == best[i] else WITHIN)
    assert len(one) == 1 and one[0][0] == {}


def mlp():
    """Tokens of one sequence: products of many rows or of one."""
    g = Writer("mlp", 1)
    x = g.input("x", ["n", 96])
    y = g.op("Relu", g.op("Gemm", x, g.weight(96, 200), g.weight(200)))
    return g.model(g.op("Softmax", g.op("Gemm", y, g.weight(200, 64), g.weight(64)), axis=-1))


def test_a_table_of_every_candidate_and_call():
    work = run_pipeline(Options(mlp(), target="x86-64-v3", dims={"n": (1, 512)},
                                stop_after="inline"))
    target = get_target("x86-64-v3")
    schedule, found = decide_ranges(work.program, target, lambda p, t, x: decide(p, t, layouts=x))
    assert found.labels[:6] == ("all calls", "n 1..8", "n 9..64", "n 65..512", "n 1", "n 512")
    assert len(found.seconds) == len(found.labels) and len(found.calls) == 9
    assert all(s > 0 for row in found.seconds for s in row)
    least, most = found.seconds[0][0], found.seconds[0][-1]
    assert least < most / 4  # a row costs less than 512 do
    for when, _ in found.leaves:
        assert 1 <= found.loss(when) < 1.5
    assert len(schedule.variants) == len(found.leaves) - 1
    assert "n 512" in str(found)


def test_what_runs_is_right_for_every_call(tmp_path):
    model = mlp()
    compile_model(model, tmp_path / "b", target="x86-64-v3", dims={"n": (1, 512)}, variants="auto")
    again = compile_model(model, tmp_path / "c", target="x86-64-v3", dims={"n": (1, 512)},
                          variants="auto")
    assert (tmp_path / "b" / "schedule.json").read_bytes() == (
        again.path / "schedule.json").read_bytes()
    ours = load(tmp_path / "b")
    theirs = onnxruntime.InferenceSession(model.SerializeToString())
    rng = np.random.default_rng()
    for n in (1, 2, 7, 8, 9, 64, 65, 301, 512):
        x = rng.standard_normal((n, 96)).astype(np.float32)
        (mine,), (right,) = ours.run({"x": x}).values(), theirs.run(None, {"x": x})
        np.testing.assert_allclose(mine, right, rtol=1e-4, atol=1e-5)


def test_options_that_contradict_each_other(tmp_path):
    with pytest.raises(AotcError, match="choose 'auto'"):
        compile_model(mlp(), tmp_path / "b", variants="all")
    with pytest.raises(ScheduleError, match="one of both"):
        compile_model(mlp(), tmp_path / "b", dim_samples=[{"n": 3}], variants={"n": [(1, 4)]})
    assert not (tmp_path / "b").exists()


def test_extents_are_constants_of_checks():
    assert spread_calls(program(Sym("n", 1, 4), checks=(
        Check(compare("eq", Sym("n", 1, 4), Const(4)), "node"),))) == (Call({"n": 4}),)


def test_variants_share_the_weights():
    """Rows for one token take the panels that many tokens want."""
    work = run_pipeline(Options(mlp(), target="x86-64-v4", dims={"n": (1, 512)},
                                variants={"n": [(1, 1), (2, 16)]}, stop_after="schedule"))
    own = [v.schedule for v in work.schedule.variants]
    consts = work.program.consts
    for s in own:
        for name, layout in s.layouts.items():
            assert name not in consts or layout == work.schedule.layouts[name]
    panels = {name for name in work.schedule.layouts if name in consts}
    assert panels and any(panels & s.layouts.keys() for s in own)
    rows = {row for s in own for g in s.groups for row in g.rows.values()}
    assert not rows <= {r for g in work.schedule.groups for r in g.rows.values()}


def test_a_dimension_with_some_extents_only(tmp_path):
    """Others of its range are refused at the call; decisions look at those that there are."""
    compile_model(mlp(), tmp_path / "b", target="c", dims={"n": {1, 4, 16}})
    ours = load(tmp_path / "b")
    for n in (1, 4, 16):
        assert ours.run({"x": np.zeros((n, 96), np.float32)}).popitem()[1].shape == (n, 64)
    for n in (2, 15):
        with pytest.raises(ShapeError, match=f"n is one of 1, 4, 16 .here n={n}."):
            ours.run({"x": np.zeros((n, 96), np.float32)})
    with pytest.raises(ValueError, match=r"must be 1\.\.16"):
        ours.run({"x": np.zeros((17, 96), np.float32)})
    work = run_pipeline(Options(mlp(), dims={"n": {1, 4, 16}}, stop_after="program"))
    assert [c.extents["n"] for c in spread_calls(work.program)] == [1, 4, 16]
    assert "n in 1, 4, 16" in str(work.ranges[0])


@pytest.mark.parametrize("wrong", [set(), {-1, 2}, {"1"}, {True, 4}, {1.5}])
def test_sets_that_are_none(wrong, tmp_path):
    with pytest.raises(ModelError, match="no set of extents"):
        compile_model(mlp(), tmp_path / "b", dims={"n": wrong})


def test_a_set_of_one_is_a_number():
    work = run_pipeline(Options(mlp(), dims={"n": {4}}, stop_after="program"))
    assert not work.program.syms and not work.ranges


def test_many_rows_are_work_for_many_workers():
    """A product of as many rows as a symbol says is cut, whatever the usual number of rows."""
    work = run_pipeline(Options(mlp(), target="c", dims={"n": (1, 1024)}, connect="register",
                                stop_after="schedule"))
    products = [g for g in work.schedule.groups if any("gemm" in c for c in g.computes)]
    assert products and all(g.parallel and g.tile for g in products)


def test_usual_extents_are_medians_by_share():
    p = program(Sym("n", 1, 8), Sym("m", 1, 8))
    calls = [Call({"n": 1, "m": 8}), Call({"n": 5, "m": 2}, 3.0), Call({"n": 8, "m": 3})]
    assert usual_extents(p, calls) == {"n": 5, "m": 2}


def test_observed_calls_decide_where_ranges_are_narrow():
    """No range is cut, but rows are decided for the calls that were seen."""
    def rows(samples, lo=32, hi=100):
        work = run_pipeline(Options(mlp(), target="x86-64-v4", dims={"n": (lo, hi)},
                                    dim_samples=samples, stop_after="schedule"))
        assert not work.schedule.variants and work.found is None
        return [r for g in work.schedule.groups for r in g.rows.values()], work.schedule
    few, many = rows([{"n": 33}]), rows([{"n": 96}])
    assert few[0] != many[0] and rows([{"n": 33}])[1].to_json() == few[1].to_json()


def test_shown_with_what_was_predicted():
    text = show_stage(mlp(), "variants", "x86-64-v3", {"n": (1, 512)}, variants="auto")
    assert "predicted microseconds" in text and "n 512: " in text
    assert "of the fastest's time" in text
    data = json.loads(show_stage(mlp(), "variants", "x86-64-v3", {"n": (1, 512)}, as_json=True,
                                 variants="auto"))
    assert len(data["variants"]) == len(data["chosen"]["leaves"]) == len(data["chosen"]["loss"])
    assert all(x >= 1 for x in data["chosen"]["loss"])
