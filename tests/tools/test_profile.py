"""Bundles that count what their kernels cost, and the reports made from them."""

import re

import numpy as np
import onnx
import pytest
from small_models import dense, embedding, make_model
from te_programs import Maker, ax, relu

import aotc
from aotc.ir.expr import Const, Var, Where, compare
from aotc.ir.program import Fold
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.runtime.model import KernelCost
from aotc.sched import decide, lower
from aotc.sched.report.explain import explain
from aotc.target import TARGETS, get_target
from aotc.tools.bench import Peak, Profile, measure_peak, profile, profile_lines


@pytest.fixture(scope="module")
def counting(tmp_path_factory):
    """y = relu(x @ w + b), x f32[n, 8], w f32[8, 4], compiled with its counters."""
    out = tmp_path_factory.mktemp("profile") / "b"
    return aotc.compile(dense(), out=out, target="c", dims={"n": (1, 32)}, profile=True).load()


def test_counters_are_in_the_bundle_only_when_asked_for(tmp_path):
    plain = aotc.compile(dense(), out=tmp_path / "a", target="c", name="tiny")
    text = "".join(f.read_text() for f in (tmp_path / "a").glob("tiny*.[ch]"))
    assert "_profile" not in text and "AOTC_CLOCK" not in text and not plain.manifest["profile"]
    with pytest.raises(aotc.AotcError, match="--profile"):
        plain.load().profile()


def test_costs_follow_the_extents_of_every_call(counting):
    x = np.random.default_rng(0).standard_normal((32, 8)).astype(np.float32)
    plain = [counting.run({"x": x[:n]})["y"] for n in (32, 3)]
    counting.profile(reset=True)
    np.testing.assert_array_equal(counting.run({"x": x})["y"], plain[0])
    np.testing.assert_array_equal(counting.run({"x": x[:3]})["y"], plain[1])
    cost, = counting.profile()
    assert cost.calls == 2 and cost.seconds > 0 and "contraction" in cost.rows[0]
    # products and sums, the bias, the comparison with zero
    assert cost.flops == 35 * 4 * (2 * 8 + 2)
    assert cost.bytes == 4 * (35 * 8 + 35 * 4 + 2 * (8 * 4 + 4))
    assert counting.profile(reset=True) and not any(c.calls for c in counting.profile())


def test_the_constant_for_the_arena_has_room_for_the_costs(counting):
    most = counting.manifest["arena_bytes_max"]
    for workers in (1, 3):
        need = counting._library.function("arena_size")(32, workers)
        assert need == most + workers * counting.manifest["slab_bytes_per_worker"]
    assert most >= 64  # x and y are the caller's: what is left are the costs


