"""A Contract as statements: loops over panels of columns and register tiles of rows around the sums
of one tile and its epilogue."""

from dataclasses import replace

from aotc.ir.access import stride
from aotc.ir.expr import (
    Binary,
    Const,
    Expr,
    Load,
    Var,
    axes_of,
    minimum,
    rewrite,
    substitute,
    walk,
)
from aotc.ir.kernel.plan_stages import Contract
from aotc.ir.simplify import simplify, split_linear
from aotc.ir.statements import Body, Box, For, Let, Put, Range, Store
from aotc.ir.tile_statements import (
    Pack,
    Point,
    RowCounters,
    RowTable,
    Tile,
    TileColumns,
    TileRows,
)
from aotc.sched.expand.aligned import divide_by_vectors
from aotc.sched.expand.dot_operands import dot_columns, dot_rows, dot_sizes, expand_panel, pad_row
from aotc.sched.expand.expansion import Expansion
from aotc.sched.expand.nests import lanes, loops, registers_of
from aotc.sched.expand.prefetch_tiles import (
    fetches,
    next_panel,
    panel_share,
    share,
    unguarded_loads,
)
from aotc.sched.expand.row_tails import tiles_by_rows
from aotc.sched.expand.sums_in_registers import one_tap, plain_rows, steps_written, writes_out_sums
from aotc.sched.expand.tile_loops import B_COL, TileLoops, extent_of, flat_index
from aotc.sched.expand.transposed_stores import turn_loops

MADE = ("packed", "expanded")  # modes of columns that a work item makes a panel of


def expand_contract(c: Contract, expansion: Expansion) -> Body:
    """The statements of a Contract, its rows and columns in register tiles."""
    at, dots = TileLoops(c), c.micro.narrow
    stored, start, turn, flush = _as_stored(c, at, expansion)
    in_place = not dots and writes_out_sums(stored, expansion)
    plain = in_place and plain_rows(c)
    fetched = () if dots else fetches(c, at, expansion)
    sizes = dot_sizes(c) if dots else _sizes(c, at)
    sums = tiles_by_rows(c, at, expansion, _tile(c, at, expansion, sizes, start, in_place),
                         stored)
    rows: Body = () if plain else (_table(c, at, expansion),)
    count: Body = () if plain else (RowCounters(c.m),)
    panel = dot_columns(c, at) if dots else _columns(c, at, expansion)
    call = (*fetched, *sums)

    def row_loop(body: Body) -> Body:
        return (For(at.m0, Const(0), at.rows, body, step=c.micro.mr),)

    def column_loop(body: Body) -> Body:
        return (For(at.n0, c.n.lo, c.n.hi, body, step=at.nr),)

    if expansion.how(c, "order") == "rows":
        body = (*count, *row_loop((*rows, *column_loop((*panel, *call)))))
    else:
        body = column_loop((*panel, *count, *turn, *row_loop((*rows, *call, *flush))))
    first = (Let(at.rows, c.row_count), *pad_row(c), *(() if dots else share(c, at, expansion)))
    return loops(c.outer, (*first, *at.in_slices(body)))


def stored_contract(c: Contract, expansion: Expansion) -> Contract:
    """A Contract as its results are stored."""
    return _as_stored(c, TileLoops(c), expansion)[0]


def _as_stored(c: Contract, at: TileLoops, expansion: Expansion) -> tuple[
        Contract, Box | None, Body, Body]:
    """(the Contract as its results are stored, what its sums start from, statements before the loop
    over rows, those at the end of a register tile)."""
    started, start = (c, None) if c.micro.narrow else _started(c, at, expansion)
    stored, turn, flush = turn_loops(
        started if c.turned else divide_by_vectors(started, c.n, expansion), at)
    return stored, start, turn, flush


# ---------------------------------------------------------------- operands

