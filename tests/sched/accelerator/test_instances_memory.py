"""Bindings, scopes, moves, spilling, stitching and prefetching, with the published numbers."""

import random

import pytest

from aotc.sched.accelerator.instances.binding import (
    bind_instances,
    bind_outermost_first,
    carry_binding,
)
from aotc.sched.accelerator.instances.instances import instances
from aotc.sched.accelerator.instances.moves import CONCAT, COPY, REDISTRIBUTE, moves
from aotc.sched.accelerator.instances.spill import LARGEST, Lifetime, place_outputs, spill_outputs
from benchmarks.graphturbo_times import Task, prefetched, scheduled, serial
from tests.helpers.instances import network, split_stages


@pytest.mark.parametrize("shape, bind", [
    ((8, 64, 56, 56), (8, 1, 1, 1)), ((4, 128, 28, 28), (4, 2, 1, 1)),
    ((2, 256, 14, 14), (2, 4, 1, 1)), ((1, 512, 7, 7), (1, 8, 1, 1)), ((6, 10, 5), (2, 2, 1))])
def test_plain_bindings(shape, bind):
    assert bind_outermost_first(shape, 8) == bind


def test_dimensions_that_are_not_to_be_bound():
    assert bind_outermost_first((8, 64, 56, 56), 8, (0, 1)) == (1, 1, 8, 1)


SHAPES = {"a": (4, 128, 28, 28), "b": (2, 256, 14, 14), "c": (2, 256, 14, 14)}
PRODUCERS = {"a": (), "b": ("a",), "c": ("b", "a")}
CARRIES = {("b", "a"): ((0, 0), (1, 1)), ("c", "a"): ((0, 0), (2, 2), (3, 3)),
           ("c", "b"): tuple((d, d) for d in range(4))}


def test_a_producer_that_its_consumers_read_in_other_parts_goes_further_out():
    found = bind_instances("abc", SHAPES, PRODUCERS, CARRIES, 8)
    assert found.bind["c"] == found.bind["b"] == (2, 4, 1, 1)
    assert carry_binding((2, 4, 1, 1), SHAPES["a"], CARRIES["b", "a"]) == (2, 4, 1, 1)
    assert carry_binding((2, 4, 1, 1), SHAPES["a"], CARRIES["c", "a"]) == (2, 1, 1, 1)
    assert found.scope == {"a": 1, "b": 0, "c": 0} and "b reads it in parts" in found.why["a"]
    assert found.bind["a"] == (4, 2, 1, 1)


def test_an_inferred_binding_is_passed_on():
    shapes = dict.fromkeys("abc", (2, 4))
    same = ((0, 0), (1, 1))
    found = bind_instances("abc", shapes, {"b": ("a",), "c": ("b",)},
                           {("b", "a"): same, ("c", "b"): same}, 8)
    assert set(found.bind.values()) == {(2, 4)} and not any(found.scope.values())


def test_one_that_takes_more_cores_than_its_consumer_meant_is_checked_again():
    """What c reads of a has two parts; a by itself has eight, which c cannot read where it is."""
    found = bind_instances("ac", {"a": (8, 8), "c": (2, 1)}, {"c": ("a",)},
                           {("c", "a"): ((0, 0),)}, 8)
    assert found.bind["a"] == (8, 1) and found.scope["a"] == 1


def test_parts_that_do_not_divide_or_must_not_be_bound_are_not_carried():
    assert carry_binding((4, 2), (6, 8), ((0, 0), (1, 1))) is None
    assert carry_binding((4, 2), (8, 8), ((0, 0), (1, 1)), (0,)) is None
    assert carry_binding((4, 2), (8, 8), ()) is None


def test_moves_between_instances():
    graph = instances(network(), split_stages())
    order = [x.name for x in graph.instances]
    scope = dict.fromkeys(order, 0) | {"s0.1": 1, "s1.0": 2}
    bind = dict.fromkeys(order, (4, 2, 1, 1))
    wanted = {("s1.0", "s0.0"): (2, 4, 1, 1)}
    found = moves(graph, order, scope, bind, wanted)
    concats = [m for m in found if m.kind == CONCAT]
    assert [m.sources for m in concats[:2]] == [("s0.0", "s0.1"), ("s0.2", "s0.3")]
    assert len(concats) == 4 + 2 + 1
    assert [(m.consumer, m.sources, m.level) for m in found if m.kind == COPY] == [
        ("s1.0", ("s0.1",), 1), ("s2.0", ("s1.0",), 2)]
    assert [(m.consumer, m.sources, m.bind) for m in found if m.kind == REDISTRIBUTE] == [
        ("s1.0", ("s0.0",), (2, 2, 1, 1))]
    assert "redistribute s0.0 for s1.0 as (2, 2, 1, 1)" in map(str, found)


LIVES = tuple(Lifetime(name, size, first, last, (last,)) for name, size, first, last in (
    ("in1", 24, 1, 1), ("out1", 12, 1, 7), ("out2", 20, 2, 3), ("out3", 24, 3, 5),
    ("out4", 16, 4, 6), ("out5", 20, 5, 7)))


def test_what_lives_longest_is_spilled():
    found = spill_outputs(LIVES, (64, 1000, 1 << 40))
    assert {x: n for x, n in found.level.items() if n} == {"out1": 1} and found.moved[0] == 24
    assert found.peak == (60, 12, 0)
    largest = spill_outputs(LIVES, (64, 1000, 1 << 40), by=LARGEST)
    assert {x: n for x, n in largest.level.items() if n} == {"out4": 1} and largest.moved[0] == 32


