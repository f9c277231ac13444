"""What needs no statement has none: names that nothing uses, loops of one turn."""

from dataclasses import replace

from aotc.ir.contents import buffers_in, names_in, substituted
from aotc.ir.expr import Const
from aotc.ir.simplify import simplify
from aotc.ir.statements import (
    OWN,
    Alloc,
    Body,
    Declare,
    For,
    Let,
    Scope,
    Start,
    Stmt,
    Update,
    bodies,
    walk_body,
    with_bodies,
)
from aotc.ir.tile_statements import Point, RowTable

_BINDS = (Let, Start, Declare, Alloc, Point, RowTable)


def pruned(body: Body, outside: frozenset[str] = frozenset()) -> Body:
    """The body without names that no later statement uses.  ``outside``: what is used behind it."""
    used, out = set(outside), []
    for s in reversed(body):
        if isinstance(s, Let) and s.var.name not in used:
            continue
        if isinstance(s, Point) and s.name not in used:
            continue
        if isinstance(s, RowTable):
            s = replace(s, values=tuple(r.axis for r in s.rows if f"{OWN}{r.axis.name}_at" in used))
        s = within(s)
        turn = _turned_once(s)
        if turn is not None and len(body) > 1 and any(isinstance(x, _BINDS) for x in turn):
            turn = (Scope(turn),)  # its names end here
        for x in reversed((s,) if turn is None else turn):
            out.append(x)
            used |= names_in(x) | buffers_in(x).keys()
    return tuple(reversed(out))


def _turned_once(s: Stmt) -> Body | None:
    """The body of a loop of one turn, with that value in place of its axis; None for others."""
    if not isinstance(s, For) or s.kind != "serial" or s.step > 1 or (
            simplify(s.hi - s.lo) != Const(1)) or any(
                isinstance(x, Update) for x in walk_body(s.body)):  # states that nothing would read
        return None
    if isinstance(s.lo, Const):
        body: Body = substituted(s.body, {s.axis: s.lo})
        return body
    return (Let(s.axis, s.lo), *s.body) if s.axis.name in names_in(s.body) else s.body


def within(s: Stmt) -> Stmt:
    """The statement with its bodies pruned."""
    inner = {name: pruned(b) for name, b in bodies(s)}
    return with_bodies(s, inner)


__all__ = ["pruned"]
