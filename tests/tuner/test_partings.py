"""Other ways to connect a site: legal, different, and the same values."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from tuner_models import convolutions, scheduled

from aotc.ir.schedule import Schedule
from aotc.oracle.evaluate import evaluate
from aotc.oracle.interpret import interpret
from aotc.passes.rewrites import apply_rewrites
from aotc.sched import check_schedule
from aotc.sched.decide import decide
from aotc.sched.memory.allocate import allocate
from aotc.tuner.space.knobs import Space, untuned_form
from aotc.tuner.space.partings import cut_groups, cuts
from aotc.tuner.space.site_forms import CUT, forms
from aotc.tuner.space.sites import sites


def _layers(count=3, rows=40, columns=24):
    """A chain of products with ReLU between, as one model."""
    rng, nodes, weights, last = np.random.default_rng(0), [], [], "x"
    for i in range(count):
        w = rng.standard_normal((columns, columns)).astype(np.float32) / columns
        weights.append(numpy_helper.from_array(w, f"w{i}"))
        out = "y" if i == count - 1 else f"r{i}"
        nodes += [helper.make_node("MatMul", [last, f"w{i}"], [f"m{i}"]),
                  helper.make_node("Relu", [f"m{i}"], [out])]
        last = out
    shape = [rows, columns]
    graph = helper.make_graph(
        nodes, "layers", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.fixture(scope="module")
def joined():
    """A scheduled model whose one group is all three products, and its site."""
    work = scheduled(_layers(), "x86-64-v4", connect="register")
    groups = cut_groups(work.program, work.target, 0)
    assert len(groups) == 1 and len(groups[0].computes) == 6
    work = replace(work, schedule=decide(work.program, work.target, "register", groups=groups))
    (site,) = sites(work.program, work.schedule, work.target)[1]
    return work, site


def test_every_cut_is_a_form_of_its_own_and_computes_the_same(joined):
    work, site = joined
    assert cuts(site) == (0, 1, 2)
    found = {f.name: f for f in forms(site, work.target)}
    assert {f"{CUT}1", f"{CUT}2", "register"} <= set(found) and f"{CUT}0" not in found
    assert [len(found[n].groups) for n in (f"{CUT}1", f"{CUT}2", "register")] == [2, 2, 3]
    feeds = {"x": np.random.default_rng(1).standard_normal((40, 24)).astype(np.float32)}
    want = evaluate(site.piece, feeds)["y"]
    for form in found.values():
        candidate = Space(site, form, work.target).candidate({})
        schedule = Schedule(work.target.name, candidate.groups, candidate.layouts)
        schedule = replace(schedule, buffers=allocate(form.program, schedule))
        assert check_schedule(form.program, schedule, work.target) == []
        got = interpret(form.program, schedule, feeds)["y"]
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_what_cannot_be_cut():
    work = scheduled(convolutions(channels=64), "x86-64-v4", winograd=4)
    assert "winograd" in {rule for rule, *_ in work.schedule.rewrites}
    for s in sites(work.program, work.schedule, work.target)[1]:
        program = apply_rewrites(s.piece, s.rewrites)
        assert cut_groups(program, work.target, 99) is None
        if any(rule == "winograd" for rule, *_ in s.rewrites):  # its stages stay together
            assert all(cut_groups(program, work.target, at) is None for at in range(3))


def test_seeds_are_legal_and_not_what_is_chosen_already():
    work, tried = scheduled(_layers(rows=784, columns=144), "x86-64-v4", connect="register"), 0
    for s in sites(work.program, work.schedule, work.target)[1]:
        space = Space(s, untuned_form(s), work.target)
        for values in space.seeds():
            found = space.candidate(values)
            assert found is not None and found.point[1]
            assert any(v != dict(space.base)[name] for name, v in values.items())
            tried += 1
    assert tried
