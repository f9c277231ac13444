"""What an axis is worth as that of the lanes, by how its accesses lie in memory: a term of the cost
that is known before rows and layouts are.  In units of a load of neighbours.
"""

from collections.abc import Sequence

from aotc.ir.access import is_unit, offset_of, stride
from aotc.ir.conditions import ends_from_data
from aotc.ir.expr import Axis, Const, Load, axes_of
from aotc.ir.numbers.narrow import SHORT
from aotc.ir.simplify import are_equal
from aotc.sched.model.size import estimate
from aotc.sched.model.stages import Output, Stage
from aotc.sched.rows.settled_choices import Settled, Wanted
from aotc.target.tuning import Tuning


def lane_score(c: Settled, s: Stage, axis: Axis, loads: Sequence[Load]) -> float:
    """Unit-stride accesses minus gathers, weighted by how often an access happens.  loads: those of
    the stage that count; a constant whose layout follows the lanes does not."""
    n, tuning = _flat_extent(c, s, axis), c.target.tuning
    if n < tuning.lane_points:
        return 0.0
    if axis in s.axes and not c.target.machine.threads and any(
            axis in axes_of(e) for e in ends_from_data(s.body, s.fold, s.raxes)):
        return 0.0  # lanes share their loops: they would look at everything
    score = tuning.lane_base + min(n, tuning.lane_long) / (10 * tuning.lane_long)
    for load in loads:
        if load.dtype not in ("f32", "f16", *SHORT) and not c.target.machine.threads:
            continue
        step = stride(c.offset(load), axis)
        moving = axis in {x for i in load.index for x in axes_of(i)}
        weight = tuning.lane_folded if s.raxes and axes_of(load) & set(s.raxes) else 1.0
        if step != Const(1) and isinstance(step, Const) and step.value in c.target.lane_steps and (
                load.dtype != "f16"):
            score += tuning.lane_strided * weight
        elif step is None or (step != Const(1) and moving):
            score -= tuning.lane_gather * weight
        elif moving:
            score += weight
    for o in s.outputs:
        if axis in s.raxes:
            continue
        fixed = c.program.buffers[o.buffer].role != "temp" or o.buffer in c.layouts
        layout = c.layouts.get(o.buffer)
        off = offset_of(o.index, c.program.shape(o.buffer), layout)
        if fixed and not is_unit(off, axis):
            score -= tuning.lane_across
        elif fixed:
            score += tuning.lane_stored
        elif o.buffer in c.wanted:
            score += _stored_as_wanted(tuning, c.wanted[o.buffer], o, axis)
    return score


def _stored_as_wanted(tuning: Tuning, wanted: Wanted, output: Output, axis: Axis) -> float:
    """Score of lanes along ``axis`` where a contraction will have the output laid out for it."""
    _, inner, rows = wanted
    own = {d for d, i in enumerate(output.index) if axis in axes_of(i)}
    if not own or own <= rows:
        return 0.0
    return tuning.lane_stored if own <= set(inner) else -tuning.lane_across


def _flat_extent(c: Settled, s: Stage, axis: Axis) -> int:
    """Trip count of the axis once lowering has merged it with the outer axes that every access
    walks contiguously (maps only)."""
    n = estimate(axis.extent)
    if s.raxes or n >= c.target.lanes:
        return n
    offsets = [c.offset(x) for x in s.loads()] + [
        offset_of(o.index, c.program.shape(o.buffer), c.layouts.get(o.buffer)) for o in s.outputs]
    at = s.axes.index(axis)
    for outer in reversed(s.axes[:at]):
        steps = [(stride(x, outer), stride(x, axis)) for x in offsets]
        if not all(a is not None and b is not None and are_equal(a, b * n) for a, b in steps):
            break
        n *= estimate(outer.extent)
    return n


__all__ = ["lane_score"]
