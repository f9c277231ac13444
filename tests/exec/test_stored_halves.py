"""Tensors that a model declares f16 go from kernel to kernel as f16: half the arena, rounded where
the model rounds them, computed in f32."""

import re
import shutil

import numpy as np
import pytest
from attention_model import attention
from half_models import halved
from harness import DISTINCT, RUNNABLE, at_length
from onnx import TensorProto, helper, numpy_helper
from quick_builds import LEVEL
from small_models import make_model

import aotc
from aotc.errors import ScheduleError
from aotc.ir.schedule import Schedule
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.oracle.shares import share_of_range
from aotc.passes.precision.store_halves import RULE, candidates, faults_of, store_rewrite
from aotc.passes.rewrites import apply_schedule_rewrites
from aotc.pipeline import run_pipeline
from aotc.runtime.emulate import emulated_models
from aotc.sched import check_schedule, decide
from aotc.target import TARGETS, get_target

HALF = np.float16
F16 = TensorProto.FLOAT16
CONVERTING = [t for t in RUNNABLE if t.halves]


@pytest.fixture(autouse=True)
def quick_builds(monkeypatch):
    monkeypatch.setenv("CFLAGS", LEVEL)


def _until(stage, model, target, **options):
    return run_pipeline(Options(model, target=target, name="net", stop_after=stage, **options))


def _stored(schedule):
    return [r[1] for r in schedule.rewrites if r[0] == RULE]


# ---------------------------------------------------------------- the rule

def steep():
    """h = 8 x, m its largest in a row, y = relu(h) w; s the largest of x v: x f16[11, 37]."""
    rng, node = np.random.default_rng(0), helper.make_node
    nodes = [node("Mul", ["x", "c"], ["h"]), node("ReduceMax", ["h"], ["m"], axes=[1]),
             node("Relu", ["h"], ["r"]), node("MatMul", ["r", "w"], ["y"]),
             node("MatMul", ["x", "v"], ["o"]), node("ReduceMax", ["o"], ["s"], axes=[1])]
    tensors = {"c": np.array(8, HALF)} | {n: rng.integers(-3, 4, (37, 21)).astype(HALF)
                                         for n in "wv"}
    return make_model(nodes, {"x": (F16, [11, 37])}, {
        "m": (F16, [11, 1]), "y": (F16, [11, 21]), "s": (F16, [11, 1])}, tensors)


STORES = (store_rewrite("h_wide", []), store_rewrite("r_wide", [["y_wide"]]),
          store_rewrite("o_wide", []))


def _steep_rows():
    """Rows whose h is infinite (from 65520 on), the largest there is, no normal number, NaN."""
    x = np.random.default_rng(1).normal(size=(11, 37), scale=50).astype(HALF)
    x[0, 5], x[1, 5], x[2] = 8192, 8188, np.arange(37) * HALF(2.0**-24)
    x[3, 7], x[4, 7], x[5, :] = np.nan, -np.inf, HALF(0.1)
    return x


def _steep_results(x):
    """m, y and s of ``steep``, h, r and x v rounded to f16."""
    w, v = (t.astype("f8") for t in map(_tensor, "wv"))
    with np.errstate(all="ignore"):
        h = (x.astype("f4") * 8).astype(HALF)
        y = np.maximum(h, HALF(0)).astype("f8") @ w
        return h.max(1, keepdims=True), y, (x.astype("f8") @ v).astype(HALF).max(1, keepdims=True)


def _tensor(name):
    return next(numpy_helper.to_array(t) for t in steep().graph.initializer if t.name == name)


def _by_hand(target):
    """The Schedule of ``steep`` with a kernel for every compute, tensors between them f16."""
    program = _until("inline", steep(), target.name).program
    return decide(program, target, "none", STORES)


def _agree(outs, x):
    m, y, s = _steep_results(x)
    plain = ~np.isnan(x).any(1)
    np.testing.assert_array_equal(outs["m"][plain], m[plain])
    np.testing.assert_array_equal(outs["s"][plain], s[plain])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(outs["y"], y.astype(HALF).astype("f4"), rtol=2**-10)
    assert np.isinf(outs["m"][0]) and np.isfinite(outs["m"][1]) and np.isnan(outs["y"][3]).any()


@pytest.mark.parametrize("target", [pytest.param(t, id=t.name, marks=at_length(t))
                                    for t in DISTINCT])
def test_rounded_where_the_model_rounds(target, tmp_path):
    x = _steep_rows()
    bundle = aotc.compile(steep(), tmp_path / "b", target=target.name, name="net",
                          schedule=_by_hand(target))
    assert '"f16"' in (tmp_path / "b" / "schedule.json").read_text()
    _agree(bundle.load(threads=2).run({"x": x}), x)


@pytest.mark.product
@pytest.mark.parametrize("name", ["aarch64", "riscv64"])
def test_other_machines_round_alike(name, tmp_path):
    target = get_target(name)
    if not any(map(shutil.which, target.cross.cc)) or not shutil.which(target.cross.emulator[0]):
        pytest.skip(f"needs {', '.join(target.cross.packages)} (Debian)")
    x = _steep_rows()
    aotc.compile(steep(), tmp_path / "b", target=name, name="net", schedule=_by_hand(target))
    for model in emulated_models(tmp_path / "b").values():
        _agree(model.run({"x": x}), x)


