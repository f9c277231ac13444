"""Rows whose number data says at places that are data: looked up, kept, cut out of images, put back
into a tensor."""

from collections.abc import Iterable

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
    match_rows,
    merge_found,
    sum_over_rows,
)
from aotc.ir.expr import Const


def _gathered(graph: Graph, n: Node, rows: Rows, shape: Shapes) -> Found | None:
    """Elements taken at the places in a tensor, of each of its rows or among them."""
    of, at = n.inputs
    ranks = len(shape(of) or ()), len(shape(at) or ())
    axis = n.attr("axis", 0) % max(ranks[0], 1)
    places = rows.get(at, ())
    if of == at:
        return None
    made = [Row(n.outputs[0], axis + r.axis, r.start, False) for r in places]
    made += [Row(n.outputs[0], r.axis + (ranks[1] - 1 if axis < r.axis else 0), r.start, r.places)
             for r in rows.get(of, ()) if r.axis != axis]
    return Found(tuple(made), inside=tuple(r for r in rows.get(of, ()) if r.axis == axis),
                 zeroed=_no_places(places))


def _no_places(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Rows of places that are none behind the elements that there are: they become zeros."""
    return tuple(r for r in rows if not r.places)


def _gathered_points(graph: Graph, n: Node, rows: Rows, shape: Shapes) -> Found | None:
    """Elements of a tensor taken at points, whose coordinates are the last axis."""
    of, at = n.inputs
    last = len(shape(at) or ()) - 1
    if of in rows or n.attr("batch_dims", 0) or any(r.axis == last for r in rows[at]):
        return None
    return merge_found([Found(zeroed=_no_places(rows[at])),
                        *(made_row(n, r.axis, r) for r in rows[at])])


def _cut_out(graph: Graph, n: Node, rows: Rows, shape: Shapes) -> Found | None:
    """Regions of images: of those that are none, of the first image.  Images that data counts, too:
    the numbers are of those that there are."""
    images, regions, numbers = (rows.get(i, ()) for i in n.inputs)
    if any(r.axis for r in images) or any(r.axis for r in regions) or len(set(n.inputs)) < 3:
        return None
    met = match_rows([(n.inputs[1], 0), (n.inputs[2], 0)], rows)
    made = () if met is None else (Row(n.outputs[0], 0, met[0], False),)
    return Found(made, (), met[1] if met else (), tuple(images),
                 zeroed=_no_places((*regions, *numbers)))


def _sampled(graph: Graph, n: Node, rows: Rows, shape: Shapes) -> Found | None:
    """Images [batch, channel, ..] sampled at points of a grid [batch, .., coordinate], each by
    itself."""
    image, grid = n.inputs
    rank = len(shape(image) or ())
    if image == grid or any(r.axis > 1 for r in rows.get(image, ())) or any(
            r.axis == rank - 1 for r in rows.get(grid, ())):
        return None
    met = match_rows([(image, 0), (grid, 0)], rows)
    made = [] if met is None else [Row(n.outputs[0], 0, met[0], False)]
    made += [Row(n.outputs[0], 1, r.start, False) for r in rows.get(image, ()) if r.axis]
    made += [Row(n.outputs[0], r.axis + 1, r.start, False) for r in rows.get(grid, ()) if r.axis]
    return Found(tuple(made), (), met[1] if met else ())


def _suppressed(graph: Graph, n: Node, rows: Rows, shape: Shapes) -> Found | None:
    """Boxes [batch, box, 4] with scores [batch, class, box]: those that there are are chosen
    from."""
    boxes, scores = n.inputs[:2]
    mine = (*rows.get(boxes, ()), *rows.get(scores, ()))
    if boxes == scores or any(i in rows for i in n.inputs[2:]) or any(
            r.axis != (1 if r.tensor == boxes else 2) for r in mine):
        return None
    met = match_rows([(boxes, 1), (scores, 2)], rows)
    assert met is not None, n
    return Found((), (Row(scores, 2, met[0]),), met[1])


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
    met = match_rows([(keep, 0), (of, axis)], rows) if there else None
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
        updates = [sum_over_rows([(at, k), (new, k)], rows) for k in range(lead)]
        rest = {k: [(into, k), (new, k - width.value + lead)] for k in range(width.value, rank)}
    else:
        named = {n.attr("axis", 0) % max(rank, 1)}
        updates = [sum_over_rows([(at, k), (new, k)], rows) for k in named]
        rest = {k: [(t, k) for t in n.inputs] for k in set(range(rank)) - named}
    made = [Row(n.outputs[0], r.axis, r.start, False) for r in rows.get(into, ())]
    beside: tuple[Alike, ...] = ()
    for k, axes in rest.items():
        met = match_rows(axes, rows)
        if met is not None and k not in {r.axis for r in made}:
            return None
        beside += met[1] if met else ()
    inside = tuple(r for r in rows.get(into, ()) if r.axis in named)
    return merge_found([*updates, Found(tuple(made), (), beside, inside)])


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
        met = match_rows(axes, rows, shape)
        if met is not None:
            found.append(Found((Row(n.outputs[0], k, met[0], False),), (), met[1]))
    return merge_found(found)


def _resized(graph: Graph, n: Node, rows: Rows, shape: Shapes) -> Found | None:
    """Operators whose extents may be data (``frontend/counted_sizes.py``)."""
    return None if any(i in rows for i in n.inputs[1:]) else Found(moved=tuple(rows[n.inputs[0]]))


def _carried(graph: Graph, n: Node, rows: Rows, shape: Shapes) -> Found | None:
    """States of a Loop, which keep their number of elements."""
    if any(i in rows for i in n.inputs[:2]):
        return None
    return Found(tuple(Row(o, r.axis, r.start, False) for i, o in zip(n.inputs[2:], n.outputs) if o
                       for r in rows.get(i, ())))


PLACED: dict[str, Rule] = {
    "Gather": _gathered, "GatherND": _gathered_points, "GridSample": _sampled,
    "NonMaxSuppression": _suppressed,
    "RoiAlign": _cut_out, "Compress": _kept,
    "ScatterND": _put_in, "ScatterElements": _put_in, "Scatter": _put_in,
    "Expand": _resized, "Pad": _resized, "Loop": _carried}

__all__ = ["PLACED"]
