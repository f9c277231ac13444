"""Single operators that are measured, each as a model with random weights: products of published
tables, products of few rows, attention, and maps and folds for the cost."""

from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.exported.build import Writer
from benchmarks.gpu.halves import halved
from benchmarks.low_precision_cases import in_groups

TYPES = ("f32", "tf32", "bf16", "f16", "s8")
# of a result's range, how far it may be from the same in f32: operands of so many bits
TOLERANCE = {"f32": 1e-4, "tf32": 5e-3, "bf16": 3e-2, "f16": 5e-3, "s8": 0.0, "int8w": 2e-2,
             "int4w": 0.3}


@dataclass(frozen=True)
class GpuCase:
    """One operator.  ``kind``: a key of KINDS, whose maker says what ``sizes`` are; ``type``: of
    operands; ``source``: the table it is from."""

    kind: str
    sizes: tuple[int, ...]
    type: str = "f32"
    source: str = ""

    @property
    def name(self):
        """Unique among the cases."""
        return f"{self.kind} {'x'.join(map(str, self.sizes))} {self.type}"

    @property
    def stem(self):
        """The name as that of files."""
        return "c_" + self.name.replace(" ", "_")

    def small(self):
        """The same for a simulator: each extent cut, those of 1 and of windows kept."""
        most = {"conv": (1, 8, 9, 8, 3, 3), "pool": (1, 4, 9, 3, 3)}.get(
            self.kind, (64,) * len(self.sizes))
        return replace(self, sizes=tuple(map(min, self.sizes, most)))

    def model(self):
        """The ModelProto, in the types of its operands where a model says them."""
        made = KINDS[self.kind](Writer(self.stem, 1), *self.sizes)
        if self.type == "f16":
            return halved(made)
        if self.type == "int4w":
            return in_groups(made)
        if self.type in ("s8", "int8w"):
            return _of_bytes(made, self.type)
        return made

    @property
    def options(self):
        """What else to compile it with."""
        return {"precision": self.type} if self.type in ("tf32", "bf16") else {}

    def flops(self):
        """Multiply-adds times two, of products (0: no product)."""
        s = self.sizes
        if self.kind == "matmul":
            return 2 * s[0] * s[1] * s[2]
        if self.kind == "conv":
            side = (s[2] - s[4]) // s[5] + 1
            return 2 * s[0] * s[3] * side * side * s[1] * s[4] ** 2
        return 4 * s[0] * s[1] * s[2] * s[3] if self.kind == "attention" else 0

    def weight_bytes(self):
        """Of what a product reads besides its rows."""
        if self.kind != "matmul":
            return 0
        bits = {"f32": 32, "tf32": 32, "s8": 8, "int8w": 8, "int4w": 5}.get(self.type, 16)
        return self.sizes[1] * self.sizes[2] * bits // 8


    def moved_bytes(self):
        """What is read and written at least, of cases that GPUs' memory bounds; 0 of others."""
        s, size = self.sizes, 2 if self.type in ("f16", "bf16") else 4
        if self.kind == "matmul":
            return self.weight_bytes() if s[0] <= 64 else 0
        if self.kind == "attention":
            return 2 * s[0] * s[2] * s[3] * size if s[1] <= 16 else 0
        return {"map": 3, "softmax": 2, "norm": 2, "columns": 1}.get(self.kind, 0) * (
            s[0] * s[1] * size if len(s) == 2 else 0)


def make_feeds(inputs):
    """Random arrays for inputs (name, dtype, shape): {name: array}; bytes in their whole range."""
    rng = np.random.default_rng()
    return {name: rng.integers(-127, 128, shape).astype(dtype) if dtype == "int8" else
            rng.standard_normal(shape, np.float32).astype(dtype) for name, dtype, shape in inputs}


# ---------------------------------------------------------------- models

def _matmul(g, m, k, n):
    """x [m, k] times weights [k, n]."""
    return g.model(g.op("MatMul", g.input("x", [m, k]), _matrix(g, k, n)))


def _matrix(g, k, n):
    w = g.rng.standard_normal((k, n), np.float32)
    w /= np.float32(k ** 0.5)
    return g.const(w)


def _conv(g, n, c, size, oc, kernel, stride):
    """x [n, c, size, size], no padding."""
    x = g.input("x", [n, c, size, size])
    return g.model(g.conv(x, c, oc, kernel, stride, pads=[0] * 4, bias=False))


def _pool(g, n, c, size, window, stride):
    x = g.input("x", [n, c, size, size])
    return g.model(g.op("AveragePool", x, kernel_shape=[window] * 2, strides=[stride] * 2))


