"""Which extents of axes a tile may have, as a Judge tries them."""

from aotc.ir.schedule import Group
from aotc.sched.model.group_numbers import GroupModel, Widths
from aotc.target.base import Target

Fixed = dict[str, Widths]  # axes of an anchor, or sums of stages -> the extents to try


def blocked_axes(model: GroupModel, target: Target, group: Group) -> Fixed:
    """{axis: (its extent,)} of the anchor's axes along which a window computes neighbours together:
    cut, every tile has edges, where it computes them one by one.  So of those that cut an axis over
    whose digits the loops of a stage run."""
    whole = model.boxes(model.extents)
    places = [(i, s.axes.index(group.choices[s.name].block)) for i, s in enumerate(model.stages)
              if group.choice(s.name).block
              and target.row(group.choices[s.name].row).category == "window"]
    places += [(i, s.axes.index(group.choices[s.name].digits)) for i, s in enumerate(model.stages)
               if group.choice(s.name).digits]
    out: Fixed = {}
    for d, (a, n) in enumerate(zip(model.axes[:model.rank], model.extents)):
        boxes = model.boxes(model.extents[:d] + (1,) + model.extents[d + 1:])
        if any(boxes[i][0][p] < whole[i][0][p] for i, p in places):
            out[a] = (n,)
    return out


def nearly_equal(extent: int, tile: int, workers: int, unit: int) -> list[int]:
    """Extents below ``tile`` that cut an axis into nearly equal tiles: into as many as ``tile``
    does, or into as many as serve all workers alike; in whole grains."""
    count = -(-extent // tile)
    if count == 1:
        return []  # whole axes stay whole: some must
    even = {-(-extent // c) for c in (count, -(-count // workers) * workers)}
    return sorted({-(-t // unit) * unit for t in even if -(-t // unit) * unit < tile})


__all__ = ["Fixed", "blocked_axes", "nearly_equal"]
