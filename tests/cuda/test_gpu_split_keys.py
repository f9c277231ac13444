"""Keys of attention in parts over the blocks of a GPU, where there are few queries: no scores are
stored, parts are joined in one kernel, and nothing is told by a part without a key."""

import warnings

import numpy as np
import pytest
from attention_forms import Form, attention_feeds, attention_form, exact_attention
from cusim_build import needs_cxx
from harness import every
from mutants import plant_mutants, unnoticed
from sass import compile_kernels, why_no_sass

import aotc
from aotc.errors import ScheduleError
from aotc.ir.kernel.plan_stages import Stream
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.oracle.run_plan import run_plan
from aotc.passes.rewrites import apply_rewrites
from aotc.passes.sums.split_keys import RULE, candidates, match_weighed, useful_parts
from aotc.pipeline import run_pipeline
from aotc.sched import decide, lower
from aotc.target import TARGETS

GPU = TARGETS["cuda:sm_80"]
FORMS = {
    "token": Form(1, 520), "ragged": Form(70, 500), "size 128": Form(3, 300, size=128),
    "columns": Form(40, 300, columns=128), "added": Form(5, 270, mask="added", batch=2),
    "bias": Form(65, 300, mask="bias"), "causal": Form(300, 300, mask="causal"),
    "behind": Form(20, 300, mask="causal"), "kept": Form(70, 290, mask="kept"),
    "cap": Form(9, 384, cap=20.0), "groups": Form(1, 300, heads=8, groups=2),
    "groups of rows": Form(7, 300, heads=6, groups=2, mask="bias"),
    "one group": Form(5, 300, heads=4, groups=1, mask="bias"),
    "turned": Form(65, 260, turned=True)}
LIMITS = {"f16": 4e-3, "bf16": 3e-2}


