"""Inputs that say shapes, of which declared outputs leave one value."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import aotc
from aotc.errors import UnsupportedError
from aotc.runtime.status import RunError

node = helper.make_node
F32, I64 = TensorProto.FLOAT, TensorProto.INT64


def model_of(nodes, shape):
    info = helper.make_tensor_value_info
    return helper.make_model(helper.make_graph(
        nodes, "settled", [info("size", I64, [3]), info("x", F32, [1])], [info("y", F32, shape)]),
        opset_imports=[helper.make_opsetid("", 20)])


NODES = [node("Slice", ["size", "one", "three"], ["part"]),
         node("Constant", [], ["one"], value_ints=[1]), node("Constant", [], ["three"],
                                                             value_ints=[3]),
         node("ConstantOfShape", ["part"], ["zeros"]),
         node("Transpose", ["zeros"], ["turned"], perm=[1, 0]),
         node("Sub", ["x", "turned"], ["y"])]


def test_the_declared_output_decides(tmp_path):
    bundle = aotc.compile(model_of(NODES, [4, 2]), tmp_path / "b", target="c").load()
    x = np.ones(1, np.float32)
    for first in (0, 17):  # which decides nothing
        got = bundle.run({"size": np.array([first, 2, 4]), "x": x})["y"]
        np.testing.assert_array_equal(got, np.ones((4, 2), np.float32))
    with pytest.raises(RunError, match="size.*an element that the declared outputs decide is 3"):
        bundle.run({"size": np.array([1, 2, 3]), "x": x})


def test_what_they_leave_open_is_refused(tmp_path):
    nodes = [*NODES[:3], node("Reshape", ["x", "part"], ["turned"]),
             node("ReduceSum", ["turned"], ["total"], keepdims=0),
             node("Sub", ["x", "total"], ["y"])]
    with pytest.raises(UnsupportedError, match="Reshape.*depends on data"):
        aotc.compile(model_of(nodes, [1]), tmp_path / "never", target="c")
