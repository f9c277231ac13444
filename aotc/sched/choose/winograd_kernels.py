"""Winograd forms in a Schedule: their stages (winograd_stages.py), kernels of them (this file),
tiles of those (winograd_tile.py), and which layers get one (winograd_choice.py)."""

from collections.abc import Sequence

from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.passes.winograd import stages_of
from aotc.sched.model.tilegraph import merge_groups, order_groups
from aotc.target.base import Machine


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
                    merge_groups(program, a, b, machine.scratch)]
                groups = order_groups(program, groups)
    return tuple(groups)
