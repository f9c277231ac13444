"""The rewrite rule ``recompute``: twins for some readers, the same values."""

import numpy as np
import pytest
from small_models import u_net

from aotc.errors import ScheduleError
from aotc.ir.schedule import Schedule
from aotc.options import Options
from aotc.oracle.check_program import check_program
from aotc.oracle.evaluate import evaluate
from aotc.passes.recompute import twin_names
from aotc.passes.rewrites import apply_rewrites
from aotc.pipeline import run_pipeline


@pytest.fixture(scope="module")
def program():
    return run_pipeline(Options(u_net(8, (4, 8)), target="c", stop_after="inline")).program


def readers(program, name):
    return [s.outs[0] for s in program.consumers[name]]


def skipped(program):
    """The tensor that goes to the pool and around it to the concatenation."""
    return next(b for b, users in program.consumers.items() if len(users) == 2
                and any("pool" in s.outs[0] for s in users))


def test_twins_compute_the_same(program):
    name = skipped(program)
    pool, cat = sorted(readers(program, name), key=lambda r: "pool" not in r)
    twin = f"{name}_again"
    maker, = program.producer[name].inputs[:1]
    rewrites = (("recompute", name, {"readers": [cat]}), ("recompute", maker, {"readers": [twin]}))
    found = apply_rewrites(program, rewrites)
    assert not check_program(found)
    assert readers(found, name) == [pool] and readers(found, twin) == [cat]
    assert found.producer[twin].inputs[0] == f"{maker}_again"
    x = {"x": np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)}
    for a, b in zip(evaluate(program, x).values(), evaluate(found, x).values()):
        np.testing.assert_array_equal(a, b)
    assert apply_rewrites(found, rewrites) is found


def test_a_second_twin_has_a_name_of_its_own(program):
    name = skipped(program)
    found = apply_rewrites(program, (("recompute", name, {"readers": [
        readers(program, name)[0]]}),))
    assert twin_names(program, name) == {name: f"{name}_again"}
    assert twin_names(found, name) == {name: f"{name}_again2"}


def test_wrong_rewrites_name_the_choices(program):
    name = skipped(program)
    both = readers(program, name)
    for rewrite, text in (
            (("recompute", "nothing", {}), "no compute of that name"),
            (("recompute", "x", {"readers": both}), "no compute of that name"),
            (("recompute", name, {}), f"choose from {both[0]}"),
            (("recompute", name, {"readers": []}), f"choose from {both[0]}"),
            (("recompute", name, {"readers": ["other"]}), "'other' does not read it"),
            (("recompute", name, {"readers": both}), "all of its readers")):
        with pytest.raises(ScheduleError, match=text):
            apply_rewrites(program, (rewrite,))


def test_the_rule_survives_json(program):
    name = skipped(program)
    text = Schedule("c", (), rewrites=(
        ("recompute", name, {"readers": readers(program, name)[1:]}),)).to_json()
    again = Schedule.from_json(text)
    assert apply_rewrites(program, again.rewrites).rewrites[0][:2] == ("recompute", name)
    assert again.to_json() == text
