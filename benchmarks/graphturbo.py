"""GraphTurbo's tables from the deciders of instances and one model of time.

    python -m benchmarks.graphturbo [LABEL ...] [--models FOLDER] [--json results.json] [--jobs 2]

For every configuration of Table 2: how often DDR, LLB and L1 hold an output (Table 3), bytes per
memory, the ablation against layer by layer with outputs in DDR, throughput, and batches; with all
of them, the tables of ``graphturbo_tables``, too.  Two parameters that are not published are fitted
once, to ResNet-50's two figures; all else is predicted.
"""

import argparse
import json
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from math import exp, log
from pathlib import Path

from aotc.sched.accelerator.instances.cluster import Cluster, ComputeUnit
from aotc.sched.accelerator.instances.decide_instances import decide_instances, decide_parts
from aotc.sched.accelerator.instances.grouping import BY_COST, PAPER, MergeRules
from aotc.sched.accelerator.instances.spill import Lifetime, spill_outputs
from aotc.sched.accelerator.instances.steps import INPUTS, OUTPUTS, RESULTS, seconds, steps_of_plan
from aotc.target.base import Machine, Memory
from aotc.target.dsa import STCP920_DEVICE
from benchmarks.graphturbo_batch import Batch, choose_batch, planned
from benchmarks.graphturbo_graphs import cluster_of
from benchmarks.graphturbo_models import CONFIGURATIONS, zoo
from benchmarks.graphturbo_tables import (
    OUR_ROWS,
    TVM_ROWS,
    batch_row,
    batch_sweep,
    batches,
    examples,
    grouping_rules,
    order_quality,
    table,
)
from benchmarks.graphturbo_times import layer_by_layer, task_times, traffic

SPEEDUP = 7.97  # published, of ResNet-50 over TVM
VECTOR, CORE = 1 / 8, 1 / 64  # assumed: flop/s of the vector engine and core, of the matrix engine
NEARER = 0.1  # assumed: latency of the global buffer, of that of DDR


def cluster(latency: float, matrix: float, gb: float = 1.0, lb: float = 1.0,
            vector: float = VECTOR, core: float = CORE, nearer: float = NEARER) -> Cluster:
    """A cluster of the published device; latency: seconds of a tile's DMA, matrix: flop/s of one
    core's matrix engine.  gb, lb: times the assumed bandwidth of the global and local buffers."""
    d = STCP920_DEVICE
    machine = Machine(
        (Memory("DDR", 1 << 34, d.ddr, "device", latency=latency, kind="managed"),
         Memory("GB", d.cluster, d.cluster_rate * d.cores * gb, "cluster",
                latency=latency * nearer, kind="managed"),
         Memory("LB", d.local, d.local_rate * lb, "core", kind="managed"),
         Memory("register", 4096, 1e12, "thread", kind="managed")),
        d.clusters * d.cores, matrix, 1, scratch="LB", launch=0.0)
    units = (ComputeUnit("matrix", matrix, ("contraction", "dot")),
             ComputeUnit("vector", matrix * vector, ("window", "reduction", "map")),
             ComputeUnit("core", matrix * core))
    return cluster_of(machine, d.cores, d.clusters, units, ("dma0", "dma1"), reserve=2048)


def overlapped(plan, on: Cluster) -> float:
    """Seconds of a plan with overlap across layers, where that helps."""
    steps = steps_of_plan(plan, on)
    return min(task_times(steps, on).seconds, seconds(steps, on))


def in_next_memory(graph, on: Cluster) -> dict[str, int]:
    """Node -> memory of its output if every node is a kernel: the next one out, as far as outputs
    fit there."""
    at = {n.name: i for i, n in enumerate(graph.computed)}
    lives = []
    for n in graph.computed:
        reads = tuple(at[c] for c in graph.consumers[n.name])
        lives.append(Lifetime(n.name, n.bytes, at[n.name], max((at[n.name], *reads)), reads, 1))
    return dict(spill_outputs(lives, [on.capacity(k) for k in range(3)]).level)


