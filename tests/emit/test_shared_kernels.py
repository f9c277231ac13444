"""Kernels share a function if they differ in nothing but the tensors they touch."""

import re

import numpy as np
import pytest
from onnx import TensorProto, helper

from aotc import compile as compile_model
from aotc import load
from aotc.ir.contents import buffers_in, with_buffers
from aotc.ir.expr import Axis, Const, Load, Var
from aotc.ir.statements import Accumulate, Box, Copy, Put, Store


def two_folds(first, second):
    """Two reductions of matrices of one shape, whose tensors may have the names of folds."""
    ops = {"sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd"}
    make = helper.make_tensor_value_info
    nodes = [helper.make_node(ops[f], [f, "axes"], [f"{f}_y"], keepdims=0) for f in (first, second)]
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
    graph = helper.make_graph(
        nodes, "folds", [make(f, TensorProto.FLOAT, [6, 40]) for f in (first, second)],
        [make(f"{f}_y", TensorProto.FLOAT, [6]) for f in (first, second)], [axes])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("target", [pytest.param("c", marks=pytest.mark.product), "native"])
@pytest.mark.parametrize("folds", [("sum", "max"), ("min", "max"), ("prod", "sum")])
def test_tensors_called_like_folds(folds, target, tmp_path):
    compile_model(two_folds(*folds), tmp_path / "b", target=target)
    rng = np.random.default_rng()
    feeds = {f: rng.standard_normal((6, 40)).astype(np.float32) for f in folds}
    right = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}
    for name, got in load(tmp_path / "b").run(feeds).items():
        fold = name.removesuffix("_y")
        np.testing.assert_allclose(got, right[fold](feeds[fold], axis=1), rtol=1e-5, atol=1e-6)


def test_equal_kernels_are_one_function_whatever_their_tensors_are_called(tmp_path):
    """Two sums over an axis of tensors of one shape."""
    model = two_folds("sum", "max")
    for node in model.graph.node:
        node.op_type = "ReduceSum"
    compile_model(model, tmp_path / "b", target="c")
    text = "".join(p.read_text() for p in sorted((tmp_path / "b").glob("*_kernels_*.c")))
    assert len(re.findall(r"void \w+_k\d+_\w+_body\(", text)) == 1


def test_only_buffers_are_renamed():
    i = Axis("sum", Const(4))
    body = (Accumulate("sum", ((Var("sum", "f32"), Load("sum", (i,), "f32")),)),
            Store((Put("max", i, Var("sum", "f32")),)),
            Copy(Box("run", Const(0)), Box("sum", Const(0)), (Const(4),), "f32", "run"))
    assert list(buffers_in(body)) == ["sum", "max", "run"]
    new = with_buffers(body, {"sum": "x", "max": "y", "run": "z"})
    assert list(buffers_in(new)) == ["x", "y", "z"]
    assert new[0].fold == "sum" and new[0].steps[0][0] == Var("sum", "f32")
    assert new[2].form == "run"
    assert with_buffers(new, {"x": "sum", "y": "max", "z": "run"}) == body
