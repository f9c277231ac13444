"""What register tiles read and write in rows that lie far apart, fetched before it is needed: no
hardware sees a stream in it.

The rows that an epilogue stores, and those it reads, such as a residual's, are fetched before the
tile's sums.  The next panel of weights is fetched by all row tiles of this one, and while the first
panel runs, short rows that other kernels wrote two tiles before they are read.  The pixels of a
grouped convolution with channels innermost, of which a group reads a piece, are fetched some rows
ahead: 4 groups of 16 channels over 8x56x56 pixels took 10.7 ms on AVX2 and 6.5 with this.
"""

from collections.abc import Collection

from aotc.ir.access import affine_stride, stride
from aotc.ir.expr import (
    Axis,
    Binary,
    Const,
    Expr,
    Load,
    Unary,
    Where,
    axes_of,
    children,
    loads,
    maximum,
    minimum,
    substitute,
)
from aotc.ir.kernel.plan_stages import Contract
from aotc.ir.simplify import are_equal, simplify, upper
from aotc.ir.statements import OWN, Body, Box, For, If, Let, Prefetch, Stmt
from aotc.ir.tile_statements import Point
from aotc.sched.expand.expansion import Expansion
from aotc.sched.expand.sums_in_registers import plain_rows
from aotc.sched.expand.tile_loops import B_COL, B_NEXT, TileLoops, extent_of


def fetches(c: Contract, at: TileLoops, expansion: Expansion) -> Body:
    """All that is fetched before a tile's sums."""
    plain = plain_rows(c)
    return (*_epilogue(c, at, expansion, plain), *(() if plain else _pieces(c, at, expansion)),
            *_stream(c, at, expansion, plain))


def _epilogue(c: Contract, at: TileLoops, expansion: Expansion, plain: bool) -> Body:
    """Fetches of what the epilogue of this tile reads and stores."""
    places = epilogue_places(c, expansion)
    if not places or not expansion.how(c, "fetch_epilogue"):
        return ()
    i = Axis(f"{OWN}i", Const(c.micro.mr))
    body: list[Stmt] = [Let(r.axis, at.last_row(r, i, plain)) for r in c.m
                        if any(r.axis in axes_of(place) for _, place in places)]
    for buffer, offset in places:
        body += [Prefetch(buffer, simplify(substitute(offset, {c.n.axis: column})), beyond=False)
                 for column in _columns(c, at, expansion.line, offset)]
    loop = For(i, Const(0), i.extent, tuple(body), note="for the epilogue")
    if c.slices:  # after the last one
        return (If(Unary("not", at.slice_follows()), (loop,)),)
    return (loop,)


def _pieces(c: Contract, at: TileLoops, expansion: Expansion) -> Body:
    """Fetches of pieces of pixels which a window comes to ``fetch_rows`` rows later."""
    if not has_rows_in_pieces(c, expansion) or not (rows := expansion.how(c, "fetch_rows")):
        return ()
    piece, step = c.k.axis.extent, affine_stride(c.a.offset, c.m[-1].axis)
    assert isinstance(piece, Const) and isinstance(step, Const), c.a  # ``has_rows_in_pieces``
    lowest = {t.axis: Const(0) if t is c.taps[-1] else simplify(t.axis.extent - 1)
              for t in c.taps}
    first = simplify(substitute(c.a.offset, lowest) + step * rows)
    line = expansion.line
    aligned = step.value % line == 0 and piece.value % line == 0
    i = Axis(f"{OWN}i", Const(c.micro.mr))
    body: list[Stmt] = [Let(r.axis, at.row(r, i, False)) for r in c.m if r.axis in axes_of(first)]
    body += [Prefetch(c.a.buffer, simplify(first + j), far=True)
             for j in [*range(0, piece.value, line)] + [piece.value - 1] * (not aligned)]
    return (For(i, Const(0), i.extent, tuple(body), note=f"read {rows} rows later"),)


