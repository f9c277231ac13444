"""Groups of kernels from the sub-graphs that the deciders of instances find by the paper's rules.

A sub-graph becomes one kernel where a work item of it fits into scratch, else as few as do, cut at
its nodes in order; its tensors in between stay in a worker's scratch or in the cluster's memory.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from aotc.errors import UnsupportedError
from aotc.ir.program import Program, static_shape
from aotc.ir.schedule import Group
from aotc.sched.accelerator.instances.cluster import Cluster, ComputeUnit
from aotc.sched.accelerator.instances.decide_instances import decide_instances
from aotc.sched.accelerator.instances.from_program import from_program
from aotc.sched.accelerator.instances.grouping import PAPER, MergeRules
from aotc.sched.accelerator.instances.instance_plan import InstancePlan
from aotc.sched.accelerator.instances.instances import SubGraph
from aotc.sched.accelerator.places.choose_order import Instances
from aotc.sched.choose.connect import register_groups
from aotc.sched.judge.judge import Judge
from aotc.sched.model.stages import find_call
from aotc.sched.model.tilegraph import merge_groups, order_groups
from aotc.target.base import Machine, Target


@dataclass(frozen=True)
class InstanceGroups:
    """Groups in order, the temps that the InstancePlan has in the outermost memory, which a
    cluster's has no room for, and its instances as they run."""

    groups: tuple[Group, ...]
    outside: frozenset[str]
    instances: Instances = ()


def instance_groups(program: Program, target: Target) -> InstanceGroups:
    """The InstanceGroups of a Program by the paper's rules alone.  UnsupportedError on a machine
    whose clusters have no memory of their own."""
    if not target.machine.stores:
        raise UnsupportedError(f"connect graphturbo: {target.name} has no clusters with a memory "
                               "of their own; choose none, register or all")
    known = program.known("instance groups", target.name)
    if target.machine not in known:
        known[target.machine] = _found(program, target)
    found: InstanceGroups = known[target.machine]
    return found


def cluster_for(program: Program, machine: Machine) -> Cluster:
    """What the deciders of instances see of a machine: one cluster, or where its clusters all have
    as large a part of the batch, all of them as one."""
    shapes = [static_shape(program.shape(b)) for b in program.outputs]
    together = machine.clusters if all(
        s and s[0] % machine.clusters == 0 for s in shapes) else 1
    store = machine.stores[0]
    outer = (replace(store, capacity=store.capacity * together,
                     bandwidth=store.bandwidth * together), machine.memory)
    return Cluster(machine.near, outer, machine.cores * together, machine.clusters // together,
                   (ComputeUnit("core", machine.flops),), ("outer", "inner"),
                   launch=machine.launch)


def target_for_tiles(program: Program, target: Target) -> Target:
    """The target that tiles of the groups are chosen for: with the workers of as many clusters as
    the InstancePlan is for."""
    workers = cluster_for(program, target.machine).cores
    return replace(target, machine=replace(target.machine, workers=workers))


def _found(program: Program, target: Target) -> InstanceGroups:
    start = register_groups(program)
    graph = from_program(program, groups=start)
    if not graph.computed:
        return InstanceGroups(start, frozenset())
    plan = decide_instances(graph, cluster_for(program, target.machine), MergeRules(PAPER))
    owner = {o: g for g in start for c in g.computes for o in program.producer[c].outs}
    judge = Judge(program, target_for_tiles(program, target))
    groups: list[Group] = []
    taken: set[str] = set()
    kernels: dict[str, list[Group]] = {}
    for s in plan.subgraphs:
        mine = dict.fromkeys(owner[m].name for m in s.members)
        parts = [g for g in start if g.name in mine and g.name not in taken]
        taken |= set(mine)
        kernels[s.name] = _kernels(program, judge, target.machine, parts, s)
        groups += kernels[s.name]
    groups += [g for g in start if g.name not in taken]
    found = tuple(replace(g, name=f"g{i:03d}") for i, g in enumerate(order_groups(program, groups)))
    called = {g.computes: g.name for g in found}
    names = {s: tuple(called[g.computes] for g in own) for s, own in kernels.items()}
    count = Counter(x.subgraph for x in plan.instances.instances)
    at = [plan.instances.instance[x] for x in plan.order]
    return InstanceGroups(found, _outside(plan), tuple(
        (names[x.subgraph], count[x.subgraph]) for x in at))


def _kernels(program: Program, judge: Judge, machine: Machine, parts: Sequence[Group],
             s: SubGraph) -> list[Group]:
    """The kernels of a sub-graph of ``parts`` in order: each as long as its work items fit."""
    out: list[Group] = []
    for g in parts:
        alone = not out or any(find_call(program, x) is not None for x in (out[-1], g))
        both = None if alone else merge_groups(program, out[-1], g, machine.homes[0].name)
        if both is not None and judge.verdict(both).legal:
            out[-1] = both
        else:
            out.append(g)
    why = f"sub-graph {s.name} of {len(s.members)} nodes, {s.split}"
    return [replace(judge.finished(g), why=why) if any(
        lv != "register" for lv in g.connect.values()) else g for g in out]


def _outside(plan: InstancePlan) -> frozenset[str]:
    """Tensors that some instance stores in the outermost memory, the caller's apart."""
    outermost = max(plan.homes.level.values(), default=0)
    part = {x.output(o): o for x in plan.instances.instances
            for o in (plan.subgraph[x.subgraph].out, *(o for o, _ in x.more))}
    return frozenset(part[x] for x, level in plan.homes.level.items()
                     if level == outermost >= 2 and not plan.graph.node[part[x]].output)


__all__ = ["InstanceGroups", "cluster_for", "instance_groups", "target_for_tiles"]
