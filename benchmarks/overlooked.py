"""Small nets of kinds that no other benchmark has, beside ONNX Runtime.

    python -m benchmarks.overlooked [NAME ...] [--threads 1] [--rounds 8]

forest      300 trees of doubles, 100 rows
words       three convolutions between activations quantised to 16 bits
columns     a product of one row by weights alone quantised, a scale for each column
taps        a convolution whose weights alone are quantised
separator   blocks of Conv-TasNet over a signal of free length: pointwise and dilated depthwise
            convolutions along one axis, PReLU, norms over channels and time
windows     two blocks of a Swin transformer over an image of free height and width: padded to whole
            windows, one of them shifted and masked
reader      a CRNN that reads words: convolutions over one image of a free batch and width, two
            bidirectional LSTMs of 256 over its columns, a linear layer, LogSoftmax
closed      the same with larger weights: gates that are all but closed
strings     a column of words and one of numbers: one-hot, scaled, a linear classifier
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import aotc
from aotc.ir.dtypes import Array
from benchmarks.recurrent import seconds

Case = tuple[onnx.ModelProto, dict[str, Array]]
F32, F64, I64, TEXT = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.STRING
CHANNELS, IMAGE, BLOCKS, FRAMES = 64, 28, 8, 1000


def _model(nodes: list[onnx.NodeProto], inputs: dict[str, Any], outputs: dict[str, Any],
           stored: dict[str, Array] | None = None, opset: int = 21) -> onnx.ModelProto:
    def infos(kinds: dict[str, Any]) -> list[onnx.ValueInfoProto]:
        return [helper.make_tensor_value_info(n, *kind) for n, kind in kinds.items()]
    graph = helper.make_graph(nodes, "overlooked", infos(inputs), infos(outputs), [
        numpy_helper.from_array(np.asarray(a), n) for n, a in (stored or {}).items()])
    return helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)])


def forest() -> Case:
    """Whole trees of depth 7 over 20 features."""
    rng, depth, trees = np.random.default_rng(0), 7, 300
    inner, all_ = (1 << depth) - 1, (2 << depth) - 1
    node = np.arange(all_)
    leaf = node >= inner
    rows = trees * (all_ - inner)
    split = np.where(leaf, 0, rng.standard_normal((trees, all_))).reshape(-1)
    made = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1,
        nodes_treeids=np.repeat(np.arange(trees), all_), nodes_nodeids=np.tile(node, trees),
        nodes_featureids=np.where(leaf, 0, rng.integers(0, 20, (trees, all_))).reshape(-1),
        nodes_modes=np.where(leaf, "LEAF", "BRANCH_LEQ").tolist() * trees,
        nodes_truenodeids=np.tile(np.where(leaf, 0, 2 * node + 1), trees),
        nodes_falsenodeids=np.tile(np.where(leaf, 0, 2 * node + 2), trees),
        nodes_values_as_tensor=helper.make_tensor("s", F64, [trees * all_], split),
        target_treeids=np.repeat(np.arange(trees), all_ - inner),
        target_nodeids=np.tile(node[leaf], trees), target_ids=[0] * rows,
        target_weights_as_tensor=helper.make_tensor("w", F64, [rows], rng.standard_normal(rows)))
    model = _model([made], {"x": (F64, ["n", 20])}, {"y": (F32, ["n", 1])}, opset=15)
    return model, {"x": rng.standard_normal((100, 20))}


def words() -> Case:
    rng, nodes, held = np.random.default_rng(0), [], "x"
    stored: dict[str, Any] = {"s": np.float32(2 ** -13), "z": np.uint16(1 << 15),
                              "ws": np.float32(0.0005), "wz": np.int8(0)}
    for k in range(4):
        nodes += [helper.make_node("QuantizeLinear", [held, "s", "z"], [f"q{k}"]),
                  helper.make_node("DequantizeLinear", [f"q{k}", "s", "z"], [f"d{k}"])]
        held = f"d{k}"
        if k < 3:
            stored[f"w{k}"] = rng.integers(-127, 128, (CHANNELS, CHANNELS, 3, 3)).astype(np.int8)
            nodes += [helper.make_node("DequantizeLinear", [f"w{k}", "ws", "wz"], [f"f{k}"]),
                      helper.make_node("Conv", [held, f"f{k}"], [f"c{k}"], pads=[1] * 4),
                      helper.make_node("Relu", [f"c{k}"], [f"r{k}"])]
            held = f"r{k}"
    shape = [1, CHANNELS, IMAGE, IMAGE]
    return _model(nodes, {"x": (F32, shape)}, {held: (F32, shape)}, stored), {
        "x": rng.standard_normal(shape).astype(np.float32)}


def _weights_alone(op: str, shape: tuple[int, ...], axis: int, x: list[int], y: list[int],
                   **attributes: Any) -> Case:
    rng, n = np.random.default_rng(0), shape[axis]
    stored = {"w": rng.integers(-127, 128, shape).astype(np.int8), "z": np.zeros(n, np.int8),
              "s": rng.uniform(0.0005, 0.001, n).astype(np.float32)}
    nodes = [helper.make_node("DequantizeLinear", ["w", "s", "z"], ["f"], axis=axis),
             helper.make_node(op, ["x", "f"], ["y"], **attributes)]
    return _model(nodes, {"x": (F32, x)}, {"y": (F32, y)}, stored), {
        "x": rng.standard_normal(x).astype(np.float32)}


def columns() -> Case:
    return _weights_alone("MatMul", (512, 2048), 1, [1, 512], [1, 2048])


def taps() -> Case:
    shape = [1, CHANNELS, IMAGE, IMAGE]
    return _weights_alone("Conv", (CHANNELS, CHANNELS, 3, 3), 0, shape, shape, pads=[1] * 4)


def separator() -> Case:
    rng, nodes = np.random.default_rng(0), []
    stored: dict[str, Any] = {"eps": np.float32(1e-8), "axes": np.array([1, 2])}

    def made(op: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [f"t{len(nodes)}"], **attributes))
        return str(nodes[-1].output[0])

    def weight(*shape: int) -> str:
        name = f"w{len(stored)}"
        stored[name] = (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        return name

    def activated(x: str) -> str:
        """PReLU, and the norm over channels and time."""
        x = made("PRelu", x, weight(1, 1))
        off = made("Sub", x, made("ReduceMean", x, "axes"))
        square = made("ReduceMean", made("Mul", off, off), "axes")
        unit = made("Div", off, made("Sqrt", made("Add", square, "eps")))
        return made("Add", made("Mul", unit, weight(1, 2 * CHANNELS, 1)),
                    weight(1, 2 * CHANNELS, 1))

    x = "x"
    for k in range(BLOCKS):
        wide = activated(made("Conv", x, weight(2 * CHANNELS, CHANNELS, 1)))
        far = made("Conv", wide, weight(2 * CHANNELS, 1, 3), group=2 * CHANNELS,
                   dilations=[1 << k], pads=[1 << k] * 2)
        x = made("Add", x, made("Conv", activated(far), weight(CHANNELS, 2 * CHANNELS, 1)))
    shape = [1, CHANNELS, "frames"]
    return _model(nodes, {"x": (F32, shape)}, {x: (F32, shape)}, stored), {
        "x": rng.standard_normal((1, CHANNELS, FRAMES)).astype(np.float32)}


class _Windows:
    """Two blocks of a Swin transformer, as exporters write them: every size is computed from the
    shape of the input, masks from sizes."""

    SIDE, SHIFT, HEADS = 7, 3, 3

    def __init__(self, width: int) -> None:
        self.width = width
        self.nodes: list[onnx.NodeProto] = []
        self.stored: dict[str, Array] = {}
        self.rng = np.random.default_rng(0)

    def op(self, op: str, *inputs: Any, **attributes: Any) -> str:
        """The name of a node's output; numbers among the inputs are stored."""
        names = [i if isinstance(i, str) else self.kept(np.asarray(i)) for i in inputs]
        self.nodes.append(helper.make_node(op, names, [f"t{len(self.nodes)}"], **attributes))
        return str(self.nodes[-1].output[0])

    def kept(self, array: Array) -> str:
        name = f"c{len(self.stored)}"
        self.stored[name] = array
        return name

    def linear(self, x: str, rows: int, columns: int) -> str:
        w = self.rng.standard_normal((rows, columns)) / np.sqrt(rows)
        b = self.rng.standard_normal(columns) / 10
        return self.op("Add", self.op("MatMul", x, w.astype(np.float32)), b.astype(np.float32))

    def norm(self, x: str) -> str:
        ones, zeros = np.ones(self.width, np.float32), np.zeros(self.width, np.float32)
        return self.op("LayerNormalization", x, ones, zeros, axis=-1)

    def shape(self, *extents: Any) -> str:
        return self.op("Concat", *(e if isinstance(e, str) else np.array([e]) for e in extents),
                       axis=0)

    def partition(self, x: str, sizes: list[str], channels: int) -> str:
        """The image [1, h, w, channels] as windows [n, 49, channels]."""
        h, w = (self.op("Div", s, np.array([self.SIDE])) for s in sizes)
        x = self.op("Reshape", x, self.shape(1, h, self.SIDE, w, self.SIDE, channels))
        return self.op("Reshape", self.op("Transpose", x, perm=[0, 1, 3, 2, 4, 5]),
                       np.array([-1, self.SIDE ** 2, channels]))

    def joined(self, x: str, sizes: list[str]) -> str:
        """What ``partition`` has cut."""
        h, w = (self.op("Div", s, np.array([self.SIDE])) for s in sizes)
        x = self.op("Reshape", x, self.shape(1, h, w, self.SIDE, self.SIDE, self.width))
        return self.op("Reshape", self.op("Transpose", x, perm=[0, 1, 3, 2, 4, 5]),
                       self.shape(1, *sizes, self.width))

    def rolled(self, x: str, by: int) -> str:
        for axis in (np.array([1]), np.array([2])):
            far = self.op("Slice", x, np.array([by]), np.array([np.iinfo(np.int64).max]), axis)
            near = self.op("Slice", x, np.array([0]), np.array([by]), axis)
            x = self.op("Concat", far, near, axis=int(axis[0]))
        return x

    def mask(self, sizes: list[str]) -> str:
        """[n, 1, 49, 49]: -100 where two places of a window were no neighbours."""
        parts = []
        for size, shape in zip(sizes, ([1, -1, 1, 1], [1, 1, -1, 1]), strict=True):
            end = self.op("Squeeze", size)
            place = self.op("Range", np.int64(0), end, np.int64(1))
            beyond = [self.op("Cast", self.op("GreaterOrEqual", place, self.op("Sub", end, at)),
                              to=F32) for at in (np.int64(self.SIDE), np.int64(self.SHIFT))]
            parts.append(self.op("Reshape", self.op("Add", *beyond), np.array(shape)))
        number = self.op("Add", self.op("Mul", parts[0], np.float32(3)), parts[1])
        cut = self.op("Squeeze", self.partition(number, sizes, 1), np.array([2]))
        apart = self.op("Equal", self.op("Unsqueeze", cut, np.array([1])),
                        self.op("Unsqueeze", cut, np.array([2])))
        found = self.op("Where", apart, np.float32(0), np.float32(-100))
        return self.op("Unsqueeze", found, np.array([1]))

    def attention(self, x: str, mask: str | None) -> str:
        heads, deep, places = self.HEADS, self.width // self.HEADS, self.SIDE ** 2
        x = self.op("Reshape", self.linear(x, self.width, 3 * self.width),
                    np.array([-1, places, 3, heads, deep]))
        x = self.op("Transpose", x, perm=[2, 0, 3, 1, 4])
        q, k, v = (self.op("Gather", x, np.int64(i), axis=0) for i in range(3))
        q = self.op("Mul", q, np.float32(deep ** -0.5))
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        bias = self.rng.standard_normal((1, heads, places, places)).astype(np.float32)
        scores = self.op("Add", scores, bias)
        if mask is not None:
            scores = self.op("Add", scores, mask)
        y = self.op("MatMul", self.op("Softmax", scores, axis=-1), v)
        y = self.op("Reshape", self.op("Transpose", y, perm=[0, 2, 1, 3]),
                    np.array([-1, places, self.width]))
        return self.linear(y, self.width, self.width)

    def block(self, x: str, by: int) -> str:
        side = np.array([self.SIDE])
        extents = [self.op("Shape", x, start=i, end=i + 1) for i in (1, 2)]
        pads = [self.op("Mod", self.op("Sub", side, self.op("Mod", e, side)), side)
                for e in extents]
        y = self.op("Pad", self.norm(x), self.shape(0, 0, 0, 0, 0, *pads, 0))
        sizes = [self.op("Shape", y, start=i, end=i + 1) for i in (1, 2)]
        y = self.rolled(y, by) if by else y
        y = self.attention(self.partition(y, sizes, self.width), self.mask(sizes) if by else None)
        y = self.joined(y, sizes)
        y = self.rolled(y, -by) if by else y
        y = self.op("Slice", y, np.array([0, 0]), self.shape(*extents), np.array([1, 2]))
        x = self.op("Add", x, y)
        y = self.op("Gelu", self.linear(self.norm(x), self.width, 4 * self.width))
        return self.op("Add", x, self.linear(y, 4 * self.width, self.width))


