"""Of step ``kernels`` of ``decide``: the box of a work item of one nest of loops."""

from collections.abc import Mapping, Sequence

from aotc.ir.access import offset_of, stride
from aotc.ir.expr import Axis, Const
from aotc.ir.layout import Layout
from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.sched.model.size import estimate, estimate_volume
from aotc.sched.model.stages import Stage
from aotc.sched.rows.row_blocks import even_tile
from aotc.target.base import Target


def _across_lanes(program: Program, target: Target, g: Group, anchor: Stage,
                  layouts: Mapping[str, Layout]) -> bool:
    """True if the lanes of a map lie far apart in its first output: a transposition."""
    lane = next((a for a in anchor.axes if a.name == g.choice(anchor.name).lanes),
                None)
    if lane is None or anchor.raxes or g.choices[anchor.name].block:
        return False
    o = anchor.outputs[0]
    step = stride(offset_of(o.index, program.shape(o.buffer), layouts.get(o.buffer)), lane)
    return not (isinstance(step, Const) and step.value <= target.tuning.near_elements)


def cut_nest(program: Program, target: Target, g: Group, anchor: Stage,
             layouts: Mapping[str, Layout]) -> dict[str, int]:
    """What a work item of a group whose one stage is a nest computes of each axis that is cut.
    layouts: of stored buffers.

    Cut outer axes until a work item has about ``item_points`` points, but outputs for its
    threads.  The axis whose neighbours a window computes together is cut into whole blocks.
    Of a transposition one vector of lanes at a time, so that the few lines its elements go to stay
    in the cache until they are full."""
    machine, choice = target.machine, g.choice(anchor.name)
    lane, blocked = choice.lanes, choice.block
    block = target.row(g.choices[anchor.name].row).block
    points = max(1, estimate_volume(a.extent for a in anchor.axes + anchor.raxes))
    outputs, tile = estimate_volume(a.extent for a in anchor.axes), dict[str, int]()
    beside = not _reads_along_fold(program, anchor, layouts)
    least = _least_outputs(target, g, anchor, beside)
    axes = [a for a in anchor.axes if a.extent != Const(1) and a.name != choice.digits]
    order = [a for a in axes if a.name != lane] + [a for a in axes if a.name == lane]
    if target.lanes > 1 and _across_lanes(program, target, g, anchor, layouts):
        wide = next((a for a in axes if a.name == lane), None)  # none: a single lane
        if wide is not None and estimate(wide.extent) > target.lanes:
            tile[lane], points = target.lanes, points // estimate(wide.extent) * target.lanes
            order.remove(wide)
    for a in order:
        if points <= machine.item_points:
            break
        n = estimate(a.extent)
        per = points // n  # points of one step along a
        want = max(1, machine.item_points // max(1, per), -(-least * n // max(1, outputs)))
        if a.name == lane and (beside or not machine.threads):
            step = target.lanes if machine.threads else target.tuning.lane_cut
            want = -(-want // step) * step
        if want >= n and isinstance(a.extent, Const):
            continue
        fixed = isinstance(a.extent, Const) and a.name != lane
        tile[a.name] = even_tile(n, want) if fixed else want
        if a.name == blocked:
            tile[a.name] = min(n, -(-tile[a.name] // (2 * block)) * 2 * block)
        points, outputs = per * tile[a.name], outputs * tile[a.name] // n
    return tile


def _least_outputs(target: Target, g: Group, anchor: Stage, beside: bool) -> int:
    """Outputs that a work item should have at least: where each is one thread's, one for every
    thread, or so many that every worker has some.  beside: what threads read lies side by side for
    neighbouring outputs, a vector of which stays together."""
    machine = target.machine
    if not machine.threads or _fold_together(g, anchor):
        return 1
    each = estimate_volume(a.extent for a in anchor.axes) // machine.workers
    return min(machine.threads, max(target.lanes if beside else 1, each))


def _reads_along_fold(program: Program, s: Stage, layouts: Mapping[str, Layout]) -> bool:
    """True if neighbouring terms of a fold are neighbours in memory, and those of neighbouring
    outputs are not."""
    offsets = [offset_of(n.index, program.shape(n.buffer), layouts.get(n.buffer))
               for n in s.loads()]

    def beside(axes: Sequence[Axis]) -> bool:
        return any(stride(o, a) == Const(1) for o in offsets for a in axes)
    return beside(s.raxes) and not beside(s.axes)


def _fold_together(g: Group, anchor: Stage) -> bool:
    """True if threads fold an output of a nest together."""
    return any(a.name == g.choice(anchor.name).lanes for a in anchor.raxes)


__all__ = ["cut_nest"]
