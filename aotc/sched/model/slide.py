"""Stages that slide: along a run, a work item keeps in scratch what its next step reads again.

Without sliding, every step of a run computes the halo of its windows anew.  A stage that slides
computes in each step only what no step before has computed; what is asked for again moves to the
front of its scratch first, so that addresses stay plain.  Depthwise convolutions behind expansions
and chains of convolutions then compute every row once per work item.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aotc.errors import ScheduleError
from aotc.ir.expr import Axis, Const, Expr, axes_of, maximum, substitute
from aotc.ir.kernel.plan_stages import Bindings
from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.ir.simplify import simplify
from aotc.sched.model.boxes import AnchorTile, Box, Places, boxes_of_tile, stage_boxes, whole_tiles
from aotc.sched.model.stages import Stage


@dataclass(frozen=True)
class Kept:
    """What a step finds of ``buffer`` in scratch: ``count`` rows along dimension ``dim``, which
    move ``shift`` rows to the front.  ``last``: of every dimension the last index in scratch that
    holds something."""

    buffer: str
    dim: int
    count: Axis
    shift: Axis
    last: tuple[Expr, ...]


@dataclass(frozen=True)
class Boxes:
    """A group's boxes in one step: ``boxes`` and ``places`` as ``stage_boxes`` gives them; ``lets``
    in the order in which they are bound; ``carried``: ((Axis, its value in the next step), ...), 0
    in the first; ``kept``: {stage name: (Kept, ...)}."""

    boxes: dict[str, Box]
    places: Places
    lets: Bindings = ()
    carried: Bindings = ()
    kept: dict[str, tuple[Kept, ...]] = field(default_factory=dict)


def step_boxes(program: Program, group: Group, stages: Sequence[Stage], tile: AnchorTile) -> Boxes:
    """Boxes of a group's stages in one step of a work item (all of it, if it makes none).

    ScheduleError as ``stage_boxes``; and if a stage cannot slide: it is the anchor or stores,
    several of its axes move from step to step, or what is read of it does not move forward."""
    pure, places = stage_boxes(program, group, stages, tile)
    sliding = [s for s in stages if group.choice(s.name).reuse == "slide"]
    if not sliding:
        return Boxes(pure, places)
    axes = {s.name: _moving_axis(group, s, pure[s.name], tile) for s in sliding}
    _forward(program, group, stages, tile, axes)
    lets: list[tuple[Axis, Expr]] = []
    done: dict[str, Axis] = {}
    carried: list[tuple[Axis, Expr]] = []
    kept: dict[str, tuple[Kept, ...]] = {}

    def cut(s: Stage, box: Box) -> Box:
        """Of the box that a stage is asked for, what no step before has computed."""
        axis = axes.get(s.name)
        if axis is None:
            return box
        extent = simplify(axis.extent + 1)
        done[s.name] = Axis(f"{s.name}_{axis.name}_done", extent)
        start = Axis(f"{s.name}_{axis.name}_from", extent)
        lets.append((start, maximum(box[axis][0], done[s.name])))
        return box | {axis: (start, box[axis][1])}

    boxes, asked = boxes_of_tile(program, group, stages, tile, cut)
    for s in sliding:
        axis = axes[s.name]
        carried.append((done[s.name], simplify(boxes[s.name][axis][1] + 1)))
        for o in s.outputs:
            dim, dims = o.index.index(axis), list(places[o.buffer])
            base, was, count, shift = (Axis(f"{o.buffer}_{what}", done[s.name].extent)
                                       for what in ("base", "was", "kept", "shift"))
            lets += [(base, asked[o.buffer][dim][0]),
                     (count, maximum(done[s.name] - base, Const(0))), (shift, base - was)]
            carried.append((was, base))
            dims[dim] = base, dims[dim][1]
            places[o.buffer] = tuple(dims)
            kept[s.name] = kept.get(s.name, ()) + (Kept(
                o.buffer, dim, count, shift, tuple(simplify(b - a) for a, b in asked[o.buffer])),)
    return Boxes(boxes, places, tuple(lets), tuple(carried), kept)


def _moving_axis(group: Group, stage: Stage, box: Box, tile: AnchorTile) -> Axis:
    """The one axis of a stage along which its box moves from step to step."""
    where = f"group {group.name}: {stage.name} cannot slide"
    if tile.axis is None:
        raise ScheduleError(f"{where}, its work items make no steps; give one of the tile's axes a "
                            "run, or choose recompute")
    ends = {v for v, _ in tile.step_let}
    moving = [a for a, box in box.items() if (axes_of(box[0]) | axes_of(box[1])) & ends]
    if group.anchor in stage.computes or any(o.buffer in group.outputs for o in stage.outputs):
        raise ScheduleError(f"{where}, it stores what it computes; choose recompute")
    if len(moving) != 1 or any(moving[0] not in o.index for o in stage.outputs):
        raise ScheduleError(f"{where} along {', '.join(a.name for a in moving) or 'no axis'}; "
                            "choose recompute")
    return moving[0]


def _forward(program: Program, group: Group, stages: Sequence[Stage], tile: AnchorTile,
             axes: Mapping[str, Axis]) -> None:
    """ScheduleError where boxes of stages that slide do not all move forward with the steps."""
    boxes, asked = whole_tiles(program, group, stages, tile)
    assert tile.axis is not None, group.name  # ``_moving_axis`` refuses others
    lo, _ = tile.box[tile.axis]
    assert isinstance(lo, Axis), lo  # a name of the step
    at = Axis(f"{lo.name}_tile", lo.extent)
    for s in stages:
        if s.name not in axes:
            continue
        ends = list(boxes[s.name][axes[s.name]])
        for o in s.outputs:
            ends += asked[o.buffer][o.index.index(axes[s.name])]
        steps = [simplify(substitute(e, {at: at + 1}) - e) for e in ends]
        if not all(isinstance(n, Const) and n.value >= 0 for n in steps):
            raise ScheduleError(f"group {group.name}: {s.name} cannot slide, what later stages "
                                "read of it does not move forward from step to step; choose "
                                "recompute")


__all__ = ["Boxes", "Kept", "step_boxes"]
