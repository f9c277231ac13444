"""One layer of attention as ONNX."""

import numpy as np
from onnx import TensorProto, helper
from small_models import make_model


def attention(size, heads=2, width=32, seed=0):
    """y f32[size, heads * width]: softmax(q k) v, all three of products of x, and a product more.
    size: a number, or the name of a free one."""
    rng, whole = np.random.default_rng(seed), heads * width
    tensors = {n: (rng.standard_normal((whole, whole)) * whole**-0.5).astype(np.float32)
               for n in "qkvo"}
    rows = -1 if isinstance(size, str) else size
    tensors |= {"scale": np.float32(width**-0.5), "apart": np.array([rows, heads, width]),
                "joined": np.array([rows, whole])}
    node, nodes = helper.make_node, []
    for n in "qkv":
        perm = [1, 2, 0] if n == "k" else [1, 0, 2]
        nodes += [node("MatMul", ["x", n], [f"{n}1"]),
                  node("Reshape", [f"{n}1", "apart"], [f"{n}2"]),
                  node("Transpose", [f"{n}2"], [f"{n}3"], perm=perm)]
    nodes += [node("MatMul", ["q3", "k3"], ["s1"]), node("Mul", ["s1", "scale"], ["s2"]),
              node("Softmax", ["s2"], ["p"], axis=-1), node("MatMul", ["p", "v3"], ["c1"]),
              node("Transpose", ["c1"], ["c2"], perm=[1, 0, 2]),
              node("Reshape", ["c2", "joined"], ["c3"]), node("MatMul", ["c3", "o"], ["y"])]
    value = (TensorProto.FLOAT, [size, whole])
    return make_model(nodes, {"x": value}, {"y": value}, tensors)


__all__ = ["attention"]
