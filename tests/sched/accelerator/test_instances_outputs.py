"""Sub-graphs with several outputs, and plans per range of batch."""

from dataclasses import replace

import pytest

from aotc.sched.accelerator.instances.cost import SplitJudge
from aotc.sched.accelerator.instances.decide_instances import decide_instances, decide_parts
from aotc.sched.accelerator.instances.grouping import MergedSubGraphs, MergeRules, group
from aotc.sched.accelerator.instances.instances import SubGraph
from aotc.sched.accelerator.instances.split import SplitInfo, best_split, outs_of, shares
from aotc.sched.accelerator.instances.steps import OUTPUTS, seconds, steps_of_plan
from aotc.sched.accelerator.instances.tensor_graph import (
    INPUT,
    Read,
    TensorGraph,
    TensorNode,
    follow_dimensions,
    overlap,
    regions,
    volume,
    whole_window,
)
from benchmarks.graphturbo_batch import planned, ranges
from benchmarks.graphturbo_graphs import along, batched
from benchmarks.graphturbo_times import traffic
from tests.helpers.instances import CLUSTER, image, same

LARGE, SMALL = (1, 16, 64, 64), (1, 16, 32, 32)


def skip():
    """A U: what the first window makes is pooled, and read again beside what comes back up."""
    up = Read("c", (along(0), along(1), along(2, divisor=2), along(3, divisor=2)))
    pooled = Read("a", (along(0), along(1), along(2, 2, 0, 1), along(3, 2, 0, 1)))
    return TensorGraph((TensorNode("x", LARGE, 2, kind=INPUT),
                        TensorNode("a", LARGE, 2, (image("x", LARGE),), 4608, 10**7, "contraction"),
                        TensorNode("b", SMALL, 2, (pooled,), flops=10**5, kind="window"),
                        TensorNode("c", SMALL, 2, (image("b", SMALL),), 4608, 10**6, "contraction"),
                        TensorNode("y", LARGE, 2, (up, same("a", 4)), flops=10**5, output=True)))


def test_a_sub_graph_has_an_output_for_all_that_is_read_elsewhere():
    graph = skip()
    assert outs_of(graph, ("a", "b")) == ("a", "b") and outs_of(graph, ("b", "c")) == ("c",)
    assert follow_dimensions(graph, ("a", "b"))["a"] == {0: 0, 1: 1, 2: 2, 3: 3}
    box = ((0, 1), (0, 16), (8, 16), (0, 32))
    assert shares(graph, ("a", "b"), box) == {"a": ((0, 1), (0, 16), (16, 32), (0, 64))}


def test_an_output_that_a_cut_does_not_move_is_not_shared_out():
    graph = TensorGraph((TensorNode("x", (8, 8), kind=INPUT),
                         TensorNode("a", (8, 8), 1, (same("x", 2),)),
                         TensorNode("b", (8, 8), 1, (Read("a", (along(0), whole_window(8))),)),
                         TensorNode("c", (8, 8), 1, (same("a", 2), same("b", 2)), output=True)))
    assert shares(graph, ("a", "b"), ((0, 8), (0, 4))) is None
    assert shares(graph, ("a", "b"), ((0, 4), (0, 8))) == {"a": ((0, 4), (0, 8))}
    assert best_split(graph, ("a", "b"), 60).d == 1


@pytest.mark.parametrize("runs", [1, 4])
def test_all_outputs_of_all_pieces_are_whole_and_everything_is_computed_before_it_is_read(runs):
    graph = batched(skip(), runs)
    parts = [("a", "b"), ("c",), ("y",)]
    cut = tuple(SubGraph(p[-1], p, SplitInfo(1, 4, 4, ((1, runs),))) for p in parts)
    plan = decide_parts(graph, CLUSTER, MergeRules(several=True), cut)
    pieces = [x for x in plan.instances.instances if x.subgraph == "b"]
    assert len(pieces) == 4 * runs
    for node in "ab":
        boxes = [x.share(node) for x in pieces]
        assert sum(map(volume, boxes)) == volume(graph.node[node].box)
        assert not any(overlap(a, b) for i, a in enumerate(boxes) for b in boxes[:i])
    for x in pieces:
        held = next(h.box for h in plan.held if (h.instance, h.node) == (x.name, "a"))
        for box in (x.share("a"), regions(graph, ("a", "b"), x.box)["a"]):
            assert all(a <= b and c <= d for (b, c), (a, d) in zip(box, held))
    at = {x: i for i, x in enumerate(plan.order)}
    assert all(at[e.producer] < at[e.consumer] for e in plan.instances.edges)
    assert {e.source for e in plan.instances.edges if e.consumer.startswith("y")} == {"a", "c"}
    for x in plan.instances.instances:
        if x.subgraph == "y":
            read = sum(volume(tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(
                x.box, p.share("a")))) for p in pieces if overlap(x.box, p.share("a")))
            assert read == volume(x.box)
    assert {p.name for p in plan.places} >= {f"{x.name}/a" for x in pieces}
    moved = traffic(steps_of_plan(plan, CLUSTER))
    assert moved.get((2, "written", OUTPUTS), 0) == 0
    assert "/a: at" in str(plan)


