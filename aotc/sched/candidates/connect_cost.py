"""Connecting by cost: which edges stay in a fast level, decided in seconds (Welder's step).

    connect_by_cost(program, target)    groups, those of several stages with their tiles

Start: groups connected at register level.  Edges in topological order: the two groups of an edge
are merged if one kernel, its intermediate tiles in scratch, is predicted to take less time than
the two apart.  A beam of a few partitions keeps a merge that does not pay yet, for the next edge
may make it pay.  Equal groups (same expressions, shapes, types, connections) are judged once, so a
network of equal layers is decided once per distinct layer.  Nothing is looked up by name: what can
be merged is what ``group_stages``, analysis of reads and ``check_schedule`` accept.
"""

from collections.abc import Collection

from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.sched.candidates.join_streams import join_streams
from aotc.sched.candidates.partition import BEAM, search_merges
from aotc.sched.choose.connect import number_groups, register_groups
from aotc.sched.judge.judge import Judge
from aotc.sched.rows.stream_stages import is_stream
from aotc.target.base import Target


def connect_by_cost(program: Program, target: Target, beam: int = BEAM,
                    apart: Collection[str] = ()) -> tuple[Group, ...]:
    """Tuple of Groups; deterministic.  Groups of several stages have their tile, and each says in
    ``why`` what it is predicted to take and what its parts would.  apart: computes that are merged
    with no others."""
    groups = join_streams(program, target, register_groups(program, apart))
    judge = Judge(program, target)
    judge.own |= {*apart, *(c for g in groups if is_stream(g) for c in g.computes)}
    return number_groups(map(judge.finished, search_merges(program, judge, groups, beam)))


__all__ = ["connect_by_cost"]