def windows(width: int = 96) -> Case:
    made = _Windows(width)
    y = made.block(made.block("x", 0), made.SHIFT)
    shape = [1, "h", "w", width]
    return _model(made.nodes, {"x": (F32, shape)}, {y: (F32, shape)}, made.stored), {
        "x": made.rng.standard_normal((1, 50, 64, width)).astype(np.float32)}


def reader(spread: float = 0.0) -> Case:
    """As exporters write it: states of zeros by the batch's extent, rows of both directions joined
    by a Transpose and a Reshape.  spread: the deviation of weights (0: such that sums keep that of
    what they add up)."""
    rng, nodes, hidden, letters = np.random.default_rng(0), [], 256, 37
    stored: dict[str, Any] = {"height": np.array([2]), "one": np.array([1]),
                              "two": np.array([2]), "hidden": np.array([hidden]),
                              "joined": np.array([0, 0, -1])}

    def made(op: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [f"t{len(nodes)}"], **attributes))
        return str(nodes[-1].output[0])

    def weight(*shape: int) -> str:
        name = f"w{len(stored)}"
        scale = spread or 1 / np.sqrt(np.prod(shape[1:]))
        stored[name] = (rng.standard_normal(shape) * scale).astype(np.float32)
        return name

    x, channels, flat = "x", 1, {"kernel_shape": [2, 2], "strides": [2, 1], "pads": [0, 1, 0, 1]}
    square = {"kernel_shape": [2, 2], "strides": [2, 2]}
    for n, pool in ((32, square), (64, square), (128, None), (128, flat), (256, None), (256, flat)):
        x = made("Relu", made("Conv", x, weight(n, channels, 3, 3), pads=[1] * 4))
        x, channels = made("MaxPool", x, **pool) if pool else x, n
    x = made("Relu", made("Conv", x, weight(channels, channels, 2, 2)))
    x = made("Transpose", made("Squeeze", x, "height"), perm=[2, 0, 1])
    for _ in range(2):
        batch = made("Slice", made("Shape", x), "one", "two")
        state = made("ConstantOfShape", made("Concat", "two", batch, "hidden", axis=0))
        y = made("LSTM", x, weight(2, 4 * hidden, channels), weight(2, 4 * hidden, hidden),
                 weight(2, 8 * hidden), "", state, state, hidden_size=hidden,
                 direction="bidirectional")
        x = made("Reshape", made("Transpose", y, perm=[0, 2, 1, 3]), "joined")
        channels = 2 * hidden
    x = made("LogSoftmax", made("MatMul", x, weight(channels, letters)), axis=2)
    return _model(nodes, {"x": (F32, ["n", 1, 32, "width"])}, {x: (F32, ["steps", "n", letters])},
                  stored), {"x": rng.standard_normal((1, 1, 32, 100)).astype(np.float32)}


