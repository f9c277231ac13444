"""Sites: what can be tuned by itself, and which of them are equal."""

import numpy as np
import pytest
from helpers.layout_rewrites import layout_rewrites
from tuner_models import convolutions, scheduled, untuned_candidates

from aotc.ir.layout import Layout, Reorder
from aotc.oracle.check_program import check_program
from aotc.oracle.evaluate import evaluate
from aotc.passes.rewrites import apply_rewrites
from aotc.sched import check_schedule, decide, lower
from aotc.sched.independent_parts import LOCAL
from aotc.tuner.space import trial
from aotc.tuner.space.assemble import assemble_schedule
from aotc.tuner.space.sites import number_buffers, piece, rename_buffers, sites
from aotc.tuner.space.trial import trial_feeds, trial_program


@pytest.fixture(scope="module", params=["c", "x86-64-v4"])
def work(request):
    return scheduled(convolutions(), request.param)


def test_sites_hold_every_group_once(work):
    settled, found = sites(work.program, work.schedule, work.target)
    assert settled == tuple(r for r in work.schedule.rewrites if r[0] not in LOCAL)
    names = [g.name for s in found for g in s.groups]
    assert sorted(names) == sorted(g.name for g in work.schedule.groups)
    for s in found:
        assert not check_program(s.piece)
        made = {o for step in apply_rewrites(s.piece, s.rewrites).steps for o in step.outs}
        assert made.issuperset(c for g in s.groups for c in g.computes)


def test_equal_layers_have_equal_keys_and_others_do_not():
    alike = scheduled(convolutions(layers=4), "c")
    _, found = sites(alike.program, alike.schedule, alike.target)
    keys = [s.key for s in found]
    assert len(set(keys)) < len(keys)
    other = scheduled(convolutions(size=18), "c")
    _, others = sites(other.program, other.schedule, other.target)
    assert not {s.key for s in others} & set(keys)


def test_keys_do_not_depend_on_names():
    model = convolutions()
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [n if n in ("x", "y") or n.startswith("w") else f"other_{n}"
                        for n in names]
    keys = [[s.key for s in sites(w.program, w.schedule, w.target)[1]]
            for w in (scheduled(convolutions()), scheduled(model))]
    assert keys[0] == keys[1]


def test_rewrites_that_reach_across_sites_are_settled():
    work = scheduled(convolutions(layers=2), "x86-64-v4", winograd="off")
    target = work.target
    buffer = next(b for b in work.schedule.layouts
                  if work.program.buffers.get(b) and work.program.buffers[b].role == "temp")
    wanted = layout_rewrites(work.program, {buffer: Layout((Reorder((0, 2, 3, 1)),))})
    schedule = decide(work.program, target, winograd=wanted)
    settled, found = sites(work.program, schedule, target)
    assert settled == wanted and all(s.rewrites == () for s in found)
    again = assemble_schedule(work.program, schedule, settled, found, {}, target)
    assert again.rewrites == schedule.rewrites
    assert [g.tile for g in again.groups] == [g.tile for g in schedule.groups]


def test_a_piece_computes_what_its_computes_do(work):
    program = work.program
    part = piece(program, {s.outs[0] for s in program.steps[:2]})
    assert not check_program(part)
    named = rename_buffers(part, number_buffers(part, "b"))
    rng = np.random.default_rng(0)
    feeds = {part.buffers[b].onnx or b: rng.standard_normal(
        [d.value for d in part.shape(b)]).astype(np.float32) for b in part.inputs}
    a = evaluate(part, feeds)
    b = evaluate(named, dict(zip(named.inputs, feeds.values())))
    for x, y in zip(a.values(), b.values()):
        np.testing.assert_array_equal(x, y)


def test_a_trial_is_a_legal_program_that_runs_every_candidate(work):
    found = [c for _, c in untuned_candidates(work)]
    program, schedule, owners = trial_program(found, work.target)
    assert not check_program(program)
    assert not check_schedule(program, schedule, work.target)
    assert {o for o in owners if o is not None} == set(range(len(found)))
    assert len(lower(program, schedule, work.target).kernels) == len(owners)
    assert set(trial_feeds(program, {})) == set(program.inputs)


def test_candidates_have_weights_of_their_own_while_there_is_room(work, monkeypatch):
    site, one = next((s, c) for s, c in untuned_candidates(work) if s.piece.consts)
    alone = len(trial_program([one], work.target)[0].consts)
    assert len(trial_program([one, one], work.target)[0].consts) == 2 * alone
    monkeypatch.setattr(trial, "OWN_BYTES", sum(a.nbytes for a in one.program.consts.values()))
    assert len(trial_program([one, one, one], work.target)[0].consts) == alone
