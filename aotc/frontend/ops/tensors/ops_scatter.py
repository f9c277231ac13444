"""Scatter: tensors with updates at places that are data.  A library kernel puts in row after row;
of known elements every output element looks for the updates that hit it: slow where there are
many.  Where several hit, they are joined in order, or the last one counts."""

from collections.abc import Callable, Sequence

from aotc.frontend.building import calls
from aotc.frontend.building.builder import Builder
from aotc.frontend.building.declared import number_along, place_among
from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import cast, conjunction
from aotc.frontend.building.values import Element, Index, Result, Val, is_one
from aotc.frontend.graph import Node
from aotc.frontend.masked import MASK, OfMask
from aotc.frontend.ops.tensors.ops_gather import index_width
from aotc.ir.dtypes import INDEX
from aotc.ir.expr import (
    Axis,
    Binary,
    Const,
    Expr,
    Shape,
    Var,
    Where,
    all_hold,
    binary,
    compare,
    minimum,
)
from aotc.ir.library import JOINS
from aotc.ir.program import Fold, neutral_value
from aotc.ir.simplify import are_equal, simplify

# reduction: (fold, operation that joins the data)
_FOLDS = {"add": ("sum", "add"), "mul": ("prod", "mul"), "max": ("max", "max"),
          "min": ("min", "min")}


def _reduction(b: Builder) -> str:
    how: str = b.node.attr("reduction", "none")
    if how not in JOINS:
        raise b.unsupported(f"reduction {how!r}", f"use {', '.join(JOINS)}")
    return how


def _there(b: Builder, index: Index) -> Expr | None:
    """The condition that there is an update at ``index`` where data says how many there are."""
    indices = b.node.inputs[1]
    return all_hold(compare("lt", index[r.axis], number) for r in b.met.folds
                    if (number := number_along(b, [r], indices, r.axis)) is not None)


def _place(b: Builder, x: Val, axis: int, given: Expr, there: Expr | None) -> Expr:
    """The index along an axis of ``x`` that data gives for an update, 0 for one that is none."""
    given = given if there is None else Where(there, given, Const(0))
    n = number_along(b, b.met.inside, b.node.inputs[0], axis)
    if n is None:
        return b.from_end(given, x.shape[axis])
    return b.checked(place_among(given, n, x.shape[axis], int(there is not None)), x.shape[axis])


def _put_in(b: Builder, x: Val, shape: Shape, place: Callable[[Index], Sequence[Expr]],
            updates: Val) -> Val:
    """The library kernel: ``place(index)`` is where in ``x`` the row of updates at ``index`` of
    ``shape`` begins, one index expression per dimension that the row does not fill."""
    at = b.axes(shape)
    parts, there = place(at), _there(b, at)
    offset: Expr = Const(0)
    for k, extent in enumerate(x.shape):
        offset = offset * extent + (parts[k] if k < len(parts) else Const(0))
        if k < len(parts):
            b.nonempty(extent, shape, "elements to put updates in")
    if there is not None:
        offset = Where(there, offset, Const(-1))
    return calls.scatter_rows(b, x, b.compute(at, offset, tag="places"), updates, _reduction(b))


def _search(b: Builder, x: Val, raxes: tuple[Axis, ...], hit: Element,
            update: Callable[[Index, Sequence[Expr]], Expr]) -> Val:
    """Data with updates: ``hit(index)`` says whether the update at ``raxes`` lands on ``index``,
    ``update(index, line)`` reads it, ``line`` being one expression per reduction axis."""
    how = _reduction(b)
    axes = b.axes(x.shape)
    if how in _FOLDS:
        name, join = _FOLDS[how]
        term = Where(hit(axes), update(axes, raxes), neutral_value(name, x.dtype))
        total = b.compute(axes, term, raxes, name, "updates")
        return b.map(x.shape, lambda i: binary(join, b.at(x, i), b.at(total, i)), [x, total])
    line: Expr = Const(0)
    for r in raxes:
        line = line * r.extent + r
    found, seen = Var("x", "bool"), Var("at", INDEX)
    fold = Fold((("at", INDEX),), (Const(-1),), (Where(found, line, seen),))
    last, = b.compute_fold(axes, raxes, fold, hit(axes), ("last",))

    def body(index: Index) -> Expr:
        at = b.at(last, index)
        places: list[Expr] = []
        for r in reversed(raxes):
            places.insert(0, at % r.extent)
            at = at // r.extent
        return Where(compare("ge", b.at(last, index), Const(0)), update(index, places),
                     b.at(x, index))
    return b.map(x.shape, body, [x, last])


