"""Layout choices, how they travel, and the report of a finished Schedule."""

import json

import numpy as np
import pytest
from helpers.layout_rewrites import expands, layout_rewrites
from te_programs import Maker, ax, relu

from aotc.errors import ScheduleError
from aotc.ir.expr import Const
from aotc.ir.layout import Layout, Reorder, Split, Unfold
from aotc.ir.program import Buffer, LibCall, Program
from aotc.ir.schedule import Schedule
from aotc.oracle.evaluate import evaluate
from aotc.oracle.interpret import interpret
from aotc.passes.rewrites import apply_rewrites
from aotc.sched import check_schedule, complete, decide
from aotc.sched.candidates.layout_rules import settle_layouts
from aotc.sched.choose.layout_choices import channels_last, layout_choices
from aotc.sched.judge.neighbourhood import Neighbourhoods
from aotc.sched.model.elementwise import elementwise_class
from aotc.sched.report.layout_report import layout_report, report_lines
from aotc.target import TARGETS

TARGET = TARGETS["x86-64-v3"]
NHWC = channels_last(4, 1)
BLOCKED = Layout((Split(1, (-1, 8)), Reorder((0, 1, 3, 4, 2))))


def convolve(m, name, source, out, kernel=3):
    n, i, y, x = m.buffers[source].shape
    size = y.value - kernel + 1
    w = np.random.default_rng(out).standard_normal((out, i.value, kernel, kernel)) * 0.1
    m.const(f"{name}_w", w.astype(np.float32))
    axes = (ax("n", n.value), ax("o", out), ax("y", size), ax("x", size))
    i, p, q = ax("i", i.value), ax("p", kernel), ax("q", kernel)
    m.step(f"{name}_sum", axes, m.ref(source, axes[0], i, axes[2] + p, axes[3] + q)
           * m.ref(f"{name}_w", axes[1], i, p, q), (i, p, q), "sum")
    return m.pointwise(name, f"{name}_sum", lambda e, _: relu(e))


def network():
    m = Maker("net")
    m.input("x", 1, 4, 12, 12)
    convolve(m, "a", "x", 16)
    convolve(m, "b", "a", 16)
    m.pointwise("half", "b", lambda e, _: e * e)
    convolve(m, "c", "half", 32)
    return m.done("c")


def test_choices_are_templates_of_lanes_and_windows():
    p = network()
    found = layout_choices(p, "half", TARGET)
    texts = [x.text("nchw") for x in found]
    assert texts[0] == "n c h w" and found[0] == Layout()
    assert "n h w c" in texts and "n c/8 h w c%8" in texts
    assert any("|" in t for t in texts) and len(set(texts)) == len(texts)
    for layout in found:
        layout.shape(p.shape("half"))
    assert layout_choices(p, "x", TARGET) == layout_choices(p, "c_w", TARGET) == (Layout(),)


def test_a_layout_travels_along_elementwise_paths_only():
    p = network()
    assert elementwise_class(p, "half") == ("b_sum", "b", "half")
    rewrites = layout_rewrites(p, {"half": BLOCKED})
    assert [b for _, b, _ in rewrites] == ["b_sum", "b", "half"]
    assert [b for _, b, _ in layout_rewrites(p, {"c": BLOCKED})] == ["c_sum"]  # c is the caller's


def test_a_layout_that_repeats_elements_stays_where_it_is():
    p = network()
    tiles = Layout((Unfold(2, 5, 3),))
    assert expands(tiles) and not expands(BLOCKED) and not expands(Layout((Unfold(2, 4, 4),)))
    (rule, name, parameters), = layout_rewrites(p, {"half": tiles})
    assert (rule, name) == ("layout", "half") and "copy" not in parameters  # b*b stores it
    (_, _, parameters), = layout_rewrites(p, {"b_sum": tiles})
    assert parameters["copy"] == 1  # a reduction would compute the overlap again


def executed(program, schedule):
    x = np.random.default_rng(1).standard_normal((1, 4, 12, 12)).astype(np.float32)
    want = evaluate(program, {"x": x})["c"]
    got = interpret(apply_rewrites(program, schedule.rewrites), schedule, {"x": x})["c"]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("number", range(4))
