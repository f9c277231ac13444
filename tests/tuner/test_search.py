"""The search on functions whose optimum is known, and the learned correction."""

from math import log
from random import Random

import pytest

from aotc.tuner.measure.records import Record
from aotc.tuner.search.cross_entropy import CrossEntropy, neighbours
from aotc.tuner.search.learned_cost import Correction, correlate_held_back, rank_correlation
from aotc.tuner.space.knobs import Knob

KNOBS = (Knob("a", (1, 2, 4, 8, 16, 32), 4), Knob("b", (1, 3, 9, 27, 81), 1),
         Knob("c", ("x", "y", "z"), "x"), Knob("d", ("", "on"), ""),
         Knob("e", (1, 2, 4, 8, 16), 8), Knob("f", (1, 2, 4, 8, 16, 32), 32))


def _time(v):
    far = sum(abs(log(v[k] / n)) for k, n in (("a", 32), ("b", 27), ("e", 2), ("f", 4)))
    return far + (v["c"] != "z") + (v["d"] == "") + 1


def _searched(seed, rounds=12, each=10):
    search, scored = CrossEntropy(KNOBS, Random(seed)), []
    for _ in range(rounds):
        scored += [(v, _time(v)) for v in (search.draw() for _ in range(each))]
        search.update(scored)
    return min(t for _, t in scored), scored


def test_it_finds_what_is_far_from_where_it_starts():
    found = [_searched(seed)[0] for seed in range(10)]  # 5400 points, 120 draws
    start = _time({k.name: k.base for k in KNOBS})
    assert max(found) < start / 3 and sum(f < 1.7 for f in found) >= 5


def test_neighbours_differ_in_one_knob():
    base = {k.name: k.base for k in KNOBS}
    found = neighbours(KNOBS, {"a": 4, "c": "y"})
    at = base | {"a": 4, "c": "y"}
    assert all(sum((base | v)[n] != at[n] for n in at) == 1 for v in found)
    assert [v["a"] for v in found if v["a"] != 4] == [2, 8, 32, 1]
    assert [v["c"] for v in found if v["c"] != "y"] == ["x", "z"]
    assert sorted(v["f"] for v in found if "f" in v) == [1, 16]  # an end has one side


def test_it_beats_drawing_at_random():
    rng = Random(1)
    blind = [min(_time({k.name: rng.choice(k.choices) for k in KNOBS}) for _ in range(120))
             for _ in range(10)]
    assert sum(_searched(s)[0] for s in range(10)) < sum(blind)


def test_the_same_seed_draws_the_same_points():
    assert _searched(5)[1] == _searched(5)[1] != _searched(6)[1]


def test_it_starts_near_the_base_and_keeps_every_choice_possible():
    search = CrossEntropy(KNOBS, Random(0))
    for k in KNOBS:
        weights = dict(zip(k.choices, search.weights[k.name]))
        assert weights[k.base] == max(weights.values())
    for _ in range(50):
        search.update([({"a": 8}, 1.0)] * 4)
    for weights in search.weights.values():
        assert min(weights) > 0 and sum(weights) == pytest.approx(1.0)


# ---------------------------------------------------------------- correction

def _records(sites=12, each=10, seed=0):
    """Times that a feature explains and the analytic cost does not."""
    rng, out = Random(seed), []
    for s in range(sites):
        size = 10 ** rng.uniform(-5, -3)
        for i in range(each):
            hidden, analytic = rng.uniform(0, 2), size * rng.uniform(0.9, 1.1)
            out.append(Record(f"site{s}", "c", "here", ("", (("k", i),)),
                              analytic * 3 ** hidden, size, analytic, (log(analytic), hidden)))
    return out


def test_no_records_no_correction():
    some = _records(1, 5)
    fresh = Correction()
    fresh.fit(some)
    assert list(fresh.seconds(some)) == [r.analytic for r in some]


def test_the_correction_orders_sites_it_has_not_seen():
    before, after, sites = correlate_held_back(_records())
    assert sites == 12 and before < 0.6 and after > 0.8


def test_the_same_records_give_the_same_predictions():
    some, results = _records(), []
    for _ in range(2):
        correction = Correction(seed=3)
        correction.fit(some)
        results.append(list(correction.seconds(some)))
    assert results[0] == results[1]
    failed = Record("s", "c", "here", ("", ()), None, None, 1e-3, (0.0, 0.0), "crash")
    correction = Correction(seed=3)
    correction.fit(some + [failed])
    assert list(correction.seconds(some)) == results[0]


def test_rank_correlation_by_hand():
    assert rank_correlation([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([1, 1, 1], [1, 2, 3]) == 0 == rank_correlation([1], [2])
    # ranks 1.5, 1.5, 3 and 1, 2, 3: 1.5 / sqrt(1.5 * 2)
    assert rank_correlation([5, 5, 9], [1, 2, 3]) == pytest.approx(1.5 / 3 ** 0.5)
