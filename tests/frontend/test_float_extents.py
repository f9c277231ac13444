"""Float arithmetic on extents rounds as the model says it, at every extent."""

import numpy as np
import pytest
from frontend_cases import by_onnxruntime, program_of, run
from onnx import TensorProto, helper, numpy_helper

node, info = helper.make_node, helper.make_tensor_value_info


def model_of(steps, extents=("n",)):
    """As many ones as ``steps``, nodes from n (f32, the number of x's elements) to k (f32)."""
    constants = {"five": np.float32(5), "two": np.float32(2), "tenth": np.float32(0.1),
                 "most": np.float32(37)}
    graph = helper.make_graph(
        [node("Size", ["x"], ["size"]), node("Cast", ["size"], ["n"], to=TensorProto.FLOAT), *steps,
         node("Cast", ["k"], ["whole"], to=TensorProto.INT64),
         node("Reshape", ["whole", "row"], ["shape"]), node("ConstantOfShape", ["shape"], ["y"])],
        "floats", [info("x", TensorProto.FLOAT, extents)], [info("y", TensorProto.FLOAT, [None])],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
        + [numpy_helper.from_array(np.array([1]), "row")])
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])


LOG = node("Log", ["n"], ["l"])
FORMS = {
    "ceil_log": [LOG, node("Ceil", ["l"], ["c"]), node("Mul", ["c", "five"], ["k"])],
    "log_2": [LOG, node("Log", ["two"], ["l2"]), node("Div", ["l", "l2"], ["d"]),
              node("Floor", ["d"], ["k"])],
    "rounded_log": [LOG, node("Mul", ["l", "five"], ["m"]), node("Round", ["m"], ["k"])],
    "least": [LOG, node("Mul", ["five", "l"], ["m"]), node("Min", ["m", "n"], ["k"])],
    "root": [node("Sqrt", ["n"], ["s"]), node("Mul", ["s", "two"], ["m"]),
             node("Ceil", ["m"], ["k"])],
    "tenth_of_root": [node("Sqrt", ["n"], ["s"]), node("Mul", ["tenth", "s"], ["m"]),
                      node("Ceil", ["m"], ["k"])],
    "log_of_root": [node("Sqrt", ["n"], ["s"]), node("Log", ["s"], ["m"]),
                    node("Ceil", ["m"], ["k"])],
    "falls": [LOG, node("Sub", ["most", "l"], ["m"]), node("Floor", ["m"], ["k"])],
}
COUNTS = (*range(1, 70), 99, 100, 127, 128, 129, 403, 404, 1000, 1024, 4096, 8103, 8104)


@pytest.mark.parametrize("form", FORMS)
def test_functions_of_an_extent(form):
    model = model_of(FORMS[form])
    program = program_of(model)
    for n in COUNTS:
        feeds = {"x": np.zeros(n, np.float32)}
        assert run(program, feeds)[0].shape == by_onnxruntime(model, feeds)[0].shape, n


def test_functions_of_a_product_of_extents_and_of_a_given_range():
    model = model_of(FORMS["ceil_log"], ("b", "l"))
    for dims in None, {"b": (1, 3), "l": (2, 64)}:
        program = program_of(model, dims)
        for shape in (1, 2), (2, 4), (3, 64):
            feeds = {"x": np.zeros(shape, np.float32)}
            assert run(program, feeds)[0].shape == by_onnxruntime(model, feeds)[0].shape
    # neither rises nor falls: what a short range has of it is known
    model = model_of([LOG, node("Div", ["n", "l"], ["d"]), node("Floor", ["d"], ["k"])])
    program = program_of(model, {"n": (2, 60)})
    for n in range(2, 61):
        feeds = {"x": np.zeros(n, np.float32)}
        assert run(program, feeds)[0].shape == by_onnxruntime(model, feeds)[0].shape, n
