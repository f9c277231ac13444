"""The smaller tables of GraphTurbo: Table 1, the published examples, orders, up-sampling, batches.

Each function decides and predicts with what it is given and returns Markdown.
"""

import random
from collections.abc import Sequence

from aotc.sched.accelerator.instances.cluster import Cluster
from aotc.sched.accelerator.instances.decide_instances import decide_instances
from aotc.sched.accelerator.instances.grouping import BY_COST, PAPER, MergeRules
from aotc.sched.accelerator.instances.instance_order import Tasks, exact_order, orders, peak_live
from aotc.sched.accelerator.instances.spill import LARGEST, LONGEST, Lifetime, spill_outputs
from aotc.sched.accelerator.instances.steps import WEIGHTS, seconds, steps_of_plan
from aotc.sched.accelerator.instances.tensor_graph import TensorGraph
from benchmarks.graphturbo_batch import Batch, ranges
from benchmarks.graphturbo_times import (
    layer_by_layer,
    prefetched,
    scheduled,
    serial,
    task_times,
    traffic,
)

# Table 1, BERT-128: batch, iterations, batches per cluster, sentences/s, ms
TVM_ROWS = ((8, 1, 2, 138, 6.79), (16, 1, 4, 512, 9.48), (32, 2, 4, 512, 18.96),
            (64, 4, 4, 512, 37.92))
OUR_ROWS = ((8, 1, 2, 138, 6.79), (16, 1, 4, 512, 9.48), (32, 1, 8, 4052, 7.67),
            (64, 1, 16, 2716, 23.58), (64, 2, 8, 4052, 15.34))


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|---|" + "--:|" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(map(str, r)) + " |" for r in rows])


def batch_sweep(layers: dict[int, float], ours: dict[int, float]) -> str:
    """Table 1.  layers, ours: seconds of so many sentences on a cluster, layer by layer and as
    instances."""
    rows = []
    for title, found, taken in (("layer by layer", TVM_ROWS, layers),
                                ("instances", OUR_ROWS, ours)):
        for batch, rounds, runs, rate, ms in found:
            t = rounds * taken[runs]
            rows.append((title, batch, rounds, runs, f"{batch / t:.0f}", f"{t * 1e3:.2f}", rate,
                         ms, f"{batch / ms * 1e3:.0f}"))
    return table(("", "batch", "rounds", "a cluster", "sentences/s", "ms", "published: sentences/s",
                  "ms", "which are sentences/s"), rows)


LIVES = tuple(Lifetime(name, size, first, last, (last,)) for name, size, first, last in (
    ("in1", 24, 1, 1), ("out1", 12, 1, 7), ("out2", 20, 2, 3), ("out3", 24, 3, 5),
    ("out4", 16, 4, 6), ("out5", 20, 5, 7)))


def examples() -> str:
    """Which output is spilled of the published six in a memory of 64 bytes, and three layers whose
    weights are prefetched."""
    rows: list[Sequence[object]] = []
    for how in (LONGEST, LARGEST):
        found = spill_outputs(LIVES, (64, 1 << 10, 1 << 40), by=how)
        gone = ", ".join(x for x, n in found.level.items() if n)
        rows.append((f"spill: {how} first", f"{gone} goes out", f"{found.moved[0]} bytes moved"))
    layers = [((("DDR to GB", 4.0), ("GB to LB", 2.0)), ("compute", 5.0))] * 3
    for slots in (1, 2):
        tasks = prefetched(layers, slots)
        rows.append((f"prefetch: {slots} slots", f"one by one {serial(tasks):.0f}",
                     f"overlapped {scheduled(tasks).seconds:.0f}"))
    return table(("example", "", ""), rows)


def order_quality(sizes: Sequence[int] = (8, 12, 16, 20), graphs: int = 5) -> str:
    """Peaks of the orders found without the exact search over those of that, on random graphs."""
    rng = random.Random(0)
    rows = []
    for n in sizes:
        found = [_ratio(_random(rng, n)) for _ in range(graphs)]
        ended = [r for r in found if r is not None]
        rows.append((n, f"{len(ended)} of {graphs}",
                     f"{sum(ended) / max(1, len(ended)):.3f}", f"{max(ended, default=0):.3f}"))
    return table(("nodes", "exact search ends", "mean peak, of the least", "worst"), rows)


def _random(rng: random.Random, n: int) -> Tasks:
    names = [f"t{i}" for i in range(n)]
    return Tasks({x: rng.randint(1, 20) for x in names}, {
        x: tuple(sorted(rng.sample(names[:i], min(i, rng.randint(1, 2)))))
        for i, x in enumerate(names)})


def _ratio(tasks: Tasks) -> float | None:
    least = exact_order(tasks)
    if least is None:
        return None
    found = orders(tasks, 1 << 40, ("breadth first", "depth first", "heavy first"))
    return found[0].peak / peak_live(tasks, least)


def grouping_rules(graph: TensorGraph, on: Cluster) -> str:
    """A network by every rule: MB over the border to the outermost memory, and predicted ms."""
    ways = (("rules (i) and (ii) as printed", MergeRules(PAPER)),
            ("rule (i) with growth 1", MergeRules(PAPER, growth=1)), ("by cost", BY_COST),
            ("by cost, several outputs", MergeRules(several=True)))
    found = [("layer by layer", len(graph.computed), layer_by_layer(graph, on), 0.0)]
    for title, rules in ways:
        plan = decide_instances(graph, on, rules)
        steps = steps_of_plan(plan, on)
        found.append((title, len(plan.subgraphs), steps, task_times(steps, on).seconds))
    rows = []
    for title, parts, steps, over in found:
        moved = traffic(steps)
        border = len(on.outer)
        weights = sum(v for (k, _, kind), v in moved.items() if k == border and kind == WEIGHTS)
        rest = sum(v for (k, _, kind), v in moved.items() if k == border and kind != WEIGHTS)
        least = min(filter(None, (seconds(steps, on), over)))
        rows.append((title, parts, f"{rest / 1e6:.1f}", f"{weights / 1e6:.1f}",
                     f"{(rest + weights) / 1e6:.1f}", f"{least * 1e3:.2f}"))
    return table(("", "kernels", "outputs and caller's", "weights", "all", "predicted ms"), rows)


def batch_row(label: str, looked: Sequence[Batch], swept: Sequence[Batch]) -> tuple[object, ...]:
    """Of ``batches``: which of those ``looked`` at (best first) is chosen, how near the best of the
    whole sweep it is, and which plan is next for a batch that is known when it runs."""
    best = min(swept, key=lambda b: b.each)
    return (label, looked[0].runs, f"{len(looked)} of {len(swept)}", best.runs,
            f"{looked[0].each / best.each:.3f}", ", ".join(map(str, ranges(swept))))


def batches(rows: Sequence[Sequence[object]]) -> str:
    """The table of ``batch_row``."""
    return table(("", "chosen", "looked at", "best of the sweep", "seconds, of the best",
                  "what runs next"), rows)