def test_an_arena_without_room_for_the_costs_is_refused(counting):
    ffi, lib = counting._ffi, counting._library
    context, arena = ffi.new("aotc_context *"), np.zeros(256, np.uint8)
    start = -(-arena.ctypes.data // 64) * 64
    init = lib.function("init")
    status = init(context, counting._weights, ffi.cast("void *", start), 8, ffi.NULL)
    assert lib.statuses[status] == "AOTC_ARENA_TOO_SMALL"


def test_only_looked_up_rows_of_a_table_are_counted(tmp_path):
    model = aotc.compile(embedding(), out=tmp_path / "b", target="c", profile=True,
                         dims={"batch": (1, 4), "seq": (1, 16)}).load()
    model.run({"ids": np.zeros((1, 2), np.int64), "mask": np.ones((1, 2), np.int64)})
    small = sum(c.bytes for c in model.profile(reset=True))
    model.run({"ids": np.zeros((4, 16), np.int64), "mask": np.ones((4, 16), np.int64)})
    assert small < sum(c.bytes for c in model.profile())


def test_every_variant_counts(tmp_path):
    model = aotc.compile(dense(), out=tmp_path / "b", target="x86-64", name="wide", profile=True,
                         dims={"n": (1, 8)}).load(variant="x86-64-v1")
    model.run({"x": np.ones((2, 8), np.float32)})
    cost, = model.profile()
    assert cost.kernel.startswith("wide_v1_") and cost.calls == 1


def test_report_of_a_model_and_of_a_folder(tmp_path):
    onnx.save(dense(), tmp_path / "m.onnx")
    aotc.compile(tmp_path / "m.onnx", out=tmp_path / "b", target="c", profile=True)
    for path in (tmp_path / "m.onnx", tmp_path / "b"):
        found = profile(path, target="c", seconds=0.01)
        assert found.calls > 0 and found.peak.flops > 1e6 and found.peak.read > 1e6
        assert all(c.calls == 1 for c in found.costs)
        assert re.search(r"_k000\w*: contraction\S+: ", "\n".join(profile_lines(found)))


def test_report_divides_by_time_threads_and_peak():
    cost = KernelCost("m_k000", ("row",), ("a", "b", "c", "d", "e"), 1, 0.2, 4e8, 1e8)
    lines = profile_lines(Profile((cost,), 10, 2, Peak(2e9, 5e9)))
    assert re.search(r"200\.0000 100\.0%\s+2\.0\s+50%\s+0\.5  m_k000: row: a, b, c, d and 1 more",
                     lines[2])


def test_plain_loops_that_take_time_are_named():
    costs = (KernelCost("m_k000", ("row",), ("a",), 1, 0.5, 4e8, 1e8),
             KernelCost("m_k001", ("loops", "row"), ("b", "c"), 1, 0.4, 4e8, 1e8, 0.3),
             KernelCost("m_k002", ("loops",), ("d",), 1, 0.04, 4e8, 1e8, 1.0))
    lines = profile_lines(Profile(costs, 10, 1, Peak(2e9, 5e9)))
    found = [x for x in lines if x.startswith("warning")]
    assert len(found) == 1 and re.search("about 13% of the time in m_k001 .b, c.", found[0])


def test_part_of_plain_loops_is_estimated():
    """A fold of several states has no row of lanes; what is before it has one."""
    m = Maker()
    m.input("x", 64, 100)
    m.pointwise("r", "x", lambda e, _: relu(e))
    i, k = ax("i", 64), ax("k", 100)
    x, best, at = Var("x", "f32"), Var("best", "f32"), Var("at", "i64")
    better = compare("gt", x, best)
    fold = Fold((("best", "f32"), ("at", "i64")), (Const(float("-inf"), "f32"), Const(0)),
                (Where(better, x, best), Where(better, k, at)))
    m.step(("top", "arg"), (i,), m.ref("r", i, k), (k,), fold)
    p = m.done("r", "top", "arg")
    for name, most in (("x86-64-v3", 1.0), ("c", 0.0)):
        target = TARGETS[name]
        parts = [k.work.plain for k in lower(p, decide(p, target), target).kernels]
        assert max(parts) <= most and (max(parts) > 0.8) == (most > 0)


def recurrent():
    """An RNN of 20 rounds, which is a loop."""
    rng = np.random.default_rng(0)
    stored = {n: rng.standard_normal(s).astype(np.float32)
              for n, s in {"w": (1, 4, 3), "r": (1, 4, 4)}.items()}
    node = onnx.helper.make_node("RNN", ["x", "w", "r"], ["y"], hidden_size=4)
    kind = onnx.TensorProto.FLOAT
    return make_model([node], {"x": (kind, [20, 2, 3])}, {"y": (kind, [20, 1, 2, 4])}, stored)


@pytest.mark.parametrize("target", ["c", "x86-64-v4"])
@pytest.mark.parametrize("model", [dense, embedding, recurrent])
def test_every_group_is_explained(model, target):
    work = run_pipeline(Options(model(), target=target, stop_after="plan"))
    rows = explain(work.program, work.schedule, TARGETS[target])
    assert [name for name, _ in rows] == [k.name for k in work.plan.kernels]
    text = "\n".join(line for _, lines in rows for line in lines)
    schedules = [work.schedule, *(b for bodies in work.schedule.regions.values() for b in bodies)]
    assert all(r in text for s in schedules for g in s.groups for r in g.rows.values())
    assert all(n in text for k in work.plan.kernels for n in k.origin)


def test_of_a_gpu_its_data_sheet_stands_beside_the_times(tmp_path):
    peak = measure_peak(get_target("cuda:sm_80"), tmp_path)
    assert peak.flops == pytest.approx(19.5e12, rel=0.05) and 1e12 < peak.read < 2.1e12
    cost = KernelCost("k000", ("row",), ("n",), 1, 1e-3, 1e9, 1e6)
    assert "cuda:sm_80 by its data sheet: 19" in profile_lines(Profile((cost,), 1, 1, peak))[0]