@op("ScatterElements", since=11)
def scatter_elements(node: Node, b: Builder) -> Result:
    x, indices, updates = b.inputs()
    axis = b.axis(node.attr("axis", 0), x.rank)
    for k, (one, two) in enumerate(zip(updates.shape, indices.shape, strict=True)):
        b.require("eq", one, two, "updates must have the shape of the indices")
        if k != axis:
            b.require("le", one, x.shape[k], "updates must fit beside the axis")
    if b.may_call("scatter"):
        return _put_in(b, x, indices.shape, lambda at: at[:axis] + (_place(
            b, x, axis, b.index_at(indices, at), _there(b, at)),) + at[axis + 1:], updates)
    # the other axes of an update are those of the element it hits
    r = (Axis("r0", indices.shape[axis]),)

    def inside(index: Index) -> Expr | None:
        return all_hold([compare("lt", index[k], indices.shape[k]) for k in range(x.rank)
                         if k != axis])

    def hit(index: Index) -> Expr:
        place = index[:axis] + r + index[axis + 1:]
        there = _there(b, place)
        same = Binary("eq", index[axis], _place(b, x, axis, b.index_at(indices, place), there))
        bound = all_hold(c for c in (inside(index), there) if c is not None)
        return same if bound is None else Where(bound, same, Const(False, "bool"))
    return _search(b, x, r, hit, lambda index, line: b.at(
        updates, index[:axis] + tuple(line) + index[axis + 1:]))


op("Scatter", since=9)(scatter_elements)


def _by_mask(b: Builder, how: OfMask) -> Val:
    """``x`` where the mask does not hold, else the value (``frontend/masked.py``).  A mask of
    numbers may be smaller than ``x``."""
    x, mask, value = b.inputs()
    b.same_dtype(x, value)
    lead = mask.rank
    if not 0 < lead <= x.rank:
        raise b.bad(f"places in {mask} for updates of {x}")
    if how.rows == "all" and value.rank != x.rank:
        raise b.bad(f"rows of {value} for updates of {x}")
    for k, d in enumerate(mask.shape):
        if not (isinstance(d, Const) and isinstance(x.shape[k], Const)):
            b.require("eq", d, x.shape[k], "the mask must have the extents of what is assigned to")
        b.require("le", d, x.shape[k], "the places of the mask must lie inside")
        if how.rows == "all":
            b.require("le", d, value.shape[k], "the places of the mask must lie inside")
    if how.rows == "one" and value.size != 1 or how.rows == "alike" and not _one_row(
            value, x.rank - lead):
        raise b.unsupported(f"updates made of {value}", "expand one element or one row to them")
    if how.rows != "one":
        row = value.shape[lead if how.rows == "all" else max(0, value.rank - x.rank + lead):]
        b.broadcast_to(row, x.shape[lead:])

    def body(index: Index) -> Expr:
        held = [cast("bool", b.at(mask, _inside(mask, index[:lead])))]
        held[:0] = [compare("lt", i, d) for i, d, n in zip(index, mask.shape, x.shape)
                    if not are_equal(d, n)]
        if how.rows == "all":
            new = b.at(value, _inside(value, index[:lead]) + index[lead:])
        elif how.rows == "one":
            new = b.at(value, (Const(0),) * value.rank)
        else:
            new = b.at(value, b.pick(value, index, x.shape))
        return Where(conjunction(held), new, b.at(x, index))
    if any(d == Const(0) for d in mask.shape):
        return b.move(x, x.shape, lambda index: index)
    return b.map(x.shape, body, [x, mask, value])


def _one_row(value: Val, rest: int) -> bool:
    """True if updates of ``rest`` dimensions beside the rows', that ``value`` is expanded to, are
    the same for every row."""
    return value.rank <= rest or value.rank == rest + 1 and is_one(value.shape[0])


def _inside(v: Val, index: Index) -> Index:
    """``index`` moved inside ``v`` where numbers say that it may lie outside."""
    return tuple(simplify(minimum(i, d - 1)) if isinstance(d, Const) else i
                 for i, d in zip(index, v.shape))


@op("ScatterND", since=11)
def scatter_nd(node: Node, b: Builder) -> Result:
    of_mask = node.attr(MASK)
    if isinstance(of_mask, OfMask):
        return _by_mask(b, of_mask)
    x, indices, updates = b.inputs()
    width, lead = index_width(b, indices), indices.rank - 1
    for one, two in zip(updates.shape, indices.shape[:-1] + x.shape[width:], strict=True):
        b.require("eq", one, two, "updates must be a row for every index")

    def place(at: Index, k: int) -> Expr:
        return _place(b, x, k, b.index_at(indices, at[:lead] + (Const(k),)), _there(b, at[:lead]))

    if b.may_call("scatter"):
        return _put_in(b, x, indices.shape[:-1],
                       lambda at: [place(at, k) for k in range(width)], updates)
    raxes = b.axes(indices.shape[:-1], prefix="r") or (Axis("r0", Const(1)),)

    def hit(index: Index) -> Expr:
        found = [Binary("eq", index[k], place(raxes, k)) for k in range(width)]
        there = _there(b, raxes[:lead])
        return conjunction(found if there is None else [there, *found])
    return _search(b, x, raxes, hit, lambda index, line: b.at(
        updates, tuple(line[:lead]) + index[width:]))
