"""Tuning for GPUs, on the simulator: the whole way, forms and knobs of blocks of threads."""

import json
from dataclasses import replace
from random import Random

import numpy as np
import onnx
import pytest
from cusim_build import needs_cxx
from onnx.parser import parse_model
from tuner_models import convolutions, scheduled

import aotc
from aotc.cli import main
from aotc.ir.schedule import Schedule
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.oracle.interpret import interpret
from aotc.sched import check_schedule
from aotc.sched.lowering.lower import lower
from aotc.sched.memory.allocate import allocate
from aotc.sched.text_choices.choose_writing import choose_writing
from aotc.sched.text_choices.keep_said import keep_said
from aotc.target import TARGETS
from aotc.tools.peers import open_reference
from aotc.tools.verify import compare
from aotc.tuner.measure.executor import LocalExecutor
from aotc.tuner.measure.records import Records
from aotc.tuner.measure.rigs import GpuRig, find_rig
from aotc.tuner.search.learned_cost import Correction, Estimator
from aotc.tuner.search.site_search import SiteSearch
from aotc.tuner.space.knobs import Space, untuned_form
from aotc.tuner.space.seeds import decisions
from aotc.tuner.space.site_forms import forms
from aotc.tuner.space.sites import sites

TARGET = "cuda:sm_80"
LAYERS = """<ir_version: 9, opset_import: ["": 18]>
    layers (float[40, 96] x, float[96, 64] w) => (float[40, 64] z) {
        p = MatMul(x, w)
        y = Relu(p)
        z = Softmax<axis = 1>(y)
    }"""
FOLDS = """<ir_version: 9, opset_import: ["": 18]>
    folds (float[3, 4096] x, float[6, 40, 50] t) => (float[3] s, float[6, 50] m, float[6, 50, 40] c)
    {
        axes = Constant <value: tensor = int64[1] {1}> ()
        s = ReduceSum<keepdims = 0>(x, axes)
        m = ReduceMax<keepdims = 0>(t, axes)
        e = Exp(t)
        c = Transpose<perm = [0, 2, 1]>(e)
    }"""


@pytest.fixture(scope="module")
def works():
    found = {text: scheduled(parse_model(text), TARGET) for text in (LAYERS, FOLDS)}
    return {text: replace(w, schedule=keep_said(w.program, w.schedule, w.target))
            for text, w in found.items()}  # what rules write follows what is turned


def spaces(work, with_forms=False):
    """(Site, Form, Space) of all sites of a Work."""
    for site in sites(work.program, work.schedule, work.target)[1]:
        for form in (untuned_form(site), *(forms(site, work.target) if with_forms else ())):
            yield site, form, Space(site, form, work.target)


def knobs_of(work):
    """{choice: values that are tried} of all sites together."""
    found = {}
    for _, _, space in spaces(work):
        for k in space.knobs:
            found.setdefault(k.name.partition(".")[2].removeprefix("0."), set()).update(k.choices)
    return found


def test_knobs_are_what_a_schedule_says_for_blocks_of_threads(works):
    product, folds = knobs_of(works[LAYERS]), knobs_of(works[FOLDS])
    rows = {u.name for u in TARGETS[TARGET].rows("contraction") if u.a == "f32"}
    assert product["row"] <= rows and len(product["row"]) > 3
    assert product["stages"] - {""} == set(range(2, 9))
    assert {"copy", "value"} <= product["a_fetch"] and 4 in product["b_width"]
    assert {"a_along", "b_along", "first"} <= set(product)
    assert {32, 64, 128, 256, 512, 1024} <= folds["threads"]
    assert {2, 8, 32} <= folds["team"] and {2, 4} <= folds["neighbours"]
    assert any(name.startswith("tile.") and len(values) > 4 for name, values in folds.items())


def test_another_row_brings_its_tile_and_threads(works):
    site, _, space = next(x for x in spaces(works[LAYERS]) if "0.0.row" in {
        k.name for k in x[2].knobs})
    target = TARGETS[TARGET]
    (knob,) = (k for k in space.knobs if k.name == "0.0.row")
    seen = set()
    for row in knob.choices:
        found = space.candidate({"0.0.row": row})
        if found is None:
            continue
        (group,), u = found.groups, target.product_row(row)
        lane = group.choices[group.anchor].lanes if group.anchor in group.choices else ""
        assert group.threads == u.threads
        assert group.tile.get(lane, u.tile.nr) % u.tile.nr == 0
        seen.add((tuple(group.tile.items()), group.threads))
    assert len(seen) > 2
    # what is turned by itself stays as it is turned
    axis = next(k for k in space.knobs if k.name.startswith("0.tile."))
    for n in axis.choices:
        found = space.unchecked({axis.name: n})
        assert found.groups[0].tile.get(axis.name.removeprefix("0.tile."), axis.choices[-1]) >= n


def test_rows_that_are_counted_through_may_end_at_lines():
    work = scheduled(convolutions(size=13, channels=64, layers=1), TARGET)
    _, _, space = next(x for x in spaces(work) if x[0].groups[0].flat)
    base, lines = space.candidate({}), space.candidate({"0.flat": 0})
    assert base.groups[0].flat and lines.groups[0].flat == ()
    assert lines.groups[0].tile and set(lines.groups[0].tile) != set(base.groups[0].tile)
    axis = next(k for k in space.knobs if k.name.startswith("0.tile."))
    assert space.unchecked({"0.flat": 0, axis.name: axis.choices[0]}) is None or (
        axis.choices[0] == axis.base)


