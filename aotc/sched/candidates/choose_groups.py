"""Step ``groups`` of ``decide``: which computes are one kernel, by a way of ``CONNECT``, or as the
sub-graphs of GraphTurbo are."""

from collections.abc import Collection

from aotc.ir.program import Program
from aotc.ir.schedule import CONNECT, GRAPHTURBO, Group
from aotc.sched.accelerator.places import instance_groups
from aotc.sched.candidates.connect_cost import connect_by_cost
from aotc.sched.choose.connect import register_groups, separate_groups
from aotc.target.base import Target

# which edges stay inside a kernel: none, those at register level, all that pay
_CONNECTED = dict(zip(CONNECT, (lambda program, target, apart: separate_groups(program),
                               lambda program, target, apart: register_groups(program, apart),
                               lambda program, target, apart: connect_by_cost(
                                   program, target, apart=apart))))


def choose_groups(program: Program, target: Target, how: str,
                  apart: Collection[str] = ()) -> tuple[Group, ...]:
    """The groups of a rewritten Program by a way of ``CONNECT``, or ``GRAPHTURBO``; apart: computes
    that share a kernel with no others, not asked of the latter."""
    if how == GRAPHTURBO:
        return instance_groups(program, target).groups
    return _CONNECTED[how](program, target, apart)


__all__ = ["choose_groups"]
