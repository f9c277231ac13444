"""Shapes and axes that are inputs of the model: the declared shape of the result says what they
can be, and the data picks among what is left open."""

import numpy as np
import pytest
from frontend_cases import helper, one_node, onnx, program_of, rand, run, same
from onnx.reference import ReferenceEvaluator

from aotc.errors import FaultError, UnsupportedError


def declared(op, arrays, shapes, attrs=None, opset=18):
    """A node whose parameters are inputs and whose outputs have declared shapes."""
    model, feeds = one_node(op, arrays, attrs, (), len(shapes), opset)
    for info, shape in zip(model.graph.output, shapes):
        elem = helper.np_dtype_to_tensor_dtype(arrays[0].dtype)
        info.CopyFrom(helper.make_tensor_value_info(info.name, elem, shape))
    return model, feeds


I64 = np.int64
CASES = {
    "reshape": ("Reshape", [rand(2, 6), np.array([3, -1])], [(3, 4)], {}),
    "expand": ("Expand", [rand(3, 1), np.array([2, 1, 4])], [(2, 3, 4)], {}),
    "tile": ("Tile", [rand(2, 3), np.array([2, 1])], [(4, 3)], {}),
    "split": ("Split", [rand(6), np.array([2, 4])], [(2,), (4,)], {}),
    "pad": ("Pad", [rand(3, 4), np.array([1, 0, 2, 1])], [(6, 5)], {}),
    "trilu": ("Trilu", [rand(4, 5), np.array(-1)], [(4, 5)], dict(upper=0)),
    "unsqueeze": ("Unsqueeze", [rand(3, 4), np.array([-1, 0])], [(1, 3, 4, 1)], {}),
    "squeeze": ("Squeeze", [rand(3, 1, 4, 1), np.array([1])], [(3, 4, 1)], {}),
    "reduce": ("ReduceSum", [rand(3, 4, 5), np.array([1])], [(3, 1, 5)], {}),
    "slice": ("Slice", [rand(9, 8), np.array([8, 1]), np.array([-100, 7]), np.array([0, -1]),
                        np.array([-2, 3])], [(5, 2)], {}),
    "slice_axes": ("Slice", [rand(4, 5, 6), np.array([1]), np.array([4]), np.array([-2])],
                   [(4, 3, 6)], {}),
    "pad_axes": ("Pad", [rand(3, 4, 5), np.array([1, 2]), None, np.array([-1])], [(3, 4, 8)], {}),
    "range": ("Range", [np.float32(1), np.float32(3.1), np.float32(0.5)], [(5,)], {}),
    "range_down": ("Range", [np.int64(10), np.int64(1), np.int64(-4)], [(3,)], {}),
    "centre": ("CenterCropPad", [rand(5, 8, 3), np.array([8, 5])], [(8, 5, 3)], dict(axes=[0, 1])),
    "cumsum": ("CumSum", [rand(3, 4), np.array(-1)], [(3, 4)], {}),
}


@pytest.mark.parametrize("case", CASES)
def test_parameter_is_an_input(case):
    op, arrays, shapes, attrs = CASES[case]
    model, feeds = declared(op, arrays, shapes, attrs)
    same(run(program_of(model), feeds), ReferenceEvaluator(model).run(None, feeds))


@pytest.mark.parametrize("axes", ([0, 1], [1, 0], [-2, 0], [0, 2], [2, 1], [-1, -2]))
def test_data_picks_among_axes_that_the_shape_leaves_open(axes):
    model, feeds = declared("ReduceMax", [rand(3, 3, 3), np.array(axes)], [(3,)],
                            dict(keepdims=0))
    same(run(program_of(model), feeds), ReferenceEvaluator(model).run(None, feeds))


def test_axes_that_contradict_the_declared_shape_are_a_fault():
    model, feeds = declared("ReduceMax", [rand(3, 4, 3), np.array([0])], [(4, 3)],
                            dict(keepdims=0))
    program = program_of(model)  # only axis 0 leaves (4, 3)
    assert len(program.steps) == 2
    run(program, feeds)
    with pytest.raises(FaultError, match=r"the_node \(ReduceMax\).*\[0\]"):
        run(program, feeds | {"in1": np.array([1])})
    model, feeds = declared("ReduceMax", [rand(3, 3, 4), np.array([2])], [(3, 4)],
                            dict(keepdims=0))
    with pytest.raises(FaultError):
        run(program_of(model), feeds)


def test_without_a_declared_shape_the_message_says_what_to_do():
    model, _ = one_node("ReduceMax", [rand(3, 3), np.array([0])])
    with pytest.raises(UnsupportedError, match="make it a constant"):
        program_of(model)
    model, _ = one_node("Reshape", [rand(3, 4), np.array([4, 3])])
    with pytest.raises(UnsupportedError, match="declare the shape of the result"):
        program_of(model)
    assert isinstance(model, onnx.ModelProto)
