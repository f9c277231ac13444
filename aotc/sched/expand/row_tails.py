"""The last register tile of rows whose number is a symbol: it sums no more rows than there are, by
steps, where rows of a known number would have got a micro-kernel that divides them.

DietCode pads such a tile to a whole one (its ``f_pad``); with fewer rows in registers the same
panel serves a tile of a quarter and of half the rows, or of one.
"""

from dataclasses import replace

from aotc.ir.expr import Binary, Const, Expr
from aotc.ir.kernel.plan_stages import Contract
from aotc.ir.statements import ACC_TILE, Alloc, Body, If
from aotc.ir.tile_statements import Tile
from aotc.sched.expand.epilogues import follow_sums
from aotc.sched.expand.expansion import Expansion
from aotc.sched.expand.sums_in_registers import vectors_without_register
from aotc.sched.expand.tile_loops import TileLoops
from aotc.sched.model.size import row_tails


def tiles_by_rows(c: Contract, at: TileLoops, expansion: Expansion, tile: Tile,
                  stored: Contract) -> Body:
    """``tile`` and the epilogue of ``stored``, the Contract as its results are stored: by how many
    rows are left, where the tile may be the last of a number that is not known."""
    tails = _tails(c, expansion, tile.in_place)
    if tile.in_place:
        out: Body = (tile, *follow_sums(stored, at, expansion, True))
        for n in reversed(tails):
            few = replace(tile, live=n, a=replace(tile.a, places=tile.a.places[:n]),
                          reread=min(tile.reread, vectors_without_register(c, expansion, n)))
            epilogue = follow_sums(replace(stored, micro=replace(c.micro, mr=n)), at, expansion,
                                   True)
            out = (If(_left(at, n), (few, *epilogue), out),)
        return out
    out = (tile,)
    for n in reversed(tails):
        few = replace(tile, live=n, reread=min(tile.reread,
                                               vectors_without_register(c, expansion, n)))
        out = (If(_left(at, n), (few,), out),)
    return (Alloc(ACC_TILE, c.micro.dtypes.sums, c.micro.mr * at.nr), *out,
            *follow_sums(stored, at, expansion, False))


def _left(at: TileLoops, n: int) -> Expr:
    """The condition that at most ``n`` rows are left."""
    return Binary("le", at.rows - at.m0, Const(n))


def _tails(c: Contract, expansion: Expansion, in_place: bool) -> tuple[int, ...]:
    """Rows of the smaller tiles, ascending."""
    if not ends_anywhere(c, expansion):
        return ()
    return row_tails(c.micro.mr, int(expansion.how(c, "tails")), in_place)


def ends_anywhere(c: Contract, expansion: Expansion) -> bool:
    """True if the last register tile may have any number of rows, and smaller ones may serve it."""
    known = "rows" in c.whole or all(isinstance(r.axis.extent, Const) for r in c.m)
    return not known and expansion.vectors.fixed and not c.micro.narrow and not c.slices


__all__ = ["ends_anywhere", "tiles_by_rows"]
