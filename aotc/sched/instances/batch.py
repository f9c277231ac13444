"""How many runs a cluster does at once: chosen by predicted seconds, without trying them all."""

from collections.abc import Callable
from dataclasses import dataclass

from aotc.sched.instances.cluster import Cluster
from aotc.sched.instances.decide_instances import decide_instances
from aotc.sched.instances.grouping import BY_COST, Rules
from aotc.sched.instances.instance_plan import InstancePlan
from aotc.sched.instances.steps import steps_of_plan, timeline
from aotc.sched.instances.tensor_graph import Graph


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


def planned(graph: Graph, cluster: Cluster, runs: int, total: int,
            rules: Rules = BY_COST) -> Batch:
    """The Batch of a graph that does ``runs`` at once, of ``total``."""
    plan = decide_instances(graph, cluster, rules)
    steps = steps_of_plan(plan, cluster)
    return Batch(runs, -(-total // runs), plan, timeline(steps, cluster).seconds)


def choose_batch(graph: Callable[[int], Graph], cluster: Cluster, total: int,
                 rules: Rules = BY_COST) -> tuple[Batch, ...]:
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
