"""Which stages of a block's kernel have their rows in registers, and by how many threads each."""

from collections.abc import Iterator
from dataclasses import replace

from aotc.ir.block_statements import ACCESS
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import axes_of
from aotc.ir.kernel.plan_kernels import LoweredKernel
from aotc.ir.kernel.plan_stages import HeldRows, Nest, points
from aotc.ir.schedule import Group
from aotc.sched.cost.block_cost import fold_cost
from aotc.sched.expand.expansion import with_writing
from aotc.sched.lowering.group_to_stages import Staged
from aotc.sched.lowering.held_rows import longest_rows, threads_of
from aotc.sched.lowering.neighbours import NARROW, Lined, Lines, lines_of
from aotc.target.base import Target


def held_rows(found: Staged, group: Group, target: Target,
              lined: Lined) -> dict[str, dict[str, int]]:
    """{stage of a staged group: its choices}, of those that hold rows and those that do not.  What
    a stage says already is kept."""
    kernel, owners = replace(found.kernel, stages=tuple(with_writing(s, o, group) for s, o in zip(
        found.kernel.stages, found.owners, strict=True))), found.owners
    lines = lines_of(kernel, lined)
    once = {o for o in owners if owners.count(o) == 1}
    chosen = {o: {"held_rows": 0} for o, s in zip(owners, kernel.stages)
              if isinstance(s, Nest) and _may_hold(s, target)}
    n = 0
    while n < len(kernel.stages):
        run, length = longest_rows(kernel, n, lines, lambda s: _may_hold(s, target)
                                   and s.writing.held_rows != 0)
        names = owners[n:n + length]
        threads = None if run is None or not {*names} <= once else _threads(
            run, kernel, target, lines)
        if run is not None and threads is not None:
            team, width = threads
            chosen |= {name: {"held_rows": 1, "neighbours": width} | (
                {"team": team} if nest.fold != "none" else {})
                for name, nest in zip(names, run.nests)}
        n += length
    return chosen


def _may_hold(nest: Nest, target: Target) -> bool:
    return target.row(nest.row).category != "loops"


def _threads(run: HeldRows, kernel: LoweredKernel, target: Target,
             lines: Lines) -> tuple[int, int] | None:
    """(warps that have a row, neighbours that each of their threads has at once): as many threads
    as have some terms each, the fastest way of those, by no more neighbours than its turns take.
    None where there is no way."""
    length, lanes = points((run.lane,)) or 0, target.lanes
    if length < lanes:
        return None  # most threads would be idle
    teams = {n.writing.team for n in run.nests if n.fold != "none"} - {None}
    widths = {n.writing.neighbours for n in run.nests} - {None}
    ways = [(t, w) for t in _powers(kernel.threads // lanes) for w in _powers(_widest(run))
            if {t} >= teams and {w} >= widths and threads_of(
                run, t, w, kernel, target, lines) is not None]
    rows = points(run.rows) or kernel.threads // lanes

    def order(way: tuple[int, int]) -> tuple[int, float, int]:
        team, width = way
        turns = -(-length // (team * lanes * width))
        each = fold_cost(rows, turns * team * lanes, kernel.threads, lanes, team, target.tuning)
        busy = min(team * lanes, length // target.tuning.thread_terms)
        return -busy, each, width
    return min(ways, key=order, default=None)


def _powers(most: int) -> Iterator[int]:
    """Powers of two up to a number."""
    return (1 << n for n in range(most.bit_length()))


def _widest(run: HeldRows) -> int:
    """Neighbours of a thread that are worth an access: 16 bytes of the widest elements, and 8 to 16
    of the narrowest."""
    sizes = [DTYPES[x.dtype].size for x in run.loads] + [
        DTYPES[p.value.dtype].size for p in run.puts if run.lane.axis in axes_of(p.offset)]
    least, most = min(sizes, default=ACCESS), max(sizes, default=ACCESS)
    return max(ACCESS // most, min(ACCESS // least, NARROW))


__all__ = ["held_rows"]
