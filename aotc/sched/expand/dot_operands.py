"""Operands of narrow products: rows that are packed run by run, panels of whole steps."""

from collections.abc import Collection

from aotc.ir.access import stride
from aotc.ir.category import row_source, zero_outside
from aotc.ir.conditions import conjuncts
from aotc.ir.dtypes import DTYPES, INDEX
from aotc.ir.expr import (
    Axis,
    Binary,
    Const,
    Expr,
    Load,
    all_hold,
    axes_of,
    compare,
    minimum,
    substitute,
    walk,
)
from aotc.ir.kernel.plan_stages import Contract
from aotc.ir.simplify import simplify, split_linear, upper
from aotc.ir.statements import Body, Box, Copy, Fill, If, Put, Range, Stmt, Store
from aotc.ir.tile_statements import Expand, Pack, Point, dot_step, whole_steps
from aotc.sched.expand.nests import loops
from aotc.sched.expand.tile_loops import B_COL, TileLoops, extent_of, flat_index


def pad_row(c: Contract) -> Body:
    """The row that is read in place of the padding."""
    return (Fill(c.a.pad, Const(0), c.k.axis.extent, c.a.packed),) if c.a.pad else ()


def dot_sizes(c: Contract) -> tuple[Expr, Expr, Expr, Expr]:
    """(taps, groups of ``dot_step`` products per tap, 1, 0: B is one run) of a tile's sums."""
    taps = extent_of(c.taps) if c.a.mode == "rows" else Const(1)
    assert isinstance(taps, Const), c.taps  # ``check_schedule`` refuses others
    groups = simplify(_depth(c)[1] // (taps.value * dot_step(c.micro.dtypes.a)))
    return taps, groups, Const(1), Const(0)


def dot_columns(c: Contract, at: TileLoops) -> Body:
    """Bind ``~b_col``, the panel, which computed columns are packed into now."""
    if c.b.mode == "packed":
        packed = Box(c.b.buffer, Const(0))
        return (*_packed_columns(c, at), Point(B_COL, c.micro.dtypes.b, ((None, packed),)))
    here = simplify(substitute(c.b.offset, {c.n.axis: at.n0}))
    if c.b.mode == "expanded":
        return expand_panel(c, at, here, c.k.axis.extent)
    return (Point(B_COL, c.micro.dtypes.b, ((None, Box(c.b.buffer, here)),)),)


def expand_panel(c: Contract, at: TileLoops, here: Expr, depth: Expr) -> Body:
    """Bind ``~b_col`` to the columns of one panel of grouped weights, expanded now: ``depth`` steps
    from ``here`` on."""
    assert c.micro.grouping is not None, c.row
    return (Expand(c.b.pad, c.b.buffer, here, depth, at.nr, c.micro.grouping, c.micro.dtypes.a),
            Point(B_COL, c.micro.dtypes.b, ((None, Box(c.b.pad, Const(0))),)))


def _packed_columns(c: Contract, at: TileLoops) -> Body:
    """The columns of one panel, a step of the sum after the other; zeros behind the last term."""
    live, _ = _depth(c)
    found = _pack(c, at, live)
    if found is not None:
        return (found,)
    step, width = dot_step(c.micro.dtypes.a), dot_step(c.micro.dtypes.a) * at.nr
    count, left = simplify(live // step), simplify(live % step)
    whole = Axis(at.k_lo.name, count)
    column = simplify((c.n.axis - at.n0) * step)

    def puts(first: Expr, terms: Expr) -> tuple[Put, ...]:
        values = [zero_outside(
            substitute(c.b.packed, {c.k.axis: simplify(first * step + u)}),
            compare("lt", u, terms) if u else None) for u in range(step)]
        return tuple(Put(c.b.buffer, simplify(first * width + column + u), simplify(v))
                     for u, v in enumerate(values))

    lanes = Range(c.n.axis, at.n0, simplify(minimum(at.n0 + at.nr, c.n.hi)))
    steps = Range(whole, Const(0), count)
    unit = stride(c.b.packed.index[0], c.n.axis) if isinstance(c.b.packed, Load) else None
    order = (steps, lanes) if unit == Const(1) else (lanes, steps)  # along what lies side by side
    body = loops(order, (Store(puts(whole, Const(step))),))
    rest = loops((lanes,), (Store(puts(count, left)),))
    if not isinstance(left, Const):
        return (*body, If(compare("gt", left, 0), rest))
    return (*(body if count != Const(0) else ()), *(rest if left != Const(0) else ()))


def _pack(c: Contract, at: TileLoops, depth: Expr) -> Pack | None:
    """The same as one statement, of columns that lie along the sum, or side by side, in memory;
    None for others."""
    value, lane, k = c.b.packed, c.n.axis, c.k.axis
    if c.taps or not isinstance(value, Load):
        return None
    place = value.index[0]
    first = simplify(substitute(place, {lane: at.n0, k: Const(0)}))
    count = simplify(minimum(at.columns_left, Const(at.nr)))
    for fast, slow in ((k, lane), (lane, k)):
        parts = split_linear(place, slow)
        if parts is not None and stride(place, fast) == Const(1):
            return Pack(c.b.buffer, value.buffer, first, parts[0], count, depth, at.nr,
                        c.micro.dtypes.b, fast == lane)
    return None


def dot_rows(c: Contract, at: TileLoops, shortest: int) -> tuple[Expr, Body]:
    """(elements of a packed row, statements that pack row ``~i``), zeros behind the last product.
    shortest: bytes side by side from which on they are copied (the choice ``copied_run``)."""
    live, depth = _depth(c)
    row, left = simplify(at.i * depth), simplify(depth - live)
    body = _copied_runs(c, row, shortest)
    if left != Const(0):
        body = (*body, Fill(c.a.buffer, simplify(row + live), left, Const(0, c.micro.dtypes.a)))
    return depth, body


def _depth(c: Contract) -> tuple[Expr, Expr]:
    """(products per column, the same up to a whole step)."""
    n = extent_of((*c.taps, c.k))
    return n, whole_steps(n, c.micro.dtypes.a)


def _copied_runs(c: Contract, row: Expr, shortest: int) -> Body:
    """One row of the sum, run by run: what lies side by side in memory is copied at once, unless
    the padding cuts it."""
    inner, value = (*c.taps, c.k), c.a.packed
    load, guard, _ = row_source(value)
    at, size = len(inner), extent_of(())
    cond = [] if guard is None else conjuncts(guard)
    while load is not None and at and stride(load.index[0], inner[at - 1].axis) == size and (
            all(_decided_at_ends(x, [r.axis for r in inner[at - 1:]]) for x in cond)):
        at -= 1
        size = extent_of(inner[at:])
    most = upper(size * DTYPES[c.micro.dtypes.a].size)
    one = loops(inner[at:], (Store((Put(c.a.buffer, simplify(row + flat_index(inner)), value),)),))
    if load is None or most is not None and most < shortest:
        return loops(inner[:at], one)
    ends: list[dict[Expr, Expr]] = [
        {r.axis: simplify(e) for r, e in zip(inner[at:], end)}
        for end in ([Const(0)] * len(inner[at:]), [r.axis.extent - 1 for r in inner[at:]])]
    copy, _ = _run(c, row, load, inner, at)
    if guard is None:
        return loops(inner[:at], (copy,))
    inside = all_hold(dict.fromkeys(x for e in ends for x in conjuncts(
        simplify(substitute(guard, e)))))
    assert inside is not None  # a guard has a condition at least
    cut = max((d + 1 for d, r in enumerate(inner) if r.axis in axes_of(guard)), default=0)
    if cut < len(inner):  # of a run that the padding cuts, parts that it does not
        part, fill = _run(c, row, load, inner, max(at, cut))
        one = loops(inner[at:cut], (If(guard, (part,), (fill,)),)) if cut > at else (fill,)
    return loops(inner[:at], (If(inside, (copy,), one),))


def _run(c: Contract, row: Expr, load: Load, inner: tuple[Range, ...],
         at: int) -> tuple[Stmt, Stmt]:
    """The copy of all that lies side by side along the axes of a sum from the given one on, and
    what fills as much with the value outside the padding."""
    first: dict[Expr, Expr] = {r.axis: Const(0) for r in inner[at:]}
    to = simplify(row + substitute(flat_index(inner), first))
    source, size = simplify(substitute(load.index[0], first)), extent_of(inner[at:])
    _, _, outside = row_source(c.a.packed)
    return (Copy(Box(c.a.buffer, to, (Const(1),)), Box(load.buffer, source, (Const(1),)), (size,),
                 c.micro.dtypes.a),
            Fill(c.a.buffer, to, size, Const(outside, c.micro.dtypes.a)))


def _decided_at_ends(cond: Expr, axes: Collection[Axis]) -> bool:
    """True if a condition holds all along ``axes`` where it holds at their two ends: it is a
    comparison of index arithmetic that is linear in one of them and free of the others."""
    found = axes_of(cond) & set(axes)
    if not found:
        return True
    return len(found) == 1 and isinstance(cond, Binary) and cond.op in (
        "lt", "le", "gt", "ge") and cond.a.dtype == INDEX and not any(
            isinstance(n, Load) for n in walk(cond)) and stride(
                simplify(cond.a - cond.b), next(iter(found))) is not None


__all__ = ["dot_columns", "dot_rows", "dot_sizes", "expand_panel", "pad_row"]
