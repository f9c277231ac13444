"""Variants found by cost: calls spread over ranges, small ones, their box, and what is decided."""

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
from aotc.sched.dynamic.small_calls import lowest_box, pick
from aotc.sched.model.typical_calls import (
    TypicalCall,
    ladder,
    observed_calls,
    read_samples,
    small_regime,
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


def test_small_extents_of_the_widest_ranges_go_together():
    assert small_regime(program(Sym("n", 3, 8))) is None
    assert small_regime(program(Sym("b", 1, 2), Sym("n", 1, 512))) == {"n": (1, 8)}
    images = program(Sym("h", 100, 400), Sym("w", 100, 400))
    assert small_regime(images) == {"h": (100, 200), "w": (100, 200)}


def test_observed_calls(tmp_path):
    p = program(Sym("n", 1, 8))
    file = tmp_path / "seen.json"
    file.write_text(json.dumps([{"len": 3}, {"len": 5, "share": 2}]))
    rows = read_samples(file, {"len": "n"})
    assert observed_calls(p, rows) == (TypicalCall({"n": 3}, 1.0), TypicalCall({"n": 5}, 2.0))
    for wrong in ([{"n": 9}], [{"m": 3}], [{"n": "3"}], [{"n": 3, "share": 0}], "nowhere.json", 5,
                  [], [{"n": 3.7}]):
        with pytest.raises(ScheduleError, match="observed shapes"):
            observed_calls(p, read_samples(wrong, {}))


def test_observed_calls_that_no_call_can_be():
    n = Sym("n", 1, 8)
    p = program(n, checks=(Check(compare("ge", n, Const(4)), "node: n >= 4"),))
    with pytest.raises(ScheduleError, match="n >= 4"):
        observed_calls(p, [({"n": 3}, 1.0)])


def test_the_box_holds_what_gains_from_the_least_extents_up():
    p = program(Sym("a", 1, 64), Sym("b", 1, 64))
    calls = spread_calls(p)  # 1, 3, 8, 23, 64 of both

    def box(gain, least=-0.02):
        return lowest_box(p, calls, [gain(c.extents["a"], c.extents["b"]) for c in calls], least)

    small = box(lambda a, b: 0.3 if a <= 8 and b <= 3 else -0.5)
    assert small == {"a": (1, 15), "b": (1, 5)}  # halfway to 23, to 8
    leaves = (small, 1), ({}, 0)
    assert [pick(leaves, c) for c in calls] == [
        int(c.extents["a"] <= 8 and c.extents["b"] <= 3) for c in calls]
    assert box(lambda a, b: 0.3) == {} and box(lambda a, b: -0.3) is None
    assert box(lambda a, b: 0.0) is None
    # a call between that loses too much ends it, one that loses little does not
    hole = [0.3, -0.1, 0.3, -0.5, -0.5]
    one = program(Sym("a", 1, 64))
    along = [TypicalCall({"a": n}) for n in (1, 3, 8, 23, 64)]
    assert lowest_box(one, along, hole, -0.02) == {"a": (1, 2)}


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
    assert found.labels == ("all calls", "n 1")
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
        Check(compare("eq", Sym("n", 1, 4), Const(4)), "node"),))) == (TypicalCall({"n": 4}),)


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
    calls = [TypicalCall({"n": 1, "m": 8}), TypicalCall({"n": 5, "m": 2}, 3.0),
             TypicalCall({"n": 8, "m": 3})]
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