def _stream(c: Contract, at: TileLoops, expansion: Expansion, plain: bool) -> Body:
    """Fetches of the rows of a product that are read ``fetch_tiles`` register tiles later, while
    the first panel of columns runs."""
    if not has_known_rows(c, expansion) or not (tiles := expansion.how(c, "fetch_tiles")):
        return ()
    most = upper(c.row_count)
    if most is not None and most <= tiles * c.micro.mr:
        return ()
    step, length = affine_stride(c.a.offset, c.m[-1].axis), c.k.axis.extent
    assert isinstance(step, Const) and isinstance(length, Const), c.a  # ``has_known_rows`` says so
    line = expansion.line
    later = substitute(c.a.offset, {t.axis: t.lo for t in c.taps}) + step * (tiles * c.micro.mr)
    used = [r for r in c.m if r.axis in axes_of(later)]
    if step.value == length.value:  # rows lie one behind the other
        count, by = c.micro.mr * length.value, line
        first: Expr = Const(0)
    else:
        count, by = c.micro.mr, 1
        first = Axis(f"{OWN}i", Const(c.micro.mr))
    i = Axis(f"{OWN}i", Const(count))
    binds = [Let(r.axis, at.last_row(r, first, plain)) for r in used]
    if plain and by == line:
        later, binds = substitute(later, {r.axis: at.row(r, first, True) for r in used}), []
    parts = [0] if by == line else [*range(0, length.value, line)]
    reach = i if by == line else Const(0)
    body = (*binds, *(Prefetch(c.a.buffer, simplify(later + reach + j)) for j in parts))
    loop = For(i, Const(0), i.extent, body, step=by, note=f"{tiles} tiles later")
    if are_equal(c.n.lo, Const(0)) and are_equal(c.n.hi, c.n.axis.extent) and (
            upper(c.n.axis.extent) or 1 << 24) <= c.micro.nr:
        return (loop,)
    return (If(Binary("eq", at.n0, c.n.lo), (loop,)),)


def has_known_rows(c: Contract, expansion: Expansion) -> bool:
    """True for a product whose rows have a known length, lie a known number of elements apart, and
    come from other kernels."""
    return (expansion.vectors.prefetches and c.micro.lanes > 1 and c.micro.dtypes.a == "f32"
            and c.a.mode == "rows" and bool(c.m) and not c.slices and c.a.guard is None
            and all(t.axis.extent == Const(1) for t in c.taps) and c.a.stride == Const(1)
            and c.a.buffer not in expansion.own and isinstance(c.k.axis.extent, Const)
            and isinstance(stride(c.a.offset, c.m[-1].axis), Const))


# ---------------------------------------------------------------- the next panel of columns

def _follows(c: Contract, expansion: Expansion) -> bool:
    """True if row tiles fetch the next panel of columns."""
    return panel_follows(c, expansion) and bool(expansion.how(c, "fetch_panel"))


def panel_follows(c: Contract, expansion: Expansion) -> bool:
    """True if there is a next panel of columns, which row tiles can fetch.  A single row tile
    streams through the panels: hardware sees that (with fetches 1x512x24576 takes 1.13 of its time
    on AVX2, 4x512x24576 1.22)."""
    most = upper(c.row_count)
    alone = not c.slices and not _around(c)[0] and (
        upper(c.n.axis.extent) or 1 << 24) <= c.micro.nr
    return (expansion.vectors.prefetches and c.b.mode == "panel" and c.a.mode == "rows"
            and (most is None or most > c.micro.mr) and not alone)


