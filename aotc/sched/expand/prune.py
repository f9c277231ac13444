"""What needs no statement has none: names that nothing uses or that say another name again, loops
of one turn."""

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from aotc.ir.contents import buffers_in, names_in, substitute_axes
from aotc.ir.expr import Axis, Const, Expr, substitute
from aotc.ir.simplify import simplify
from aotc.ir.statements import (
    OWN,
    Alloc,
    Body,
    Declare,
    For,
    If,
    Let,
    Range,
    Scope,
    Section,
    Spread,
    Start,
    Stmt,
    Total,
    Update,
    bodies,
    bound_axes,
    walk_body,
    with_bodies,
)
from aotc.ir.tile_statements import Point, RowCounters, RowTable

S = TypeVar("S")
_ROWS = (RowCounters, RowTable)  # they bind names that their axes say


def _bound(body: Body) -> set[str]:
    """Names that statements bind for those behind them."""
    return {s.var.name if isinstance(s, (Let, Start, Declare, Total)) else s.name
            for s in body if isinstance(s, (Let, Start, Declare, Total, Alloc, Point))}


def _binds_rows(body: Body) -> bool:
    return any(isinstance(s, _ROWS) for s in body)


def _meets(turn: Body, others: Body) -> bool:
    """True if a name that ``turn`` binds for what is behind it is bound by other statements, too,
    or inside them."""
    names = _bound(turn)
    if not names and not _binds_rows(turn):
        return False
    inside = [*walk_body(others)]
    return bool(names & (_bound(tuple(inside)) | {a.name for s in inside for a in bound_axes(s)})
                ) or _binds_rows(turn) and _binds_rows(tuple(inside))


def prune_body(body: Body) -> Body:
    """The body without names that no later statement uses or that say another name again."""
    used, out = set[str](), list[Stmt]()
    for i, s in reversed([*enumerate(body)]):
        if isinstance(s, Let) and s.var.name not in used:
            continue
        if isinstance(s, Point) and s.name not in used:
            continue
        if isinstance(s, Let) and (same := _other_name(s, tuple(out))) is not None:
            out = [*substitute_axes(tuple(out), {s.var: same})]
            used = used - {s.var.name} | {same.name}
            continue
        if isinstance(s, RowTable):
            s = replace(s, values=tuple(r.axis for r in s.rows if f"{OWN}{r.axis.name}_at" in used))
        s = prune_inside(with_single_values(s, s.ranges) if isinstance(s, Spread) else s)
        turn = _turned_once(s)
        if turn is not None and _meets(turn, (*body[:i], *out)):
            turn = (Scope(turn),)  # its names end here
        for x in reversed((s,) if turn is None else turn):
            out.append(x)
            used |= names_in(x) | buffers_in(x).keys()
    return tuple(reversed(out))


def _other_name(s: Let, behind: Body) -> Axis | None:
    """What can stand in place of a name in all of ``behind``: the name whose value it takes.  None
    where it takes another value, or either of them changes there."""
    new = s.value
    if not isinstance(s.var, Axis) or not isinstance(new, Axis):
        return None
    inside = [*walk_body(behind)]
    changed = {v.name for x in inside if isinstance(x, Update) for v in x.vars}
    changed |= {a.name for x in inside for a in bound_axes(x)}
    if changed & {s.var.name, new.name}:
        return None
    # of a work item: it keeps the bounds that are known of this name, which may be narrower
    return replace(s.var, name=new.name) if any(isinstance(x, Section) for x in inside) else new


def with_single_values(s: S, over: Iterable[Range]) -> S:
    """A statement or stage with its value in place of each axis of the ranges ``over`` that has a
    single one with a name."""
    new: dict[Expr, Expr] = {r.axis: r.lo for r in over if isinstance(r.lo, (Axis, Const))
                             and simplify(r.hi - r.lo) == Const(1)}

    def instead(value: Any) -> Any:
        if isinstance(value, Range):  # its axis stays, for those that count through all ranges
            return replace(value, lo=instead(value.lo), hi=instead(value.hi))
        if isinstance(value, tuple):
            return tuple(map(instead, value))
        return substitute_axes(value, new)

    if not new:
        return s
    value: Any = s
    changed: S = replace(value, **{
        f.name: instead(getattr(value, f.name)) for f in fields(value) if f.init})
    return changed


def _turned_once(s: Stmt) -> Body | None:
    """The body of a loop of one turn, with that value in place of its axis; None for others."""
    if not isinstance(s, For) or s.kind != "serial" or not _is_one_turn(s) or any(
            isinstance(x, Update) for x in walk_body(s.body)):  # states that nothing would read
        return None
    if isinstance(s.lo, (Const, Axis)):
        body: Body = substitute_axes(s.body, {s.axis: s.lo})
        return body
    body = _decided(s.body, {s.axis: s.lo})
    return (Let(s.axis, s.lo), *body) if s.axis.name in names_in(body) else body


def _is_one_turn(s: For) -> bool:
    """True if the axis takes one value: a last step that is cut short counts, unless other
    statements stand for its values."""
    turns = simplify(s.hi - s.lo)
    return isinstance(turns, Const) and (
        turns.value == s.step if s.rest else 0 < turns.value <= s.step)


def _decided(body: Body, new: Mapping[Expr, Expr]) -> Body:
    """The body with one side of each condition that values of axes decide."""
    out: list[Stmt] = []
    for s in body:
        s = with_bodies(s, {name: _decided(b, new) for name, b in bodies(s)})
        cond = simplify(substitute(s.cond, new)) if isinstance(s, If) else None
        if isinstance(s, If) and isinstance(cond, Const):
            side = s.body if cond.value else s.other
            out += [Scope(side)] if _bound(side) or _binds_rows(side) else side
        else:
            out.append(s)
    return tuple(out)


def prune_inside(s: Stmt) -> Stmt:
    """The statement with its bodies pruned."""
    inner = {name: prune_body(b) for name, b in bodies(s)}
    return with_bodies(s, inner)


__all__ = ["prune_body", "with_single_values"]
