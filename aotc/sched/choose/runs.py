"""Which groups run along an axis, with stages that slide: chosen by cost, like every tile.

A halo that is computed anew in every tile asks for large tiles, whose scratch no near cache holds.
Where a work item runs along the axis of the halo in small steps, and stages keep what the next step
reads again, arithmetic and traffic are those of the whole work item, and scratch that of a step.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from operator import ge

from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.sched.choose.gensor import ladder
from aotc.sched.cost.group_cost import Aligned, Cost, Free
from aotc.sched.cost.run_cost import find_sliding, steps_cost
from aotc.sched.model.group_numbers import GroupModel, Widths
from aotc.sched.model.stages import group_stages
from aotc.target.base import Machine

# (axis, its extent in a work item), numbers of the stages that slide
NamedRun = tuple[tuple[str, int], tuple[int, ...]]
PARTS = (1, 2, 4)  # work items per worker along the axis of a run


@dataclass(frozen=True)
class Run:
    """``axis`` (its name) is computed ``extent`` per work item, in steps of ``tile`` (widths along
    the model's axes); ``slide``: numbers of the stages that keep rows; cost: as predicted."""

    axis: str
    extent: int
    tile: Widths
    slide: tuple[int, ...]
    cost: Cost


def best_run(model: GroupModel, machine: Machine, state: Sequence[Widths],
             aligned: Sequence[Aligned], free: Free, grains: Mapping[str, int],
             fits: Callable[[Run], bool] = lambda run: True) -> Run | None:
    """The Run of least predicted time among those that fit, of those that take as long one along
    the outermost axis; None if no stage would slide.

    state: tiles of the group without a run, the last one that of a work item; grains: {axis: extent
    that micro-kernel rows are made for}; fits: says no of a tile only if it does of larger ones."""
    *outer, tile = state
    found: list[Run] = []
    for a in range(model.rank):
        for others in dict.fromkeys((model.extents, tile)):
            for step in ladder(model.extents[a], grains.get(model.axes[a], 1)):
                at = others[:a] + (step,) + others[a + 1:model.rank] + tile[model.rank:]
                if 2 * step > model.extents[a]:
                    break
                run = _along(model, machine, outer, at, a, aligned, free)
                found += [] if run is None else [run]
    beyond: list[Widths] = []
    alike = (1 + machine.tuning.slack) * min((r.cost.seconds for r in found), default=0.0)

    def rank(run: Run) -> tuple[int, float]:  # along the outermost axis: its steps are whole lines
        same = run.cost.seconds <= alike
        return model.axes.index(run.axis) if same else model.rank, run.cost.seconds

    for run in sorted(found, key=rank):
        if any(all(map(ge, run.tile, large)) for large in beyond):
            continue
        if fits(run):
            return run
        beyond.append(run.tile)
    return None


def _along(model: GroupModel, machine: Machine, outer: Sequence[Widths], tile: Widths, axis: int,
           aligned: Sequence[Aligned], free: Free) -> Run | None:
    """The best Run along an axis in steps of a tile; None if nothing slides, or if a stage does not
    move with the steps: it would be computed in each."""
    found = find_sliding(model, tile, axis)
    if found is None or found.live > machine.room(machine.near):
        return None
    step, whole, best = tile[axis], model.extents[axis], None
    others = prod(-(-n // w) for i, (n, w) in enumerate(zip(model.extents[:model.rank], tile))
                  if i != axis)
    for parts in PARTS:
        count = max(1, -(-parts * machine.workers // others))
        part = -(-whole // count)
        extent = -(-part // step) * step
        cost = steps_cost(model, machine, outer, tile, axis, extent, found, aligned, free)
        if best is None or cost.seconds < best.cost.seconds:
            best = Run(model.axes[axis], extent, tile, found.stages, cost)
    return best


def with_run(program: Program, group: Group, run: NamedRun | None) -> Group:
    """The Group with a run, as a Verdict has it: ((axis, extent), numbers of stages that slide)."""
    if not run:
        return group
    (axis, extent), slide = run
    stages = group_stages(program, group)
    return replace(group, run={axis: extent}).with_reuses({stages[i].name: "slide" for i in slide})


__all__ = ["Run", "best_run", "with_run"]
