"""The trained decoder as ONNX, with its cache of keys and values as inputs and outputs."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from train import EPSILON, FREQUENCIES, HEADS, LAYERS, SHARED, SIZE, STEPS, WIDTH


class Nodes:
    """Nodes and constants under construction; weights keep their names."""

    def __init__(self, weights):
        self.nodes, self.tensors = [], dict(weights)

    def __call__(self, kind, *inputs, out=None, **attributes):
        out = out or f"{kind.lower()}_{len(self.nodes)}"
        inputs = [x if isinstance(x, str) else self.hold(x) for x in inputs]
        self.nodes.append(helper.make_node(kind, inputs, [out], **attributes))
        return out

    def hold(self, value):
        array = np.asarray(value)
        name = f"constant_{len(self.tensors)}"
        self.tensors[name] = array.astype(np.int64 if array.dtype.kind == "i" else np.float32)
        return name

    def norm(self, x, weight):
        mean = self("ReduceMean", self("Mul", x, x), [-1], keepdims=1)
        return self("Mul", self("Div", x, self("Sqrt", self("Add", mean, EPSILON))), weight)

    def heads(self, x, count):
        """[batch, seq, width] as [batch, count, seq, size]."""
        return self("Transpose", self("Reshape", x, [0, 0, count, SIZE]), perm=[0, 2, 1, 3])

    def turned(self, x, cos, sin):
        a = self("Slice", x, [0], [STEPS], [3])
        b = self("Slice", x, [STEPS], [SIZE], [3])
        left = self("Sub", self("Mul", a, cos), self("Mul", b, sin))
        return self("Concat", left, self("Add", self("Mul", b, cos), self("Mul", a, sin)), axis=3)

    def cached(self, k, what, new):
        """The past with this call's entries behind it."""
        return self("Concat", f"past.{k}.{what}", new, axis=2, out=f"present.{k}.{what}")


def attention(b, k, h, angles, keep):
    cos, sin = angles
    q, key, v = (b.heads(b("MatMul", h, f"{k}.{n}"), c)
                 for n, c in (("q", HEADS), ("k", SHARED), ("v", SHARED)))
    q = b("Reshape", b.turned(q, cos, sin), [0, SHARED, HEADS // SHARED, -1, SIZE])
    key, v = b.cached(k, "key", b.turned(key, cos, sin)), b.cached(k, "value", v)
    key, v = (b("Unsqueeze", x, [2]) for x in (key, v))
    score = b("MatMul", q, b("Transpose", key, perm=[0, 1, 2, 4, 3]))
    score = b("Where", keep, b("Mul", score, SIZE ** -0.5), -1e9)
    mixed = b("Reshape", b("MatMul", b("Softmax", score, axis=-1), v), [0, HEADS, -1, SIZE])
    flat = b("Reshape", b("Transpose", mixed, perm=[0, 2, 1, 3]), [0, 0, WIDTH])
    return b("MatMul", flat, f"{k}.out")


def places(b):
    """((cosines, sines) of this call's places, bool[seq, past + seq] of keys not behind them)."""
    past = b("Shape", "past.0.key", start=2, end=3)
    total = b("Add", past, b("Shape", "ids", start=1, end=2))
    past, total = (b("Squeeze", n, [0]) for n in (past, total))
    mine = b("Unsqueeze", b("Range", past, total, 1), [1])
    angle = b("Mul", b("Cast", mine, to=TensorProto.FLOAT), FREQUENCIES)
    return (b("Cos", angle), b("Sin", angle)), b("LessOrEqual", b("Range", 0, total, 1), mine)


def export(weights, path):
    """Write weights {name: array} as a model: ids i64[batch, seq] to logits, with caches."""
    b = Nodes(weights)
    angles, keep = places(b)
    x = b("Gather", "table", "ids")
    for k in range(LAYERS):
        x = b("Add", x, attention(b, k, b.norm(x, f"{k}.norm1"), angles, keep))
        h = b.norm(x, f"{k}.norm2")
        gate = b("MatMul", h, f"{k}.gate")
        h = b("Mul", b("Mul", gate, b("Sigmoid", gate)), b("MatMul", h, f"{k}.up"))
        x = b("Add", x, b("MatMul", h, f"{k}.down"))
    b("MatMul", b.norm(x, "norm"), "logits", out="scores")

    def info(name, shape, kind=TensorProto.FLOAT):
        return helper.make_tensor_value_info(name, kind, shape)

    names = [f"{k}.{what}" for k in range(LAYERS) for what in ("key", "value")]
    inputs = [info("ids", ["batch", "seq"], TensorProto.INT64),
              *(info(f"past.{n}", ["batch", SHARED, "past", SIZE]) for n in names)]
    vocabulary = weights["logits"].shape[1]
    outputs = [info("scores", ["batch", "seq", vocabulary]),
               *(info(f"present.{n}", ["batch", SHARED, "past + seq", SIZE]) for n in names)]
    tensors = [numpy_helper.from_array(a, n) for n, a in b.tensors.items()]
    graph = helper.make_graph(b.nodes, "zen", inputs, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
