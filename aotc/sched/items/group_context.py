"""A group opened: its stages, the box of each in a work item, and the places of what they hand each
other."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from aotc.ir.kernel.plan_stages import Bindings
from aotc.ir.program import Program
from aotc.ir.schedule import Group, Schedule
from aotc.sched.items.context import Context
from aotc.sched.memory.scratch import elements
from aotc.sched.model.box_end_names import name_bounds
from aotc.sched.model.boxes import Box, Tile, tile_anchor
from aotc.sched.model.slide import Boxes, step_boxes
from aotc.sched.model.stages import Stage, group_stages
from aotc.sched.model.tilegraph import best_fit, best_fit_places
from aotc.target.base import Target


@dataclass(frozen=True)
class Opened:
    """A group's stages and tile; ``step``: the boxes of one step; ``boxes``: the same with the
    names that ``lets`` binds; ``ctx`` with scratch for what stages hand each other."""

    ctx: Context
    stages: tuple[Stage, ...]
    tile: Tile
    step: Boxes
    lets: Bindings
    boxes: dict[str, Box]


def opened(program: Program, schedule: Schedule, target: Target, group: Group) -> Opened:
    """A group of computes, about to be lowered.  ScheduleError where its boxes cannot be formed or
    scratch that is no cache has no bound."""
    stages = tuple(group_stages(program, group))
    anchor = next(s for s in stages if group.anchor in s.computes)
    tile = tile_anchor(anchor, group)
    step = step_boxes(program, group, stages, tile)
    lets, boxes, local = name_bounds(program, stages, step.boxes, step.places)
    ctx = Context(program, schedule, target, group, local, [],
                  values=dict(tile.let + tile.step_let + step.lets + lets))
    _place_scratch(ctx, stages, {k.buffer for found in step.kept.values() for k in found})
    return Opened(ctx, stages, tile, step, lets, boxes)


def _place_scratch(ctx: Context, stages: Sequence[Stage], kept: Collection[str]) -> None:
    """Scratch buffers one behind the other; in places that are free by then, if that saves enough
    to matter.  kept: buffers that hold something from one step to the next."""
    made = {o.buffer: i for i, s in enumerate(stages) for o in s.outputs}
    for b in sorted(ctx.local, key=made.__getitem__):
        ctx.add_local(b, elements(ctx.local[b]))
    if not isinstance(ctx.slab, int):
        return  # which of them share a place would depend on the extents
    offsets = [s.offset for s in ctx.scratch if isinstance(s.offset, int)]
    ends = [*offsets[1:], ctx.slab]
    read = {n.buffer: i for i, s in enumerate(stages) for n in s.loads()}
    sizes = [(end - at, *((0, len(stages)) if s.name in kept else
                          (made[s.name], read[s.name])))
             for s, at, end in zip(ctx.scratch, offsets, ends)]
    end = best_fit(sizes)
    if ctx.slab - end >= ctx.target.tuning.share_bytes:
        ctx.scratch[:] = [replace(s, offset=at)
                          for s, at in zip(ctx.scratch, best_fit_places(sizes))]
        ctx.slab = end


__all__ = ["Opened", "opened"]