def test_what_does_not_fit_there_either_goes_to_the_next_one():
    found = spill_outputs(LIVES, (30, 20, 1 << 40))
    assert 2 in found.level.values() and found.peak[0] <= 30 and found.peak[1] <= 20


@pytest.mark.parametrize("seed", range(3))
def test_places_of_outputs_that_live_together_do_not_overlap(seed):
    rng = random.Random(seed)
    lives = []
    for i in range(40):
        first = rng.randint(0, 30)
        last = first + rng.randint(0, 9)
        lives.append(Lifetime(f"t{i}", rng.randint(1, 900), first, last, (last,)))
    work = [rng.randint(0, 500) for _ in range(31)]
    homes = spill_outputs(lives, (2000, 1500, 1 << 40), work)
    for step in range(40):
        live = [x for x in lives if x.first <= step <= x.last]
        extra = work[step] if step < len(work) else 0
        assert sum(x.size for x in live if homes.level[x.name] == 0) + extra <= 2000
        assert sum(x.size for x in live if homes.level[x.name] == 1) <= 1500
    found = place_outputs(lives, homes)
    for i, a in enumerate(found):
        for b in found[:i]:
            apart = a.offset + a.size <= b.offset or b.offset + b.size <= a.offset
            assert a.level != b.level or a.last < b.first or b.last < a.first or apart
        assert a.offset % 64 == 0


def test_space_is_used_again_as_soon_as_an_output_is_dead():
    """Stitching: the output of one is the input of the next, and the third takes the first's."""
    chain = [Lifetime(f"t{i}", 64, i, i + 1, (i + 1,)) for i in range(4)]
    assert [p.offset for p in place_outputs(chain,
                                            spill_outputs(chain, (128, 1 << 20)))] == [0, 64, 0, 64]


def random_lives(r):
    """Outputs as a sweep of some steps makes and reads them."""
    steps, out = r.randint(1, 14), []
    for i in range(r.randint(1, 16)):
        first = r.randrange(steps)
        reads = tuple(sorted({r.randrange(first, steps) for _ in range(r.randint(0, 3))}))
        out.append(Lifetime(f"t{i}", r.randint(1, 600), first, max((first, *reads)), reads))
    return out, [r.randint(0, 800) for _ in range(steps)]


def swept(lives, room, work):
    """What is spilled from a memory, by looking at all that is live for each."""
    gone = []
    for step, extra in enumerate(work):
        def here(step=step):
            return [x for x in lives if x not in gone and x.first <= step <= x.last]
        while here() and sum(x.size for x in here()) + extra > room:
            gone.append(max(here(), key=lambda x: (
                2 if not x.busy(step) else int(step != x.first), x.length, x.size, -x.first)))
    return {x.name for x in gone}


def in_gaps(lives):
    """Offsets in the smallest gap between what is live, by looking at all of that."""
    done = []
    for x in sorted(lives, key=lambda y: (y.first, -y.size, y.name)):
        size, at, best = -(-x.size // 64) * 64, 0, None
        for _, a, n in sorted((p for p in done if p[0].last >= x.first), key=lambda p: p[1]):
            if a - at >= size and (best is None or a - at < best[0]):
                best = a - at, at
            at = max(at, a + n)
        done.append((x, at if best is None else best[1], size))
    return {x.name: a for x, a, _ in done}


@pytest.mark.parametrize("seed", range(40))
def test_spills_and_places_are_those_of_a_search_through_all(seed):
    """The sweep keeps heaps and gaps, for there may be very many outputs."""
    lives, work = random_lives(random.Random(seed))
    found = spill_outputs(lives, (1000, 1 << 40), work)
    assert {x for x, k in found.level.items() if k} == swept(lives, 1000, work)
    near = [x for x in lives if not found.level[x.name]]
    assert {p.name: p.offset for p in place_outputs(near, found)} == in_gaps(near)


def test_prefetched_weights_hide_behind_computing():
    tasks = prefetched([((("dma0", 4.0), ("dma1", 2.0)), ("matrix", 5.0))] * 3, 2)
    found = scheduled(tasks)
    assert serial(tasks) == 33 and found.seconds == 21
    assert found.busy["matrix"] == pytest.approx(15 / 21)
    one = scheduled(prefetched([((("dma0", 4.0), ("dma1", 2.0)), ("matrix", 5.0))] * 3, 1))
    assert one.seconds > 21


def test_no_engine_does_two_things_at_once_and_nothing_starts_early():
    rng = random.Random(1)
    tasks = [Task(f"t{i}", rng.choice("abc"), rng.random(),
                  tuple(rng.sample(range(i), min(i, 2)))) for i in range(60)]
    found = scheduled(tasks)
    end = [s + t.seconds for s, t in zip(found.start, tasks)]
    for i, t in enumerate(tasks):
        assert all(found.start[i] >= end[j] - 1e-12 for j in t.after)
        for j, other in enumerate(tasks[:i]):
            if other.engine == t.engine:
                assert found.start[i] >= end[j] - 1e-12 or found.start[j] >= end[i] - 1e-12
    with pytest.raises(ValueError, match="later"):
        scheduled([Task("a", "x", 1.0, (1,)), Task("b", "x", 1.0)])
