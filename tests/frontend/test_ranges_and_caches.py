"""Positions that begin where data says, caches that are empty at first, conditions of any rank."""

import numpy as np
import pytest
from frontend_cases import by_onnxruntime, program_of, rand, run
from onnx import TensorProto, helper, numpy_helper

from aotc.errors import FaultError

node, info = helper.make_node, helper.make_tensor_value_info
F32, F16, I32, I64, BOOL = (getattr(TensorProto, n) for n in (
    "FLOAT", "FLOAT16", "INT32", "INT64", "BOOL"))
CONSTANTS = {"zero": np.array([0]), "first": np.array(0), "one": np.array(1), "last": np.array([1]),
             "one32": np.int32(1), "onef": np.float32(1), "rows": np.array([-1, 3]),
             "three": np.array([3]), "scale": np.float32(1), "two": np.array(2)}


def model_of(nodes, inputs, shape):
    graph = helper.make_graph(
        nodes, "small", [info(n, t, s) for n, (t, s) in inputs.items()], [info("y", F32, shape)],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in CONSTANTS.items()])
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])


LENGTH = [node("Shape", ["x"], ["s"]), node("Gather", ["s", "first"], ["n"])]
ADDED = [node("Cast", ["r"], ["rf"], to=F32), node("Unsqueeze", ["rf", "last"], ["u"]),
         node("Add", ["x", "u"], ["y"])]
POSITIONS = {
    "i64": [*LENGTH, node("Add", ["p", "n"], ["e"]), node("Range", ["p", "e", "one"], ["r"])],
    "turned": [*LENGTH, node("Add", ["n", "p"], ["e0"]), node("Add", ["e0", "one"], ["e"]),
               node("Add", ["p", "one"], ["b"]), node("Range", ["b", "e", "one"], ["r"])],
    "i32": [*LENGTH, node("Cast", ["p"], ["q"], to=I32), node("Cast", ["n"], ["m"], to=I32),
            node("Add", ["q", "m"], ["e"]), node("Range", ["q", "e", "one32"], ["r"])],
    "f32": [*LENGTH, node("Cast", ["p"], ["q"], to=F32), node("Cast", ["n"], ["m"], to=F32),
            node("Add", ["q", "m"], ["e"]), node("Range", ["q", "e", "onef"], ["r"])],
    "by_two": [*LENGTH, node("Add", ["n", "n"], ["nn"]), node("Add", ["p", "nn"], ["e"]),
               node("Range", ["p", "e", "two"], ["r"])],
}


@pytest.mark.parametrize("form", POSITIONS)
def test_a_range_from_a_place_that_data_says(form):
    model = model_of([*POSITIONS[form], *ADDED], {"x": (F32, ["n", 3]), "p": (I64, [])}, None)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    program = program_of(model)
    for n, p in (1, 0), (4, 7), (5, -2):
        feeds = {"x": rand(n, 3), "p": np.array(p)}
        np.testing.assert_array_equal(run(program, feeds)[0], by_onnxruntime(model, feeds)[0])


def test_a_start_that_rounds_gives_another_number_which_is_a_fault():
    nodes = [*LENGTH, node("Cast", ["n"], ["m"], to=F32), node("Add", ["p", "m"], ["e"]),
             node("Range", ["p", "e", "onef"], ["r"]), *ADDED]
    program = program_of(model_of(nodes, {"x": (F32, ["n", 3]), "p": (F32, [])}, ["n", 3]))
    np.testing.assert_array_equal(run(program, {"x": np.zeros((4, 3), "f4"), "p": np.float32(
        0.5)})[0][:, 0], [0.5, 1.5, 2.5, 3.5])
    with pytest.raises(FaultError, match="there must be n elements, their number is 4, not 3"):
        # 2 ** 25 + 3 is 2 ** 25 + 4 in f32
        run(program, {"x": np.zeros((3, 3), "f4"), "p": np.float32(2.0**25)})


CACHES = {
    "as_it_is": (F32, [node("Identity", ["c"], ["k"])]),
    "f16": (F16, [node("Cast", ["c"], ["k"], to=F32)]),
    "turned": (F16, [node("Transpose", ["c"], ["c1"], perm=[1, 0]), node(
        "Cast", ["c1"], ["c2"], to=F32), node("Transpose", ["c2"], ["k"], perm=[1, 0])]),
    "reshaped": (F16, [node("Cast", ["c"], ["c1"], to=F32), node("Reshape", ["c1", "rows"],
                                                                 ["k"])]),
    "cut": (F16, [node("Cast", ["c"], ["c1"], to=F32),
                  node("Slice", ["c1", "zero", "three", "last"], ["k"])]),
    "scaled": (F32, [node("Mul", ["c", "scale"], ["k"])]),
}


@pytest.mark.parametrize("form", CACHES)
def test_a_cache_of_length_0(form):
    kind, nodes = CACHES[form]
    program = program_of(model_of([*nodes, node("Concat", ["k", "x"], ["y"], axis=0)],
                                  {"x": (F32, ["n", 3]), "c": (kind, ["past", 3])}, None))
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    for past in 0, 2:
        x, c = rand(4, 3), rand(past, 3).astype(dtype)
        np.testing.assert_array_equal(run(program, {"x": x, "c": c})[0], np.concatenate(
            [c.astype(np.float32), x]))


def test_a_condition_of_one_element_has_any_rank():
    def branch(op):
        return helper.make_graph([node(op, ["x"], [op])], op, [], [info(op, F32, ["n", 3])])
    nodes = [node("Slice", ["flags", "zero", "last"], ["flag"]),
             node("If", ["flag"], ["y"], then_branch=branch("Relu"), else_branch=branch("Neg"))]
    for shape in (["k"], [1, "k"]):
        flags = np.ones([1] * len(shape), bool)
        program = program_of(model_of(nodes, {"x": (F32, ["n", 3]), "flags": (BOOL, shape)}, None))
        x = rand(2, 3)
        for value in True, False:
            got = run(program, {"x": x, "flags": flags & value})[0]
            np.testing.assert_array_equal(got, np.maximum(x, 0) if value else -x)
