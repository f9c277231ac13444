"""aotc on a GPU, beside PyTorch: builds, checks and times small models in one run.

    python -m benchmarks.cuda [MODEL ...] [--target cuda:sm_90] [--seconds 2] [--simulate]
                              [--models FOLDER] [--json cuda.json] [--no-torch]

Needs Python 3.11 with numpy, onnx, jinja2 and cffi, nvcc, and a C compiler; models of the zoo need
its folder (AOTC_ZOO) or finished .onnx files in --models, digits needs scikit-learn.  PyTorch is
measured where torch finds the GPU (torchvision for the convolutional nets, transformers for
bert_tiny), each model eager and under torch.compile; what is missing is skipped with a reason.

Times are milliseconds per inference with inputs and outputs in device memory: so many inferences
are started one after the other that they take a while, then waited for; systems take turns.
--simulate does everything but the timing, on a machine without a GPU.
"""

import argparse
import importlib.util
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from aotc.errors import AotcError
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.runtime.compile_bundle import build
from aotc.runtime.cuda_model import devices
from aotc.runtime.loading import load
from aotc.target import TARGETS
from aotc.tools.bench import interleave
from aotc.tools.peers import open_reference
from aotc.tools.verify import compare
from benchmarks import models, torch_models

NAMES = ("digits", "bert_tiny", "squeezenet1_1", "mobilenet_v2")
BATCH_SECONDS = 0.02  # inferences started before waiting: enough to fill so much time


def find_case(name, folder):
    """The models.Case of a name: digits, a file FOLDER/NAME.onnx, or what ``models`` has.
    LookupError with the reason if there is none."""
    path = Path(folder) / f"{name}.onnx"
    if name == "digits" and not path.exists():
        return _digits(path)
    if not path.exists() or models.zoo_folder().is_dir():
        try:
            return models.case(name, folder)
        except KeyError:
            raise LookupError("neither a zoo model (AOTC_ZOO), nor a file in --models") from None
    return models.Case(name, path, {})


def _digits(path):
    if importlib.util.find_spec("sklearn") is None:
        raise LookupError("scikit-learn is not installed")
    source = models.ROOT / "examples" / "digits" / "train.py"
    spec = importlib.util.spec_from_file_location("digits_train", source)
    train = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(train)
    images = train.write_model(path)[1]
    return models.Case("digits", path, {"images": images[:64].copy()})


def make_feeds(program):
    """Random inputs of a program, dynamic dimensions in the middle of their capped range."""
    from aotc.samples import extents, random_inputs
    return random_inputs(program, extents(program)[0])


def open_case(case, target, folder, simulate):
    """(Model built and loaded, feeds, seconds by step) of a Case."""
    out, clock = Path(folder) / f"{case.name}.bundle", time.perf_counter
    start = clock()
    work = run_pipeline(Options(case.path, out, target, case.name))
    middle = clock()
    build(out, jobs=8, simulate=simulate)
    end = clock()
    model = load(out, simulate=simulate)
    return model, case.feeds or make_feeds(work.program), {"compile": middle - start,
                                                           "build": end - middle}


def check(case, model, feeds):
    """Worst (share of the range, whether all outputs are right) of one run."""
    want, got = open_reference(case.path)[1](feeds), model.run(feeds)
    matches = [compare(n, got[n], want[n]) for n in got]
    return max(m.share for m in matches), all(m.ok for m in matches)


def batched(call, wait):
    """``call`` so often that a batch takes BATCH_SECONDS, then ``wait``: (batch(), size)."""
    def batch(n):
        for _ in range(n):
            call()
        wait()
    batch(3)
    size = 1
    while size < 1 << 16:
        start = time.perf_counter()
        batch(size)
        took = time.perf_counter() - start
        if took >= BATCH_SECONDS:
            break
        size = max(size + 1, int(size * min(8.0, 1.1 * BATCH_SECONDS / max(took, 1e-6))))
    return (lambda: batch(size)), size


def open_systems(name, model, feeds, with_torch):
    """{system: (call, wait)} to time, and {system: reason} of those left out."""
    bound = model.bind(feeds)
    bound.upload()
    systems, skipped = {"aotc": (bound.launch, model.synchronize)}, {}
    for system in ("torch eager", "torch.compile"):
        reason = "not asked for" if not with_torch else torch_models.why_not()
        if not reason:
            try:
                call = torch_models.open_torch(name, list(feeds.values()),
                                               system == "torch.compile")
                call()
                systems[system] = (call, torch_models.wait)
            except Exception as err:  # torch's compilers raise whatever they like
                reason = f"{type(err).__name__}: {err}".splitlines()[0]
        if reason:
            skipped[system] = reason
    return systems, skipped


