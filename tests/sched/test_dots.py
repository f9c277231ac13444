"""Rows of 8-bit products in a Schedule: what is chosen, and what an edit may not say."""

from dataclasses import replace

import numpy as np
import pytest
from te_programs import Maker, ax

from aotc.ir.expr import Cast
from aotc.ir.schedule import Schedule
from aotc.sched import check_schedule, decide
from aotc.target import TARGETS

TARGET = TARGETS["x86-64-v4-vnni"]


def product(depth=16, constant=True):
    """y i32[9, 70] = x u8[9, depth] * w i8[depth, 70]."""
    m = Maker()
    m.input("x", 9, depth, dtype="u8")
    if constant:
        m.const("w", np.ones((depth, 70), np.int8))
    else:
        m.input("w", depth, 70, dtype="i8")
    i, j, k = ax("i", 9), ax("j", 70), ax("k", depth)
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


@pytest.mark.parametrize("name", ("cuda", "riscv64"))
def test_targets_without_a_row_run_plain_loops(name):
    assert chosen(product(), TARGETS[name]) == ("loops", {})


def test_all_rows_of_a_target_share_their_panels():
    for target in TARGETS.values():
        assert len({u.tile["nr"] for u in target.rows("dot")}) <= 1, target.name


@pytest.mark.parametrize("edit, words", [
    ({"lanes": "i"}, "lanes 'i'"), ({"k": "j"}, "k 'j'; choose from k"),
    ({"a": "direct"}, "choose rows or packed"), ({"b": "direct"}, "panels of 64 x 4")])
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
    assert "must be a multiple of 64" in text


def test_a_schedule_survives_json():
    schedule = decide(product(18), TARGET)
    assert Schedule.from_json(schedule.to_json()) == schedule
