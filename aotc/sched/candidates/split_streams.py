"""Rewrites ``split_keys``: keys of streams in parts, where that is predicted to take less time.

A work item of a stream has the rows of one tile and goes along all keys.  Where there are few of
those, as for one token of a decoder, most workers wait: in parts (``passes.sums.split_keys``) they
are as many more, with one kernel more, which joins them.  Heads that share keys are rows of one
tile.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf

from aotc.ir.expr import Const, Expr, loads, walk
from aotc.ir.program import Compute, Program, Rewrite
from aotc.ir.schedule import Group
from aotc.passes.sums.split_keys import RULE, Weighed, find_divisor, match_weighed, useful_parts
from aotc.sched.candidates.join_streams import possible_streams
from aotc.sched.choose.connect import register_groups
from aotc.sched.cost.stream_cost import (
    KeyParts,
    join_seconds,
    key_bytes,
    state_bytes,
    stream_rows,
    stream_seconds,
)
from aotc.sched.judge.judge import Judge
from aotc.sched.model.typical_calls import spread_calls
from aotc.sched.rows.stream_stages import Streamed, find_stream
from aotc.target.base import Target


def choose_split_keys(program: Program, target: Target) -> tuple[Rewrite, ...]:
    """The rewrites ``split_keys`` of a Program, in program order; none where nothing streams."""
    if not target.rows("stream"):
        return ()
    groups = register_groups(program)
    judge, out = Judge(program, target, groups), []
    for joined, parts in possible_streams(program, target, groups):
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
    not take clearly more.  What parts leave is no more than they read."""
    shared = 1 if match.shared is None else match.shared[1]
    asked = {n: _seconds(judge, found, KeyParts(n, shared)) for n in useful_parts(match)}
    tuning = judge.target.tuning
    least = min(asked.values(), default=inf)
    whole = _seconds(judge, found, KeyParts())
    if least == inf or least >= whole * tuning.parts_gain:
        return 0
    usual = _seconds_of(judge, found, KeyParts(), {})
    if usual > (apart := sum(judge.verdict(g).seconds for g in parts)) and min(
            _seconds_of(judge, found, KeyParts(n, shared), {}) for n in asked) >= apart:
        return 0
    return next(n for n, seconds in asked.items() if seconds <= least * (1 + tuning.slack))


def _seconds(judge: Judge, found: Streamed, split: KeyParts) -> float:
    """Of a stream with a split, all of its kernels, in calls spread over the ranges of extents."""
    program, rows = judge.program, stream_rows(judge.program, judge.target, found, split)
    extents = [a.extent for a in (*found.values.axes, found.key)]
    syms = tuple(s for s in program.syms if any(s in set(walk(e)) for e in extents))
    calls: list[dict[Expr, Expr]] = [{s: Const(c.extents[s.name]) for s in syms}
                                     for c in spread_calls(replace(program, syms=syms))]
    largest: dict[Expr, Expr] = {s: Const(s.reach) for s in syms}
    if rows is None or split.parts > 1 and state_bytes(found, split, largest) > key_bytes(
            found, rows, split, largest):
        return inf
    return sum(_seconds_of(judge, found, split, call) for call in calls)


def _seconds_of(judge: Judge, found: Streamed, split: KeyParts,
                call: Mapping[Expr, Expr]) -> float:
    """The same of one call."""
    machine, rows = judge.target.machine, stream_rows(judge.program, judge.target, found, split)
    return inf if rows is None else stream_seconds(
        machine, found, rows, split, call) + join_seconds(machine, found, split, call)


__all__ = ["choose_split_keys"]
