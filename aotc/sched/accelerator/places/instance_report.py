"""What the deciders of instances found, per sub-graph: its split, its instances and when they run,
where each tensor lives and why."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from aotc.ir.program import Program
from aotc.sched.accelerator.instances.decide_instances import decide_instances
from aotc.sched.accelerator.instances.from_program import from_program
from aotc.sched.accelerator.instances.grouping import BY_COST, PAPER, MergeRules
from aotc.sched.accelerator.instances.instance_plan import InstancePlan
from aotc.sched.accelerator.instances.instances import SubGraph
from aotc.sched.accelerator.instances.split import outs_of
from aotc.sched.accelerator.places.instance_groups import cluster_for
from aotc.target.base import Machine


def instance_report(program: Program, machine: Machine, by_rules: bool
                    ) -> tuple[dict[str, Any], list[str]] | None:
    """(plain data, lines) of the InstancePlan of a Program; symbolic extents have their typical
    value.  by_rules: the paper's rules decide alone, else cost.  None where clusters have no memory
    of their own, or nothing is computed."""
    if not machine.stores:
        return None
    graph = from_program(program)
    if not graph.computed:
        return None
    cluster = cluster_for(program, machine)
    plan = decide_instances(graph, cluster, MergeRules(PAPER) if by_rules else BY_COST)
    data = plan_data(plan, [m.name for m in cluster.memories])
    return data, list(_lines(data))


def plan_data(plan: InstancePlan, memories: Sequence[str]) -> dict[str, Any]:
    """Plain data of an InstancePlan; memories: their names, the cores' own first."""
    at = {x: i for i, x in enumerate(plan.order)}
    best = plan.ordered[0]
    return {
        "rules": str(plan.rules),
        "order": {"how": best.how, "peak_bytes": best.peak, "instead_of": [
            {"how": o.how, "peak_bytes": o.peak} for o in plan.ordered[1:]]},
        "most_bytes": dict(zip(memories, plan.homes.peak)),
        "held": dict(zip(memories, plan.uses())),
        "sub_graphs": [_sub_graph(plan, s, memories, at) for s in plan.subgraphs]}


def _sub_graph(plan: InstancePlan, s: SubGraph, memories: Sequence[str], at: dict[str, int]
               ) -> dict[str, Any]:
    mine = [x for x in plan.instances.instances if x.subgraph == s.name]
    names = {x.name for x in mine}
    reads = dict.fromkeys(plan.instances.instance[p].subgraph
                          for x in mine for p in plan.instances.producers[x.name])
    weights = [w for w in plan.weights if w.instance in names]
    return {
        "name": s.name, "nodes": list(s.members), "why": s.why, "split": str(s.split),
        "instances": len(mine), "run_at": _runs(sorted(at[x.name] for x in mine)),
        "reads": list(reads), "weights_bytes": sum(w.bytes for w in weights),
        "weights_fetched": sum(w.fetched for w in weights),
        "tensors": [_tensor(plan, s, node, memories, names) for node in s.members]}


def _tensor(plan: InstancePlan, s: SubGraph, node: str, memories: Sequence[str],
            names: set[str]) -> dict[str, Any]:
    found = Counter(memories[h.level] for h in plan.held
                    if h.instance in names and h.node == node)
    if node not in outs_of(plan.graph, s.members):
        return {"name": node, "lives": dict(found), "why": "used in its instance alone"
                if s.split.fits else "an instance is larger than the memory before"}
    if plan.graph.node[node].output:
        return {"name": node, "lives": dict(found), "why": "the caller reads it"}
    reasons = Counter(why for x in plan.instances.instances if x.name in names
                      for o, why in plan.reasons(x.name).items()
                      if o == x.output(node) and why)
    why = next(iter(reasons), "fits until it has been read")
    rest = sum(reasons.values()) - 1
    return {"name": node, "lives": dict(found), "why": why + (
        f" (and {rest} instances like it)" if rest > 0 else "")}


def _runs(places: Sequence[int]) -> list[list[int]]:
    """[first, last] of runs of neighbouring places."""
    out: list[list[int]] = []
    for i in places:
        if out and out[-1][1] == i - 1:
            out[-1][1] = i
        else:
            out.append([i, i])
    return out


def _lines(data: dict[str, Any]) -> Iterator[str]:
    order = data["order"]
    yield f"sub-graph instances (rules: {data['rules']})"
    yield f"  order: {order['how']}, at most {order['peak_bytes']} bytes of outputs live" + "".join(
        f"; {o['how']}: {o['peak_bytes']}" for o in order["instead_of"])
    for memory, most in data["most_bytes"].items():
        yield f"  {memory}: {data['held'][memory]} results, at most {most} bytes at once"
    for s in data["sub_graphs"]:
        yield f"{s['name']}: {len(s['nodes'])} nodes, {s['instances']} instances; {s['split']}"
        if s["why"]:
            yield f"  joined by {s['why']}"
        ran = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in s["run_at"][:8])
        yield f"  runs at {ran}" + (", .." if len(s["run_at"]) > 8 else "") + (
            f", after {', '.join(s['reads'])}" if s["reads"] else "")
        if s["weights_bytes"]:
            yield (f"  weights: {s['weights_bytes']} bytes read, {s['weights_fetched']} of them "
                   "from the outermost memory")
        for t in s["tensors"]:
            lives = ", ".join(f"{n} in {memory}" for memory, n in t["lives"].items())
            yield f"  {t['name']}: {lives}: {t['why']}"


__all__ = ["instance_report", "plan_data"]