def read(model, stage="inline", **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run_pipeline(Options(source=model, target=GPU.name, name="net", stop_after=stage,
                                    **options))


def streams(plan):
    return [s for k in plan.kernels for s in k.lowered.stages if isinstance(s, Stream)]


def in_parts(program, parts):
    """(the Program with its attention in parts, a Plan of it)."""
    name, = candidates(program)
    rewrites = ((RULE, name, {"parts": parts}),)
    return apply_rewrites(program, rewrites), lower(
        apply_rewrites(program, rewrites), decide(program, GPU, winograd=rewrites), GPU)


def built_in_parts(model, parts, folder, **options):
    """The bundle of a model whose attention is in parts."""
    program = read(model, **options).program
    name, = candidates(program)
    schedule = decide(program, GPU, winograd=((RULE, name, {"parts": parts}),))
    path = folder / "s.json"
    path.write_text(schedule.to_json())
    return aotc.compile(model, folder / "b", target=GPU.name, name="net", schedule=path, **options)


def parts_of(form):
    program = read(attention_form(form)).program
    name, = candidates(program)
    return useful_parts(match_weighed(program, program.producer[name]))


def check(form, got, feeds, dtype="f16"):
    want, got = exact_attention(form, feeds), np.asarray(got).astype("f8")
    assert (np.isnan(got) == np.isnan(want)).all()
    assert np.nanmax(np.abs(got - want), initial=0) <= LIMITS[dtype] * np.nanmax(np.abs(want))


@pytest.mark.parametrize("name", every(FORMS, 1))
def test_parts_mean_what_the_whole_means(name):
    """To the evaluator and to the interpreter of Plans."""
    form = FORMS[name]
    work, feeds = read(attention_form(form)), attention_feeds(form)
    whole = np.asarray(evaluate(work.program, feeds)["y"]).astype("f8")
    given = {b: feeds[work.program.buffers[b].onnx] for b in work.program.inputs}
    for parts in parts_of(form)[:2]:
        program, plan = in_parts(work.program, parts)
        assert len(streams(plan)) == 1 and len(plan.kernels) == 1 + (parts > 1)
        got = np.asarray(evaluate(program, feeds)["y"]).astype("f8")
        assert np.abs(got - whole).max() <= 1e-3 * np.abs(whole).max()
        check(form, run_plan(plan, given)[program.outputs[0]], feeds)


@needs_cxx
@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("name", every(FORMS, 4))
def test_parts_of_keys_are_joined(name, dtype, tmp_path):
    form, model = FORMS[name], attention_form(FORMS[name], dtype)
    bundle = built_in_parts(model, parts_of(form)[-1], tmp_path)
    for order in (True, "reverse"):
        feeds = attention_feeds(form, dtype)
        check(form, bundle.load(simulate=order).run(feeds)["y"], feeds, dtype)


@needs_cxx
def test_parts_may_have_no_key(tmp_path):
    form = Form(3, 130, mask="bias")
    feeds, model = attention_feeds(form), attention_form(form)
    check(form, built_in_parts(model, 16, tmp_path).load(simulate=True).run(feeds)["y"], feeds)


@needs_cxx
def test_calls_of_any_length_find_parts_without_a_key(tmp_path):
    form = Form("rows", "keys", mask="added")
    model = built_in_parts(attention_form(form), 4, tmp_path).load(simulate=True)
    for rows, keys in ((1, 1), (3, 127), (70, 128), (2, 129), (1, 400), (5, 513), (1, 1025)):
        feeds = attention_feeds(form, rows=rows, keys=keys)
        check(form, model.run(feeds)["y"], feeds)


@needs_cxx
def test_rows_and_parts_without_a_number(tmp_path):
    """NaN, infinities, rows and parts that are masked whole, as the evaluator has them."""
    form = Form(70, 390, heads=3, mask="bias")
    model, feeds = attention_form(form), attention_feeds(form)
    feeds["mask"][0, 0, 3, 7], feeds["mask"][0, 1, 5, 380] = np.nan, np.inf
    feeds["mask"][0, 0, 9] = -np.inf  # of a row all, then parts of it
    feeds["mask"][0, 1, 11, :300], feeds["mask"][0, 1, 12, 100:] = -np.inf, -np.inf
    feeds["mask"][0, 1, 13], feeds["mask"][0, 1, 14, :200] = -65504, -65504
    feeds["v"][0, 2, 40] = np.inf
    with np.errstate(invalid="ignore"):
        want = np.asarray(evaluate(read(model).program, feeds)["y"])
    got = built_in_parts(model, 4, tmp_path).load(simulate=True).run(feeds)["y"]
    assert np.isnan(want[0, 0, 3]).all() and np.isnan(want[0, 0, 9]).all()
    assert np.isfinite(want[0, 1, 11]).all() and np.isfinite(want[0, 0]).sum() > 4000
    assert (np.isnan(got) == np.isnan(want)).all()
    there = np.isfinite(want)
    assert (got[~there & ~np.isnan(want)] == want[~there & ~np.isnan(want)]).all()
    assert np.abs(got[there].astype("f8") - want[there]).max() <= 1e-2


@needs_cxx
def test_nothing_that_keeps_threads_apart_can_be_left_out(tmp_path):
    """Every wait, barrier and group, and the place of every step, of what streams: the kernel that
    joins parts hands numbers from threads to themselves."""
    form = Form(5, 600, heads=4, groups=2, mask="bias")
    built = built_in_parts(attention_form(form), 2, tmp_path)
    mutants = [m for m in plant_mutants(tmp_path / "b") if "_k000_" in m.kernel]
    model, feeds = built.load(simulate=True), attention_feeds(form)
    want = exact_attention(form, feeds)

    def right():
        got = model.run(feeds)["y"].astype("f8")
        return np.abs(got - want).max() <= 4e-3 * np.abs(want).max()
    assert right() and len(mutants) >= 4
    missed = unnoticed(model, mutants, right)
    assert not missed, "\n".join(missed)


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("form", [
    Form(1, 4096, heads=12), Form(1, 4096, heads=32, groups=8, size=128),
    Form(1, 4096, heads=16, groups=1), Form(64, 4096, heads=12), Form(1, 4096, mask="bias"),
    Form(8, 4096, heads=12, mask="kept"), Form(4, 16384, heads=4, mask="causal")], ids=str)
def test_few_queries_store_no_scores(form, dtype):
    """But what parts leave."""
    plan = read(attention_form(form, dtype), "plan").plan
    stream, = streams(plan)
    assert len(plan.kernels) == 2 and len(stream.states) == 2
    stored = {p.name for p in plan.places if p.storage == "arena"}
    assert stored == {p.buffer for p in stream.puts} and len(stored) == 3


def test_heads_that_share_keys_are_rows_of_one_tile():
    """Where there are many, whose parts would not pay, too."""
    plan = read(attention_form(Form(1, 256, heads=32, groups=4, batch=32)), "plan").plan
    (kernel,), (stream,) = plan.kernels, streams(plan)
    assert str(kernel.lowered.tiles) == "128" and not stream.states
    assert str(stream.values.m[0].hi) == "8"


def test_streams_for_all_workers_stay_whole():
    for form in (Form(1024, 1024, heads=12), Form(512, 512, heads=32), Form(1, 128)):
        work = read(attention_form(form), "plan")
        assert len(work.plan.kernels) == 1 and not work.schedule.rewrites


def test_what_has_no_such_parts_is_told():
    program = read(attention_form(Form(9, 800))).program
    name, = candidates(program)
    other = next(s.out for s in program.steps if s.out != name)

    def told(*rewrite):
        with pytest.raises(ScheduleError) as err:
            apply_rewrites(program, ((RULE, *rewrite),))
        return str(err.value)
    for wrong in ({}, {"parts": 129}, {"parts": 1}, {"parts": True}, {"parts": 2, "keys": 2}):
        assert 'parameters are {"parts": an integer in 2..128}' in told(name, wrong)
    assert f"choose from {name}" in told(other, {"parts": 2})


@pytest.mark.parametrize("precision", ["tf32", "f16", "bf16"])
@pytest.mark.parametrize("form", [Form(1, 4096, heads=12),
                                  Form(1, 4096, heads=32, groups=8, size=128)], ids=str)
def test_tokens_of_f32_are_rounded_where_they_stream(form, precision):
    """No rounded copy of the keys is stored, which each call would make anew."""
    plan = read(attention_form(form, "f32"), "plan", precision=precision).plan
    stream, = streams(plan)
    assert len(plan.kernels) == 2 and len(stream.states) == 2
    assert {p.name for p in plan.places if p.storage == "arena"} == {p.buffer for p in stream.puts}


@needs_cxx
@pytest.mark.parametrize("precision, limit", [("tf32", 4e-3), ("f16", 4e-3), ("bf16", 3e-2)])
def test_tokens_of_f32_are_right(precision, limit, tmp_path):
    form = Form(1, 1100, heads=8, groups=2, mask="bias")
    model, feeds = attention_form(form, "f32"), attention_feeds(form, "f32")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = aotc.compile(model, tmp_path / "b", target=GPU.name, name="net", precision=precision)
    got = net.load(simulate=True).run(feeds)["y"]
    want = exact_attention(form, feeds)
    assert np.abs(got - want).max() <= limit * np.abs(want).max()
    text = "".join(f.read_text() for f in (tmp_path / "b").glob("*_kernels_*.cu"))
    assert text.count("aotc_carry_rows") == 1


@pytest.mark.skipif(bool(why_no_sass()), reason=why_no_sass())
@pytest.mark.product
@pytest.mark.parametrize("gpu", ["cuda:sm_80", "cuda:sm_90"])
@pytest.mark.parametrize("dtype, precision", [
    ("f16", "f32"), ("bf16", "f32"), ("f32", "tf32"), ("f32", "f16"), ("f32", "bf16")])
def test_tokens_spill_nothing(gpu, dtype, precision, tmp_path):
    for n, form in enumerate((Form(1, 4096, heads=12), Form(1, 4096, heads=8, groups=2, size=128),
                              Form(64, 4096, heads=12, mask="bias"))):
        folder = tmp_path / str(n)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            aotc.compile(attention_form(form, dtype), folder, target=gpu, name="net",
                         precision=precision)
        made = compile_kernels(folder, TARGETS[gpu].cflags)
        # tf32 that is rounded on its way needs some registers more beside a bias
        most = 64 if precision == "tf32" and form.mask else 0
        assert len(made) == 2 and max(x.spilled for x in made.values()) <= most, form
        loops = [x.code.hot_loop("HMMA") for x in made.values()]
        loop, = (x for x in loops if x is not None)
        # of f32 that become halves each is computed on its way
        copied = precision in ("f32", "tf32")
        assert bool(loop.count("LDGSTS")) == copied, form
        assert loop.count("LDGSTS") == loop.count("LDGSTS.128"), form
