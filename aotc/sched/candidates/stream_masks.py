"""Rewrites ``inline``: the maps that masks of streams are made by, in the streams themselves.

All layers of a model may read one mask, which a kernel of its own makes of fewer numbers.  Of an
element of it a stream takes a few operations beside an exp: where that is predicted to take less
time than the kernel, the mask is stored no more.
"""

from collections.abc import Mapping, Sequence

from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Expr, loads
from aotc.ir.program import Compute, Program, Rewrite
from aotc.ir.schedule import Group
from aotc.passes.inline_rule import RULE, match_inlined
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.candidates.join_streams import join_streams
from aotc.sched.choose.connect import register_groups
from aotc.sched.cost.stream_cost import element_seconds, stream_rows
from aotc.sched.judge.judge import Judge
from aotc.sched.model.size import estimate_volume
from aotc.sched.rows.stream_stages import Streamed, find_stream, is_stream
from aotc.target.base import Target


def choose_inlined(program: Program, target: Target,
                   rewrites: Sequence[Rewrite]) -> tuple[Rewrite, ...]:
    """The rewrites ``inline`` of a Program that gets ``rewrites`` before, of the maps that masks
    are made by from the last on; none where nothing streams."""
    found: tuple[Rewrite, ...] = ()
    while more := _next_inlined(apply_rewrites(program, (*rewrites, *found)), target):
        found += more
    return found


def _next_inlined(program: Program, target: Target) -> tuple[Rewrite, ...]:
    """Those of groups that streams read themselves."""
    if not target.rows("stream"):
        return ()
    groups = join_streams(program, target, register_groups(program))
    streams = {c: g for g in groups if is_stream(g) for c in g.computes}
    judge = Judge(program, target, groups) if streams else None
    return tuple((RULE, c, {}) for g in groups if judge is not None and _pays(judge, g, streams)
                 for c in g.computes)


def _pays(judge: Judge, group: Group, streams: Mapping[str, Group]) -> bool:
    """True if a group only makes what streams read beside their products, and takes longer than
    its operations take them for every score, and what it reads beyond what it makes."""
    program = judge.program
    maps = [program.producer[c] for c in group.computes]
    own = {o for c in maps for o in c.outs}
    readers = {s.outs[0] for o in group.outputs for s in program.consumers.get(o, ())}
    if is_stream(group) or not readers or not readers <= streams.keys() or not all(
            isinstance(c, Compute) and match_inlined(program, c) is not None for c in maps):
        return False
    reading = [find_stream(program, g) for g in {streams[r].name: streams[r]
                                                 for r in readers}.values()]
    if any(f is None or _multiplies(f, own) for f in reading):
        return False
    read = {b for c in maps for b in c.inputs} - own
    more = max(0, _bytes(program, read) - _bytes(program, group.outputs))
    bodies = [c.body for c in maps if isinstance(c, Compute)]
    return judge.verdict(group).seconds > sum(_added(judge, f, bodies, more)
                                              for f in reading if f is not None)


def _multiplies(found: Streamed, buffers: set[str]) -> bool:
    """True if a stream's products read one of some buffers."""
    factors = (found.scored.a, found.scored.b, found.valued.b)
    return any(n.buffer in buffers for e in factors for n in loads(e))


def _bytes(program: Program, buffers: Sequence[str] | set[str]) -> int:
    return sum(estimate_volume(program.shape(b)) * DTYPES[program.buffers[b].dtype].size
               for b in buffers)


def _added(judge: Judge, found: Streamed, bodies: Sequence[Expr], more: int) -> float:
    """Seconds that a stream takes longer if it computes ``bodies`` for every score, and reads so
    many bytes more."""
    rows = stream_rows(judge.program, judge.target, found)
    assert rows is not None, found.names
    return element_seconds(judge.target.machine, found, rows, bodies, more)


__all__ = ["choose_inlined"]
