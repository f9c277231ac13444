"""Models whose kernels have what threads of a block do together."""

import numpy as np
from onnx import TensorProto, helper
from small_models import make_model

F32 = np.float32


def mixture():
    """A model whose kernels have contractions of several steps of K, row reductions in shared
    memory and maps: y = layer_norm(softmax(x @ a) @ b + x) @ c, x f32[n, 72]."""
    rng, node = np.random.default_rng(3), helper.make_node
    tensors = {"a": rng.standard_normal((72, 40)).astype(F32),
               "b": rng.standard_normal((40, 72)).astype(F32),
               "c": rng.standard_normal((72, 30)).astype(F32),
               "scale": rng.standard_normal(72).astype(F32),
               "bias": rng.standard_normal(72).astype(F32)}
    nodes = [node("MatMul", ["x", "a"], ["s"]), node("Softmax", ["s"], ["p"]),
             node("MatMul", ["p", "b"], ["q"]), node("Add", ["q", "x"], ["r"]),
             node("LayerNormalization", ["r", "scale", "bias"], ["t"]),
             node("MatMul", ["t", "c"], ["y"])]
    return make_model(nodes, {"x": (TensorProto.FLOAT, ["n", 72])},
                      {"y": (TensorProto.FLOAT, ["n", 30])}, tensors)


def folds():
    """Long rows, short rows, columns and whole tensors folded by warps and teams of them: x f32[3,
    5000], r f32[75, 331].  Of a long row no thread reads what it has stored itself, as in a
    softmax: a barrier stands there by the rule of bytes, although that thread needs none."""
    node, real = helper.make_node, TensorProto.FLOAT
    nodes = [node("ReduceMax", ["x"], ["top"], axes=[-1]), node("Sub", ["x", "top"], ["p"]),
             node("ReduceSum", ["x"], ["all"], keepdims=0),
             node("ReduceMax", ["r"], ["columns"], axes=[0], keepdims=0),
             node("ReduceProd", ["r"], ["products"], axes=[0, 1], keepdims=0),
             node("ArgMax", ["r"], ["place"], axis=0, keepdims=0),
             node("LayerNormalization", ["r", "scale", "bias"], ["n"])]
    outs = {"p": [3, 5000], "all": [], "columns": [331], "products": [],
            "n": [75, 331]}
    return make_model(
        nodes, {"x": (real, [3, 5000]), "r": (real, [75, 331])},
        {n: (real, shape) for n, shape in outs.items()} | {"place": (TensorProto.INT64, [331])},
        {n: np.random.default_rng(1).standard_normal(331).astype(F32) for n in ("scale", "bias")})
