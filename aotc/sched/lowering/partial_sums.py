"""Long sums in parts: so many terms one after another, then the parts' sums.

Every addition rounds what has been summed so far.  One after another, n terms of about the same
size are off by up to n/2 roundings of the result; in parts of p terms by p/2 and by half as many as
there are parts.  Lanes sum side by side: where they lie along the reduction, a part is so many
vectors.
"""

from collections.abc import Iterable
from dataclasses import replace

from aotc.ir.expr import Axis, Const, axes_of, minimum, substitute
from aotc.ir.kernel.plan_stages import Nest, points
from aotc.ir.simplify import simplify, upper
from aotc.ir.statements import Range
from aotc.target.kernel_rows import ProductRow

TERMS = 128  # of a nest's: a part costs a few instructions
STEPS = 512  # of a product's: a part costs the way of a register tile through memory
# where a block of threads has the tile, twice the registers: only sums longer than this have parts
BLOCK_STEPS = 4096
MOST_PARTS = 2  # times as many as there must be, where they are then all of one length


def split_into_parts(nest: Nest) -> Nest:
    """The Nest with ``parts``; the same Nest where no lane adds more than ``TERMS`` numbers."""
    if nest.fold != "sum" or nest.acc[0].dtype != "f32":
        return nest
    written_out = tuple(r for r in nest.reduce if r.axis.name == nest.taps)
    reduce = tuple(r for r in nest.reduce if r not in written_out) + written_out
    inner, at = 1, len(reduce)
    while at:
        steps = _steps(nest, reduce[at - 1])
        if steps is None or inner * steps > TERMS:
            break
        inner, at = inner * steps, at - 1
    if not at:
        return nest
    each = TERMS // inner  # steps of the loop that is too long
    if each == 1:
        return replace(nest, reduce=reduce, parts=at)
    r, lanes = reduce[at - 1], nest.lanes if reduce[at - 1].axis.name == nest.vector else 1
    return replace(nest, reduce=reduce[:at - 1] + _cut(r, each, lanes) + reduce[at:], parts=at)


def whole_range(nest: Nest) -> Range | None:
    """The Range of a Nest's only loop that folds, uncut; None where there are several."""
    if nest.parts == 0 and len(nest.reduce) == 1:
        return nest.reduce[0]
    if nest.parts != 1 or len(nest.reduce) != 2:
        return None
    part, r = nest.reduce
    lo, hi = (simplify(substitute(e, {part.axis: at})) for e, at in (
        (r.lo, Const(0)), (r.hi, simplify(part.hi - 1))))
    return Range(r.axis, lo, hi) if part.axis in axes_of(r.lo) else None


def part_of(row: ProductRow, axes: Iterable[Axis]) -> int:
    """``MicroKernel.part`` of a product's sum over ``axes``, in a row's tile."""
    blocks, terms = row.shared is not None, 1
    if blocks and row.tile.mr == 1:  # threads share the sum of a column
        return 0
    longest = BLOCK_STEPS if blocks else STEPS
    for a in axes:
        terms *= upper(a.extent) or longest + 1
    return STEPS if terms > longest else 0


def _steps(nest: Nest, r: Range) -> int | None:
    """Upper bound of the additions that a loop of a Nest makes one after another."""
    n = points((r,))
    return n if n is None or r.axis.name != nest.vector else -(-n // nest.lanes)


def _cut(r: Range, each: int, lanes: int) -> tuple[Range, Range]:
    """The Range in two: over parts of at most ``each`` vectors of ``lanes``, and over one part."""
    n = simplify(r.hi - r.lo)
    size = each * lanes
    if isinstance(n, Const) and n.value % lanes == 0:
        size = _even(n.value // lanes, each) * lanes
    part = Axis(f"{r.axis.name}_part", simplify((r.axis.extent + (size - 1)) // size))
    first = simplify(r.lo + part * size)
    whole = simplify(n % size) == Const(0)
    end = simplify(first + size)
    return (Range(part, Const(0), simplify((n + (size - 1)) // size)),
            Range(r.axis, first, end if whole else simplify(minimum(end, r.hi))))


def _even(n: int, most: int) -> int:
    """The length of parts of ``n`` things, at most ``most``: all of one length where that makes not
    many more of them."""
    fewest = -(-n // most)
    count = next((c for c in range(fewest, MOST_PARTS * fewest + 1) if n % c == 0), fewest)
    return -(-n // count)


__all__ = ["STEPS", "TERMS", "split_into_parts", "part_of", "whole_range"]
