"""A small 8-bit model whose input and output are bytes: a convolution, a depthwise one, a residual
sum, a normalisation, an average and a matrix, each rounded to 8 bits (QDQ)."""

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper


class _Net:
    def __init__(self) -> None:
        self.nodes, self.consts, self.rng = [], [], np.random.default_rng(11)

    def const(self, name, array):
        self.consts.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op, inputs, out, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [out], **attributes))
        return out

    def weights(self, name, *shape):
        """Signed weights with a scale for each output channel, as f32."""
        q = self.const(f"{name}_q", self.rng.integers(-127, 128, shape).astype(np.int8))
        s = self.const(f"{name}_s", self.rng.uniform(0.004, 0.02, shape[0]).astype(np.float32))
        z = self.const(f"{name}_z", np.zeros(shape[0], np.int8))
        return self.node("DequantizeLinear", [q, s, z], name, axis=0)

    def rounded(self, x, scale, zero):
        """``x`` as bytes, and what those stand for."""
        s = self.const(f"{x}_s", np.float32(scale))
        z = self.const(f"{x}_z", np.uint8(zero))
        q = self.node("QuantizeLinear", [x, s, z], f"{x}_u8")
        return q, self.node("DequantizeLinear", [q, s, z], f"{x}_f32")


def bytes_net() -> ModelProto:
    """x u8[1, 1, 12, 8] -> y u8[1, 5]."""
    m = _Net()
    m.const("sx", np.float32(0.03))
    m.const("zx", np.uint8(121))
    x = m.node("DequantizeLinear", ["x", "sx", "zx"], "xf")
    x = m.node("Conv", [x, m.weights("w0", 8, 1, 3, 4)], "c0", pads=[1, 1, 1, 2])
    x = m.rounded(m.node("Relu", [x], "r0"), 0.05, 0)[1]
    d = m.node("Conv", [x, m.weights("w1", 8, 1, 3, 3)], "c1", pads=[1] * 4, group=8)
    d = m.rounded(d, 0.06, 117)[1]
    x = m.rounded(m.node("Add", [x, d], "sum"), 0.09, 100)[1]
    for name, low, high in (("gamma", 0.5, 2), ("beta", -1, 1), ("mean", -1, 1), ("var", 0.5, 2)):
        m.const(name, m.rng.uniform(low, high, 8).astype(np.float32))
    x = m.node("BatchNormalization", [x, "gamma", "beta", "mean", "var"], "norm")
    x = m.rounded(m.node("Relu", [x], "r1"), 0.1, 3)[1]
    x = m.rounded(m.node("GlobalAveragePool", [x], "pool"), 0.04, 1)[1]
    x = m.node("Flatten", [x], "flat")
    y, _ = m.rounded(m.node("Gemm", [x, m.weights("w2", 5, 8)], "g", transB=1), 0.03, 128)
    graph = helper.make_graph(
        m.nodes[:-1], "bytes", [helper.make_tensor_value_info("x", TensorProto.UINT8,
                                                              [1, 1, 12, 8])],
        [helper.make_tensor_value_info(y, TensorProto.UINT8, [1, 5])], m.consts)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