def fitted(graph, tvm: int, ours: int, result: float) -> Cluster:
    """The Cluster with the two parameters at which ResNet-50 takes what is published: DMA latency
    by the time of layer by layer, flop/s by that of GraphTurbo."""
    latency, matrix = 2e-6, 2e12
    before = graph(tvm)
    for _ in range(2):
        best = choose_batch(graph, cluster(latency, matrix), ours)[0]
        for _ in range(3):
            matrix = _fit_matrix(best, latency, SPEEDUP * result)
            latency = _fit_latency(before, tvm, matrix, result)
    return cluster(latency, matrix)


def _fit_matrix(best: Batch, latency: float, rate: float) -> float:
    want = STCP920_DEVICE.clusters * best.runs / rate
    return _root(lambda x: overlapped(best.plan, cluster(latency, x)) - want, 1e10, 1e14, -1)


def _fit_latency(graph, runs: int, matrix: float, rate: float) -> float:
    want = STCP920_DEVICE.clusters * runs / rate
    return _root(lambda x: _layers(graph, cluster(x, matrix)) - want, 1e-8, 1e-4, 1)


def _layers(graph, on):
    return seconds(layer_by_layer(graph, on), on)


def _root(function, low, high, rising):
    """Where a monotonic function crosses 0, to one part in a thousand; an end if it does not."""
    while high / low > 1.001:
        middle = (low * high) ** 0.5
        if function(middle) * rising > 0:
            high = middle
        else:
            low = middle
    return (low * high) ** 0.5


def measured(c, folder: Path, on: Cluster) -> dict:
    """All figures of one configuration."""
    clusters = STCP920_DEVICE.clusters

    def graph(n):
        return c.graph(folder, n)

    graph(c.ours)  # reading is not deciding
    start = time.process_time()
    found = choose_batch(graph, on, c.ours)
    decided = time.process_time() - start
    best = found[0]
    full = next(b for b in found if b.runs == c.ours)
    seen = {b.runs for b in found}
    swept = (*found, *(planned(graph(n), on, n, c.ours) for n in range(1, c.ours)
                       if c.ours % n == 0 and n not in seen))
    tvm = graph(c.tvm)
    layers = layer_by_layer(tvm, on)
    flat = decide_parts(graph(c.ours), on, BY_COST, full.plan.subgraphs, ("breadth first",))
    near = layer_by_layer(tvm, on, in_next_memory(tvm, on))
    steps = steps_of_plan(best.plan, on)
    paper = decide_instances(graph(c.ours), on, MergeRules(PAPER))
    rates = {
        "layer by layer, outputs in DDR": clusters * c.tvm / seconds(layers, on),
        "outputs in LLB": clusters * c.tvm / seconds(near, on),
        "outputs in L1": clusters * c.ours / seconds(steps_of_plan(flat, on), on),
        "+ instance order": clusters * best.runs / seconds(steps, on),
        "+ overlap across layers": clusters * best.runs / overlapped(best.plan, on)}
    return {
        "label": c.label, "title": c.title, "nodes": len(tvm.computed),
        "uses": full.plan.uses(), "paper_uses": paper.uses(),
        "tvm_uses": sum(not n.output for n in tvm.computed),
        "bytes": {str(k): v / best.runs for k, v in traffic(steps).items()},
        "tvm_bytes": {str(k): v / c.tvm for k, v in traffic(layers).items()},
        "ddr_share": _outside(steps, best.runs) / _outside(layers, c.tvm),
        "spilled_share": _outside(steps, best.runs, (OUTPUTS,)) / _outside(
            layers, c.tvm, (OUTPUTS,)),
        "rates": rates, "decided_s": decided, "runs": best.runs,
        "seconds": {b.runs: overlapped(b.plan, on) for b in swept},
        "looked_at": [(b.runs, clusters / b.each) for b in found],
        "paper_rate": clusters * c.ours / overlapped(paper, on),
        "sensitivity": sensitivity(best, layers_of(tvm, c.tvm), on),
        "busy": dict(task_times(steps, on).busy), "found": found, "swept": swept}


