"""What a stage's loads and stores cost, where its boxes start, and what follows for tiles."""

from dataclasses import replace

import numpy as np
import pytest
from edits import with_tables
from helpers.tile_graph import propagate
from te_programs import Maker, ax, conv2d, matmul, relu

from aotc.ir.expr import Const
from aotc.ir.layout import Layout, Reorder
from aotc.ir.schedule import Group
from aotc.ir.stage_choice import StageChoice
from aotc.sched.choose.loops import choose_loops
from aotc.sched.cost.accesses import access_costs
from aotc.sched.cost.group_cost import Aligned, done_work, needed_work, scattered_seconds
from aotc.sched.cost.lane_score import _stored_as_wanted
from aotc.sched.judge.axis_extents import blocked_axes
from aotc.sched.model.group_model import group_model
from aotc.sched.model.group_numbers import Extra
from aotc.sched.model.stages import Output
from aotc.target import get_target

V3 = get_target("x86-64-v3")
TUNING = V3.tuning
TURNED = Layout((Reorder((1, 0)),))


def mapped(target=V3, layouts=None):
    m = Maker()
    m.input("x", 64, 256)
    m.pointwise("y", "x", lambda e, _: relu(e))
    p = m.done("y")
    (g,), _ = choose_loops(p, target, (Group("g", ("y",), ("y",), "y"),))
    return access_costs(p, target, g, layouts or {})["y"]


def test_lanes_that_lie_apart_are_loaded_and_stored_one_by_one():
    assert mapped() == Extra(1, 0, TUNING.vector_store)
    assert mapped(layouts={"x": TURNED}) == Extra(1, 0, TUNING.vector_store + TUNING.apart)
    assert mapped(layouts={"x": TURNED, "y": TURNED}) == Extra(
        1, 0, TUNING.vector_store + 2 * TUNING.apart)


def test_sums_over_lanes_end_in_a_fold_across_the_vector():
    m = Maker()
    m.input("x", 64, 256)
    m.step("y", (ax("i", 64),), m.ref("x", ax("i", 64), ax("r", 256)), (ax("r", 256),), "sum")
    p = m.done("y")
    (g,), _ = choose_loops(p, V3, (Group("g", ("y",), ("y",), "y"),))
    assert g.choices["y"].lanes == "r"
    assert access_costs(p, V3, g, {})["y"] == Extra(1, TUNING.fold_load, TUNING.across)


def test_columns_that_every_work_item_packs():
    """Scores of an attention: a tile of half the rows packs all columns as well."""
    m = Maker()
    m.input("q", 96, 64)
    m.input("k", 48, 64)
    i, j, k = ax("i", 96), ax("j", 48), ax("k", 64)
    m.step("y", (i, j), m.ref("q", i, k) * m.ref("k", j, k), (k,), "sum")
    p = m.done("y")
    (g,), _ = choose_loops(p, V3, (Group("g", ("y",), ("y",), "y"),))
    assert g.choices["y"].b == "packed"
    costs = access_costs(p, V3, g, {})
    assert costs["y"] == Extra(1, 0, TUNING.vector_store, ((TUNING.packed, ("i",)),))
    model = group_model(p, g, extra=costs)
    whole, half = (done_work(model, tile) for tile in ((96, 48, 64), (48, 48, 64)))
    assert whole == needed_work(model) and half - whole == TUNING.packed * 48 * 64


@pytest.mark.parametrize("name", ["c", "cuda"])
def test_machines_without_vectors_have_no_such_costs(name):
    """Threads of a warp ask for sectors: eight for the loads and stores of neighbours."""
    target = get_target(name)
    m = Maker()
    m.input("x", 64, 256)
    m.pointwise("y", "x", lambda e, _: relu(e))
    p = m.done("y")
    (g,), _ = choose_loops(p, target, (Group("g", ("y",), ("y",), "y"),))
    tuning = target.tuning
    assert access_costs(p, target, g, {}) == ({} if name == "c" else {
        "y": Extra(per_output=2 * round(8 * tuning.sector_cost * tuning.access_cost))})


def test_threads_that_lie_apart_ask_for_a_sector_each():
    m, target = Maker(), get_target("cuda")
    m.input("x", 256, 64)
    i, j = ax("i", 64), ax("j", 256)
    m.step("y", (i, j), relu(m.ref("x", j, i)))
    p = m.done("y")
    (g,), _ = choose_loops(p, target, (Group("g", ("y",), ("y",), "y"),))
    tuning = target.tuning
    assert access_costs(p, target, g, {}) == {"y": Extra(
        per_output=2 * round(36 * tuning.sector_cost * tuning.access_cost))}


