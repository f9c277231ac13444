"""Which products have their sums made in parts: those with fewer work items than workers.

A machine whose work items are single register tiles of threads' blocks has many workers, and a
product with few rows and columns few tiles; each then sums for long while most workers wait.  In
parts (``passes.sums.split_k``) there are as many more tiles, and one kernel more, which adds up.
"""

from collections.abc import Iterator
from math import prod

from aotc.ir.dtypes import DTYPES
from aotc.ir.program import Compute, Program, Rewrite, static_shape
from aotc.passes.sums.split_k import RULE, LongSum, match_sum
from aotc.sched.cost.group_cost import utilisation
from aotc.sched.model.product_rows import operand_dtypes, pick_row
from aotc.sched.model.size import estimate, estimate_volume
from aotc.target.base import Target, Ukernel


def choose_split_k(program: Program, target: Target,
                   taken: set[str]) -> tuple[Rewrite, ...]:
    """The rewrites ``split_k`` of a Program, in program order, but of the computes ``taken``; none
    where work items are not single tiles, shared by threads."""
    if not target.machine.threads or target.machine.item_tiles != 1:
        return ()
    found = []
    for c in program.steps:
        if isinstance(c, Compute) and c.out not in taken:
            m = match_sum(program, c)
            static = m is not None and static_shape(program.shape(c.out)) is not None
            parts = _best(program, target, m) if m is not None and static else 1
            if parts > 1:
                found.append((RULE, c.out, {"parts": parts}))
    return tuple(found)


def _best(program: Program, target: Target, m: LongSum) -> int:
    """Of how many parts the kernels take least time, 1 if the sum had better stay whole."""
    rows = estimate_volume(a.extent for a in m.factors.m)
    if not m.factors.m or rows == 1:
        return 1  # of a single row threads share the sum already
    columns = estimate(m.factors.n[-1].extent)
    products = estimate_volume(a.extent for a in (*m.factors.batch, *m.factors.n[:-1]))
    row = pick_row(target, rows, columns, k=m.terms, operands=operand_dtypes(program, m.factors))
    return min(_divisors(m.terms), key=lambda parts: _seconds(
        target, row, m, (rows, columns, products), parts))


def _divisors(terms: int) -> Iterator[int]:
    """1, and parts of a sum of so many terms whose steps can be fetched four at a time."""
    yield 1
    yield from (n for n in range(2, terms // 4 + 1) if terms % (4 * n) == 0)


def _seconds(target: Target, row: Ukernel, m: LongSum, shape: tuple[int, int, int],
             parts: int) -> float:
    """Seconds of a product of ``shape``, (rows, columns, how many of them), in so many parts, and
    of what adds those up."""
    rows, columns, products = shape
    machine, mr, nr = target.machine, row.tile["mr"], row.tile["nr"]
    tiles = -(-rows // mr) * -(-columns // nr) * products * parts
    step = row.tile.get("bk", 1)
    steps = -(-(m.terms // parts) // step) * prod(
        estimate(r.extent) for r in m.factors.k if r != m.axis)
    work = 2.0 * mr * nr * step * steps * tiles
    busy = machine.flops * machine.workers * machine.tuning.tile_rate * utilisation(
        tiles, machine.workers)
    if parts == 1:
        return work / busy
    moved = 2 * parts * rows * columns * products * DTYPES["f32"].size
    return work / busy + machine.launch + moved / machine.memories[1].bandwidth


__all__ = ["choose_split_k"]
