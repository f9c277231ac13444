"""Plans for the accelerator: run by the interpreter and by the simulator, and faults planted in
them, which both tell by name."""

from dataclasses import replace

import numpy as np
import pytest
from changed_kernels import relowered
from group_cases import depthwise_pointwise, group_cases, schedule, two_convolutions
from harness import INFO, build_cases, differences
from te_programs import random_feeds

from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.write import write_bundle
from aotc.errors import AotcError, InterpreterError
from aotc.ir.statements import Copy, Wait, walk_body
from aotc.oracle.evaluate import evaluate
from aotc.oracle.run_plan import run_plan
from aotc.runtime.loading import load
from aotc.sched import complete, lower
from aotc.target import get_target

TARGET = get_target("dsa:stcp920")


def planned(parts, tile):
    """(schedule, plan, feeds, expected outputs) of one group of everything."""
    program, connect, anchor, *_ = parts
    s = complete(program, schedule(TARGET, program, connect, tile, anchor), TARGET)
    feeds = random_feeds(program, np.random.default_rng(), {})
    return s, lower(program, s, TARGET), feeds, evaluate(program, feeds, {})


@pytest.fixture(scope="module")
def convolutions():
    return planned(two_convolutions(), {"oh": 3, "ow": 3})  # some tiles touch no border


def with_body(plan, body):
    kernel, = plan.kernels
    return replace(plan, kernels=(replace(kernel, body=body),))


def engines(plan):
    """(place in the body, statement) of what moves data."""
    return [(i, s) for i, s in enumerate(plan.kernels[0].body) if isinstance(s, (Copy, Wait))]


def mutants(plan):
    """(what is wrong, Plan) for every statement that moves data, and every buffer."""
    kernel, = plan.kernels
    for i, s in engines(plan):
        without = kernel.body[:i] + kernel.body[i + 1:]
        yield f"without {s.lines()[0]}", with_body(plan, without)
        if isinstance(s, Copy):
            small = replace(s, extents=(*s.extents[:-1], s.extents[-1] - 1))
            yield f"short {s.to}", with_body(plan, (*without[:i], small, *without[i:]))
            last = replace(s, to=replace(s.to, offset=s.to.offset + 1))
            yield f"moved {s.to}", with_body(plan, (*without[:i], last, *without[i:]))
        else:
            late = replace(s, token=s.token + 7)
            yield f"other token {s.token}", with_body(plan, (*without[:i], late, *without[i:]))
    for n, s in enumerate(kernel.scratch):
        less = replace(s, elements=s.elements * 3 // 4)
        scratch = kernel.scratch[:n] + (less,) + kernel.scratch[n + 1:]
        yield f"small {s.name}", replace(plan, kernels=(relowered(kernel, scratch=scratch),))


def is_wrong(run, want):
    """The text of the fault of a run, "" where it passes for right."""
    try:
        got = run()
    except AotcError as err:
        return str(err)
    return "other numbers" if any(differences(got, want, 2e-5)) else ""


@pytest.mark.parametrize("parts, tile", [
    (two_convolutions(), {"oh": 5, "ow": 4}), (two_convolutions(stride=2), {"oh": 3}),
    (depthwise_pointwise(), {"oh": 2, "ow": 3}), (depthwise_pointwise(stride=2), {})])
def test_the_interpreter_runs_copies(parts, tile):
    _, plan, feeds, want = planned(parts, tile)
    assert len(engines(plan)) > 4
    assert not differences(run_plan(plan, feeds), want, 2e-5)


def test_every_element_is_reached_in_scratch(convolutions):
    """Where all boxes fit, nothing but copies touches what lies outside."""
    _, plan, _, _ = convolutions
    kernel, = plan.kernels
    outside = {*kernel.reads, *kernel.writes}
    copied = {b.buffer for _, s in engines(plan) if isinstance(s, Copy) for b in (s.to, s.source)}
    assert outside <= copied
    assert len([s for s in walk_body(kernel.body) if isinstance(s, Wait)]) == 3


def test_faults_in_a_plan_are_told_by_the_interpreter(convolutions):
    _, plan, feeds, want = convolutions
    missed = [what for what, wrong in mutants(plan)
              if not is_wrong(lambda wrong=wrong: run_plan(wrong, feeds), want)]
    assert len(list(mutants(plan))) > 15 and not missed


def test_a_read_before_the_wait_is_told_with_its_statement(convolutions):
    _, plan, feeds, _ = convolutions
    first = next(i for i, s in engines(plan) if isinstance(s, Wait))
    body = plan.kernels[0].body
    with pytest.raises(InterpreterError, match=r"kernel k000\w*, .*_near.* before the wait for its "
                                               "copy"):
        run_plan(with_body(plan, body[:first] + body[first + 1:]), feeds)


def test_scratch_beyond_its_memory_is_told(convolutions):
    _, plan, feeds, _ = convolutions
    kernel, = plan.kernels
    far = replace(kernel.scratch[-1], offset=1 << 16)
    with pytest.raises(InterpreterError, match=f"{far.name} ends at .* of LB, which has 65536"):
        run_plan(replace(plan, kernels=(relowered(
            kernel, scratch=(*kernel.scratch[:-1], far)),)), feeds)


def built(plan, s, folder):
    write_bundle(render_bundle(plan, s, INFO), folder)
    return load(folder)


@pytest.mark.product
def test_faults_in_a_plan_are_refused_by_the_simulator(convolutions, tmp_path):
    s, plan, feeds, want = convolutions
    chosen = [m for m in mutants(plan) if m[0].startswith(("without wait", "small c1", "small x"))
              or m[0].startswith("short") and "_near[0] by 1" not in m[0]]
    told = {what: is_wrong(lambda wrong=wrong, n=n: built(wrong, s, tmp_path / str(n)).run(feeds),
                           want) for n, (what, wrong) in enumerate(chosen)}
    assert len(told) >= 4 and all("illegal access" in text or text == "other numbers"
                                  for text in told.values()), told
    waits = [text for what, text in told.items() if what.startswith("without wait")]
    assert any("before the wait for its DMA" in text for text in waits)
    assert any("ends before the wait for token" in text for text in waits)


def test_groups_run_on_the_simulator(tmp_path):
    built = build_cases(list(group_cases(TARGET, loops=0))[::4], TARGET, tmp_path / "groups")
    built.check(1)


@pytest.mark.product
def test_all_groups_run_on_the_simulator(tmp_path):
    built = build_cases(list(group_cases(TARGET, loops=0)), TARGET, tmp_path / "groups")
    built.check(2)
