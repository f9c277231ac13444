"""Are fuse-or-not decisions right?  Samples of them, both alternatives built and timed.

    python -m benchmarks.decisions [MODEL ...] [--count 200] [--seed 0] [--seconds 1]
                                   [--budget 3600] [--json decisions.json] [--models FOLDER]

A decision: two groups at register level with an edge between them, apart or in one kernel.  Both
alternatives are kernels of their own in one small program (their inputs in the layouts they have in
the model, written right before), timed in turns at one thread, thirty times at least.  Prints the
share of decisions whose choice takes at most 5 % longer than the better alternative (a miss counts
where the 95 % interval of the median ratio excludes these 5 %), and the rank correlation between
predicted and measured times of all kernels.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from aotc.errors import AotcError
from aotc.ir.layout import Layout
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.sched.candidates.partition import Partition
from aotc.sched.choose.connect import register_groups
from aotc.sched.decide import decide
from aotc.sched.judge.judge import Judge
from aotc.sched.model.tilegraph import merge_groups
from aotc.tuner.measure.executor import LocalExecutor
from aotc.tuner.measure.rigs import find_rig
from aotc.tuner.search.learned_cost import rank_correlation
from aotc.tuner.space.sites import piece
from aotc.tuner.space.trial import Candidate
from benchmarks import models

SLACK = 1.05  # of the better alternative's time: what a right decision may take
BATCH = 12  # decisions of one program
CALLS = 30  # of it, at least


@dataclass(frozen=True)
class Decision:
    """Two groups of a Program, and the one that they could be.  predicted: seconds apart, merged;
    merge: what the scheduler chooses."""

    name: str
    candidates: tuple
    predicted: tuple
    merge: bool


def decisions(name, program, target, count, rng):
    """At most ``count`` Decisions of a rewritten Program, no two equal, none that a third group
    between the two forbids."""
    judge, groups, seen, out = Judge(program, target), register_groups(program), set(), []
    start = Partition.of(program, groups, judge)
    owner = {c: g for g in groups for c in g.computes}
    edges = [(a, owner[s.outs[0]]) for a in groups for o in a.outputs
             for s in program.consumers.get(o, ())]
    rng.shuffle(edges)
    for a, b in edges:
        key = judge.signature(a), judge.signature(b)
        if key in seen or len(out) == count or start.joined(
                a.computes[0], b.computes[0], judge) is None:
            continue
        seen.add(key)
        found = _decision(f"{name}: {a.anchor} + {b.anchor}", program, target, judge, a, b)
        if found is not None:
            out.append(found)
    return out


def _decision(name, program, target, judge, a, b):
    """The Decision of two groups; None if they cannot be one kernel."""
    one = judge.verdict(merge_groups(program, a, b, target.machine.homes[0].name))
    if not one.legal:
        return None
    parts = [judge.verdict(a).seconds, judge.verdict(b).seconds]
    part = piece(program, a.computes + b.computes)
    given = {x: judge.layouts.get(x, Layout(())) for x in (*part.inputs, *part.outputs)
             if part.buffers[x].role == "temp"}
    candidates = []
    for groups in ((a, b),
                   (judge.finished(merge_groups(program, a, b, target.machine.homes[0].name)),)):
        try:
            s = decide(part, target, groups=groups, layouts=given)
        except AotcError:
            return None
        layouts = {x: lay.to_json() for x, lay in given.items() if not lay.is_identity}
        candidates.append(Candidate(name, (len(groups),), part, s.groups, layouts | s.layouts))
    if len(candidates[1].groups) > 1:
        return None  # parted again
    return Decision(name, tuple(candidates), (sum(parts), one.seconds), judge.merge(a, b)[1] > 0)


def judged(found, executor, end):
    """[{name, predicted, measured, interval, merge, within, right}] of Decisions that could be
    built; none is begun after the time ``end`` (of ``time.monotonic``).  interval: of the ratio
    merged / apart; within: 5 % by the medians; right: nothing else is shown by the interval."""
    rows = []
    for at in range(0, len(found), BATCH):
        if time.monotonic() > end:
            break
        batch = found[at:at + BATCH]
        times = executor.build_and_measure([c for d in batch for c in d.candidates])
        for i, d in enumerate(batch):
            apart, one = times[2 * i].seconds, times[2 * i + 1].seconds
            if apart is None or one is None:
                continue
            low, high = times[2 * i + 1].interval
            least = low if d.merge else 1 / high  # of the choice over the alternative
            rows.append({"name": d.name, "predicted": d.predicted, "measured": (apart, one),
                         "interval": (low, high), "merge": d.merge, "right": least <= SLACK,
                         "within": (one if d.merge else apart) <= SLACK * min(apart, one)})
            print(f"{'' if rows[-1]['right'] else 'MISS':5}{d.name:60} predicted "
                  f"{d.predicted[1] / d.predicted[0]:.2f} measured {one / apart:.2f}", flush=True)
    return rows


def main(argv=None):
    """Sample and time; the exit code is 1 if nothing could be judged."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", help="names; all there are without any")
    parser.add_argument("--count", type=int, default=200, help="decisions of all models together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", default="native")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each small program")
    parser.add_argument("--budget", type=float, default=3600.0, help="seconds of all together: "
                        "every model gets an equal share of what is left")
    parser.add_argument("--json", default="decisions.json", help="file for the results")
    parser.add_argument("--models", dest="folder", help="folder to keep the .onnx files in")
    args = parser.parse_args(argv)
    rng, rows, names = random.Random(args.seed), [], args.models or models.names()
    share, end = -(-args.count // len(names)), time.monotonic() + args.budget
    with tempfile.TemporaryDirectory(prefix="aotc-decisions-") as scratch:
        for number, name in enumerate(names):
            now = time.monotonic()
            part = now + (end - now) / (len(names) - number)
            case = models.case(name, args.folder or scratch)
            work = run_pipeline(Options(case.path, None, args.target, name, connect="register",
                                        stop_after="schedule"))
            found = decisions(name, work.rewritten, work.target, share, rng)
            executor = LocalExecutor(find_rig(work.target), args.seconds, calls=CALLS)
            rows += judged(found, executor, part)
    Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")
    if not rows:
        return 1
    predicted, measured = ([x for r in rows for x in r[k]] for k in ("predicted", "measured"))
    right, within = (sum(r[k] for r in rows) / len(rows) for k in ("right", "within"))
    print(f"{len(rows)} decisions, {right:.0%} within {SLACK - 1:.0%} of the better alternative "
          f"({within:.0%} by the medians alone); rank correlation of times "
          f"{rank_correlation(predicted, measured):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
