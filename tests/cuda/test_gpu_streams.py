"""Attention on GPUs is one kernel that stores no scores, whatever masks, sizes and heads there are:
found by what it computes, right under the simulator and in the interpreter of Plans."""

import warnings
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from attention_forms import Form, attention_feeds, attention_form, exact_attention
from cusim_build import needs_cxx
from harness import every
from mutants import plant_mutants, unnoticed
from onnx import numpy_helper
from sass import compile_kernels, why_no_sass
from te_programs import Maker, ax

import aotc
from aotc.errors import ScheduleError
from aotc.ir.expr import Cast, Const, Unary
from aotc.ir.kernel.plan_stages import Stream
from aotc.ir.schedule import STREAM, Group
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.oracle.run_plan import run_plan
from aotc.passes.rewrites import apply_schedule_rewrites
from aotc.pipeline import run_pipeline
from aotc.sched import decide, lower
from aotc.sched.cost.predict import group_seconds
from aotc.sched.judge.judge import Judge
from aotc.sched.rows.stream_stages import find_stream
from aotc.target import TARGETS

TARGET = "cuda:sm_80"
GPUS = [t.name for t in TARGETS.values() if t.emitter == "simt" and t.name != "cuda"]
FORMS = {
    "plain": Form(), "ragged": Form(70, 50), "size 32": Form(33, 65, size=32),
    "size 80": Form(65, 130, size=80), "size 128": Form(130, 200, size=128),
    "size 256": Form(65, 70, size=256, heads=1), "columns": Form(40, 70, columns=128),
    "added": Form(70, 130, mask="added", batch=2), "bias": Form(65, 66, mask="bias"),
    "causal": Form(100, 100, mask="causal"), "behind": Form(20, 100, mask="causal"),
    "kept": Form(70, 90, mask="kept"), "cap": Form(64, 64, cap=20.0),
    "groups": Form(64, 100, heads=4, groups=2), "turned": Form(65, 64, turned=True)}
NUMBERS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
WANTED = 7.0  # instructions of the hot loop for each of tensor cores
# of keys of so many elements: exps are more than products; of tf32, whose values are words
LIMITS = {32: 10.0, ("tf32", 32): 9.1, **{("tf32", size): 7.0 for size in (64, 128, 256)}}


def until(stage, model, target=TARGET):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return run_pipeline(Options(source=model, target=target, name="net", stop_after=stage))


def streams(plan):
    return [s for k in plan.kernels for s in k.lowered.stages if isinstance(s, Stream)]


def check(form, got, feeds, dtype):
    want, got = exact_attention(form, feeds), got.astype("f8")
    assert (np.isnan(got) == np.isnan(want)).all()
    limit = 4e-3 if dtype == "f16" else 3e-2  # a few roundings of weights up to 1 and of outputs
    assert np.nanmax(np.abs(got - want), initial=0) <= limit * np.nanmax(np.abs(want))


@needs_cxx
@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("name", every(FORMS, 5))
def test_attention_is_one_stream(name, dtype, tmp_path):
    form, model = FORMS[name], attention_form(FORMS[name], dtype)
    plan = until("plan", model).plan
    assert len(streams(plan)) == len(plan.kernels) == 1  # none converts or turns an operand
    scores = form.rows * form.keys
    assert not any(p.storage == "arena" and p.elements.value >= form.heads * scores
                   for p in plan.places if form.keys > 2 * form.size)
    feeds = attention_feeds(form, dtype)
    got = aotc.compile(model, tmp_path / "b", target=TARGET, name="net").load(
        simulate=True).run(feeds)["y"]
    assert got.dtype == NUMBERS[dtype]
    check(form, got, feeds, dtype)


@needs_cxx
@pytest.mark.parametrize("name", [
    *every([n for n, f in FORMS.items() if f.size < 128], 20), "size 256"])
def test_operands_of_f32_are_rounded_to_tf32_if_asked(name, tmp_path):
    form = FORMS[name]
    model, feeds = attention_form(form, "f32"), attention_feeds(form, "f32")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        built = aotc.compile(model, tmp_path / "b", name="net", precision="tf32",
                             target=TARGET if form.size < 256 else "cuda:sm_90")
    text = "".join(f.read_text() for f in (tmp_path / "b").glob("*_kernels_*.cu"))
    assert text.count("aotc_hold_tf32") == 1
    check(form, built.load(simulate=True).run(feeds)["y"], feeds, "f16")  # as many bits


@pytest.mark.parametrize("name", every(FORMS, 2))
def test_the_interpreter_of_plans_runs_streams(name):
    form, model = FORMS[name], attention_form(FORMS[name])
    work, feeds = until("plan", model), attention_feeds(FORMS[name])
    names = {p.onnx or p.name: p.name for p in work.plan.places}
    program = apply_schedule_rewrites(work.program, work.schedule)
    given = {b: feeds[program.buffers[b].onnx] for b in program.inputs}
    assert names
    got = run_plan(work.plan, given)[program.outputs[0]]
    check(form, np.asarray(got), feeds, "f16")
    want = np.asarray(evaluate(program, feeds)["y"]).astype("f8")
    assert np.abs(np.asarray(got).astype("f8") - want).max() <= 4e-3 * np.abs(want).max()


