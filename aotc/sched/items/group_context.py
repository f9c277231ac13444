"""A group opened: its stages, the box of each in a work item, and the places of what they hand each
other."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from aotc.ir.dtypes import DTYPES
from aotc.ir.kernel.plan_stages import Bindings
from aotc.ir.program import Program
from aotc.ir.schedule import APART, REGISTER, SHARED, Group, Schedule
from aotc.sched.items.context import Context
from aotc.sched.memory.scratch import round_up_bytes, scratch_elements
from aotc.sched.model.box_end_names import name_bounds
from aotc.sched.model.boxes import AnchorTile, Box, tile_anchor
from aotc.sched.model.slide import Boxes, step_boxes
from aotc.sched.model.stages import Stage, group_stages
from aotc.sched.model.tilegraph import Life, best_fit, best_fit_places
from aotc.sched.rows.placed_rows import find_placed
from aotc.target.base import Target


@dataclass(frozen=True)
class Opened:
    """A group's stages and tile; ``step``: the boxes of one step; ``boxes``: the same with the
    names that ``lets`` binds; ``ctx`` with scratch for what stages hand each other."""

    ctx: Context
    stages: tuple[Stage, ...]
    tile: AnchorTile
    step: Boxes
    lets: Bindings
    boxes: dict[str, Box]


def open_group(program: Program, schedule: Schedule, target: Target, group: Group) -> Opened:
    """A group of computes, about to be lowered, its scratch as it says: one behind the other where
    it says nothing.  ScheduleError where its boxes cannot be formed or scratch that is no cache has
    no bound."""
    stages = tuple(group_stages(program, group))
    anchor = next(s for s in stages if group.anchor in s.computes)
    tile = tile_anchor(anchor, group)
    step = step_boxes(program, group, stages, tile)
    lets, boxes, local = name_bounds(program, stages, step.boxes, step.places)
    ctx = Context(program, schedule, target, group, local, [],
                  values=dict(tile.let + tile.step_let + step.lets + lets))
    made = {o.buffer: i for i, s in enumerate(stages) for o in s.outputs}
    layouts = {b for b in local if schedule.layouts.get(b)}
    ctx.placed |= {b: p for b, p in find_placed(program, target, group, stages, local).items()
                   if b not in layouts and p.elements(local[b]) is not None}
    for b in sorted(ctx.local, key=made.__getitem__):
        ctx.add_local(b, scratch_elements(local[b], ctx.placed.get(b)))
    at = Opened(ctx, stages, tile, step, lets, boxes)
    if group.scratch == SHARED:
        _share_places(at)
    return at


def opened_as_chosen(program: Program, schedule: Schedule, target: Target, group: Group) -> Opened:
    """The same, for deciders: scratch of a group that says nothing as ``choose_places`` will."""
    at = open_group(program, schedule, target, group)
    if not group.scratch and _usual_places(at) == SHARED:
        _share_places(at)
    return at


def choose_places(program: Program, schedule: Schedule, target: Target, group: Group) -> Group:
    """A group of computes that says where its scratch lies, if it has said nothing and sharing
    places would save any.  ScheduleError as of ``open_group``."""
    inside = sum(level != REGISTER for level in group.connect.values())
    if group.scratch or inside < 2:
        return group
    found = _usual_places(open_group(program, schedule, target, group))
    return replace(group, scratch=found) if found else group


def _usual_places(at: Opened) -> str:
    """Places of the scratch of a group that has just been opened: shared if that saves enough to
    matter, "" if it saves nothing, or depends on extents."""
    lives = _lives(at)
    saved = sum(size for size, _, _ in lives) - best_fit(lives) if lives else 0
    return "" if not saved else SHARED if saved >= at.ctx.target.tuning.share_bytes else APART


def _share_places(at: Opened) -> None:
    """Moves scratch of a group that has just been opened to places that are free by then."""
    ctx, lives = at.ctx, _lives(at)
    assert lives is not None, ctx.group.name  # ``check_group`` refuses scratch without a bound
    ctx.scratch[:] = [replace(s, offset=place)
                      for s, place in zip(ctx.scratch, best_fit_places(lives))]
    ctx.slab = best_fit(lives)


def _lives(at: Opened) -> list[Life] | None:
    """(bytes, first, last stage that uses it) of all scratch of a group that has just been opened,
    that is all the time where it holds something from one step to the next; None if some has no
    constant bound."""
    made = {o.buffer: i for i, s in enumerate(at.stages) for o in s.outputs}
    read = {n.buffer: i for i, s in enumerate(at.stages) for n in s.loads()}
    kept: Collection[str] = {k.buffer for found in at.step.kept.values() for k in found}
    lives = []
    for s in at.ctx.scratch:
        if not isinstance(s.elements, int):
            return None
        ends = (0, len(at.stages)) if s.name in kept else (made[s.name], read[s.name])
        lives.append((round_up_bytes(s.elements * DTYPES[s.dtype].size), *ends))
    return lives


__all__ = ["Opened", "choose_places", "open_group", "opened_as_chosen"]
