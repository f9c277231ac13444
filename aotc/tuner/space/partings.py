"""Other ways to connect a site: which of its parts share a kernel.

The parts of a site are its groups at register level, in order.  What is tried: all of them in one
kernel, every cut of the row of parts into two kernels, and what the deciders' own ways to connect
make of it.  Each kernel is tiled by cost; whether it pays is measured.
"""

from collections.abc import Sequence
from dataclasses import replace

from aotc.errors import AotcError
from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.choose.connect import register_groups
from aotc.sched.judge.judge import Judge
from aotc.sched.model.tilegraph import merge_groups, order_groups
from aotc.target.base import Target
from aotc.tuner.space.sites import Site

MOST_PARTS = 10  # of a site: more are cut as the deciders do only


def cut_groups(program: Program, target: Target, at: int) -> tuple[Group, ...] | None:
    """Groups of a rewritten piece with its parts merged on both sides of a cut: the first ``at``
    of them are one kernel, the others the second; 0: all are one.  None if a side is no legal
    kernel, or the cut leaves the parts as they are."""
    parts = list(register_groups(program))
    judge = Judge(program, target)
    if not 0 <= at < len(parts) or len(parts) < 2 or len(parts) == 2 and at or any(
            not judge.own.isdisjoint(g.computes) for g in parts):
        return None
    sides = [side for side in (parts[:at], parts[at:]) if side]
    groups = [g for g in (_one(program, judge, side) for side in sides) if g is not None]
    if len(groups) < len(sides):
        return None
    try:
        groups = list(order_groups(program, groups))
    except AotcError:
        return None  # each side would wait for the other
    return tuple(replace(judge.finished(g), name=f"g{i:03d}") for i, g in enumerate(groups))


def _one(program: Program, judge: Judge, parts: Sequence[Group]) -> Group | None:
    """One group of several, None if it is no legal kernel."""
    group = parts[0]
    for g in parts[1:]:
        group = merge_groups(program, group, g, judge.target.machine.homes[0].name)
    return group if judge.verdict(group).legal else None


def cuts(site: Site) -> tuple[int, ...]:
    """Places to cut the parts of a site at, 0 (none) first; () where there is nothing to cut."""
    n = len(register_groups(apply_rewrites(site.piece, site.rewrites)))
    if n < 2:
        return ()
    return tuple(range(n)) if n <= MOST_PARTS else (0,)


__all__ = ["cut_groups", "cuts"]
