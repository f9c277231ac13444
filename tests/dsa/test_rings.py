"""Rings: temps of which a cluster's memory holds what turns leave of them."""

import os
from dataclasses import replace

import numpy as np
import pytest
from core_traces import expected_trace, read_trace
from harness import INFO, differences
from te_programs import Maker, conv2d, random_feeds, relu, two_products

import aotc
from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.write import write_bundle
from aotc.errors import InterpreterError
from aotc.ir.schedule import Schedule, Slot
from aotc.oracle.check_plan import plan_faults
from aotc.oracle.evaluate import evaluate
from aotc.oracle.run_plan import run_plan
from aotc.runtime.status import RunError
from aotc.sched import check_schedule, decide, lower
from aotc.sched.accelerator.items.rings import with_rings
from aotc.sched.model.stored_sizes import part_bytes
from aotc.target import get_target

TARGET = get_target("dsa:stcp920")
MACHINE = TARGET.machine
STORE, = MACHINE.stores


def rows():
    """Two products of 64 rows, the tensor between them is h."""
    return two_products(64, 8, 16, 5)


@pytest.fixture(scope="module")
def turned():
    """The Schedule of ``rows`` row by row, h in GB, in two turns of each kernel."""
    program = rows()
    s = decide(program, TARGET, how="register")
    axis = [next(a for a in (*g.parallel, *g.tile, "m") if a in ("m", "i")) for g in s.groups]
    groups = tuple(replace(g, tile={a: 1}, parallel=(a,), run={}, pipeline=0, copies={},
                           clusters=0) for g, a in zip(s.groups, axis))
    s = aotc.sched.complete(program, replace(s, groups=groups, buffers={}), TARGET)
    first, second = (g.name for g in s.groups)
    order = ((first, 0, 8), (second, 0, 8), (first, 8, 16), (second, 8, 16))
    return replace(s, order=order, buffers={"h": Slot(0, 0, memory="GB", parts=4)})


def test_a_ring_holds_what_turns_leave(turned):
    program, s = rows(), with_rings(rows(), turned, TARGET)
    assert s.buffers["h"].ring == 8 and not check_schedule(program, s, TARGET)
    assert Schedule.from_json(s.to_json()) == s
    plan = lower(program, s, TARGET)
    assert not plan_faults(plan)
    assert plan.slots[0].value == 4 * 8 * 16 * 4  # half of what h has
    feeds = random_feeds(program, np.random.default_rng(), {})
    assert not differences(run_plan(plan, feeds), evaluate(program, feeds, {}), 2e-5)


def late(plan):
    """The Plan with all turns of the first kernel before those of the second."""
    return replace(plan, turns=tuple(sorted(plan.turns, key=lambda t: t[0])))


def test_wrong_rings_are_named(turned):
    program, s = rows(), with_rings(rows(), turned, TARGET)
    for ring, word in ((4, "is not in its ring"), (5, "choose from"), (32, "choose from")):
        wrong = replace(s, buffers={"h": replace(s.buffers["h"], ring=ring)})
        assert any(word in f for f in check_schedule(program, wrong, TARGET)), ring
    whole = replace(s, order=())
    assert any("is not in its ring" in f for f in check_schedule(program, whole, TARGET))
    plan = lower(program, s, TARGET)
    feeds = random_feeds(program, np.random.default_rng(), {})
    with pytest.raises(InterpreterError, match=r"reads h\[0\] where part 1 of h is"):
        run_plan(late(plan), feeds)
    short = replace(plan, places=tuple(replace(p, ring=p.ring // 2) if p.name == "h" else p
                                       for p in plan.places))
    with pytest.raises(InterpreterError, match="of h is by now"):
        run_plan(short, feeds)


@pytest.mark.product
def test_rings_on_the_simulator(turned, tmp_path, monkeypatch):
    """Right, with the trace that the model says; a wrong order is refused."""
    program, s = rows(), with_rings(rows(), turned, TARGET)
    plan, feeds = lower(program, s, TARGET), random_feeds(program, np.random.default_rng(), {})
    monkeypatch.setenv("CFLAGS", os.environ.get("CFLAGS", "") + " -Wall -Wextra -Werror")
    write_bundle(render_bundle(plan, s, INFO), tmp_path / "b")
    write_bundle(render_bundle(late(plan), s, INFO), tmp_path / "late")
    with pytest.raises(RunError, match="of h, where another part of it, or another buffer, is"):
        aotc.load(tmp_path / "late").run(feeds)
    monkeypatch.setenv("AOTC_DSA_TRACE", os.fspath(tmp_path / "trace"))
    got = aotc.load(tmp_path / "b").run(feeds)
    assert not differences(got, evaluate(program, feeds, {}), 2e-5)
    assert read_trace(tmp_path / "trace") == expected_trace(plan, TARGET)


def stages(batch=64, channels=16, size=16):
    """The paper's stages: each halves the images and has twice the channels."""
    rng = np.random.default_rng(3)
    m = Maker("stages")
    m.input("x", batch, channels, size, size)
    last = "x"
    for n in range(4):
        more = channels * 2 ** n
        w = rng.standard_normal((more, more // 2 if n else more, 3, 3)) / 16
        conv2d(m, f"c{n}", last, m.const(f"w{n}", w.astype(np.float32)), 2 if n else 1, 1)
        last = m.pointwise(f"r{n}", f"c{n}", lambda e, _: relu(e))
    return m.done(last)


def test_instances_in_order_need_less_of_the_clusters_memory():
    """The paper's example: two instances of the first stage, one of the second, ..., in memories
    that whole tensors do not fit into."""
    program = stages()
    small = replace(TARGET, name="dsa:small", machine=replace(
        MACHINE, stores=(replace(STORE, capacity=256 << 10),), memories=(
            MACHINE.memory, replace(MACHINE.near, capacity=16 << 10), *MACHINE.memories[2:])))
    s = decide(program, small, how="graphturbo")
    assert not check_schedule(program, s, small)
    names = [g.name for g in s.groups]
    ran = [names.index(n) for n, _, _ in s.order]
    assert ran == [0, 1, 0, 1, 2, 0, 1, 0, 1, 2, 3]
    temps = [s.buffers[f"r{n}"] for n in range(3)]
    assert all(t.memory == "GB" for t in temps) and temps[0].ring == 4 and temps[1].ring == 8
    whole = replace(s, buffers={b: replace(x, ring=0) for b, x in s.buffers.items()})
    assert sum(part_bytes(program, whole, f"r{n}").value for n in (0, 1)) > 256 << 10
    assert not plan_faults(lower(program, s, small))
