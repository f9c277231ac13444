"""Rewrites ``split_keys``: keys of streams in parts, where that is predicted to take less time.

A work item of a stream has the rows of one tile and goes along all keys.  Where there are few of
those, as for one token of a decoder, most workers wait: in parts (``passes.sums.split_keys``) they
are as many more, with one kernel more, which joins them.  Heads that share keys are rows of one
tile.
"""

from collections.abc import Sequence

from aotc.ir.expr import loads
from aotc.ir.program import Compute, Program, Rewrite
from aotc.ir.schedule import Group
from aotc.passes.sums.split_keys import RULE, Weighed, count_parts, find_divisor, match_weighed
from aotc.sched.candidates.join_streams import possible_streams
from aotc.sched.choose.connect import register_groups
from aotc.sched.cost.stream_cost import KeyParts, join_seconds, stream_rows, stream_seconds
from aotc.sched.judge.judge import Judge
from aotc.sched.rows.stream_stages import Streamed, find_stream
from aotc.target.base import Target


def choose_split_keys(program: Program, target: Target) -> tuple[Rewrite, ...]:
    """The rewrites ``split_keys`` of a Program, in program order; none where nothing streams."""
    if not target.rows("stream"):
        return ()
    groups = register_groups(program)
    judge, out = Judge(program, target, groups), []
    for joined, parts in possible_streams(program, groups):
        last, found = program.producer[joined.anchor], find_stream(program, joined)
        match = match_weighed(program, last) if isinstance(last, Compute) else None
        if match is None or found is None or not _share(match, found):
            continue
        best = _best(judge, found, match, parts)
        out += [(RULE, joined.anchor, {"parts": best})] if best else []
    return tuple(out)


def _share(match: Weighed, found: Streamed) -> bool:
    """True if heads that share values share keys, too."""
    return match.shared is None or all(
        find_divisor(i, match.shared[0]) in (0, match.shared[1]) for n in loads(found.scored.b)
        for i in n.index)


def _best(judge: Judge, found: Streamed, match: Weighed, parts: Sequence[Group]) -> int:
    """The fewest parts that take about the least time; 0 if a whole stream, or kernels apart, do
    not take clearly more."""
    shared = 1 if match.shared is None else match.shared[1]
    asked = {n: _seconds(judge, found, KeyParts(n, shared)) for n in count_parts(match)}
    tuning = judge.target.tuning
    least = min(asked.values(), default=0.0)
    whole = _seconds(judge, found, KeyParts())
    if not asked or least >= whole * tuning.parts_gain:
        return 0
    if whole > (apart := sum(judge.verdict(g).seconds for g in parts)) and least >= apart:
        return 0
    return next(n for n, seconds in asked.items() if seconds <= least * (1 + tuning.slack))


def _seconds(judge: Judge, found: Streamed, split: KeyParts) -> float:
    """Of a stream with a split, all of its kernels."""
    machine, rows = judge.target.machine, stream_rows(judge.program, judge.target, found, split)
    return float("inf") if rows is None else stream_seconds(
        machine, found, rows, split) + join_seconds(machine, found, split)


__all__ = ["choose_split_keys"]
