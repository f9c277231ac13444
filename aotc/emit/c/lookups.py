"""Places in a table that data says, such as the row of an embedding: found once for all lanes, and
what lies there is fetched some rows ahead, since no hardware foresees it.

128 samples that look up 26 rows of 64 elements each (dlrm's first kernel, with its products) take
0.84 of their time on AVX2.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from typing import TypeGuard

from aotc.emit.c.ahead import LINE
from aotc.emit.c.scalars import Names, Scalars
from aotc.emit.text.env import KernelEnv
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
from aotc.ir.narrow import FLOAT_LANES
from aotc.ir.plan import Nest, Range
from aotc.ir.simplify import simplify

ROWS_AHEAD = 8  # 4 and 16 take dlrm 1.00 to 1.01 of its time
MOST_LINES = 16  # of a row: of a longer one, the rest is a stream (not measured)


def looked_up(nest: Nest, lane: Range, outer: Sequence[Range], env: KernelEnv,
              names: Names) -> tuple[Nest, list[str]]:
    """(the Nest with such places as C constants, C lines that declare them and fetch ahead), for
    the innermost of the loops over the Ranges ``outer``.  lane: Range of the lanes."""
    moving = {lane.axis, *(r.axis for r in nest.reduce)}
    roots = [x for p in nest.puts for x in (p.offset, p.value)]
    if nest.fold != "none":
        roots.append(nest.body)
    found = list(dict.fromkeys(e for x in roots for e in _places(x, moving)))
    if not found:
        return nest, []
    block = Scalars(env, names, found)
    texts = [block.text(e) for e in found]
    at = {e: Var(names.fresh("at"), INDEX) for e in found}
    lines = block.lines + [f"const int64_t {v.name} = {t};" for v, t in zip(at.values(), texts)]
    new = replace(nest, puts=tuple(
        replace(p, offset=substitute(p.offset, at), value=substitute(p.value, at))
        for p in nest.puts))
    if nest.fold != "none":
        new = replace(new, body=substitute(nest.body, at))
    tables = [x for x in dict.fromkeys(n for e in roots for n in walk(e))
              if isinstance(x, Load) and x.dtype in FLOAT_LANES
              and set(found) & set(walk(x.index[0]))
              and stride(substitute(x.index[0], at), lane.axis) == Const(1)]
    return new, lines + ([] if nest.lanes == 1 else _ahead(tables, lane, outer, env, names))


def _places(e: Expr, moving: Set[Axis]) -> list[Expr]:
    """The largest index expressions with a place from data that no axis of ``moving`` moves and
    that are evaluated whatever the conditions in ``e`` say."""
    if e.dtype == INDEX and not axes_of(e) & moving and any(map(_is_checked, walk(e))):
        return [e]
    kids = (e.cond,) if isinstance(e, Where) else children(e)
    return [x for k in kids for x in _places(k, moving)]


def _ahead(tables: Iterable[Load], lane: Range, outer: Sequence[Range], env: KernelEnv,
           names: Names) -> list[str]:
    """C lines that fetch what the Loads ``tables`` read ROWS_AHEAD steps of the innermost loop
    later."""
    extent = simplify(lane.hi - lane.lo)
    if not outer or not isinstance(extent, Const) or not env["dialect"].prefetches:
        return []
    row, lines = outer[-1], []
    later = {row.axis: minimum(row.axis + ROWS_AHEAD, row.hi - 1)}
    for x in tables:
        index = substitute(x.index[0], {**later, lane.axis: lane.lo})
        if row.axis not in axes_of(index):  # another loop looks it up
            continue
        places = {e: rewrite(e, _inside) for e in dict.fromkeys(_checks(index))}
        block, at = Scalars(env, names, places.values()), {}
        for e, place in places.items():
            at[e] = Var(names.fresh("later"), INDEX)
            text = block.text(place)
            block.lines.append(f"const int64_t {at[e].name} = {text};")
        first = block.text(simplify(substitute(index, at)), 12)
        lines += block.lines + [
            f"for (int64_t i = 0; i < {min(extent.value, MOST_LINES * LINE)}; i += {LINE}) {{",
            f"    AOTC_PREFETCH_FAR({env['buffer'](x.buffer)}, {first} + i);", "}"]
    return lines


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
