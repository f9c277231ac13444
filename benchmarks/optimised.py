"""Models as ONNX Runtime's optimiser writes them, beside what it was given.

    python -m benchmarks.optimised [NAME ...] [--threads 1] [--rounds 12] [--folder F]

Models of the zoo at the levels BASIC and EXTENDED: whether the scheduler finds the kernels that it
finds for the model itself (micro-kernels of every group), how far outputs are apart, and times of
calls in turns.  Bundles stay in ``--folder`` and are measured again there.
"""

import argparse
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import onnxruntime

import aotc
from aotc.ir.schedule import Schedule
from aotc.tools.bench import interleave, pin
from benchmarks.models import case

NAMES = ("resnet18", "mobilenet_v2", "bert_small", "vit_base_16", "gpt2")
LEVELS = {"basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED"}
SECONDS = 0.4  # of calls of one bundle in a round


def optimised(path, level, out):
    """The file ``out``: the model as ONNX Runtime's optimiser writes it at a level."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, LEVELS[level])
    options.optimized_model_filepath = str(out)
    options.log_severity_level = 3  # it warns that the model may suit this machine only
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return out


def built(path, folder):
    """The bundle of a model in ``folder``, and its Schedule beside it, both made once."""
    schedule = folder.with_suffix(".json")
    if not schedule.exists():
        aotc.compile(path, folder, name="net", schedule_out=schedule)
        aotc.load(folder, threads=1)  # builds
    return Schedule.from_json(schedule.read_text())


def kernels(schedule):
    """How many groups there are of every set of micro-kernels."""
    return Counter(tuple(sorted(dict(g.rows).values())) for g in schedule.groups)


def difference(one, two):
    """Lines of the kernels that only one of two Schedules has."""
    a, b = kernels(one), kernels(two)
    return [f"{'+' if n > 0 else '-'}{abs(n)} {' '.join(key)}" for key in sorted({*a, *b})
            if (n := b[key] - a[key])]


def compared(name, folder, threads, rounds):
    """Lines about one model."""
    model = case(name, folder)
    files = {"itself": model.path} | {n: optimised(model.path, n, folder / f"{name}_{n}.onnx")
                                      for n in LEVELS if not (folder / f"{name}_{n}.json").exists()}
    schedules = {n: built(files.get(n), folder / f"{name}_{n}") for n in ("itself", *LEVELS)}
    calls, results = {}, {}
    for n in schedules:
        call = aotc.load(folder / f"{name}_{n}", threads=threads).bind(model.feeds)
        calls[n], results[n] = call, [np.array(v) for v in call().values()]
    timings = interleave(calls, rounds * SECONDS, rounds)
    base = timings[0].median_ms
    for n, t in zip(schedules, timings):
        apart = max(float(np.abs(a - b).max() / max(1e-30, np.abs(b).max()))
                    for a, b in zip(results[n], results["itself"]))
        other = difference(schedules["itself"], schedules[n])
        yield (f"{name} {n}: {t.median_ms:.3f} ms, {t.median_ms / base:.3f} of itself, "
               f"{len(schedules[n].groups)} kernels, outputs {apart:.1e} apart"
               + (f"; kernels {', '.join(other)}" if other else ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    pin(args.threads)
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in args.names:
            for line in compared(name, folder, args.threads, args.rounds):
                print(line, flush=True)


if __name__ == "__main__":
    main()
