"""Schedules with the best parts of several: forms differ from layer to layer."""

import numpy as np
from tuner_models import convolutions, scheduled

from aotc.sched import check_schedule, decide
from aotc.sched.dynamic.mixed_parts import Source, mixed_for, near_base
from aotc.sched.dynamic.predict import Prices
from aotc.sched.dynamic.typical_calls import Call
from aotc.sched.dynamic.vote import ALPHA


class Told(Prices):
    """Seconds as ``fast`` says: of forms by the call and the layer."""

    fast: dict[int, set[str]]

    def group(self, schedule, group, extents):
        form = any(r[1] in group.computes for r in schedule.rewrites)
        layer = next((o for o in self.layers if o in group.computes), "")
        return 1.0 if form == (layer in self.fast[extents["call"]]) else 2.0


def test_forms_differ_from_layer_to_layer():
    work = scheduled(convolutions(size=14, channels=32, layers=3), "x86-64-v4")
    direct, forms = (decide(work.program, work.target, winograd=w) for w in ("off", 2))
    layers = [r[1] for r in forms.rewrites if r[0] == "winograd"]
    assert len(layers) > 1
    prices = Told(work.program, work.target)
    prices.layers, prices.fast = layers, {0: {layers[1]}, 1: set(layers)}
    sources = [Source(direct, 0.0), Source(forms, 0.1)]
    found = mixed_for(prices, sources, [Call({"call": 0})])
    assert [r[1] for r in found.schedule.rewrites] == layers[1:2]
    assert check_schedule(prices.rewritten(found.schedule), found.schedule, work.target) == []
    assert 0 < found.doubt < 0.1
    alike = [Source(direct, 0.0), Source(forms, 0.0)]
    assert mixed_for(prices, alike, [Call({"call": 1})]) is None  # one has the best of all


class Saving(Prices):
    """A second for every group, and less for one that is a form."""

    less: dict[str, float]

    def group(self, schedule, group, extents):
        forms = [r[1] for r in schedule.rewrites if r[1] in group.computes]
        return 1.0 - sum(self.less[f] for f in forms)


def test_a_part_that_saves_less_than_its_size_is_worth():
    """Of three forms, one saves less than its code is worth, one than its code and weights."""
    work = scheduled(convolutions(size=14, channels=32, layers=3), "x86-64-v4")
    base, forms = (decide(work.program, work.target, winograd=w) for w in ("off", 2))
    layers = [r[1] for r in forms.rewrites if r[0] == "winograd"]
    prices = Saving(work.program, work.target)
    payload = sum(prices.stored(base).values())
    grown = (sum(prices.stored(forms).values()) + 9 * 32 * 32 * 4 * len(layers) - payload) / (
        payload * len(layers))  # a form's own weights, by all of the base's
    count = len(base.groups)
    worth = ALPHA * count * np.array([1 / count, 1 / count + grown])
    prices.less = dict(zip(layers, (worth[0] / 2, worth.mean(), 1.1 * worth[1])))
    near = near_base(prices, base, Source(forms, 0.0), [Call({})])
    assert len(layers) == 3 and [r[1] for r in near.schedule.rewrites] == layers[2:]
    assert check_schedule(prices.rewritten(near.schedule), near.schedule, work.target) == []
    others = [g.computes for g in near.schedule.groups if layers[2] not in g.computes]
    assert others == [g.computes for g in base.groups if layers[2] not in g.computes]
