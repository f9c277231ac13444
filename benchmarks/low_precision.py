"""Low precision beside systems at their default: whole models, one and two threads, and where the
time goes.

    python -m benchmarks.low_precision [CASE ...] [--target x86-64-v4-amx] [--base x86-64-v4]
                                       [--threads 1,2] [--jobs 4] [--seconds 1] [--top 8]

Cases are those of ``benchmarks.low_precision_cases``; the zoo's without any.  All are compiled side
by side, then measured in turns of their own, a process each, ``--jobs`` at a time on cores of their
own.  Per case and number of threads: median milliseconds of every system (the shortest call in
brackets), how far its outputs are from the judge's (as a share of their range), and by how much
aotc is faster; then the kernels that take most of aotc's time.  Nothing is asserted.
"""

import argparse
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import Queue

import numpy as np

import aotc
from aotc.errors import AotcError
from aotc.options import Options
from aotc.oracle.shares import share_of_range
from aotc.pipeline import run_pipeline
from aotc.runtime.compile_bundle import build
from aotc.sched.judge.judge import Judge
from aotc.tools.bench import interleave, pin
from aotc.tools.peers import first_line, open_peer
from aotc.tuner.search.learned_cost import rank_correlation
from benchmarks import models
from benchmarks.low_precision_cases import case

TOPOLOGY = Path("/sys/devices/system/cpu")


def cores():
    """One CPU of every core that this process may use."""
    found = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        place = TOPOLOGY / f"cpu{cpu}" / "topology" / "thread_siblings_list"
        found.setdefault(place.read_text() if place.exists() else cpu, cpu)
    return list(found.values())


# ---------------------------------------------------------------- one case, in a process of its own

def prepare(name, args, folder):
    """The Case, its bundles compiled and built below ``folder``."""
    folder.mkdir(exist_ok=True)
    found = case(name, folder, args.target, args.base)
    for label, how in found.own.items():
        run_pipeline(Options(found.path, folder / label, name="case", profile=True, **how))
        build(folder / label)
        if label == "aotc":
            seconds = {str(n): _predicted(found, how, n) for n in (1, 2)}
            (folder / "predicted").write_text(json.dumps(seconds))
    return found


def _predicted(found, how, workers):
    """Seconds of every kernel by the cost model, with so many workers."""
    work = run_pipeline(Options(found.path, stop_after="schedule", **how))
    machine = replace(work.target.machine, workers=workers)
    judge = Judge(work.rewritten, replace(work.target, machine=machine))
    return [judge.priced(g).seconds for g in work.schedule.groups]


def measure(found, threads, args, folder):
    """{"times": {system: [median ms, shortest ms]}, "errors": {system: share of the range},
    "faults": {system: why}, "kernels": lines} with so many threads."""
    before = pin(threads)
    opened = {label: aotc.load(folder / label, threads=threads) for label in found.own}
    calls = {label: m.bind(found.feeds, dict(found.dims)) for label, m in opened.items()}
    faults = {}
    for label, how in found.peers.items():
        try:
            run = open_peer(label, found.path, threads, **how)
            run(found.theirs)
            calls[label] = lambda run=run: run(found.theirs)
        except Exception as err:  # peers raise exceptions of their own making
            faults[label] = first_line(err)
    outputs = {label: {n: np.array(a) for n, a in call().items()} for label, call in calls.items()}
    want = outputs[found.judge if found.judge in outputs else "aotc"]
    errors = {label: max((share_of_range(got[n], w) for n, w in want.items()
                          if got[n].shape == w.shape), default=float("nan"))
              for label, got in outputs.items()}
    times = {t.name: (t.median_ms, t.min_ms)
             for t in interleave(calls, args.seconds * len(calls))}
    lines = kernel_lines(opened["aotc"], calls["aotc"], args,
                         json.loads((folder / "predicted").read_text())[str(min(threads, 2))])
    os.sched_setaffinity(0, before)
    return {"times": times, "errors": errors, "faults": faults, "kernels": lines}


def kernel_lines(model, call, args, predicted):
    """Lines: how kernels' times rank by what was predicted, the rows and the kernels that take
    longest."""
    runs, end = [], time.perf_counter() + args.seconds
    model.profile(reset=True)
    while not runs or time.perf_counter() < end:
        call()
        runs.append(model.profile(reset=True))
    each = [(statistics.median(c.seconds for c in cs), cs[0]) for cs in zip(*runs)]
    whole = sum(s for s, _ in each) or 1e-9
    rows = {}
    for s, c in each:
        key = "+".join(sorted(set(c.rows))) or "loops"
        rows[key] = rows.get(key, 0.0) + s
    lines = []
    if len(predicted) == len(each):
        ranks = rank_correlation(predicted, [s for s, _ in each])
        lines = [f"  predicted: rank correlation of {len(each)} kernels {ranks:.2f}, "
                 f"{sum(predicted) * 1e3:.3f} ms for {whole * 1e3:.3f}"]
    lines += [f"  rows: {s * 1e3:8.3f} ms {s / whole:5.1%} {key}"
              for key, s in sorted(rows.items(), key=lambda r: -r[1])[:args.top]]
    for s, c in sorted(each, key=lambda e: -e[0])[:args.top]:
        lines.append(f"  {s * 1e3:8.3f} ms {s / whole:5.1%} {c.flops / max(s, 1e-9) * 1e-9:7.0f} "
                     f"GFLOP/s {c.bytes / max(s, 1e-9) * 1e-9:6.1f} GB/s  {c.kernel}: "
                     f"{', '.join(c.rows)}: {', '.join(c.nodes[:3])}")
    return lines