@needs_cxx
def test_rows_without_a_number_stay_so(tmp_path):
    """NaN, infinities, and rows that are masked whole, as the evaluator has them."""
    form = Form(70, 90, mask="bias")
    model, feeds = attention_form(form), attention_feeds(form)
    feeds["mask"][0, 0, 3, 7], feeds["mask"][0, 1, 5, 80] = np.nan, np.inf
    feeds["mask"][0, 0, 9] = -np.inf
    feeds["mask"][0, 1, 11, :88] = -np.inf  # all of the first block of keys
    feeds["v"][0, 1, 40] = np.inf
    work = until("schedule", model)
    with np.errstate(invalid="ignore"):
        want = evaluate(apply_schedule_rewrites(work.program, work.schedule), feeds)["y"]
    got = aotc.compile(model, tmp_path / "b", target=TARGET, name="net").load(
        simulate=True).run(feeds)["y"]
    assert np.isnan(want[0, 0, 3]).all() and np.isnan(want[0, 0, 9]).all()
    assert not np.isnan(want[0, 0, 11]).any() and np.isfinite(want[0, 0]).sum() > 4000
    assert (np.isnan(got) == np.isnan(want)).all()
    there = np.isfinite(want)
    assert (got[~there & ~np.isnan(want)] == want[~there & ~np.isnan(want)]).all()
    assert np.abs(got[there].astype("f8") - want[there]).max() <= 1e-2


@needs_cxx
@pytest.mark.parametrize("dtype", [*NUMBERS, "tf32"])
def test_rows_that_the_lowest_number_masks_whole_are_means(dtype, tmp_path):
    """Of all values, as the evaluator has them: no exponent overflows."""
    form, kind = Form(70, 90, mask="bias"), "f32" if dtype == "tf32" else dtype
    own = {"precision": dtype} if dtype == "tf32" else {}
    feeds = attention_feeds(form, kind)
    low = np.finfo(np.float32).min if dtype == "tf32" else ml_dtypes.finfo(NUMBERS[dtype]).min
    feeds["mask"][0, 0, 9] = feeds["mask"][0, 1, 11, :88] = low
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = aotc.compile(attention_form(form, kind), tmp_path / "b", target=TARGET, name="net",
                           **own).load(simulate=True).run(feeds)["y"].astype("f8")
    limit = 3e-2 if dtype == "bf16" else 4e-3
    kept = np.ones(got.shape[:3], bool)
    kept[0, 0, 9] = False
    assert np.abs(got - exact_attention(form, feeds))[kept].max() <= limit * np.abs(got).max()
    if dtype != "f16":  # beside which a score is nothing
        mean = feeds["v"][0, 0].astype("f8").mean(axis=0)
        assert np.abs(got[0, 0, 9] - mean).max() <= limit * np.abs(got).max()
    assert np.isfinite(got).all()


@needs_cxx
def test_nothing_that_keeps_threads_apart_can_be_left_out(tmp_path):
    """Every wait, barrier and group, and the place of every step, where keys are in one part: a GPU
    of few processors is busy."""
    form = Form(70, 300, mask="added")
    built = aotc.compile(attention_form(form), tmp_path / "b", target="cuda:sm_87", name="net")
    mutants = plant_mutants(tmp_path / "b")
    assert len(built.manifest["kernels"]) == 1
    model, feeds = built.load(simulate=True), attention_feeds(form)
    want = exact_attention(form, feeds)

    def right():
        got = model.run(feeds)["y"].astype("f8")
        return np.abs(got - want).max() <= 4e-3 * np.abs(want).max()
    assert right() and len(mutants) >= 4
    missed = unnoticed(model, mutants, right)
    assert not missed, "\n".join(missed)


def test_causal_rows_go_no_further_than_their_last_key():
    """By constants and by conditions; not where a mask that is no -inf may be all of a row."""
    bounds = {name: streams(until("plan", attention_form(FORMS[name])).plan)[0].bound
              for name in ("causal", "behind", "kept", "plain")}
    assert str(bounds["causal"]) == "m + 1" and str(bounds["behind"]) == "m + 81"
    assert bounds["kept"] is None and bounds["plain"] is None
    model = attention_form(Form(mask="bias"))  # that of windows: a constant that masks nothing
    given = next(x for x in model.graph.input if x.name == "mask")
    model.graph.input.remove(given)
    model.graph.initializer.append(numpy_helper.from_array(
        np.random.default_rng(0).standard_normal((1, 2, 64, 64)).astype(np.float16), "mask"))
    assert streams(until("plan", model).plan)[0].bound is None
    plan = until("plan", attention_form(Form(512, 512, heads=32, mask="causal"))).plan
    text = str(plan)
    assert "~v_blocks = (m_lo + 63) // 128 + 1" in text and "~next in 0..~v_blocks + 1" in text


@pytest.mark.parametrize("length", [128, 1024, 8192])
def test_no_scores_are_stored_at_any_length(length):
    plan = until("plan", attention_form(Form(length, length, heads=12))).plan
    assert len(plan.kernels) == 1 and len(streams(plan)) == 1
    assert not any(p.storage == "arena" for p in plan.places)


