"""``precision="f16"``: weights of products are stored as f16, everything else is f32."""

import json
from dataclasses import replace

import numpy as np
import pytest
from attention_model import attention
from harness import RUNNABLE
from onnx import TensorProto, helper
from quick_builds import LEVEL
from small_models import conv_stack, make_model

import aotc
from aotc.errors import ScheduleError
from aotc.ir.schedule import Schedule
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.oracle.interpret import interpret
from aotc.oracle.shares import share_of_range
from aotc.passes.precision.half_columns import candidates, faults_of
from aotc.passes.precision.rounding_table import ROUNDINGS
from aotc.passes.rewrites import apply_schedule_rewrites
from aotc.pipeline import run_pipeline
from aotc.sched import check_schedule
from aotc.target import TARGETS

F32 = TensorProto.FLOAT
WIDE = RUNNABLE[-1].name


@pytest.fixture(autouse=True)
def quick_builds(monkeypatch):
    monkeypatch.setenv("CFLAGS", LEVEL)


def product(rows, w):
    """y f32[rows, columns] = x w."""
    return make_model([helper.make_node("MatMul", ["x", "w"], ["y"])],
                      {"x": (F32, [rows, w.shape[0]])}, {"y": (F32, [rows, w.shape[1]])}, {"w": w})


def _weights(seed=0, shape=(37, 43)):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("target, rows", [
    pytest.param(t, n, id=f"{t.name}-{n}", marks=pytest.mark.product if (t, n) not in (
        (RUNNABLE[0], 1), (RUNNABLE[-1], 19)) else ()) for t in RUNNABLE for n in (1, 19)])
def test_weights_are_rounded_and_nothing_else(target, rows, tmp_path):
    w = _weights()
    x = np.random.default_rng(1).standard_normal((rows, 37)).astype(np.float32)
    sizes, outs = [], []
    for precision in ("f32", "f16"):
        made = aotc.compile(product(rows, w), tmp_path / precision, target=target.name, name="half",
                            precision=precision)
        sizes.append((tmp_path / precision / "half_weights.bin").stat().st_size)
        outs.append(made.load().run({"x": x})["y"])
    want = x.astype(np.float64) @ w.astype(np.float16).astype(np.float64)
    assert share_of_range(outs[1], want) < 1e-6 < share_of_range(outs[0], want)
    assert made.manifest["precision"] == "f16"
    assert (sizes[1] < 0.65 * sizes[0]) == target.halves


@pytest.mark.product
def test_what_f16_holds_stays_exact(tmp_path):
    """Bit by bit: weights that are f16 already lose nothing; those it cannot hold stay f32."""
    x = np.random.default_rng(1).standard_normal((5, 37)).astype(np.float32)
    for w, halved in ((_weights().astype(np.float16).astype(np.float32), True),
                      (_weights() * np.float32(1e5), False)):
        outs = []
        for precision in ("f32", "f16"):
            made = aotc.compile(product(5, w), tmp_path / f"{precision}{halved}", target=WIDE,
                                precision=precision)
            outs.append(made.load().run({"x": x})["y"])
        rewrites = json.loads((made.path / "schedule.json").read_text())["rewrites"]
        assert any(r[0] == "halve" for r in rewrites) == halved
        assert share_of_range(*outs) < 1e-6


@pytest.mark.parametrize("model, shape, winograd, most", [
    (attention(20), (20, 64), "auto", 2e-3),
    *(pytest.param(conv_stack(channels=(16, 24)), (1, 3, 24, 24), *case, marks=pytest.mark.product)
      for case in (("off", 1e-3), ("auto", 1e-3)))])  # what is in a Winograd form stays f32
def test_models_stay_close(model, shape, winograd, most, tmp_path):
    feeds = {"x": np.random.default_rng(2).standard_normal(shape).astype(np.float32)}
    outs = [aotc.compile(model, tmp_path / p, target=WIDE, precision=p, winograd=winograd).load()
            .run(feeds) for p in ("f32", "f16")]
    for name, exact in outs[0].items():
        assert 0 < share_of_range(outs[1][name], exact) < most < ROUNDINGS["f16"].error


def test_evaluator_and_interpreter_read_f16():
    model = attention(20)
    feeds = {"x": np.random.default_rng(2).standard_normal((20, 64)).astype(np.float32)}
    work = run_pipeline(Options(model, target="x86-64-v3", precision="f16", stop_after="schedule"))
    program = apply_schedule_rewrites(work.program, work.schedule)
    assert sum(program.dtype(c) == "f16" for c in program.consts) == 4
    one, two = (f["y"] for f in (evaluate(program, feeds),
                                 interpret(program, work.schedule, feeds)))
    assert share_of_range(two, one) < 1e-5


def test_faults_name_the_choices():
    work = run_pipeline(Options(product(5, _weights()), target="x86-64-v3", precision="f16",
                                stop_after="schedule"))
    assert candidates(work.program) == ("y",)
    assert "parameters are" in faults_of(work.program, "y", {"stored": "bf16"})[0]
    assert "choose from y" in faults_of(work.program, "x", {"stored": "f16"})[0]
    schedule = Schedule.from_json(work.schedule.to_json())
    assert schedule == work.schedule and schedule.precision == "f16"
    assert not check_schedule(work.rewritten, schedule, TARGETS["x86-64-v3"])
    faults = check_schedule(work.program, replace(schedule, precision="f32"), TARGETS["x86-64-v3"])
    assert any("choose from tf32, bf16" in f for f in faults)
    wrong = replace(schedule, rewrites=(("halve", "z", {"stored": "f16"}),))
    with pytest.raises(ScheduleError, match="choose from y"):
        run_pipeline(Options(product(5, _weights()), target="x86-64-v3", schedule=wrong,
                             stop_after="schedule"))
