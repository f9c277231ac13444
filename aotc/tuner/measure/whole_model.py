"""Measures of the whole model: Schedules of it in turns in one process, kernel by kernel."""

import json
import os
import pickle
import shutil
import statistics
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import Popen
from typing import Any, TypedDict

from aotc.errors import AotcError
from aotc.ir.schedule import Schedule
from aotc.pipeline import Work, model_info
from aotc.samples import extents, random_inputs
from aotc.tuner.measure.executor import BUILD_TIMEOUT, RUN_TIMEOUT, finish, start, stop
from aotc.tuner.measure.measure_worker import Calls, typical_seconds
from aotc.tuner.measure.rigs import Rig, find_rig
from aotc.tuner.space.assemble import SiteChoice, Tie

SECONDS = 4.0  # of measuring two models in turns
PATIENCE = 60  # times the CPU time that is measured: on a busy machine it takes so long
TOLERANCE = 1e-3  # largest difference of outputs, relative to their range
TICK = 1e-9  # seconds: what a kernel takes at least, whatever the clock says
FASTER = 0.995  # a tuned model counts if it has at most this share of the untuned one's time


Decisions = tuple[tuple[str, Any], ...]  # (name, value) of what ``decide`` is told
Wish = Schedule | Decisions


class Times(TypedDict):
    """What ``measure_worker.compare`` writes."""

    kernels: list[Calls]
    whole: list[list[float]]
    worst: float


@dataclass(frozen=True)
class ModelVerdict:
    """``seconds``: (untuned, tuned) of a call; ``ratios``: {tie: time of its changed sites by
    that untuned}; ``wrong``: outputs differ, or it did not run, ``why`` says what happened."""

    seconds: tuple[float, float]
    ratios: dict[Tie, float]
    wrong: bool
    why: str = ""

    @property
    def ratio(self) -> float:
        return self.seconds[1] / self.seconds[0] if not self.wrong else float("inf")


@dataclass(frozen=True)
class Built:
    """A Schedule of the model and the ``folder`` of its bundle, or the ``error`` that kept it from
    being one."""

    schedule: Schedule | None
    folder: Path
    error: str = ""


