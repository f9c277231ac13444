"""Products whose rows stay in the memory of a block, with the maps between them, are one kernel:
found by what they compute, right under the simulator and in the interpreter of Plans."""

import warnings
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from chain_models import Chain, chain_feeds, chain_model
from cusim_build import needs_cxx
from harness import every
from mutants import plant_mutants, unnoticed
from sass import compile_kernels, why_no_sass

import aotc
from aotc.errors import ScheduleError
from aotc.ir.kernel.plan_stages import Contract
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.oracle.run_plan import run_plan
from aotc.oracle.shares import share_of_range
from aotc.passes.rewrites import apply_schedule_rewrites
from aotc.pipeline import run_pipeline
from aotc.sched import lower
from aotc.sched.cost.predict import group_seconds
from aotc.sched.judge.judge import Judge
from aotc.target import TARGETS

TARGET = "cuda:sm_90"
GPUS = [t.name for t in TARGETS.values() if t.emitter == "simt" and t.name != "cuda"]
FORMS = {
    "plain": Chain(1100, (64, 128, 128, 128)), "ragged": Chain(203, (20, 72, 50, 36)),
    "odd": Chain(77, (3, 33, 17, 65)), "skip": Chain(300, (63, 128, 128, 128), skip=3),
    "encoded": Chain(161, (5, 64, 48, 64), skip=3, encoded=True),
    "heads": Chain(150, (24, 96, 64), heads=(3, 1)),
    "all": Chain(133, (3, 64, 64, 64), skip=3, encoded=True, heads=(3, 1)),
    "wide": Chain(130, (256, 256, 256, 256))}
# a model's own type, or the precision that is asked for -> errors, of the range of the result
HALVES = {"f16": 4e-3, "bf16": 3e-2}
ASKED = {"f16": 4e-3, "bf16": 3e-2, "tf32": 4e-3}
KINDS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
quiet = pytest.mark.filterwarnings("ignore")