def test_patches_follow_the_tile():
    work = scheduled(parse_model("""<ir_version: 9, opset_import: ["": 18]>
        large (float[4096, 4096] x, float[4096, 4096] w) => (float[4096, 4096] y) {
            y = MatMul(x, w)
        }"""), TARGET)
    (site, _, space), = spaces(work)
    (base,) = space.candidate({}).groups
    assert base.patch and base == replace(site.groups[0], why="")
    assert space.candidate({"0.patch": 0}).groups[0].patch == {}
    row = next(k for k in space.knobs if k.name.endswith(".row"))
    for name in row.choices:  # those of the row's own tiles are legal
        found = space.candidate({row.name: name})
        assert found is not None and (found.groups[0].patch or name != row.base)
    axis = next(k for k in space.knobs if k.name.startswith("0.tile."))
    assert sum(space.candidate({axis.name: n}) is not None for n in axis.choices) > 2


def test_a_sum_in_parts_is_a_form_and_taken_back(works):
    names = {f.name for _, f, _ in spaces(works[FOLDS], True)}
    parts = {n for n in names if n.startswith("parts")}
    assert len(parts) > 2 and not any(n.startswith("winograd") for n in names)
    # a model whose sums are in parts has them whole as a form of the site
    for site, form, _ in list(spaces(works[FOLDS], True)):
        if form.name in parts:
            again = replace(site, rewrites=form.rewrites, groups=form.groups,
                            layouts=form.layouts)
            assert "direct" in {f.name for f in forms(again, works[FOLDS].target)}
            break


@pytest.mark.parametrize("text", [LAYERS, pytest.param(FOLDS, marks=pytest.mark.product)])
def test_random_points_of_every_form_compute_the_same(works, text):
    rng, seen, work = Random(3), 0, works[text]
    for _, form, space in spaces(work, True):
        for n in (1, 2, 3):  # of so many knobs; of all at once most contradict each other
            some = rng.sample(space.knobs, min(n, len(space.knobs)))
            found = space.candidate({k.name: rng.choice(k.choices) for k in some})
            if found is None:
                continue
            schedule = Schedule(TARGET, found.groups, found.layouts, rewrites=form.rewrites)
            schedule = replace(schedule, buffers=allocate(form.program, schedule))
            schedule = choose_writing(form.program, schedule, work.target)
            lower(form.program, schedule, work.target)  # it fits a block's memory
            feeds = {form.program.buffers[b].onnx or b: np.random.default_rng(1).standard_normal(
                [d.value for d in form.program.shape(b)]).astype(np.float32)
                for b in form.program.inputs}
            want = evaluate(form.program, feeds)
            for name, got in interpret(form.program, schedule, feeds).items():
                np.testing.assert_allclose(got, want[name], rtol=1e-4, atol=1e-4)
            seen += 1
    assert seen > 12


def test_features_and_corrections_are_of_blocks(works):
    """As many numbers for every candidate, finite, and what differs in threads differs."""
    work = works[FOLDS]
    estimator, lengths, seen = Estimator(work.target), set(), 0
    for site, _, _ in spaces(work):
        search = SiteSearch(site, 1, 1e-3, work.target, estimator, Random(0))
        for c in (search.base, *search.propose(6, Correction(0))):
            found = estimator.estimate(c)
            lengths.add(len(found.features))
            assert np.isfinite(found.features).all() and 0 < found.seconds < 1
            seen += 1
    assert len(lengths) == 1 and seen > 8
    assert decisions(Options(None), False) == decisions(Options(None, winograd="off")) or all(
        dict(d)["winograd"] == "auto" for d in decisions(Options(None), False))


@needs_cxx
def test_candidates_alone_are_built_and_timed(works):
    """Layouts are timed in a bundle of their own, whose inputs blocks of threads write."""
    some = [space.candidate({}) for _, _, space in spaces(works[LAYERS])]
    rig = find_rig(works[LAYERS].target, simulate=True)
    assert rig == GpuRig(works[LAYERS].target, True) and rig.machine.startswith("simulated on ")
    found = LocalExecutor(rig, seconds=0.01).build_and_measure(some)
    assert all(r.error == "" and 0 < r.seconds < 60 for r in found), [r.error for r in found]


@needs_cxx
@pytest.mark.product
def test_the_whole_way_on_the_simulator(tmp_path, capsys):
    """Proposed, built, measured kernel by kernel, checked, and a Schedule that compiles and runs
    right; no time is asserted, for the simulator's say nothing."""
    model, out, records = (tmp_path / n for n in ("m.onnx", "s.json", "r.jsonl"))
    onnx.save(parse_model(LAYERS), model)
    assert main(["tune", str(model), "-o", str(out), "--target", TARGET, "--simulate", "--budget",
                 "3s", "--records", str(records)]) == 0
    said = capsys.readouterr().out
    assert "a dry run" in said and "candidates measured" in said
    found = Records(records).all
    assert len(found) > 3 and all(r.seconds and r.base and not r.error for r in found)
    assert {r.machine.partition(" on ")[0] for r in found} == {"simulated"}
    assert len({r.site for r in found}) >= 2
    work = scheduled(parse_model(LAYERS), TARGET)
    schedule = Schedule.from_json(out.read_text())
    assert check_schedule(work.program, schedule, work.target) == []
    assert json.loads(out.read_text())["target"] == TARGET
    bundle = aotc.compile(model, tmp_path / "b", target=TARGET, schedule=out)
    rng = np.random.default_rng(0)
    feeds = {"x": rng.standard_normal((40, 96)).astype(np.float32),
             "w": rng.standard_normal((96, 64)).astype(np.float32)}
    got = bundle.load(simulate=True).run(feeds)
    assert compare("z", got["z"], open_reference(model)[1](feeds)["z"]).ok
