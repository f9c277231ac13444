"""The next step's boxes on their way while one is computed: who decides it, what a Plan says, and
faults that are told."""

import os
from dataclasses import replace

import numpy as np
import pytest
from changed_kernels import relowered
from core_traces import expected_trace, read_trace, told
from edits import with_tables
from group_cases import two_convolutions
from harness import INFO, differences
from te_programs import Maker, conv2d, matmul, random_feeds

import aotc
from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.write import write_bundle
from aotc.errors import ScheduleError
from aotc.ir.schedule import Group, Schedule
from aotc.ir.statements import Copy, For, If, Scope, Wait, bodies, walk_body, with_bodies
from aotc.oracle.check_plan import plan_faults
from aotc.oracle.evaluate import evaluate
from aotc.oracle.run_plan import run_plan
from aotc.sched import complete, decide, lower
from aotc.sched.accelerator.clock.cycles import timeline
from aotc.sched.accelerator.clock.item_events import COMPUTE, plan_events
from aotc.target import get_target

TARGET = get_target("dsa:stcp920")


def product(rows=34, terms=9, columns=12):
    m = Maker("product")
    m.input("x", rows, terms)
    m.const("w", np.random.default_rng(1).random((terms, columns), np.float32))
    matmul(m, "y", "x", "w")
    return m.done("y"), {}, "y"


def scheduled(parts, tile, run, pipeline=2):
    program, connect, anchor = parts
    level = {b: TARGET.machine.scratch if lv != "register" else lv for b, lv in connect.items()}
    g = Group("g", tuple(s.outs[0] for s in program.steps), program.outputs, anchor, level, tile,
              parallel=tuple(tile), run=run, pipeline=pipeline)
    return complete(program, Schedule(TARGET.name, (g,)), TARGET)


def row(parts):
    """The name of the anchor's first axis that is longer than 1."""
    program, _, anchor = parts
    return next(a.name for a in program.producer[anchor].axes if a.extent.value > 1)


CASES = {"rows": (product(), None, 3, 12), "ragged": (product(), None, 5, 20),
         "one step": (product(), None, 40, 40), "windows": (two_convolutions(), "oh", 3, 9),
         "strided": (two_convolutions(stride=2), "oh", 2, 6)}


def planned(name, pipeline=2):
    """(program, Schedule, Plan, feeds, expected outputs)."""
    parts, axis, tile, run = CASES[name]
    axis = axis or row(parts)
    s = scheduled(parts, {axis: tile}, {axis: run}, pipeline)
    feeds = random_feeds(parts[0], np.random.default_rng(), {})
    return parts[0], s, lower(parts[0], s, TARGET), feeds, evaluate(parts[0], feeds, {})


def built(plan, s, folder):
    write_bundle(render_bundle(plan, s, INFO), folder)
    return aotc.load(folder)


@pytest.mark.parametrize("name", CASES)
def test_the_interpreter_runs_it_and_nothing_leaves_its_buffer(name):
    _, _, plan, feeds, want = planned(name)
    assert not plan_faults(plan)
    assert not differences(run_plan(plan, feeds), want, 2e-5)


@pytest.mark.parametrize("name", ["ragged", "windows"])
def test_the_simulator_runs_it_and_traces_the_same_events(name, tmp_path, monkeypatch):
    _, s, plan, feeds, want = planned(name)
    bundle = built(plan, s, tmp_path / "b")
    monkeypatch.setenv("AOTC_DSA_TRACE", os.fspath(tmp_path / "trace"))
    assert not differences(bundle.run(feeds), want, 2e-5)
    found = read_trace(tmp_path / "trace")
    assert found == expected_trace(plan, TARGET) and len(found) > 10


def test_weights_are_copied_once_and_boxes_while_a_step_is_computed():
    program, _, plan, _, _ = planned("rows")
    (_, items), = plan_events(plan, {}, TARGET.machine)
    _, _, plain, _, _ = planned("rows", pipeline=0)
    weights = 9 * 12 * 4
    loads = [e.bytes for e in items[0].events if e.what == "load"]
    assert loads.count(weights) == 1 and len(loads) == 1 + 4
    (_, before), = plan_events(plain, {}, TARGET.machine)
    assert [e.bytes for e in before[0].events if e.what == "load"].count(weights) == 4
    order = [e.what for e in items[0].events]
    second = [i for i, w in enumerate(order) if w == "load"][2]
    assert second < order.index(COMPUTE)  # the second step's rows before the first one's work
    assert timeline(plan, TARGET.machine, {}).seconds < timeline(
        plain, TARGET.machine, {}).seconds


