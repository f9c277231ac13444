"""Rows whose number data says at places that are data: looked up, kept, cut out of images, put back
into a tensor."""

from aotc.frontend.graph import Graph, Node
from aotc.frontend.masked import MASK, OfMask
from aotc.frontend.row_values import (
    Alike,
    Found,
    Row,
    Rows,
    Rule,
    Shapes,
    made_row,
    meeting,
    merged,
    summed_over,
)
from aotc.ir.expr import Const


def _gathered(graph: Graph, n: Node, rows: Rows, shape: Shapes) -> Found | None:
    """Elements taken at the places in a tensor, of each of its rows or among them."""
    of, at = n.inputs
    ranks = len(shape(of) or ()), len(shape(at) or ())
    axis = n.attr("axis", 0) % max(ranks[0], 1)
    places = rows.get(at, ())
    if of == at or not all(r.places for r in places):
        return None
    made = [Row(n.outputs[0], axis + r.axis, r.start, False) for r in places]
    made += [Row(n.outputs[0], r.axis + (ranks[1] - 1 if axis < r.axis else 0), r.start, r.places)
             for r in rows.get(of, ()) if r.axis != axis]
    return Found(tuple(made), inside=tuple(r for r in rows.get(of, ()) if r.axis == axis))


def _gathered_points(graph: Graph, n: Node, rows: Rows, shape: Shapes) -> Found | None:
    """Elements of a tensor taken at points, whose coordinates are the last axis."""
    of, at = n.inputs
    last = len(shape(at) or ()) - 1
    if of in rows or n.attr("batch_dims", 0) or any(
            r.axis == last or not r.places for r in rows[at]):
        return None
    return merged(made_row(n, r.axis, r) for r in rows[at])


def _cut_out(graph: Graph, n: Node, rows: Rows, shape: Shapes) -> Found | None:
    """Regions of images: of those that are none, of the first image."""
    regions, numbers = (rows.get(i, ()) for i in n.inputs[1:])
    if n.inputs[0] in rows or len(regions) != 1 or len(numbers) != 1 or regions[0].axis or (
            not numbers[0].places):
        return None
    met = meeting([(n.inputs[1], 0), (n.inputs[2], 0)], rows)
    assert met is not None, n
    return Found(made_row(n, 0, regions[0]).rows, (), met[1])


def _kept(graph: Graph, n: Node, rows: Rows, shape: Shapes) -> Found | None:
    """Rows of which a condition, as long, keeps some."""
    of, keep = n.inputs
    axis = n.attr("axis")
    if axis is None and len(shape(of) or ()) > 1:
        return None
    axis = (axis or 0) % max(len(shape(of) or ()), 1)
    mine, there = [r for r in rows.get(of, ()) if r.axis == axis], rows.get(keep, ())
    if bool(mine) != bool(there):
        return None
    others = tuple(Row(n.outputs[0], r.axis, r.start, r.places)
                   for r in rows.get(of, ()) if r.axis != axis)
    met = meeting([(keep, 0), (of, axis)], rows) if there else None
    return Found(others, tuple(there), met[1] if met else ())


def _put_in(graph: Graph, n: Node, rows: Rows, shape: Shapes) -> Found | None:
    """Updates at as many places, and what they are put into."""
    of_mask = n.attr(MASK)
    if isinstance(of_mask, OfMask):
        return _by_mask(n, of_mask, rows, shape)
    into, at, new = n.inputs
    if len(set(n.inputs)) < 3:
        return None
    rank, places = len(shape(into) or ()), shape(at) or ()
    if n.op == "ScatterND":
        lead, width = len(places) - 1, places[-1]
        if not isinstance(width, Const) or any(r.axis == lead for r in rows.get(at, ())):
            return None
        named = set(range(width.value))
        updates = [summed_over([(at, k), (new, k)], rows) for k in range(lead)]
        rest = {k: [(into, k), (new, k - width.value + lead)] for k in range(width.value, rank)}
    else:
        named = {n.attr("axis", 0) % max(rank, 1)}
        updates = [summed_over([(at, k), (new, k)], rows) for k in named]
        rest = {k: [(t, k) for t in n.inputs] for k in set(range(rank)) - named}
    made = [Row(n.outputs[0], r.axis, r.start, False) for r in rows.get(into, ())]
    beside: tuple[Alike, ...] = ()
    for k, axes in rest.items():
        met = meeting(axes, rows)
        if met is not None and k not in {r.axis for r in made}:
            return None
        beside += met[1] if met else ()
    inside = tuple(r for r in rows.get(into, ()) if r.axis in named)
    return merged([*updates, Found(tuple(made), (), beside, inside)])


def _by_mask(n: Node, how: OfMask, rows: Rows, shape: Shapes) -> Found | None:
    """A choice between old and new elements, a mask along the first axes."""
    into, mask, value = n.inputs
    rank, lead, ahead = (len(shape(i) or ()) for i in n.inputs)
    if how.rows == "one" and value in rows:
        return None
    found: list[Found] = []
    for k in range(rank):
        axes = [(into, k)] + [(mask, k)] * (k < lead)
        at = k if how.rows == "all" else k - rank + ahead  # of the value, -1 and below: none
        if how.rows == "all" or how.rows == "alike" and k >= lead and at >= 0:
            axes.append((value, at))
        met = meeting(axes, rows, shape)
        if met is not None:
            found.append(Found((Row(n.outputs[0], k, met[0], False),), (), met[1]))
    return merged(found)


PLACED: dict[str, Rule] = {
    "Gather": _gathered, "GatherND": _gathered_points, "RoiAlign": _cut_out, "Compress": _kept,
    "ScatterND": _put_in, "ScatterElements": _put_in, "Scatter": _put_in}

__all__ = ["PLACED"]
