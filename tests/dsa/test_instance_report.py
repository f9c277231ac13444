"""``aotc show MODEL schedule`` explains sub-graph instances where clusters have a memory."""

import json

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from aotc.sched.accelerator.instances.decide_instances import decide_instances
from aotc.sched.accelerator.places.instance_report import plan_data
from aotc.tools.show import show_stage
from benchmarks.graphturbo_graphs import batched
from tests.helpers.instances import CLUSTER, network


def model():
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal(s).astype("f"), n)
               for n, s in (("w", (64, 32)), ("v", (32, 64)))]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
             helper.make_node("MatMul", ["b", "v"], ["y"])]
    inputs, outputs = (helper.make_tensor_value_info(n, TensorProto.FLOAT, (16, 64))
                       for n in "xy")
    return helper.make_model(helper.make_graph(nodes, "g", [inputs], [outputs], weights),
                             opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize("connect, rules", [("all", "cost"), ("graphturbo", "paper")])
def test_show_says_where_tensors_live_and_why(connect, rules):
    text = show_stage(model(), "schedule", "dsa:stcp920", connect=connect)
    assert f"sub-graph instances (rules: {rules})" in text and "runs at 0" in text
    assert "in DDR: the caller reads it" in text and "  order: " in text
    data = json.loads(show_stage(model(), "schedule", "dsa:stcp920", as_json=True,
                                 connect=connect))["summary"]["instances"]
    assert data["rules"] == rules and data["sub_graphs"][0]["instances"] >= 1
    assert {t["name"] for s in data["sub_graphs"] for t in s["tensors"]} >= {"y"}


def test_other_machines_have_nothing_to_say():
    assert "instances" not in show_stage(model(), "schedule", "c")


def test_everything_of_a_plan_is_said():
    plan = decide_instances(batched(network(), 2), CLUSTER)
    data = plan_data(plan, [m.name for m in CLUSTER.memories])
    assert sum(s["instances"] for s in data["sub_graphs"]) == len(plan.order)
    run = [i for s in data["sub_graphs"] for a, b in s["run_at"] for i in range(a, b + 1)]
    assert sorted(run) == list(range(len(plan.order)))
    held = sum(n for s in data["sub_graphs"] for t in s["tensors"] for n in t["lives"].values())
    assert held == len(plan.held) and set(data["most_bytes"]) == {"lb", "gb", "ddr"}
    assert all(t["why"] for s in data["sub_graphs"] for t in s["tensors"])
