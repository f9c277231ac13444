"""Runs: work items that make steps along an axis, stages that keep rows from step to step."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from edits import with_tables
from group_cases import (
    chain,
    schedule,
    slides,
    storing_convolutions,
    three_convolutions,
    two_convolutions,
    with_loops,
)
from harness import STRICT, Case, build_cases, differences
from helpers.tile_graph import set_connect
from te_programs import Maker, ax, random_feeds

import aotc.oracle.interpret as interpreter
import aotc.sched.choose.runs as runs
from aotc.emit.c.kernels import render_kernels
from aotc.emit.text.c_names import prefix
from aotc.ir.expr import Cast, Const
from aotc.ir.schedule import Group, Schedule
from aotc.sched import check_schedule, complete, lower
from aotc.sched.choose.runs import best_run
from aotc.sched.cost.group_cost import group_cost
from aotc.sched.cost.run_cost import fresh_boxes, run_cost
from aotc.sched.judge.judge import Judge
from aotc.sched.model.group_model import group_model
from aotc.sched.model.tilegraph import merge_groups
from aotc.sched.report.explain import explain
from aotc.target import get_target, runs_here
from aotc.tuner.search.learned_cost import Estimator
from aotc.tuner.space.trial import Candidate

C = get_target("c")


def sliding(parts, tile, target=C, **changes):
    """(program, Schedule) of a sliding case; ``changes`` replace fields of its group."""
    p, connect, anchor, run = parts
    s = schedule(target, p, connect, tile, anchor, **run)
    s = replace(s, groups=tuple(with_tables(g, **changes) for g in s.groups))
    return p, complete(p, with_loops(p, s), target)


CASES = {
    "no whole steps": ({"oh": 5}, {}, "run oh/5; choose a tiled axis and a multiple of its tile"),
    "not tiled": ({"ow": 4}, {}, "run ow/4; choose a tiled axis"),
    "two axes": ({"oh": 4, "ow": 4}, {}, "a work item makes steps along one axis"),
    "no run": ({}, {"c1": "slide"}, "c1 cannot slide, its work items make no steps"),
    "the anchor": ({"oh": 4}, {"c2": "slide"}, "c2 cannot slide, it stores what it computes"),
    "no stage": ({"oh": 4}, {"r1": "slide"}, "reuse of 'r1', which is no stage; stages: c1, c2"),
    "no such way": ({"oh": 4}, {"c1": "keep"}, "reuse 'keep' of c1; choose recompute or slide"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_run_or_slide_says_why(case):
    run, reuse, why = CASES[case]
    p, s = sliding(slides(two_convolutions(), ()), {"oh": 2}, run=run, reuse=reuse)
    faults = check_schedule(p, s, C)
    assert len(faults) == 1 and why in faults[0], faults


def test_blocks_of_threads_make_no_steps():
    target = get_target("cuda:sm_90")
    p, s = sliding(slides(two_convolutions(), ["c1"], oh=4), {"oh": 2}, target, threads=128)
    assert any("where it is one thread's; remove it" in f for f in check_schedule(p, s, target))


def test_a_stage_that_stores_computes_each_row_once_so_it_cannot_slide():
    p, s = sliding(slides(storing_convolutions(), ["c1"], oh=4), {"oh": 2})
    assert any("c1 cannot slide, it stores" in f for f in check_schedule(p, s, C))


def test_rows_read_backwards_cannot_slide():
    m = Maker()
    m.input("x", 12, 8)
    h, w, k = ax("h", 12), ax("w", 8), ax("k", 3)
    m.step("a", (h, w), m.ref("x", h, w) * m.ref("x", h, w))
    m.step("y", (ax("i", 10), w), m.ref("a", Const(11) - ax("i", 10) - k, w), (k,), "sum")
    p = m.done("y")
    s = complete(p, with_loops(p, schedule(C, p, {"a": "L1"}, {"i": 2}, "y", run={"i": 4},
                                           reuse={"a": "slide"})), C)
    assert any("does not move forward" in f for f in check_schedule(p, s, C))


@pytest.mark.parametrize("tile, goes_on", [({"n": 1, "oh": 2}, True), ({"oh": 2, "ow": 4}, False)])
def test_an_item_goes_on_where_the_one_before_it_ended(tile, goes_on):
    p, s = sliding(slides(three_convolutions(batch=2), ["e"], oh=4), tile)
    kernel, = lower(p, s, C).kernels
    steps = kernel.lowered.steps
    assert steps.carried and (steps.start is not None) == goes_on
    text = render_kernels(lower(p, s, C), C)[f"{prefix(p.name)}_kernels_1.c"]
    before, _, inside = text.partition("for (int64_t tile = begin")
    declared = f"int64_t {steps.carried[0][0].name} = 0;"
    assert (declared in before, declared in inside) == (goes_on, not goes_on)
    assert ("if (oh_first == 0) {" in inside) == goes_on


@pytest.mark.parametrize("parts, tile, rows", [
    (slides(two_convolutions(size=13), ["c1"], oh=13), {"oh": 2}, {"c1": 13}),
    (slides(two_convolutions(size=13), ["c1"], oh=6), {"oh": 2}, {"c1": 13 + 2 * 2}),
    (slides(two_convolutions(size=13), [], oh=6), {"oh": 2}, {"c1": 13 + 2 * 6}),
    (slides(chain(), ["c0", "c1"], oh=12), {"oh": 2}, {"c0": 23, "c1": 12})])
def test_rows_are_computed_once_in_a_run(parts, tile, rows, monkeypatch):
    """An item begins with its halo; without sliding, every step does."""
    p, s = sliding(parts, tile) if parts[3]["run"]["oh"] != 13 else sliding(
        parts, tile, run={"oh": 14})
    found, count = interpreter.eval_compute, dict.fromkeys(rows, 0)

    def counted(compute, box, *rest):
        if compute.out in count:
            count[compute.out] += box[2][1]
        return found(compute, box, *rest)

    monkeypatch.setattr(interpreter, "eval_compute", counted)
    interpreter.interpret(p, s, random_feeds(p, np.random.default_rng(0), {}))
    assert count == rows


def test_the_plan_has_steps_and_moves_what_is_kept():
    p, s = sliding(slides(three_convolutions(), ["e"], oh=6), {"oh": 3})
    kernel, = lower(p, s, C).kernels
    assert kernel.tiles == Const(3) and kernel.lowered.steps is not None
    assert [v.name for v, _ in kernel.lowered.let] == ["oh_first", "oh_end"]
    assert {"oh_lo", "oh_hi", "e_oh_from", "er_kept", "er_shift"} <= {
        v.name for v, _ in kernel.lowered.steps.let}
    (moved,), (scratch,) = [
        [x for x in found if "er" in (getattr(x, "name", ""), *(p.buffer for p in puts(x)))][:1]
        for found in (kernel.lowered.stages, kernel.scratch)]
    assert "er[" in str(moved.puts[0].value) and scratch.elements == 20 * (3 + 2) * 11
    assert "for ~step in 0.." in str(kernel)


def puts(x):
    return getattr(x, "puts", ())


def test_schedules_with_runs_are_json():
    _, s = sliding(slides(chain(), ["c0", "c1"], oh=6), {"oh": 2})
    again = Schedule.from_json(s.to_json())
    assert again == s and again.groups[0].run == {"oh": 6} and again.hash == s.hash


def test_steps_cost_the_arithmetic_of_the_item_and_the_scratch_of_a_step():
    p, connect, anchor = three_convolutions(columns=64)
    target = get_target("x86-64-v4")
    g, = complete(p, schedule(target, p, connect, {}, anchor), target).groups
    model = group_model(p, g)
    axis = model.axes.index("oh")
    tile = model.extents[:axis] + (2,) + model.extents[axis + 1:]
    (e, _), (d, _), (y, _) = fresh_boxes(model, tile, axis)
    assert [model.boxes(tile)[0][0][2], e[2], d[2], y[2]] == [4, 2, 2, 2]
    apart = group_cost(model, target.machine, (tile, tile))
    run = best_run(model, target.machine, (tile, tile), (), (), {})
    assert run.axis == "oh" and run.slide == (0,)
    assert run.cost.seconds < apart.seconds and run.cost.recompute < apart.recompute
    asked = []
    small = best_run(model, target.machine, (tile, tile), (), (), {},
                     lambda r: asked.append(r.tile) or r.tile[axis] == 1)
    assert small.tile[axis] == 1 and small.cost.seconds >= run.cost.seconds
    assert len(asked) == len(set(asked)) and asked[0] == run.tile
    assert fresh_boxes(model, tile, model.axes.index("oc")) is None  # ``e`` has no such axis


def test_widths_that_shrink_are_no_steps():
    """What two steps reach is estimated, and may be less than what one does."""
    tall = {2: [((2,), ()), ((6,), ())], 4: [((4,), ()), ((5,), ())]}
    model = SimpleNamespace(stages=[SimpleNamespace(rank=1)] * 2, boxes=lambda t: tall[t[0]])
    assert fresh_boxes(model, (2,), 0) is None
    tall[4][1] = ((9,), ())
    assert fresh_boxes(model, (2,), 0) == [((2,), (2,)), ((3,), (3,))]


def test_weights_without_room_beside_what_slides_are_read_in_every_step():
    p, connect, anchor = three_convolutions(columns=64)
    target = get_target("x86-64-v4")
    g, = complete(p, schedule(target, p, connect, {}, anchor), target).groups
    model, moved = group_model(p, g), []
    axis = model.axes.index("oh")
    tile = model.extents[:axis] + (2,) + model.extents[axis + 1:]
    weights = sum(a.nbytes for a in p.consts.values())
    for room in (1 << 20, 1 << 10):
        levels = tuple(replace(x, capacity=room) if x.name == "L2" else x
                       for x in target.machine.memories)
        cost = run_cost(model, replace(target.machine, memories=levels), (tile,), tile,
                        {"oh": model.extents[axis]}, (), ())
        moved.append(cost.levels[1][2])
    steps = -(-model.extents[axis] // 2)
    assert moved[1] - moved[0] >= weights * (steps - 1)


def test_a_schedule_with_runs_is_priced_and_explained_as_such():
    """A step is no work item: priced as one, each would compute its halo again."""
    target = get_target("x86-64-v4")
    p, s = sliding(slides(three_convolutions(columns=64), ["e"], oh=14), {"oh": 2}, target)
    g, = s.groups
    judge = Judge(p, target)
    run, items = judge.priced(g), judge.priced(with_tables(g, run={}, reuse={}))
    assert run.recompute < items.recompute and run.compute < items.compute
    run, items = (Estimator(target).estimate(Candidate("", (), p, (x,), s.layouts)).seconds
                    for x in (g, with_tables(g, run={}, reuse={})))
    assert run != items
    assert "oh/2 run oh/14" in str(g)
    text = str(explain(p, s, target))
    assert "work items: 1 of oh/14 in steps of oh/2;" in text and "again stays: e" in text


def test_groups_that_change_make_no_steps_until_decided_again():
    p, s = sliding(slides(chain(), ["c0", "c1"], oh=6), {"oh": 2})
    g, = s.groups
    for edge, level in ((("r0", "c1"), "DRAM"), (("r0", "c1"), "L2")):
        parts = set_connect(p, s, edge, level, C.machine).groups
        assert not any(x.run or x.reuses for x in parts)
        after = complete(p, set_connect(p, s, edge, level, C.machine), C)
        assert check_schedule(p, after, C) == []
    front = replace(g, computes=g.computes[:2], outputs=("r0",), anchor="c0")
    back = replace(g, computes=g.computes[2:])
    both = merge_groups(p, front, back, "L1")
    assert isinstance(both, Group) and not both.run and not both.reuses


def doubled(rows=40, columns=24):
    """Sums of three rows, each read by four rows of what is twice as high, as behind a transposed
    convolution."""
    m = Maker()
    m.input("x", rows + 2, columns)
    i, j, k, c = ax("i", rows), ax("j", 2 * rows - 2), ax("k", 3), ax("c", columns)
    m.step("a", (i, c), m.ref("x", i + k, c), (k,), "sum")
    m.step("y", (j, c), m.ref("a", j // 2, c) + m.ref("a", j // 2 + 1, c) * 2.0)
    return m.done("y"), {"a": "L1"}, "y"


@pytest.mark.parametrize("tile, room", [({"j": 4}, 3), ({"j": 2}, 2), ({"j": 6}, 4)])
def test_quotients_of_a_steps_place_do_not_take_the_whole_tensor(tile, room):
    """Scratch is as long as a step asks for, although its end is a name of its own."""
    run = {"j": 6 * tile["j"]}
    p, s = sliding(slides(doubled(), ["a"], **run), tile)
    kernel, = lower(p, s, C).kernels
    assert [x.elements for x in kernel.scratch if x.name == "a"] == [room * 24]
    feeds = random_feeds(p, np.random.default_rng(0), {})
    got = interpreter.interpret(p, s, feeds)["y"]
    a = sum(feeds["x"][k:k + 40] for k in range(3))
    np.testing.assert_allclose(got, np.repeat(a[:-1], 2, 0) + 2 * np.repeat(a[1:], 2, 0),
                               rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("longer, axis", [(1.01, "y_i"), (1.05, "y_j")])
def test_of_runs_that_take_as_long_one_takes_whole_lines(longer, axis, monkeypatch):
    """Along the outermost axis, unless another one is faster indeed."""
    m, c, k = Maker(), ax("c", 16), ax("k", 3)
    m.input("x", 64, 64, 16)
    for name, source, size in (("a", "x", 62), ("y", "a", 60)):
        i, j = ax(f"{name}_i", size), ax(f"{name}_j", size)
        m.step(name, (i, j, c), m.ref(source, i + k, j + k, c), (k,), "sum")
    p, target = m.done("y"), get_target("x86-64-v4")
    g, = complete(p, schedule(target, p, {"a": "L2"}, {}, "y"), target).groups
    model, cost = group_model(p, g), runs.steps_cost

    def longer_along_lines(model, machine, outer, tile, axis, *rest):
        found = cost(model, machine, outer, tile, axis, *rest)
        return replace(found, seconds=longer if axis == 0 else 1.0)

    monkeypatch.setattr(runs, "steps_cost", longer_along_lines)
    run = runs.best_run(model, target.machine, (model.extents, model.extents), (), (), {})
    assert run.axis == axis


def kept_as(dtype, target):
    """(program, Schedule) of sums of three rows that are stored as a dtype and kept for the next
    step, which sums three of them."""
    m, i, j, c, k = Maker(dtype), ax("i", 40), ax("j", 38), ax("c", 37), ax("k", 3)
    m.input("x", 42, 37)
    m.step("s", (i, c), m.ref("x", i + k, c) * m.ref("x", i + k, c) * 9.0, (k,), "sum")
    m.step("a", (i, c), Cast(dtype, m.ref("s", i, c)))
    m.step("y", (j, c), Cast("f32", m.ref("a", j + k, c)), (k,), "sum")
    parts = m.done("y"), {"s": "register", "a": "L2"}, "y"
    return sliding(slides(parts, ["s"], j=20), {"j": 2}, target)


def test_what_is_kept_moves_in_lanes_whatever_it_is(tmp_path):
    target = next(t for t in map(get_target, ("x86-64-v4", "x86-64-v3", "aarch64", "c"))
                  if runs_here(t))
    found = {d: kept_as(d, target) for d in ("bf16", "f16", "i32", "u8", "i8")}
    for p, s in found.values():
        moved, *_ = lower(p, s, target).kernels[0].lowered.stages
        assert moved.row.startswith("move_f32__") and moved.puts[0].buffer == "a"
    built = build_cases([Case(d, p, s) for d, (p, s) in found.items()], target, tmp_path / "b",
                        STRICT)
    sample = built.sample(1)
    for case, got, want in zip(built.cases, sample.got, sample.want):
        assert not differences(got, want, case.tol, case.floor), case.name
