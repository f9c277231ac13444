"""Small ONNX models whose bundles the product's tests build in many ways."""

import numpy as np
from onnx import TensorProto, helper
from small_models import dense, embedding, make_model

from aotc.runtime.compile_bundle import read_manifest

F32 = TensorProto.FLOAT


def _node(op, inputs, output, **attributes):
    return helper.make_node(op, inputs, [output], name=f"n_{output}", **attributes)


def convnet():
    """image f32[1, 3, 14, 13] -> padded and strided convolutions, a pool, scores f32[1, 5]."""
    rng = np.random.default_rng(1)
    tensors = {"w1": rng.standard_normal((12, 3, 3, 3)), "b1": rng.standard_normal(12),
               "w2": rng.standard_normal((12, 1, 3, 3)), "w3": rng.standard_normal((7, 12, 1, 1)),
               "w4": rng.standard_normal((7, 5))}
    nodes = [_node("Conv", ["image", "w1", "b1"], "c1", pads=[1, 1, 1, 1], strides=[2, 1]),
             _node("Relu", ["c1"], "r1"),
             _node("Conv", ["r1", "w2"], "c2", pads=[1, 1, 1, 1], group=12),
             _node("MaxPool", ["c2"], "p2", kernel_shape=[2, 2], strides=[2, 2]),
             _node("Conv", ["p2", "w3"], "c3"), _node("GlobalAveragePool", ["c3"], "g"),
             _node("Flatten", ["g"], "flat"), _node("MatMul", ["flat", "w4"], "scores")]
    return make_model(nodes, {"image": (F32, [1, 3, 14, 13])}, {"scores": (F32, [1, 5])},
                      {n: a.astype(np.float32) for n, a in tensors.items()})


def attention():
    """x f32[batch, seq, 24] -> one head of attention, a normalisation and a gate, same shape."""
    rng = np.random.default_rng(2)
    tensors = {w: rng.standard_normal((24, 24)) * 0.2 for w in ("wq", "wk", "wv")}
    tensors |= {"scale": rng.standard_normal(24), "bias": rng.standard_normal(24),
                "root": np.array(24 ** -0.5)}
    nodes = [_node("MatMul", ["x", "wq"], "q"), _node("MatMul", ["x", "wk"], "k"),
             _node("MatMul", ["x", "wv"], "v"), _node("Transpose", ["k"], "kt", perm=[0, 2, 1]),
             _node("MatMul", ["q", "kt"], "s"), _node("Mul", ["s", "root"], "s2"),
             _node("Softmax", ["s2"], "p", axis=-1), _node("MatMul", ["p", "v"], "a"),
             _node("Add", ["a", "x"], "sum"),
             _node("LayerNormalization", ["sum", "scale", "bias"], "norm"),
             _node("Sigmoid", ["norm"], "gate"), _node("Mul", ["norm", "gate"], "m"),
             _node("Erf", ["m"], "e"), _node("Tanh", ["e"], "y")]
    shape = ["batch", "seq", 24]
    return make_model(nodes, {"x": (F32, shape)}, {"y": (F32, shape)},
                      {n: np.asarray(a, np.float32) for n, a in tensors.items()})


def wide():
    """x f32[64, 256] -> class probabilities f32[64, 640], and a table's rows weighted by the best
    of them f32[64, 5]: enough work to be spread over the pool, an index, 1.1 MB of weights."""
    rng = np.random.default_rng(3)
    tensors = {"w1": rng.standard_normal((256, 320)) * 0.1, "w2": rng.standard_normal((320, 640)),
               "table": rng.standard_normal((96, 5))}
    nodes = [_node("MatMul", ["x", "w1"], "h"), _node("Relu", ["h"], "r"),
             _node("MatMul", ["r", "w2"], "z"), _node("Softmax", ["z"], "p", axis=-1),
             _node("ReduceMax", ["p"], "best", axes=[1]),
             _node("Gather", ["table", "which"], "row"),
             _node("Mul", ["row", "best"], "y")]
    return make_model(nodes, {"x": (F32, [64, 256]), "which": (TensorProto.INT64, [64])},
                      {"p": (F32, [64, 640]), "y": (F32, [64, 5])},
                      {n: a.astype(np.float32) for n, a in tensors.items()})


# name -> (model, ranges of its dimensions)
MODELS = {"dense": (dense, {"n": (1, 40)}),
          "embedding": (embedding, {"batch": (1, 4), "seq": (1, 20)}),
          "convnet": (convnet, {}),
          "wide": (wide, {}),
          "attention": (attention, {"batch": (1, 3), "seq": (1, 33)}),
          "ranges": (dense, {"n": (1, 40)})}
VARIANTS = {"ranges": {"n": [(1, 1), (2, 8)]}}  # with kernels of their own


def sources(folder):
    """[(file, flags)] of a bundle's C files."""
    plan = read_manifest(folder)["build"]
    return ([(f, part["cflags"]) for part in plan["kernels"] for f in part["files"]]
            + [(f, []) for f in plan["others"]])
