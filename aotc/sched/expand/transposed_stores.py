"""Results of a contraction that lie across the lanes in memory: gathered, then transposed."""

from collections.abc import Sequence
from dataclasses import replace

from aotc.ir.access import affine_stride, stride
from aotc.ir.expr import Axis, Binary, Const, Expr, minimum, substitute
from aotc.ir.kernel.operands import Turned
from aotc.ir.kernel.plan_stages import Contract
from aotc.ir.simplify import are_equal, simplify
from aotc.ir.statements import OWN, Body, Box, Copy, Declare, If, Put, Range, Update
from aotc.sched.expand.tile_loops import TileLoops


def lies_across(c: Contract) -> bool:
    """True if results of a Contract may wait in scratch to be stored by transposed blocks: one
    output of f32, lanes that do not lie side by side in it, rows that do."""
    if c.micro.mr == 1 or c.slices or len(c.puts) != 1 or c.puts[0].value.dtype != "f32":
        return False
    at = c.puts[0].offset
    step = stride(at, c.n.axis)
    return step is not None and not are_equal(step, Const(1)) and _side_by_side(c.m, at)


def _side_by_side(ranges: Sequence[Range], offset: Expr) -> bool:
    """True if neighbouring rows, counted through ``ranges``, are neighbours at ``offset``."""
    step: Expr = Const(1)
    for r in reversed(ranges):
        count = simplify(r.hi - r.lo)
        found = stride(offset, r.axis)
        if count != Const(1) and (found is None or not are_equal(found, step)):
            return False
        step = simplify(step * count)
    return True


def with_turned(c: Contract, scratch: str, rows: int) -> Contract:
    """The Contract whose results wait in scratch of so many rows, at least: of whole tiles."""
    return replace(c, turned=Turned(scratch, -(-rows // c.micro.mr) * c.micro.mr))


def turn_loops(c: Contract, at: TileLoops) -> tuple[Contract, Body, Body]:
    """(Contract that stores to its scratch, statements before the loop over rows, statements at the
    end of a register tile, which store what scratch holds once it is full)."""
    if not c.turned:
        return c, (), ()
    put, lane, nr = c.puts[0], c.n.axis, at.nr
    first = Axis(f"{OWN}turn0", c.row_count)  # the first row that scratch holds
    inside = simplify((at.m0 - first + at.i) * nr + lane - at.n0)
    start = simplify(substitute(put.offset, {lane: at.n0, **{r.axis: r.lo for r in c.m}}) + first)
    counts = (simplify(minimum(at.m0 + c.micro.mr, at.rows) - first),
              simplify(minimum(at.columns_left, Const(nr))))
    copy = Copy(Box(put.buffer, start, (Const(1), affine_stride(put.offset, lane))),
                Box(c.turned.scratch, Const(0), (Const(nr), Const(1))), counts, "f32", "transposed")
    done = simplify(at.m0 + c.micro.mr)
    full = Binary("or", Binary("ge", done, at.rows),
                  Binary("eq", simplify(done - first), Const(c.turned.rows)))
    gathered = replace(c, puts=(Put(c.turned.scratch, inside, put.value),))
    return (gathered, (Declare(first, Const(0)),), (If(full, (copy, Update((first,), (done,)))),))


__all__ = ["lies_across", "turn_loops", "with_turned"]
