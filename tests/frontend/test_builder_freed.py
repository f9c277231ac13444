"""A Builder goes with its last reference: constants of gigabytes do not wait for the collector."""

import gc
import weakref

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from aotc.frontend import load_model, read_graph
from aotc.frontend.building.convert import build


def _model():
    """y[2,4] = x[2,3] w[3,4] + 1"""
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
             for n, s in (("x", (2, 3)), ("y", (2, 4)))]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]),
             helper.make_node("Add", ["p", "c"], ["y"])]
    consts = [numpy_helper.from_array(np.ones(s, np.float32), n)
              for n, s in (("w", (3, 4)), ("c", ()))]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], consts)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def test_a_builder_is_let_go_without_the_collector():
    graph = read_graph(load_model(_model()))
    gc.collect()
    gc.disable()
    try:
        b = build(graph)
        gone = weakref.ref(b)
        del b
        assert gone() is None
    finally:
        gc.enable()
