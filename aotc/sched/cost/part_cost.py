"""Time of a sum that is made in parts, side by side, and of adding those up: a term of the cost for
machines whose work items are single tiles of a block of threads.

A product's tiles go in whole waves, each at the rate of one that is alone on its worker; a fold
waits for memory, whose bandwidth the workers that have an item share.  Both are known before what
is around the sum has kernels.
"""

from math import prod

from aotc.ir.access import is_unit, offset_of
from aotc.ir.category import Factors
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import axes_of, loads
from aotc.ir.program import Compute, Program
from aotc.passes.sums.split_k import LongSum
from aotc.sched.cost.group_cost import utilisation
from aotc.sched.model.product_rows import operand_dtypes, pick_row
from aotc.sched.model.size import estimate, estimate_volume
from aotc.target.base import Machine, Target


def fold_seconds(program: Program, machine: Machine, c: Compute, parts: int) -> float:
    """Seconds of a fold that is no product in so many parts: what it shared with its neighbours in
    a kernel goes through memory, too, if they are several."""
    read = [n for n in loads(c.body) if any(axes_of(i) & set(c.raxes) for i in n.index)]
    moved = sum(DTYPES[n.dtype].size for n in read) * estimate_volume(
        a.extent for a in c.axes + c.raxes)
    results = estimate_volume(a.extent for a in c.axes)
    along = any(is_unit(offset_of(n.index, program.shape(n.buffer)), r)
                for n in read for r in c.raxes)
    items = results if along else -(-results // machine.tuning.lane_cut)
    busy = machine.memory.bandwidth * utilisation(items * parts, machine.workers)
    return moved / busy + _added_up(machine, results, parts, machine.tuning.fold_launches)


def product_seconds(program: Program, target: Target, m: LongSum, f: Factors, parts: int) -> float:
    """Seconds of a product with Factors ``f``, whose sum is ``m``, in so many parts."""
    machine = target.machine
    rows, columns = estimate_volume(a.extent for a in f.m), estimate(f.n[-1].extent)
    products = estimate_volume(a.extent for a in (*f.batch, *f.n[:-1]))
    taps = prod(estimate(r.extent) for r in f.k if r != m.axis)
    row = pick_row(target, rows, columns, k=m.terms, operands=operand_dtypes(program, f))
    mr, nr, step = row.tile["mr"], row.tile["nr"], row.tile.get("bk", 1)
    tiles = -(-rows // mr) * -(-columns // nr) * products * parts
    work = 2.0 * mr * nr * tiles * -(-m.terms // parts // step) * step * taps
    busy = machine.flops * machine.workers * machine.tuning.tile_rate * utilisation(
        tiles, machine.workers)
    return work / busy + _added_up(machine, rows * columns * products, parts, 1)


def _added_up(machine: Machine, results: int, parts: int, launches: int) -> float:
    """Seconds of storing the parts, of as many results each, and of the kernels after them."""
    moved = 2 * parts * results * DTYPES["f32"].size
    return launches * machine.launch + moved / machine.memories[1].bandwidth if parts > 1 else 0.0


__all__ = ["fold_seconds", "product_seconds"]
