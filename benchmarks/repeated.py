"""Models that repeat one structure: what compile time must grow with, and nothing else.

    FAMILIES[name].model(n)     ModelProto with the structure n times; the same n, the same bytes

Extents are small: only the structure takes time.
"""

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto, helper, numpy_helper

OPSET, IR = 17, 8


class Net:
    """Nodes, weights and inputs of a model under construction; ``op`` returns the name of what a
    node makes (a tuple of names where it has several outputs)."""

    def __init__(self):
        self.nodes, self.weights, self.inputs = [], [], []
        self.random = np.random.default_rng(0)

    def input(self, name, shape, dtype=TensorProto.FLOAT):
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def const(self, array):
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def ints(self, *values):
        return self.const(np.array(values, np.int64))

    def weight(self, *shape):
        return self.const(self.random.standard_normal(shape).astype(np.float32))

    def op(self, kind, *inputs, outputs=1, **attributes):
        names = [f"t{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, **attributes))
        return names[0] if outputs == 1 else tuple(names)

    def model(self, *outputs):
        graph = helper.make_graph(self.nodes, "repeated", self.inputs,
                                  [helper.make_empty_tensor_value_info(o) for o in outputs],
                                  self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)],
                                 ir_version=IR)

    # ---- layers

    def conv(self, x, cin, cout, kernel=1, group=1):
        return self.op("Conv", x, self.weight(cout, cin // group, kernel, kernel),
                       self.weight(cout), pads=[kernel // 2] * 4, group=group)

    def dense(self, x, cin, cout):
        return self.op("Add", self.op("MatMul", x, self.weight(cin, cout)), self.weight(cout))

    def norm(self, x, width):
        """Layer normalisation in small operators, as exporters write it."""
        centred = self.op("Sub", x, self.op("ReduceMean", x, axes=[-1]))
        var = self.op("ReduceMean", self.op("Mul", centred, centred), axes=[-1])
        root = self.op("Sqrt", self.op("Add", var, self.const(np.float32(1e-5))))
        return self.op("Add", self.op("Mul", self.op("Div", centred, root), self.weight(width)),
                       self.weight(width))

    def gelu(self, x):
        erf = self.op("Erf", self.op("Div", x, self.const(np.float32(2 ** 0.5))))
        return self.op("Mul", self.op("Mul", x, self.op("Add", erf, self.const(np.float32(1)))),
                       self.const(np.float32(0.5)))

    def silu(self, x):
        return self.op("Mul", x, self.op("Sigmoid", x))

    def heads(self, x, rows, tokens, width, heads):
        split = self.op("Reshape", self.dense(x, width, width),
                        self.ints(rows, tokens, heads, width // heads))
        return self.op("Transpose", split, perm=[0, 2, 1, 3])

    def attention(self, x, rows, tokens, width, heads, bias=False):
        q, k, v = (self.heads(x, rows, tokens, width, heads) for _ in range(3))
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.op("Mul", scores, self.const(np.float32((width // heads) ** -0.5)))
        if bias:
            scores = self.op("Add", scores, self.weight(1, heads, tokens, tokens))
        mixed = self.op("MatMul", self.op("Softmax", scores, axis=-1), v)
        joined = self.op("Reshape", self.op("Transpose", mixed, perm=[0, 2, 1, 3]),
                         self.ints(rows, tokens, width))
        return self.dense(joined, width, width)

    def encoder(self, x, rows, tokens, width, heads):
        x = self.op("Add", x, self.attention(self.norm(x, width), rows, tokens, width, heads))
        inner = self.gelu(self.dense(self.norm(x, width), width, 2 * width))
        return self.op("Add", x, self.dense(inner, 2 * width, width))


# ---------------------------------------------------------------- wide structures

def tables(n):
    """n columns of indices looked up in tables of their own, concatenated (recommenders)."""
    net = Net()
    ids = net.input("ids", [8, n], TensorProto.INT64)
    rows = [net.op("Gather", net.weight(20, 4), net.op("Gather", ids, net.ints(i), axis=1))
            for i in range(n)]
    flat = [net.op("Reshape", r, net.ints(8, 4)) for r in rows]
    return net.model(net.dense(net.op("Concat", *flat, axis=1), 4 * n, 8))


def fanout(n):
    """n products of one tensor, summed."""
    net = Net()
    x = net.input("x", [4, 4])
    return net.model(net.op("Sum", *(net.op("Mul", x, net.weight()) for _ in range(n))))


def split_concat(n):
    """A tensor split into n parts, each scaled, concatenated again."""
    net = Net()
    parts = net.op("Split", net.input("x", [4, 4 * n]), net.ints(*[4] * n), outputs=n, axis=1)
    return net.model(net.op("Concat", *(net.op("Mul", p, net.weight()) for p in parts), axis=1))


def products(n):
    """n small products of one tensor, concatenated."""
    net = Net()
    x = net.input("x", [4, 8])
    return net.model(net.op("Concat", *(net.op("MatMul", x, net.weight(8, 8)) for _ in range(n)),
                            axis=1))


def experts(n):
    """n two-layer networks on one tensor, mixed by a gate."""
    net = Net()
    x = net.input("x", [8, 16])
    gate = net.op("Softmax", net.dense(x, 16, n), axis=-1)
    parts = net.op("Split", gate, net.ints(*[1] * n), outputs=n, axis=1)
    outs = [net.op("Mul", net.dense(net.op("Relu", net.dense(x, 16, 32)), 32, 16), p)
            for p in parts]
    return net.model(net.op("Sum", *outs))


def heads(n):
    """n outputs, each two convolutions on one map (detectors with a head per task)."""
    net = Net()
    x = net.conv(net.input("x", [1, 8, 16, 16]), 8, 16, 3)
    return net.model(*(net.op("Sigmoid", net.conv(net.op("Relu", net.conv(x, 16, 16, 3)), 16, 4))
                       for _ in range(n)))


def inputs(n):
    """n inputs, normalised each by itself and summed in pairs."""
    net = Net()
    parts = [net.norm(net.input(f"x{i}", [4, 16]), 16) for i in range(n)]
    while len(parts) > 1:
        parts = [net.op("Add", *parts[i:i + 2]) if i + 1 < len(parts) else parts[i]
                 for i in range(0, len(parts), 2)]
    return net.model(parts[0])


# ---------------------------------------------------------------- deep structures

def elementwise(n):
    """A chain of n elementwise operators."""
    net = Net()
    x = net.input("x", [8, 32])
    for i in range(n):
        x = net.op("Mul", x, net.weight(32)) if i % 2 else net.op("Tanh", x)
    return net.model(x)


def mlp(n):
    """n dense layers."""
    net = Net()
    x = net.input("x", [4, 32])
    for _ in range(n):
        x = net.op("Relu", net.dense(x, 32, 32))
    return net.model(x)


def residual(n):
    """n residual blocks of two convolutions."""
    net = Net()
    x = net.input("x", [1, 16, 16, 16])
    for _ in range(n):
        inner = net.conv(net.op("Relu", net.conv(x, 16, 16, 3)), 16, 16, 3)
        x = net.op("Relu", net.op("Add", x, inner))
    return net.model(x)


def dense_blocks(n):
    """n dense blocks of four layers, each reading all before it, with a transition."""
    net = Net()
    x = net.input("x", [1, 16, 16, 16])
    for _ in range(n):
        parts = [x]
        for i in range(4):
            y = net.op("Concat", *parts, axis=1) if i else x
            parts.append(net.conv(net.op("Relu", net.conv(y, 16 + 8 * i, 16)), 16, 8, 3))
        x = net.op("Relu", net.conv(net.op("Concat", *parts, axis=1), 48, 16))
    return net.model(x)


def inception(n):
    """n modules of four branches."""
    net = Net()
    x = net.input("x", [1, 32, 12, 12])
    for _ in range(n):
        pooled = net.op("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4)
        branches = [net.conv(x, 32, 8), net.conv(net.conv(x, 32, 8), 8, 8, 3),
                    net.conv(net.conv(x, 32, 8), 8, 8, 5), net.conv(pooled, 32, 8)]
        x = net.op("Relu", net.op("Concat", *branches, axis=1))
    return net.model(x)


def skips(n):
    """n layers down, whose maps n layers up read in the opposite order."""
    net = Net()
    x, kept = net.input("x", [1, 8, 12, 12]), []
    for _ in range(n):
        x = net.op("Relu", net.conv(x, 8, 8, 3))
        kept.append(x)
    for y in reversed(kept):
        x = net.op("Relu", net.conv(net.op("Concat", x, y, axis=1), 16, 8, 3))
    return net.model(x)


def mobile(n):
    """n mobile transformer blocks: an inverted bottleneck, then attention over patches."""
    net = Net()
    x = net.input("x", [1, 32, 8, 8])
    for _ in range(n):
        inner = net.silu(net.conv(x, 32, 64))
        inner = net.silu(net.conv(inner, 64, 64, 3, 64))
        x = net.op("Add", x, net.conv(inner, 64, 32))
        y = net.conv(net.silu(net.conv(x, 32, 32, 3)), 32, 48)
        y = net.op("Reshape", y, net.ints(48 * 4, 2, 4, 2))
        y = net.op("Reshape", net.op("Transpose", y, perm=[0, 2, 1, 3]), net.ints(1, 48, 16, 4))
        y = net.op("Reshape", net.op("Transpose", y, perm=[0, 3, 2, 1]), net.ints(4, 16, 48))
        y = net.norm(net.encoder(y, 4, 16, 48, 4), 48)
        y = net.op("Transpose", net.op("Reshape", y, net.ints(1, 4, 16, 48)), perm=[0, 3, 2, 1])
        y = net.op("Reshape", y, net.ints(48 * 4, 4, 2, 2))
        y = net.op("Reshape", net.op("Transpose", y, perm=[0, 2, 1, 3]), net.ints(1, 48, 8, 8))
        y = net.silu(net.conv(y, 48, 32))
        x = net.silu(net.conv(net.op("Concat", x, y, axis=1), 64, 32, 3))
    return net.model(x)


def windows(n):
    """n blocks of windowed attention, every other one shifted."""
    net = Net()
    x = net.input("x", [1, 8, 8, 32])

    def rolled(x, by):
        for axis in (1, 2):
            ends = [net.op("Slice", x, net.ints(lo), net.ints(hi), net.ints(axis))
                    for lo, hi in ((by, 8), (0, by))]
            x = net.op("Concat", *ends, axis=axis)
        return x

    for i in range(n):
        y = net.norm(x, 32)
        y = rolled(y, 2) if i % 2 else y
        y = net.op("Transpose", net.op("Reshape", y, net.ints(1, 2, 4, 2, 4, 32)),
                   perm=[0, 1, 3, 2, 4, 5])
        y = net.attention(net.op("Reshape", y, net.ints(4, 16, 32)), 4, 16, 32, 4, bias=True)
        y = net.op("Transpose", net.op("Reshape", y, net.ints(1, 2, 2, 4, 4, 32)),
                   perm=[0, 1, 3, 2, 4, 5])
        y = net.op("Reshape", y, net.ints(1, 8, 8, 32))
        x = net.op("Add", x, rolled(y, 6) if i % 2 else y)
        inner = net.gelu(net.dense(net.norm(x, 32), 32, 64))
        x = net.op("Add", x, net.dense(inner, 64, 32))
    return net.model(x)


def encoders(n):
    """n encoder layers of a transformer."""
    net = Net()
    x = net.input("x", [1, 16, 32])
    for _ in range(n):
        x = net.encoder(x, 1, 16, 32, 4)
    return net.model(x)


# ---------------------------------------------------------------- recurrences and control flow

def lstm(n):
    """An LSTM over n steps."""
    net = Net()
    y, last, cell = net.op("LSTM", net.input("x", [n, 1, 32]), net.weight(1, 256, 32),
                           net.weight(1, 256, 64), net.weight(1, 512), outputs=3, hidden_size=64)
    return net.model(y, last, cell)


def gru(n):
    """A GRU over n steps."""
    net = Net()
    y, last = net.op("GRU", net.input("x", [n, 1, 16]), net.weight(1, 96, 16),
                     net.weight(1, 96, 32), net.weight(1, 192), outputs=2, hidden_size=32)
    return net.model(y, last)


def _body(name, inputs, outputs, step):
    """A subgraph whose nodes ``step`` adds to a Net of its own."""
    inner = Net()
    made = step(inner)
    return helper.make_graph(inner.nodes, name, inputs, [
        helper.make_tensor_value_info(o, TensorProto.FLOAT if o != "going" else TensorProto.BOOL,
                                      None) for o in made], inner.weights)


def loop(n):
    """A loop of n turns over a dense layer."""
    net = Net()
    x = net.input("x", [4, 16])

    def step(inner):
        state = inner.op("Tanh", inner.dense("state", 16, 16))
        inner.nodes.append(helper.make_node("Identity", ["go"], ["going"]))
        return "going", state

    body = _body("turn", [helper.make_tensor_value_info("i", TensorProto.INT64, []),
                          helper.make_tensor_value_info("go", TensorProto.BOOL, []),
                          helper.make_tensor_value_info("state", TensorProto.FLOAT, [4, 16])],
                 2, step)
    return net.model(net.op("Loop", net.const(np.int64(n)), net.const(np.bool_(True)), x,
                            body=body))


def branches(n):
    """n choices between two dense layers, one after the other."""
    net = Net()
    x, choose = net.input("x", [4, 16]), net.input("choose", [n], TensorProto.BOOL)
    for i in range(n):
        parts = []
        for kind in ("Relu", "Tanh"):
            inner = Net()
            inner.nodes, inner.weights = [], []
            w = numpy_helper.from_array(
                net.random.standard_normal((16, 16)).astype(np.float32), f"w{i}{kind}")
            nodes = [helper.make_node("MatMul", [x, w.name], [f"p{i}{kind}"]),
                     helper.make_node(kind, [f"p{i}{kind}"], [f"q{i}{kind}"])]
            parts.append(helper.make_graph(nodes, f"b{i}{kind}", [], [
                helper.make_tensor_value_info(f"q{i}{kind}", TensorProto.FLOAT, [4, 16])], [w]))
        x = net.op("If", net.op("Gather", choose, net.const(np.int64(i))),
                   then_branch=parts[0], else_branch=parts[1])
    return net.model(x)


@dataclass(frozen=True)
class Family:
    """``model(n)`` and the sizes that are measured: small enough to take seconds."""

    model: object
    sizes: tuple


FAMILIES = {
    "tables": Family(tables, (64, 128, 256)),
    "fanout": Family(fanout, (250, 500, 1000)),
    "split_concat": Family(split_concat, (125, 250, 500)),
    "products": Family(products, (32, 64, 128)),
    "experts": Family(experts, (8, 16, 32)),
    "heads": Family(heads, (10, 20, 40)),
    "inputs": Family(inputs, (16, 32, 64)),
    "elementwise": Family(elementwise, (250, 500, 1000)),
    "mlp": Family(mlp, (50, 100, 200)),
    "residual": Family(residual, (16, 32, 64)),
    "dense_blocks": Family(dense_blocks, (6, 12, 24)),
    "inception": Family(inception, (8, 16, 32)),
    "skips": Family(skips, (12, 24, 48)),
    "mobile": Family(mobile, (2, 4, 8)),
    "windows": Family(windows, (4, 8, 16)),
    "encoders": Family(encoders, (6, 12, 24)),
    "lstm": Family(lstm, (32, 64, 128)),
    "gru": Family(gru, (32, 64, 128)),
    "loop": Family(loop, (32, 64, 128)),
    "branches": Family(branches, (16, 32, 64)),
}
