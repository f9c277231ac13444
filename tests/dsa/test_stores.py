"""Tensors in the memory of a cluster: who decides it, what runs there, and faults that are told."""

import os
from dataclasses import replace

import numpy as np
import pytest
from changed_kernels import dealt_otherwise
from core_traces import expected_trace, read_trace, told
from harness import INFO, differences
from te_programs import Maker, ax, conv2d, matmul, random_feeds, relu

import aotc
from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.write import write_bundle
from aotc.errors import ScheduleError
from aotc.ir.schedule import Schedule
from aotc.ir.statements import Copy, Wait
from aotc.oracle.evaluate import evaluate
from aotc.oracle.run_plan import run_plan
from aotc.sched import check_schedule, decide, lower
from aotc.sched.accelerator.clock.cycles import timeline
from aotc.sched.accelerator.clock.item_events import plan_events
from aotc.sched.accelerator.places.choose_stores import choose_stores
from aotc.sched.memory.allocate import allocate
from aotc.target import get_target

TARGET = get_target("dsa:stcp920")


def images(batch=1, size=14):
    """Three convolutions, the first of which the last one reads again."""
    rng = np.random.default_rng(3)
    m = Maker("images")
    m.input("x", batch, 3, size, size)
    for n, (x, given, made) in enumerate((("x", 3, 8), ("r0", 8, 8), ("r1", 8, 8))):
        w = m.const(f"w{n}", (rng.standard_normal((made, given, 3, 3)) / 9).astype(np.float32))
        conv2d(m, f"c{n}", x, w, 1, 1)
        m.pointwise(f"r{n}", f"c{n}", lambda e, _: relu(e))
    m.pointwise("y", "r2", lambda e, i: e + m.ref("r0", *i))
    return m.done("y")


def by_images(program, parts):
    """The Schedule whose kernels are the layers and whose items are images; decided but for that,
    with temps on one cluster or in parts of the images."""
    s = decide(program, TARGET, how="register")
    groups = tuple(replace(g, tile={"n": 1}, parallel=("n",), copies={}, clusters=0)
                   if parts > 1 else replace(g, clusters=0) for g in s.groups)
    groups = aotc.sched.complete(program, replace(s, groups=groups, buffers={}), TARGET).groups
    s = choose_stores(program, replace(s, groups=groups, buffers={}), TARGET, always=True)
    return replace(s, buffers=allocate(program, s))


@pytest.fixture(scope="module", params=[
    pytest.param(1, id="one cluster"),
    pytest.param(4, id="images on clusters", marks=pytest.mark.product)])
def planned(request):
    """(parts, Schedule, Plan, feeds, expected outputs)."""
    program = images(request.param, 5)
    s = by_images(program, request.param)
    feeds = random_feeds(program, np.random.default_rng(), {})
    return request.param, s, lower(program, s, TARGET), feeds, evaluate(program, feeds, {})


def built(plan, s, folder):
    write_bundle(render_bundle(plan, s, INFO), folder)
    return aotc.load(folder)


def test_temps_stay_on_their_cluster(planned):
    parts, s, plan, _, _ = planned
    assert {x.memory for x in s.buffers.values()} == {"GB"}
    assert {x.parts for x in s.buffers.values()} == {parts}
    assert all(g.clusters == (parts == 1) for g in s.groups)
    assert Schedule.from_json(s.to_json()).buffers == s.buffers
    engines = {c.engine for k in plan.kernels for c in k.body if isinstance(c, Copy)}
    assert engines == {"load", "store", "fetch", "keep"}
    for k in plan.kernels:  # nothing of the temps crosses the border to DDR
        assert not {b.buffer for c in k.body if isinstance(c, Copy) and c.engine in (
            "load", "store") for b in (c.to, c.source)} & set(s.buffers)


def test_the_interpreter_runs_them(planned):
    _, _, plan, feeds, want = planned
    assert not differences(run_plan(plan, feeds), want, 2e-5)


def test_the_simulator_runs_them_and_traces_the_same_events(planned, tmp_path, monkeypatch):
    _, s, plan, feeds, want = planned
    bundle = built(plan, s, tmp_path / "b")
    monkeypatch.setenv("AOTC_DSA_TRACE", os.fspath(tmp_path / "trace"))
    assert not differences(bundle.run(feeds), want, 2e-5)
    assert read_trace(tmp_path / "trace") == expected_trace(plan, TARGET)
    assert not differences(bundle.run(feeds), want, 2e-5)  # nothing is left of the call before
    times = timeline(plan, TARGET.machine, {})
    assert times.moved("fetch") > 0 and times.moved("keep") > 0


