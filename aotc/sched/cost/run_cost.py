"""What a group costs whose work items run along an axis in steps, with stages that slide."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from aotc.sched.cost.group_cost import Aligned, Cost, Free, RunSteps, group_cost
from aotc.sched.model.group_numbers import Boxes, GroupModel, Widths
from aotc.target.base import Machine


@dataclass(frozen=True)
class Sliding:
    """Along an axis: numbers of the stages that are asked for more than is new in a step, what
    every stage computes in it, bytes live at once, and bytes that the stages keep per step."""

    stages: tuple[int, ...]
    fresh: Boxes
    live: int
    again: int


def run_cost(model: GroupModel, machine: Machine, outer: Sequence[Widths], tile: Widths,
             run: Mapping[str, int], aligned: Sequence[Aligned], free: Free) -> Cost | None:
    """Cost of a group as ``best_run`` sees it: ``run`` as in a Group, {axis: extent}, in steps of
    ``tile``; None if no stage can slide along it, which leaves every step a tile like any other.
    outer: tiles of the memories outside that of a work item."""
    (name, extent), = run.items()
    axis = model.axes.index(name)
    found = find_sliding(model, tile, axis)
    return None if found is None else steps_cost(
        model, machine, outer, tile, axis, extent, found, aligned, free)


def steps_cost(model: GroupModel, machine: Machine, outer: Sequence[Widths], tile: Widths,
               axis: int, extent: int, found: Sliding, aligned: Sequence[Aligned],
               free: Free) -> Cost:
    """Cost of a group that runs along an axis (its number), ``extent`` per work item, in steps of
    ``tile``; found: what slides so."""
    step, extent = tile[axis], min(extent, model.extents[axis])
    item = tile[:axis] + (extent,) + tile[axis + 1:]
    moved = 2 * found.again * (-(-extent // step) - 1) * model.tiles(item)
    tiles = tuple(tuple(map(max, t, item)) for t in outer) + (item,)
    again = _read_again(model, machine.room(machine.near), tile, axis, found.live,
                        free[len(outer)] if len(outer) < len(free) else ())
    return group_cost(model, machine, tiles, 1, aligned, free, RunSteps(
        tile, found.fresh, found.live, moved,
        again * (-(-extent // step) - 1) * model.tiles(item)))


def _read_again(model: GroupModel, room: float, tile: Widths, axis: int, live: int,
                free: Collection[str]) -> int:
    """Bytes that every step reads like the one before (weights), if what holds a work item has no
    ``room`` for them beside what is live; 0 if they stay there."""
    boxes = model.boxes(tile), model.boxes(tile[:axis] + (2 * tile[axis],) + tile[axis + 1:])
    sizes: dict[str, int] = {}
    for s, (one, _), (two, _) in zip(model.stages, *boxes):
        for a in s.reads:
            if a.buffer not in model.scratch and a.buffer not in free:
                n = a.bytes(one)
                sizes[a.buffer] = max(sizes.get(a.buffer, 0), n if n == a.bytes(two) else 0)
    total = sum(sizes.values())
    return total if total + live > room else 0


def fresh_boxes(model: GroupModel, tile: Widths, axis: int) -> Boxes | None:
    """Per stage (whole, sliced) widths of what one step more computes; None if not every stage
    moves on along exactly one axis of its own, further than one step does."""
    one = model.boxes(tile)
    two = model.boxes(tile[:axis] + (2 * tile[axis],) + tile[axis + 1:])
    out: Boxes = []
    for s, (a, _), (b, _) in zip(model.stages, one, two):
        grown = [p for p in range(s.rank) if b[p] != a[p]]
        if len(grown) != 1 or b[grown[0]] < a[grown[0]]:
            return None
        new = tuple([b[p] - a[p] if p in grown else n for p, n in enumerate(a)])
        out.append((new, new))
    return out


def find_sliding(model: GroupModel, tile: Widths, axis: int) -> Sliding | None:
    """The Sliding of a group in steps of ``tile`` along an axis; None if nothing slides, or not
    everything moves."""
    fresh, boxes = fresh_boxes(model, tile, axis), model.boxes(tile)
    if fresh is None:
        return None
    found: list[int] = []
    again, read = 0, dict[str, int]()
    for s, (new, _) in zip(model.stages, fresh):
        for a in s.reads:
            read[a.buffer] = max(read.get(a.buffer, 0), a.bytes(new))
    for i, (s, (held, _), (new, _)) in enumerate(zip(model.stages, boxes, fresh)):
        if i != model.anchor and any(w.bytes(held) > w.bytes(new) for w in s.writes):
            found.append(i)
            again += sum(max(0, read.get(w.buffer, 0) - w.bytes(new)) for w in s.writes)
    return Sliding(tuple(found), fresh, _live(model, tile, boxes, found), again) \
        if found else None


def _live(model: GroupModel, tile: Widths, boxes: Boxes, slide: Collection[int]) -> int:
    """Bytes live at once in a step: what slides is there all the time."""
    always = {w.buffer for i in slide for w in model.stages[i].writes}
    live = [(n, 0, len(boxes)) if b in always else (n, lo, hi)
            for b, n, lo, hi in model.lifetimes(tile, boxes)]
    return max(sum(n for n, lo, hi in live if lo <= i <= hi) for i in range(len(boxes)))


__all__ = ["Sliding", "fresh_boxes", "run_cost", "find_sliding", "steps_cost"]
