"""Scatter: tensors with updates at places that are data.  A library kernel puts in row after row;
targets without those look, for every output element, for the updates that hit it: slow where there
are many.  Where several hit, they are joined in order, or the last one counts."""

from collections.abc import Callable, Sequence

from aotc.frontend.building import calls
from aotc.frontend.building.builder import Builder
from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import conjunction
from aotc.frontend.building.values import Element, Index, Result, Val
from aotc.frontend.graph import Node
from aotc.frontend.ops.tensors.ops_gather import index_width
from aotc.ir.dtypes import INDEX
from aotc.ir.expr import Axis, Binary, Const, Expr, Shape, Var, Where, all_of, binary, compare
from aotc.ir.library import JOINS
from aotc.ir.program import Fold, neutral

# reduction: (fold, operation that joins the data)
_FOLDS = {"add": ("sum", "add"), "mul": ("prod", "mul"), "max": ("max", "max"),
          "min": ("min", "min")}


def _reduction(b: Builder) -> str:
    how: str = b.node.attr("reduction", "none")
    if how not in JOINS:
        raise b.unsupported(f"reduction {how!r}", f"use {', '.join(JOINS)}")
    return how


def _put_in(b: Builder, x: Val, shape: Shape, place: Callable[[Index], Sequence[Expr]],
            updates: Val) -> Val:
    """The library kernel: ``place(index)`` is where in ``x`` the row of updates at ``index`` of
    ``shape`` begins, one index expression per dimension that the row does not fill."""
    at = b.axes(shape)
    parts = place(at)
    offset: Expr = Const(0)
    for k, extent in enumerate(x.shape):
        offset = offset * extent + (parts[k] if k < len(parts) else Const(0))
        if k < len(parts):
            b.nonempty(extent, shape, "elements to put updates in")
    return calls.scattered(b, x, b.compute(at, offset, tag="places"), updates, _reduction(b))


def _search(b: Builder, x: Val, raxes: tuple[Axis, ...], hit: Element,
            update: Callable[[Index, Sequence[Expr]], Expr]) -> Val:
    """Data with updates: ``hit(index)`` says whether the update at ``raxes`` lands on ``index``,
    ``update(index, line)`` reads it, ``line`` being one expression per reduction axis."""
    how = _reduction(b)
    axes = b.axes(x.shape)
    if how in _FOLDS:
        name, join = _FOLDS[how]
        term = Where(hit(axes), update(axes, raxes), neutral(name, x.dtype))
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
    if b.library:
        return _put_in(b, x, indices.shape, lambda at: at[:axis] + (b.from_end(
            b.index_at(indices, at), x.shape[axis]),) + at[axis + 1:], updates)
    # the other axes of an update are those of the element it hits
    r = (Axis("r0", indices.shape[axis]),)

    def inside(index: Index) -> Expr | None:
        return all_of([compare("lt", index[k], indices.shape[k]) for k in range(x.rank)
                       if k != axis])

    def hit(index: Index) -> Expr:
        place = index[:axis] + r + index[axis + 1:]
        same = Binary("eq", index[axis], b.from_end(b.index_at(indices, place), x.shape[axis]))
        bound = inside(index)
        return same if bound is None else Where(bound, same, Const(False, "bool"))
    return _search(b, x, r, hit, lambda index, line: b.at(
        updates, index[:axis] + tuple(line) + index[axis + 1:]))


op("Scatter", since=9)(scatter_elements)


@op("ScatterND", since=11)
def scatter_nd(node: Node, b: Builder) -> Result:
    x, indices, updates = b.inputs()
    width, lead = index_width(b, indices), indices.rank - 1
    for one, two in zip(updates.shape, indices.shape[:-1] + x.shape[width:], strict=True):
        b.require("eq", one, two, "updates must be a row for every index")

    def place(at: Index, k: int) -> Expr:
        return b.from_end(b.index_at(indices, at[:lead] + (Const(k),)), x.shape[k])

    if b.library:
        return _put_in(b, x, indices.shape[:-1],
                       lambda at: [place(at, k) for k in range(width)], updates)
    raxes = b.axes(indices.shape[:-1], prefix="r") or (Axis("r0", Const(1)),)

    def hit(index: Index) -> Expr:
        return conjunction(Binary("eq", index[k], place(raxes, k)) for k in range(width))
    return _search(b, x, raxes, hit, lambda index, line: b.at(
        updates, tuple(line[:lead]) + index[width:]))
