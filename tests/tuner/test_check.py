"""The whole model against the untuned one."""

from dataclasses import replace

import pytest
from tuner_models import convolutions, scheduled

from aotc.errors import AotcError
from aotc.tuner.measure.whole_model import Checker, busy_seconds, pair_ratio
from aotc.tuner.space.assemble import SiteChoice
from aotc.tuner.space.knobs import Space, untuned_form
from aotc.tuner.space.sites import sites


@pytest.fixture(scope="module")
def work():
    return scheduled(convolutions(size=8, channels=16, layers=1), "native")


@pytest.fixture(scope="module")
def checker(work, tmp_path_factory):
    made = Checker(work, tmp_path_factory.mktemp("check"), seconds=0.05)
    kernels, whole = made.untuned()
    assert len(kernels) == len(work.schedule.groups) and 0 < whole < 1
    assert 0.2 * whole < sum(kernels) < 5 * whole
    return made


def _chosen(work):
    _, found = sites(work.program, work.schedule, work.target)
    return {s.name: SiteChoice(s, Space(s, untuned_form(s), work.target).candidate({}), s.rewrites,
                               s.name) for s in found}


@pytest.mark.product
def test_a_model_against_itself(work, checker):
    verdict = checker.compare(work.schedule, _chosen(work))
    assert not verdict.wrong and 0.5 < verdict.ratio < 2.0
    assert set(verdict.ratios) == set(_chosen(work)) and min(verdict.ratios.values()) > 0


def test_a_kernel_that_the_clock_does_not_see():
    assert pair_ratio([0.0, 0.0, 2e-6], [0.0, 0.0, 1e-6]) == 1.0
    assert pair_ratio([0.0, 2e-6, 2e-6], [3e-9, 1e-6, 1e-6]) == 0.5


def test_a_model_that_crashes_is_not_kept(work, checker, monkeypatch):
    def crashed(bundles, seconds):
        raise AotcError("killed by signal 11")

    monkeypatch.setattr(checker, "_run", crashed)
    verdict = checker.compare(work.schedule, _chosen(work))
    assert verdict.wrong and verdict.ratio == float("inf") and "signal 11" in verdict.why


@pytest.mark.parametrize("worst", [0.5, float("nan")])
def test_other_outputs_are_wrong(work, checker, monkeypatch, worst):
    kernels = [1e-3] * len(work.schedule.groups)
    monkeypatch.setattr(checker, "_run", lambda *a: {
        "kernels": [[kernels], [[k / 2 for k in kernels]]],
        "worst": worst})
    verdict = checker.compare(work.schedule, _chosen(work))
    assert verdict.wrong and verdict.ratio == float("inf")
    assert set(verdict.ratios.values()) == {0.5}  # what was timed is told all the same


def test_groups_are_judged_inside_the_model(work, checker, monkeypatch):
    kernels = [1e-3] * len(work.schedule.groups)
    after = [k / 2 for k in kernels[:-1]] + [2e-3]
    monkeypatch.setattr(checker, "_run", lambda *a: {
        "kernels": [[kernels, kernels], [after, after]], "worst": 0.0})
    verdict = checker.compare(work.schedule, _chosen(work))
    last = work.schedule.groups[-1].name
    assert verdict.ratios == {n: 2.0 if n == last else 0.5 for n in _chosen(work)}
    assert verdict.seconds == (sum(kernels), sum(after))


def test_an_interrupted_kernel_does_not_count():
    assert busy_seconds([[1.0, 2.0], [9.0, 2.0], [1.0, 8.0]]) == 3.0


def test_decisions_are_built_beside_schedules(work, checker):
    wish = (("how", "none"), ("winograd", "off"), ("unfold", True))
    bad = replace(work.schedule, groups=work.schedule.groups[:-1])
    first, decided, wrong = checker.built([work.schedule, wish, bad])
    assert first.error == decided.error == "" and (decided.folder / "manifest.json").exists()
    assert decided.schedule.target == work.target.name and "ScheduleError" in wrong.error
    times = checker.times([work.schedule, wish], 0.02)
    assert [len(k[0]) for k in times["kernels"]] == [
        len(work.schedule.groups), len(decided.schedule.groups)]
    assert times["worst"] < 1e-3 and checker.built([wish]) == [decided]
    checker.forget([work.schedule, decided.schedule])
    assert not decided.folder.exists() and first.folder.exists()
    with pytest.raises(AotcError, match="could not be built"):
        checker.times([bad], 0.02)
