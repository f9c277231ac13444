"""Rows of 8-bit products in a Schedule: what is chosen, and what an edit may not say."""

from dataclasses import replace

import jinja2
import numpy as np
import pytest
from edits import with_tables
from harness import Case, build_cases, every
from te_programs import Maker, ax, random_feeds

from aotc.emit.text.dialect import environment
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Cast, Const, Sym, Where, compare
from aotc.ir.schedule import Schedule
from aotc.oracle.evaluate import evaluate
from aotc.oracle.run_plan import run_plan
from aotc.sched import check_schedule, decide, lower
from aotc.target import TARGETS
from aotc.target.kernel_rows import ProductRow, RegisterTile

TARGET = TARGETS["x86-64-v4-vnni"]


def product(depth=16, constant=True, columns=70, rows=9, across=True, threes=False,
            dtypes=("u8", "i8")):
    """y i32[rows, columns] = x u8[rows, depth] * w i8[depth, columns], or of other ``dtypes``;
    across: columns that are no constant lie side by side in memory, not along the sum; threes: nor
    evenly."""
    m = Maker()
    m.input("x", rows, depth, dtype=dtypes[0])
    i, j, k = ax("i", rows), ax("j", columns), ax("k", depth)
    if constant:
        m.const("w", np.ones((depth, columns), DTYPES[dtypes[1]].numpy))
        w = m.ref("w", k, j)
    elif threes:
        m.input("w", (depth + 2) // 3, columns, 3, dtype="i8")
        w = m.ref("w", k // 3, j, k % 3)
    else:
        m.input("w", *((depth, columns) if across else (columns, depth)), dtype="i8")
        w = m.ref("w", *((k, j) if across else (j, k)))
    body = Cast("i32", m.ref("x", i, k)) * Cast("i32", w)
    m.step("y", (i, j), body, (k,), "sum")
    return m.done("y")


def chosen(program, target=TARGET):
    group, = decide(program, target, written=False).groups
    return group.rows["y"], group.choice("y").said


@pytest.mark.parametrize("depth, mode", [(16, "rows"), (3, "packed"), (18, "packed")])
def test_rows_are_read_in_place_in_whole_steps(depth, mode):
    row, loops = chosen(product(depth))
    assert row.startswith("dot_u8s8_") and loops == {
        "lanes": "j", "k": "k", "a": mode, "b": "panel"}
    assert not check_schedule(product(depth), decide(product(depth), TARGET), TARGET)


@pytest.mark.parametrize("name", every(["c", "x86-64-v1", "x86-64-v3", TARGET.name], 3))
def test_columns_that_are_computed_are_packed_into_panels(name, tmp_path):
    """Four neighbours of the sum side by side, of columns along the sum and of columns side by
    side, in whole vectors and not, with sums of whole steps and not."""
    target, cases = TARGETS[name], []
    for depth, columns in ((16, 70), (19, 64), (3, 5)):
        for across in (True, False):
            program = product(depth, False, columns, across=across)
            row, loops = chosen(program, target)
            assert row.startswith("dot_u8s8_") and loops["b"] == "packed"
            schedule = decide(program, target)
            feeds = random_feeds(program, np.random.default_rng(depth))
            got = run_plan(lower(program, schedule, target), feeds)["y"]
            np.testing.assert_array_equal(got, evaluate(program, feeds)["y"])
            cases.append(Case("packed", program, schedule))
    build_cases(cases, target, tmp_path).check(1)


@pytest.mark.parametrize("name", [pytest.param("c", marks=pytest.mark.product), TARGET.name])
def test_sums_along_a_free_axis_are_padded_to_whole_steps(name, tmp_path):
    """Behind the last term there are zeros, whatever is left of the sum: of rows that are copied,
    of columns that lie along the sum, side by side, or neither."""
    target, cases = TARGETS[name], []
    for n, how in enumerate(({"across": True}, {"across": False}, {"threes": True})):
        program = product(Sym("k", 1, 40), False, (70, 5, 64)[n], **how)
        row, loops = chosen(program, target)
        assert row.startswith("dot_u8s8_") and (loops["a"], loops["b"]) == ("packed", "packed")
        schedule = decide(program, target)
        assert not check_schedule(program, schedule, target)
        plan = lower(program, schedule, target)
        for k in (3, 8):
            feeds = random_feeds(program, np.random.default_rng(k), {"k": k})
            np.testing.assert_array_equal(run_plan(plan, feeds, {"k": k})["y"],
                                          evaluate(program, feeds)["y"])
        cases.append(Case("free", program, schedule))
    built = build_cases(cases, target, tmp_path)
    for k in (1, 2, 4, 33):
        built.check(k, lambda sym, rng, k=k: k)


def test_rows_along_a_free_axis_of_whole_steps_are_read_in_place():
    m, k = Maker(), Sym("k", 1, 9)
    m.input("x", 9, k, 4, dtype="u8")
    m.input("w", k, 4, 70, dtype="i8")
    i, j, d = ax("i", 9), ax("j", 70), ax("d", k * 4)
    m.step("y", (i, j), Cast("i32", m.ref("x", i, d // 4, d % 4)) * Cast(
        "i32", m.ref("w", d // 4, d % 4, j)), (d,), "sum")
    program = m.done("y")
    assert chosen(program)[1] == {"lanes": "j", "k": "d", "a": "rows", "b": "packed"}
    plan = lower(program, decide(program, TARGET), TARGET)
    feeds = random_feeds(program, np.random.default_rng(0), {"k": 5})
    np.testing.assert_array_equal(run_plan(plan, feeds, {"k": 5})["y"],
                                  evaluate(program, feeds)["y"])


def test_weights_behind_a_guard_run_in_plain_loops():
    """The chooser leaves them alone, and an edit that names a row of products is refused."""
    m = Maker()
    m.input("x", 9, 16, dtype="u8")
    m.const("w", np.ones((16, 32), np.int8))
    i, j, k = ax("i", 9), ax("j", 32), ax("k", 16)
    padded = Where(compare("lt", j, Const(24)), m.ref("w", k, j), Const(0, "i8"))
    m.step("y", (i, j), Cast("i32", m.ref("x", i, k)) * Cast("i32", padded), (k,), "sum")
    program = m.done("y")
    assert chosen(program) == ("loops", {})
    schedule = decide(program, TARGET)
    loops = {"lanes": "j", "k": "k", "a": "rows", "b": "panel"}
    group = with_tables(schedule.groups[0], loops={"y": loops},
                    ukernel={"y": chosen(product(18))[0]})
    assert "use loops" in "\n".join(
        check_schedule(program, replace(schedule, groups=(group,)), TARGET))


def test_targets_without_a_row_run_nests():
    """Plain loops, or lanes where those are threads, which compute any dtype."""
    assert chosen(product(), TARGETS["dsa:stcp920"]) == ("loops", {})
    assert chosen(product(rows=91, dtypes=("i16", "i16")), TARGETS["cuda"])[0] == "reduction__simt"


def test_weights_for_tensor_cores_lie_by_columns():
    """Whole 16 bytes of each, whichever tile reads them; computed ones are read where they lie."""
    target, tiles = TARGETS["cuda:sm_80"], set()
    for rows in (91, 1 << 16):
        p = product(depth=50, rows=rows, columns=256)
        s = decide(p, target)
        (group,) = s.groups
        assert s.layouts["w"] == (("reorder", (1, 0)), ("fuse", 1, 1), ("pad", 1, 0, 14))
        tiles.add(group.choices["y"].row)
        assert group.choices["y"].b == "panel"
        assert not check_schedule(p, s, target)
    assert len(tiles) == 2 and all(t.endswith("__mma") for t in tiles)
    for across in (True, False):
        row, loops = chosen(product(rows=91, constant=False, across=across), target)
        assert row.endswith("__mma") and loops["b"] == "packed"


@pytest.mark.parametrize("columns, row", [(32, "13x32"), (20, "13x32"), (64, "7x64"), (96, "13x32"),
                                          (128, "7x64")])
def test_rows_as_wide_as_the_columns_are(columns, row):
    assert f"dot_u8s8_{row}__vnni" == chosen(product(columns=columns, rows=91))[0]


def test_products_that_share_weights_share_their_panels():
    """Also where each by itself would have a row of its own: 91 rows of columns, or one."""
    m = Maker()
    m.const("w", np.ones((16, 32), np.int8))
    outs = []
    for rows in (91, 12):
        m.input(f"x{rows}", rows, 16, dtype="u8")
        i, j, k = ax("i", rows), ax("j", 32), ax("k", 16)
        body = Cast("i32", m.ref(f"x{rows}", i, k)) * Cast("i32", m.ref("w", k, j))
        outs.append(m.step(f"y{rows}", (i, j), body, (k,), "sum"))
    p = m.done(*outs)
    s = decide(p, TARGET)
    assert not check_schedule(p, s, TARGET)
    used = [next(u for u in TARGET.rows("dot") if u.name == n)
            for g in s.groups for n in g.rows.values()]
    assert len(used) == 2 and len({u.tile.nr for u in used}) == 1


@pytest.mark.parametrize("edit, words", [
    ({"lanes": "i"}, "lanes 'i'"), ({"k": "j"}, "k 'j'; choose from k"),
    ({"a": "direct"}, "choose rows or packed"), ({"b": "direct"}, "panels of 32 x 4")])
def test_a_wrong_edit_is_named(edit, words):
    program = product()
    schedule = decide(program, TARGET)
    group, = schedule.groups
    group = with_tables(group, loops={"y": group.choices["y"].said | edit})
    assert words in "\n".join(check_schedule(program, replace(schedule, groups=(group,)), TARGET))


def test_missing_panels_and_odd_rows_are_named():
    program = product(18)
    schedule = decide(program, TARGET)
    text = "\n".join(check_schedule(program, replace(schedule, layouts={}), TARGET))
    assert "needs w in panels" in text
    group, = schedule.groups
    group = with_tables(group, loops={"y": group.choices["y"].said | {"a": "rows"}})
    text = "\n".join(check_schedule(program, replace(schedule, groups=(group,)), TARGET))
    assert "a multiple of 4 steps along k" in text


def test_a_tile_that_cuts_a_panel_is_named():
    program = product()
    schedule = decide(program, TARGET)
    group, = schedule.groups
    group = replace(group, tile={"j": 10}, parallel=("j",))
    text = "\n".join(check_schedule(program, replace(schedule, groups=(group,)), TARGET))
    assert "must be a multiple of 32" in text


def test_a_schedule_survives_json():
    schedule = decide(product(18), TARGET)
    assert Schedule.from_json(schedule.to_json()) == schedule


WORDS = ProductRow("dot_i16_2x4__test", "dot", "i16", ("i16",), "i32", RegisterTile(2, 4, 1),
                   "words.c.j2")
WORDS_TEMPLATE = """\
void {{ name }}(int64_t taps, int64_t pairs, const int16_t *const *a, const int16_t *b,
    int32_t *acc)
{
    memset(acc, 0, sizeof(int32_t) * {{ mr * nr }});
    for (int64_t tap = 0; tap < taps; ++tap, a += {{ mr }}) {
        for (int64_t k = 0; k < 2 * pairs; k += 2, b += {{ step }}) {
            for (int i = 0; i < {{ mr * nr }}; ++i) {
                const int16_t *const x = a[i / {{ nr }}] + k, *const w = b + i % {{ nr }} * 2;
                acc[i] += x[0] * w[0] + x[1] * w[1];
            }
        }
    }
}
"""


@pytest.mark.parametrize("depth, mode, columns", [
    (16, "rows", "panel"), (5, "packed", "panel"), (16, "rows", "packed"), (5, "packed", "packed")])
def test_a_row_of_other_types_is_a_row_and_a_template(depth, mode, columns, tmp_path, monkeypatch):
    """Pairs of 16-bit integers, which no target has a row for: chosen, stored or packed in panels,
    run as statements and as C."""
    templates = environment("c")
    monkeypatch.setattr(templates, "loader", jinja2.ChoiceLoader([
        jinja2.DictLoader({WORDS.template: WORDS_TEMPLATE}), templates.loader]))
    target = replace(TARGETS["c"], ukernels=(*TARGETS["c"].ukernels, WORDS))
    m, rng = Maker(), np.random.default_rng(depth)
    m.input("x", 5, depth, dtype="i16")
    if columns == "panel":
        m.const("w", rng.integers(-3000, 3000, (depth, 7)).astype(np.int16))
    else:
        m.input("w", depth, 7, dtype="i16")
    i, j, k = ax("i", 5), ax("j", 7), ax("k", depth)
    m.step("y", (i, j), Cast("i32", m.ref("x", i, k)) * Cast("i32", m.ref("w", k, j)), (k,), "sum")
    program = m.done("y")
    assert chosen(program, target) == (
        WORDS.name, {"lanes": "j", "k": "k", "a": mode, "b": columns})
    feeds = random_feeds(program, rng)
    got = run_plan(lower(program, decide(program, target), target), feeds)["y"]
    np.testing.assert_array_equal(got, evaluate(program, feeds)["y"])
    build_cases([Case("words", program)], target, tmp_path).check(1)