def measured_by_label(label: str, folder: Path, on: Cluster) -> dict:
    """``measured``, of the configuration of that name; with the table of its batches."""
    c = next(c for c in CONFIGURATIONS if c.label == label)
    row = measured(c, folder, on)
    row["batches"] = batch_row(label, row.pop("found"), row.pop("swept"))
    return row


def _outside(steps, runs, kinds=(OUTPUTS, INPUTS, RESULTS)) -> float:
    """Bytes per run that cross the border of the outermost memory, weights apart."""
    return sum(v for (level, _, kind), v in traffic(steps).items()
               if level == 2 and kind in kinds) / runs


def sensitivity(best: Batch, before, on: Cluster) -> dict[str, float]:
    """Parameter -> speedup over layer by layer (``before``: seconds per run on a Cluster) with that
    one changed, at the same decisions."""
    latency, matrix = on.outer[-1].latency, on.units[0].flops
    changed = {
        "as fitted": on, "GB bandwidth x 2": cluster(latency, matrix, 2.0),
        "GB bandwidth / 2": cluster(latency, matrix, 0.5),
        "LB bandwidth x 2": cluster(latency, matrix, lb=2.0),
        "LB bandwidth / 2": cluster(latency, matrix, lb=0.5),
        "unit peaks x 2": cluster(latency, 2 * matrix),
        "unit peaks / 2": cluster(latency, matrix / 2),
        "vector engine / 2": cluster(latency, matrix, vector=VECTOR / 2),
        "vector core / 2": cluster(latency, matrix, core=CORE / 2),
        "DMA latency x 2": cluster(2 * latency, matrix),
        "DMA latency / 2": cluster(latency / 2, matrix),
        "GB latency x 2": cluster(latency, matrix, nearer=2 * NEARER)}
    return {name: best.runs / overlapped(best.plan, other) * before(other)
            for name, other in changed.items()}


def layers_of(graph, runs: int):
    """Seconds per run, layer by layer, on a Cluster."""
    return lambda on: _layers(graph, on) / runs


def mean(values) -> float:
    """Geometric mean."""
    values = list(values)
    return exp(sum(map(log, values)) / len(values))


def report(rows, configurations, on: Cluster) -> str:
    """All tables as Markdown."""
    pairs = list(zip(rows, configurations))
    text = [f"Fitted: DMA latency {on.outer[-1].latency * 1e6:.2f} us a tile, matrix engine "
            f"{on.units[0].flops / 1e9:.0f} GFLOP/s a core."]
    text.append(table(
        ("", "DDR: TVM / layer by layer / GraphTurbo / here", "LLB: GraphTurbo / here",
         "L1: GraphTurbo / here", "rules alone: DDR, LLB, L1"),
        [(f"{c.label} {c.title}", f"{c.ddr[0]} / {r['tvm_uses']} / {c.ddr[2]} / {r['uses'][2]}",
          f"{c.llb[1]} / {r['uses'][1]}", f"{c.l1[1]} / {r['uses'][0]}",
          ", ".join(map(str, reversed(r["paper_uses"])))) for r, c in pairs]))
    mib = 1 << 20
    text.append(table(
        ("MiB per run", "DDR before: outputs", "weights", "DDR here: outputs", "caller's",
         "weights", "GB here", "share of DDR outputs and caller's"),
        [(c.label, *(f"{n / mib:.2f}" for n in (
            _sum(r["tvm_bytes"], 2, OUTPUTS), _sum(r["tvm_bytes"], 2, "weights"),
            _sum(r["bytes"], 2, OUTPUTS), _sum(r["bytes"], 2, INPUTS) + _sum(
                r["bytes"], 2, RESULTS), _sum(r["bytes"], 2, "weights"),
            sum(v for k, v in r["bytes"].items() if k.startswith("(1,")))),
          f"{r['ddr_share']:.4f}") for r, c in pairs]))
    text.append(f"Geometric mean of the share: {mean(r['ddr_share'] for r in rows):.4f}.")
    names = list(rows[0]["rates"])
    head = ("units/s", "published TVM", *names, "speedup", "rules alone", "runs at once")
    text.append(table(head,
                      [(c.label, c.result, *(f"{n:.0f}" for n in r["rates"].values()),
                        f"{r['rates'][names[-1]] / r['rates'][names[0]]:.2f}",
                        f"{r['paper_rate']:.0f}", r["runs"]) for r, c in pairs]))
    steps = [f"{b}: {mean(r['rates'][b] / r['rates'][a] for r in rows):.2f}x"
             for a, b in zip(names, names[1:])]
    text.append("Geometric means, each over the one before: " + ", ".join(steps) + ".")
    text.append(table(("speedup", *(c.label for c in configurations)),
                      [(n, *(f"{r['sensitivity'][n]:.2f}" for r in rows))
                       for n in rows[0]["sensitivity"]]))
    text.append(batches([r["batches"] for r in rows]))
    text.append(table(("", "runs at once: units/s", "engines busy", "decided s"), [
        (c.label, ", ".join(f"{n}: {v:.0f}" for n, v in r["looked_at"]),
         ", ".join(f"{k} {v:.2f}" for k, v in r["busy"].items()), f"{r['decided_s']:.1f}")
        for r, c in pairs]))
    return "\n\n".join(text)