class Checker:
    """Builds and compares Schedules of one model.  work: the pipeline's Work after its schedule
    stage, of which the untuned Schedule is what others are compared with; scratch: a folder for
    bundles, and for object files unless $AOTC_OBJECTS names one; rig: where they are built and run,
    by default one thread of this machine."""

    faster = FASTER

    def __init__(self, work: Work, scratch: str | Path, rig: Rig | None = None,
                 seconds: float = SECONDS) -> None:
        self.schedule, self.scratch = work.schedule, Path(scratch)
        self.rig, self.seconds = rig or find_rig(work.target), seconds
        self.feeds = random_inputs(work.program, extents(work.program)[0])
        self.known: dict[Any, Built] = {}  # what has been asked for -> Built
        self.objects = Path(os.environ.get("AOTC_OBJECTS") or self.scratch / "objects")
        self.objects.mkdir(exist_ok=True)
        # a fresh Program leaves behind what functions have remembered of it
        (self.scratch / "model").write_bytes(pickle.dumps(
            {"program": replace(work.program), "math": work.schedule.math,
             "optimize": work.schedule.optimize, "info": {
                 **model_info(work.program), "onnx_sha256": work.file_hash}}))

    def built(self, wishes: Sequence[Wish]) -> list[Built]:
        """A Built for each of ``wishes``: Schedules, or decisions as tuples of (name, value) for
        ``decide``; several are made at a time, each in a process of its own."""
        keys = [w if isinstance(w, tuple) else w.hash for w in wishes]
        todo = [(k, w) for k, w in dict(zip(keys, wishes)).items() if k not in self.known]
        hashes = [w.hash for w in wishes if not isinstance(w, tuple)]
        while todo:
            now, todo = todo[:self.rig.jobs], todo[self.rig.jobs:]
            jobs = max(1, self.rig.jobs // len(now))
            started = [(k, w, *self._start(w, hashes, jobs)) for k, w in now]
            try:
                for key, wish, process, folder in started:
                    self._take(key, wish, folder, finish(process, folder, BUILD_TIMEOUT))
            except BaseException:
                for _, _, process, _ in started:
                    stop(process)
                raise
        return [self.known[k] for k in keys]

    def _start(self, wish: Wish, hashes: list[str], jobs: int) -> tuple[Popen[bytes], Path]:
        folder = Path(tempfile.mkdtemp(dir=self.scratch))
        (folder / "job").write_bytes(pickle.dumps(
            {"model": str(self.scratch / "model"), "objects": str(self.objects),
             "wish": wish, "rig": self.rig, "jobs": jobs, "known": hashes + [
                 b.schedule.hash for b in self.known.values() if b.schedule]}))
        return start("build", folder), folder

    def _take(self, key: str | Decisions, wish: Wish, folder: Path, error: str) -> None:
        schedule = None if isinstance(wish, tuple) else wish
        if not error and schedule is None:
            schedule = pickle.loads((folder / "schedule").read_bytes())
        made = Built(schedule, folder / "bundle", error)
        self.known[key] = made if error or schedule is None else self.known.setdefault(
            schedule.hash, made)

    def forget(self, schedules: Iterable[Schedule]) -> None:
        """Remove the bundles of Schedules that are not asked for any more, each has weights of its
        own; what their kernels were compiled to stays."""
        for s in schedules:
            built = self.known.get(s.hash) if s.hash != self.schedule.hash else None
            if built is not None:
                shutil.rmtree(built.folder.parent, ignore_errors=True)
                self.known = {k: b for k, b in self.known.items() if b is not built}

    def untuned(self) -> tuple[list[float], float]:
        """(seconds per kernel, seconds of a call) of the untuned model."""
        times = self.times([self.schedule], self.seconds / 2)
        return list(typical_seconds(times["kernels"][0])), busy_seconds(times["kernels"][0])

    def times(self, schedules: Sequence[Wish], seconds: float) -> Times:
        """What ``measure_worker.compare`` says of Schedules (or decisions, or Builts) in turns.
        AotcError if one cannot be built, or they do not run."""
        found = self.built(schedules)
        wrong = next((b.error for b in found if b.error), "")
        if wrong:
            raise AotcError(f"tune: the whole model could not be built: {wrong}")
        return self._run([b.folder for b in found], seconds)

    def compare(self, schedule: Schedule, chosen: Mapping[str, SiteChoice],
                base: Schedule | None = None) -> ModelVerdict:
        """The Verdict on a Schedule beside ``base``, the untuned one.  chosen: {site name: Choice}
        of what it changes."""
        base = base or self.schedule
        try:
            times = self.times([base, schedule], self.seconds)
        except AotcError as err:  # it does not build, crashes or hangs: not a schedule to keep
            return ModelVerdict((1.0, float("inf")), {}, True, str(err))
        ratios = site_ratios(base, schedule, chosen, times["kernels"])
        wrong = not times["worst"] <= TOLERANCE
        why = f"its outputs differ by {times['worst']:.1e} of their range" if wrong else ""
        before, after = map(busy_seconds, times["kernels"])
        return ModelVerdict((before, after), ratios, wrong, why)

    def _run(self, bundles: Iterable[Path], seconds: float) -> Times:
        folder = Path(tempfile.mkdtemp(dir=self.scratch))
        (folder / "job").write_bytes(pickle.dumps(
            {"bundles": [str(b) for b in bundles], "feeds": self.feeds, "seconds": seconds,
             "rig": self.rig}))
        error = finish(start("compare", folder), folder, PATIENCE * seconds + RUN_TIMEOUT)
        if error:
            raise AotcError(f"tune: the whole model could not be measured: {error}")
        times: Times = json.loads((folder / "times").read_text())
        return times


def busy_seconds(calls: Calls) -> float:
    """Seconds of a call of the whole model from ``calls`` [calls, kernels]: the sum of its kernels'
    medians, which a call that something else has interrupted does not change."""
    return float(sum(statistics.median(k) for k in zip(*calls)))


def pair_ratio(before: Iterable[float], after: Iterable[float]) -> float:
    """Median ratio of calls that followed each other: what disturbs the machine meets both.  What
    took no time that the clock shows counts as TICK."""
    return statistics.median(max(b, TICK) / max(a, TICK) for a, b in zip(before, after))


def site_ratios(base: Schedule, schedule: Schedule, chosen: Mapping[str, SiteChoice],
                kernels: Sequence[Calls]) -> dict[Tie, float]:
    """{tie: time in a Schedule over that in ``base``}.  chosen: {site name: Choice} of what it
    changes; kernels: [calls, kernels] of both."""
    before = _by_tie(base, {c: x.tie for x in chosen.values() for g in x.site.groups
                            for c in g.computes}, kernels[0])
    after = _by_tie(schedule, {c: x.tie for x in chosen.values() for g in x.candidate.groups
                               for c in g.computes}, kernels[1])
    return {tie: pair_ratio(before[tie], after[tie]) for tie in after}


def _by_tie(schedule: Schedule, owner: Mapping[str, Tie], calls: Calls) -> dict[Tie, list[float]]:
    """{tie: seconds per call} from seconds per call and kernel; owner: {compute: tie of its
    site}."""
    out: dict[Tie, list[float]] = {}
    for g, seconds in zip(schedule.groups, zip(*calls)):
        if g.computes[0] in owner:
            tie = owner[g.computes[0]]
            out[tie] = [a + b for a, b in zip(out.get(tie, [0.0] * len(seconds)), seconds)]
    return out


__all__ = ["Built", "Checker", "ModelVerdict", "busy_seconds", "pair_ratio", "site_ratios"]
