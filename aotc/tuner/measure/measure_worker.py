"""The processes behind ``LocalExecutor``: ``python -m aotc.tuner.measure.measure_worker ACTION
FOLDER``.

``trial``: the Job in FOLDER/job becomes a bundle that counts, is built and run; seconds per
candidate go to FOLDER/times.  ``build``: makes the bundle of one Schedule of a model, with kernels
that are compiled once.  ``compare``: runs bundles of one model in turns.  All of it may crash or
hang: who has started it waits outside.
"""

import hashlib
import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.write import write_bundle
from aotc.ir.bundle import Bundle
from aotc.ir.dtypes import Array
from aotc.runtime.compile_bundle import build, read_manifest, tools_of
from aotc.runtime.loading import load
from aotc.runtime.model import Binding, Model
from aotc.samples import Feeds, extents
from aotc.sched import decide, lower
from aotc.sched.text_choices.choose_writing import choose_writing
from aotc.target import get_target
from aotc.tuner.measure.portable import HEAD, portable_files
from aotc.tuner.space.trial import trial_feeds, trial_program

WARM_UP = 2  # calls
LEAST_CALLS = 9
TURN = 0.006  # seconds that short models run before another's turn
SHARE = 0.1  # of the calls, the fastest, whose mean counts: others were disturbed

Calls = Sequence[Sequence[float]]  # seconds [calls, kernels]


def trial(folder: Path) -> None:
    """FOLDER/job -> FOLDER/times: [seconds, interval] of every candidate, the sum of its
    kernels."""
    job = pickle.loads((folder / "job").read_bytes())
    target = get_target(job.target)
    program, schedule, owners = trial_program(job.candidates, target, job.math)
    plan = lower(program, choose_writing(program, schedule, target), target)
    info = {"model_hash": "0" * 64, "graph": "trial"}
    write_bundle(render_bundle(plan, schedule, info, profile=True), folder / "bundle")
    build(folder / "bundle", jobs=job.jobs)
    feeds = trial_feeds(program, extents(program)[0])
    _pin(job.threads)
    model = load(folder / "bundle", threads=job.threads)
    call = model.bind(feeds)
    for _ in range(WARM_UP):
        call()
    model.profile(reset=True)
    runs: list[list[float]] = []
    go_on = _clock(job.seconds * job.threads)
    while len(runs) < job.calls or go_on(len(runs)):
        call()
        runs.append([c.seconds for c in model.profile(reset=True)])
    calls = np.zeros((len(runs), len(job.candidates)))
    for owner, seconds in zip(owners, np.array(runs).T):
        if owner is not None:
            calls[:, owner] += seconds
    (folder / "times").write_text(json.dumps(compare_with_first(calls, [
        c.site for c in job.candidates])))


def build_one(folder: Path) -> None:
    """FOLDER/job: {"model": a file as ``Checker`` writes it, "objects": a folder of object files,
    "wish": a Schedule or decisions, "known": hashes of Schedules that have been built,
    "threads": workers it will run with, "jobs": C compilers at a time} -> FOLDER/bundle, with its
    library, and FOLDER/schedule; no bundle of what is known."""
    job = pickle.loads((folder / "job").read_bytes())
    model = pickle.loads(Path(job["model"]).read_bytes())
    target, schedule = get_target(model["target"]), job["wish"]
    if isinstance(schedule, tuple):
        schedule = replace(decide(model["program"], target, written=False, **dict(schedule)),
                           math=model["math"], optimize=model["optimize"])
        (folder / "schedule").write_bytes(pickle.dumps(schedule))
        if schedule.hash in job["known"]:
            return
    plan = lower(model["program"], choose_writing(model["program"], schedule, target), target)
    bundle = render_bundle(plan, schedule, model["info"], profile=True,
                           kernel_files=portable_files(plan, target))
    write_bundle(_timed_by_thread(bundle) if job["threads"] == 1 else bundle, folder / "bundle")
    _precompile(folder / "bundle", Path(job["objects"]))
    build(folder / "bundle", jobs=job["jobs"], objects=job["objects"])


CLOCK = b"""#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <time.h>

static uint64_t thread_nanoseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
#define AOTC_CLOCK() thread_nanoseconds()
"""


def _timed_by_thread(bundle: Bundle) -> Bundle:
    """The Bundle counting what its thread has run, so that being interrupted costs nothing."""
    main = f"{bundle.name}.c"
    return replace(bundle, files=bundle.files | {main: CLOCK + bundle.files[main]})


def _precompile(folder: Path, objects: Path) -> None:
    """The header of all kernels, compiled once for all bundles: it is most of a small file.  A
    compiler that does not know how reads the header itself."""
    manifest = read_manifest(folder)
    text = b"".join((folder / f).read_bytes() for f in sorted(manifest["files"])
                    if f.startswith("zz"))
    kept = objects / f"{hashlib.sha256(text).hexdigest()[:24]}.gch"
    if not kept.exists():
        command = tools_of(manifest).command(
            folder / f"{HEAD}.c", manifest["build"]["kernels"][0]["cflags"])
        made = folder / f"{HEAD}.made"
        command[-1:] = ["-x", "c-header", str(folder / HEAD), "-o", str(made)]
        if subprocess.run(command, capture_output=True).returncode == 0:
            os.replace(made, kept)
    if kept.exists():
        os.link(kept, folder / f"{HEAD}.gch")


