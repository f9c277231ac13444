"""How many runs a cluster does at once: chosen by predicted seconds, without trying them all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from aotc.sched.accelerator.instances.cluster import Cluster
from aotc.sched.accelerator.instances.decide_instances import decide_instances
from aotc.sched.accelerator.instances.grouping import BY_COST, MergeRules
from aotc.sched.accelerator.instances.instance_plan import InstancePlan
from aotc.sched.accelerator.instances.steps import steps_of_plan
from aotc.sched.accelerator.instances.tensor_graph import TensorGraph
from benchmarks.graphturbo_times import task_times

PERIOD = 2  # times the largest batch after which what is next no longer changes


@dataclass(frozen=True)
class Batch:
    """``runs`` of a graph at once on a cluster, with the plan for them and the seconds that it
    takes; ``rounds``: how often, for all that a cluster has to do."""

    runs: int
    rounds: int
    plan: InstancePlan
    seconds: float

    @property
    def each(self) -> float:
        """Seconds per run."""
        return self.seconds / self.runs

    def __str__(self) -> str:
        return f"{self.runs} runs at once, {self.rounds} times: {self.each * 1e6:.2f} us each"


def planned(graph: TensorGraph, cluster: Cluster, runs: int, total: int,
            rules: MergeRules = BY_COST) -> Batch:
    """The Batch of a graph that does ``runs`` at once, of ``total``."""
    plan = decide_instances(graph, cluster, rules)
    steps = steps_of_plan(plan, cluster)
    return Batch(runs, -(-total // runs), plan, task_times(steps, cluster).seconds)


def choose_batch(graph: Callable[[int], TensorGraph], cluster: Cluster, total: int,
                 rules: MergeRules = BY_COST) -> tuple[Batch, ...]:
    """The Batches looked at, the best first: fewest seconds per run.  graph: of so many runs at
    once.  From all runs at once down through the divisors of ``total``, until fewer have twice
    made it worse: weights are read once per round, and outputs fit the better the fewer there are,
    so that there is one best number."""
    found: list[Batch] = []
    worse = 0
    for runs in (n for n in range(total, 0, -1) if total % n == 0):
        found.append(planned(graph(runs), cluster, runs, total, rules))
        worse = worse + 1 if found[-1].each > min(b.each for b in found) else 0
        if worse == 2:
            break
    return tuple(sorted(found, key=lambda b: b.each))


@dataclass(frozen=True)
class BatchRange:
    """While ``first`` to ``last`` runs are left (None: any more), ``batch`` is what runs next."""

    first: int
    last: int | None
    batch: Batch

    def __str__(self) -> str:
        end = "" if self.last is None else str(self.last)
        left = str(self.first) if self.first == self.last else f"{self.first}..{end}"
        return f"{left} left: {self.batch.runs} at once"


def ranges(found: Sequence[Batch]) -> tuple[BatchRange, ...]:
    """Which of the Batches ``found`` is next, by how many runs are left, for a number of runs that
    is known when they run: those that take the fewest seconds together, the largest first.  What
    does more at once than are left does the rest for nothing.  Beyond ``PERIOD`` times the largest,
    the one with the fewest seconds per run is next."""
    most = PERIOD * max(b.runs for b in found)
    total, first = [0.0], list[Batch]()
    for n in range(1, most + 1):
        ways = [(b.seconds + total[max(0, n - b.runs)], b) for b in found]
        least = min(t for t, _ in ways)
        total.append(least)
        first.append(max((b for t, b in ways if t <= least * (1 + 1e-9)), key=lambda b: b.runs))
    first.append(min(found, key=lambda b: b.each))
    out: list[BatchRange] = []
    for n, b in enumerate(first, 1):
        if out and out[-1].batch is b:
            out[-1] = replace(out[-1], last=n)
        else:
            out.append(BatchRange(n, n, b))
    return (*out[:-1], replace(out[-1], last=None))
