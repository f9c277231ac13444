"""What follows the sums of a register tile: from registers, where each accumulator is stored as it
stands, or from memory, row by row.

From registers the loops over rows and vectors of columns are written out by the compiler; rows and
columns that do not exist are left out.  From memory, what no row moves (a bias) is loaded once per
vector of columns.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from aotc.ir.contents import names_in
from aotc.ir.expr import (
    Axis,
    Binary,
    Const,
    Expr,
    Load,
    Unary,
    Var,
    axes_of,
    minimum,
    substitute,
    walk,
)
from aotc.ir.kernel.plan_stages import Contract
from aotc.ir.simplify import simplify
from aotc.ir.statements import (
    ACC_TILE,
    FIRST,
    OWN,
    SUMS,
    Alloc,
    Body,
    For,
    If,
    Let,
    Put,
    Range,
    Stmt,
    Store,
)
from aotc.ir.tile_statements import Vector
from aotc.sched.expand.expansion import Expansion
from aotc.sched.expand.nests import lanes
from aotc.sched.expand.prefetch_tiles import unguarded_loads
from aotc.sched.expand.sums_in_registers import keeps_sums_in_registers, plain_rows
from aotc.sched.expand.tile_loops import TileLoops

_POLYNOMIALS = ("exp", "log", "erf", "tanh", "sin", "cos")


def follow_sums(c: Contract, at: TileLoops, expansion: Expansion, in_place: bool) -> Body:
    """What follows the sums of a tile, which stand in registers (in_place) or in the array
    ``~acc_tile``; of sums in slices, those of the slices before join them first, and all but the
    last are kept for the next."""
    storing = (_stored if in_place else _from_memory)(c, at, expansion)
    if not c.slices:
        return storing
    nr, mr = at.nr, c.micro.mr
    panel = Axis(f"{OWN}panel", simplify((c.n.axis.extent + (nr - 1)) // nr))
    tiles = (at.rows + (mr - 1)) // mr
    slot = Axis(f"{OWN}slot", simplify(panel.extent * ((c.row_count + (mr - 1)) // mr)))
    here, there = SUMS if in_place else ACC_TILE, (c.slices.scratch, simplify(slot * (mr * nr)))
    return (Let(panel, simplify((at.n0 - c.n.lo) // nr)),
            Let(slot, simplify(panel * tiles + at.m0 // mr)),
            If(at.slice_before(), _each_sum(c, at, here, (here, Const(0)), there)),
            If(at.slice_follows(), _each_sum(c, at, here, there), storing))


def _each_sum(c: Contract, at: TileLoops, sums: str, to: tuple[str, Expr],
              joined: tuple[str, Expr] | None = None) -> Body:
    """The sums of a tile, whole vectors of them, to a place in memory or in themselves, joined by
    those at another place."""
    column = Axis(f"{OWN}column", Const(at.nr))

    def row(i: Expr) -> Body:
        def vector(j: Expr) -> Body:
            place = simplify(i * at.nr + column)
            value: Expr = c.acc
            if joined is not None:
                value = value + Load(joined[0], (simplify(joined[1] + place),), "f32")
            store = Store((Put(to[0], simplify(to[1] + place), value),))
            return (Vector(column, simplify(j * c.micro.lanes), c.micro.lanes, None,
                           (Let(c.acc, Load(sums, (place,), "f32")), store)),)
        return _each(at.j, c.micro.nv, vector)
    return _each(at.i, c.micro.mr, row)


def _from_memory(c: Contract, at: TileLoops, expansion: Expansion) -> Body:
    """The epilogue that reads the array ``~acc_tile``."""
    lane, nr = c.n.axis, at.nr
    live, i = Axis(f"{OWN}live", Const(c.micro.mr + 1)), Axis(f"{OWN}i", Const(c.micro.mr))
    rows = _rows(c, at, i, plain_rows(c))
    count = Let(live, minimum(Const(c.micro.mr), at.rows - at.m0))
    if may_pair_sums(c, expansion):
        return count, *_beside(c, at, expansion, For(i, Const(0), live, tuple(rows)))
    whole = "columns" in c.whole  # every tile is full: the lane loop has a constant trip count
    end = at.n0 + nr if whole else simplify(minimum(at.n0 + nr, c.n.hi))
    part = Range(lane, at.n0, end)
    acc = Let(c.acc, Load(ACC_TILE, (simplify(i * nr + lane - at.n0),), c.acc.dtype))
    if expansion.vectors.fixed:
        body = (*rows, lanes(part, (acc, Store(c.puts))))
        return count, For(i, Const(0), live, body)
    same, puts = _same_in_all_rows(c, expansion, ("f32", "i32"))
    most = 2 if has_polynomials(c) else expansion.vectors.groups[0]
    each = For(i, Const(0), live, (*rows, acc, Store(puts)))
    return count, lanes(part, (*same, each), most, narrow=True)


def may_pair_sums(c: Contract, expansion: Expansion) -> bool:
    """True if vectors of columns may stand side by side in the epilogue of a Contract's tiles in
    memory: of a narrow product, all of whose tiles have as many columns as its row."""
    return (c.micro.narrow and expansion.vectors.fixed and c.micro.lanes > 1 and c.micro.nv > 1
            and "columns" in c.whole)


def _beside(c: Contract, at: TileLoops, expansion: Expansion, rows: For) -> Body:
    """The epilogue row by row, ``columns`` vectors of each at once; rows: the loop over them, with
    names of their axes."""
    lane, wide = c.n.axis, expansion.how(c, "columns")
    out: list[Stmt] = []
    for first in range(0, c.micro.nv, wide):
        before, each = list[Stmt](), [*rows.body]
        for j in range(0, min(wide, c.micro.nv - first) * c.micro.lanes, c.micro.lanes):
            acc = Var(expansion.fresh("acc"), c.acc.dtype)
            new: dict[Expr, Expr] = {c.acc: acc, **{
                a: simplify(a + j) for a in (lane, replace(lane, name=FIRST + lane.name))}}
            same, puts = _same_in_all_rows(c, expansion, ("f32", "i32"), new)
            before += same
            each += [Let(acc, Load(ACC_TILE, (simplify(rows.axis * at.nr + lane + j - at.n0),),
                                   acc.dtype)), Store(puts)]
        out.append(Vector(lane, simplify(at.n0 + first * c.micro.lanes), c.micro.lanes, None,
                          (*before, replace(rows, body=tuple(each)))))
    return tuple(out)


def _stored(c: Contract, at: TileLoops, expansion: Expansion) -> Body:
    """The epilogue of sums that stand in registers: from there where that is possible."""
    if not keeps_sums_in_registers(c, expansion):
        return (Alloc(ACC_TILE, "f32", c.micro.mr * at.nr),
                *_each_sum(c, at, SUMS, (ACC_TILE, Const(0))),
                *_from_memory(c, at, expansion))
    count, whole = _columns(c)
    vectors, rest = divmod(count, c.micro.lanes)

    def full(i: Expr) -> Body:
        body = _each(at.j, vectors, lambda j: (_vector(c, at, i, j, None),))
        # a single panel, whose last vector is cut
        return (*body, _vector(c, at, i, Const(vectors), Const(rest))) if rest else body

    def cut(i: Expr) -> Body:
        return _each(at.j, c.micro.nv, lambda j: (_cut(c, at, i, j),))
    body = _each_row(c, at, full)
    return body if whole else (If(Binary("le", at.n0 + at.nr, c.n.hi), body,
                                  _each_row(c, at, cut)),)


def _columns(c: Contract) -> tuple[int, bool]:
    """(columns of a whole tile, True if every tile is one): a single panel has as many as it has,
    other last panels may be cut."""
    nr, n = c.micro.nr, simplify(c.n.hi - c.n.lo)
    if "columns" in c.whole or not isinstance(n, Const) or n.value > nr:
        return nr, "columns" in c.whole
    return int(n.value), True


def _each(axis: Axis, count: int, body: Callable[[Expr], Body]) -> Body:
    """``body`` for so many rows of a tile, or vectors of its columns."""
    if count < 2:
        return body(Const(0)) if count else ()
    return (For(axis, Const(0), Const(count), body(axis), "tile"),)


def _each_row(c: Contract, at: TileLoops, body: Callable[[Expr], Body]) -> Body:
    """``body`` for the rows of a tile that there are.  They are the outer loop, which ends with
    them: were each vector asked, compilers would keep a full tile's sums in memory."""
    i: Expr = at.i if c.micro.mr > 1 else Const(0)
    rows = () if plain_rows(c) else _rows(c, at, i, False)
    if c.micro.mr == 1:
        return (*rows, *body(i))
    mr = Const(c.micro.mr)
    live = mr if "rows" in c.whole else minimum(mr, simplify(at.rows - at.m0))
    return (For(at.i, Const(0), live, (*rows, *body(i)), "tile"),)


