"""Names that nothing uses are not bound."""

from dataclasses import replace

from aotc.ir.statements import OWN, Body, Let, Stmt, bodies, names_in, strings_in, with_bodies
from aotc.ir.tile_statements import Point, RowTable


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
        out.append(s)
        used |= names_in(s) | strings_in(s).keys()
    return tuple(reversed(out))


def within(s: Stmt) -> Stmt:
    """The statement with its bodies pruned."""
    inner = {name: pruned(b) for name, b in bodies(s)}
    return with_bodies(s, inner)


__all__ = ["pruned"]
