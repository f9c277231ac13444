"""Groups of several stages, written by hand: accepted, lowered, compiled, equal to the evaluator
and to the interpreter, on the micro-kernel rows and on the plain nest."""

import numpy as np
import pytest
from group_cases import (
    SCHEDULES,
    attention,
    group_cases,
    mlp,
    schedule,
    storing_convolutions,
    two_convolutions,
    with_loops,
)
from harness import DISTINCT, Case, build_cases, differences
from helpers.tile_graph import set_connect
from te_programs import Maker, ax, random_feeds, relu

from aotc.errors import ScheduleError
from aotc.ir.expr import Binary, Const
from aotc.oracle.evaluate import evaluate
from aotc.oracle.interpret import interpret
from aotc.sched import check_schedule, complete, decide, lower
from aotc.target import get_target


@pytest.mark.parametrize("target, share", [
    *(pytest.param(t, 2, id=t.name) for t in (DISTINCT[0], DISTINCT[-1])),
    *(pytest.param(t, 1, id=f"{t.name}-all", marks=pytest.mark.product) for t in DISTINCT)])
def test_groups_run(target, share, tmp_path):
    """All cases, or half of them on one target and half on the other."""
    cases = list(group_cases(target, loops=9 if target is DISTINCT[0] else 0))
    cases = cases[(target is DISTINCT[0]) % share::share]
    for c in cases:
        assert check_schedule(c.program, complete(c.program, c.schedule, target), target) == []
    built = build_cases(cases, target, tmp_path / "groups")
    for seed in range(2):
        built.check(seed)
    built.check(3, syms=lambda s, r: s.lo)


@pytest.mark.parametrize("name, parts, tile, cuts", SCHEDULES,
                         ids=[f"{n}-{t}" for n, _, t, _ in SCHEDULES])
def test_interpreter_agrees(name, parts, tile, cuts):
    p, connect, anchor, *run = parts
    target = get_target("c")
    s = schedule(target, p, connect, tile, anchor, **(run[0] if run else {}))
    s = complete(p, with_loops(p, s), target)
    syms = {x.name: 11 for x in p.syms}
    feeds = random_feeds(p, np.random.default_rng(1), syms)
    want = evaluate(p, feeds, syms)
    for backwards in (False, True):
        got = interpret(p, s, feeds, syms, backwards=backwards)
        assert not differences(got, want, 2e-5)


@pytest.mark.parametrize("target", DISTINCT, ids=lambda t: t.name)
def test_rows_of_a_product_are_looked_up_by_several_indices(target, tmp_path):
    m = Maker()
    i, j, k, o = ax("i", 3), ax("j", 5), ax("k", 16), ax("o", 24)
    m.input("x", 7, 16)
    m.input("at", 3, 5, dtype="i64")
    m.const("w", np.random.default_rng(0).standard_normal((16, 24)).astype(np.float32))
    row = Binary("mod", m.ref("at", i, j), Const(7))
    m.step("rows", (i, j, k), m.ref("x", row, k))
    m.step("y", (i, j, o), m.ref("rows", i, j, k) * m.ref("w", k, o), (k,), "sum")
    p = m.done("y")
    s = set_connect(p, decide(p, target, "none"), ("rows", "y"), "register", target.machine)
    s = complete(p, s, target)
    assert len(s.groups) == 1
    build_cases([Case("rows", p, s, tol=2e-5)], target, tmp_path / "rows").check(1)


def test_stages_share_one_kernel():
    p, connect, anchor = mlp()
    target = get_target("c")
    plan = lower(p, complete(p, schedule(target, p, connect, {"i": 8}, anchor), target), target)
    kernel, = plan.kernels
    assert len(kernel.lowered.stages) == 4
    hidden = {s.name: s.elements for s in kernel.scratch if s.name in connect}
    assert hidden == {"h0": 8 * 18, "h1": 8 * 10, "h2": 8 * 12}  # tiles, not tensors


def test_halo_is_as_small_as_the_tile_needs():
    p, connect, anchor = two_convolutions()
    target = get_target("c")
    s = complete(p, schedule(target, p, connect, {"oh": 4}, anchor), target)
    kernel, = lower(p, s, target).kernels
    r1, = (x for x in kernel.scratch if x.name == "r1")
    assert r1.elements == 5 * (4 + 2) * 9


@pytest.mark.parametrize("tile, made", [(2, 4), (4, 4), (6, 8)])
def test_a_tile_of_a_part_of_a_channel_group_has_room_for_all_of_it(tile, made, tmp_path):
    """Of the group that a work item's channels are in, the stage before makes every one."""
    m = Maker()
    m.input("x", 6, 5, 7)
    m.const("we", np.random.default_rng(0).standard_normal((3, 4, 2)).astype(np.float32))
    m.const("wd", np.random.default_rng(1).standard_normal((12, 3)).astype(np.float32))
    g, o, i, h, w, c, k = (ax(n, e) for n, e in zip("goihwck", (3, 4, 2, 5, 7, 12, 3)))
    v = ax("v", 5)
    m.step("e", (g, o, h, w), m.ref("x", g * 2 + i, h, w) * m.ref("we", g, o, i), (i,), "sum")
    m.step("r", (c, h, w), relu(m.ref("e", c // 4, c % 4, h, w)))
    m.step("y", (c, h, v), m.ref("r", c, h, v + k) * m.ref("wd", c, k), (k,), "sum")
    p, target = m.done("y"), get_target("c")
    s = complete(p, schedule(target, p, {"e": "register", "r": "L1"}, {"c": tile}, "y"), target)
    assert len(s.groups) == 1 and not check_schedule(p, s, target)
    room, = (x.elements for x in lower(p, s, target).kernels[0].scratch if x.name == "r")
    assert room == 5 * 7 * made
    build_cases([Case("part", p, s, tol=2e-5)], target, tmp_path / "part").check(1)


@pytest.mark.parametrize("tile", [{"oh": 4}, {"ow": 5}, {"oc": 2}])
def test_overlapping_stored_tiles_are_refused(tile):
    """Recomputed halos and channels would be written by several work items."""
    p, connect, anchor = storing_convolutions()
    target = get_target("c")
    s = complete(p, with_loops(p, schedule(target, p, connect, tile, anchor)), target)
    fault, = check_schedule(p, s, target)
    assert "overlap or leave gaps in r1, which is stored" in fault
    assert "a group of its own" in fault
    with pytest.raises(ScheduleError):
        lower(p, s, target)


def test_a_stage_nobody_reads_is_refused():
    p, connect, anchor = attention()
    target = get_target("c")
    s = with_loops(p, schedule(target, p, connect, {}, "p"))
    faults = check_schedule(p, complete(p, s, target), target)
    assert any("nothing after o reads it" in f for f in faults)