def three_runs():
    """Two stages that read runs of the same columns, 64 apart."""
    m = Maker()
    m.input("x", 8, 128)
    m.pointwise("y", "x", lambda e, _: relu(e))
    h, i, d = ax("h", 4), ax("i", 8), ax("d", 16)
    m.step("t", (h, i), m.ref("y", i, h * 16 + d), (d,), "sum")
    e = ax("e", 16)
    m.step("u", (h, i, e), m.ref("t", h, i) * m.ref("y", i, h * 16 + e + 64))
    return m.done("u")


def test_a_tile_asks_for_the_hull_of_all_runs():
    p = three_runs()
    g = Group("g", ("y", "t", "u"), ("u",), "u", {"y": "L1", "t": "L1"})
    assert propagate(p, g, {"h": 1})["y"] == (8, 16 + 64)
    assert propagate(p, g, {"h": 2})["y"] == (8, 32 + 64)
    assert propagate(p, g, {"h": 1, "i": 2})["y"] == (2, 80)
    assert propagate(p, g, {"h": 4})["y"] == (8, 128)


def test_slices_that_follow_each_other_move_whole_runs():
    m = Maker()
    m.input("a", 64, 256)
    m.const("b", np.zeros((256, 32), np.float32))
    matmul(m, "y", "a", "b")
    p = m.done("y")
    model = group_model(p, Group("g", ("y",), ("y",), "y"))
    tile, whole = (64, 32, 4), (64, 32, 256)
    assert model.traffic(tile, unit=512) > model.traffic(whole, unit=512)
    for ask in (model.traffic, lambda *a, **k: model.measure(*a, **k)[0]):
        assert ask(tile, unit=512, streamed=True) == ask(whole, unit=512)
        assert ask(tile, streamed=True) == ask(whole)


@pytest.mark.parametrize("columns, rows, lost", [(255, 512, True), (255, 64, False),
                                                 (256, 512, False)])
def test_many_rows_that_end_inside_cache_lines_cost_time(columns, rows, lost):
    m = Maker()
    m.input("a", 512, 64)
    m.const("b", np.zeros((64, columns), np.float32))
    matmul(m, "y", "a", "b")
    p = m.done("y")
    model = group_model(p, Group("g", ("y",), ("y",), "y"))
    boxes = model.boxes((rows, columns, 64))
    aligned = (Aligned(0, (0,), 1, 6, 16),)
    seconds = scattered_seconds(model, V3.machine, boxes, aligned)
    assert (seconds > 0) is lost
    assert scattered_seconds(model, V3.machine, boxes, aligned, {"y"}) == 0
    managed = replace(V3.machine, memories=tuple(
        replace(x, kind="managed" if x.name == "L2" else x.kind) for x in V3.machine.memories))
    assert scattered_seconds(model, managed, boxes, aligned) == 0


def test_windows_keep_their_rows_whole_in_a_chain():
    """Of the anchor's axes, the one along which a window before it computes neighbours together."""
    m = Maker()
    m.input("x", 1, 16, 32, 66)
    m.const("wd", np.ones((16, 3, 3), np.float32))
    m.const("wp", np.ones((16, 16, 1, 1), np.float32))
    n, c, h, w = ax("n", 1), ax("c", 16), ax("h", 30), ax("w", 64)
    kh, kw = ax("kh", 3), ax("kw", 3)
    m.step("d", (n, c, h, w), m.ref("x", n, c, h + kh, w + kw) * m.ref("wd", c, kh, kw),
           (kh, kw), "sum")
    conv2d(m, "y", "d", "wp", pad=0)
    p = m.done("y")
    window = V3.rows("window")[0].name
    g = Group("g", ("d", "y"), ("y",), "y", {"d": "L1"}, choices={
        "d": StageChoice(window, "c", block="w")})
    assert blocked_axes(group_model(p, g), V3, g) == {"ow": (64,)}
    g = with_tables(g, ukernel={"d": "loops"}, loops={})
    assert blocked_axes(group_model(p, g), V3, g) == {}


def test_lanes_run_along_what_a_contraction_sums_over():
    """Where the product cannot step from row to row, its rows' elements must lie side by side."""
    i, c = ax("i", 64), ax("c", 32)
    out = Output("n", (i, c), Const(0.0, "f32"))
    assert _stored_as_wanted(TUNING, (None, (1,), set()), out, c) == 0.5
    assert _stored_as_wanted(TUNING, (None, (1,), set()), out, i) < 0
    assert _stored_as_wanted(TUNING, (None, (1,), {0}), out, i) == 0
