"""Which boxes engines copy: a field of the Schedule, which a decider fills and a user may edit."""

import json
from dataclasses import replace

import numpy as np
import pytest
from small_models import dense
from te_programs import Maker, matmul, random_feeds

from aotc.errors import ScheduleError
from aotc.ir.contents import buffers_in
from aotc.ir.schedule import Schedule
from aotc.ir.statements import Copy, walk_body
from aotc.oracle.evaluate import evaluate
from aotc.oracle.run_plan import run_plan
from aotc.sched import complete, decide, lower
from aotc.sched.judge.judge import Judge
from aotc.target import get_target
from aotc.tools.show import show_stage

TARGET = get_target("dsa:stcp920")


def product(rows=20, terms=30, columns=40):
    m = Maker()
    m.input("x", rows, terms)
    m.const("w", np.random.default_rng(5).random((terms, columns), np.float32))
    matmul(m, "y", "x", "w")
    return m.done("y")


def copied(plan):
    return {b.buffer for k in plan.kernels for s in walk_body(k.body) if isinstance(s, Copy)
            for b in (s.to, s.source)} & {p.name for p in plan.places}


def with_copies(schedule, row="", **copies):
    """The Schedule, read from its JSON with other copies of its only group; row: of its stage."""
    data = json.loads(schedule.to_json())
    data["groups"][0]["copies"] = copies
    if row:
        data["groups"][0] |= {"ukernel": {"y": row}, "loops": {"y": {}}}
    return Schedule.from_json(json.dumps(data))


def test_every_tensor_that_a_group_touches_has_a_memory():
    schedule = decide(product(), TARGET)
    assert schedule.groups[0].copies == {"x": "LB", "w": "LB", "y": "LB"}
    assert Schedule.from_json(schedule.to_json()) == schedule
    assert Schedule.from_json(schedule.to_json()).groups[0].copies == schedule.groups[0].copies


@pytest.mark.parametrize("outside", ["x", "w", "y"])
def test_lowering_does_what_the_schedule_says(outside):
    program = product()
    said = {**dict.fromkeys("xwy", "LB"), outside: "DDR"}
    plan = lower(program, with_copies(decide(program, TARGET), "loops", **said), TARGET)
    assert copied(plan) == {"x", "w", "y"} - {outside}
    touched = {b for k in plan.kernels for s in k.body if not isinstance(s, Copy)
               for b in buffers_in(s)}
    assert outside in touched
    feeds = random_feeds(program, np.random.default_rng(), {})
    got, want = run_plan(plan, feeds)["y"], evaluate(program, feeds, {})["y"]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("outside", ["x", "w"])
def test_a_unit_has_its_operands_in_scratch(outside):
    program = product()
    said = {**dict.fromkeys("xwy", "LB"), outside: "DDR"}
    with pytest.raises(ScheduleError, match=f"multiplies what is in LB; copy {outside} there, or"):
        lower(program, with_copies(decide(program, TARGET), **said), TARGET)


def test_what_is_left_out_is_completed():
    program = product()
    schedule = with_copies(decide(program, TARGET), w="DDR")
    assert complete(program, schedule, TARGET).groups[0].copies == {
        "x": "LB", "w": "DDR", "y": "LB"}


def test_what_is_reached_in_place_costs_time():
    program = product()
    schedule = decide(program, TARGET)
    judge = Judge(program, TARGET)
    near, far = (judge.priced(with_copies(schedule, x="LB", w=w, y="LB").groups[0])
                 for w in ("LB", "DDR"))
    assert far.seconds > near.seconds and "in place in DDR" in str(far)


def test_what_loses_least_stays_outside():
    """A sum too long for scratch, which reads the larger box less often than the smaller one."""
    program = product(3, 20000, 4)
    copies = decide(program, TARGET).groups[0].copies
    assert copies["y"] == "LB" and copies["w"] == "DDR" or copies["x"] == "DDR"


@pytest.mark.parametrize("said, fault", [
    ({"x": "GPU"}, "copies x to 'GPU'; choose from LB, DDR"),
    ({"z": "LB"}, "copies z, which no work item touches outside of scratch; choose from w, x, y")])
def test_what_cannot_be_is_a_fault(said, fault):
    program = product()
    with pytest.raises(ScheduleError, match=fault):
        lower(program, with_copies(decide(program, TARGET), **said), TARGET)


def test_boxes_that_do_not_fit_are_a_fault():
    program = product(3, 20000, 4)
    schedule = decide(program, TARGET)
    with pytest.raises(ScheduleError, match="its tiles take .* bytes of LB memory"):
        lower(program, with_copies(schedule, x="LB", w="LB", y="LB"), TARGET)


def test_other_machines_have_nothing_to_say():
    target = get_target("c")
    program = product()
    schedule = decide(program, target)
    assert not schedule.groups[0].copies
    group = replace(schedule.groups[0], copies={"x": "L1"})
    with pytest.raises(ScheduleError, match="nothing copies between"):
        lower(program, replace(schedule, groups=(group,)), target)


def test_show_schedule_tells(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(dense(rows=4).SerializeToString())
    assert '"copies"' in show_stage(path, "schedule", TARGET.name, as_json=True)
    assert "    in LB: " in show_stage(path, "schedule", TARGET.name)
