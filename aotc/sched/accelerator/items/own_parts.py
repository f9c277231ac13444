"""Which part of a tensor the work items of a cluster touch.

Work items are dealt to clusters as equal runs.  Where the outermost axis that is cut runs along the
outermost dimension of a tensor, and every item touches just its own part of that, each cluster
touches an equal part of the tensor alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from aotc.ir.access import dim_order, layout_from_json
from aotc.ir.expr import Axis, Const
from aotc.ir.program import Program, static_shape
from aotc.ir.schedule import Group, Schedule
from aotc.ir.simplify import same, simplify, upper
from aotc.sched.accelerator.items.item_boxes import Copied, item_boxes
from aotc.sched.items.open_group import Opened
from aotc.target.base import Machine


@dataclass(frozen=True)
class Touched:
    """What the work items of a group copy, {buffer: its box}, and the axis that cuts them first:
    (axis, extent, tile), None if none is cut."""

    at: Opened
    boxes: Mapping[str, Copied]
    outermost: tuple[Axis, int, int] | None


def touched_by(at: Opened) -> Touched:
    """What a group touches that has been opened."""
    group, stages = at.ctx.group, at.stages
    anchor = next(s for s in stages if group.anchor in s.computes)
    axis = {a.name: a for a in anchor.axes}
    cut = [axis[n] for n in (*group.parallel, *(t for t in group.tile if t not in group.parallel))
           if group.tile[n] < (upper(axis[n].extent) or 1 << 62)]
    first = cut[0] if cut and cut[0].name not in group.run else None
    outermost = None
    if first is not None and isinstance(first.extent, Const):
        outermost = first, first.extent.value, group.tile[first.name]
    near = {b for b, m in group.copies.items() if m == at.ctx.target.machine.scratch}
    return Touched(at, {c.buffer: c for c in item_boxes(at) if c.buffer in near}, outermost)


def has_own_part(program: Program, found: Touched, buffer: str, parts: int) -> bool:
    """True if work items that are dealt to ``parts`` clusters touch a buffer, by copies alone, such
    that each cluster needs only its own part."""
    box = found.boxes.get(buffer)
    shape = static_shape(program.shape(buffer))
    if box is None or shape is None:
        return False
    if parts == 1:
        return True
    layout = layout_from_json(found.at.ctx.schedule.layouts.get(buffer))
    order = dim_order(layout, len(shape))
    if order is None or not order or found.outermost is None:
        return False
    axis, extent, tile = found.outermost
    d = next((d for d in order if shape[d] > 1), order[0])  # those in front of it have one index
    if shape[d] != extent or extent % parts or extent // parts % tile:
        return False
    lo, last = found.at.tile.box[axis]
    return same(box.dims[d][0], lo) and same(box.last[d], last)


def item_count(found: Touched) -> int:
    """Work items of a group; 0 if their number is not known."""
    count = simplify(found.at.tile.count)
    return count.value if isinstance(count, Const) else 0


def readers_of(program: Program, schedule: Schedule, b: str) -> list[int]:
    """Numbers of the groups that read a tensor."""
    return [i for i, g in enumerate(schedule.groups)
            if any(b in program.producer[c].inputs for c in g.computes)]


def dealt(machine: Machine, group: Group) -> int:
    """Clusters that a group's work items are dealt to."""
    return group.clusters or machine.clusters


__all__ = ["Touched", "dealt", "has_own_part", "item_count", "readers_of", "touched_by"]
