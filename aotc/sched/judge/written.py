"""What a kernel costs more, or less, for what its Schedule says of how statements are written."""

from collections.abc import Mapping
from dataclasses import replace

from aotc.ir.layout import LayoutJson
from aotc.ir.plan import Contract, Kernel, Nest, Stage, points
from aotc.ir.program import Program
from aotc.ir.schedule import CHOICES, Group, Schedule
from aotc.sched.cost.block_cost import fold_cost, order_cost, product_step
from aotc.sched.cost.step_cost import multiply_adds, reread_cost, unroll_cost
from aotc.sched.expand.block_choices import ENDLESS, fetched_cost
from aotc.sched.expand.in_place import usual_steps
from aotc.sched.expand.making import Making
from aotc.sched.lowering.lower import lower_group
from aotc.sched.model.size import estimate
from aotc.target.base import Target


def written_seconds(program: Program, target: Target, group: Group,
                    layouts: Mapping[str, LayoutJson]) -> float:
    """Seconds that a group takes beside those of the choices that deciders make, 0 where it says
    none of its own; ``program`` has the Schedule's rewrites.  layouts: of stored buffers.  Choices
    that the cost has no term for count nothing."""
    if not any(k in CHOICES for c in group.loops.values() for k in c):
        return 0.0
    bare = replace(group, loops={s: {k: v for k, v in c.items() if k not in CHOICES}
                                 for s, c in group.loops.items()})
    said, usual = (_seconds(lower_group(program, Schedule(target.name, (g,), dict(layouts)), target,
                                        g, 0), target) for g in (group, bare))
    return said - usual


def saying(group: Group, other: Group) -> Group:
    """A group with the choices of how statements are written that another one of its stages has."""
    return replace(group, threads=other.threads, loops={s: {**c, **{
        k: v for k, v in other.loops.get(s, {}).items() if k in CHOICES}}
        for s, c in group.loops.items()})


def _seconds(kernel: Kernel, target: Target) -> float:
    """What the choices of a kernel's stages take, of the terms that the cost has for them."""
    machine = target.machine
    items = -(-estimate(kernel.tiles) // machine.workers)
    if kernel.steps is not None:
        items *= estimate(kernel.steps)
    return items * sum(_block(s, kernel, target) if kernel.threads else _alone(s, target)
                       for s in kernel.stages)


def _alone(stage: Stage, target: Target) -> float:
    """Of a stage of one thread's work item: multiply-adds of its tiles and what their steps take
    beside."""
    if not isinstance(stage, Contract):
        return 0.0
    tuning = target.tuning
    chosen = usual_steps(stage, Making(target.vectors, tuning, ())) | dict(stage.writing)
    share = unroll_cost(int(chosen["unroll"]), tuning) if "unroll" in chosen else 1.0
    if "reread" in chosen:
        share += reread_cost(stage.mr, stage.nv, target.vectors.registers, min(
            stage.nv, int(chosen["reread"])), tuning) / (stage.mr * stage.nv)
    return multiply_adds(target.machine, _terms(stage) * (points(
        (*stage.outer, *stage.m, stage.n)) or 1), share)


def _block(stage: Stage, kernel: Kernel, target: Target) -> float:
    """Of a stage that the threads of a block share."""
    if isinstance(stage, Nest) and stage.folds_lanes:
        return fold_cost(points(stage.ranges) or 1, points(stage.reduce) or ENDLESS,
                         kernel.threads, target.lanes, stage.team, target.tuning)
    if not isinstance(stage, Contract):
        return 0.0
    said, machine = dict(stage.writing), target.machine
    row, nr = target.row(stage.row), stage.nv * stage.lanes
    rows, columns = points(stage.m) or stage.mr, points((stage.n,)) or nr
    seconds = order_cost(machine, (rows, columns, _terms(stage)), stage.mr, nr, str(said["order"]))
    if "fetch" in row.tile:
        tiles = -(-rows // stage.mr) * -(-columns // nr)
        steps = tiles * -(-_terms(stage) // row.tile["bk"])
        seconds += steps * product_step(machine, row, target.lanes, int(said["stages"]), sum(
            fetched_cost(stage, which, row, kernel, target) for which in "ab"))
    return seconds


def _terms(c: Contract) -> int:
    """Terms of a Contract's sums, those of symbols as usual."""
    n = 1
    for r in (*c.slice_taps, *c.taps, c.k):
        n *= estimate(r.axis.extent)
    return n


__all__ = ["saying", "written_seconds"]