def _table(c: Contract, at: TileLoops, expansion: Expansion) -> RowTable:
    """The pointers to the rows of a tile: in place, or to rows that are packed first."""
    if c.a.mode == "rows":
        return RowTable(c.m, at.rows, c.micro.mr, c.micro.dtypes.a, c.taps, c.a.buffer, c.a.offset,
                        c.a.guard, c.a.pad, c.k.axis.extent)
    inner = (*c.taps, c.k)
    if c.micro.narrow:
        total, body = dot_rows(c, at, expansion.how(c, "copied_run"))
    else:
        total = extent_of(inner)
        put = Put(c.a.buffer, simplify(at.i * total + flat_index(inner)), c.a.packed)
        body = loops(inner, (Store((put,)),))
    return RowTable(c.m, at.rows, c.micro.mr, c.micro.dtypes.a, (), c.a.buffer,
                    simplify(at.i * total), body=body)


def _columns(c: Contract, at: TileLoops, expansion: Expansion) -> Body:
    """Bind ``~b_col``: the panel, the direct columns, or columns packed now."""
    lane = c.n.axis
    if c.b.mode in ("panel", "direct"):
        offset = c.b.offset + lane if c.b.mode == "direct" else c.b.offset
        here = simplify(substitute(offset, {lane: at.n0}) + at.slice_offset())
        zero = {r.axis: Const(0) for r in (*c.outer, c.n)}
        return (Point(B_COL, c.micro.dtypes.b, ((None, Box(c.b.buffer, here)),)),
                *next_panel(c, at, expansion, simplify(substitute(c.b.offset, zero))))
    if c.b.mode == "expanded":
        return _expanded(c, at)
    packed = Box(c.b.buffer, Const(0))
    return (*_packing(c, at, expansion), Point(B_COL, c.micro.dtypes.b, ((None, packed),)))


def _expanded(c: Contract, at: TileLoops) -> Body:
    """``expand_panel`` of a slice of the sum, or all of it."""
    assert c.micro.grouping is not None, c.row
    here, depth, g = substitute(c.b.offset, {c.n.axis: at.n0}), c.k.axis.extent, c.micro.grouping
    if c.slices:
        here = here + at.k_lo // g.size * (g.rows * at.nr)
        depth = simplify(minimum(Const(c.slices.steps), depth - at.k_lo))
    return expand_panel(c, at, simplify(here), depth)


def _packing(c: Contract, at: TileLoops, expansion: Expansion) -> Body:
    """Packing of the columns of one panel, by transposed blocks where they lie along k."""
    lane, nr, value = c.n.axis, at.nr, c.b.packed
    if not c.taps and isinstance(value, Load) and stride(value.index[0], c.k.axis) == Const(1):
        parts = split_linear(value.index[0], lane)
        if parts is not None:
            first = simplify(substitute(value.index[0], {lane: at.n0, c.k.axis: Const(0)}))
            count = simplify(minimum(at.columns_left, Const(nr)))
            return (Pack(c.b.buffer, value.buffer, first, parts[0], count, c.k.axis.extent, nr),)
    inner = (*c.taps, c.k)
    part = Range(lane, at.n0, simplify(minimum(at.n0 + nr, c.n.hi)))
    put = Put(c.b.buffer, simplify(flat_index(inner) * nr + lane - at.n0), value)
    if packs_lanes(c):
        group = registers_of(c, Const(nr), expansion)
        return loops(inner, (lanes(part, (Store((put,)),), group),))
    return loops((part, *inner), (Store((put,)),))


def packs_lanes(c: Contract) -> bool:
    """True for a product whose columns are packed when they are needed, and lie side by side."""
    if c.b.mode != "packed":
        return False
    found = [stride(n.index[0], c.n.axis) for n in walk(c.b.packed) if isinstance(n, Load)]
    return bool(found) and all(s == Const(1) for s in found)


# ---------------------------------------------------------------- the sums

