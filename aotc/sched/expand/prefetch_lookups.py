"""Places in a table that data says, such as the row of an embedding: found once for all lanes, and
what lies there is fetched some rows ahead, since no hardware foresees it.

128 samples that look up 26 rows of 64 elements each (dlrm's first kernel, with its products) take
0.84 of their time on AVX2.
"""

from collections.abc import Sequence, Set
from dataclasses import replace
from typing import TypeGuard

from aotc.ir.access import stride
from aotc.ir.dtypes import INDEX
from aotc.ir.expr import (
    Axis,
    Const,
    Expr,
    Guarded,
    Load,
    Var,
    Where,
    axes_of,
    children,
    maximum,
    minimum,
    rewrite,
    substitute,
    walk,
)
from aotc.ir.kernel.plan_stages import Nest
from aotc.ir.numbers.narrow import FLOAT_LANES
from aotc.ir.simplify import simplify
from aotc.ir.statements import For, Let, Prefetch, Range, Stmt
from aotc.sched.expand.expansion import Expansion


def name_places(nest: Nest, lane: Range, expansion: Expansion) -> tuple[Nest, list[Let]]:
    """(the Nest with such places as names, statements that bind them); lane: Range of the lanes."""
    at = {e: Var(expansion.fresh("place"), INDEX) for e in _found(nest, lane)}
    if not at:
        return nest, []
    new = replace(nest, puts=tuple(
        replace(p, offset=substitute(p.offset, at), value=substitute(p.value, at))
        for p in nest.puts))
    if nest.fold != "none":
        new = replace(new, body=substitute(nest.body, at))
    return new, [Let(v, e) for e, v in at.items()]


def find_tables_ahead(nest: Nest, lane: Range, outer: Sequence[Range],
                      expansion: Expansion) -> list[Load]:
    """The Loads of rows of a table, at such places, that may be fetched some steps of the innermost
    of the loops over ``outer`` ahead."""
    found = _found(nest, lane)
    if (not found or nest.lanes == 1 or not outer or not expansion.vectors.prefetches
            or not isinstance(simplify(lane.hi - lane.lo), Const)):
        return []
    at = {e: Var(f"place{i}", INDEX) for i, e in enumerate(found)}
    return [x for x in dict.fromkeys(n for e in _roots(nest) for n in walk(e))
            if isinstance(x, Load) and x.dtype in FLOAT_LANES
            and set(found) & set(walk(x.index[0]))
            and outer[-1].axis in axes_of(x.index[0])  # else another loop looks it up
            and stride(substitute(x.index[0], at), lane.axis) == Const(1)]


def _roots(nest: Nest) -> list[Expr]:
    """All that a Nest evaluates."""
    roots = [x for p in nest.puts for x in (p.offset, p.value)]
    return roots if nest.fold == "none" else [*roots, nest.body]


def _found(nest: Nest, lane: Range) -> list[Expr]:
    """The places that are the same for all lanes and all steps of the fold."""
    moving = {lane.axis, *(r.axis for r in nest.reduce)}
    return list(dict.fromkeys(e for x in _roots(nest) for e in _places(x, moving)))


def _places(e: Expr, moving: Set[Axis]) -> list[Expr]:
    """The largest index expressions with a place from data that no axis of ``moving`` moves and
    that are evaluated whatever the conditions in ``e`` say."""
    if e.dtype == INDEX and not axes_of(e) & moving and any(map(_is_checked, walk(e))):
        return [e]
    kids = (e.cond,) if isinstance(e, Where) else children(e)
    return [x for k in kids for x in _places(k, moving)]


def prefetch_rows_ahead(nest: Nest, lane: Range, outer: Sequence[Range],
                        expansion: Expansion) -> list[Stmt]:
    """Statements that fetch what the Loads of ``find_tables_ahead`` read ``lookup_rows`` steps of
    the innermost loop later."""
    tables = find_tables_ahead(nest, lane, outer, expansion)
    if not tables or not (rows := expansion.how(nest, "lookup_rows")):
        return []
    row, step, extent = outer[-1], expansion.line, simplify(lane.hi - lane.lo)
    assert isinstance(extent, Const), lane  # of ``find_tables_ahead``
    out: list[Stmt] = []
    later = {row.axis: minimum(row.axis + rows, row.hi - 1)}
    for x in tables:
        index = substitute(x.index[0], {**later, lane.axis: lane.lo})
        places = {e: rewrite(e, _inside) for e in dict.fromkeys(_checks(index))}
        at = {e: Var(expansion.fresh("later"), INDEX) for e in places}
        out += [Let(at[e], place) for e, place in places.items()]
        most = expansion.how(nest, "lookup_lines") * step
        line = Axis(expansion.fresh("line"), Const(min(extent.value, most)))
        first = simplify(substitute(index, at)) + line
        out.append(For(line, Const(0), line.extent, (Prefetch(x.buffer, first, far=True),),
                       step=step))
    return out


def _checks(e: Expr) -> list[Expr]:
    """The checked places in an index that lie in no other one."""
    if _is_checked(e):
        return [e]
    return [x for k in children(e) for x in _checks(k)]


def _inside(e: Expr) -> Expr | None:
    """A checked place bounded instead: what lies outside of the table faults where it is read."""
    return minimum(maximum(e.a, Const(0)), e.b - 1) if _is_checked(e) else None


def _is_checked(e: Expr) -> TypeGuard[Guarded]:
    return isinstance(e, Guarded) and e.op == "checked"