def test_every_choice_is_a_legal_schedule(number):
    p = network()
    layout = layout_choices(p, "half", TARGET)[number]
    s = decide(p, TARGET, winograd=layout_rewrites(p, {"half": layout}))
    assert check_schedule(apply_rewrites(p, s.rewrites), s, TARGET) == []
    assert Schedule.from_json(s.to_json()).hash == s.hash
    executed(p, s)
    again = complete(p, Schedule.from_json(s.to_json()), TARGET)
    assert again.layouts == s.layouts and again.rewrites == s.rewrites


def test_settled_layouts_are_kept():
    p = network()
    free = decide(p, TARGET)
    assert free.layouts["half"] == NHWC.to_json()
    s = decide(p, TARGET, layouts={"half": Layout(), "a": NHWC})
    assert "half" not in s.layouts and s.layouts["a"] == NHWC.to_json()
    assert check_schedule(p, s, TARGET) == []


def test_winograd_forms_say_that_they_need_whole_channels():
    m = Maker("w")
    m.input("x", 1, 64, 30, 30)
    convolve(m, "a", "x", 64)
    convolve(m, "b", "a", 64)
    p = m.done("b")
    form = ("winograd", "b_sum", {"y": 4, "x": 4})
    rewrites = (form, *layout_rewrites(p, {"a": BLOCKED}))
    with pytest.raises(ScheduleError, match="Winograd form at a needs its channels in one"):
        decide(p, TARGET, winograd=rewrites)


# ---------------------------------------------------------------- the report

def test_report_of_a_network():
    p = network()
    s = decide(p, TARGET, "register", unfold=True)
    r = layout_report(p, s, TARGET)
    rows = {t.buffer: t for t in r.stored}
    assert {"x", "a", "half", "c"} <= set(rows)
    assert rows["half"].layout == "n y x o" or rows["half"].layout.split()[-1] in ("o", "i1")
    assert any("reads its rows in place along i" in w for w in rows["half"].why)
    assert "the caller's memory" in rows["x"].why and rows["x"].bytes == 4 * 4 * 12 * 12
    assert r.between() == ()
    moves = [c for c in r.conversions if c.kind == "move"]
    assert [c.at for c in moves] == ["input"] and moves[0].source == "x"
    assert moves[0].bytes > 2 * 4 * 4 * 12 * 12 - 1 and moves[0].seconds > 0
    assert any(c.kind == "offline" for c in r.conversions)
    text = "\n".join(report_lines(r))
    assert "total move, input: 1" in text and "reads panels along o" in text


def test_report_names_a_conversion_that_a_schedule_asks_for():
    p = network()
    turn = ("layout", "half", {"primitives": Layout((Reorder((0, 1, 3, 2)),)).to_json(),
                               "copy": 1})
    apart = decide(p, TARGET, "none", (turn,), layouts={"half": NHWC})
    r = layout_report(p, apart, TARGET)
    assert [(c.kind, c.source, c.target) for c in r.between()] == [("move", "half", "half_stored")]
    assert r.totals()["move, between"]["bytes"] == 2 * 4 * 16 * 8 * 8
    # connected, the producer stores the other order at once
    assert layout_report(p, decide(p, TARGET, "register", (turn,)), TARGET).between() == ()


def test_a_layout_rewrite_prints_as_it_was_meant():
    p = network()
    s = decide(p, TARGET, winograd=layout_rewrites(p, {"half": BLOCKED}))
    row = next(t for t in layout_report(p, s, TARGET).stored if t.buffer == "half")
    assert row.layout == "i0 i1/8 i2 i3 i1%8" and "the schedule's rewrites say so" in row.why


def test_report_is_plain_data():
    from aotc.tools.show import plain_data
    p = network()
    assert json.dumps(plain_data(layout_report(p, decide(p, TARGET), TARGET)))


