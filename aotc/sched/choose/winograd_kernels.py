"""Winograd forms in a Schedule: their kernels (this file), tiles of those (winograd_tile.py), and
which layers get one (winograd_choice.py)."""

from collections.abc import Sequence

from aotc.errors import ScheduleError
from aotc.ir.expr import Axis, Load
from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.passes.winograd import stages_of
from aotc.sched.model.stages import group_stages
from aotc.sched.model.tilegraph import merged, ordered
from aotc.target.base import Machine


def transform_lanes(program: Program) -> dict[str, Axis]:
    """{stage name: lane axis} of the input and output transforms of all rewritten computes: both
    run over the channels, innermost in the scratch between the stages."""
    out = {}
    for rule, compute, _ in program.rewrites:
        if rule == "winograd":
            v, m, y = stages_of(program, compute)
            out[v.out] = v.axes[-1]
            out[y.out] = _whole(y.out, [a for a in y.axes if a.name == m.axes[-1].name])
    return out


def _whole(name, found):
    """The one item of ``found``.  ScheduleError if a layout has taken a form's channels apart."""
    if not found:
        raise ScheduleError(f"rewrites: the Winograd form at {name} needs its channels in one "
                            "dimension; choose a layout that only reorders, or drop the form")
    return found[0]


def transform_inputs(program: Program) -> dict[str, tuple[Load, int]]:
    """{buffer: (load, its channel dimension)} of what the input transforms read."""
    out: dict[str, tuple[Load, int]] = {}
    for rule, compute, _ in program.rewrites:
        if rule == "winograd":
            v = stages_of(program, compute)[0]
            load = next(n for n in v.loads if n.buffer not in program.consts)
            dims = [d for d, i in enumerate(load.index) if i == v.axes[-1]]
            out.setdefault(load.buffer, (load, _whole(load.buffer, dims)))
    return out


def join_transforms(program: Program, machine: Machine,
                    groups: Sequence[Group]) -> tuple[Group, ...]:
    """The groups with the three stages of every rewritten compute in one kernel: tiles of the
    transformed input and of the products stay in the worker's slab."""
    for rule, compute, _ in program.rewrites:
        if rule != "winograd":
            continue
        v, m, y = (s.out for s in stages_of(program, compute))
        for source, sink in ((m, y), (v, m)):
            a, b = (next(g for g in groups if n in g.computes) for n in (source, sink))
            if a is not b and len(a.computes) == 1:
                groups = [g for g in groups if g is not a and g is not b] + [
                    merged(program, a, b, machine.scratch)]
                groups = ordered(program, groups)
    return tuple(groups)


def has_transform(program: Program, group: Group) -> bool:
    """True if a group holds the stages of a rewritten compute."""
    return any(rule == "winograd" and compute in group.computes
               and len(group_stages(program, group)) > 1
               for rule, compute, _ in program.rewrites)
