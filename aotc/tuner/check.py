"""The last word: the whole model as tuned against the whole model untuned, in turns."""

import json
import pickle
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from aotc.emit.bundle import render_bundle, write_bundle
from aotc.errors import AotcError
from aotc.pipeline import model_info
from aotc.runtime.build import build
from aotc.samples import extents, random_inputs
from aotc.sched.lower import lower
from aotc.tuner.executor import RUN_TIMEOUT, finish, start
from aotc.tuner.measure_worker import typical

SECONDS = 6.0  # of measuring two models in turns
PATIENCE = 60  # times the CPU time that is measured: on a busy machine it takes so long
TOLERANCE = 1e-3  # largest difference of outputs, relative to their range
FASTER = 0.995  # a tuned model counts if it has at most this share of the untuned one's time
GROUP_FASTER = 0.99  # the same for the groups of one site inside the model


@dataclass(frozen=True)
class Verdict:
    """``seconds``: (untuned, tuned) of a call; ``slower``: names of changed sites that are not
    faster inside the model; ``wrong``: outputs differ, or it did not run, ``why`` says what
    happened."""

    seconds: tuple
    slower: frozenset
    wrong: bool
    why: str = ""

    @property
    def ratio(self):
        return self.seconds[1] / self.seconds[0] if not self.wrong else float("inf")


class Checker:
    """Compares Schedules of one model.  work: the pipeline's Work after its schedule stage;
    scratch: a folder for bundles."""

    faster = FASTER

    def __init__(self, work, scratch, threads=1, seconds=SECONDS):
        self.work, self.scratch = work, Path(scratch)
        self.threads, self.seconds = threads, seconds
        self.feeds = random_inputs(work.program, extents(work.program)[0])
        self.first = None  # folder of the untuned bundle

    def untuned(self):
        """(seconds per kernel, seconds of a call) of the untuned model."""
        self.first = self._built(self.work.schedule)
        times = self._run([self.first], self.seconds / 2)
        return list(typical(times["kernels"][0])), fast_mean(times["whole"][0])

    def _built(self, schedule):
        """Folder of a bundle that counts, with its library."""
        folder = Path(tempfile.mkdtemp(dir=self.scratch)) / "bundle"
        plan = lower(self.work.program, schedule, self.work.target)
        write_bundle(render_bundle(plan, schedule, {**model_info(self.work.program),
                                                    "onnx_sha256": self.work.file_hash},
                                   profile=True), folder)
        build(folder)
        return folder

    def compare(self, schedule, chosen):
        """The Verdict on a Schedule.  chosen: {site name: Choice} of what it changes."""
        try:
            times = self._run([self.first, self._built(schedule)], self.seconds)
        except AotcError as err:  # it does not build, crashes or hangs: not a schedule to keep
            return Verdict((1.0, float("inf")), frozenset(chosen), True, str(err))
        before = _by_tie(self.work.schedule, {c: x.tie for x in chosen.values()
                                              for g in x.site.groups for c in g.computes},
                         times["kernels"][0])
        after = _by_tie(schedule, {c: x.tie for x in chosen.values()
                                   for g in x.candidate.groups for c in g.computes},
                        times["kernels"][1])
        slower = frozenset(n for n, x in chosen.items()
                           if pair_ratio(before[x.tie], after[x.tie]) > GROUP_FASTER)
        whole = fast_mean(times["whole"][0])
        ratio = pair_ratio(*times["whole"])
        wrong = not times["worst"] <= TOLERANCE
        why = f"its outputs differ by {times['worst']:.1e} of their range" if wrong else ""
        return Verdict((whole, whole * ratio), slower, wrong, why)

    def _run(self, bundles, seconds):
        folder = Path(tempfile.mkdtemp(dir=self.scratch))
        (folder / "job").write_bytes(pickle.dumps(
            {"bundles": [str(b) for b in bundles], "feeds": self.feeds, "seconds": seconds,
             "threads": self.threads}))
        error = finish(start("compare", folder), folder, PATIENCE * seconds + RUN_TIMEOUT)
        if error:
            raise AotcError(f"tune: the whole model could not be measured: {error}")
        return json.loads((folder / "times").read_text())


def fast_mean(seconds):
    """Mean of the fastest calls."""
    return float(typical([[s] for s in seconds])[0])


def pair_ratio(before, after):
    """Median ratio of calls that followed each other: what disturbs the machine meets both."""
    return statistics.median(b / a for a, b in zip(before, after))


def _by_tie(schedule, owner, calls):
    """{tie: seconds per call} from seconds per call and kernel; owner: {compute: tie of its
    site}."""
    out, kernels = {}, list(zip(*calls))
    for g, seconds in zip(schedule.groups, kernels):
        if g.computes[0] in owner:
            tie = owner[g.computes[0]]
            out[tie] = [a + b for a, b in zip(out.get(tie, [0.0] * len(seconds)), seconds)]
    return out


__all__ = ["Checker", "Verdict", "fast_mean", "pair_ratio"]