def child(args):
    """Compile one case below ``--folder``, or measure it there: a line of JSON."""
    folder = Path(args.folder)
    if args.child == "measure":
        found = pickle.loads((folder / "case").read_bytes())
        print(json.dumps(measure(found, args.threads[0], args, folder)), flush=True)
        return 0
    try:
        found = prepare(args.cases[0], args, folder)
    except (AotcError, KeyError, ImportError) as err:
        print(json.dumps({"failed": f"{type(err).__name__}: {first_line(err)}"}), flush=True)
        return 1
    (folder / "case").write_bytes(pickle.dumps(found))
    print(json.dumps({"weights": found.weights}), flush=True)
    return 0


# ---------------------------------------------------------------- all of them

def run(what, name, args, folder, threads=1, cpus=None):
    """What a process that does this says in its last line; it may use these CPUs alone, from its
    start, by which systems count what there is."""
    command = [sys.executable, "-m", "benchmarks.low_precision", name, "--child", what,
               "--folder", str(folder), "--target", args.target, "--base", args.base,
               "--threads", str(threads), "--seconds", str(args.seconds), "--top", str(args.top)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=False,
        preexec_fn=(lambda: os.sched_setaffinity(0, cpus)) if cpus else None)
    lines = done.stdout.splitlines()
    return json.loads(lines[-1]) if lines else {"failed": f"exit code {done.returncode}"}


def finish(name, first, args, folder, slots, told):
    """Measure a compiled case on a free slot of CPUs, with every number of threads."""
    cpus = slots.get()
    try:
        for threads in args.threads:
            r = first if "failed" in first else run("measure", name, args, folder, threads,
                                                    cpus[:threads])
            if "failed" in r:
                print(f"{name}: failed: {r['failed']}", flush=True)
                return
            told.setdefault(name, {})[threads] = r
            print("\n".join(text_of(name, threads, r, first["weights"])), flush=True)
    finally:
        slots.put(cpus)


def ratio(times):
    """By how much the fastest peer takes longer than aotc; None without peers."""
    others = [m for label, (m, _) in times.items() if not label.startswith("aotc")]
    return min(others) / times["aotc"][0] if others else None


def text_of(name, threads, r, weights):
    """Lines of one case and number of threads; ``weights``: bytes that a call reads."""
    times, best = r["times"], ratio(r["times"])
    cells = [f"{label} {m:.3f} ({low:.3f}) error {r['errors'][label]:.1e}"
             for label, (m, low) in times.items()]
    openvino = (f"  openvino / aotc {times['openvino'][0] / times['aotc'][0]:.2f}"
                if "openvino" in times else "")
    read = f"  {weights / times['aotc'][0] * 1e-6:.1f} GB/s of weights" if weights else ""
    best = "" if best is None else f"  best / aotc {best:.2f}"
    return [f"{name} threads {threads}: {'; '.join(cells)}{openvino}{best}{read}",
            *(f"  {label}: {why}" for label, why in r["faults"].items()), *r["kernels"]]


def main(argv=None):
    """Measure and print; the exit code is 1 if a case failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--target", default="x86-64-v4-amx")
    parser.add_argument("--base", default="x86-64-v4", help="target of the f32 form")
    parser.add_argument("--threads", type=lambda s: [int(n) for n in s.split(",")], default=[1, 2])
    parser.add_argument("--jobs", type=int, default=4, help="cases measured at a time")
    parser.add_argument("--seconds", type=float, default=1.0, help="per system and case")
    parser.add_argument("--top", type=int, default=8, help="kernels that are named")
    parser.add_argument("--child", choices=("compile", "measure"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.child:
        return child(args)
    names, usable, each = args.cases or models.names(), cores(), max(args.threads)
    slots, told = Queue(), {}
    for k in range(max(1, min(args.jobs, len(usable) // each))):
        slots.put(usable[k * each:(k + 1) * each])
    with (tempfile.TemporaryDirectory(prefix="aotc-low-") as scratch,
          ThreadPoolExecutor(len(names)) as pool):
        folders = [Path(scratch) / str(k) for k in range(len(names))]
        firsts = list(pool.map(lambda n, f: run("compile", n, args, f), names, folders))
        print("compiled: " + ", ".join(n for n, f in zip(names, firsts) if "failed" not in f),
              flush=True)
        list(pool.map(lambda n, first, f: finish(n, first, args, f, slots, told), names, firsts,
                      folders))
    for threads in args.threads:
        rows = [r[threads]["times"] for r in told.values() if threads in r]
        by = [t["openvino"][0] / t["aotc"][0] for t in rows if "openvino" in t]
        if by:
            print(f"threads {threads}: openvino / aotc, geometric mean of {len(by)}: "
                  f"{statistics.geometric_mean(by):.2f}, least {min(by):.2f}")
    return 0 if len(told) == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
