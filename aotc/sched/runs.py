"""Which groups run along an axis, with stages that slide: chosen by cost, like every tile.

A halo that is computed anew in every tile asks for large tiles, whose scratch no near cache holds.
Where a work item runs along the axis of the halo in small steps, and stages keep what the next step
reads again, arithmetic and traffic are those of the whole work item, and scratch that of a step.
"""

from dataclasses import dataclass, replace
from math import prod

from aotc.sched.cost import Steps, group_cost
from aotc.sched.gensor import ladder
from aotc.sched.stages import group_stages

PARTS = (1, 2, 4)  # work items per worker along the axis of a run
# what a run takes over what is predicted: convolution chains in steps of 2 to 8 rows, whose stages
# are as many loops of a few microseconds
MARGIN = 1.03


@dataclass(frozen=True)
class Run:
    """``axis`` (its name) is computed ``extent`` per work item, in steps of ``tile`` (widths along
    the model's axes); ``slide``: numbers of the stages that keep rows; cost: as predicted."""

    axis: str
    extent: int
    tile: tuple
    slide: tuple
    cost: object


def best_run(model, machine, state, aligned, free, units):
    """The Run of least predicted time, None if no stage would slide.

    state: tiles of the group without a run, the last one that of a work item; units: {axis: extent
    that micro-kernel rows are made for}."""
    *outer, tile = state
    best = None
    for a in range(model.rank):
        for others in dict.fromkeys((model.extents, tile)):
            for step in ladder(model.extents[a], units.get(model.axes[a], 1)):
                at = others[:a] + (step,) + others[a + 1:model.rank] + tile[model.rank:]
                if 2 * step > model.extents[a]:
                    break
                found = _along(model, machine, outer, at, a, aligned, free)
                if found is not None and (best is None or found.cost.seconds < best.cost.seconds):
                    best = found
    return best


def _along(model, machine, outer, tile, axis, aligned, free):
    """The best Run along an axis in steps of a tile; None if nothing slides, or if a stage does not
    move with the steps: it would be computed in each."""
    fresh = fresh_boxes(model, tile, axis)
    if fresh is None:
        return None
    boxes = model.boxes(tile)
    slide, again = _sliding(model, boxes, fresh)
    live = _live(model, tile, boxes, slide)
    level = machine.levels[len(outer) + 1]
    if not slide or live > level.capacity * level.usable:
        return None
    step, whole, best = tile[axis], model.extents[axis], None
    others = prod(-(-n // w) for i, (n, w) in enumerate(zip(model.extents[:model.rank], tile))
                  if i != axis)
    for parts in PARTS:
        count = max(1, -(-parts * machine.workers // others))
        extent = -(-(-(-whole // count)) // step) * step
        item = tile[:axis] + (min(extent, whole),) + tile[axis + 1:]
        steps = -(-min(extent, whole) // step) - 1
        moved = 2 * again * steps * model.tiles(item)
        tiles = tuple(tuple(map(max, t, item)) for t in outer) + (item,)
        cost = group_cost(model, machine, tiles, 1, aligned, free,
                          Steps(tile, fresh, live, moved))
        cost = replace(cost, seconds=MARGIN * cost.seconds)
        if best is None or cost.seconds < best.cost.seconds:
            best = Run(model.axes[axis], extent, tile, slide, cost)
    return best


def fresh_boxes(model, tile, axis):
    """Per stage (whole, sliced) widths of what one step more computes; None if not every stage
    moves on along exactly one axis of its own."""
    one = model.boxes(tile)
    two = model.boxes(tile[:axis] + (2 * tile[axis],) + tile[axis + 1:])
    out = []
    for s, (a, _), (b, _) in zip(model.stages, one, two):
        grown = [p for p in range(s.rank) if b[p] != a[p]]
        if len(grown) != 1:
            return None
        new = [b[p] - a[p] if p in grown else n for p, n in enumerate(a)]
        out.append((new, new))
    return out


def _sliding(model, boxes, fresh):
    """(numbers of stages that are asked for more than is new, bytes of what they keep per step)."""
    found, kept, read = [], 0, {}
    for s, (new, _) in zip(model.stages, fresh):
        for a in s.reads:
            read[a.buffer] = max(read.get(a.buffer, 0), a.bytes(new))
    for i, (s, (held, _), (new, _)) in enumerate(zip(model.stages, boxes, fresh)):
        if i != model.anchor and any(w.bytes(held) > w.bytes(new) for w in s.writes):
            found.append(i)
            kept += sum(max(0, read.get(w.buffer, 0) - w.bytes(new)) for w in s.writes)
    return tuple(found), kept


def _live(model, tile, boxes, slide):
    """Bytes live at once in a step: what slides is there all the time."""
    always = {w.buffer for i in slide for w in model.stages[i].writes}
    live = [(n, 0, len(boxes)) if b in always else (n, lo, hi)
            for b, n, lo, hi in model.lifetimes(tile, boxes)]
    return max(sum(n for n, lo, hi in live if lo <= i <= hi) for i in range(len(boxes)))


def with_run(program, group, run):
    """The Group with a run, as a Verdict has it: ((axis, extent), numbers of stages that slide)."""
    if not run:
        return group
    (axis, extent), slide = run
    stages = group_stages(program, group)
    return replace(group, run={axis: extent}, reuse={stages[i].name: "slide" for i in slide})


__all__ = ["Run", "best_run", "fresh_boxes", "with_run"]
