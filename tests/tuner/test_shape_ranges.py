"""Measured work items in the vote over ranges of extents."""

import numpy as np
import pytest

from aotc.ir.schedule import Schedule, code_of
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.sched.cost.predict import Prices
from aotc.target import native_target
from aotc.tuner.session import tune_work
from benchmarks.exported.build import Writer


def layer():
    g = Writer("layer", 1)
    return g.model(g.op("Gemm", g.input("x", ["n", 48]), g.weight(48, 160), g.weight(160)))


@pytest.fixture(scope="module")
def work():
    return run_pipeline(Options(layer(), dims={"n": (1, 512)}, target=native_target().name,
                                variants="auto", stop_after="schedule"))


class Told:
    """A checker by which groups take as long as predicted, some of them so many times that."""

    def __init__(self, work, slower):
        self.work, self.slower, self.asked, self.feeds = work, slower, [], {}

    def times(self, schedules, seconds):
        schedule, = schedules
        self.asked.append(schedule.hash)
        n = next(iter(self.feeds.values())).shape[0]
        prices = Prices(self.work.program, self.work.target)
        call = [prices.group(schedule, g, {"n": n}) * self.slower.get(code(g), 1.0)
                for g in schedule.groups]
        return {"kernels": [[call, call]], "whole": [[sum(call)]], "worst": 0.0}

    def forget(self, schedules):
        assert all(s.hash in self.asked for s in schedules)


def code(group):
    """That of what is decided before how statements are written."""
    return code_of(group.bare)


def codes(schedule):
    return {code(g) for s in (schedule, *(v.schedule for v in schedule.variants))
            for g in s.groups}


def test_what_is_predicted_rightly_changes_nothing(work):
    found = tune_work(work, checker=Told(work, {}))
    assert found.schedule.to_json() == work.schedule.to_json() and not found.changed
    assert found.untuned_ms == found.tuned_ms > 0


def test_a_work_item_that_is_slower_than_predicted_is_left(work):
    """It is measured once, and loses the calls that it was predicted to serve best."""
    kept = codes(work.schedule)
    checker = Told(work, dict.fromkeys(kept, 50.0))
    found = tune_work(work, checker=checker)
    assert checker.feeds["x"].shape == (512, 48)
    assert len(checker.asked) == len(set(checker.asked)) > 1
    assert found.changed and not codes(found.schedule) & kept
    assert found.tuned_ms < found.untuned_ms / 10


def test_without_time_one_candidate_is_measured(work):
    checker = Told(work, {})
    found = tune_work(work, budget=0.0, checker=checker)
    assert len(checker.asked) == 1 and found.schedule.to_json() == work.schedule.to_json()


@pytest.mark.product
def test_measured_here(work, tmp_path):
    import aotc
    found = tune_work(work, budget=20.0)
    assert found.trials >= 1 and found.tuned_ms > 0
    path = tmp_path / "s.json"
    path.write_text(found.schedule.to_json())
    assert Schedule.from_json(path.read_text()) == found.schedule
    model = aotc.compile(layer(), tmp_path / "b", dims={"n": (1, 512)}, schedule=path).load()
    x = np.ones((3, 48), np.float32)
    assert model.run({"x": x}).popitem()[1].shape == (3, 160)
