"""What loads and stores of a stage cost beside its arithmetic, from how its lanes move in memory.

A vector of neighbours is one instruction; lanes that lie apart are loaded and stored one by one,
and a sum over lanes ends in a fold across the vector.  In units of an addition, as
``Tuning.op_cost``; fitted where the kernels' traffic was counted as well: a part of what was
measured is left to that.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from aotc.ir.access import offset_of, stride
from aotc.ir.category import factor_pairs
from aotc.ir.expr import Const, axes_of, loads
from aotc.ir.layout import Layout
from aotc.ir.program import Program
from aotc.ir.schedule import Group, Loops
from aotc.sched.model.digit_stage import loop_stage
from aotc.sched.model.stages import Stage, group_stages, target_memo
from aotc.target.base import Target, Ukernel
from aotc.target.tuning import Tuning


@dataclass(frozen=True)
class Extra:
    """Cost of a stage in additions: ``scale`` times its arithmetic, plus ``per_point`` of its
    fold, plus ``per_output``; plus ``per_packed`` of each point of a work item that ``rows``, names
    of axes, have in common."""

    scale: int = 1
    per_point: int = 0
    per_output: int = 0
    per_packed: int = 0
    rows: tuple[str, ...] = ()


def access_costs(program: Program, target: Target, group: Group,
                 layouts: Mapping[str, Layout]) -> dict[str, Extra]:
    """{stage: Extra} of a group with rows and loops.  layouts: {buffer: Layout}, row-major where
    there is none.  Stages without vectors neither use lanes nor hide latencies (1.2 ns an operation
    were measured beside 0.0035 with 16 lanes)."""
    out, known = {}, target_memo(program, target)
    for s in group_stages(program, group):
        row = target.row(group.ukernel[s.name])
        key = "access", s, row.name, tuple(group.loops[s.name].items()), tuple(
            [layouts.get(b) for b in s.buffers])
        if key in known:
            out[s.name] = known[key]
        elif row.category == "loops":
            out[s.name] = Extra(target.lanes ** 2)
        elif target.lanes > 1 and not target.machine.threads and row.category not in (
                "dot", "transform"):
            out[s.name] = known[key] = vector_cost(program, target, loop_stage(
                s, group.loops[s.name]), row, group.loops[s.name], layouts)
    return out


def scalar_cost(s: Stage, tuning: Tuning) -> int:
    """Additions that an element takes in plain loops for what is loaded and stored."""
    return tuning.apart * (len(s.loads()) + len(s.outputs))


def vector_cost(program: Program, target: Target, s: Stage, row: Ukernel, loops: Loops,
                layouts: Mapping[str, Layout]) -> Extra:
    """The Extra of a stage whose ``row`` has its lanes along the axis that ``loops`` say."""
    lane = next(a for a in s.axes + s.raxes if a.name == loops["lanes"])

    def apart(buffer, index, steps=target.lane_steps):
        if not any(lane in axes_of(i) for i in index):
            return False
        step = stride(offset_of(index, program.shape(buffer), layouts.get(buffer)), lane)
        return not (isinstance(step, Const) and step.value in steps)

    tuning = target.tuning
    per_point = per_output = 0
    if s.fold != "none" and row.category != "contraction":
        each = tuning.window_load if row.category == "window" else tuning.fold_load
        per_point = sum(tuning.apart if apart(n.buffer, n.index) else each
                        for n in dict.fromkeys(loads(s.body)))
    if "exchange" not in row.tile:
        found = dict.fromkeys(n for o in s.outputs for n in loads(o.value))
        per_output = tuning.apart * (sum(apart(n.buffer, n.index) for n in found) + sum(
            apart(o.buffer, o.index, (1,)) for o in s.outputs))
    per_output += tuning.across if lane in s.raxes else tuning.vector_store * len(s.outputs)
    if loops.get("b") != "packed":
        return Extra(1, per_point, per_output)
    f = next(f for f in factor_pairs(s.axes, s.raxes, s.fold, s.body) if lane in f.n)
    return Extra(1, per_point, per_output, tuning.packed, tuple(a.name for a in f.m))


__all__ = ["Extra", "access_costs", "scalar_cost", "vector_cost"]
