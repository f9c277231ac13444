"""What tuning gains: every model tuned, then its bundle in turns with the untuned one.

    python -m benchmarks.tuning [MODEL ...] [--budget 120] [--seconds 8] [--models FOLDER]
                                [--schedules FOLDER]

Per model: median milliseconds untuned and tuned, the ratio, and how many candidates were measured;
last the geometric mean of the ratios.  ``--schedules``: keep the tuned Schedules there, and measure
those that are there already instead of searching.  The two bundles are ordinary ones, built after
the search; nothing is asserted.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from statistics import geometric_mean

from aotc.api import load
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.runtime.compile_bundle import build
from aotc.tools.bench import interleave, pin
from aotc.tuner.session import tune
from benchmarks import models

NAMED = ("mobilenet_v2", "densenet121", "nafnet", "bsrn", "restormer", "conformer", "dlrm",
         "squeezenet1_1")
ROUNDS_A_SECOND = 4


def searched(case, args, path):
    """Tune a model, write its Schedule to ``path``; how many candidates that took."""
    found = tune(case.path, Options(case.path, target=args.target), args.budget,
                 progress=lambda text: print(f"    {text}", file=sys.stderr, flush=True))
    path.write_text(found.schedule.to_json())
    return found.trials


def measure(case, args, schedule, folder):
    """Milliseconds of a call (untuned, tuned): geometric means of the medians in turns of two runs,
    which load the bundles in either order, for what is loaded later may be slower."""
    for name, given in (("untuned", None), ("tuned", schedule)):
        work = run_pipeline(Options(case.path, folder / name, args.target, case.name,
                                    schedule=given))
        build(work.path)
    free, found = pin(1), {"untuned": [], "tuned": []}
    for order in (list(found), list(found)[::-1]):
        calls = {name: load(folder / name).bind(case.feeds) for name in order}
        rounds = max(1, int(args.seconds * ROUNDS_A_SECOND / 2))
        for t in interleave(calls, args.seconds / 2, rounds):
            found[t.name].append(t.median_ms)
        del calls
    os.sched_setaffinity(0, free)  # the next search may use them all
    return [geometric_mean(found[name]) for name in ("untuned", "tuned")]


def main(argv=None):
    """Tune and measure the models named, one line each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMED, metavar="MODEL",
                        help=f"default: {' '.join(NAMED)}")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds of search per model")
    parser.add_argument("--target", default="native")
    parser.add_argument("--seconds", type=float, default=8.0, help="per model and Schedule")
    parser.add_argument("--schedules", help="folder of tuned Schedules, MODEL.json")
    parser.add_argument("--models", dest="folder", help="folder to keep the .onnx files in")
    args = parser.parse_args(argv)
    ratios = []
    print(f"{'model':16}{'untuned ms':>12}{'tuned ms':>12}{'ratio':>8}{'trials':>8}")
    with tempfile.TemporaryDirectory(prefix="aotc-tuning-") as scratch:
        for name in args.names:
            case = models.case(name, args.folder or scratch)
            path = Path(args.schedules or scratch) / f"{name}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            trials = "-" if path.exists() else searched(case, args, path)
            before, after = measure(case, args, path, Path(scratch) / name)
            ratios.append(after / before)
            print(f"{name:16}{before:12.3f}{after:12.3f}{ratios[-1]:8.3f}{trials:>8}", flush=True)
    print(f"geometric mean of the ratios: {geometric_mean(ratios):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
