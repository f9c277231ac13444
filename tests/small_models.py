"""Small ONNX models that several test files compile."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper


def make_model(nodes, inputs, outputs, tensors=None, opset=17):
    """ModelProto.  inputs, outputs: {name: (TensorProto dtype, shape)}; tensors: {name: array}."""
    def values(table):
        return [helper.make_tensor_value_info(n, t, s) for n, (t, s) in table.items()]
    graph = helper.make_graph(nodes, "g", values(inputs), values(outputs),
                              [numpy_helper.from_array(a, n) for n, a in (tensors or {}).items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def dense(rows="n", seed=0):
    """y = relu(x @ w + b): x f32[rows, 8], w f32[8, 4]."""
    rng = np.random.default_rng(seed)
    tensors = {"w": rng.standard_normal((8, 4)).astype(np.float32),
               "b": rng.standard_normal(4).astype(np.float32)}
    return make_model([helper.make_node("Gemm", ["x", "w", "b"], ["h"], name="dense"),
                       helper.make_node("Relu", ["h"], ["y"], name="act")],
                      {"x": (TensorProto.FLOAT, [rows, 8])},
                      {"y": (TensorProto.FLOAT, [rows, 4])}, tensors)


def embedding():
    """y = table[ids] summed over positions where the mask is not 0; ids, mask i64[batch, seq]."""
    rng = np.random.default_rng(0)
    node, i64 = helper.make_node, TensorProto.INT64
    nodes = [node("Gather", ["table", "ids"], ["rows"], name="lookup"),
             node("Cast", ["mask"], ["weight"], to=TensorProto.FLOAT),
             node("Unsqueeze", ["weight", "last"], ["column"]),
             node("Mul", ["rows", "column"], ["kept"]),
             node("ReduceSum", ["kept", "middle"], ["y"], keepdims=0)]
    return make_model(nodes, {"ids": (i64, ["batch", "seq"]), "mask": (i64, ["batch", "seq"])},
                      {"y": (TensorProto.FLOAT, ["batch", 5])},
                      {"table": rng.standard_normal((30, 5)).astype(np.float32),
                       "last": np.array([2]), "middle": np.array([1])})