def _cut(c: Contract, at: TileLoops, i: Expr, j: Expr) -> If:
    """The epilogue of what there is of a vector, if there is any."""
    first = simplify(at.n0 + j * c.micro.lanes)
    live = simplify(minimum(c.n.hi - first, Const(c.micro.lanes)))
    return If(Binary("lt", first, c.n.hi), (_vector(c, at, i, j, live),))


def _vector(c: Contract, at: TileLoops, i: Expr, j: Expr, live: Expr | None) -> Vector:
    """The epilogue of vector ``j`` of row ``i``."""
    lane = c.n.axis
    known: dict[Expr, Expr] = {at.i: i}
    if plain_rows(c):  # they follow from the number of the row: nothing to look up
        known |= {x.var: x.value for x in _rows(c, at, i, True)}
    storing = Store(tuple(Put(p.buffer, simplify(substitute(p.offset, known)),
                              substitute(p.value, known)) for p in c.puts))
    acc = Let(c.acc, Load(SUMS, (simplify(i * at.nr + lane - at.n0),), c.acc.dtype))
    return Vector(lane, simplify(at.n0 + j * c.micro.lanes), c.micro.lanes, live, (acc, storing))


def _rows(c: Contract, at: TileLoops, i: Expr, plain: bool) -> list[Let]:
    """The row axes that the epilogue uses, at row ``i``."""
    used = names_in(c.puts)
    return [Let(r.axis, at.row(r, i, plain)) for r in c.m if r.axis.name in used]


