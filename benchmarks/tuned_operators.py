"""What tuning gains on the nine operators of ALT's evaluation, beside fixed layouts.

    python -m benchmarks.tuned_operators [OPERATOR ...] [--count 1] [--budget 60] [--seconds 4]
                                         [--json tuned_operators.json]

Every configuration of ``alt_operators.json`` is one operator whose input and output lie as aotc
chooses without measuring, as between two layers (``benchmarks.layouts``).  It is tuned for
``--budget`` seconds, then runs in turns with itself untuned and with the fixed layouts that
aotc's deciders got, each a library of its own, in one pinned process.  Printed: milliseconds
(medians), the tuned time by the best of the fixed layouts and by untuned, geometric means last.
"""

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import onnx

from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.write import write_bundle
from aotc.errors import AotcError
from aotc.options import Options
from aotc.passes.rewrites import apply_rewrites
from aotc.pipeline import run_pipeline
from aotc.runtime.compile_bundle import build
from aotc.runtime.loading import load
from aotc.sched import check_schedule, decide, lower
from aotc.tools.bench import interleave
from aotc.tuner.session import tune_work
from benchmarks.alt_operators import KINDS
from benchmarks.layouts import FILE, FIXED, first_layers, laid_out, operator, pinned, variants

ROUNDS_A_SECOND = 8


def decided(work, layouts):
    """The Work whose input and output have ``layouts``, with the Schedule of the deciders."""
    program = laid_out(work.program, layouts)
    program = apply_rewrites(program, first_layers(program))
    schedule = decide(program, work.target)
    return replace(work, program=program, schedule=schedule,
                   rewritten=apply_rewrites(program, schedule.rewrites))


def built(work, schedule, folder):
    """The loaded Model of a Work under a Schedule."""
    program = apply_rewrites(work.program, schedule.rewrites)
    faults = check_schedule(program, schedule, work.target)
    if faults:
        raise AotcError("\n".join(faults))
    plan = lower(program, schedule, work.target)
    write_bundle(render_bundle(plan, schedule, {"model_hash": "0" * 64, "graph": "op"}), folder)
    build(folder)
    return load(folder)


def measure(kind, c, args):
    """One line of the results, plain data."""
    model, feeds = operator(kind, c)
    with tempfile.TemporaryDirectory(prefix="aotc-operators-") as folder:
        folder = Path(folder)
        onnx.save(model, folder / "op.onnx")
        work = run_pipeline(Options(folder / "op.onnx", target=args.target, stop_after="inline"))
        layouts = variants(work.program, work.target)
        works = {n: decided(work, own) for n, own in layouts.items()}
        found = tune_work(works["aotc"], args.budget,
                          progress=lambda text: print(f"    {text}", file=sys.stderr, flush=True))
        schedules = {n: (w, w.schedule) for n, w in works.items()}
        schedules["tuned"] = works["aotc"], found.schedule
        layouts["tuned"] = layouts["aotc"]
        calls = {n: built(w, s, folder / n).bind({b: layouts[n][b].apply(x)
                                                  for b, x in feeds.items()})
                 for n, (w, s) in schedules.items()}
        took = pinned(interleave, calls, args.seconds, int(args.seconds * ROUNDS_A_SECOND))
    return {"operator": kind, **c, "ms": {t.name: t.median_ms for t in took},
            "trials": found.trials}


def ratios(row):
    """Tuned time by the best of the fixed layouts, and by untuned."""
    ms = row["ms"]
    return ms["tuned"] / min(ms[n] for n in FIXED), ms["tuned"] / ms["aotc"]


def line(row):
    """One row of the table."""
    what = " ".join(f"{k} {v}" for k, v in row.items()
                    if k not in ("operator", "ms", "trials") and (v != 1 or k == "kernel"))
    return (f"| {row['operator']} | {what} | " + " | ".join(
        f"{row['ms'][n]:.3f}" for n in (*FIXED, "aotc", "tuned")) + " | "
        + " | ".join(f"{x:.2f}" for x in ratios(row)) + f" | {row['trials']} |")


def main(argv=None):
    """Tune and measure; the exit code is 1 if a configuration failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("operators", nargs="*", help=", ".join(KINDS))
    parser.add_argument("--count", type=int, default=1, help="configurations of each")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of search for each")
    parser.add_argument("--target", default="native")
    parser.add_argument("--seconds", type=float, default=4.0, help="of measuring each")
    parser.add_argument("--json", default="tuned_operators.json", help="file for the results")
    args = parser.parse_args(argv)
    table, rows, failed = json.loads(FILE.read_text()), [], []
    print("| operator | configuration | " + " | ".join((*FIXED, "untuned", "tuned"))
          + " | to best | to untuned | trials |\n|---|---|" + "--:|" * (len(FIXED) + 5))
    for kind in args.operators or KINDS:
        for c in table[kind][:args.count]:
            try:
                rows.append(measure(kind, c, args))
            except AotcError as err:
                failed.append([kind, c])
                print(f"{kind} {c} failed: {err}", file=sys.stderr)
                continue
            print(line(rows[-1]), flush=True)
            Path(args.json).write_text(json.dumps({"results": rows, "failed": failed}))
    if rows:
        best, untuned = (list(x) for x in zip(*map(ratios, rows)))
        print(f"tuned to the best fixed layout of each: {statistics.geometric_mean(best):.3f}, "
              f"worst {max(best):.2f}; to untuned {statistics.geometric_mean(untuned):.3f}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
