"""What loads and stores of a nest cost whose points the threads of a block share: sectors that
neighbouring threads ask for together, by the addresses of a warp's lanes."""

from collections.abc import Mapping, Sequence
from itertools import chain

from aotc.ir.access import offset_of, stride
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Axis, Const, Expr, Load, Shape, axes_of, loads, substitute
from aotc.ir.layout import Layout
from aotc.ir.program import Program
from aotc.ir.simplify import simplify
from aotc.ir.stage_choice import StageChoice
from aotc.sched.cost.lane_accesses import count_sectors
from aotc.sched.model.group_numbers import Extra
from aotc.sched.model.size import estimate
from aotc.sched.model.stages import Stage
from aotc.target.base import Target
from aotc.target.tuning import Tuning

MULTIPLY_ADD = 2  # additions


def thread_cost(program: Program, target: Target, s: Stage, choice: StageChoice,
                layouts: Mapping[str, Layout]) -> Extra:
    """The Extra of a nest: per term of its fold the loads of that, per output the other loads and
    the stores, each as long as the sectors take that its lanes ask for."""
    axes, lanes = lane_axes(program, s, choice, layouts), target.lanes

    def cost(found: Sequence[tuple[str, Shape]]) -> int:
        sectors = sum(lane_sectors(offset_of(i, program.shape(b), layouts.get(b)),
                                   DTYPES[program.dtype(b)].size, axes, lanes, target.tuning)
                      for b, i in found)
        tuning = target.tuning
        return round(sectors * tuning.sector_cost * tuning.access_cost * MULTIPLY_ADD)

    terms = [] if s.fold == "none" else places(loads(s.body))
    others = places(chain.from_iterable(loads(o.value) for o in s.outputs))
    others += places(loads(s.body)) if s.fold == "none" else []
    written = [(o.buffer, o.index) for o in s.outputs]
    return Extra(1, cost(terms), cost([*dict.fromkeys(others), *written]))


def places(found: Sequence[Load] | chain[Load]) -> list[tuple[str, Shape]]:
    """(buffer, index) of Loads, each once."""
    return [(n.buffer, n.index) for n in dict.fromkeys(found)]


def lane_axes(program: Program, s: Stage, choice: StageChoice,
              layouts: Mapping[str, Layout]) -> list[Axis]:
    """Axes that neighbouring threads move along, the fastest first: the one of the sum that they
    share out, or those of the points as the first output lies in memory."""
    shared = [r for r in s.raxes if r.name == choice.lanes]
    if shared:
        return shared
    o = s.outputs[0]
    place = offset_of(o.index, program.shape(o.buffer), layouts.get(o.buffer))

    def far(axis: Axis) -> int:
        step = stride(place, axis)
        return abs(step.value) if isinstance(step, Const) and isinstance(step.value, int) else 0

    return sorted((a for a in s.axes if a.extent != Const(1)), key=far)


def lane_sectors(place: Expr, size: int, axes: Sequence[Axis], lanes: int, tuning: Tuning) -> int:
    """Sectors of one access of a warp's lanes at an offset in elements of ``size`` bytes; lanes
    whose places only data say lie apart."""
    moved = [a for a in axes if a in axes_of(place)]
    steps = {a: stride(place, a) for a in moved}
    offsets = []
    for lane in range(lanes):
        at, left = dict[Axis, int](), lane
        for a in axes:
            left, at[a] = divmod(left, max(1, estimate(a.extent)))
        if left:
            break  # there are no more points
        offsets.append(_offset(place, steps, at))
    if any(o is None for o in offsets):
        return len(offsets) * -(-size // tuning.sector)
    known = [o for o in offsets if o is not None]
    first = min(known)
    return count_sectors([(o - first) * size for o in known], size, tuning)


def _offset(place: Expr, steps: Mapping[Axis, Expr | None], at: Mapping[Axis, int]) -> int | None:
    """How far from its start an offset is where axes have the values ``at``; None where only data
    say it."""
    total, crooked = 0, dict[Expr, Expr]()
    for a, step in steps.items():
        if isinstance(step, Const) and isinstance(step.value, int):
            total += step.value * at[a]
        else:
            crooked[a] = Const(at[a])
    if crooked:
        others = {a: Const(0) for a in axes_of(place) if a not in crooked}
        value = simplify(substitute(place, {**others, **crooked}))
        if not isinstance(value, Const) or not isinstance(value.value, int):
            return None
        total += value.value
    return total


__all__ = ["lane_axes", "lane_sectors", "places", "thread_cost"]