def test_faults_name_the_choices():
    program = _until("inline", steep(), "x86-64-v3").program
    assert candidates(program) == ("h_wide", "m_wide", "r_wide", "y_wide", "o_wide", "s_wide")
    for name, how, message in (
            ("h_wide", {"dtype": "f32", "copies": []},
             'parameters are {"dtype": one of f16, bf16}'),
            ("h_wide", {"dtype": "bf16", "copies": []},
             "dtype 'bf16'; the model declares it f16"),
            ("h_wide", {"dtype": "f16"}, "copies is a list of lists"),
            ("r_wide", {"dtype": "f16", "copies": [["m"]]}, "'m' does not read it, .* from y_wide"),
            ("r_wide", {"dtype": "f16", "copies": [["y_wide"], ["y_wide"]]}, "two copies"),
            ("x", {"dtype": "f16", "copies": []}, "choose from h_wide, ")):
        assert re.search(message, faults_of(program, name, how)[0])
    wrong = Schedule("x86-64-v3", (), rewrites=(store_rewrite("m_2", []),))
    with pytest.raises(ScheduleError, match="declares f16 or bf16; choose from h_wide"):
        _until("schedule", steep(), "x86-64-v3", schedule=wrong)


# ---------------------------------------------------------------- what is chosen

ROWS = 203


def _rows(size=ROWS):
    return np.random.default_rng(2).standard_normal((size, 64)).astype(HALF)


@pytest.mark.parametrize("target", [pytest.param(t, id=t.name, marks=() if t is CONVERTING[0] else (
    pytest.mark.product)) for t in CONVERTING])
def test_attention_in_half_the_arena(target, tmp_path):
    """What lies between kernels takes half the bytes on AVX2; everywhere outputs are those of the
    model that rounds what is stored, and as near to f64 as ONNX Runtime's."""
    model, x = halved(attention(ROWS)), _rows()
    work = _until("schedule", model, target.name)
    assert "c1_wide" in _stored(work.schedule)
    sizes = [_until("plan", m, target.name).plan.slots for m in (attention(ROWS), model)]
    if target.name == "x86-64-v3":
        assert [2 * int(str(s)) for s in sizes[1]] == [int(str(s)) for s in sizes[0]]
    got = aotc.compile(model, tmp_path / "b", target=target.name, name="net").load(
        threads=2).run({"x": x})["y"]
    rounded = apply_schedule_rewrites(work.program, work.schedule)
    want, wide = (evaluate(p, {"x": x})["y"].astype("f8") for p in (rounded, work.program))
    assert share_of_range(got, want) < 1e-3 and share_of_range(got, wide) < 2e-3
    exact = _exactly(x)
    other = share_of_range(_by_runtime(model, x), exact)
    assert share_of_range(got, exact) < max(2e-3, 1.5 * other)


def _exactly(x):
    """``attention`` of numbers of f16 in f64."""
    t = {i.name: numpy_helper.to_array(i).astype("f8")
         for i in halved(attention(ROWS)).graph.initializer}
    q, k, v = ((x.astype("f8") @ t[n]).reshape(len(x), 2, 32).transpose(1, 0, 2) for n in "qkv")
    s = q @ k.transpose(0, 2, 1) * t["scale"]
    p = np.exp(s - s.max(-1, keepdims=True))
    c = p / p.sum(-1, keepdims=True) @ v
    return c.transpose(1, 0, 2).reshape(len(x), 64) @ t["o"]


def _by_runtime(model, x):
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0].astype("f8")


@pytest.mark.parametrize("target", ["c", "riscv64"])
def test_f32_where_nothing_converts(target):
    assert not _stored(_until("schedule", halved(attention(ROWS)), target).schedule)


@pytest.mark.parametrize("options", [{"precision": "bf16"}, pytest.param(
    {"precision": "auto", "error": 2e-2}, marks=pytest.mark.product)], ids=["bf16", "auto"])
def test_bf16_rows_take_products_of_f16_models(options):
    """Operands of products are rounded to bf16 where that is asked for, or within a budget."""
    model, target = halved(attention(ROWS)), "x86-64-v4-bf16"
    work = _until("schedule", model, target, **options)
    assert "narrow" in [r[0] for r in work.schedule.rewrites] and not check_schedule(
        work.rewritten, work.schedule, TARGETS[target])
    assert any(u.startswith("dot_bf16") for g in work.schedule.groups for u in g.rows.values())
    found = evaluate(apply_schedule_rewrites(work.program, work.schedule), {"x": _rows()})["y"]
    assert share_of_range(found, _exactly(_rows())) < 3e-2


def test_without_the_rewrite_a_tensor_is_f32():
    work = _until("schedule", halved(attention(ROWS)), "x86-64-v3")
    schedule = Schedule.from_json(work.schedule.to_json())
    assert schedule == work.schedule
    less = [r for r in schedule.rewrites if r[0] != RULE]
    again = decide(work.program, TARGETS["x86-64-v3"], winograd=tuple(less))
    assert not _stored(again) and apply_schedule_rewrites(work.program,
                                                          again).dtype("c1_wide") == "f32"
