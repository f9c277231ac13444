"""Candidates inside the model: which share a variant, and what a failure of one means."""

from random import Random

import pytest
from tuner_models import Ticks, convolutions, scheduled

from aotc.errors import AotcError
from aotc.tuner.measure.executor import Result
from aotc.tuner.measure.inside import ModelExecutor
from aotc.tuner.measure.records import Records
from aotc.tuner.measure.rigs import CpuRig
from aotc.tuner.measure.whole_model import Built
from aotc.tuner.session import Session
from aotc.tuner.space.assemble import assemble_schedule


class Machine:
    """A checker on which the larger a group's tile, the longer it takes.  ``refused``: which
    Schedules do not build, ``crashes``: which do not run."""

    def __init__(self, schedule, refused=lambda s: False, crashes=lambda s: False):
        self.schedule, self.refused, self.crashes, self.asked = schedule, refused, crashes, []
        self.forgotten = []

    def forget(self, schedules):
        self.forgotten += schedules

    def built(self, schedules):
        return [Built(s, None, "no compiler" if self.refused(s) else "") for s in schedules]

    def times(self, schedules, seconds):
        self.asked.append(len(schedules))
        if any(map(self.crashes, schedules)):
            raise AotcError("killed by signal 11")
        return {"kernels": [[list(map(_seconds, s.groups))] * 3 for s in schedules]}


def _seconds(group):
    return 1.0 + sum(group.tile.values())


class Alone:
    def __init__(self):
        self.seen = []

    def build_and_measure(self, candidates):
        self.seen += candidates
        return [Result(1.0)] * len(candidates)


@pytest.fixture(scope="module")
def work():
    return scheduled(convolutions(size=14, channels=32, layers=3), "x86-64-v4",
                     connect="register", winograd="off")


def _session(work, machine, alone=None):
    made = Session(work, CpuRig(work.target), Records(None), Random(0), 0, Alone(), machine,
                   lambda text: None, Ticks(), 0.0, 1.0)
    made._open({s.name: 1.0 for s in made.sites})
    made.executor = ModelExecutor(made, alone or Alone())
    return made


def _changed(search):
    """A candidate with another tile."""
    space = search.space("")
    found = (space.candidate({k.name: c}) for k in space.knobs if ".tile." in k.name
             for c in k.choices if c != k.base)
    return next((c for c in found if c is not None and c.point[1]), None)


def _asked(made):
    """[(untuned, changed)] candidates of every site that can be tiled otherwise."""
    pairs = [(s.base, _changed(s)) for s in made.searches.values()]
    return [(b, c) for b, c in pairs if c is not None]


def test_sites_are_timed_together_each_by_itself(work):
    machine = Machine(work.schedule)
    made = _session(work, machine)
    pairs = _asked(made)
    assert len(pairs) > 1
    found = made.executor.build_and_measure([c for p in pairs for c in p])
    assert machine.asked == [2]  # one variant holds a candidate of every site
    assert len(machine.forgotten) == 1
    for (base, changed), b, c in zip(pairs, found[::2], found[1::2]):
        copies = len([s for s in made.sites if s.key == base.site])
        assert b.seconds == copies * sum(map(_seconds, base.groups))
        assert c.seconds / b.seconds == pytest.approx(
            sum(map(_seconds, changed.groups)) / sum(map(_seconds, base.groups)))


def test_equal_sites_hold_different_candidates_at_once():
    work = scheduled(convolutions(size=14, channels=32, layers=5), "x86-64-v4",
                     connect="register", winograd="off")
    machine = Machine(work.schedule)
    made = _session(work, machine)
    search = max(made.searches.values(), key=lambda s: s.copies)
    assert search.copies > 2
    space = search.space("")
    found = [space.candidate({k.name: c}) for k in space.knobs if ".tile." in k.name
             for c in k.choices if c != k.base]
    some = [c for c in found if c is not None and c.point[1]][:search.copies + 1]
    base, *results = made.executor.build_and_measure([search.base, *some])
    assert machine.asked == [3]  # the last one did not fit into the first variant
    for c, r in zip(some, results):
        assert r.seconds / base.seconds == pytest.approx(
            sum(map(_seconds, c.groups)) / sum(map(_seconds, search.base.groups)))


@pytest.mark.parametrize("winograd", ["off", 4])
def test_every_form_fits_every_copy(winograd):
    work = scheduled(convolutions(size=14, channels=32, layers=5), "x86-64-v4",
                     connect="register", winograd=winograd)
    made = _session(work, Machine(work.schedule))
    search = max(made.searches.values(), key=lambda s: s.copies)
    search.candidate(("no such form", ()))  # opens them
    assert len(search.forms) > 1
    for form in search.forms:
        chosen = made.copies.choices(search.site.key, (form, ()), "tie")
        assert len(chosen) == search.copies
        assemble_schedule(made.program, made.untuned, made.settled, made.sites, chosen, made.target)


@pytest.mark.parametrize("how", ["refused", "crashes"])
def test_one_that_fails_spoils_no_other(work, how):
    probe = _asked(_session(work, Machine(work.schedule)))
    bad = {g.computes: g.tile for g in probe[0][1].groups}
    base = {g.computes: g.tile for g in probe[0][0].groups}
    fails = {how: lambda s: any(bad.get(g.computes) == g.tile != base.get(g.computes)
                                for g in s.groups)}
    made = _session(work, Machine(work.schedule, **fails))
    pairs = _asked(made)
    found = made.executor.build_and_measure([c for p in pairs for c in p])
    assert found[1].seconds is None and found[1].error
    assert all(r.seconds for r in found[2:])


def test_layouts_are_timed_alone(work):
    alone = Alone()
    made = _session(work, Machine(work.schedule), alone)
    base = next(iter(made.searches.values())).base
    tied = type(base)(base.site, ("layout:0:[]", ()), base.program, base.groups, base.layouts)
    assert made.executor.build_and_measure([base, tied]) == [Result(1.0)] * 2
    assert alone.seen == [base, tied]