def changed(body, at, new):
    """A body with the ``at``-th of its engines' statements, inner ones too, replaced."""
    out, count = [], 0

    def visit(stmts):
        nonlocal count
        done = []
        for s in stmts:
            if isinstance(s, (Copy, Wait)):
                done += new(s) if count == at else (s,)
                count += 1
            elif isinstance(s, (If, For, Scope)):
                done.append(with_bodies(s, {n: visit(b) for n, b in bodies(s)}))
            else:
                done.append(s)
        return tuple(done)

    out = visit(body)
    return out, count


def mutants(plan):
    """(what is wrong, Plan) for every statement that moves data."""
    kernel, = plan.kernels
    moving = [s for s in walk_body(kernel.body) if isinstance(s, (Copy, Wait))]
    for i, s in enumerate(moving):
        wrong = {"no": lambda s: ()}
        if isinstance(s, Copy):
            wrong["late"] = lambda s: (replace(s, token=s.token + 50),)
            wrong["moved"] = lambda s: (replace(s, to=replace(s.to, offset=s.to.offset + 1)),)
        for what, new in wrong.items():
            body, count = changed(kernel.body, i, new)
            assert count >= len(moving)
            yield f"{what} {s.lines()[0]}", replace(plan, kernels=(replace(kernel, body=body),))
    for n, s in enumerate(kernel.scratch):
        less = replace(s, elements=s.elements // 2)
        small = kernel.scratch[:n] + (less,) + kernel.scratch[n + 1:]
        yield f"small {s.name}", replace(plan, kernels=(relowered(kernel, scratch=small),))


def test_planted_faults_are_told_by_the_interpreter():
    _, _, plan, feeds, want = planned("rows")
    found = {what: told(lambda p=p: run_plan(p, feeds), want) for what, p in mutants(plan)}
    assert len(found) > 15 and not [what for what, text in found.items() if not text]
    assert any("before the wait for its copy" in text for text in found.values())


def test_a_missing_wait_is_refused_by_the_simulator(tmp_path):
    _, s, plan, feeds, want = planned("rows")
    chosen = [(what, p) for what, p in mutants(plan) if what.startswith("no wait")]
    texts = [told(lambda p=p, i=i: built(p, s, tmp_path / str(i)).run(feeds), want)
             for i, (_, p) in enumerate(chosen)]
    assert len(texts) >= 3 and all("illegal access" in t for t in texts), texts
    assert any("before the wait for its DMA" in t for t in texts)


def test_the_decider_pipelines_what_has_many_tiles(tmp_path):
    m = Maker("long")
    m.input("x", 16300, 40)
    m.const("w", np.random.default_rng(2).random((40, 30), np.float32))
    matmul(m, "y", "x", "w")
    program = m.done("y")
    s = decide(program, TARGET)
    g, = s.groups
    assert g.pipeline == 2 and g.run
    assert Schedule.from_json(s.to_json()).groups[0].pipeline == 2
    plain = replace(g, pipeline=0, run={})
    before, after = (timeline(lower(program, replace(s, groups=(x,)), TARGET), TARGET.machine,
                              {}).seconds for x in (plain, g))
    assert after < before
    feeds = random_feeds(program, np.random.default_rng(), {})
    assert not differences(built(lower(program, s, TARGET), s, tmp_path / "b").run(feeds),
                           evaluate(program, feeds, {}), 2e-5)


def test_images_of_many_rows_agree(tmp_path):
    m = Maker("image")
    m.input("x", 1, 4, 60, 60)
    conv2d(m, "y", "x", m.const("w", np.random.default_rng(2).random(
        (8, 4, 3, 3), np.float32)), 1, 1)
    program = m.done("y")
    s = decide(program, TARGET)
    feeds = random_feeds(program, np.random.default_rng(), {})
    assert not differences(built(lower(program, s, TARGET), s, tmp_path / "b").run(feeds),
                           evaluate(program, feeds, {}), 1e-4)


@pytest.mark.parametrize("fields, fault", [
    ({"pipeline": 3}, "pipeline 3; choose 0 or 2"),
    ({"run": {}}, "needs a run in steps"),
    ({"reuse": {"r1": "slide"}}, "keeps part of a step")])
def test_what_cannot_be_is_a_fault(fields, fault):
    program, s, _, _, _ = planned("windows")
    with pytest.raises(ScheduleError, match=fault):
        lower(program, replace(s, groups=(with_tables(s.groups[0], **fields),)), TARGET)
