"""What a second thread is worth: one bundle with one thread and with two, in turns.

    python -m benchmarks.threads [MODEL ...] [--threads 2] [--seconds 8] [--models FOLDER]

Per model: median milliseconds with one thread and with several, and the one divided by the other;
then the kernels that lose most against an even split.  One process, so that both meet the same
machine; nothing is asserted.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from aotc.api import load
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.runtime.compile_bundle import build
from aotc.tools.bench import WARM_UP, interleave, pin
from benchmarks import models

NAMED = ("resnet50", "bert_base", "vit_base_16")
ROUNDS_A_SECOND = 4


def measure(case, args, folder):
    """({threads: median ms of a call}, {threads: [median s of every kernel]}, kernels)."""
    build(run_pipeline(Options(case.path, folder, args.target, case.name, profile=True)).path)
    opened = {t: load(folder, threads=t) for t in (1, args.threads)}
    counted = {t: [] for t in opened}

    def turn(t, call):
        def run():
            opened[t].profile(reset=True)
            call()
            counted[t].append([c.seconds for c in opened[t].profile()])
        return run

    calls = {t: turn(t, m.bind(case.feeds)) for t, m in opened.items()}
    timings = interleave(calls, args.seconds, max(1, int(args.seconds * ROUNDS_A_SECOND)))
    kernels = {t: [statistics.median(x) for x in zip(*runs[WARM_UP:])]
               for t, runs in counted.items()}
    return {t.name: t.median_ms for t in timings}, kernels, opened[1].profile()


def print_model(name, total, kernels, profile, threads, worst):
    """Its line, and one for each of the ``worst`` kernels."""
    print(f"{name:16}{total[1]:12.3f}{total[threads]:12.3f}{total[1] / total[threads]:8.2f}",
          flush=True)
    one, many = kernels[1], kernels[threads]
    lost = sorted(range(len(one)), key=lambda i: one[i] / threads - many[i])
    for i in lost[:worst]:
        print(f"    {profile[i].kernel}: {one[i] * 1e6:.0f} us, {many[i] * 1e6:.0f} us, "
              f"{one[i] / many[i]:.2f}: {', '.join(profile[i].nodes[:3])}")


def main(argv=None):
    """Measure the models named, one line each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMED, metavar="MODEL",
                        help=f"default: {' '.join(NAMED)}")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--target", default="native")
    parser.add_argument("--seconds", type=float, default=8.0, help="per model and thread count")
    parser.add_argument("--worst", type=int, default=3, help="kernels to name per model")
    parser.add_argument("--models", dest="folder", help="folder to keep the .onnx files in")
    args = parser.parse_args(argv)
    pin(args.threads)
    print(f"{'model':16}{'1 thread ms':>12}{f'{args.threads} threads':>12}{'ratio':>8}")
    with tempfile.TemporaryDirectory(prefix="aotc-threads-") as scratch:
        for name in args.names:
            case = models.case(name, args.folder or scratch)
            print_model(name, *measure(case, args, Path(scratch) / f"{name}.bundle"),
                        args.threads, args.worst)
    return 0


if __name__ == "__main__":
    sys.exit(main())
