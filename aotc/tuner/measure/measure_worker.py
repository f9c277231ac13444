"""The processes behind ``LocalExecutor``: ``python -m aotc.tuner.measure.measure_worker ACTION
FOLDER``.

``trial``: the Job in FOLDER/job becomes a bundle that counts, is built and run; seconds per
candidate go to FOLDER/times.  ``build``: makes the bundle of one Schedule of a model, with kernels
that are compiled once.  ``compare``: runs bundles of one model in turns.  All of it may crash or
hang: who has started it waits outside.
"""

import json
import pickle
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.write import write_bundle
from aotc.ir.dtypes import Array
from aotc.runtime.model import Model
from aotc.samples import Feeds, extents
from aotc.sched import decide, lower
from aotc.sched.text_choices.choose_writing import choose_writing
from aotc.tuner.measure.rigs import Rig
from aotc.tuner.space.trial import trial_feeds, trial_program

WARM_UP = 2  # calls
LEAST_CALLS = 9
TURN = 0.006  # seconds that short models run before another's turn
SHARE = 0.1  # of the calls, the fastest, whose mean counts: others were disturbed

Calls = Sequence[Sequence[float]]  # seconds [calls, kernels]
Call = Callable[[], object]


def trial(folder: Path) -> None:
    """FOLDER/job -> FOLDER/times: [seconds, interval] of every candidate, the sum of its
    kernels."""
    job = pickle.loads((folder / "job").read_bytes())
    rig, target = job.rig, job.rig.target
    program, schedule, owners = trial_program(job.candidates, target, job.math)
    plan = lower(program, choose_writing(program, schedule, target), target)
    info = {"model_hash": "0" * 64, "graph": "trial"}
    write_bundle(render_bundle(plan, schedule, info, profile=True), folder / "bundle")
    rig.build(folder / "bundle", rig.jobs)
    feeds = trial_feeds(program, extents(program)[0])
    rig.settle()
    model = rig.open(folder / "bundle")
    bound = model.bind(feeds)
    bound()
    call = rig.repeat(bound)
    for _ in range(WARM_UP - 1):
        call()
    model.profile(reset=True)
    runs: list[list[float]] = []
    go_on = _clock(rig, job.seconds)
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
    "wish": a Schedule or decisions, "known": hashes of Schedules that have been built, "rig": a
    Rig, "jobs": compilers at a time} -> FOLDER/bundle, with its library, and FOLDER/schedule; no
    bundle of what is known."""
    job = pickle.loads((folder / "job").read_bytes())
    model = pickle.loads(Path(job["model"]).read_bytes())
    rig, schedule = job["rig"], job["wish"]
    target = rig.target
    if isinstance(schedule, tuple):
        schedule = replace(decide(model["program"], target, written=False, **dict(schedule)),
                           math=model["math"], optimize=model["optimize"])
        (folder / "schedule").write_bytes(pickle.dumps(schedule))
        if schedule.hash in job["known"]:
            return
    plan = lower(model["program"], choose_writing(model["program"], schedule, target), target)
    write_bundle(rig.render(plan, schedule, model["info"]), folder / "bundle")
    rig.build(folder / "bundle", job["jobs"], Path(job["objects"]))


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


def _clock(rig: Rig, seconds: float) -> Callable[[int], bool]:
    """Function of the calls so far: True while there are too few of them, or less than ``seconds``
    has gone by on the rig's clock."""
    end = rig.elapsed() + seconds
    return lambda calls: calls < LEAST_CALLS or rig.elapsed() < end


def typical_seconds(runs: Array | Calls) -> Array:
    """Per column of ``runs`` [calls, kernels], the mean of its fastest calls."""
    fast = max(1, int(len(runs) * SHARE))
    means: Array = np.sort(runs, axis=0)[:fast].mean(axis=0)
    return means


def compare(folder: Path) -> None:
    """Bundles of one model in turns, call by call.

    FOLDER/job: {"bundles", "feeds", "seconds", "rig"}.  FOLDER/times: {"kernels": [seconds per
    call and kernel, of each], only if all bundles count, "whole": [seconds per call, of each],
    "worst": largest difference of the outputs of the first two, relative to the first's range}."""
    job = pickle.loads((folder / "job").read_bytes())
    rig = job["rig"]
    rig.settle()
    count = len(job["bundles"])
    whole: list[list[float]] = [[] for _ in range(count)]
    kernels: list[list[list[float]]] = [[] for _ in range(count)]
    outputs: list[Feeds] = []
    # at times what is loaded later is slower, by 5 % or more, with the same code: both orders count
    orders = (range(count), range(count)[::-1])[:count]
    for order in orders:
        models = {i: rig.open(Path(job["bundles"][i])) for i in order}
        bound = {i: m.bind(job["feeds"]) for i, m in models.items()}
        found = {i: {n: a.copy() for n, a in b().items()} for i, b in bound.items()}
        calls = {i: rig.repeat(b) for i, b in bound.items()}
        outputs = outputs or [found[i] for i in range(count)]
        counting = all(m.manifest.get("profile") for m in models.values())
        _in_turns(models, calls, counting, _clock(rig, job["seconds"] / len(orders)),
                  whole, kernels)
        del models, bound, calls
    (folder / "times").write_text(json.dumps(
        {"kernels": kernels if counting else [], "whole": whole, "worst": max((
            _difference(a, b) for o in outputs[1:] for a, b in zip(outputs[0].values(), o.values())
        ), default=0.0)}))


def _in_turns(models: Mapping[int, Model], calls: Mapping[int, Call], counting: bool,
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


def _turn(call: Call) -> int:
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
