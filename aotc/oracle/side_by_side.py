"""Which loops' iterations may run side by side: none needs what another one does."""

from collections.abc import Iterable

from aotc.ir.block_statements import Fetch, needs_order
from aotc.ir.contents import expressions
from aotc.ir.expr import Load, walk
from aotc.ir.kernel.row_statements import HeldRow
from aotc.ir.statements import (
    SUMS,
    Alloc,
    Body,
    Copy,
    Declare,
    Fill,
    For,
    Stmt,
    Store,
    Update,
    walk_body,
)
from aotc.ir.tile_statements import Expand, Pack, Point, RowTable, Tile

POINTS = 1 << 20  # at most
TILE_POINTS = 1 << 9  # of register tiles


def may_run_at_once(loop: For, body: Body, points: int) -> bool:
    """True if the iterations of a loop with that body may run at once, ``points`` in all."""
    inner = list(walk_body(body))
    if points > (TILE_POINTS if any(isinstance(s, Tile) for s in inner) else POINTS):
        return False
    if needs_order(inner):
        return False
    declared = {s.var.name for s in inner if isinstance(s, Declare)}
    if any(v.name not in declared for s in inner if isinstance(s, Update) for v in s.vars):
        return False
    return not (stored_buffers(inner) & loaded_buffers(inner)) - own_arrays(inner)


def own_arrays(body: Iterable[Stmt]) -> set[str]:
    """The arrays that each iteration has of its own."""
    body = list(body)
    tiles = any(isinstance(s, Tile) and s.in_place for s in body)
    return {s.name for s in body if isinstance(s, (Alloc, HeldRow))} | ({SUMS} if tiles else set())


def stored_buffers(body: Iterable[Stmt]) -> set[str]:
    """The buffers that statements store into."""
    out = set()
    for s in body:
        if isinstance(s, Store):
            out |= {p.buffer for p in s.puts}
        elif isinstance(s, (Copy, Fetch)):
            out.add(s.to.buffer)
        elif isinstance(s, Fill):
            out.add(s.buffer)
        elif isinstance(s, (Pack, Expand)):
            out.add(s.to)
    return out


def loaded_buffers(body: Iterable[Stmt]) -> set[str]:
    """The buffers that statements read."""
    out = set()
    for s in body:
        out |= {n.buffer for e in expressions(s) for n in walk(e) if isinstance(n, Load)}
        if isinstance(s, (Copy, Fetch)):
            out.add(s.source.buffer)
        elif isinstance(s, (Pack, Expand)):
            out.add(s.source)
        elif isinstance(s, RowTable):
            out |= {s.buffer, s.outside}
        elif isinstance(s, Point):
            out |= {at.buffer for _, at in s.ways}
        elif isinstance(s, Tile):
            out |= {r.buffer for r in s.a.places} | ({s.start.buffer} if s.start else set())
    return out


__all__ = ["loaded_buffers", "may_run_at_once", "stored_buffers"]
