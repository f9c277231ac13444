"""Small ONNX models that several test files compile."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def make_model(nodes, inputs, outputs, tensors=None, opset=17):
    """ModelProto.  inputs, outputs: {name: (TensorProto dtype, shape)}; tensors: {name: array}."""
    def values(table):
        return [helper.make_tensor_value_info(n, t, s) for n, (t, s) in table.items()]
    graph = helper.make_graph(nodes, "g", values(inputs), values(outputs),
                              [numpy_helper.from_array(a, n) for n, a in (tensors or {}).items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def together(models):
    """One model of several that have nothing to do with each other: the names of the k-th start
    with ``q{k}_``."""
    first, *others = (onnx.compose.add_prefix(m, f"q{k}_") for k, m in enumerate(models))
    for other in others:
        for field in ("node", "input", "output", "initializer"):
            getattr(first.graph, field).extend(getattr(other.graph, field))
    return first


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


def running_sum():
    """tanh of a running sum over the steps of x f32[t, 4], from start f32[4]."""
    f32, node = TensorProto.FLOAT, helper.make_node
    names = [helper.make_tensor_value_info(n, f32, [4]) for n in ("s", "xi", "s2", "yi")]
    body = helper.make_graph([node("Add", ["s", "xi"], ["u"]), node("Tanh", ["u"], ["s2"]),
                              node("Identity", ["s2"], ["yi"])], "b", names[:2], names[2:])
    scan = node("Scan", ["start", "x"], ["last", "y"], body=body, num_scan_inputs=1)
    return make_model([scan], {"start": (f32, [4]), "x": (f32, ["t", 4])},
                      {"last": (f32, [4]), "y": (f32, ["t", 4])})


class _Layers:
    """Nodes and weights of an image network under construction."""

    def __init__(self, seed):
        self.rng, self.nodes, self.tensors = np.random.default_rng(seed), [], {}

    def add(self, kind, inputs, name, weights=(), **attributes):
        for i, w in enumerate(weights):
            self.tensors[f"{name}_w{i}"] = w.astype(np.float32)
        inputs = [*inputs, *(f"{name}_w{i}" for i in range(len(weights)))]
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def conv(self, x, name, given, made, kernel=3):
        """Convolution and ReLU (kernel 1: no ReLU)."""
        w = self.rng.standard_normal((made, given, kernel, kernel)) / (given * kernel ** 2) ** 0.5
        x = self.add("Conv", [x], name, (w, self.rng.standard_normal(made) / 10),
                     pads=[kernel // 2] * 4)
        return x if kernel == 1 else self.add("Relu", [x], f"{name}r")

    def pool(self, x, name):
        return self.add("MaxPool", [x], name, kernel_shape=[2, 2], strides=[2, 2])

    def up(self, x, name, given, made):
        w = self.rng.standard_normal((given, made, 2, 2)) / given ** 0.5
        return self.add("ConvTranspose", [x], name, (w, self.rng.standard_normal(made) / 10),
                        strides=[2, 2])


def u_net(size=16, channels=(4, 6), seed=0):
    """y f32[1, 2, size, size] of x f32[1, 3, size, size]: two convolutions and a pool per level
    down, a transposed convolution, the skipped tensor and two convolutions per level up."""
    made, x, given, skipped = _Layers(seed), "x", 3, []
    for i, c in enumerate(channels):
        x = made.pool(x, f"pool{i}") if i else x
        x = made.conv(made.conv(x, f"down{i}", given, c), f"down{i}b", c, c)
        skipped.append(x)
        given = c
    for i in reversed(range(len(channels) - 1)):
        c = channels[i]
        x = made.add("Concat", [skipped[i], made.up(x, f"up{i}", given, c)], f"cat{i}", axis=1)
        x = made.conv(made.conv(x, f"join{i}", 2 * c, c), f"join{i}b", c, c)
        given = c
    made.conv(x, "y", given, 2, kernel=1)
    shape = [1, 3, size, size]
    return make_model(made.nodes, {"x": (TensorProto.FLOAT, shape)},
                      {"y": (TensorProto.FLOAT, [1, 2, *shape[2:]])}, made.tensors)


def fire_stack(size=13, channels=(16, 64), given=64, count=2, seed=0):
    """y of x f32[1, given, size, size]: a 1x1 convolution that narrows, a 1x1 and a 3x3 one of that
    side by side along the channels, ``count`` times."""
    made, x, shape = _Layers(seed), "x", [1, given, size, size]
    narrow, wide = channels
    for i in range(count):
        s = made.conv(x, f"narrow{i}", given, narrow, kernel=1)
        parts = [made.conv(s, f"one{i}", narrow, wide, kernel=1),
                 made.conv(s, f"three{i}", narrow, wide)]
        x = made.add("Concat", parts, "y" if i + 1 == count else f"cat{i}", axis=1)
        given = 2 * wide
    return make_model(made.nodes, {"x": (TensorProto.FLOAT, shape)},
                      {"y": (TensorProto.FLOAT, [1, given, size, size])}, made.tensors)


def conv_stack(size=24, channels=(4, 6), seed=0):
    """y of x f32[1, 3, size, size]: two convolutions and a pool per level."""
    made, x, given = _Layers(seed), "x", 3
    for i, c in enumerate(channels):
        x = made.conv(made.conv(x, f"conv{i}", given, c), f"conv{i}b", c, c)
        x = made.pool(x, "y" if i + 1 == len(channels) else f"pool{i}")
        given = c
    end = size >> len(channels)
    return make_model(made.nodes, {"x": (TensorProto.FLOAT, [1, 3, size, size])},
                      {"y": (TensorProto.FLOAT, [1, given, end, end])}, made.tensors)


def two_convolutions(channels=32, size=24):
    """Two 3x3 convolutions that Winograd forms pay for, with tanh between them, and exp."""
    rng = np.random.default_rng(5)

    def weights(name, shape):
        return numpy_helper.from_array(
            rng.normal(0, 0.1, shape).astype(np.float32), name)
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
             helper.make_node("Tanh", ["a"], ["b"]),
             helper.make_node("Conv", ["b", "v"], ["c"], pads=[1, 1, 1, 1]),
             helper.make_node("Exp", ["c"], ["y"])]
    shape = [1, channels, size, size]
    graph = helper.make_graph(
        nodes, "two", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [weights(n, (channels, channels, 3, 3)) for n in "wv"])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