def share(c: Contract, at: TileLoops, expansion: Expansion) -> Body:
    """What a row tile fetches per step, where the count of rows is known at run time only."""
    if not _follows(c, expansion) or isinstance(c.row_count, Const):
        return ()
    each = simplify(Const(at.nr * c.micro.mr) // maximum(at.rows, 1) + 1)
    each = maximum(Const(min(expansion.how(c, "panel_step"), at.nr)),
                   minimum(Const(min(expansion.line, at.nr)), each))
    return (Let(at.ahead, Where(Binary("gt", at.rows, Const(c.micro.mr)), each, Const(0))),)


def next_panel(c: Contract, at: TileLoops, expansion: Expansion, start: Expr) -> Body:
    """The panel that comes after this one: the next one of these columns, of the next slice, of the
    next step of the loop around, else of the next columns, which may be another work item's; behind
    the last one the first of all (at ``start``), with which other rows begin.  While only the first
    was known, 16x256x256 products in items of three panels, 36 behind one another, took 1.07 of
    their time on AVX2."""
    if not _follows(c, expansion):
        return ()
    nr = at.nr
    size = simplify(extent_of(c.sums) * nr)
    back = at.slice_offset()
    first = simplify(Const(0) - (at.n0 - c.n.lo) // nr * size)
    ways: list[tuple[Expr | None, Box]] = [
        (Binary("lt", at.n0 + nr, c.n.hi), Box(B_COL, size))]
    if c.slices:
        left = c.k.axis.extent - at.k_lo
        steps = Const(c.slices.steps)
        step = simplify(minimum(steps, left)) if c.slices.taps else steps
        ways.append((at.slice_follows(), Box(B_COL, simplify(first + step * nr))))
    around, goes_on = _around(c)
    if around is not None:
        ways.append((goes_on, Box(B_COL, simplify(first - back + around))))
    elif c.slices:
        ways.append((Binary("lt", at.n0 + nr, c.n.axis.extent),
                     Box(B_COL, simplify(size - back))))
    else:
        ways = [(Binary("lt", at.n0 + nr, c.n.axis.extent), Box(B_COL, size))]
    return (Point(B_NEXT, c.micro.dtypes.b, (*ways, (None, Box(c.b.buffer, start)))),)


def _around(c: Contract) -> tuple[Expr | None, Expr | None]:
    """(elements from a panel to the same one in the next step of the loop around the Contract, the
    condition that there is one); (None, None) where no such loop moves the panels."""
    step = stride(c.b.offset, c.outer[-1].axis) if c.outer else None
    if not isinstance(step, Const) or step == Const(0):
        return None, None
    w, *others = reversed(c.outer)
    goes_on: Expr = Binary("lt", w.axis + 1, w.hi)
    if others and w.lo == Const(0) and are_equal(w.hi, w.axis.extent) and are_equal(
            stride(c.b.offset, others[0].axis) or Const(0), step * w.axis.extent):
        v = others[0]  # its next step begins right behind
        goes_on = Binary("or", goes_on, Binary("lt", v.axis + 1, v.hi))
    return step, goes_on


def panel_share(c: Contract, at: TileLoops, expansion: Expansion, depth: Expr) -> tuple[
        Box, Expr] | None:
    """(what a row tile fetches of the next panel, its elements per step of k): all row tiles
    share it evenly, since memory is no faster than it was (while the first three of 32 fetched it,
    128x768x12288 on AVX2 took 1.05 of its time), and into the second cache (8x512x24576 takes 1.75
    of its time if into the first one)."""
    if not _follows(c, expansion):
        return None
    ahead: Expr = at.ahead
    if isinstance(c.row_count, Const):
        ahead = Const(max(min(expansion.how(c, "panel_step"), at.nr), min(
            expansion.line, at.nr, -(-at.nr * c.micro.mr // c.row_count.value))))
    number = at.m0 if c.micro.mr == 1 else Binary("floordiv", at.m0, Const(c.micro.mr))
    last = Const(at.nr - ahead.value) if isinstance(ahead, Const) else Const(at.nr) - ahead
    place = minimum(Binary("mul", number, ahead), last)
    return Box(B_NEXT, Binary("mul", place, simplify(depth))), ahead


# ---------------------------------------------------------------- what an epilogue touches

def has_rows_in_pieces(c: Contract, expansion: Expansion) -> bool:
    """True for a window whose rows are pieces of pixels that other kernels wrote."""
    if not expansion.vectors.prefetches or c.micro.lanes == 1 or c.micro.dtypes.a != "f32":
        return False
    if c.a.mode != "rows" or not c.taps or c.slices or c.a.stride != Const(1) or (
            c.a.buffer in expansion.own):
        return False
    piece, step = c.k.axis.extent, stride(c.a.offset, c.m[-1].axis)
    return (isinstance(piece, Const) and isinstance(step, Const) and piece.value < step.value)


def epilogue_places(c: Contract, expansion: Expansion) -> list[tuple[str, Expr]]:
    """(buffer, offset) of the f32 elements that the epilogue reads and stores, of those that differ
    from row to row and run along the columns; none that an earlier stage of the kernel has just
    stored.  Stores in scratch too: resnet18, whose Winograd products
    store there, takes 0.95 of its time on AVX2 (1.03 in an hour when others used the machine)."""
    if not expansion.vectors.prefetches or c.micro.lanes == 1 or c.turned:
        return []
    rows = {r.axis for r in c.m}
    found = dict.fromkeys((x.buffer, x.index[0]) for p in c.puts
                          for x in unguarded_loads(p.value) if x.buffer not in expansion.own)
    found |= dict.fromkeys((p.buffer, p.offset) for p in c.puts
                           if p.guard is None and p.value.dtype == "f32")
    return [(buffer, at) for buffer, at in found
            if axes_of(at) & rows and stride(at, c.n.axis) == Const(1)
            and not loads(at)]


def unguarded_loads(e: Expr, dtypes: Collection[str] = ("f32",)) -> list[Load]:
    """The loads of ``dtypes`` in an expression that happen whatever the conditions in it say."""
    if isinstance(e, Load):
        return [e] if e.dtype in dtypes else []
    kids = (e.cond,) if isinstance(e, Where) else children(e)
    return [x for k in kids for x in unguarded_loads(k, dtypes)]


def _columns(c: Contract, at: TileLoops, line: int, offset: Expr) -> list[Expr]:
    """Columns of a tile, one in each cache line of a row, none that does not exist."""
    columns, steps = at.nr, [stride(offset, r.axis) for r in c.m]
    aligned = columns % (line // 2) == 0 and all(
        s is not None and simplify(s % line) == Const(0) for s in steps)
    return [at.n0 + j if "columns" in c.whole or not j else minimum(at.n0 + j, c.n.hi - 1)
            for j in [*range(0, columns, line)] + [columns - 1] * (not aligned)]


__all__ = ["epilogue_places", "fetches", "has_rows_in_pieces", "has_known_rows", "next_panel",
           "panel_follows", "panel_share", "share", "unguarded_loads"]
