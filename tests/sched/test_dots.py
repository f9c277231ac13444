"""Rows of 8-bit products in a Schedule: what is chosen, and what an edit may not say."""

from dataclasses import replace

import numpy as np
import pytest
from te_programs import Maker, ax

from aotc.ir.expr import Cast, Const, Where, compare
from aotc.ir.schedule import Schedule
from aotc.sched import check_schedule, decide
from aotc.target import TARGETS

TARGET = TARGETS["x86-64-v4-vnni"]


def product(depth=16, constant=True, columns=70, rows=9):
    """y i32[rows, columns] = x u8[rows, depth] * w i8[depth, columns]."""
    m = Maker()
    m.input("x", rows, depth, dtype="u8")
    if constant:
        m.const("w", np.ones((depth, columns), np.int8))
    else:
        m.input("w", depth, columns, dtype="i8")
    i, j, k = ax("i", rows), ax("j", columns), ax("k", depth)
    body = Cast("i32", m.ref("x", i, k)) * Cast("i32", m.ref("w", k, j))
    m.step("y", (i, j), body, (k,), "sum")
    return m.done("y")


def chosen(program, target=TARGET):
    group, = decide(program, target).groups
    return group.ukernel["y"], group.loops.get("y", {})


@pytest.mark.parametrize("depth, mode", [(16, "rows"), (3, "packed"), (18, "packed")])
def test_rows_are_read_in_place_in_whole_steps(depth, mode):
    row, loops = chosen(product(depth))
    assert row.startswith("dot_u8s8_") and loops == {
        "lanes": "j", "k": "k", "a": mode, "b": "panel"}
    assert not check_schedule(product(depth), decide(product(depth), TARGET), TARGET)


def test_weights_that_are_no_constant_run_in_plain_loops():
    assert chosen(product(constant=False)) == ("loops", {})


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
    group = replace(schedule.groups[0], loops={"y": loops},
                    ukernel={"y": TARGET.rows("dot")[0].name})
    assert "use loops" in "\n".join(
        check_schedule(program, replace(schedule, groups=(group,)), TARGET))


@pytest.mark.parametrize("name", ("cuda", "riscv64"))
def test_targets_without_a_row_run_plain_loops(name):
    assert chosen(product(), TARGETS[name]) == ("loops", {})


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
            for g in s.groups for n in g.ukernel.values()]
    assert len(used) == 2 and len({u.tile["nr"] for u in used}) == 1


@pytest.mark.parametrize("edit, words", [
    ({"lanes": "i"}, "lanes 'i'"), ({"k": "j"}, "k 'j'; choose from k"),
    ({"a": "direct"}, "choose rows or packed"), ({"b": "direct"}, "panels of 32 x 4")])
def test_a_wrong_edit_is_named(edit, words):
    program = product()
    schedule = decide(program, TARGET)
    group, = schedule.groups
    group = replace(group, loops={"y": group.loops["y"] | edit})
    assert words in "\n".join(check_schedule(program, replace(schedule, groups=(group,)), TARGET))


def test_missing_panels_and_odd_rows_are_named():
    program = product(18)
    schedule = decide(program, TARGET)
    text = "\n".join(check_schedule(program, replace(schedule, layouts={}), TARGET))
    assert "needs w in panels" in text
    group, = schedule.groups
    group = replace(group, loops={"y": group.loops["y"] | {"a": "rows"}})
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
