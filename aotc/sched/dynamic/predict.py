"""Predicted seconds of a Schedule on a call, in the one currency of every decider."""

from collections.abc import Sequence

from aotc.ir.program import Compute, Program
from aotc.ir.schedule import Group, Schedule
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.choose.runs import run_cost
from aotc.sched.cost.group_cost import Aligned, group_cost, resident
from aotc.sched.lowering.lower_contract import factors_for
from aotc.sched.model.stages import Stage, group_stages
from aotc.sched.model.widths import group_model
from aotc.sched.within import within
from aotc.target.base import Target


def call_seconds(program: Program, schedule: Schedule, target: Target,
                 extents: dict[str, int]) -> float:
    """Seconds of a call with these extents of all symbols."""
    inside = within(program, {n: (v, v) for n, v in extents.items()})
    inside = apply_rewrites(inside, schedule.rewrites)
    free = resident(inside, target.machine)
    return sum(group_seconds(inside, g, target, free) for g in schedule.groups)


def group_seconds(program: Program, group: Group, target: Target,
                  free: Sequence[frozenset[str]] = ()) -> float:
    """Seconds of one group, whose tile and rows are decided.  Library kernels and data that no
    decision touches cost what starting them does.  free: as for ``group_cost``."""
    machine = target.machine
    steps = [program.producer[c] for c in group.computes]
    if not all(isinstance(s, Compute) for s in steps):
        return machine.launch
    stages, model = group_stages(program, group), group_model(program, group)
    item = model.variables(group.tile)
    aligned = tuple(_aligned(n, s, group, target) for n, s in enumerate(stages)
                    if target.row(group.ukernel[s.name]).category == "contraction")
    tiles = (model.extents, item)[-min(2, len(machine.levels) - 1):]
    run = run_cost(model, machine, tiles[:-1], item, group.run, aligned,
                   free) if group.run else None
    return (run or group_cost(model, machine, tiles, aligned=aligned, free=free)).seconds


def _aligned(number: int, s: Stage, g: Group, target: Target) -> Aligned:
    lanes = g.loops[s.name]["lanes"]
    f, row = factors_for(s, lanes), target.row(g.ukernel[s.name])
    assert f is not None, f"{s.name} is no contraction along {lanes}"
    place = {a.name: i for i, a in enumerate(s.axes)}
    return Aligned(number, tuple(place[a.name] for a in f.m), place[lanes], row.tile["mr"],
                   row.tile["nr"])


__all__ = ["call_seconds", "group_seconds"]
