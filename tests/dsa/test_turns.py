"""Turns of work items, tensors that stay with cores from kernel to kernel, and constants that
clusters bring into their memories while kernels before compute: who runs them, who tells faults."""

import os
from dataclasses import replace

import numpy as np
import pytest
from changed_kernels import dealt_otherwise
from core_traces import expected_trace, read_trace, told
from edits import with_tables
from harness import INFO, differences
from te_programs import Maker, ax, conv2d, matmul, random_feeds, two_products

import aotc
from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.write import write_bundle
from aotc.errors import ScheduleError
from aotc.ir.schedule import Schedule, Slot
from aotc.ir.statements import Copy, Wait
from aotc.oracle.check_plan import plan_faults
from aotc.oracle.evaluate import evaluate
from aotc.oracle.interpret import interpret
from aotc.oracle.run_plan import run_plan
from aotc.sched import check_schedule, decide, lower
from aotc.sched.accelerator.clock.cycles import timeline
from aotc.sched.accelerator.kernels.copy_faults import copy_faults
from aotc.sched.accelerator.places.choose_order import choose_order
from aotc.sched.accelerator.places.choose_stores import choose_stores
from aotc.sched.accelerator.places.choose_weights import Taken, gap
from aotc.sched.memory.allocate import allocate
from aotc.sched.shared_functions import kernel_key
from aotc.target import get_target
from aotc.tools.engine_times import picture

TARGET = get_target("dsa:stcp920")
MACHINE = TARGET.machine


def rows(count=64):
    """Two products of rows, the tensor between them is h."""
    return two_products(count, 32, 48, 20)


def in_turns(program, tile=1):
    """Rows of both kernels cut alike, h with the cores, weights brought by the clusters, two turns
    of each kernel where cores have two work items."""
    s = decide(program, TARGET, how="register")
    axis = [next(a for a in (*g.parallel, *g.tile, "m") if a in ("m", "i")) for g in s.groups]
    groups = tuple(replace(g, tile={a: tile}, parallel=(a,), run={}, pipeline=0, copies={},
                           clusters=0) for g, a in zip(s.groups, axis))
    s = aotc.sched.complete(program, replace(s, groups=groups, buffers={}), TARGET)
    items = 64 // tile
    first, second = (g.name for g in s.groups)
    own = items // MACHINE.clusters
    order = [(g, n, n + MACHINE.cores) for n in range(0, own, MACHINE.cores)
             for g in (first, second)] if own > MACHINE.cores else []
    return replace(s, order=tuple(order), buffers={
        "h": Slot(1, 40 << 10, memory="LB", parts=items, each=MACHINE.workers),
        "w": Slot(0, 0, memory="GB", each=MACHINE.clusters),
        "v": Slot(0, 8 << 10, memory="GB", each=MACHINE.clusters, since=first)})


@pytest.fixture(scope="module", params=[
    pytest.param(1, id="two turns"), pytest.param(2, id="one turn", marks=pytest.mark.product)])
def planned(request):
    """(Schedule, Plan, feeds, expected outputs)."""
    program = rows()
    s = in_turns(program, request.param)
    feeds = random_feeds(program, np.random.default_rng(), {})
    return s, lower(program, s, TARGET), feeds, evaluate(program, feeds, {})


def built(plan, s, folder):
    write_bundle(render_bundle(plan, s, INFO), folder)
    return aotc.load(folder)


def test_what_stays_is_not_copied(planned):
    s, plan, _, _ = planned
    assert not check_schedule(rows(), s, TARGET) and not plan_faults(plan)
    assert Schedule.from_json(s.to_json()) == s
    assert Schedule.from_json(s.to_json()).order == s.order
    moved = {b.buffer for k in plan.kernels for c in k.body if isinstance(c, Copy)
             for b in (c.to, c.source)}
    assert "h" not in moved and {"w", "w_kept", "v_kept"} <= moved
    engines = {c.engine for k in plan.kernels for c in k.body if isinstance(c, Copy)}
    assert engines == {"load", "store", "bring", "fetch"}


