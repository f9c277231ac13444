"""The space of a site: every point that is offered is legal and computes the same."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from half_models import codes, halved
from onnx import TensorProto, helper
from small_models import make_model
from te_programs import Maker, ax
from tuner_models import convolutions, scheduled

from aotc.ir.expr import Cast, Const, check_index
from aotc.ir.layout import Layout, Reorder
from aotc.ir.schedule import Schedule
from aotc.ir.stage_choice import FIELDS
from aotc.oracle.evaluate import evaluate
from aotc.oracle.interpret import interpret
from aotc.sched import check_schedule, decide
from aotc.sched.memory.allocate import allocate
from aotc.target import TARGETS
from aotc.tuner.search.learned_cost import Estimator
from aotc.tuner.space.knobs import Space, untuned_form
from aotc.tuner.space.site_forms import LAYOUT, forms, layout_form, layout_name
from aotc.tuner.space.sites import number_buffers, sites


def _sites(work):
    return sites(work.program, work.schedule, work.target)[1]


@pytest.fixture(scope="module")
def work():
    return scheduled(convolutions(size=7, channels=16), "x86-64-v4", connect="register")


def test_the_base_point_is_the_untuned_group(work):
    for s in _sites(work):
        found = Space(s, untuned_form(s), work.target).candidate({})
        assert [g.tile for g in found.groups] == [g.tile for g in s.groups]
        assert [g.choices for g in found.groups] == [g.choices for g in s.groups]
        assert found.layouts == s.layouts and found.point == ("", ())


def _points(space, rng, count):
    for _ in range(count):
        yield {k.name: rng.choice(k.choices) for k in space.knobs}


def _compared(form, candidate):
    """Outputs of a candidate's Schedule, executed literally, and of its Program."""
    program = form.program
    schedule = Schedule("x86-64-v4", candidate.groups, candidate.layouts)
    schedule = replace(schedule, buffers=allocate(program, schedule))
    rng = np.random.default_rng(1)
    feeds = {program.buffers[b].onnx or b: rng.standard_normal(
        [d.value for d in program.shape(b)]).astype(np.float32) for b in program.inputs}
    return interpret(program, schedule, feeds), evaluate(program, feeds)


def test_random_points_of_every_form_compute_the_same(work):
    rng, seen = Random(3), 0
    for s in _sites(work):
        for form in (untuned_form(s), *forms(s, work.target)):
            space = Space(s, form, work.target)
            for values in _points(space, rng, 4):
                found = space.candidate(values)
                if found is None:
                    continue
                got, want = _compared(form, found)
                for name in want:
                    np.testing.assert_allclose(got[name], want[name], rtol=1e-4, atol=1e-4)
                seen += 1
    assert seen > 20


def test_weights_that_two_products_share_stay_as_they_are():
    """One on another row packs them while it runs; each point has a cost."""
    w = np.ones((64, 64), np.float32)
    node, f32 = helper.make_node, TensorProto.FLOAT
    made = scheduled(make_model(
        [node("MatMul", ["x", "w"], ["a"]), node("Tanh", ["a"], ["b"]),
         node("MatMul", ["b", "w"], ["y"])],
        {"x": (f32, [8, 64])}, {"y": (f32, [8, 64])}, {"w": w}), "x86-64-v4", connect="all")
    (site,) = _sites(made)
    space, estimator = Space(site, untuned_form(site), made.target), Estimator(made.target)
    rows, modes = {k.name for k in space.knobs if k.name.endswith(".row")}, set()
    assert len(rows) == 2
    for values in _points(space, Random(1), 40):
        found = space.unchecked(values)
        assert estimator.estimate(found).seconds > 0
        assert found.layouts == site.layouts
        modes |= {c.b for c in found.groups[0].choices.values()}
    assert modes == {"panel", "packed"}


def test_legal_is_what_the_checker_accepts(work):
    s = next(s for s in _sites(work) if s.piece.consts)
    space = Space(s, untuned_form(s), work.target)
    for values in _points(space, Random(0), 30):
        found = space.unchecked(values)
        schedule = Schedule(work.target.name, found.groups, found.layouts,
                            rewrites=space.form.rewrites)
        faults = check_schedule(s.piece, schedule, work.target)
        assert space.legal(found) == (not [f for f in faults if not f.startswith("buffers")])


