"""Single kernels beside ONNX Runtime and OpenVINO: one small model per row of the table.

    python -m benchmarks.kernels [NAME ...] [--threads 1] [--compare onnxruntime,openvino]
                                 [--seconds 1] [--json kernels.json]

Every case is one layer as a model of its own, with random weights: input and output are row-major,
so a convolution's time includes what a system needs to bring them into its own layout.  Systems
take turns in one pinned process; printed are the shortest call of each (what disturbs a call of a
few microseconds is longer than the call), GFLOP/s or GB/s, and ratios: below 1 aotc is faster.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from aotc.errors import AotcError
from aotc.tools.bench import measure
from benchmarks.zoo import installed_peers


def _model(nodes, inputs, weights, output):
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(op, ins, outs, **attrs) for op, ins, outs, attrs in nodes], "kernel",
        [value(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
         for n, a in inputs.items()],
        [value(output, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, n) for n, a in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def _random(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def conv(channels, size, out, kernel=3, stride=1, pad=None, group=1, relu=True, dilation=1):
    """A convolution over a square (with a tuple of extents: a line, a cube), bias and
    activation."""
    space = (size,) * 2 if isinstance(size, int) else size
    kernel = (kernel,) * len(space) if isinstance(kernel, int) else kernel
    reach = [dilation * (k - 1) + 1 for k in kernel]
    pad = reach[0] // 2 if pad is None else pad
    x, w = _random(1, channels, *space), _random(out, channels // group, *kernel)
    nodes = [("Conv", ["x", "w", "b"], ["c"], {
        "pads": [pad] * 2 * len(space), "strides": [stride] * len(space), "group": group,
        "dilations": [dilation] * len(space)})]
    nodes += [("Relu", ["c"], ["y"], {})] if relu else []
    points = np.prod([(n + 2 * pad - k) // stride + 1 for n, k in zip(space, reach)])
    flops = 2 * int(points) * out * (channels // group) * int(np.prod(kernel))
    return nodes, {"x": x}, {"w": w, "b": _random(out)}, "y" if relu else "c", flops


def conv_transpose(channels, size, out, kernel, stride):
    """A transposed convolution over a square, with bias; only products that are not with inserted
    zeros count."""
    pad = (kernel - stride) // 2
    nodes = [("ConvTranspose", ["x", "w", "b"], ["y"], {"strides": [stride] * 2,
                                                         "pads": [pad] * 4})]
    return nodes, {"x": _random(1, channels, size, size)}, {
        "w": _random(channels, out, kernel, kernel), "b": _random(out)}, "y", \
        2 * size * size * channels * out * kernel * kernel


def gemm(m, k, n, transposed=False):
    """x @ w + b, or with the data transposed."""
    x = _random(k, m) if transposed else _random(m, k)
    nodes = [("Gemm", ["x", "w", "b"], ["y"], {"transA": int(transposed)})]
    return nodes, {"x": x}, {"w": _random(k, n), "b": _random(n)}, "y", 2 * m * k * n


def batched(heads, m, k, n):
    """One matrix product per head, both factors computed at run time."""
    nodes = [("MatMul", ["x", "z"], ["y"], {})]
    return (nodes, {"x": _random(heads, m, k), "z": _random(heads, k, n)}, {}, "y",
            2 * heads * m * k * n)


def scores(heads, m, k, n):
    """One product per head with the transpose of its second factor, as queries meet keys."""
    nodes = [("Transpose", ["z"], ["t"], {"perm": [0, 2, 1]}), ("MatMul", ["x", "t"], ["y"], {})]
    return (nodes, {"x": _random(heads, m, k), "z": _random(heads, n, k)}, {}, "y",
            2 * heads * m * k * n)


def gelu(count):
    """x * (1 + erf(x / sqrt(2))) / 2, as exporters write it."""
    nodes = [("Mul", ["x", "root"], ["r"], {}), ("Erf", ["r"], ["e"], {}),
             ("Add", ["e", "one"], ["s"], {}), ("Mul", ["x", "s"], ["p"], {}),
             ("Mul", ["p", "half"], ["y"], {})]
    numbers = {"root": 0.5 ** 0.5, "one": 1, "half": 0.5}
    weights = {n: np.asarray(v, np.float32) for n, v in numbers.items()}
    return nodes, {"x": _random(count)}, weights, "y", -2 * 4 * count


def silu(count):
    nodes = [("Sigmoid", ["x"], ["s"], {}), ("Mul", ["x", "s"], ["y"], {})]
    return nodes, {"x": _random(count)}, {}, "y", -2 * 4 * count


def gather(table, width, rows):
    """Rows of a table looked up; its rate counts the rows only."""
    at = np.random.default_rng(rows).integers(0, table, rows)
    nodes = [("Gather", ["w", "at"], ["y"], {})]
    return nodes, {"at": at}, {"w": _random(table, width)}, "y", -2 * 4 * rows * width


def unary(op, shape, shrinks=1, **attrs):
    """One operator over one tensor; its rate is bytes read and written per second.  shrinks: so
    many elements become one."""
    x = _random(*shape)
    return [(op, ["x"], ["y"], attrs)], {"x": x}, {}, "y", -(x.nbytes + x.nbytes // shrinks)


def layer_norm(rows, columns):
    weights = {"s": _random(columns), "b": _random(columns)}
    return [("LayerNormalization", ["x", "s", "b"], ["y"], {})], {"x": _random(rows, columns)}, \
        weights, "y", -2 * 4 * rows * columns


def recurrent(op, gates, steps, width):
    """One layer; the recurrent product is its time.  Weights are small enough that roundings do
    not grow from step to step."""
    scale = np.float32(0.25 / width ** 0.5)
    w = _random(1, gates * width, width) * scale
    weights = {"w": w, "r": np.ascontiguousarray(w[:, :, ::-1])}  # equal ones would be stored once
    return [(op, ["x", "w", "r"], ["y"], {"hidden_size": width})], \
        {"x": _random(steps, 1, width)}, weights, "y", 4 * gates * steps * width * width


# row of the compiler -> the layer that shows it
CASES = {
    "gemm 128x768x3072": lambda: gemm(128, 768, 3072),
    "gemm 3136x64x256": lambda: gemm(3136, 64, 256),
    "gemm 8x1024x1024": lambda: gemm(8, 1024, 1024),
    "gemm 256x4096x4096": lambda: gemm(256, 4096, 4096),
    "gemv 1x2048x1000": lambda: gemm(1, 2048, 1000),
    "gemm transposed 256x512x256": lambda: gemm(256, 512, 256, transposed=True),
    "batched 12x128x64x128": lambda: batched(12, 128, 64, 128),
    "batched transposed 12x128x64x128": lambda: scores(12, 128, 64, 128),
    "conv 1x1 64->256 56": lambda: conv(64, 56, 256, 1),
    "conv 3x3 64 56": lambda: conv(64, 56, 64),
    "conv 3x3 128 28": lambda: conv(128, 28, 128),
    "conv 3x3 256 14": lambda: conv(256, 14, 256),
    "conv 3x3 512 7": lambda: conv(512, 7, 512),
    "conv 3x3 128 28 direct": lambda: conv(128, 28, 128),
    "conv 3x3 128 28 F(2)": lambda: conv(128, 28, 128),
    "conv 3x3 128 28 F(4)": lambda: conv(128, 28, 128),
    "conv 3x3 128 28 F(6)": lambda: conv(128, 28, 128),
    "conv 3x3 stride 2 128": lambda: conv(128, 56, 128, stride=2),
    "conv 3x3 dilation 2 128 28": lambda: conv(128, 28, 128, dilation=2),
    "conv 1-D 5 256 400": lambda: conv(256, (400,), 256, 5),
    "conv 3x3x3 32 16": lambda: conv(32, (16, 28, 28), 32),
    "conv 3x3x3 32 16 direct": lambda: conv(32, (16, 28, 28), 32),
    "conv 3x3x3 stride 2 32 16": lambda: conv(32, (16, 28, 28), 64, stride=2),
    "transposed conv 2x2 128->64 28": lambda: conv_transpose(128, 28, 64, 2, 2),
    "transposed conv 4x4 64->32 56": lambda: conv_transpose(64, 56, 32, 4, 2),
    "first layer 7x7 stride 2": lambda: conv(3, 224, 64, 7, 2),
    "first layer 3x3 stride 2": lambda: conv(3, 224, 32, 3, 2),
    "depthwise 3x3 144 56": lambda: conv(144, 56, 144, group=144),
    "depthwise 3x3 stride 2 144 56": lambda: conv(144, 56, 144, stride=2, group=144),
    "depthwise 5x5 240 28": lambda: conv(240, 28, 240, 5, group=240),
    "depthwise 1-D 31 256 400": lambda: conv(256, (400,), 256, 31, group=256),
    "grouped 3x3 32x4": lambda: conv(128, 28, 128, group=32),
    "grouped 3x3 8x16": lambda: conv(128, 28, 128, group=8),
    "last layer 3x3 48->3 128": lambda: conv(48, 128, 3, relu=False),
    "max pool 3x3 64 112": lambda: unary("MaxPool", (1, 64, 112, 112), 4,
                                         kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    "average pool 2x2 64 112": lambda: unary("AveragePool", (1, 64, 112, 112), 4,
                                             kernel_shape=[2, 2], strides=[2, 2]),
    "global average pool 2048 7": lambda: unary("GlobalAveragePool", (1, 2048, 7, 7), 49),
    "softmax 1536x128": lambda: unary("Softmax", (1536, 128)),
    "layer norm 512x768": lambda: layer_norm(512, 768),
    "sigmoid 1M": lambda: unary("Sigmoid", (1 << 20,)),
    "tanh 1M": lambda: unary("Tanh", (1 << 20,)),
    "erf 1M": lambda: unary("Erf", (1 << 20,)),
    "exp 1M": lambda: unary("Exp", (1 << 20,)),
    "gelu 1M": lambda: gelu(1 << 20),
    "silu 1M": lambda: silu(1 << 20),
    "gather 512 of 30522x768": lambda: gather(30522, 768, 512),
    "transpose 1024x1024": lambda: unary("Transpose", (1024, 1024), perm=[1, 0]),
    "channels last 64x112x112": lambda: unary("Transpose", (1, 64, 112, 112),
                                              perm=[0, 2, 3, 1]),
    "lstm 64 steps of 256": lambda: recurrent("LSTM", 4, 64, 256),
    "gru 64 steps of 256": lambda: recurrent("GRU", 3, 64, 256),
}

# layers that a decision computes in another way than the default; a layer that reads the caller's
# tensor gets the form that it has inside a model only if it is asked for
DECISIONS = {name: {"winograd": form} for name, form in (
    ("conv 3x3 128 28 direct", "off"), ("conv 3x3 128 28 F(2)", 2), ("conv 3x3 128 28 F(4)", 4),
    ("conv 3x3 128 28 F(6)", 6), ("conv 3x3x3 32 16 direct", "off"), ("conv 3x3 64 56", 4),
    ("conv 3x3 128 28", 4), ("conv 3x3 256 14", 4), ("conv 3x3 512 7", 4),
    ("conv 1-D 5 256 400", 4), ("conv 3x3x3 32 16", 4))}


def measure_case(name, args, folder):
    """{system: shortest call in ms} of those that count, and the case's work: flops, or, negative,
    bytes."""
    nodes, inputs, weights, output, work = CASES[name]()
    path = Path(folder) / "kernel.onnx"
    onnx.save(_model(nodes, inputs, weights, output), path)
    rows = measure(path, Path(folder) / "bundle", inputs, args.threads, args.peers, args.target,
                   args.seconds, **DECISIONS.get(name, {}))
    times = {r.name: r.min_ms for r in rows if not r.fault}
    return times, work


def main(argv=None):
    """Measure; the exit code is 1 if a case failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", help="names; all without any")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--target", default="native")
    parser.add_argument("--compare", help="peers, comma-separated; those installed if left out")
    parser.add_argument("--seconds", type=float, default=1.0, help="per system and case")
    parser.add_argument("--json", default="kernels.json", help="file for the results")
    args = parser.parse_args(argv)
    args.peers = args.compare.split(",") if args.compare else installed_peers()
    print("| kernel | aotc ms | rate |" + "".join(f" {p} ms | ratio |" for p in args.peers))
    print("|---|--:|--:|" + "--:|--:|" * len(args.peers))
    results, failed = {}, []
    for name in args.cases or CASES:
        with tempfile.TemporaryDirectory(prefix="aotc-kernel-") as folder:
            try:
                times, work = measure_case(name, args, folder)
            except (AotcError, KeyError) as err:
                failed.append(name)
                print(f"{name} failed: {err}", file=sys.stderr)
                continue
        ours = times["aotc"]
        rate = f"{abs(work) / ours * 1e-6:.1f} {'GFLOP/s' if work > 0 else 'GB/s'}"
        cells = "".join(f" {times[p]:.4f} | {ours / times[p]:.2f} |" if p in times else " - | - |"
                        for p in args.peers)
        print(f"| {name} | {ours:.4f} | {rate} |{cells}", flush=True)
        results[name] = times
    for p in args.peers:
        ratios = [t["aotc"] / t[p] for t in results.values() if p in t]
        if ratios:
            print(f"geometric mean of ratios to {p}: {statistics.geometric_mean(ratios):.2f}")
    Path(args.json).write_text(json.dumps({"threads": args.threads, "results": results,
                                           "failed": failed}, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
