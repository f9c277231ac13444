"""Whole decisions: graphs from Programs, what a plan promises, steps and their traffic."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from aotc.ir.read_boxes import read_intervals
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.sched.accelerator.instances.decide_instances import decide_instances, decide_parts
from aotc.sched.accelerator.instances.from_program import from_program
from aotc.sched.accelerator.instances.grouping import PAPER, MergeRules
from aotc.sched.accelerator.instances.instances import SubGraph
from aotc.sched.accelerator.instances.split import SplitInfo
from aotc.sched.accelerator.instances.steps import seconds, steps_of_plan
from aotc.sched.accelerator.instances.tensor_graph import (
    INPUT,
    TensorGraph,
    TensorNode,
    overlap,
    region,
    regions,
    volume,
)
from benchmarks.graphturbo_batch import choose_batch, planned
from benchmarks.graphturbo_graphs import batched
from benchmarks.graphturbo_times import layer_by_layer, task_times, traffic
from tests.helpers.instances import CLUSTER, image, network


def model():
    """Two convolutions, a residual sum, a concatenation and a pool: every kind of window."""
    rng = np.random.default_rng(0)
    consts = [numpy_helper.from_array(rng.standard_normal(s).astype("f"), n) for n, s in (
        ("w0", (16, 3, 3, 3)), ("w1", (16, 16, 3, 3)), ("w2", (10, 32)))]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "w1"], ["b"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Concat", ["a", "d"], ["e"], axis=1),
        helper.make_node("GlobalAveragePool", ["e"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "w2"], ["y"], transB=1)]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 32, 32))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 10))], consts)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.fixture(scope="module")
def program():
    return run_pipeline(Options(model(), None, "c", "m", stop_after="inline")).program


@pytest.fixture(scope="module")
def graph(program):
    return from_program(program, {"f32": 2})


def test_a_program_as_a_graph(program, graph):
    by_name = graph.node
    first = next(n for n in graph.computed if n.weights)
    assert first.shape == (1, 16, 16, 16) and first.weights == 16 * 27 * 2
    assert first.flops >= 2 * 27 * first.bytes // 2 and first.kind == "contraction"
    assert sum(n.output for n in graph.nodes) == 1 and by_name["x"].bytes == 3 * 32 * 32 * 2
    box = ((0, 1), (0, 16), (4, 8), (0, 16))
    assert region(graph, first.name, "x", box) == (((0, 1), (0, 3), (7, 16), (0, 32)),)


def test_windows_say_what_the_one_analysis_of_reads_says(program, graph):
    for c in program.steps:
        if c.out not in graph.node or set(c.inputs) - set(program.consts) - set(graph.node):
            continue
        node = graph.node[c.out]
        box = tuple((n // 3, max(n // 3 + 1, n * 2 // 3)) for n in node.shape)
        ends = read_intervals(c, {a: (a.extent * 0 + lo, a.extent * 0 + hi - 1)
                                  for a, (lo, hi) in zip(c.axes, box)}, program.shape)
        for source in node.sources:
            found = region(graph, c.out, source, box)
            want = tuple((lo.value, hi.value + 1) for lo, hi in ends[source])
            assert (want in found) if found else not all(a < b for a, b in want)


def test_several_runs_are_independent(graph):
    many = batched(graph, 4)
    assert all(n.shape[0] == 4 for n in many.nodes)
    assert sum(n.flops for n in many.nodes) == 4 * sum(n.flops for n in graph.nodes)
    assert sum(n.weights for n in many.nodes) == sum(n.weights for n in graph.nodes)
    last = many.nodes[-1]
    box = ((2, 3), *last.box[1:])
    assert all(b[0] == (2, 3) for s in last.sources for b in region(many, last.name, s, box))


@pytest.mark.parametrize("rules", [MergeRules(PAPER), MergeRules()])
def test_a_plan_computes_everything_in_an_order_that_works(graph, rules):
    many = batched(graph, 8)
    plan = decide_instances(many, CLUSTER, rules)
    for part in plan.subgraphs:
        boxes = [x.box for x in plan.instances.instances if x.subgraph == part.name]
        assert sum(map(volume, boxes)) == volume(many.node[part.out].box)
        assert not any(overlap(a, b) for i, a in enumerate(boxes) for b in boxes[:i])
    at = {x: i for i, x in enumerate(plan.order)}
    assert all(at[e.producer] < at[e.consumer] for e in plan.instances.edges)
    for level, peak in enumerate(plan.homes.peak):
        assert peak <= CLUSTER.capacity(level)
    assert str(plan) == str(decide_instances(many, CLUSTER, rules))
    assert sum(plan.uses()) == sum(not many.node[h.node].output for h in plan.held)


def test_everything_that_fits_stays_in_the_near_memory():
    plan = decide_instances(network(), CLUSTER)
    assert plan.uses()[-1] == 0 and "split:" in str(plan)


def test_steps_move_less_than_layer_by_layer_and_overlap(graph):
    many = batched(graph, 8)
    steps = steps_of_plan(decide_instances(many, CLUSTER), CLUSTER)
    layers = layer_by_layer(many, CLUSTER)
    moved, before = traffic(steps), traffic(layers)
    assert moved[2, "read", "inputs"] >= many.node["x"].bytes
    assert moved.get((2, "written", "outputs"), 0) < before[2, "written", "outputs"] / 10
    assert before[2, "written", "outputs"] == sum(n.bytes for n in many.computed if not n.output)
    found = task_times(steps, CLUSTER)
    assert sum(s.seconds for s in steps) <= found.seconds <= 2 * seconds(steps, CLUSTER)
    assert all(x <= 1 for x in found.busy.values())
    held = {n.name: 1 for n in many.computed}
    assert seconds(layer_by_layer(many, CLUSTER, held), CLUSTER) < seconds(layers, CLUSTER)


def test_the_chosen_batch_is_near_the_best_of_all(graph):
    found = choose_batch(lambda n: batched(graph, n), CLUSTER, 12)
    every = [planned(batched(graph, n), CLUSTER, n, 12).each for n in (1, 2, 3, 4, 6, 12)]
    assert found[0].each <= 1.03 * min(every)
    assert found[0].runs * found[0].rounds == 12 and "runs at once" in str(found[0])


def test_weights_come_once_as_long_as_there_is_room():
    shape = (8, 64, 8, 8)
    first = TensorNode("a", shape, 1, (image("x", shape),), 36864, 10**8, "contraction",
                       shared=(1,))
    graph = TensorGraph((TensorNode("x", shape, kind=INPUT), first,
                         replace(first, name="b", reads=(image("a", shape),), output=True)))
    cut = tuple(SubGraph(n, (n,), SplitInfo(1, 8, 1)) for n in "ab")
    plan = decide_parts(graph, CLUSTER, MergeRules(), cut)
    assert len(plan.weights) == 16 and sum(bool(w.fetched) for w in plan.weights) == 2
    outer = replace(CLUSTER.outer[0], capacity=72000), CLUSTER.outer[1]
    tight = decide_parts(graph, replace(CLUSTER, outer=outer), MergeRules(), cut)
    assert sum(bool(w.fetched) for w in tight.weights) == 2  # not both at once: one after the other
    assert tight.ordered[0].how != "depth first"


def test_what_up_sampling_reads_is_a_part_too():
    rng = np.random.default_rng(0)
    weights = numpy_helper.from_array(rng.standard_normal((8, 4, 2, 2)).astype("f"), "w")
    nodes = [helper.make_node("ConvTranspose", ["x", "w"], ["u"], strides=[2, 2]),
             helper.make_node("Relu", ["u"], ["y"])]
    inputs, outputs = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (
        ("x", (1, 8, 8, 8)), ("y", (1, 4, 16, 16))))
    made = helper.make_model(helper.make_graph(nodes, "g", [inputs], [outputs], [weights]),
                             opset_imports=[helper.make_opsetid("", 17)])
    graph = from_program(run_pipeline(Options(made, None, "c", "m", stop_after="inline")).program)
    last = graph.nodes[-1]
    found = regions(graph, [n.name for n in graph.computed],
                    ((0, 1), (0, 2), (3, 6), (10, 12)))["x"]
    assert last.shape == (1, 4, 16, 16) and found == ((0, 1), (0, 8), (1, 3), (5, 6))
