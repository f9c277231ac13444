"""Small nets of kinds that no other benchmark has, beside ONNX Runtime.

    python -m benchmarks.overlooked [NAME ...] [--threads 1] [--rounds 8]

forest      300 trees of doubles, 100 rows
words       three convolutions between activations quantised to 16 bits
columns     a product of one row by weights alone quantised, a scale for each column
taps        a convolution whose weights alone are quantised
separator   blocks of Conv-TasNet over a signal of free length: pointwise and dilated depthwise
            convolutions along one axis, PReLU, norms over channels and time
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
    f.__name__: f for f in (forest, words, columns, taps, separator, strings)}


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
