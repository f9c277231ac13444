"""A small writer of ONNX graphs, and the chains of nodes that exporters write for one module."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

DTYPES = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16,
          "int64": TensorProto.INT64, "bool": TensorProto.BOOL}
LAST = np.iinfo(np.int64).max  # an end of Slice: to the last element


class Writer:
    """Nodes in the order they are added; every method returns the name of what it computes."""

    def __init__(self, name, seed=0):
        self.name, self.rng = name, np.random.default_rng(seed)
        self.nodes, self.weights, self.inputs, self.outputs = [], {}, [], []

    def input(self, name, shape, dtype="float32"):
        """A model input; an extent may be the name of a free dimension."""
        self.inputs.append(helper.make_tensor_value_info(name, DTYPES[dtype], shape))
        return name

    def op(self, kind, *inputs, outputs=1, **attrs):
        """A node; arrays and lists among its inputs become constants.  Several outputs are a
        list."""
        names = [f"{kind}_{len(self.nodes)}" + (f"_{i}" if outputs > 1 else "")
                 for i in range(outputs)]
        inputs = [x if isinstance(x, str) else self.const(x) for x in inputs]
        self.nodes.append(helper.make_node(kind, inputs, names, f"/{kind}_{len(self.nodes)}",
                                           **attrs))
        return names if outputs > 1 else names[0]

    def const(self, value):
        value = np.asarray(value)
        if value.dtype == np.float64:
            value = value.astype(np.float32)
        name = f"const_{len(self.weights)}"
        self.weights[name] = numpy_helper.from_array(value, name)
        return name

    def weight(self, *shape):
        """A random weight whose products keep the size of what they multiply."""
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 1
        return self.const(self.rng.standard_normal(shape).astype(np.float32) / np.sqrt(fan))

    def model(self, *outputs, opset=17):
        """The ModelProto that gives ``outputs``."""
        out = [helper.make_empty_tensor_value_info(o) for o in outputs]
        graph = helper.make_graph(self.nodes, self.name, self.inputs, out,
                                  list(self.weights.values()))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)],
                                 ir_version=8, producer_name="aotc benchmarks")

    # ------------------------------------------------------------ layers

    def conv(self, x, cin, cout, kernel=3, stride=1, group=1, dilation=1, pads=None, dims=2,
             bias=True):
        pad = dilation * (kernel - 1) // 2
        ins = [x, self.weight(cout, cin // group, *(kernel,) * dims)]
        return self.op("Conv", *ins, *([self.weight(cout)] if bias else []), group=group,
                       kernel_shape=[kernel] * dims, strides=[stride] * dims,
                       dilations=[dilation] * dims,
                       pads=[pad] * 2 * dims if pads is None else pads)

    def linear(self, x, cin, cout, bias=True):
        y = self.op("MatMul", x, self.op("Identity", self._turned(cin, cout)))
        return self.op("Add", self.weight(cout), y) if bias else y

    def _turned(self, cin, cout):
        return self.const(self.rng.standard_normal((cin, cout)).astype(np.float32)
                          / np.sqrt(cin))

    def silu(self, x):
        return self.op("Mul", x, self.op("Sigmoid", x))

    def gelu(self, x):
        """With erf, as torch writes it before opset 20."""
        e = self.op("Erf", self.op("Div", x, np.float32(2 ** 0.5)))
        return self.op("Mul", self.op("Mul", x, self.op("Add", e, np.float32(1))),
                       np.float32(0.5))

    def group_norm(self, x, channels, groups, shape, space=2, eps=1e-6):
        """As torch writes it: an InstanceNormalization over groups as channels.  ``shape``: what
        comes back, as an exporter's constant (0 or -1 where it is free)."""
        y = self.op("Reshape", x, [0, groups, -1])
        y = self.op("InstanceNormalization", y, np.ones(groups), np.zeros(groups), epsilon=eps)
        y = self.op("Reshape", y, shape)
        one = (channels,) + (1,) * space
        y = self.op("Mul", y, self.const(1 + self.rng.standard_normal(one) / 8))
        return self.op("Add", y, self.const(self.rng.standard_normal(one) / 8))

    def layer_norm(self, x, n, eps=1e-5):
        """Decomposed, as opsets before 17 have it."""
        d = self.op("Sub", x, self.op("ReduceMean", x, axes=[-1]))
        v = self.op("ReduceMean", self.op("Pow", d, np.float32(2)), axes=[-1])
        y = self.op("Div", d, self.op("Sqrt", self.op("Add", v, np.float32(eps))))
        return self.op("Add", self.op("Mul", y, self.weight(n)), self.weight(n))

    def rms_norm(self, x, n, eps=1e-6):
        v = self.op("ReduceMean", self.op("Pow", x, np.float32(2)), axes=[-1])
        y = self.op("Mul", x, self.op("Div", np.float32(1), self.op(
            "Sqrt", self.op("Add", v, np.float32(eps)))))
        return self.op("Mul", self.weight(n), y)

    def heads(self, x, heads, size, tokens=-1, batch=0):
        """[batch, tokens, heads*size] -> [batch, heads, tokens, size]."""
        return self.op("Transpose", self.op("Reshape", x, [batch, tokens, heads, size]),
                       perm=[0, 2, 1, 3])

    def attention(self, q, k, v, size, heads, bias=None):
        """Scores, softmax and the weighted sum of [batch, heads, tokens, size]; back to
        [batch, tokens, heads*size]."""
        s = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        s = self.op("Mul", s, np.float32(size ** -0.5))
        s = s if bias is None else self.op("Add", s, bias)
        y = self.op("MatMul", self.op("Softmax", s, axis=-1), v)
        return self.op("Reshape", self.op("Transpose", y, perm=[0, 2, 1, 3]),
                       [0, -1, heads * size])

    def self_attention(self, x, n, heads, tokens=-1, bias=None, batch=0):
        q, k, v = (self.heads(self.linear(x, n, n), heads, n // heads, tokens, batch)
                   for _ in range(3))
        return self.linear(self.attention(q, k, v, n // heads, heads, bias), n, n)

    def mlp(self, x, n, hidden, act=None):
        return self.linear((act or self.gelu)(self.linear(x, n, hidden)), hidden, n)
