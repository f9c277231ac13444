"""Schedules with the best parts of several: forms differ from layer to layer."""

from tuner_models import convolutions, scheduled

from aotc.sched import check_schedule, decide
from aotc.sched.dynamic.mixed_parts import Source, mixed_for
from aotc.sched.dynamic.predict import Prices
from aotc.sched.dynamic.typical_calls import Call


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