def _sizes(c: Contract, at: TileLoops) -> tuple[Expr, Expr, Expr, Expr]:
    """(taps, k, step of b along k, step of b along taps) of a tile's sums."""
    taps, kc = extent_of(c.taps), c.k.axis.extent
    if c.a.mode == "packed":
        taps, kc = Const(1), simplify(taps * kc)
    ldb = Const(at.nr) if c.b.mode in ("panel", *MADE) else c.b.stride
    return taps, kc, ldb, simplify(kc * ldb) if c.b.tap is None else c.b.tap


def _tile(c: Contract, at: TileLoops, expansion: Expansion, sizes: tuple[Expr, Expr, Expr, Expr],
          start: Box | None, in_place: bool) -> Tile:
    """The sums of one register tile."""
    taps, kc, ldb, tap_b = sizes
    depth = Const(c.slices.steps) if c.slices else simplify(taps * kc)
    ahead = None if c.micro.narrow else panel_share(c, at, expansion, depth)
    if c.slices:
        kc = simplify(minimum(Const(c.slices.steps), kc - at.k_lo))
    first = simplify(at.k_lo * c.a.stride) if c.slices else Const(0)
    masked = c.b.mode == "direct" and "columns" not in c.whole
    rows = _row_places(c, at) if in_place and plain_rows(c) else ()
    a = TileRows(rows, first, Const(1) if c.a.mode == "packed" else c.a.stride,
                 in_place and c.a.mode == "rows" and not one_tap(c))
    b = TileColumns(B_COL, ldb, tap_b, at.columns_left, masked)
    # of expanded weights a tile sees the elements
    micro = c.micro if c.micro.narrow else replace(c.micro, grouping=None)
    return Tile(micro, a, b, taps, kc, ahead, start, in_place, **steps_written(c, expansion))


def _row_places(c: Contract, at: TileLoops) -> tuple[Box, ...]:
    """The place of every row of a tile; rows past the end repeat the last."""
    (r,), out = c.m, []
    for i in range(c.micro.mr):
        row: Expr = at.m0 + i
        if i and "rows" not in c.whole:
            row = minimum(row, at.rows - 1)
        place = simplify(substitute(c.a.offset, {
            r.axis: r.lo + row, **{t.axis: t.lo for t in c.taps}}))
        out.append(Box(c.a.buffer, place))
    return tuple(out)


def _started(c: Contract, at: TileLoops,
             expansion: Expansion) -> tuple[Contract, Box | None]:
    """(the Contract, what its sums start from): what the epilogue adds to every row first, such as
    a bias, costs nothing in a micro-kernel that fetches nothing."""
    if expansion.vectors.prefetches or c.slices:
        return c, None
    lane, rows = c.n.axis, {r.axis for r in c.m}
    always = {x for p in c.puts for x in unguarded_loads(p.value)}
    found: set[Load] = set()

    def visit(e: Expr) -> Expr | None:
        if not isinstance(e, Binary) or e.op != "add" or c.acc not in (e.a, e.b):
            return None
        x = e.b if e.a == c.acc else e.a
        plain = isinstance(x, Load) and x in always and not axes_of(x) & rows and not any(
            isinstance(n, Load) for n in walk(x.index[0]))
        if not isinstance(x, Load) or not plain or stride(x.index[0], lane) != Const(1):
            return None
        found.add(x)
        return Var("started", "f32")

    values = [rewrite(p.value, visit) for p in c.puts]
    if len(found) != 1 or any(n == c.acc for v in values for n in walk(v)):
        return c, None
    new = {Var("started", "f32"): c.acc}
    puts = tuple(Put(p.buffer, p.offset, substitute(v, new)) for p, v in zip(c.puts, values))
    load = found.pop()
    return replace(c, puts=puts), Box(load.buffer, simplify(substitute(
        load.index[0], {lane: at.n0})))


__all__ = ["MADE", "expand_contract", "packs_lanes"]
