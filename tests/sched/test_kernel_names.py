"""Names of kernels: what they do and where in the model."""

import re

import numpy as np
import onnx
import onnx.helper as oh
import pytest

from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.sched.lowering.kernel_names import LONGEST


def kernels_of(nodes, consts=()):
    """Names of the kernels of a chain of nodes on a tensor [4, 8], every one a kernel."""
    made = [onnx.numpy_helper.from_array(np.full((8, 8), i, np.float32), n)
            for i, n in enumerate(consts, 1)]
    shape = oh.make_tensor_value_info("x", 1, (4, 8)), oh.make_tensor_value_info("y", 1, (4, 8))
    graph = oh.make_graph(nodes, "g", [shape[0]], [shape[1]], made)
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)
    work = run_pipeline(Options(source=model, out="unused", target="c", connect="none",
                                stop_after="plan"))
    return [k.name for k in work.plans.alternatives[0].plan.kernels]


def test_paths_of_nodes_say_where_and_their_last_words_what():
    nodes = [oh.make_node("MatMul", ["x", "w"], ["a"], "/m/layer1/layer1.0/fc/MatMul"),
             oh.make_node("Relu", ["a"], ["b"], "/m/layer1/layer1.0/act/Relu"),
             oh.make_node("MatMul", ["b", "v"], ["y"], "/m/head/MatMul_2")]
    assert kernels_of(nodes, ("w", "v")) == ["k000_layer1_0_fc_matmul", "k001_layer1_0_act_relu",
                                             "k002_head_matmul"]


def test_weights_say_where_if_nodes_do_not():
    nodes = [oh.make_node("MatMul", ["x", "m.enc.0.out.weight"], ["a"], "node_MatMul_1"),
             oh.make_node("Exp", ["a"], ["b"], "node_exp"),
             oh.make_node("MatMul", ["b", "m.dec.1.out.weight"], ["y"], "node_MatMul_2")]
    names = kernels_of(nodes, ("m.enc.0.out.weight", "m.dec.1.out.weight"))
    assert names == ["k000_enc0_out_matmul", "k001_exp",
                     "k002_dec1_out_matmul"]


def test_scores_between_two_products_are_attention():
    nodes = [oh.make_node("MatMul", ["x", "w"], ["a"], "a"),
             oh.make_node("Softmax", ["a"], ["b"], "b"),
             oh.make_node("MatMul", ["b", "w"], ["y"], "c")]
    made = onnx.numpy_helper.from_array(np.ones((8, 8), np.float32), "w")
    shape = oh.make_tensor_value_info("x", 1, (4, 8)), oh.make_tensor_value_info("y", 1, (4, 8))
    graph = oh.make_graph(nodes, "g", [shape[0]], [shape[1]], [made])
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)
    work = run_pipeline(Options(source=model, out="unused", target="x86-64-v3", stop_after="plan"))
    assert [k.name for k in work.plans.alternatives[0].plan.kernels] == ["k000_attention"]


@pytest.mark.parametrize("label", ["*/ int main() {", "../../etc/passwd", "é/ü/ß", "/" * 300,
                                   "a/" * 200 + "b", "7" * 90, "", "x.y.z" * 40])
def test_any_text_makes_a_short_name_in_c(label):
    name, = kernels_of([oh.make_node("Relu", ["x"], ["y"], label)])
    assert re.fullmatch(r"k000(_[a-z0-9]+)*", name) and len(name) <= 5 + LONGEST