def _attention(g, heads, queries, keys, size):
    """q [1, heads, queries, size] over so many keys and values."""
    q = g.input("q", [1, heads, queries, size])
    k, v = (g.input(name, [1, heads, keys, size]) for name in "kv")
    s = g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2]))
    s = g.op("Mul", s, np.float32(size ** -0.5))
    return g.model(g.op("MatMul", g.op("Softmax", s, axis=-1), v))


def _map(g, rows, columns):
    x = g.input("x", [rows, columns])
    return g.model(g.op("Mul", g.gelu(x), g.input("w", [rows, columns])))


def _softmax(g, rows, columns):
    return g.model(g.op("Softmax", g.input("x", [rows, columns]), axis=-1))


def _norm(g, rows, columns):
    x = g.input("x", [rows, columns])
    return g.model(g.op("LayerNormalization", x, g.weight(columns), g.weight(columns)))


def _sum(g, rows, columns):
    """Of columns."""
    return g.model(g.op("ReduceSum", g.input("x", [rows, columns]), [0], keepdims=0))


def _of_bytes(model, how):
    """A product of bytes: MatMulInteger, or (int8w) of weights alone, with a scale a column."""
    weights = {t.name: t for t in model.graph.initializer}
    (node,) = model.graph.node
    w = numpy_helper.to_array(weights[node.input[1]])
    scale = (np.abs(w).max(0) / 127).astype(np.float32)
    codes = numpy_helper.from_array(np.rint(w / np.maximum(scale, 1e-30)).astype(np.int8), "codes")
    out = onnx.ModelProto.FromString(model.SerializeToString())
    del out.graph.node[:], out.graph.initializer[:]
    out.graph.initializer.append(codes)
    if how == "s8":
        out.graph.input[0].type.tensor_type.elem_type = TensorProto.INT8
        out.graph.node.append(helper.make_node("MatMulInteger", ["x", "codes"], [node.output[0]]))
        return out
    out.graph.initializer.extend([
        numpy_helper.from_array(scale, "scale"),
        numpy_helper.from_array(np.zeros(scale.shape, np.int8), "zero")])
    out.graph.node.extend([
        helper.make_node("DequantizeLinear", ["codes", "scale", "zero"], ["w"], axis=1),
        helper.make_node("MatMul", ["x", "w"], [node.output[0]])])
    return out


KINDS = {"matmul": _matmul, "conv": _conv, "pool": _pool, "attention": _attention, "map": _map,
         "softmax": _softmax, "norm": _norm, "columns": _sum}


# ---------------------------------------------------------------- which

def _all(kind, source, types, *sizes):
    return [GpuCase(kind, s, t, source) for s in sizes for t in types]


CUBE = _all("matmul", "4096^3", TYPES, (4096, 4096, 4096))
GENSOR = [
    *_all("conv", "Gensor", ("f32", "f16"), (128, 256, 30, 256, 3, 2), (128, 128, 28, 128, 3, 1),
          (128, 128, 58, 128, 3, 2)),
    *_all("matmul", "Gensor", ("f32", "f16"), (8192, 8192, 8192), (65536, 4, 1024),
          (65536, 1024, 4096), (16384, 16384, 1), (16384, 8192, 1), (16384, 1000, 1)),
    *_all("pool", "Gensor", ("f32",), (16, 48, 48, 2, 2), (128, 168, 83, 2, 2),
          (128, 617, 21, 3, 2))]
DIETCODE = [
    *_all("matmul", "DietCode", ("f32", "f16"), (16, 768, 2304), (256, 768, 2304),
          (2048, 768, 2304), (1024, 768, 3072), (1024, 3072, 768)),
    *_all("conv", "DietCode", ("f32", "f16"), (16, 256, 16, 256, 3, 1), (32, 256, 16, 256, 3, 1))]
FEW_ROWS = [c for m in (1, 8, 64, 512) for c in _all(
    "matmul", "few rows", ("f32", "f16", "int8w", "int4w"), (m, 4096, 11008))]
ATTENTION = [*_all("attention", "attention", ("f16",), *((16, n, n, 64) for n in (
    128, 512, 1024, 2048, 4096, 8192))),
    *_all("attention", "decoding", ("f16",), (32, 1, 512, 128), (32, 1, 4096, 128))]
# so that most of what is predicted has been measured: kernels that are no product
OTHERS = [c for kind in ("map", "softmax", "norm", "columns") for c in _all(
    kind, "cost", ("f32",), (128, 768), (4096, 1024), (32768, 1024), (512, 16384))]
OTHERS += [c for kind in ("map", "softmax", "norm", "columns") for c in _all(
    kind, "128 MB", ("f16",), (65536, 1024))]

__all__ = ["ATTENTION", "CUBE", "DIETCODE", "FEW_ROWS", "GENSOR", "OTHERS", "TOLERANCE", "GpuCase",
           "make_feeds"]
