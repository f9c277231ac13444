"""Places in a table that data says, such as the row of an embedding: found once for all lanes, and
what lies there is fetched some rows ahead, since no hardware foresees it.

128 samples that look up 26 rows of 64 elements each (dlrm's first kernel, with its products) take
0.84 of their time on AVX2.
"""

from collections.abc import Iterable, Sequence, Set
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
from aotc.ir.numbers.narrow import FLOAT_LANES
from aotc.ir.plan import Nest
from aotc.ir.simplify import simplify
from aotc.ir.statements import For, Let, Prefetch, Range, Stmt
from aotc.sched.expand.making import Making


def looked_up(nest: Nest, lane: Range, outer: Sequence[Range],
              making: Making) -> tuple[Nest, list[Stmt]]:
    """(the Nest with such places as names, statements that bind them and fetch ahead), for the
    innermost of the loops over the Ranges ``outer``.  lane: Range of the lanes."""
    moving = {lane.axis, *(r.axis for r in nest.reduce)}
    roots = [x for p in nest.puts for x in (p.offset, p.value)]
    if nest.fold != "none":
        roots.append(nest.body)
    found = list(dict.fromkeys(e for x in roots for e in _places(x, moving)))
    if not found:
        return nest, []
    at = {e: Var(making.fresh("place"), INDEX) for e in found}
    places = [Let(v, e) for e, v in at.items()]
    new = replace(nest, puts=tuple(
        replace(p, offset=substitute(p.offset, at), value=substitute(p.value, at))
        for p in nest.puts))
    if nest.fold != "none":
        new = replace(new, body=substitute(nest.body, at))
    tables = [x for x in dict.fromkeys(n for e in roots for n in walk(e))
              if isinstance(x, Load) and x.dtype in FLOAT_LANES
              and set(found) & set(walk(x.index[0]))
              and stride(substitute(x.index[0], at), lane.axis) == Const(1)]
    return new, [*places, *([] if nest.lanes == 1 else _ahead(tables, lane, outer, making))]


def _places(e: Expr, moving: Set[Axis]) -> list[Expr]:
    """The largest index expressions with a place from data that no axis of ``moving`` moves and
    that are evaluated whatever the conditions in ``e`` say."""
    if e.dtype == INDEX and not axes_of(e) & moving and any(map(_is_checked, walk(e))):
        return [e]
    kids = (e.cond,) if isinstance(e, Where) else children(e)
    return [x for k in kids for x in _places(k, moving)]


def _ahead(tables: Iterable[Load], lane: Range, outer: Sequence[Range],
           making: Making) -> list[Stmt]:
    """Statements that fetch what the Loads ``tables`` read ``lookup_rows`` steps of the innermost
    loop later."""
    extent = simplify(lane.hi - lane.lo)
    if not outer or not isinstance(extent, Const) or not making.vectors.prefetches:
        return []
    row, step = outer[-1], making.tuning.line_floats
    out: list[Stmt] = []
    later = {row.axis: minimum(row.axis + making.tuning.lookup_rows, row.hi - 1)}
    for x in tables:
        index = substitute(x.index[0], {**later, lane.axis: lane.lo})
        if row.axis not in axes_of(index):  # another loop looks it up
            continue
        places = {e: rewrite(e, _inside) for e in dict.fromkeys(_checks(index))}
        at = {e: Var(making.fresh("later"), INDEX) for e in places}
        out += [Let(at[e], place) for e, place in places.items()]
        most = making.tuning.lookup_lines * step
        line = Axis(making.fresh("line"), Const(min(extent.value, most)))
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
