"""Sparse tensors: initializers, also of sub-graphs, and values of Constant."""

import numpy as np
import pytest
from frontend_cases import by_onnxruntime, helper, numpy_helper, program_of, run, same
from onnx import TensorProto

from aotc.errors import ModelError, UnsupportedError

F = np.float32
X = np.arange(8, dtype=F).reshape(2, 4)
VALUES = np.array([1, -2, 3], F)
PLACES = {"linear": np.array([0, 5, 11]), "by_axis": np.array([[0, 0], [1, 2], [3, 2]]),
          "in_no_order": np.array([0, 11, 5])}


def sparse(values, places, shape, name="w"):
    return helper.make_sparse_tensor(numpy_helper.from_array(values, name),
                                     numpy_helper.from_array(np.asarray(places), f"{name}_at"),
                                     shape)


def model_of(nodes, held=()):
    graph = helper.make_graph(
        nodes, "sparse", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], sparse_initializer=held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


PRODUCT = helper.make_node("MatMul", ["x", "w"], ["y"])


@pytest.mark.parametrize("how", PLACES)
def test_initializers(how):
    model = model_of([PRODUCT], [sparse(VALUES, PLACES[how], [4, 3])])
    wanted = np.zeros(12, F)
    wanted[[0, 11, 5] if how == "in_no_order" else [0, 5, 11]] = VALUES
    got = run(program_of(model), {"x": X})
    same(got, [X @ wanted.reshape(4, 3)])
    if how != "in_no_order":
        same(got, by_onnxruntime(model, {"x": X}))


def test_one_without_values_is_zero():
    model = model_of([PRODUCT], [sparse(VALUES[:0], np.zeros(0, np.int64), [4, 3])])
    same(run(program_of(model), {"x": X}), [np.zeros((2, 3), F)])


def test_values_of_constants_and_of_sub_graphs():
    constant = helper.make_node("Constant", [], ["w"],
                                sparse_value=sparse(VALUES, PLACES["linear"], [4, 3]))
    model = model_of([constant, PRODUCT])
    same(run(program_of(model), {"x": X}), by_onnxruntime(model, {"x": X}))

    def branch(name, values):
        made = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        return helper.make_graph([helper.make_node("MatMul", ["x", "w"], [name])], name, [], [made],
                                 sparse_initializer=[sparse(values, PLACES["linear"], [4, 3])])
    nodes = [helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
             helper.make_node("Constant", [], ["five"], value_float=5.0),
             helper.make_node("Greater", ["most", "five"], ["large"]),
             helper.make_node("If", ["large"], ["y"], then_branch=branch("a", VALUES),
                              else_branch=branch("b", -VALUES))]
    for x in (X, X - 4):
        model = model_of(nodes)
        same(run(program_of(model), {"x": x}), by_onnxruntime(model, {"x": x}))


@pytest.mark.parametrize("held, error, words", [
    (sparse(VALUES, np.array([0, 5, 12]), [4, 3]), ModelError, "outside of its shape"),
    (sparse(VALUES, np.array([-1, 5, 11]), [4, 3]), ModelError, "outside of its shape"),
    (sparse(VALUES, np.array([[0, 3]] * 3), [4, 3]), ModelError, "outside of its shape"),
    (sparse(VALUES, np.array([0, 5]), [4, 3]), ModelError, r"indices of shape \[2\] for 3 values"),
    (sparse(VALUES, np.array([[0, 5, 1]] * 3), [4, 3]), ModelError, "indices of shape"),
    (sparse(VALUES, np.array([0, 5, 11]), [1 << 20, 1 << 12]), UnsupportedError, "more than 2 GB"),
])
def test_what_is_none(held, error, words):
    with pytest.raises(error, match=f"sparse initializer 'w'.*{words}"):
        program_of(model_of([PRODUCT], [held]))
