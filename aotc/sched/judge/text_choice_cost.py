"""What a kernel costs more, or less, for what its Schedule says of how statements are written."""

from collections.abc import Mapping
from dataclasses import replace

from aotc.ir.kernel.plan_kernels import LoweredKernel
from aotc.ir.kernel.plan_stages import Contract, Nest, Stage, points
from aotc.ir.layout import LayoutJson
from aotc.ir.program import Program
from aotc.ir.schedule import Group, Schedule
from aotc.sched.cost.block_cost import order_cost, product_step
from aotc.sched.cost.step_cost import multiply_adds, reread_cost, unroll_cost
from aotc.sched.lowering.operand_ways import Way
from aotc.sched.model.size import estimate
from aotc.sched.text_choices.block_writing import team_cost, way_cost
from aotc.sched.text_choices.choose_writing import chosen_kernel
from aotc.target.base import Target


def written_seconds(program: Program, target: Target, group: Group,
                    layouts: Mapping[str, LayoutJson]) -> float:
    """Seconds that a group takes beside those of the choices that deciders make, 0 where it says
    none of its own; ``program`` has the Schedule's rewrites.  layouts: of stored buffers.  Choices
    that the cost has no term for count nothing."""
    if not any(c.text.said for c in group.choices.values()):
        return 0.0
    schedule = Schedule(target.name, (group,), dict(layouts))
    said, usual = (chosen_kernel(program, schedule, target, g) for g in (group, group.bare))
    if [s.writing for s in _open(said)] == [s.writing for s in _open(usual)]:
        return 0.0
    return _seconds(said, target) - _seconds(usual, target)


def _open(kernel: LoweredKernel) -> list[Contract | Nest]:
    """The stages of a kernel that have choices."""
    return [s for s in kernel.stages if isinstance(s, (Contract, Nest))]


def copy_said(group: Group, other: Group) -> Group:
    """A group with the choices of how statements are written that another one of its stages has."""
    return replace(group, threads=other.threads, scratch=other.scratch, choices={
        s: c.with_said(other.choice(s).text.said) for s, c in group.choices.items()})


def _seconds(kernel: LoweredKernel, target: Target) -> float:
    """What the choices of a kernel's stages take, of the terms that the cost has for them."""
    machine = target.machine
    items = -(-estimate(kernel.tiles) // machine.workers)
    if kernel.steps is not None:
        items *= estimate(kernel.steps.count)
    return items * sum(_block(s, kernel, target) if kernel.threads else _alone(s, target)
                       for s in kernel.stages)


def _alone(stage: Stage, target: Target) -> float:
    """Of a stage of one thread's work item: multiply-adds of its tiles and what their steps take
    beside."""
    if not isinstance(stage, Contract):
        return 0.0
    tuning = target.tuning
    chosen = stage.writing
    share = 1.0 if chosen.unroll is None else unroll_cost(chosen.unroll, tuning)
    if chosen.reread is not None:
        share += reread_cost(stage.micro.mr, stage.micro.nv, target.vectors.registers, min(
            stage.micro.nv, chosen.reread), tuning) / (stage.micro.mr * stage.micro.nv)
    return multiply_adds(target.machine, _terms(stage) * (points(
        (*stage.outer, *stage.m, stage.n)) or 1), share)


def _block(stage: Stage, kernel: LoweredKernel, target: Target) -> float:
    """Of a stage that the threads of a block share."""
    if isinstance(stage, Nest) and stage.folds_lanes:
        return team_cost(stage, kernel.threads, target, stage.team)
    if not isinstance(stage, Contract):
        return 0.0
    said, machine = stage.writing.said, target.machine
    row, nr = target.product_row(stage.row), stage.micro.nr
    rows, columns = points(stage.own_rows) or stage.micro.mr, points((stage.n,)) or nr
    seconds = order_cost(machine, (rows, columns, _terms(stage)), stage.micro.mr, nr,
                         str(said["order"]))
    if row.staging is not None:
        tiles = -(-rows // stage.micro.mr) * -(-columns // nr)
        steps = tiles * -(-_terms(stage) // row.steps)
        seconds += steps * product_step(machine, row, target.lanes, int(said["stages"]), sum(
            way_cost(stage, which, _way(said, which), target) for which in "ab"))
    return seconds


def _way(said: Mapping[str, int | str], which: str) -> Way:
    """How operand ``which`` of a product is fetched, by its choices."""
    return Way(str(said[f"{which}_fetch"]), int(said[f"{which}_width"]), str(
        said[f"{which}_along"]))


def _terms(c: Contract) -> int:
    """Terms of a Contract's sums, those of symbols as usual."""
    n = 1
    for r in c.sums:
        n *= estimate(r.axis.extent)
    return n


__all__ = ["copy_said", "written_seconds"]