def test_weights_that_become_integers_do_not_stream():
    """Sums of bytes of them are no sums of exps."""
    m, i, j, d, n = Maker(), ax("i", 64), ax("j", 64), ax("d", 32), ax("n", 32)
    m.input("q", 64, 32)
    m.input("k", 64, 32)
    m.input("v", 64, 32, dtype="i8")
    m.step("x", (i, j), m.ref("q", i, d) * m.ref("k", j, d), (d,), "sum")
    m.step("greatest", (i,), m.ref("x", i, j), (j,), "max")
    m.step("e", (i, j), Unary("exp", m.ref("x", i, j) - m.ref("greatest", i)))
    m.step("total", (i,), m.ref("e", i, j), (j,), "sum")
    m.step("p", (i, j), Cast("u8", m.ref("e", i, j) / m.ref("total", i) * Const(255.0, "f32")))
    m.step("y", (i, n), Cast("i32", m.ref("p", i, j)) * Cast("i32", m.ref("v", j, n)), (j,), "sum")
    program = m.done("y")
    computes = ("x", "greatest", "e", "total", "p", "y")
    group = Group("g", computes, ("y",), "y", {
        b: STREAM if b in ("x", "greatest", "total") else "register" for b in computes[:-1]})
    assert find_stream(program, group) is None
    assert not any(STREAM in g.connect.values()
                   for g in decide(program, TARGETS[TARGET]).groups)


def test_what_does_not_stream_is_told(tmp_path):
    work = until("schedule", attention_form(Form(mask="bias")))
    schedule, program = work.schedule, work.program
    (group,) = (g for g in schedule.groups if STREAM in g.connect.values())
    rows = group.rows
    scores = next(s for s in rows if group.choice(s).a == "packed")

    def refused(new):
        groups = tuple(new if g is group else g for g in schedule.groups)
        with pytest.raises(ScheduleError) as err:
            lower(program, _with(schedule, groups), TARGETS[TARGET])
        return str(err.value)
    simt = "contraction_f32_64x64__simt"
    assert "legal here: stream_f16" in refused(_choosing(group, scores, row=simt))
    assert "do not go together" in refused(_choosing(
        group, scores, row="stream_f16_64x64x64__mma" if "128" in rows[scores]
        else "stream_f16_64x128x64__mma"))
    assert "blocks of both come together" in refused(_choosing(group, scores, stages=3))
    passing = next(b for b, level in group.connect.items() if level == "register")
    assert "level" in refused(_connected(group, passing))


def test_streams_are_priced_as_they_were_decided():
    work = until("schedule", attention_form(Form(1024, 1024, heads=16)))
    program = apply_schedule_rewrites(work.program, work.schedule)
    (group,) = work.schedule.groups
    decided = Judge(program, work.target, work.schedule.groups).verdict(group)
    assert decided.legal and group_seconds(program, replace(
        work.schedule, rewrites=()), work.target, {}) == {group.name: decided.seconds}


def _with(schedule, groups):
    return replace(schedule, groups=groups)


def _choosing(group, stage, **said):
    return replace(group, choices=group.choices | {
        stage: replace(group.choice(stage), **said)})


def _connected(group, buffer):
    return replace(group, connect=group.connect | {buffer: STREAM})


@pytest.mark.skipif(bool(why_no_sass()), reason=why_no_sass())
@pytest.mark.product
@pytest.mark.parametrize("dtype", [*NUMBERS, "tf32"])
@pytest.mark.parametrize("gpu", GPUS)
def test_streams_spill_nothing_and_multiply(gpu, dtype, tmp_path):
    wrong, own = [], {"precision": "tf32"} if dtype == "tf32" else {}
    # two steps of keys and values of 32 words of 256 elements each, and 64 rows of queries
    fits = dtype != "tf32" or TARGETS[gpu].machine.near.capacity >= 4 * 256 * (4 * 32 + 64)
    sizes = [(n, "") for n in (32, 64, 128, *((256,) if fits else ()))]
    for size, mask in (*sizes, (64, "added"), (64, "bias")):
        folder = tmp_path / f"{size}{mask}"
        model = attention_form(Form(1024, 1024, size=size, heads=12, mask=mask),
                               "f32" if own else dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            aotc.compile(model, folder, target=gpu, name="net", **own)
        for name, made in compile_kernels(folder, TARGETS[gpu].cflags).items():
            loop = made.code.hot_loop("HMMA")
            if loop is None:
                continue
            length = len(loop.instructions) / loop.count("HMMA")
            limit = LIMITS.get((dtype, size), LIMITS.get(size, WANTED)) + 1.5 * bool(mask)
            wrong += [f"{size} {name}: spills {made.spilled} bytes"] * (
                made.spilled > 0)
            wrong += [f"{size} {name}: {length:.2f} an HMMA, not {limit}"] * (length > limit)
            wrong += [f"{size} {name}: copies less than 16 bytes"] * (
                loop.count("LDGSTS") != loop.count("LDGSTS.128"))
    assert not wrong, "\n".join(wrong)
