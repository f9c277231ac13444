"""The processes behind ``LocalExecutor``: ``python -m aotc.tuner.measure_worker ACTION FOLDER``.

``trial``: the Job in FOLDER/job becomes a bundle that counts, is built and run; seconds per
candidate go to FOLDER/times.  ``compare``: runs bundles of one model in turns.  All of it may crash
or hang: the executor waits outside.
"""

import json
import os
import pickle
import sys
import time
from pathlib import Path

import numpy as np

from aotc.emit.bundle import render_bundle, write_bundle
from aotc.runtime.build import build
from aotc.runtime.model import load
from aotc.samples import extents
from aotc.sched.lower import lower
from aotc.target import get_target
from aotc.tuner.trial import trial_feeds, trial_program

WARM_UP = 2  # calls
LEAST_CALLS = 9
SHARE = 0.1  # of the calls, the fastest, whose mean counts: others were disturbed


def trial(folder):
    """FOLDER/job -> FOLDER/times: seconds of every candidate, the sum of its kernels."""
    job = pickle.loads((folder / "job").read_bytes())
    target = get_target(job.target)
    program, schedule, owners = trial_program(job.candidates, target, job.math)
    plan = lower(program, schedule, target)
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
    runs, go_on = [], _clock(job.seconds * job.threads)
    while go_on(len(runs)):
        call()
        runs.append([c.seconds for c in model.profile(reset=True)])
    calls = np.zeros((len(runs), len(job.candidates)))
    for owner, seconds in zip(owners, np.array(runs).T):
        if owner is not None:
            calls[:, owner] += seconds
    (folder / "times").write_text(json.dumps(against_first(calls, [
        c.site for c in job.candidates])))


def against_first(calls, sites):
    """Seconds per candidate from ``calls`` [calls, candidates]: the first of each site by its
    fastest calls, the others by their median ratio to it in the same call, because what disturbs
    the machine for a while meets all of a site."""
    first, out = {}, []
    for n, site in enumerate(sites):
        ref = first.setdefault(site, n)
        out.append(float(typical(calls)[ref] * np.median(calls[:, n] / calls[:, ref])))
    return out


def _clock(seconds):
    """Function of the calls so far: True while there are too few of them, or less CPU time than
    ``seconds`` has gone by; where others use the CPUs too, that is longer by the clock."""
    end = time.process_time() + seconds
    return lambda calls: calls < LEAST_CALLS or time.process_time() < end


def _pin(threads):
    """Stay on as many CPUs as there are threads: what moves between CPUs loses its caches."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def typical(runs):
    """Per column of ``runs`` [calls, kernels], the mean of its fastest calls."""
    fast = max(1, int(len(runs) * SHARE))
    return np.sort(runs, axis=0)[:fast].mean(axis=0)


def compare(folder):
    """Bundles of one model in turns, call by call.

    FOLDER/job: {"bundles", "feeds", "seconds", "threads"}.  FOLDER/times: {"kernels": [seconds per
    call and kernel, of each], only if all bundles count, "whole": [seconds per call, of each],
    "worst": largest difference of the outputs of the first two, relative to the first's range}."""
    job = pickle.loads((folder / "job").read_bytes())
    _pin(job["threads"])
    models = [load(b, threads=job["threads"]) for b in job["bundles"]]
    calls = [m.bind(job["feeds"]) for m in models]
    outputs = [{n: a.copy() for n, a in call().items()} for call in calls]
    counting = all(m.manifest.get("profile") for m in models)
    whole, kernels = [[] for _ in models], [[] for _ in models]
    go_on = _clock(job["seconds"] * job["threads"])
    while go_on(len(whole[0])):
        for i, (model, call) in enumerate(zip(models, calls)):
            start = time.perf_counter()
            call()
            whole[i].append(time.perf_counter() - start)
            if counting:
                kernels[i].append([c.seconds for c in model.profile(reset=True)])
    (folder / "times").write_text(json.dumps(
        {"kernels": [k for k in kernels if k], "whole": whole, "worst": max(map(_difference, *(
            o.values() for o in outputs[:2])), default=0.0) if len(models) > 1 else 0.0}))


def _difference(a, b):
    """Largest difference of two arrays, relative to the first's range; equal NaNs are equal."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    scale = np.max(np.abs(a[np.isfinite(a)]), initial=1e-30)
    return float(np.max(np.where(same, 0.0, np.abs(a - b)))) / scale


if __name__ == "__main__":
    {"trial": trial, "compare": compare}[sys.argv[1]](Path(sys.argv[2]))
