"""Edges between instances, and the order that they run in."""

import random

import pytest

from aotc.sched.accelerator.instances.instance_order import (
    Tasks,
    breadth_first,
    depth_first,
    exact_order,
    heavy_first,
    moved_bytes,
    orders,
    peak_live,
)
from aotc.sched.accelerator.instances.instances import instances
from aotc.sched.accelerator.instances.tensor_graph import overlap
from tests.helpers.instances import network, split_stages

GRAPH = instances(network(), split_stages())


def test_edges_are_kept_where_regions_intersect():
    assert (len(GRAPH.edges), GRAPH.redundant) == (14, 28)
    assert all(overlap(GRAPH.instance[e.producer].box, b) for e in GRAPH.edges for b in e.boxes)


def numbered():
    """The instances by their number, breadth first; an output has half a unit of two bytes."""
    number = {x.name: str(i) for i, x in enumerate(GRAPH.instances, 1)}
    return Tasks({number[x]: 1 for x in number},
                 {number[x]: tuple(number[p] for p in GRAPH.producers[x]) for x in number})


def test_depth_first_of_the_published_example():
    assert depth_first(numbered()) == tuple("8 7 12 6 5 11 14 4 3 10 2 1 9 13 15".split())
    assert [GRAPH.instances[int(x) - 1].subgraph for x in depth_first(numbered())] == [
        f"s{k}" for k in (0, 0, 1, 0, 0, 1, 2, 0, 0, 1, 0, 0, 1, 2, 3)]


def test_peaks_of_the_published_example():
    tasks = numbered()
    assert peak_live(tasks, depth_first(tasks)) / 2 == 2.5
    assert peak_live(tasks, breadth_first(tasks)) / 2 == 4.5
    best = orders(tasks, 6, ("breadth first", "depth first"))
    assert [o.how for o in best] == ["depth first", "breadth first"]


def test_bytes_moved_where_outputs_do_not_fit():
    tasks = Tasks({"a": 4, "b": 4, "c": 1}, {"c": ("a", "b")})
    assert moved_bytes(tasks, ("a", "b", "c"), 8) == 2  # a and b fill it, c is one too much
    assert moved_bytes(tasks, ("a", "b", "c"), 9) == 0


def random_tasks(rng, n, fewest=0):
    names = [f"t{i}" for i in range(n)]
    return Tasks({x: rng.randint(1, 20) for x in names}, {
        x: tuple(sorted(rng.sample(names[:i], min(i, rng.randint(fewest, 2)))))
        for i, x in enumerate(names)})


@pytest.mark.parametrize("seed, n", [(0, 8), (1, 11), (2, 14), (3, 17), (4, 20), (5, 20)])
def test_every_order_is_topological_and_the_chosen_one_near_the_best(seed, n):
    tasks = random_tasks(random.Random(seed), n, fewest=int(n > 14))
    found = orders(tasks, 10**9)
    for o in found:
        at = {x: i for i, x in enumerate(o.order)}
        assert sorted(o.order) == sorted(tasks.size)
        assert all(at[p] < at[x] for x in tasks.size for p in tasks.producers[x])
    assert found[0].peak <= 1.05 * peak_live(tasks, exact_order(tasks))


@pytest.mark.parametrize("seed", range(3))
def test_the_exact_order_is_the_best_of_all(seed):
    tasks = random_tasks(random.Random(seed), 7)

    def all_orders(done):
        ready = [x for x in tasks.size if x not in done
                 and all(p in done for p in tasks.producers[x])]
        if not ready:
            yield done
        for x in ready:
            yield from all_orders((*done, x))

    least = min(peak_live(tasks, o) for o in all_orders(()))
    assert peak_live(tasks, exact_order(tasks)) == least


def test_the_exact_search_ends():
    wide = Tasks({f"t{i}": i + 1 for i in range(21)}, {})
    assert exact_order(wide) is None and heavy_first(wide)
    assert exact_order(Tasks({f"t{i}": i % 3 + 1 for i in range(20)}, {}), most=1000) is None
