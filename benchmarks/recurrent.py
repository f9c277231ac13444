"""Recurrent nets beside ONNX Runtime, with one thread and two.

    python -m benchmarks.recurrent [lstm] [gru] [--threads 1 2] [--rounds 12]

lstm: 2 layers, hidden 256, batch 1; gru: bidirectional, hidden 256, batch 4; 64 steps both.  Blocks
of calls take turns, after a pause, so that the waiting threads of one do not take the other's time.
"""

import argparse
import tempfile
import time

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import aotc

STEPS, HIDDEN = 64, 256
WARM, CALLS = 4, 12  # calls of a block that are not counted, and that are
PAUSE = 0.004  # seconds


def _model(nodes, weights, batch, result, shape):
    graph = helper.make_graph(
        nodes, "recurrent",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [STEPS, batch, HIDDEN])],
        [helper.make_tensor_value_info(result, TensorProto.FLOAT, shape)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _weights(tag, directions, gates):
    random = np.random.default_rng(len(tag))
    square = (gates * HIDDEN, HIDDEN)
    shapes = {"W": square, "R": square, "B": (2 * gates * HIDDEN,)}
    return [numpy_helper.from_array((random.standard_normal((directions, *s)) / 16).astype(
        np.float32), f"{n}{tag}") for n, s in shapes.items()]


def lstm():
    """Two layers of one row."""
    nodes, weights, x = [], [numpy_helper.from_array(np.array([1]), "axis")], "x"
    for i in range(2):
        weights += _weights(str(i), 1, 4)
        nodes += [helper.make_node("LSTM", [x, f"W{i}", f"R{i}", f"B{i}"], [f"y{i}"],
                                   hidden_size=HIDDEN),
                  helper.make_node("Squeeze", [f"y{i}", "axis"], [f"s{i}"])]
        x = f"s{i}"
    return _model(nodes, weights, 1, x, [STEPS, 1, HIDDEN])


def gru():
    """One layer of four rows in both directions."""
    node = helper.make_node("GRU", ["x", "W", "R", "B"], ["y"], hidden_size=HIDDEN,
                            direction="bidirectional")
    return _model([node], _weights("", 2, 3), 4, "y", [STEPS, 2, 4, HIDDEN])


MODELS = {"lstm": lstm, "gru": gru}


def seconds(ways, rounds):
    """{name: median seconds of a call} of functions that are called in turns, block by block."""
    times = {name: [] for name in ways}
    for _ in range(rounds):
        for name, call in ways.items():
            time.sleep(PAUSE)
            for k in range(WARM + CALLS):
                start = time.perf_counter()
                call()
                if k >= WARM:
                    times[name].append(time.perf_counter() - start)
    return {name: float(np.median(t)) for name, t in times.items()}


def measured(model, folder, threads, rounds):
    """``seconds`` of aotc's bundle in ``folder`` and of ONNX Runtime, on equal data."""
    ours = aotc.load(folder, threads=threads)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), options)
    shape = theirs.get_inputs()[0].shape
    feeds = {"x": np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
    return seconds({"aotc": lambda: ours.run(feeds),
                    "onnxruntime": lambda: theirs.run(None, feeds)}, rounds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(MODELS), choices=[*MODELS, []])
    parser.add_argument("--threads", nargs="*", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=12)
    args = parser.parse_args()
    for name in args.models or MODELS:
        model = MODELS[name]()
        with tempfile.TemporaryDirectory() as folder:
            aotc.compile(model, folder, name=name)
            for threads in args.threads:
                found = measured(model, folder, threads, args.rounds)
                print(f"{name}, {threads} thread(s): " + ", ".join(
                    f"{who} {1e3 * t:.3f} ms" for who, t in found.items())
                    + f", speed {found['onnxruntime'] / found['aotc']:.3f} of onnxruntime's")


if __name__ == "__main__":
    main()
