"""A Schedule as text: round trips, edits that compile, fields that are planned again."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from edits import with_tables
from schedule_cases import GOOD, PROGRAM, TARGET, decided, named
from te_programs import random_feeds

from aotc.emit.c.kernels import render_kernels
from aotc.ir.layout import Layout, Reorder
from aotc.ir.schedule import Schedule
from aotc.oracle.evaluate import evaluate
from aotc.oracle.interpret import interpret
from aotc.sched import check_schedule, complete, lower


def kernels(schedule):
    return "".join(render_kernels(lower(PROGRAM, schedule, TARGET), TARGET).values())


def changed(compute, **fields):
    group = named(GOOD, compute)
    return replace(GOOD, groups=tuple(with_tables(g, **fields) if g is group else g
                                      for g in GOOD.groups))


def means_the_same(schedule):
    feeds = random_feeds(PROGRAM, np.random.default_rng(3))
    want = evaluate(PROGRAM, feeds)
    got = interpret(PROGRAM, schedule, feeds)
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-5, atol=1e-6)


def test_json_round_trip_keeps_every_decision():
    again = Schedule.from_json(GOOD.to_json())
    assert again.to_json() == GOOD.to_json()
    assert again.hash == GOOD.hash
    assert kernels(again) == kernels(GOOD)


def test_why_is_not_hashed_and_everything_else_is():
    assert changed("a", why="because").hash == GOOD.hash
    for edit in (changed("a", tile={"i": 3}), changed("a", name="other"),
                 replace(GOOD, target="c"), replace(GOOD, buffers={}),
                 replace(GOOD, layouts={}), replace(GOOD, rewrites=(("r",),))):
        assert edit.hash != GOOD.hash


@pytest.mark.parametrize("edit", [
    changed("a", tile={"i": 3}, parallel=("i",)),
    changed("a", ukernel={"a": "loops"}, loops={}),
    changed("a", loops={"a": named(GOOD, "a").choices["a"].said | {"a": "packed"}}),
    changed("pool", ukernel={"pool": "loops"}, loops={}, tile={"o": 5}, parallel=("o",)),
    changed("a", connect={"a": "L1"}, anchor="b", tile={"i0": 4}, parallel=("i0",), ukernel={},
            loops={}),
    changed("y", tile={"i": 7}, parallel=("i",)),
], ids=["tile", "row", "operand", "nest", "level", "rows"])
def test_edits_compile_and_change_the_c(edit):
    edit = complete(PROGRAM, Schedule.from_json(edit.to_json()), TARGET)
    assert check_schedule(PROGRAM, edit, TARGET) == []
    assert kernels(edit) != kernels(GOOD)
    means_the_same(edit)


def test_a_layout_edit_changes_the_c_and_keeps_the_meaning():
    stored = next(b for b in GOOD.buffers if b in ("s", "b"))
    edit = replace(GOOD, layouts=GOOD.layouts | {stored: Layout((Reorder((1, 0)),)).to_json()},
                   groups=tuple(with_tables(g, ukernel=dict.fromkeys(g.rows, "loops"), loops={})
                                for g in GOOD.groups))
    plain = replace(edit, layouts={k: v for k, v in GOOD.layouts.items() if k != stored})
    assert check_schedule(PROGRAM, edit, TARGET) == []
    assert kernels(edit) != kernels(plain)
    means_the_same(edit)


def test_left_out_buffers_are_planned_as_before():
    bare = replace(GOOD, buffers={})
    assert check_schedule(PROGRAM, bare, TARGET)
    assert complete(PROGRAM, bare, TARGET) == GOOD
    assert complete(PROGRAM, bare, TARGET).hash == GOOD.hash


def test_left_out_rows_and_layouts_are_chosen_as_before():
    bare = replace(GOOD, buffers={}, layouts={},
                   groups=tuple(with_tables(g, ukernel={}, loops={}) for g in GOOD.groups))
    assert complete(PROGRAM, bare, TARGET).hash == GOOD.hash


def test_left_out_tiles_are_chosen_as_before():
    bare = replace(GOOD, buffers={}, layouts={},
                   groups=tuple(with_tables(g, ukernel={}, loops={}, tile={}, parallel=())
                                if len(g.connect) < 3 else with_tables(g, ukernel={}, loops={})
                                for g in GOOD.groups))
    assert complete(PROGRAM, bare, TARGET).hash == GOOD.hash


def test_one_group_without_rows_keeps_the_others():
    mine = changed("a", tile={"i": 3}, parallel=("i",))
    edit = replace(mine, buffers={}, groups=tuple(
        with_tables(g, ukernel={}, loops={}) if "pool" in g.computes else g for g in mine.groups))
    done = complete(PROGRAM, edit, TARGET)
    assert named(done, "a") == named(mine, "a")
    assert named(done, "pool").rows == named(GOOD, "pool").rows


@pytest.mark.product
def test_the_same_schedule_for_every_hash_seed():
    """Decisions and C text do not depend on the order of sets."""
    root = Path(__file__).resolve().parents[2]
    code = ("import sys; sys.path[:0] = sys.argv[1:]\n"
            "from test_check_schedule import PROGRAM, TARGET, GOOD\n"
            "from aotc.emit.c.kernels import render_kernels\n"
            "from aotc.sched import lower\n"
            "plan = lower(PROGRAM, GOOD, TARGET)\n"
            "print(GOOD.to_json(), plan, sorted(render_kernels(plan, TARGET).items()))\n")
    paths = [str(root), str(root / "tests" / "helpers"), str(root / "tests" / "sched")]
    texts = {subprocess.run([sys.executable, "-c", code, *paths], check=True, text=True,
                            capture_output=True, env={"PYTHONHASHSEED": seed}).stdout
             for seed in ("0", "1", "77")}
    assert len(texts) == 1
    assert json.dumps(GOOD.to_json()) == json.dumps(decided().to_json())
