"""Of step ``groups`` of ``decide``, where threads share a work item: products whose rows stay in
the memory of a block, with the maps between them, become one kernel where that is predicted to take
less time.  Asked when it is known what is stored as halves, which is what tensor cores multiply."""

from collections.abc import Collection, Sequence

from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.sched.candidates.partition import search_merges
from aotc.sched.choose.connect import number_groups
from aotc.sched.judge.judge import Judge
from aotc.sched.judge.placed_groups import hands_rows
from aotc.sched.model.stages import contraction_factors, find_call, group_stages
from aotc.sched.model.tilegraph import order_groups
from aotc.sched.rows.stream_stages import is_stream
from aotc.target.base import Target


def join_products(program: Program, target: Target, groups: Sequence[Group],
                  apart: Collection[str] = ()) -> tuple[Group, ...]:
    """The groups with those merged whose products hand each other their rows.  apart: computes
    that are merged with no others."""
    known = {g.computes for g in groups}
    if not target.machine.threads or sum(_multiplies(program, g) for g in groups) < 2:
        return tuple(groups)
    judge = Judge(program, target, groups, together=True)
    judge.own |= {*apart, *(c for g in groups if is_stream(g) for c in g.computes)}
    found = []
    for g in search_merges(program, judge, groups):
        if g.computes in known:
            found.append(g)
        elif hands_rows(program, g):
            found.append(judge.finished(g))
        else:  # with a map alone: on the way to what never came
            found += [x for x in groups if {*x.computes} <= {*g.computes}]
    return number_groups(order_groups(program, found))


def _multiplies(program: Program, group: Group) -> bool:
    """True for a group that is a product."""
    return find_call(program, group) is None and any(
        contraction_factors(program, s) for s in group_stages(program, group))


__all__ = ["join_products"]
