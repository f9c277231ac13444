"""Models quantised by ONNX Runtime's own tools: aotc and ONNX Runtime, 8-bit and f32, taking turns.

    python -m benchmarks.quantised MODEL.onnx [--forms qdq,qoperator,dynamic] [--threads 1]
                                   [--seconds 3] [--target native] [--keep FOLDER]

Static forms are calibrated on random inputs; activations are u8, weights s8 per channel.  Prints
medians and the shortest calls, and how far aotc's outputs are from ONNX Runtime's on the same
model: as a share of the output's range, and in quanta where an output takes 8-bit values only.
Nothing is asserted.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

import aotc
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.samples import extents, random_inputs
from aotc.tools.bench import interleave, pin
from aotc.tools.peers import open_peer

FORMS = ("qdq", "qoperator", "dynamic")
CALIBRATION = 2  # sets of random inputs


class Feeds:
    """What ONNX Runtime's calibration reads: one dict after the other, then None."""

    def __init__(self, sets):
        self.sets = iter(sets)

    def get_next(self):
        return next(self.sets, None)


def quantise(path, form, out, sets):
    """Write the model at ``path`` in one of ``FORMS`` to ``out``; ``sets``: inputs to calibrate
    static forms on."""
    from onnxruntime import quantization as q
    if form == "dynamic":
        q.quantize_dynamic(path, out)
        return
    kind = {"qdq": q.QuantFormat.QDQ, "qoperator": q.QuantFormat.QOperator}[form]
    q.quantize_static(path, out, Feeds(sets), quant_format=kind, per_channel=True,
                      activation_type=q.QuantType.QUInt8, weight_type=q.QuantType.QInt8)


def difference(got, want):
    """(largest difference as a share of the range, the same in quanta or None) of two arrays."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    error = np.abs(got - want).max()
    steps = np.diff(np.unique(want))
    quantum = steps.min() if 0 < steps.size < 256 else None
    if quantum is not None and np.abs(steps / quantum - np.rint(steps / quantum)).max() > 1e-2:
        quantum = None
    return error / max(np.ptp(want), 1e-30), None if quantum is None else error / quantum


def measure(path, forms, folder, threads, target, seconds):
    """Print the rows of one model; returns {system: median in ms}."""
    work = run_pipeline(Options(path, target=target, stop_after="fold"))
    syms = extents(work.program)[0]
    sets = [random_inputs(work.program, syms, seed) for seed in range(CALIBRATION + 1)]
    feeds, calls, notes = sets.pop(), {}, []
    models = {"f32": Path(path)}
    for form in forms:
        models[form] = Path(folder) / f"{Path(path).stem}_{form}.onnx"
        quantise(path, form, models[form], sets)
    for name, model in models.items():
        bundle = aotc.compile(model, out=Path(folder) / f"{name}.bundle", target=target,
                              name=f"model_{name}")
        own, peer = bundle.load(threads=threads), open_peer("onnxruntime", model, threads)
        calls[f"aotc {name}"] = own.bind(feeds)
        calls[f"onnxruntime {name}"] = lambda peer=peer: peer(feeds)
        want = peer(feeds)
        for output, got in own.run(feeds).items():
            share, quanta = difference(got, want[output])
            notes.append(f"  {name} {output}: differs by {share:.1e} of the range"
                         + ("" if quanta is None else f", {quanta:.2f} quanta"))
    pin(threads)
    times = interleave(calls, seconds * len(calls))
    for t in times:
        print(f"{Path(path).stem:16}{t.name:24}median {t.median_ms:9.3f} ms, shortest "
              f"{t.min_ms:9.3f} ms, {t.calls} calls")
    print("\n".join(notes), flush=True)
    return {t.name: t.median_ms for t in times}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("model")
    parser.add_argument("--forms", type=lambda s: s.split(","), default=list(FORMS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--target", default="native")
    parser.add_argument("--keep", metavar="FOLDER")
    options = parser.parse_args(arguments)
    unknown = set(options.forms) - set(FORMS)
    if unknown:
        parser.error(f"--forms: choose from {', '.join(FORMS)}; got {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as folder:
        measure(options.model, options.forms, options.keep or folder, options.threads,
                options.target, options.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
