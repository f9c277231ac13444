"""Models of f32 as models in f16 or bf16, and products by weights of few bits."""

import numpy as np
from onnx import TensorProto, helper
from small_models import make_model

from benchmarks.gpu.halves import halved

F32, F16 = TensorProto.FLOAT, TensorProto.FLOAT16


def codes(m, k, n, bits=4, block=32, zeros=False, dtype=F32):
    """y = x @ w, w in blocks of ``bits``."""
    r, blocks = np.random.default_rng(2), -(-k // block)
    tensors = {"w": r.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8),
               "s": r.uniform(0.1, 1, n * blocks).astype(
                   np.float16 if dtype == F16 else np.float32)}
    if zeros:
        tensors["z"] = r.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8)
    one = helper.make_node("MatMulNBits", ["x", *tensors], ["y"], domain="com.microsoft", K=k, N=n,
                           bits=bits, block_size=block)
    return make_model([one], {"x": (dtype, [m, k])}, {"y": (dtype, [m, n])}, tensors)


__all__ = ["codes", "halved"]
