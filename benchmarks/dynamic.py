"""Bundles for ranges of extents beside bundles for one extent each and beside ONNX Runtime.

    python -m benchmarks.dynamic [MODEL ...] [--variants auto] [--models FOLDER] [--runs 9]

Image models get free batch, height and width; bert_small_dyn its own batch and sequence.  For every
call: milliseconds (medians of runs in turns) and speed by that of the static bundle and of ONNX
Runtime on the same dynamic file, one thread.  Nothing is asserted; pin it (taskset) to compare.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import aotc
from benchmarks import models

IMAGES = {"b": (1, 8), "h": (96, 512), "w": (96, 512)}
CALLS = ((1, 96, 96), (1, 101, 131), (1, 224, 224), (2, 320, 256))
TOKENS = {"batch": (1, 8), "seq": (1, 512)}
LENGTHS = ((1, 1), (1, 16), (1, 128), (4, 32), (8, 256))
# model -> (its dimensions, their ranges, calls)
NETS = ("resnet18", "mobilenet_v2", "unet", "nafnet")
CASES = dict.fromkeys(NETS, (("b", 3, "h", "w"), IMAGES, CALLS))
CASES["bert_small_dyn"] = (None, TOKENS, LENGTHS)


def freed(path, extents):
    """The model with these extents of its only input, numbers or names."""
    model = onnx.load(path)
    del model.graph.value_info[:]
    for dim, extent in zip(model.graph.input[0].type.tensor_type.shape.dim, extents):
        dim.Clear()
        if isinstance(extent, str):
            dim.dim_param = extent
        else:
            dim.dim_value = extent
    for output in model.graph.output:
        for dim in output.type.tensor_type.shape.dim:
            dim.Clear()
    return model


def feeds_of(session, values, rng):
    """Random inputs of a call: normal floats, ids below 1000, masks of ones."""
    feeds = {}
    for x in session.get_inputs():
        shape = [values.get(d, d) if isinstance(d, str) else d for d in x.shape]
        if x.type == "tensor(float)":
            feeds[x.name] = rng.standard_normal(shape).astype(np.float32)
        else:
            mask = "mask" in x.name
            feeds[x.name] = np.ones(shape, np.int64) if mask else rng.integers(0, 1000, shape)
    return feeds


def in_turns(systems, runs):
    """Median seconds of every function, called in turns."""
    times = [[] for _ in systems]
    for n in range(runs + 1):
        for row, call in zip(times, systems):
            start = time.perf_counter()
            call()
            if n:  # the first call touches memory
                row.append(time.perf_counter() - start)
    return [statistics.median(row) for row in times]


def measure_case(name, args, folder):
    """Print a line for every call of one model."""
    extents, ranges, calls = CASES[name]
    path = models.case(name, args.models or folder).path
    model = onnx.load(path) if extents is None else freed(path, extents)
    start = time.perf_counter()
    aotc.compile(model, folder / "free", name=name, dims=ranges, variants=args.variants)
    print(f"{name}: compiled and built in {time.perf_counter() - start:.0f} s", flush=True)
    free = aotc.load(folder / "free")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    peer = onnxruntime.InferenceSession(model.SerializeToString(), options)
    for values in (dict(zip(ranges, call)) for call in calls):
        aotc.compile(model, folder / "fixed", name=name, dims=values)
        fixed = aotc.load(folder / "fixed")
        feeds = feeds_of(peer, values, np.random.default_rng(1))
        ours, static, theirs = in_turns(
            [lambda f=f, x=feeds: f(x) for f in (free.run, fixed.run,
                                                 lambda x: peer.run(None, x))], args.runs)
        label = ", ".join(f"{n} {v}" for n, v in values.items())
        print(f"  {label:24}{ours * 1e3:9.2f} ms  static {static / ours:5.2f}  "
              f"onnxruntime {theirs / ours:5.2f}", flush=True)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="MODEL", help=f"of {', '.join(CASES)}")
    parser.add_argument("--variants", choices=["auto"], help="find ranges by cost")
    parser.add_argument("--models", help="folder to keep the .onnx files in")
    parser.add_argument("--runs", type=int, default=9, help="per system and call")
    args = parser.parse_args(argv)
    for name in args.names or CASES:
        with tempfile.TemporaryDirectory(prefix="aotc-dynamic-") as scratch:
            measure_case(name, args, Path(scratch))


if __name__ == "__main__":
    main()
