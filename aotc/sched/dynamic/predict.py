"""Predicted seconds of a Schedule on a call, in the one currency of every decider."""

from collections.abc import Mapping, Sequence

from aotc.ir.category import BF16_PRODUCT, factor_pairs
from aotc.ir.program import Compute, Program
from aotc.ir.schedule import Group, Schedule
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.choose.runs import run_cost
from aotc.sched.cost.group_cost import Aligned, Cost, Free, group_cost, resident
from aotc.sched.lowering.lower_contract import factors_for
from aotc.sched.model.stages import Stage, group_stages
from aotc.sched.model.tile_model import GroupModel
from aotc.sched.model.widths import group_model
from aotc.sched.within import within
from aotc.target.base import Target


def call_seconds(program: Program, schedule: Schedule, target: Target,
                 extents: Mapping[str, int]) -> float:
    """Seconds of a call with these extents of all symbols.  Groups that no decision touches, such
    as library kernels, count what starting them takes: they are the same in all Schedules."""
    return sum(group_seconds(program, schedule, target, extents).values())


def group_seconds(program: Program, schedule: Schedule, target: Target,
                  extents: Mapping[str, int]) -> dict[str, float]:
    """The same by group."""
    inside = within(program, {n: (v, v) for n, v in extents.items()})
    inside = apply_rewrites(inside, schedule.rewrites)
    free, found = resident(inside, target.machine), {}
    for g in schedule.groups:
        if not all(isinstance(inside.producer[c], Compute) for c in g.computes):
            found[g.name] = target.machine.launch
            continue
        stages = group_stages(inside, g)
        model = group_model(inside, g, tuning=target.tuning)
        found[g.name] = decided_cost(model, stages, g, target, free).seconds
    return found


def decided_cost(model: GroupModel, stages: Sequence[Stage], group: Group, target: Target,
                 free: Free = ()) -> Cost:
    """The Cost of a group whose tile, run and rows are decided.  free: as for ``group_cost``."""
    machine, item = target.machine, model.variables(group.tile)
    aligned = tuple(_aligned(n, s, group, target) for n, s in enumerate(stages)
                    if target.row(group.ukernel[s.name]).category == "contraction"
                    or target.row(group.ukernel[s.name]).dtypes == BF16_PRODUCT)
    tiles = (model.extents,) * (machine.depth - 1) + (item,)
    run = run_cost(model, machine, tiles[:-1], item, group.run, aligned,
                   free) if group.run else None
    return run or group_cost(model, machine, tiles, aligned=aligned, free=free)


def _aligned(number: int, s: Stage, g: Group, target: Target) -> Aligned:
    lanes = g.loops[s.name]["lanes"]
    row = target.row(g.ukernel[s.name])
    narrow = row.dtypes == BF16_PRODUCT
    f = next(iter(factor_pairs(s.axes, s.raxes, s.fold, s.body)), None) if narrow else (
        factors_for(s, lanes))
    assert f is not None, f"{s.name} is no contraction along {lanes}"
    place = {a.name: i for i, a in enumerate(s.axes)}
    return Aligned(number, tuple(place[a.name] for a in f.m), place[lanes], row.tile["mr"],
                   row.tile["nr"], target.tuning.narrow_rate if narrow else 1.0)


__all__ = ["call_seconds", "decided_cost", "group_seconds"]