def time_systems(systems, seconds):
    """{system: {"median_ms", "min_ms", "batch", "batches"}}, systems taking turns."""
    batches = {name: batched(*pair) for name, pair in systems.items()}
    timings = interleave({n: b for n, (b, _) in batches.items()}, seconds)
    return {t.name: {"median_ms": t.median_ms / batches[t.name][1],
                     "min_ms": t.min_ms / batches[t.name][1],
                     "batch": batches[t.name][1], "batches": t.calls} for t in timings}


def run_model(case, args, folder):
    """The result row of one model, compiled into ``folder``: a dict for the JSON file."""
    name = case.name
    model, feeds, seconds = open_case(case, args.target, folder, args.simulate)
    start = time.perf_counter()
    share, right = check(case, model, feeds)
    row = {"ok": right, "share": float(share), "compile_s": seconds["compile"],
           "build_s": seconds["build"], "check_s": time.perf_counter() - start}
    print(f"{name:16}{'ok' if right else 'MISMATCH':10}{share:10.2g} of the range   compile "
          f"{row['compile_s']:.1f} s, build {row['build_s']:.1f} s", flush=True)
    if args.simulate:
        return row
    systems, row["skipped"] = open_systems(name, model, feeds, not args.no_torch)
    row["times"] = time_systems(systems, args.seconds)
    ours = row["times"]["aotc"]["median_ms"]
    rate = f"  {case.gflop / ours * 1e3:.0f} GFLOP/s" if case.gflop else ""
    for system, t in row["times"].items():
        extra = rate if system == "aotc" else f"  aotc takes {ours / t['median_ms']:.2f} of it"
        print(f"    {system:14}{t['median_ms']:10.4f} ms  (best {t['min_ms']:.4f}){extra}")
    for system, reason in row["skipped"].items():
        print(f"    {system:14}skipped: {reason}", flush=True)
    return row


def pick_target(simulate):
    """The target for the first GPU of this machine: its own, else the one for any.  AotcError if
    there is no GPU and nothing is to be simulated."""
    found = devices()
    if not found and not simulate:
        raise AotcError("no GPU here; --simulate does everything but the timing")
    name = f"cuda:{found[0][1]}" if found else "cuda"
    return name if name in TARGETS else "cuda"


def main(argv=None):
    """Measure; the exit code is 1 if a model failed or is wrong, 2 if there is nothing to run
    on."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help=", ".join(NAMES))
    parser.add_argument("--target", help="the first GPU's own if left out")
    parser.add_argument("--seconds", type=float, default=2.0, help="per model and system")
    parser.add_argument("--simulate", action="store_true", help="build for the CPU, check only")
    parser.add_argument("--models", dest="folder", help="folder with, or for, the .onnx files")
    parser.add_argument("--json", default="cuda.json", help="file for the results")
    parser.add_argument("--no-torch", action="store_true", help="aotc alone")
    args = parser.parse_args(argv)
    try:
        args.target = args.target or pick_target(args.simulate)
    except AotcError as err:
        parser.error(str(err))
    gpus = ", ".join(f"{n} ({c})" for n, c in devices()) or "none"
    print(f"target {args.target}{', simulated' if args.simulate else ''}; GPUs: {gpus}; numpy "
          f"{np.__version__}")
    results, failed = {}, {}
    if args.folder:
        Path(args.folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="aotc-cuda-") as scratch:
        for name in args.models or NAMES:
            try:
                case = find_case(name, args.folder or scratch)
                results[name] = run_model(case, args, scratch)
            except LookupError as err:
                print(f"{name:16}skipped: {err}", flush=True)
            except AotcError as err:
                failed[name] = str(err)
                print(f"{name:16}failed: {err}", file=sys.stderr, flush=True)
    Path(args.json).write_text(json.dumps({
        "target": args.target, "gpus": devices(), "simulated": args.simulate,
        "results": results, "failed": failed}, indent=1) + "\n")
    return 1 if failed or not all(r["ok"] for r in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
