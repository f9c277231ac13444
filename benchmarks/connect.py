"""What connecting is worth: the same model with several ways to connect, in turns.

    python -m benchmarks.connect [MODEL ...] [--how register,all] [--threads 1] [--seconds 3]
                                 [--json connect.json] [--models FOLDER]

Per model and way: kernels, bytes of stored intermediate tensors, median milliseconds, time of the
first way divided by it (above 1 is faster), and the rank correlation between predicted and measured
times of its kernels.  Bundles count what kernels cost; nothing is asserted.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from aotc.api import load
from aotc.errors import AotcError
from aotc.ir.schedule import CONNECT
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.runtime.compile_bundle import build
from aotc.sched.judge.judge import Judge
from aotc.sched.model.size import estimate
from aotc.sched.model.stored_sizes import buffer_bytes
from aotc.tools.bench import WARM_UP, interleave, pin
from aotc.tuner.search.learned_cost import rank_correlation
from benchmarks import models


def built(case, how, target, folder):
    """(facts, folder of the built bundle) of a model connected one way."""
    options = Options(case.path, folder, target, case.name, connect=how, profile=True)
    work = run_pipeline(Options(case.path, None, target, case.name, connect=how,
                                stop_after="schedule"))
    judge, schedule = Judge(work.rewritten, work.target), work.schedule
    facts = {"kernels": len(schedule.groups), "deciding_s": work.seconds["schedule"],
             "stored_bytes": sum(estimate(buffer_bytes(work.rewritten, schedule, b))
                                 for b in schedule.buffers),
             "predicted_s": [judge.priced(g).seconds for g in schedule.groups]}
    build(run_pipeline(options).path)
    return facts, folder


def measure(case, args, scratch):
    """{way: facts with median_ms, speedup over the first way, rank correlation}."""
    results, opened, calls = {}, {}, {}
    for how in args.ways:
        results[how], opened[how] = built(case, how, args.target,
                                          Path(scratch) / f"{case.name}-{how}")
    pin(args.threads)
    for name, folder in opened.items():
        opened[name] = load(folder, threads=args.threads)
        calls[name] = opened[name].bind(case.feeds)
    kernels = {name: _kernel_times(opened[name], call, args.seconds)
               for name, call in calls.items()}
    timings = {t.name: t for t in interleave(calls, args.seconds)}
    first = timings[next(iter(calls))].median_ms
    for name, row in results.items():
        row["median_ms"] = timings[name].median_ms
        row["speedup"] = first / timings[name].median_ms
        row["rank_correlation"] = rank_correlation(row.pop("predicted_s"), kernels[name])
    return results


def _kernel_times(model, call, seconds):
    """Shortest seconds of every kernel."""
    for _ in range(WARM_UP):
        call()
    runs = []

    def counted():
        model.profile(reset=True)
        call()
        runs.append([c.seconds for c in model.profile()])

    interleave({"": counted}, seconds / 2, rounds=1)
    return [min(x) for x in zip(*runs)]


def main(argv=None):
    """Measure; the exit code is 1 if a model failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help="names; all there are without any")
    parser.add_argument("--how", default="register,all", help="ways, the first one is compared "
                        "with: " + ", ".join(CONNECT))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--target", default="native")
    parser.add_argument("--seconds", type=float, default=3.0, help="per way and model")
    parser.add_argument("--json", default="connect.json", help="file for the results")
    parser.add_argument("--models", dest="folder", help="folder to keep the .onnx files in")
    args = parser.parse_args(argv)
    args.ways = args.how.split(",")
    if not set(args.ways) <= set(CONNECT):
        parser.error(f"--how {args.how}: choose from " + ", ".join(CONNECT))
    results, failed = {}, []
    print(f"{'model':16}{'way':10}{'kernels':>8}{'MB':>9}{'ms':>10}{'speedup':>9}{'rank':>7}")
    with tempfile.TemporaryDirectory(prefix="aotc-connect-") as scratch:
        for name in args.models or models.names():
            try:
                results[name] = measure(models.case(name, args.folder or scratch), args, scratch)
            except (AotcError, KeyError) as err:
                failed.append(name)
                print(f"{name:16}failed: {err}", file=sys.stderr)
                continue
            for how, r in results[name].items():
                print(f"{name:16}{how:10}{r['kernels']:8}{r['stored_bytes'] / 1e6:9.2f}"
                      f"{r['median_ms']:10.3f}{r['speedup']:9.3f}{r['rank_correlation']:7.2f}",
                      flush=True)
    for how in args.ways[1:]:
        found = [r[how]["speedup"] for r in results.values()]
        if found:
            print(f"{how}: geometric mean {statistics.geometric_mean(found):.3f}, "
                  f"worst {min(found):.3f}")
    Path(args.json).write_text(json.dumps({"threads": args.threads, "results": results,
                                           "failed": failed}, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
