"""Scatter: every output element looks for the updates that hit it.  Slow where there are many,
right for any order; where several hit, the last one counts."""

from aotc.frontend.build import wrapped
from aotc.frontend.ops_pool import lowest
from aotc.frontend.ops_reduce import highest
from aotc.frontend.registry import op
from aotc.frontend.symbolic import const
from aotc.ir.dtypes import INDEX
from aotc.ir.expr import Axis, Binary, Const, Var, Where, all_of, binary, compare
from aotc.ir.program import Fold, static_shape

# reduction: (fold, operation that joins the data)
_JOINS = {"add": ("sum", "add"), "mul": ("prod", "mul"), "max": ("max", "max"),
          "min": ("min", "min")}


def _neutral(fold, dtype):
    return {"sum": const(0, dtype), "prod": const(1, dtype)}.get(fold) or (
        lowest(dtype) if fold == "max" else highest(dtype))


def _scatter(b, x, raxes, hit, update):
    """Data with updates: ``hit(index)`` says whether the update at ``raxes`` lands on ``index``,
    ``update(index, line)`` reads it, ``line`` being one expression per reduction axis."""
    how = b.node.attr("reduction", "none")
    axes = b.axes(x.shape)
    if how in _JOINS:
        fold, join = _JOINS[how]
        body = Where(hit(axes), update(axes, raxes), _neutral(fold, x.dtype))
        total = b.compute(axes, body, raxes, fold, "updates")
        return b.map(x.shape, lambda i: binary(join, b.at(x, i), b.at(total, i)), [x, total])
    if how != "none":
        raise b.unsupported(f"reduction {how!r}", f"use none, {', '.join(_JOINS)}")
    line = Const(0)
    for r in raxes:
        line = line * r.extent + r
    found, seen = Var("x", "bool"), Var("at", INDEX)
    fold = Fold((("at", INDEX),), (Const(-1),), (Where(found, line, seen),))
    last, = b.compute_fold(axes, raxes, fold, hit(axes), ("last",))

    def body(index):
        at, places = b.at(last, index), []
        for r in reversed(raxes):
            places.insert(0, at % r.extent)
            at = at // r.extent
        return Where(compare("ge", b.at(last, index), Const(0)), update(index, places),
                     b.at(x, index))
    return b.map(x.shape, body, [x, last])


@op("ScatterElements", since=11)
def scatter_elements(node, b):
    x, indices, updates = b.args()
    axis = b.axis(node.attr("axis", 0), x.rank)
    # the other axes of an update are those of the element it hits
    r = (Axis("r0", indices.shape[axis]),)

    def inside(index):
        return all_of([compare("lt", index[k], indices.shape[k]) for k in range(x.rank)
                       if k != axis])

    def hit(index):
        place = index[:axis] + r + index[axis + 1:]
        same = Binary("eq", index[axis], wrapped(b.index_at(indices, place), x.shape[axis]))
        bound = inside(index)
        return same if bound is None else Where(bound, same, Const(False, "bool"))
    return _scatter(b, x, r, hit, lambda index, line: b.at(
        updates, index[:axis] + tuple(line) + index[axis + 1:]))


op("Scatter", since=9)(scatter_elements)


@op("ScatterND", since=11)
def scatter_nd(node, b):
    x, indices, updates = b.args()
    width = static_shape(indices.shape[-1:])
    if width is None:
        raise b.unsupported("an index tensor whose last dimension is symbolic", "make it constant")
    width, lead = width[0], indices.rank - 1
    raxes = b.axes(indices.shape[:-1], prefix="r") or (Axis("r0", Const(1)),)

    def hit(index):
        place = raxes[:lead]
        return all_of([Binary("eq", index[k], wrapped(
            b.index_at(indices, place + (Const(k),)), x.shape[k])) for k in range(width)])
    return _scatter(b, x, raxes, hit, lambda index, line: b.at(
        updates, tuple(line[:lead]) + index[width:]))
