"""Rewrites ``split_k``: sums that are made in parts where that is predicted to take less time.

Where work items are single register tiles, of a block of threads each, a product of few rows and
columns has fewer of them than there are workers, and each sums for long while most workers wait.
In parts (``passes.sums.split_k``) there are as many more, and one kernel more, which adds up.  So
with other folds that make few numbers of many.

Products are cut as they are multiplied, once their operands are rounded: parts of halves are f32,
those of bytes exact integers, and what comes behind the whole sum comes behind the parts' sum.
"""

from collections.abc import Collection, Iterator
from math import gcd

from aotc.ir.category import dot_dtypes, is_grouped
from aotc.ir.dtypes import DTYPES
from aotc.ir.program import Compute, Program, Rewrite, static_shape
from aotc.passes.sums.split_k import RULE, LongSum, match_sum
from aotc.sched.candidates.join_streams import stream_computes
from aotc.sched.judge.neighbourhood import Neighbourhoods
from aotc.sched.model.size import estimate_volume
from aotc.target.base import Target

FETCHED = 16  # bytes of a product's operands, neighbours along the sum, that are fetched at a time


def choose_split_k(program: Program, target: Target,
                   taken: Collection[str]) -> tuple[Rewrite, ...]:
    """The rewrites ``split_k`` of a Program, in program order, but of the computes ``taken`` and of
    those that stream; none where work items are not single tiles, shared by threads."""
    if not _makes_parts(target):
        return ()
    taken = {*taken, *stream_computes(program, target)}
    near, found = Neighbourhoods(program, target, target.machine.workers), []
    for c in program.steps:
        m = _long_sum(program, target, c) if isinstance(c, Compute) and (
            c.out not in taken) else None
        best = None if m is None else _best(near, c.outs[0], m)
        found += [best] if best is not None else []
    return tuple(found)


def count_parts(program: Program, target: Target, c: Compute) -> tuple[int, ...]:
    """Numbers of parts that the fold of a compute may be made in on a target, the fewest first."""
    m = _long_sum(program, target, c) if _makes_parts(target) else None
    return () if m is None else tuple(_doubled(m))


def _makes_parts(target: Target) -> bool:
    """True where work items are single tiles, shared by threads."""
    return target.machine.threads > 0 and target.machine.item_tiles == 1


def _long_sum(program: Program, target: Target, c: Compute) -> LongSum | None:
    """The fold of a compute, where it is one that may be cut."""
    static = static_shape(program.shape(c.out)) is not None
    return match_sum(program, c) if static and not _has_groups(target, c) else None


def _has_groups(target: Target, c: Compute) -> bool:
    """True for a product by grouped weights that a target has a row for, which reads them as they
    are packed: in parts they would be packed otherwise."""
    kinds = dot_dtypes(c.body)
    return is_grouped(kinds) and any(u.takes(kinds) for u in target.rows("dot"))


def _best(near: Neighbourhoods, name: str, m: LongSum) -> Rewrite | None:
    """The rewrite in ever more parts as long as that clearly takes less time; None where the sum
    had better stay whole."""
    if m.factors is not None and estimate_volume(a.extent for a in m.factors.m) == 1:
        return None  # of a single row threads share the sum already
    tuning = near.target.tuning
    best, least = None, near.asked(name).seconds * tuning.parts_gain
    for parts in _doubled(m):
        one: Rewrite = (RULE, name, {"parts": parts})
        seconds = near.asked(name, (one,)).seconds
        if seconds < least:
            best, least = one, seconds / (1 + tuning.slack)
        elif best is not None:
            break
    return best


def _doubled(m: LongSum) -> Iterator[int]:
    """Numbers of parts that a sum can be made in, each at least twice the one before.  Those of a
    product begin at as many whole fetches as its rows do."""
    step = 1 if m.factors is None else gcd(FETCHED // DTYPES[m.factors.b.dtype].size, m.terms)
    last = 1
    for n in range(2, m.terms // max(step, 2) + 1):
        if n >= 2 * last and m.terms % (step * n) == 0:
            yield n
            last = n


__all__ = ["choose_split_k", "count_parts"]