def test_forms_have_other_rewrites_and_keep_the_border(work):
    s = next(s for s in _sites(work) if s.piece.consts)
    found = forms(s, work.target)
    assert {f.name for f in found} & {"direct", "winograd2", "winograd4", "winograd6"}
    for f in found:
        assert {b: x for b, x in f.layouts.items() if b in s.piece.outputs} == {
            b: x for b, x in s.layouts.items() if b in s.piece.outputs}


def test_the_layout_of_a_tensor_on_the_border_is_a_form(work):
    s = next(s for s in _sites(work) if any(
        s.piece.buffers[b].role == "temp" for b in s.piece.outputs))
    b = next(b for b in s.piece.outputs if s.piece.buffers[b].role == "temp")
    number = number_buffers(s.piece, "")[b]
    for layout in (Layout(), Layout((Reorder((0, 2, 1, 3)),))):
        name = layout_name(number, layout)
        form = layout_form(s, work.target, name)
        assert name.startswith(LAYOUT) and form.layouts.get(b, ()) == layout.to_json()
        found = Space(s, form, work.target).candidate({})
        got, want = _compared(form, found)
        for out in want:
            np.testing.assert_allclose(got[out], want[out], rtol=1e-4, atol=1e-4)
    assert layout_form(s, work.target, f"{LAYOUT}99:[]") is None


def test_how_far_a_work_item_runs_may_vary():
    made = scheduled(convolutions(size=16, channels=16), "x86-64-v4", connect="register",
                     winograd="off")
    site = next(s for s in sites(made.program, made.schedule, made.target)[1]
                if "oh" in str([a.name for a in s.piece.steps[-1].axes]))
    g = site.groups[0]
    axis = next(a.name for a in made.program.producer[g.anchor].axes if a.name.startswith("oh"))
    site = replace(site, groups=(replace(g, tile={axis: 2}, parallel=(axis,), run={axis: 8}),))
    space = Space(site, untuned_form(site), made.target)
    knob = next(k for k in space.knobs if k.name == "0.run")
    assert knob.base == 8 and {0, 2, 4} <= set(knob.choices)
    assert space.candidate({"0.run": 0}).groups[0].run == {}
    assert space.candidate({"0.run": 4}).groups[0].run == {axis: 4}
    wider = space.candidate({f"0.tile.{axis}": 7})
    assert wider.groups[0].run == {} or wider.groups[0].run[axis] % 7 == 0


def test_rows_to_look_up_are_a_knob_where_data_says_places():
    """The sum of rows of a table that data names, and a sum that looks nothing up."""
    m = Maker()
    m.input("ids", 40, dtype="i32")
    m.const("table", np.ones((50, 64), np.float32))
    i, j, r = ax("i", 4), ax("j", 64), ax("r", 10)
    place = check_index(Cast("i64", m.ref("ids", i * 10 + r)), Const(50))
    m.step("y", (i, j), m.ref("table", place, j), (r,), "sum")
    m.step("z", (i,), m.ref("y", i, j), (j,), "sum")
    program, target = m.done("z"), TARGETS["x86-64-v4"]
    schedule = decide(program, target, "register", written=False)
    offered = {}
    for site in sites(program, schedule, target)[1]:
        space = Space(site, untuned_form(site), target)
        offered[site.computes] = {k.name.rpartition(".")[2] for k in space.knobs}
    lookups = {name for name, f in FIELDS.items() if f.metadata["where"] == "lookups"}
    assert lookups <= offered["y",] and not offered["z",] & lookups


def bytes_by_bytes():
    return make_model([helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
                      {"x": (TensorProto.UINT8, [300, 50])},
                      {"y": (TensorProto.INT32, [300, 200])},
                      {"w": np.arange(10000).reshape(50, 200).astype(np.int8)})


@pytest.mark.parametrize("make, name, count", [
    (bytes_by_bytes, "dot_u8s8", 6),
    (lambda: halved(codes(300, 64, 200), "f16"), "dot_grouped_f16", 4)])
def test_tiles_of_bytes_on_tensor_cores_share_a_layout(make, name, count):
    model = make()
    work = scheduled(model, "cuda:sm_80")
    (site,) = _sites(work)
    space = Space(site, untuned_form(site), work.target)
    (rows,) = (x for x in space.knobs if x.name.endswith(".row"))
    assert len(rows.choices) == count and all(r.startswith(name) for r in rows.choices)
    for row in rows.choices[:2]:  # of as many threads
        found = space.candidate({rows.name: row, "0.tile.n": 128})
        assert found is not None and found.layouts == site.layouts
        assert found.groups[0].tile["n"] == 128