def test_every_cluster_works_on_its_part(planned):
    parts, _, plan, _, _ = planned
    for _, items in plan_events(plan, {}, TARGET.machine):
        used = {i.worker // TARGET.machine.cores for i in items}
        assert used == set(range(parts))


def with_kernel(plan, number, kernel):
    kernels = list(plan.kernels)
    kernels[number] = kernel
    return replace(plan, kernels=tuple(kernels))


def mutants(plan):
    """(what is wrong, Plan) for every statement that moves data, every place and binding."""
    swap = {"load": "fetch", "fetch": "load", "store": "keep", "keep": "store"}
    for n, k in enumerate(plan.kernels):
        yield f"binding of {k.name}", with_kernel(
            plan, n, dealt_otherwise(k, 5 - k.clusters))
        for i, c in enumerate(k.body):
            without = k.body[:i] + k.body[i + 1:]
            if isinstance(c, Wait):
                yield f"no {c.lines()[0]}", with_kernel(plan, n, replace(k, body=without))
            elif isinstance(c, Copy):
                yield f"no {c.lines()[0]}", with_kernel(plan, n, replace(k, body=without))
                for what, new in (("engine", replace(c, engine=swap[c.engine])),
                                  ("short", replace(c, extents=(
                                      *c.extents[:-1], c.extents[-1] - 1)))):
                    yield f"{what} of {c.lines()[0]}", with_kernel(
                        plan, n, replace(k, body=(*without[:i], new, *without[i:])))
    for i, p in enumerate(plan.places):
        if p.memory:
            new = replace(p, offset=8 << 20)
            yield f"far {p.name}", replace(plan, places=(
                *plan.places[:i], new, *plan.places[i + 1:]), slots=tuple(
                    n + (64 << 20) for n in plan.slots))


def test_planted_faults_are_told_by_the_interpreter(planned):
    parts, _, plan, feeds, want = planned
    found = {what: told(lambda p=p: run_plan(p, feeds), want) for what, p in mutants(plan)}
    assert len(found) > 30
    missed = [what for what, text in found.items() if not text]
    # what touches no temp may run anywhere
    assert not [m for m in missed if not m.startswith("binding")]
    bindings = [text for what, text in found.items() if what.startswith("binding") and text]
    assert bindings and all("which cluster" in t for t in bindings)
    assert any("does not copy from" in t for t in found.values())
    assert any("ends at byte" in t and "of GB, which has 8388608" in t for t in found.values())


@pytest.mark.product
def test_planted_faults_are_refused_by_the_simulator(planned, tmp_path):
    parts, s, plan, feeds, want = planned
    last = plan.kernels[-1].name
    chosen = {}
    for what, p in mutants(plan):
        kind = what.split()[0]
        if kind in ("binding", "engine") and (last in what or kind == "engine"):
            chosen.setdefault((kind, "fetch" in what, "keep" in what), (what, p))
        elif kind == "no" and "by keep" in what:
            chosen.setdefault(kind, (what, p))
    texts = {what: told(lambda p=p, i=i: built(p, s, tmp_path / str(i)).run(feeds), want)
             for i, (what, p) in enumerate(chosen.values())}
    assert len(texts) >= 4 and all("illegal access" in t for t in texts.values()), texts
    every = "\n".join(texts.values())
    assert "which was never written" in every and "at a place that is in GB" in every
    assert "in no buffer in GB of its cluster" in every
    assert "has no part in GB of cluster" in every if parts == 1 else "of cluster" in every


def test_cost_decides_whether_one_cluster_is_enough():
    """Images keep all workers busy; short rows have one work item."""
    large = decide(images(1, 31), TARGET, how="register")
    assert large.buffers["r0"].memory == "" and not any(g.clusters for g in large.groups)
    m = Maker()
    m.input("x", 2, 8)
    m.const("w", np.ones((8, 8), np.float32))
    matmul(m, "h", "x", "w")
    matmul(m, "y", "h", "w")
    small = decide(m.done("y"), TARGET, how="register")
    assert small.buffers["h"].memory == "GB" and all(g.clusters == 1 for g in small.groups)


def test_rows_of_products_are_parts_of_clusters():
    m = Maker()
    m.input("x", 64, 32)
    m.const("w", np.ones((32, 48), np.float32))
    m.const("v", np.ones((48, 20), np.float32))
    matmul(m, "h", "x", "w")
    matmul(m, "y", "h", "v")
    program = m.done("y")
    s = decide(program, TARGET, how="register")
    rows = tuple(replace(g, tile={g_axis(g): 2}, parallel=(g_axis(g),), copies={}, clusters=0)
                 for g in s.groups)
    s = aotc.sched.complete(program, replace(s, groups=rows, buffers={}), TARGET)
    assert (s.buffers["h"].memory, s.buffers["h"].parts) == ("GB", 4)
    feeds = random_feeds(program, np.random.default_rng(), {})
    assert not differences(run_plan(lower(program, s, TARGET), feeds),
                           evaluate(program, feeds, {}), 2e-5)


def g_axis(group):
    """The first axis of a group that is cut."""
    return group.parallel[0] if group.parallel else "i"


def test_what_does_not_fit_is_stored_further_out():
    program = images()
    s = by_images(program, 1)
    store, = TARGET.machine.stores
    small = replace(TARGET, machine=replace(TARGET.machine, stores=(
        replace(store, capacity=10 << 10),)))
    s = choose_stores(program, replace(s, buffers={}), small, always=True)
    s = replace(s, buffers=allocate(program, s))
    homes = {b: x.memory for b, x in s.buffers.items()}
    assert homes["r0"] == "" and "GB" in homes.values()  # it is live longest
    assert not check_schedule(program, s, small)
    feeds = random_feeds(program, np.random.default_rng(), {})
    assert not differences(run_plan(lower(program, s, small), feeds),
                           evaluate(program, feeds, {}), 2e-5)


def test_what_free_pieces_cannot_hold_is_stored_further_out():
    """Bytes would do: two tensors of a line are free, beside each other they are not."""
    m = Maker("pieces")
    m.input("x", 15)
    for n, name in enumerate("abc"):
        m.pointwise(name, "x", lambda e, _, n=n: e * (n + 2.0))
    m.pointwise("y", "a", lambda e, i: e + m.ref("c", *i))
    m.step("d", (ax("j", 2), ax("i", 15)), m.ref("x", ax("i", 15)) - 1.0)
    m.pointwise("z", "d", lambda e, i: e * m.ref("b", i[1]))
    program = m.done("y", "z")
    store, = TARGET.machine.stores
    small = replace(TARGET, machine=replace(TARGET.machine, stores=(replace(
        store, capacity=192),)))
    s = decide(program, TARGET, how="none")
    s = replace(s, groups=tuple(replace(g, clusters=0) for g in s.groups), buffers={})
    s = choose_stores(program, s, small, always=True)
    assert {b: x.parts for b, x in s.buffers.items()} == dict.fromkeys("abc", 1)
    s = replace(s, buffers=allocate(program, s))
    assert not check_schedule(program, s, small)


@pytest.mark.parametrize("change, fault", [
    (lambda s: {"memory": "L9"}, "memory 'L9'; tensors can be stored in"),
    (lambda s: {"parts": 7}, "7 parts; choose from 1..4"),
    (lambda s: {"offset": 8 << 20}, "of GB, which has 8388608"),
    (lambda s: {"parts": 4}, "dealt to 1 clusters, r0 is in GB in 4 parts"),
    (lambda s: {"memory": ""}, "slot 0 stands for GB")])
def test_places_that_cannot_be_are_faults(change, fault):
    program = images()
    s = by_images(program, 1)
    place = replace(s.buffers["r0"], **change(s))
    with pytest.raises(ScheduleError, match=fault):
        lower(program, replace(s, buffers=s.buffers | {"r0": place}), TARGET)


def test_groups_that_cannot_run_there_are_faults():
    program = images()
    s = by_images(program, 1)
    for change, fault in (({"clusters": 9}, "clusters 9; choose from 0..4"),
                          ({"clusters": 2}, "choose the same number"),
                          ({"copies": s.groups[1].copies | {"r0": "DDR"}}, "without copying it")):
        groups = (s.groups[0], replace(s.groups[1], **change), *s.groups[2:])
        assert any(fault in f for f in check_schedule(program, replace(s, groups=groups), TARGET))


def test_other_machines_have_no_clusters():
    program, target = images(), get_target("c")
    s = decide(program, target, how="register")
    assert not any(x.memory for x in s.buffers.values())
    groups = (replace(s.groups[0], clusters=1), *s.groups[1:])
    assert any("choose from 0..0" in f for f in check_schedule(program, replace(
        s, groups=groups), target))


def test_a_batch_that_does_not_divide_stays_on_one_cluster():
    program = images(3, 6)
    s = by_images(program, 1)
    assert {x.parts for x in s.buffers.values() if x.memory} <= {1}
    assert ax("n", 3).extent.value % 4