def compare_with_first(calls: Array,
                       sites: Sequence[str]) -> list[tuple[float, tuple[float, float]]]:
    """(seconds, interval) per candidate from ``calls`` [calls, candidates]: the first of each site
    by its fastest calls, the others by their median ratio to it in the same call, because what
    disturbs the machine for a while meets all of a site."""
    first: dict[str, int] = {}
    out = []
    for n, site in enumerate(sites):
        ref = first.setdefault(site, n)
        ratios = calls[:, n] / calls[:, ref]
        out.append((float(typical_seconds(calls)[ref] * np.median(ratios)),
                    median_interval(ratios)))
    return out


def median_interval(samples: Array) -> tuple[float, float]:
    """(low, high): the 95 % interval of the median of ``samples`` [n], from their order."""
    ordered, n = np.sort(samples), len(samples)
    low = max(0, int((n - 1.96 * n ** 0.5) // 2) - 1)
    return float(ordered[low]), float(ordered[n - 1 - low])


def _clock(seconds: float) -> Callable[[int], bool]:
    """Function of the calls so far: True while there are too few of them, or less CPU time than
    ``seconds`` has gone by; where others use the CPUs too, that is longer by the clock."""
    end = time.process_time() + seconds
    return lambda calls: calls < LEAST_CALLS or time.process_time() < end


def _pin(threads: int) -> None:
    """Stay on as many CPUs as there are threads: what moves between CPUs loses its caches."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def typical_seconds(runs: Array | Calls) -> Array:
    """Per column of ``runs`` [calls, kernels], the mean of its fastest calls."""
    fast = max(1, int(len(runs) * SHARE))
    means: Array = np.sort(runs, axis=0)[:fast].mean(axis=0)
    return means


def compare(folder: Path) -> None:
    """Bundles of one model in turns, call by call.

    FOLDER/job: {"bundles", "feeds", "seconds", "threads"}.  FOLDER/times: {"kernels": [seconds per
    call and kernel, of each], only if all bundles count, "whole": [seconds per call, of each],
    "worst": largest difference of the outputs of the first two, relative to the first's range}."""
    job = pickle.loads((folder / "job").read_bytes())
    _pin(job["threads"])
    count = len(job["bundles"])
    whole: list[list[float]] = [[] for _ in range(count)]
    kernels: list[list[list[float]]] = [[] for _ in range(count)]
    outputs: list[Feeds] = []
    # at times what is loaded later is slower, by 5 % or more, with the same code: both orders count
    orders = (range(count), range(count)[::-1])[:count]
    for order in orders:
        models = {i: load(job["bundles"][i], threads=job["threads"]) for i in order}
        calls = {i: m.bind(job["feeds"]) for i, m in models.items()}
        found = {i: {n: a.copy() for n, a in call().items()} for i, call in calls.items()}
        outputs = outputs or [found[i] for i in range(count)]
        counting = all(m.manifest.get("profile") for m in models.values())
        _in_turns(models, calls, counting, _clock(job["seconds"] * job["threads"] / len(orders)),
                  whole, kernels)
        del models, calls
    (folder / "times").write_text(json.dumps(
        {"kernels": kernels if counting else [], "whole": whole, "worst": max((
            _difference(a, b) for o in outputs[1:] for a, b in zip(outputs[0].values(), o.values())
        ), default=0.0)}))


def _in_turns(models: Mapping[int, Model], calls: Mapping[int, Binding], counting: bool,
              go_on: Callable[[int], bool], whole: Sequence[list[float]],
              kernels: Sequence[list[list[float]]]) -> None:
    """Append to ``whole`` and ``kernels`` what calls take, by the models' numbers, while
    ``go_on(calls of the first one)``."""
    turn, done = _turn(calls[0]), len(whole[0])
    while go_on(len(whole[0]) - done):
        for i, (model, call) in enumerate((models[i], calls[i]) for i in range(len(models))):
            for n in range(turn):
                start = time.perf_counter()
                call()
                took = time.perf_counter() - start
                costs = [c.seconds for c in model.profile(reset=True)] if counting else []
                if n or turn == 1:
                    whole[i].append(took)
                    kernels[i].append(costs)


def _turn(call: Callable[[], object]) -> int:
    """Calls of one model before another's turn: of a short one several, the first of which does
    not count, for it finds the caches as the other has left them."""
    start = time.perf_counter()
    call()
    return 1 + int(TURN / (time.perf_counter() - start))


def _difference(a: ArrayLike, b: ArrayLike) -> float:
    """Largest difference of two arrays, relative to the first's range; equal NaNs are equal."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    scale = float(np.max(np.abs(a[np.isfinite(a)]), initial=1e-30))
    return float(np.max(np.where(same, 0.0, np.abs(a - b)))) / scale


if __name__ == "__main__":
    {"trial": trial, "build": build_one, "compare": compare}[sys.argv[1]](Path(sys.argv[2]))
