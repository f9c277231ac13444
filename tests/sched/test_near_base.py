"""A Schedule for some calls beside that for all: forms differ from layer to layer."""

from dataclasses import replace

import numpy as np
import pytest
from tuner_models import convolutions, scheduled

from aotc.sched import check_schedule, decide
from aotc.sched.cost.predict import Prices
from aotc.sched.dynamic.near_base import keep_base_parts
from aotc.sched.dynamic.text_size import text_bytes
from aotc.sched.model.typical_calls import TypicalCall
from aotc.sched.shape_variants import ALPHA


class Saving(Prices):
    """A second for every group, and less for one that is a form."""

    less: dict[str, float]

    def by_workers(self, schedule, group, extents):
        forms = [r[1] for r in schedule.rewrites if r[1] in group.computes]
        return (1.0 - sum(self.less[f] for f in forms),)


def test_a_part_that_saves_less_than_its_size_is_worth():
    """Of three forms, one saves less than its code is worth, one than its code and weights."""
    work = scheduled(convolutions(size=14, channels=32, layers=3), "x86-64-v4")
    base, forms = (decide(work.program, work.target, winograd=w) for w in ("off", 2))
    layers = [r[1] for r in forms.rewrites if r[0] == "winograd"]
    prices = Saving(work.program, work.target)
    payload = sum(prices.stored(base).values())
    grown = (sum(prices.stored(forms).values()) + 9 * 32 * 32 * 4 * len(layers) - payload) / (
        payload * len(layers))  # a form's own weights, by all of the base's
    whole = sum(text_bytes(work.program, g, work.target) for g in base.groups)
    written = np.array([sum(text_bytes(prices.rewritten(forms), g, work.target)
                            for g in forms.groups if f in g.computes) for f in layers]) / whole
    code = ALPHA * len(base.groups) * written  # groups take a second each
    both = code + ALPHA * len(base.groups) * grown
    prices.less = dict(zip(layers, (code[0] / 2, (code[1] + both[1]) / 2, 1.1 * both[2])))
    near, doubt = keep_base_parts(prices, base, forms, 0.0, TypicalCall({}))
    assert len(layers) == 3 and [r[1] for r in near.rewrites] == layers[2:] and doubt == 0
    assert 0 < keep_base_parts(prices, base, forms, 0.01,
                               TypicalCall({}))[1] < 0.01  # of one form alone
    assert check_schedule(prices.rewritten(near), near, work.target) == []
    others = [g.computes for g in near.groups if layers[2] not in g.computes]
    assert others == [g.computes for g in base.groups if layers[2] not in g.computes]


class Crowded(Prices):
    """Seconds by all workers and by one, of a form and of what is none."""

    def by_workers(self, schedule, group, extents):
        return extents["form"] if schedule.rewrites else (1.0, 2.0)


def test_what_gains_with_some_workers_only_gains_nothing():
    work = scheduled(convolutions(size=14, channels=32, layers=1), "x86-64-v4")
    direct, form = (decide(work.program, work.target, winograd=w) for w in ("off", 2))
    alone = replace(form, groups=form.groups[:len(direct.groups)])
    prices, all_calls = Crowded(work.program, work.target), 1.0 * len(direct.groups)
    for seconds, ratio in (((0.5, 1.0), 0.5), ((0.5, 1.8), 0.9), ((0.5, 2.2), 1.1),
                           ((0.8, 1.0), 0.8)):
        found = prices.beside(direct, alone, {"form": seconds})
        assert len(alone.groups) == len(direct.groups) and found == pytest.approx(
            ratio * all_calls)
    assert prices.beside(direct, direct, {"form": (9, 9)}) == all_calls


@pytest.mark.parametrize("target, workers", [("x86-64-v4", 2), ("cuda:sm_80", 1)])
def test_callers_choose_the_workers_of_cpus(target, workers):
    """One takes about twice the time of two where arithmetic is most of it."""
    work = scheduled(convolutions(size=14, channels=32, layers=1), target)
    schedule = decide(work.program, work.target)
    found = Prices(work.program, work.target).call_by_workers(schedule, {})
    assert len(found) == workers and 1 <= found[-1] / found[0] < 2.5