def _same_in_all_rows(c: Contract, expansion: Expansion, dtypes: Collection[str] = ("f32",),
                      new: Mapping[Expr, Expr] | None = None
                      ) -> tuple[list[Let], tuple[Put, ...]]:
    """(names of the epilogue's loads of ``dtypes`` that no row axis moves, the stores by those):
    they are done once for all rows of a tile.  new: what stands for axes and sums in both."""
    rows = {r.axis for r in c.m}
    found = dict.fromkeys(x for p in c.puts for x in unguarded_loads(p.value, dtypes)
                          if not axes_of(x) & rows)
    named: dict[Expr, Expr] = {x: Var(expansion.fresh("same"), x.dtype) for x in found}

    def moved(e: Expr) -> Expr:
        return simplify(substitute(e, new)) if new else e

    puts = tuple(Put(p.buffer, moved(p.offset), moved(substitute(p.value, named)), p.guard)
                 for p in c.puts)
    return [Let(v, moved(x)) for x, v in named.items() if isinstance(v, Var)], puts


def has_polynomials(c: Contract) -> bool:
    """True if the epilogue calls functions whose coefficients should stay in registers over the
    rows of a tile: with the widest vectors they would not fit."""
    return any(isinstance(n, Unary) and n.op in _POLYNOMIALS
               for p in c.puts for n in walk(p.value))


__all__ = ["follow_sums", "has_polynomials", "may_pair_sums"]
