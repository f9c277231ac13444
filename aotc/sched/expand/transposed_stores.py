"""Results of a contraction that lie across the lanes in memory: gathered, then transposed."""

from dataclasses import replace

from aotc.ir.access import affine_stride
from aotc.ir.expr import Axis, Binary, Const, minimum, substitute
from aotc.ir.kernel.plan_stages import Contract
from aotc.ir.simplify import simplify
from aotc.ir.statements import OWN, Body, Box, Copy, Declare, If, Put, Update
from aotc.sched.expand.tile_loops import TileLoops


def turned_loops(c: Contract, at: TileLoops) -> tuple[Contract, Body, Body]:
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


__all__ = ["turned_loops"]