def until(stage, model, target=TARGET, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run_pipeline(Options(source=model, target=target, name="net", stop_after=stage,
                                    **options))


def products(plan):
    return [[s for s in k.lowered.stages if isinstance(s, Contract)] for k in plan.kernels]


def wanted(model, feeds, **options):
    """y as the evaluator has it, of the Program that is scheduled."""
    work = until("schedule", model, **options)
    program = apply_schedule_rewrites(work.program, work.schedule)
    given = {n: a.view(np.uint16) if a.dtype == ml_dtypes.bfloat16 else a for n, a in feeds.items()}
    with np.errstate(invalid="ignore", over="ignore"):
        y = np.asarray(evaluate(program, given)["y"])
    return y.view(ml_dtypes.bfloat16) if y.dtype == np.uint16 else y


def built(model, folder, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return aotc.compile(model, folder, target=TARGET, name="net", **options)


def check(model, feeds, limit, folder, **options):
    want, bundle = wanted(model, feeds, **options), built(model, folder, **options)
    for order in (True, "random:7"):
        got = bundle.load(simulate=order).run(feeds)["y"]
        assert got.dtype == want.dtype and share_of_range(
            got.astype("f8"), want.astype("f8")) < limit


def is_one_kernel(plan):
    """One kernel, whose products but the first find their rows where others have left them."""
    (found,) = products(plan)
    return len(found) > 1 and all(c.placed for c in found[1:])


@needs_cxx
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", every(FORMS, 4))
def test_layers_of_halves_are_one_kernel(name, dtype, tmp_path):
    form = FORMS[name]
    model = chain_model(form, dtype)
    plan = until("plan", model).plan
    assert is_one_kernel(plan) and not any(p.storage == "arena" for p in plan.places)
    assert all(c.row.startswith(f"contraction_{dtype}") for (found,) in [products(plan)]
               for c in found if c.micro.dtypes.a != "f32")
    feeds = {n: a.astype(KINDS[dtype]) for n, a in chain_feeds(form.rows, form.widths[0]).items()}
    check(model, feeds, HALVES[dtype], tmp_path / "b")


@needs_cxx
@pytest.mark.parametrize("precision", ASKED)
@pytest.mark.parametrize("name", every(FORMS, 5))
def test_so_are_layers_of_f32_that_are_rounded(name, precision, tmp_path):
    form = FORMS[name]
    model = chain_model(form)
    assert is_one_kernel(until("plan", model, precision=precision).plan)
    check(model, chain_feeds(form.rows, form.widths[0]), ASKED[precision], tmp_path / "b",
          precision=precision)


@needs_cxx
@pytest.mark.parametrize("name", ["ragged", "all"])
def test_so_are_few_of_f32(name, tmp_path):
    form = FORMS[name]
    model = chain_model(form)
    assert any(c.placed for found in products(until("plan", model).plan) for c in found)
    check(model, chain_feeds(form.rows, form.widths[0]), 2e-6, tmp_path / "b")


@needs_cxx
def test_calls_of_any_number_of_rows(tmp_path):
    """The last tile has fewer rows; those that are not there are zeros."""
    model, options = chain_model(Chain("n", (20, 72, 50, 36)), "f16"), {"dims": {"n": (1, 400)}}
    plan = until("plan", model, **options).plan
    assert any(c.placed for found in products(plan) for c in found)
    bundle = built(model, tmp_path / "b", **options)
    loaded = bundle.load(simulate=True)
    for rows in (1, 31, 32, 33, 129, 400):
        feeds = {n: a.astype(np.float16) for n, a in chain_feeds(rows, 20).items()}
        got, want = loaded.run(feeds)["y"], wanted(model, feeds, **options)
        assert share_of_range(got.astype("f8"), want.astype("f8")) < 4e-3, rows


@pytest.mark.parametrize("name", every(FORMS, 2))
@pytest.mark.parametrize("precision", ["f16", "tf32"])
def test_the_interpreter_of_plans_runs_them(name, precision):
    form = FORMS[name]
    work = until("plan", chain_model(form), precision=precision)
    program = apply_schedule_rewrites(work.program, work.schedule)
    feeds = chain_feeds(form.rows, form.widths[0])
    (got,) = run_plan(work.plan, feeds).values()
    assert share_of_range(np.asarray(got), np.asarray(evaluate(program, feeds)["y"])) < 4e-3


@needs_cxx
@pytest.mark.parametrize("precision", ["f16", "tf32"])
def test_rows_without_a_number_stay_alone(precision, tmp_path):
    """A NaN, an infinity: no other row has one, behind the last term and row neither."""
    form = FORMS["ragged"]
    model, feeds = chain_model(form), chain_feeds(form.rows, form.widths[0])
    feeds["x"][7, 3], feeds["x"][202, 0] = np.nan, np.inf
    got = built(model, tmp_path / "b", precision=precision).load(simulate=True).run(feeds)["y"]
    want = wanted(model, feeds, precision=precision)
    assert (np.isnan(got) == np.isnan(want)).all() and np.isnan(got[7]).all()
    there = np.isfinite(want)
    assert (np.isfinite(got) == there).all() and there.sum() >= 201 * 36
    assert share_of_range(got[there], want[there]) < 4e-3


@needs_cxx
@pytest.mark.parametrize("precision", ["f16", "tf32"])
def test_nothing_that_keeps_threads_apart_can_be_left_out(precision, tmp_path):
    """Every wait, barrier and group, and the place of every step."""
    form = Chain(50, (40, 200, 160, 136))
    model, feeds = chain_model(form), chain_feeds(form.rows, form.widths[0])
    assert is_one_kernel(until("plan", model, precision=precision).plan)
    bundle = built(model, tmp_path / "b", precision=precision)
    mutants, loaded = plant_mutants(tmp_path / "b"), bundle.load(simulate=True)
    others = {n: a[::-1] + 1 for n, a in feeds.items()}
    want = loaded.run(feeds)["y"].copy()

    def right():
        return share_of_range(loaded.run(feeds)["y"], want) < 1e-4
    assert right() and len(mutants) >= 12
    missed = unnoticed(loaded, mutants, right, before=lambda: loaded.run(others))
    assert not missed, "\n".join(missed)


def test_where_blocks_would_be_too_few_layers_stay_apart():
    """Of f32, which takes its time: blocks of 32 rows leave most multiprocessors without one."""
    found = products(until("plan", chain_model(Chain(1024, (256,) * 5))).plan)
    assert [len(x) for x in found] == [1, 1, 1, 1]
    assert len(products(until("plan", chain_model(Chain(16384, (256,) * 5)), precision="f16"
                              ).plan)) == 1


def test_they_are_priced_as_they_were_decided():
    """By the blocks that a multiprocessor's memory has room for, among others."""
    work = until("schedule", chain_model(Chain(16384, (64, 128, 128, 128))), precision="f16")
    program = apply_schedule_rewrites(work.program, work.schedule)
    (group,), target = work.schedule.groups, work.target
    bare = replace(group, choices={}, tile={}, parallel=())
    decided = Judge(program, target, (bare,), together=True).verdict(bare)
    assert decided.legal and dict(decided.tile) == group.tile and group_seconds(
        work.program, work.schedule, target, {}) == {group.name: decided.seconds}
    tuning = target.machine.tuning
    small = replace(target, machine=replace(target.machine, tuning=replace(
        tuning, worker_shared=tuning.worker_shared // 2)))
    assert Judge(program, small, (bare,), together=True).priced(group).seconds > decided.seconds
    assert not Judge(program, target, (bare,)).verdict(bare).legal  # before halves are known


def test_what_is_not_in_place_is_told():
    work = until("schedule", chain_model(FORMS["plain"]), precision="f16")
    schedule, program = work.schedule, work.program
    (group,) = schedule.groups
    first, *others = (s for s, row in group.rows.items() if row.startswith("contraction"))

    def lowered(g):
        return lower(program, replace(schedule, groups=(g,)), TARGETS[TARGET])

    def choosing(stage, **said):
        return replace(group, choices=group.choices | {
            stage: replace(group.choice(stage), **said)})
    assert all(group.choice(s).a_fetch == "place" for s in others)
    slower = lowered(choosing(others[0], a_fetch="value"))  # by way of registers
    assert [bool(c.placed) for (found,) in [products(slower)] for c in found][1] is False
    with pytest.raises(ScheduleError, match="a_fetch copy.*; choose a_fetch place"):
        lowered(choosing(others[0], a_fetch="copy"))
    with pytest.raises(ScheduleError, match="b_fetch 'place'"):
        lowered(choosing(first, b_fetch="place"))
    with pytest.raises(ScheduleError, match="bytes of shared memory"):
        lowered(replace(group, tile={"m": 512}))


@pytest.mark.skipif(bool(why_no_sass()), reason=why_no_sass())
@pytest.mark.parametrize("precision", ["f16", pytest.param("bf16", marks=pytest.mark.product),
                                       pytest.param("tf32", marks=pytest.mark.product)])
@pytest.mark.parametrize("gpu", [n if n == TARGET else pytest.param(n, marks=pytest.mark.product)
                                 for n in GPUS])
def test_nothing_is_spilled(gpu, precision, tmp_path):
    model = chain_model(Chain(16384, (63, 256, 256, 256), skip=3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        aotc.compile(model, tmp_path / "b", target=gpu, name="net", precision=precision)
    for name, made in compile_kernels(tmp_path / "b", TARGETS[gpu].cflags).items():
        loop = made.code.hot_loop("HMMA")
        assert not made.spilled, f"{name}: {made.spilled} bytes"
        # where memory is for few rows, the loop is that over tiles: what follows sums is in it, too
        limit = 11.0 if TARGETS[gpu].machine.near.capacity >= 160 << 10 else 16.0
        assert loop is None or len(loop.instructions) / loop.count("HMMA") < limit, name
