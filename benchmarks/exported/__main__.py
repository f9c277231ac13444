"""Networks outside the zoo as exporters write them: where plain loops take time, and how fast they
are beside ONNX Runtime.

    python -m benchmarks.exported [MODEL ...] [--threads 1] [--seconds 1] [--target native]
                                  [--peer onnxruntime] [--json exported.json] [--models FOLDER]

Every model is compiled twice: with counters, for the part of its time that plain loops take (the
kernel in which they take most, by ``aotc bench --profile``'s estimate), and without, in turns with
the peer.  Free dimensions take the middle of their range.  The exit code is 1 if a model failed or
if plain loops take more than ``PLAIN`` of one's time in some kernel.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx

from aotc.api import load
from aotc.errors import AotcError
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.runtime.compile_bundle import build
from aotc.samples import extents, random_inputs
from aotc.tools.bench import PLAIN, interleave, pin, plain_warnings, profile
from aotc.tools.peers import open_peer
from benchmarks.exported import MODELS

# how far outputs may lie apart, as a part of their range: a sum rounded to 8 bits near a tie moves
# everything behind it by a quantum
LIMIT, QUANTA = 1e-3, {"qdq_residual": 0.05}


def measure_model(name, path, args):
    """{"aotc_ms", "plain", "kernels", "warnings"} and, with a peer, {"peer_ms", "ratio"}."""
    folder = Path(path).with_suffix("")
    work = run_pipeline(Options(path, folder, args.target, name))
    build(folder)
    feeds = random_inputs(work.program, extents(work.program)[0])
    counted = profile(path, args.threads, args.target, seconds=args.seconds)
    whole = sum(c.seconds for c in counted.costs) or 1e-9
    row = {"plain": max(c.seconds * c.plain for c in counted.costs) / whole,
           "kernels": len(counted.costs), "warnings": plain_warnings(counted)}
    before = pin(args.threads)
    try:
        calls = {"aotc": load(folder, threads=args.threads).bind(feeds)}
        if args.peer:
            run = open_peer(args.peer, path, args.threads, feeds)
            calls[args.peer] = lambda: run(feeds)
            check(name, *(call() for call in calls.values()))
        found = {t.name: t.median_ms for t in interleave(calls, args.seconds)}
    finally:
        os.sched_setaffinity(0, before)
    row["aotc_ms"] = found["aotc"]
    if args.peer:
        row |= {"peer_ms": found[args.peer], "ratio": found["aotc"] / found[args.peer]}
    return row


def check(name, ours, theirs):
    """AotcError where outputs lie further apart than the limit of a model."""
    for key, want in theirs.items():
        got, want = (np.asarray(a, np.float64) for a in (ours[key], want))
        most = np.max(np.abs(got - want)) / (np.ptp(want) or 1.0) if want.size else 0.0
        if got.shape != want.shape or not most <= QUANTA.get(name, LIMIT):
            raise AotcError(f"{name}: output {key} lies {most:.1e} of its range from the peer's")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help="names; all without any")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--target", default="native")
    parser.add_argument("--seconds", type=float, default=1.0, help="per system and model")
    parser.add_argument("--peer", default="onnxruntime", help="'' for none")
    parser.add_argument("--json", default="exported.json", help="file for the results")
    parser.add_argument("--models", dest="folder", help="folder to keep the .onnx files in")
    args = parser.parse_args(argv)
    results, failed = {}, []
    print(f"{'model':18}{'aotc ms':>10}{'peer ms':>10}{'ratio':>7}{'plain':>7}  kernels")
    with tempfile.TemporaryDirectory(prefix="aotc-exported-") as scratch:
        for name in args.models or MODELS:
            path = str(Path(args.folder or scratch) / f"{name}.onnx")
            try:
                onnx.save(MODELS[name](), path)
                row = results[name] = measure_model(name, path, args)
            except (AotcError, KeyError) as err:
                failed.append(name)
                print(f"{name:18}failed: {err}", file=sys.stderr)
                continue
            peer = f"{row['peer_ms']:10.3f}{row['ratio']:7.2f}" if args.peer else f"{'':17}"
            print(f"{name:18}{row['aotc_ms']:10.3f}{peer}{row['plain']:7.1%}  {row['kernels']}",
                  *row["warnings"], sep="\n    ", flush=True)
    if args.peer and results:
        ratios = [r["ratio"] for r in results.values()]
        print(f"geometric mean of {len(ratios)} ratios: {statistics.geometric_mean(ratios):.2f}, "
              f"worst {max(ratios):.2f}")
    Path(args.json).write_text(json.dumps({"threads": args.threads, "target": args.target,
                                           "results": results, "failed": failed}, indent=1) + "\n")
    return 1 if failed or any(r["plain"] > PLAIN for r in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