def test_several_outputs_are_proposed_only_where_they_are_allowed():
    shape = (8, 16)
    graph = TensorGraph((TensorNode("x", shape, kind=INPUT),
                         TensorNode("entry", shape, 1, (same("x", 2),), flops=99),
                         TensorNode("a", shape, 1, (same("entry", 2),)),
                         TensorNode("other", shape, 1, (same("entry", 2),), output=True),
                         TensorNode("b", shape, 1, (same("entry", 2),)),
                         TensorNode("exit", shape, 1, (same("a", 2), same("b", 2)), output=True)))
    judge = SplitJudge(graph, CLUSTER)
    assert len(group(graph, judge, MergeRules())) == 3
    found = group(graph, judge, MergeRules(several=True))
    assert [outs_of(graph, s.members) for s in found] == [("other", "exit")]
    assert "fork" in found[0].why
    plan = decide_instances(graph, CLUSTER, MergeRules(several=True))
    moved = traffic(steps_of_plan(plan, CLUSTER))
    assert moved[2, "written", "results"] == 2 * 128 and (1, "read", OUTPUTS) not in moved


def test_sub_graphs_are_in_topological_order_whatever_their_outputs_positions():
    """What reads an output of a sub-graph may come before that sub-graph's last member."""
    shape = (8, 16)
    graph = TensorGraph((TensorNode("x", shape, kind=INPUT),
                         TensorNode("p", shape, 1, (same("x", 2),)),
                         TensorNode("between", shape, 1, (same("p", 2),)),
                         TensorNode("q", shape, 1, (same("p", 2),)),
                         TensorNode("y", shape, 1, (same("between", 2), same("q", 2)),
                                    output=True)))
    now = MergedSubGraphs(graph)
    now.merge(("p", "q"))
    assert now.outs() == ("q", "between", "y") and now.consumers("q") == ("between", "y")
    assert now.only("q") is None and now.producers("y") == ("between", "q")


def test_what_all_ways_agree_on_is_followed():
    graph = TensorGraph((TensorNode("x", (4, 4), kind=INPUT),
                         TensorNode("a", (4, 4), 1, (same("x", 2),)),
                         TensorNode("b", (4, 4), 1,
                                    (same("a", 2), Read("a", (along(0), along(1, 1, 0, 1)))))))
    assert follow_dimensions(graph, ("a", "b"))["x"] == {0: 0, 1: 1}
    turned = replace(graph.node["b"], reads=(same("a", 2), Read("a", (along(0), whole_window(4)))))
    graph = TensorGraph((*graph.nodes[:2], turned))
    assert follow_dimensions(graph, ("a", "b"))["x"] == {0: 0}


def test_what_runs_next_by_the_runs_that_are_left():
    graph = skip()
    found = [planned(batched(graph, n), CLUSTER, n, 8) for n in (1, 2, 4)]
    given = ranges([replace(b, seconds=s) for b, s in zip(found, (1.0, 1.5, 2.0))])
    assert [(r.first, r.last, r.batch.runs) for r in given] == [(1, 1, 1), (2, 2, 2), (3, None, 4)]
    assert str(given[-1]) == "3.. left: 4 at once"
    given = ranges([replace(b, seconds=s) for b, s in zip(found, (1.0, 3.0, 7.0))])
    assert [(r.first, r.last, r.batch.runs) for r in given] == [(1, None, 1)]


def test_weights_are_kept_as_far_as_there_is_room():
    """What does not fit beside outputs is read once more for each piece, the rest is not."""
    shape = (8, 64, 8, 8)
    graph = TensorGraph((TensorNode("x", shape, kind=INPUT),
                         TensorNode("a", shape, 1, (image("x", shape),), 36864,
                                    10**8, "contraction", output=True)))
    cut = (SubGraph("a", ("a",), SplitInfo(1, 8, 1)),)
    outer = replace(CLUSTER.outer[0], capacity=30000), CLUSTER.outer[1]
    plan = decide_parts(graph, replace(CLUSTER, outer=outer), MergeRules(), cut)
    assert [w.fetched for w in plan.weights] == [36864] + 7 * [36864 - 30000]
    moved = traffic(steps_of_plan(plan, CLUSTER))
    assert moved[2, "read", "weights"] == 36864 + 7 * 6864
    assert moved[1, "read", "weights"] == 8 * 36864
    assert seconds(steps_of_plan(plan, CLUSTER), CLUSTER) > 0


def test_what_no_dimension_carries_is_gathered_from_the_cores():
    """A reader of all of a tensor cannot take its parts from the cores that made them."""
    graph = TensorGraph((TensorNode("x", (8, 8), kind=INPUT),
                         TensorNode("a", (8, 8), 1, (same("x", 2),)),
                         TensorNode("b", (8, 8), 1,
                                    (Read("a", (whole_window(8), whole_window(8))),), output=True)))
    cut = tuple(SubGraph(n, (n,), SplitInfo(1, 1, 1)) for n in "ab")
    plan = decide_parts(graph, CLUSTER, MergeRules(), cut)
    assert plan.bound.bind["a.0"] == (8, 1) and plan.homes.level["a.0"] == 0
    assert [(m.kind, m.sources, m.bind) for m in plan.moves] == [
        ("redistribute", ("a.0",), (1, 1))]