def _sum(found, level, kind) -> float:
    return sum(v for k, v in found.items() if k.startswith(f"({level},") and f"'{kind}'" in k)


def sentences(runs: int, on: Cluster, folder: Path) -> float:
    """Seconds of so many sentences of BERT-128 at once."""
    bert = next(c for c in CONFIGURATIONS if c.label == "B")
    return overlapped(planned(bert.graph(folder, runs), on, runs, runs).plan, on)


def up_sampling(on: Cluster, folder: Path) -> str:
    """The table of the rules for a network that up-samples."""
    return grouping_rules(zoo("unet")(folder, 1), on)


def smaller(folder: Path, on: Cluster, ours, unet: str) -> str:
    """The tables of ``graphturbo_tables``.  ours: runs -> seconds of BERT-128."""
    bert = next(c for c in CONFIGURATIONS if c.label == "B")
    layers = {n: _layers(bert.graph(folder, n), on) for n in {r[2] for r in TVM_ROWS}}
    return "\n\n".join((
        "Table 1, BERT-128:", batch_sweep(layers, ours), "Published examples:", examples(),
        "Orders of random graphs, without the exact search:", order_quality(),
        "UNet at batch 1 (MB over the border to DDR):", unet))


def main(argv=None) -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("labels", nargs="*", metavar="LABEL", help="A to J")
    parser.add_argument("--models", metavar="FOLDER", help="where the zoo's models are, or go to")
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    parser.add_argument("--jobs", type=int, default=2, help="configurations at a time")
    args = parser.parse_args(argv)
    chosen = [c for c in CONFIGURATIONS if not args.labels or c.label in args.labels]
    with tempfile.TemporaryDirectory() as spare:
        folder = Path(args.models or spare)
        first = CONFIGURATIONS[0]
        on = fitted(lambda n: first.graph(folder, n), first.tvm, first.ours, first.result)
        print(f"fitted: {on.outer[-1].latency}, {on.units[0].flops}", flush=True)
        work = partial(measured_by_label, folder=folder, on=on)
        with ProcessPoolExecutor(args.jobs) as pool:
            waiting = [pool.submit(work, c.label) for c in chosen]
            runs = sorted({r[2] for r in OUR_ROWS if 8 % r[2]})  # B's own are all that divide 8
            more = [] if args.labels else [pool.submit(sentences, n, on, folder) for n in runs]
            unet = None if args.labels else pool.submit(up_sampling, on, folder)
            rows = []
            for each in waiting:
                rows.append(each.result())
                print(f"{rows[-1]['label']}: {rows[-1]['uses']}", flush=True)
            print(report(rows, chosen, on), flush=True)
            if unet is not None:
                known = next(r for r in rows if r["label"] == "B")["seconds"]
                ours = {**known, **{n: t.result() for n, t in zip(runs, more)}}
                print(smaller(folder, on, ours, unet.result()))
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
