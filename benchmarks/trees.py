"""Boosted trees beside ONNX Runtime, LightGBM's own predictor and TL2cgen's compiled C, at batches
of 1 (another row every call), 64 and 10 000.

python -m benchmarks.trees [--trees 500] [--depth 6] [--threads 1]

Needs lightgbm and onnxmltools; tl2cgen and treelite take part where they are installed (compiling
their C takes minutes)."""

import argparse
import importlib.util
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import aotc
from aotc.ir.dtypes import Array

FEATURES = 30
BATCHES = {1: 1000, 64: 40, 10000: 5}  # calls of each
TURNS = 3
Call = Callable[[Array], Any]


def fitted(trees: int, depth: int, folder: Path) -> tuple[Any, Path]:
    """(LightGBM's booster, the model's path as ONNX) of a regression on random numbers."""
    import lightgbm
    from onnxmltools import convert_lightgbm
    from onnxmltools.convert.common.data_types import FloatTensorType
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4000, FEATURES)).astype(np.float32)
    y = x[:, 0] * x[:, 1] + np.sin(3 * x[:, 2]) + x[:, 3]
    model = lightgbm.LGBMRegressor(n_estimators=trees, max_depth=depth, num_leaves=1 << depth,
                                   min_child_samples=5, verbose=-1, n_jobs=1).fit(x, y)
    proto = convert_lightgbm(model, initial_types=[("X", FloatTensorType([None, FEATURES]))],
                             target_opset=15)
    path = folder / "trees.onnx"
    path.write_bytes(proto.SerializeToString())
    return model.booster_, path


def systems(booster: Any, path: Path, folder: Path, threads: int) -> Iterator[tuple[str, Call]]:
    """(name, call with rows) of every system that is there."""
    bundle = aotc.compile(path, folder / "bundle", target="native").load(threads=threads)
    bound: dict[int, tuple[Array, Call]] = {}

    def run(x: Array) -> Array:
        """A repeated call over the same memory, into which the rows are written."""
        if len(x) not in bound:
            own = x.copy()
            call = bundle.bind({"X": own})
            bound[len(x)] = own, lambda _: call()["variable"]
        own, again = bound[len(x)]
        own[...] = x
        return np.asarray(again(own))
    yield "aotc", run
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    yield "onnxruntime", lambda x: session.run(None, {"X": x})[0]
    yield "lightgbm", lambda x: booster.predict(x, num_threads=threads)
    if importlib.util.find_spec("tl2cgen") and importlib.util.find_spec("treelite"):
        yield "tl2cgen", _compiled_c(booster, folder, threads)


def _compiled_c(booster: Any, folder: Path, threads: int) -> Call:
    import tl2cgen
    import treelite
    text = folder / "trees.txt"
    booster.save_model(str(text))
    tl2cgen.export_lib(treelite.frontend.load_lightgbm_model(str(text)), toolchain="gcc",
                       libpath=folder / "trees.so", params={"parallel_comp": 8}, nthread=threads,
                       options=["-O2", "-march=native"])
    predictor = tl2cgen.Predictor(folder / "trees.so", nthread=threads)
    return lambda x: predictor.predict(tl2cgen.DMatrix(x))


def seconds(call: Call, batch: int) -> float:
    """The median of calls with different rows."""
    rng, times = np.random.default_rng(1), []
    parts = [rng.standard_normal((batch, FEATURES)).astype(np.float32)
             for _ in range(BATCHES[batch])]
    for x in parts:
        start = time.perf_counter()
        call(x)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    """Print a line for each batch."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("trees", 500), ("depth", 6), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-args.threads:])
    with tempfile.TemporaryDirectory() as scratch:
        booster, path = fitted(args.trees, args.depth, Path(scratch))
        found = dict(systems(booster, path, Path(scratch), args.threads))
        x = np.random.default_rng(2).standard_normal((1000, FEATURES)).astype(np.float32)
        want = booster.predict(x)
        for name, call in found.items():
            off = np.abs(np.asarray(call(x)).reshape(-1) - want).max() / np.ptp(want)
            print(f"{name}: {off:.1e} of the range from lightgbm's answers")
        print("| rows | " + " | ".join(found) + " |")
        for batch in BATCHES:
            best = {n: min(seconds(call, batch) for _ in range(TURNS)) for n, call in found.items()}
            print(f"| {batch} | " + " | ".join(f"{t * 1e6:.1f} us" for t in best.values()) + " |",
                  flush=True)


if __name__ == "__main__":
    main()
