"""Stages of Winograd forms: which there are, what they read, and where their lanes run."""

from collections.abc import Sequence
from typing import TypeVar

from aotc.errors import ScheduleError
from aotc.ir.expr import Axis, Load
from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.passes.winograd import stages_of
from aotc.sched.model.stages import group_stages

T = TypeVar("T")


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


def _whole(name: str, found: Sequence[T]) -> T:
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


def has_transform(program: Program, group: Group) -> bool:
    """True if a group holds the stages of a rewritten compute."""
    return any(rule == "winograd" and compute in group.computes
               and len(group_stages(program, group)) > 1
               for rule, compute, _ in program.rewrites)
