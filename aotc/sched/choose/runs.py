"""Which groups run along an axis, with stages that slide: chosen by cost, like every tile.

A halo that is computed anew in every tile asks for large tiles, whose scratch no near cache holds.
Where a work item runs along the axis of the halo in small steps, and stages keep what the next step
reads again, arithmetic and traffic are those of the whole work item, and scratch that of a step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.sched.choose.gensor import ladder
from aotc.sched.cost.group_cost import Aligned, Cost, Free, Steps, group_cost
from aotc.sched.model.stages import group_stages
from aotc.sched.model.tile_model import Boxes, GroupModel, Widths
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
             aligned: Sequence[Aligned], free: Free, units: Mapping[str, int]) -> Run | None:
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
    found = _sliding(model, tile, axis)
    if found is None or found.live > machine.room(machine.near):
        return None
    step, whole, best = tile[axis], model.extents[axis], None
    others = prod(-(-n // w) for i, (n, w) in enumerate(zip(model.extents[:model.rank], tile))
                  if i != axis)
    for parts in PARTS:
        count = max(1, -(-parts * machine.workers // others))
        part = -(-whole // count)
        extent = -(-part // step) * step
        cost = _cost(model, machine, outer, tile, axis, extent, found, aligned, free)
        if best is None or cost.seconds < best.cost.seconds:
            best = Run(model.axes[axis], extent, tile, found.stages, cost)
    return best


def run_cost(model: GroupModel, machine: Machine, outer: Sequence[Widths], tile: Widths,
             run: Mapping[str, int], aligned: Sequence[Aligned], free: Free) -> Cost | None:
    """Cost of a group as ``best_run`` sees it: ``run`` as in a Group, {axis: extent}, in steps of
    ``tile``; None if no stage can slide along it, which leaves every step a tile like any other.
    outer: tiles of the memories outside that of a work item."""
    (name, extent), = run.items()
    axis = model.axes.index(name)
    found = _sliding(model, tile, axis)
    return None if found is None else _cost(model, machine, outer, tile, axis, extent, found,
                                            aligned, free)


def _cost(model, machine, outer, tile, axis, extent, found, aligned, free):
    step, extent = tile[axis], min(extent, model.extents[axis])
    item = tile[:axis] + (extent,) + tile[axis + 1:]
    moved = 2 * found.again * (-(-extent // step) - 1) * model.tiles(item)
    tiles = tuple(tuple(map(max, t, item)) for t in outer) + (item,)
    again = _read_again(model, machine.room(machine.near), tile, axis, found.live,
                        free[len(outer)] if len(outer) < len(free) else ())
    return group_cost(model, machine, tiles, 1, aligned, free, Steps(
        tile, found.fresh, found.live, moved,
        again * (-(-extent // step) - 1) * model.tiles(item)))


def _read_again(model, room, tile, axis, live, free):
    """Bytes that every step reads like the one before (weights), if what holds a work item has no
    ``room`` for them beside what is live; 0 if they stay there."""
    boxes = model.boxes(tile), model.boxes(tile[:axis] + (2 * tile[axis],) + tile[axis + 1:])
    sizes = {}
    for s, (one, _), (two, _) in zip(model.stages, *boxes):
        for a in s.reads:
            if a.buffer not in model.scratch and a.buffer not in free:
                n = a.bytes(one)
                sizes[a.buffer] = max(sizes.get(a.buffer, 0), n if n == a.bytes(two) else 0)
    total = sum(sizes.values())
    return total if total + live > room else 0


def fresh_boxes(model: GroupModel, tile: Widths, axis: int) -> Boxes | None:
    """Per stage (whole, sliced) widths of what one step more computes; None if not every stage
    moves on along exactly one axis of its own."""
    one = model.boxes(tile)
    two = model.boxes(tile[:axis] + (2 * tile[axis],) + tile[axis + 1:])
    out: Boxes = []
    for s, (a, _), (b, _) in zip(model.stages, one, two):
        grown = [p for p in range(s.rank) if b[p] != a[p]]
        if len(grown) != 1:
            return None
        new = tuple([b[p] - a[p] if p in grown else n for p, n in enumerate(a)])
        out.append((new, new))
    return out


@dataclass(frozen=True)
class _Sliding:
    """Along an axis: numbers of the stages that are asked for more than is new in a step, what
    every stage computes in it, bytes live at once, and bytes that the stages keep per step."""

    stages: tuple[int, ...]
    fresh: Boxes
    live: int
    again: int


def _sliding(model, tile, axis):
    """The _Sliding of a group along an axis; None if nothing slides, or not everything moves."""
    fresh, boxes = fresh_boxes(model, tile, axis), model.boxes(tile)
    if fresh is None:
        return None
    found, again, read = [], 0, {}
    for s, (new, _) in zip(model.stages, fresh):
        for a in s.reads:
            read[a.buffer] = max(read.get(a.buffer, 0), a.bytes(new))
    for i, (s, (held, _), (new, _)) in enumerate(zip(model.stages, boxes, fresh)):
        if i != model.anchor and any(w.bytes(held) > w.bytes(new) for w in s.writes):
            found.append(i)
            again += sum(max(0, read.get(w.buffer, 0) - w.bytes(new)) for w in s.writes)
    return _Sliding(tuple(found), fresh, _live(model, tile, boxes, found), again) \
        if found else None


def _live(model, tile, boxes, slide):
    """Bytes live at once in a step: what slides is there all the time."""
    always = {w.buffer for i in slide for w in model.stages[i].writes}
    live = [(n, 0, len(boxes)) if b in always else (n, lo, hi)
            for b, n, lo, hi in model.lifetimes(tile, boxes)]
    return max(sum(n for n, lo, hi in live if lo <= i <= hi) for i in range(len(boxes)))


def with_run(program: Program, group: Group, run: NamedRun | None) -> Group:
    """The Group with a run, as a Verdict has it: ((axis, extent), numbers of stages that slide)."""
    if not run:
        return group
    (axis, extent), slide = run
    stages = group_stages(program, group)
    return replace(group, run={axis: extent}, reuse={stages[i].name: "slide" for i in slide})


__all__ = ["Run", "best_run", "fresh_boxes", "run_cost", "with_run"]
