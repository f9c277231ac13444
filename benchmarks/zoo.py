"""aotc beside other executors on real models: one process, pinned, taking turns.

    python -m benchmarks.zoo [MODEL ...] [--threads 1] [--seconds 3]
                             [--compare onnxruntime,openvino,ncnn]
                             [--json results.json] [--models FOLDER]

Prints medians and ratios (aotc's time divided by the peer's: below 1 aotc is faster; ``best``: by
that of the fastest peer) and writes them as JSON.  A peer that refuses a model or computes
something else does not count there: a dash, and why as a line below.  Nothing is asserted;
numbers hold for the machine and the run they come from.
"""

import argparse
import importlib.util
import json
import platform
import statistics
import sys
import tempfile
from pathlib import Path

from aotc.errors import AotcError
from aotc.tools.bench import measure
from aotc.tools.peers import PEERS
from benchmarks import models


def installed_peers():
    """Peers that can be imported here."""
    return [p for p in PEERS if importlib.util.find_spec(p) is not None]


def measure_model(case, args, folder):
    """{system: {"median_ms", "min_ms", "calls"}} of one model; {"fault"} of one that does not
    count."""
    rows = measure(case.path, Path(folder) / f"{case.name}.bundle", case.feeds, args.threads,
                   args.peers, args.target, args.seconds)
    return {r.name: {"fault": r.fault} if r.fault else
            {"median_ms": r.median_ms, "min_ms": r.min_ms, "calls": r.calls} for r in rows}


def ratios(row, peers):
    """{peer: aotc's median over the peer's} of those that count, and their largest as "best"."""
    ours = row["aotc"]["median_ms"]
    found = {p: ours / row[p]["median_ms"] for p in peers if "fault" not in row[p]}
    return {**found, "best": max(found.values())} if found else {}


def print_row(name, gflop, row, peers):
    """One line of the table, and one for each peer that does not count."""
    ours, ratio = row["aotc"]["median_ms"], ratios(row, peers)
    rate = f"{gflop / ours * 1e3:8.1f}" if gflop else f"{'-':>8}"
    cells = "".join(f"{row[p]['median_ms']:12.3f}{ratio[p]:8.2f}" if p in ratio else
                    f"{'-':>12}{'-':>8}" for p in peers)
    best = f"{ratio['best']:8.2f}" if ratio else ""
    print(f"{name:16}{ours:12.3f}{rate}{cells}{best}", flush=True)
    for p in peers:
        if p not in ratio:
            print(f"{'':16}{p}: {row[p]['fault']}", flush=True)


def main(argv=None):
    """Measure; the exit code is 1 if a model failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help="names; all there are without any")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--target", default="native")
    parser.add_argument("--compare", help="peers, comma-separated; those installed if left out")
    parser.add_argument("--seconds", type=float, default=3.0, help="per system and model")
    parser.add_argument("--json", default="benchmark.json", help="file for the results")
    parser.add_argument("--models", dest="folder", help="folder to keep the .onnx files in")
    args = parser.parse_args(argv)
    args.peers = args.compare.split(",") if args.compare else installed_peers()
    heads = "".join(f"{p + ' ms':>15}{'ratio':>5}"[-20:] for p in args.peers)
    print(f"{'model':16}{'aotc ms':>12}{'GFLOP/s':>8}{heads}{'best':>8}")
    results, failed = {}, []
    with tempfile.TemporaryDirectory(prefix="aotc-zoo-") as scratch:
        for name in args.models or models.names():
            try:
                case = models.case(name, args.folder or scratch)
                results[name] = measure_model(case, args, scratch)
            except (AotcError, KeyError) as err:
                failed.append(name)
                print(f"{name:16}failed: {err}", file=sys.stderr)
                continue
            print_row(name, case.gflop, results[name], args.peers)
    for p in (*args.peers, "best"):
        found = [r[p] for r in (ratios(x, args.peers) for x in results.values()) if p in r]
        if found:
            print(f"geometric mean of {len(found)} ratios to {p}: "
                  f"{statistics.geometric_mean(found):.2f}, worst {max(found):.2f}")
    Path(args.json).write_text(json.dumps({
        "threads": args.threads, "target": args.target, "machine": platform.machine(),
        "results": results, "failed": failed}, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