def test_kernels_whose_tensors_stay_elsewhere_share_no_function(planned):
    plan = planned[1]
    moved = replace(plan, places=tuple(
        replace(p, offset=p.offset + 64) if p.name == "h" else p for p in plan.places))
    keys = [{kernel_key(p, k) for k in p.kernels if "h" in k.reads + k.writes}
            for p in (plan, moved)]
    assert len(keys[0]) == len(keys[1]) == 2 and keys[0].isdisjoint(keys[1])


def test_interpreters_run_them(planned):
    s, plan, feeds, want = planned
    assert not differences(run_plan(plan, feeds), want, 2e-5)
    assert not differences(interpret(rows(), s, feeds), want, 2e-5)


def test_the_simulator_runs_them_and_traces_the_same_events(planned, tmp_path, monkeypatch):
    s, plan, feeds, want = planned
    monkeypatch.setenv("CFLAGS", os.environ.get("CFLAGS", "") + " -Wall -Wextra -Werror")
    bundle = built(plan, s, tmp_path / "b")
    monkeypatch.setenv("AOTC_DSA_TRACE", os.fspath(tmp_path / "trace"))
    assert not differences(bundle.run(feeds), want, 2e-5)
    found = read_trace(tmp_path / "trace")
    assert found == expected_trace(plan, TARGET)
    assert {x[3] for x in found} >= {"bring", "arrive", "fetch"}
    times = timeline(plan, MACHINE, {})
    assert len(times.ends) == len(plan.turns or plan.kernels)
    assert times.moved("bring") == MACHINE.clusters * (32 * 48 + 48 * 20) * 4
    assert times.moved("load") == 64 * 32 * 4
    # what stays while kernels run: h on the cores, v in GB from the start, w until h is there
    assert set(times.kept["LB"]) <= {0, 48 * 4 * (64 // MACHINE.workers if not s.order else 1)}
    assert max(times.kept["GB"]) == (32 * 48 + 48 * 20) * 4
    assert picture(times, MACHINE, "rows").count(">GB<") == 1


def mutants(plan):
    """(what is wrong, Plan) for every copy and wait, the turns and the places that stay."""
    for n, k in enumerate(plan.kernels):
        def changed(body, n=n, k=k):
            kernels = list(plan.kernels)
            kernels[n] = replace(k, body=body)
            return replace(plan, kernels=tuple(kernels))
        for i, c in enumerate(k.body):
            if isinstance(c, (Copy, Wait)):
                yield f"no {c.lines()[0]}", changed(k.body[:i] + k.body[i + 1:])
            if isinstance(c, Copy):
                short = replace(c, extents=(*c.extents[:-1], c.extents[-1] - 1))
                yield f"short {c.lines()[0]}", changed((*k.body[:i], short, *k.body[i + 1:]))
        if "_before" not in k.name:
            kernels = list(plan.kernels)
            kernels[n] = dealt_otherwise(k, 2)
            yield f"binding of {k.name}", replace(plan, kernels=tuple(kernels))
    for n in range(len(plan.turns)):
        yield f"no turn {n}", replace(plan, turns=plan.turns[:n] + plan.turns[n + 1:])
    if plan.turns:
        last = plan.turns[-1]
        yield "late turn", replace(plan, turns=(last, *plan.turns[:-1]))
        yield "turns one kernel after the other", replace(plan, turns=tuple(
            sorted(plan.turns, key=lambda t: t[0])))
    h = plan.place("h")
    for what, new in (("place of h", replace(h, offset=0)), ("far h", replace(h, offset=65536))):
        yield what, replace(plan, places=tuple(new if p is h else p for p in plan.places),
                            slots=tuple(n + (4 << 20) for n in plan.slots))


def test_planted_faults_are_told_by_the_interpreter(planned):
    _, plan, feeds, want = planned
    found = {what: told(lambda p=p: run_plan(p, feeds), want) for what, p in mutants(plan)}
    assert len(found) > 14
    quiet = {what for what, text in found.items() if text == "other numbers"}
    assert "" not in found.values() and all("y_near" in w or "no turn" in w for w in quiet), quiet
    every = "\n".join(found.values())
    assert "reads v_kept[0] before the wait for its copy" in every and "which worker" in every
    assert "of LB, which has 65536" in every
    if plan.turns:
        assert "of h is by now" in found["turns one kernel after the other"]


@pytest.mark.product
def test_planted_faults_are_refused_by_the_simulator(planned, tmp_path):
    s, plan, feeds, want = planned
    chosen = {}
    for what, p in mutants(plan):
        name = what.split()[0] if what.startswith(("binding", "no turn")) else what
        if "by load" not in what and "by store" not in what and what != "no wait for token 1":
            chosen.setdefault(name, (what, p))
    texts = {what: told(lambda p=p, i=i: built(p, s, tmp_path / str(i)).run(feeds), want)
             for i, (what, p) in enumerate(chosen.values())}
    assert not [w for w, text in texts.items() if "illegal access" not in text], texts
    every = "\n".join(texts.values())
    assert "v_kept, before the wait for its DMA" in every
    assert "of h, which was never written" in every


@pytest.mark.parametrize("change, fault", [
    ({"parts": 32}, "has 64 work items on 32 workers, h is in LB in 32 parts on 32"),
    ({"each": 12}, "choose a multiple of 8 up to 32"),
    ({"offset": 64 << 10}, "of LB, which has 65536"),
    ({"offset": 0}, "goes over h, which stays there")])
def test_places_with_workers_that_cannot_be(change, fault):
    program = rows()
    s = in_turns(program)
    buffers = s.buffers | {"h": replace(s.buffers["h"], **change)}
    with pytest.raises(ScheduleError, match=fault):
        lower(program, replace(s, buffers=buffers), TARGET)


@pytest.mark.parametrize("change, fault", [
    ({"each": 2}, "of which 2 have v"), ({"each": 0}, "choose from 1..4 clusters"),
    ({"memory": ""}, "tensors can be stored in GB"), ({"since": "g9"}, "since g9; choose from"),
    ({"offset": 0}, "w and v are live together")])
def test_places_of_constants_that_cannot_be(change, fault):
    program = rows()
    s = in_turns(program, 2)
    buffers = s.buffers | {"v": replace(s.buffers["v"], **change)}
    assert any(fault in f for f in check_schedule(program, replace(s, buffers=buffers), TARGET))


def test_orders_that_cannot_be():
    program = rows()
    s = in_turns(program)
    a, b = (g.name for g in s.groups)
    for order, fault in (
            (((a, 0, 8), (b, 0, 16), (a, 8, 16)), "reads h before"),
            (((a, 0, 8), (b, 0, 8), (a, 8, 16)), f"{b} has work items left"),
            (((a, 0, 8), (a, 0, 8)), "its work items from 8 to 16 are left"),
            (((a, 0, 8), (a, 0, 0)), "has had a turn"), ((("g9", 0, 0),), "choose from")):
        faults = check_schedule(program, replace(s, order=order), TARGET)
        assert any(fault in f for f in faults), (order, faults)


def test_temps_in_the_arena_live_from_turn_to_turn():
    """Two tensors that kernels one after the other could have in one place."""
    program = rows()
    s = in_turns(program)
    s = replace(s, buffers={})
    s = replace(s, buffers=allocate(program, s))
    assert not check_schedule(program, s, TARGET)
    feeds = random_feeds(program, np.random.default_rng(), {})
    assert not differences(run_plan(lower(program, s, TARGET), feeds),
                           evaluate(program, feeds, {}), 2e-5)


def test_rows_that_one_kernel_makes_and_one_reads_stay_with_cores():
    """A product and the largest of each of its rows, cut alike by the model of time."""
    rng = np.random.default_rng(5)
    m = Maker("largest")
    m.input("x", 512, 24)
    m.const("w", rng.standard_normal((24, 100)).astype(np.float32) / 5)
    matmul(m, "p", "x", "w")
    i, r = ax("i", 512), ax("r", 100)
    m.step("y", [i], m.ref("p", i, r), (r,), "max")
    program = m.done("y")
    s = decide(program, TARGET, how="register")
    assert s.buffers["p"].memory == "LB" and s.buffers["p"].parts == MACHINE.workers
    apart = decide(program, TARGET, how="register", inner=True)
    plan = lower(program, s, TARGET)
    assert timeline(plan, MACHINE, {}).seconds < timeline(
        lower(program, apart, TARGET), MACHINE, {}).seconds
    feeds = random_feeds(program, np.random.default_rng(), {})
    assert not differences(run_plan(plan, feeds), evaluate(program, feeds, {}), 2e-5)


def test_constants_are_brought_while_kernels_before_compute():
    program = rows(256)
    s = decide(program, TARGET, how="register")
    assert {b for b, x in s.buffers.items() if x.memory == "GB"} >= {"w", "v"}
    assert s.buffers["v"].since == s.groups[0].name
    assert gap([Taken(0, 1, 0, 64), Taken(1, 2, 128, 192)], 2, 3, 64, 256) == 192
    assert gap([Taken(0, 1, 0, 64), Taken(1, 2, 128, 192)], 1, 1, 64, 256) == 64
    assert gap([Taken(0, 1, 0, 64)], 1, 1, 256, 256) is None


def test_instances_run_in_their_order():
    """One image of each cluster's at a time goes through all kernels of a sub-graph."""
    rng = np.random.default_rng(3)
    m = Maker("images")
    m.input("x", 8, 6, 9, 9)
    for n, x in enumerate(("x", "c0", "c1")):
        w = rng.standard_normal((6, 6, 3, 3)).astype(np.float32) / 7
        conv2d(m, f"c{n}", x, m.const(f"w{n}", w), 1, 1)
    program = m.done("c2")
    s = decide(program, TARGET, how="register")
    groups = tuple(replace(g, tile={"n": 1, "oh": 1}, parallel=("n", "oh"), run={}, pipeline=0,
                           copies={}, clusters=0) for g in s.groups)
    s = aotc.sched.complete(program, replace(s, groups=groups, buffers={}), TARGET)
    names = tuple(g.name for g in s.groups)
    s = choose_stores(program, replace(s, buffers={}), TARGET, always=True)
    s = choose_order(program, s, TARGET, [(names, 2)] * 2)
    s = replace(s, buffers=allocate(program, s))
    assert s.order == tuple((n, k * 9, k * 9 + 9) for k in (0, 1) for n in names)
    assert not check_schedule(program, s, TARGET)
    feeds = random_feeds(program, np.random.default_rng(), {})
    assert not differences(run_plan(lower(program, s, TARGET), feeds),
                           evaluate(program, feeds, {}), 2e-5)
    rows_of = tuple(replace(g, tile={"oh": 1}, parallel=("oh",)) for g in s.groups[:2])
    s = replace(s, groups=(*rows_of, s.groups[2]), order=())
    pulled = choose_order(program, s, TARGET, [(names, 1)])
    assert pulled.order == ()  # one piece of each: every kernel with all of its work items


def test_clusters_bring_what_they_have():
    """A constant of one cluster, whose kernel runs there alone, beside one that all have."""
    program = rows()
    s = in_turns(program)
    first, second = s.groups
    s = replace(s, groups=(first, replace(second, clusters=1)), order=(), buffers={
        "w": s.buffers["w"], "v": replace(s.buffers["v"], each=1), "h": Slot(1)})
    plan = lower(program, s, TARGET)
    brought = [k.clusters for k in plan.kernels if k.name.endswith("_before")]
    assert brought == [1, MACHINE.clusters, 1]
    feeds = random_feeds(program, np.random.default_rng(), {})
    assert not differences(run_plan(plan, feeds), evaluate(program, feeds, {}), 2e-5)


def test_sums_in_slices_are_not_copied_ahead():
    program = rows()
    g = in_turns(program).groups[0]
    sliced = with_tables(g, split={"p": {"k": 16}}, run={g.parallel[0]: 4}, pipeline=2)
    assert any("come in slices, choose pipeline 0" in f
               for f in copy_faults(program, MACHINE, sliced))
