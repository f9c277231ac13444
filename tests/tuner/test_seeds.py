"""Schedules of several deciders, and the best parts of each."""

from dataclasses import replace

from tuner_models import convolutions, scheduled

from aotc.errors import AotcError
from aotc.pipeline import Options
from aotc.sched import check_schedule, decide
from aotc.sched.independent_parts import LOCAL, mix_schedules
from aotc.tuner.measure.whole_model import Built
from aotc.tuner.space.seeds import decisions, seed_schedule


def _schedules(work):
    return [decide(work.program, work.target, how, "off") for how in ("none", "register")]


def test_every_component_takes_what_is_fastest_there():
    work = scheduled(convolutions(size=8, channels=16), "x86-64-v4")
    some = _schedules(work)
    assert some[0].hash != some[1].hash
    even = [[1.0] * len(s.groups) for s in some]
    assert mix_schedules(work.program, work.target, some, even) is not None
    for first in (some, some[::-1]):
        slow = [[9.0] * len(first[0].groups), [1.0] * len(first[1].groups)]
        found = mix_schedules(work.program, work.target, first, slow)
        assert {g.computes for g in found.groups} == {g.computes for g in first[1].groups}
        assert check_schedule(work.program, found, work.target) == []


def test_parts_of_two_schedules_stand_side_by_side():
    work = scheduled(convolutions(size=14, channels=32, layers=3), "x86-64-v4")
    base = decide(work.program, work.target, "register", "off")
    last = base.groups[0]
    other = replace(base, groups=tuple(replace(g, tile={}, parallel=()) if g is last else g
                                       for g in base.groups))
    times = [[1.0] * len(base.groups), [0.5] + [2.0] * (len(base.groups) - 1)]
    found = mix_schedules(work.program, work.target, [base, other], times)
    assert found.groups[0].tile == {} and found.groups[1:] == tuple(
        replace(g) for g in base.groups[1:])


class Machine:
    """A checker on which a Schedule takes what ``seconds`` says of its number of groups."""

    faster = 0.99

    def __init__(self, work, seconds, wrong=""):
        self.work, self.seconds, self.wrong, self.schedule = work, seconds, wrong, work.schedule

    def built(self, wishes):
        return [Built(w, None) if not isinstance(w, tuple) else Built(
            decide(self.work.program, self.work.target, **dict(w)), None) for w in wishes]

    def forget(self, schedules):
        assert schedules

    def times(self, schedules, seconds):
        if self.wrong:
            raise AotcError(self.wrong)
        return {"kernels": [[[self.seconds(s) / len(s.groups)] * len(s.groups)] * 3
                            for s in schedules]}


def test_the_search_starts_at_the_fastest():
    options = Options(None, connect="none", winograd="off")
    work = scheduled(convolutions(size=8, channels=16), "x86-64-v4", connect="none",
                     winograd="off")
    least = min(len(s.groups) for s in _schedules(work))
    assert least < len(work.schedule.groups)
    machine = Machine(work, lambda s: float(len(s.groups)))
    found = seed_schedule(work, options, machine, lambda text: None, lambda: True)
    assert len(found.groups) <= least and machine.schedule == found
    for other in (Machine(work, lambda s: 1.0), Machine(work, None, "it crashed")):
        assert seed_schedule(work, options, other, lambda text: None,
                             lambda: False) == work.schedule
        assert other.schedule == work.schedule


def test_decisions_differ_from_those_given():
    assert [dict(d)["how"] for d in decisions(Options(None))] == ["register", "all"]
    assert dict(decisions(Options(None, connect="register"))[0])["how"] == "all"
    assert len(decisions(Options(None, connect="none"))) == 3
    assert len(decisions(Options(None, winograd=4))) == 1
    assert all(dict(d)["winograd"] == "off" for d in decisions(Options(None, math="exact")))


def test_a_copy_of_an_input_belongs_to_its_reader():
    work = scheduled(convolutions(size=20, channels=32), "x86-64-v4-vnni")
    some = [decide(work.program, work.target, how, 4, True)
            for how in ("register", "none", "all")]
    copies = [r for s in some for r in s.rewrites if r[0] not in LOCAL]
    assert copies and not {c for _, c, _ in copies} & {s.outs[0] for s in work.program.steps}
    for order in (some, some[::-1]):
        times = [[float(i) for i in range(1, len(s.groups) + 1)] for s in order]
        assert mix_schedules(work.program, work.target, order, times) is not None