def closed() -> Case:
    return reader(0.1)


def strings() -> Case:
    rng, names = np.random.default_rng(0), [f"kind {k}" for k in range(40)]
    nodes = [helper.make_node("OneHotEncoder", ["word"], ["h"], domain="ai.onnx.ml",
                              cats_strings=names, zeros=1),
             helper.make_node("Reshape", ["h", "flat"], ["hot"]),
             helper.make_node("Scaler", ["number"], ["scaled"], domain="ai.onnx.ml",
                              offset=[0.5] * 8, scale=[2.0] * 8),
             helper.make_node("Concat", ["hot", "scaled"], ["all"], axis=1),
             helper.make_node("LinearClassifier", ["all"], ["label", "y"], domain="ai.onnx.ml",
                              classlabels_ints=[0, 1, 2], multi_class=1, post_transform="SOFTMAX",
                              coefficients=rng.standard_normal(3 * 48), intercepts=[0.0] * 3)]
    model = _model(nodes, {"word": (TEXT, ["n", 1]), "number": (F32, ["n", 8])},
                   {"label": (I64, ["n"]), "y": (F32, ["n", 3])},
                   {"flat": np.array([-1, len(names)])}, opset=15)
    return model, {"word": np.array(names, object)[rng.integers(0, len(names), (100, 1))],
                   "number": rng.standard_normal((100, 8)).astype(np.float32)}


CASES: dict[str, Callable[[], Case]] = {
    f.__name__: f for f in (forest, words, columns, taps, separator, windows, reader, closed,
                               strings)}


def measured(case: Case, threads: int, rounds: int) -> dict[str, float]:
    """{system: seconds of a call}."""
    model, feeds = case
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
    with tempfile.TemporaryDirectory() as folder:
        ours = aotc.compile(model, Path(folder) / "bundle").load(threads)
        texts = any(a.dtype == object for a in feeds.values())
        call = (lambda: ours.run(feeds)) if texts else ours.bind(feeds)
        return seconds({"aotc": call, "onnxruntime": lambda: session.run(None, feeds)}, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=8)
    args = parser.parse_args()
    for name in args.names or CASES:
        found = measured(CASES[name](), args.threads, args.rounds)
        ours, theirs = found["aotc"], found["onnxruntime"]
        print(f"{name:10} {ours * 1e6:9.1f} us, ONNX Runtime {theirs * 1e6:9.1f} us: "
              f"{theirs / ours:.2f} times its speed", flush=True)


if __name__ == "__main__":
    main()