def grouped(m, name, source, groups, size):
    """A grouped 1x1 sum of products over [1, groups * size, h, w], as convolutions have it."""
    _, _, y, x = m.buffers[source].shape
    w = np.random.default_rng(size).standard_normal((groups * size, size)).astype(np.float32)
    m.const(f"{name}_w", w)
    n, g, o = ax("n", 1), ax("g", groups), ax("o", size)
    h, v, i = ax("h", y.value), ax("v", x.value), ax("i", size)
    m.step(f"{name}_g", (n, g, o, h, v), m.ref(source, n, g * size + i, h, v)
           * m.ref(f"{name}_w", g * size + o, i), (i,), "sum")
    c = ax("c", groups * size)
    return m.step(name, (n, c, h, v), m.ref(f"{name}_g", n, c // size, c % size, h, v))


@pytest.mark.parametrize("size,layout", [(2, Layout()), (8, BLOCKED), (16, None)])
def test_groups_settle_the_layout_between_them(size, layout):
    m = Maker("g")
    m.input("x", 1, 32, 6, 16)
    grouped(m, "a", "x", 32 // size, size)
    m.pointwise("r", "a", lambda e, _: relu(e))
    grouped(m, "b", "r", 32 // size, size)
    p = m.done("b")
    found = settle_layouts(Neighbourhoods(p, TARGET))
    assert found.get("r") == layout
    s = decide(p, TARGET)
    assert check_schedule(apply_rewrites(p, s.rewrites), s, TARGET) == []
    x = np.random.default_rng(2).standard_normal((1, 32, 6, 16)).astype(np.float32)
    got = interpret(apply_rewrites(p, s.rewrites), s, {"x": x})["b"]
    np.testing.assert_allclose(got, evaluate(p, {"x": x})["b"], rtol=1e-4, atol=1e-5)


def test_windows_settle_on_what_costs_least_unless_a_contraction_is_near():
    """Blocks between two windows whose other ends are the caller's rows: both would go across."""
    m = Maker("d")
    m.input("x", 1, 24, 12, 12)
    for name, source in (("a", "x"), ("b", "a")):
        n, c, y, v = (ax(a, e.value) for a, e in zip("ncyv", m.buffers[source].shape))
        p, q = ax("p", 3), ax("q", 3)
        y, v = ax("y", y.extent.value - 2), ax("v", v.extent.value - 2)
        m.const(f"{name}_w", np.ones((24, 3, 3), np.float32))
        m.step(name, (n, c, y, v), m.ref(source, n, c, y + p, v + q)
               * m.ref(f"{name}_w", c, p, q), (p, q), "sum")
    alone = Maker("e")
    vars(alone).update({k: dict(x) if isinstance(x, dict) else list(x) if isinstance(x, list)
                        else x for k, x in vars(m).items()})
    near = Neighbourhoods(alone.done("b"), TARGET)
    assert "a" not in settle_layouts(near)
    assert near.seconds_around(["a"], BLOCKED) > 2 * near.seconds_around(["a"], None)
    assert set(settle_layouts(near, {"a", "b"})) == {"a", "b"}  # those must have one
    convolve(m, "c", "a", 16)
    assert "a" not in settle_layouts(Neighbourhoods(m.done("b", "c"), TARGET))


def test_windows_do_not_settle_what_a_product_stores():
    """A block with its product in channels last and its skip with channels first: the sum of both
    is stored by the product, whole vectors of channels at a time."""
    m = Maker("t")
    m.input("x", 1, 32, 12, 12)
    m.input("z", 1, 12, 12, 20)
    n, c, y, v, k, o = (ax(a, e) for a, e in zip("ncyvko", (1, 32, 12, 12, 20, 32)))
    m.const("w", np.ones((20, 32), np.float32))
    m.step("t", (n, y, v, o), m.ref("z", n, y, v, k) * m.ref("w", k, o), (k,), "sum")
    m.step("a", (n, c, y, v), m.ref("x", n, c, y, v) + m.ref("t", n, y, v, c))
    p, q, y, v = ax("p", 3), ax("q", 3), ax("y", 10), ax("v", 10)
    m.const("f", np.ones((32, 3, 3), np.float32))
    m.step("b", (n, c, y, v), m.ref("a", n, c, y + p, v + q) * m.ref("f", c, p, q), (p, q), "sum")
    program = m.done("b")
    assert "a" not in settle_layouts(Neighbourhoods(program, TARGET))
    rows = {s: row for g in decide(program, TARGET).groups for s, row in g.rows.items()}
    assert rows["b"].startswith("window_")


def test_what_a_call_works_on_stays_as_it_is():
    """Also where a layout travels to it from another tensor."""
    m = Maker("called")
    m.input("x", 1, 16, 3, 3)
    m.pointwise("a", "x", lambda e, _: e * e)
    m.pointwise("b", "a", lambda e, _: relu(e))
    m.buffers["order"] = Buffer("order", (Const(1), Const(16), Const(3), Const(2)), "i64", "output")
    call = LibCall("topk", (("largest", True),), ("b",), ("order",))
    p = Program("called", ("x",), ("order",), m.buffers, m.consts, (*m.steps, call))
    assert layout_choices(p, "b", TARGET) == (Layout(),)
    assert [name for _, name, _ in layout_rewrites(p, {"a": NHWC})] == ["a"]
