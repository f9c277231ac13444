"""Operators whose indices are data."""

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.registry import op
from aotc.frontend.building.values import Element, Index, Result, Val
from aotc.frontend.graph import Node
from aotc.ir.expr import Const, Expr, Load, Where, compare, walk
from aotc.ir.program import static_shape

TAKEN = "elements to take"


def index_of(b: Builder, v: Val, index: Index, n: Expr) -> Expr:
    """Element of an index tensor, as an index into an extent ``n``.  Constants are wrapped and
    checked here and now, shape values where they can be; data at run time."""
    i = b.index_at(v, index)
    loads_data = any(isinstance(e, Load) and e.buffer not in b.consts for e in walk(i))
    if not loads_data and any(isinstance(e, Load) for e in walk(i)):
        fixed = _fixed(b, v, n)
        return b.index_at(fixed, index) if fixed is not None else b.inside(i, n)
    return b.inside(i, n)


def _fixed(b: Builder, v: Val, n: Expr) -> Val | None:
    """A constant index tensor with negative entries wrapped; ModelError if one is outside."""
    if v.array is None or not isinstance(n, Const):
        return None
    key = (id(v), n.value)
    if key not in b.wrapped:
        a = v.array
        if a.size and not (-n.value <= a.min() and a.max() < n.value):
            raise b.bad(f"constant indices {a.min()}..{a.max()} do not lie in an extent {n.value}")
        positive = b.const((a + (a < 0) * n.value).astype(a.dtype), v.name)
        b.wrapped[key] = v if (a >= 0).all() else positive, v
    return b.wrapped[key][0]


@op("Gather")
def gather(node: Node, b: Builder) -> Result:
    x, indices = b.input(0), b.input(1)
    axis = b.axis(node.attr("axis", 0), x.rank)
    end = axis + indices.rank
    shape = x.shape[:axis] + indices.shape + x.shape[axis + 1:]
    b.nonempty(x.shape[axis], shape, TAKEN)
    if indices.array is not None and not isinstance(x.shape[axis], Const):
        b.beyond += bool(((indices.array > 0) | (indices.array < -1)).any())

    def body(index: Index) -> Expr:
        i = index_of(b, indices, index[axis:end], x.shape[axis])
        return b.at(x, index[:axis] + (i,) + index[end:])
    return b.map(shape, body, [x, indices])


@op("GatherElements", since=11)
def gather_elements(node: Node, b: Builder) -> Result:
    x, indices = b.input(0), b.input(1)
    axis = b.axis(node.attr("axis", 0), x.rank)
    if indices.rank != x.rank:
        raise b.bad("the indices must have the rank of what they index")
    for k, (n, extent) in enumerate(zip(indices.shape, x.shape)):
        if k != axis:
            b.require("le", n, extent, f"the indices reach no further than the data on axis {k}")

    b.nonempty(x.shape[axis], indices.shape, TAKEN)

    def body(index: Index) -> Expr:
        i = index_of(b, indices, index, x.shape[axis])
        return b.at(x, index[:axis] + (i,) + index[axis + 1:])
    return b.map(indices.shape, body, [x, indices])


def index_width(b: Builder, indices: Val) -> int:
    """The last extent of an index tensor: how many dimensions an index names."""
    width = static_shape(indices.shape[-1:])
    if width is None:
        raise b.unsupported("an index tensor whose last dimension is symbolic", "make it constant")
    return width[0]


@op("GatherND", since=11)
def gather_nd(node: Node, b: Builder) -> Result:
    x, indices = b.input(0), b.input(1)
    batch = node.attr("batch_dims", 0)
    width = index_width(b, indices)
    lead = indices.rank - 1
    shape = indices.shape[:-1] + x.shape[batch + width:]
    for d in x.shape[batch:batch + width]:
        b.nonempty(d, shape, TAKEN)
    columns = _columns(b, indices, width)

    def body(index: Index) -> Expr:
        place = [index_of(b, columns[k], index[:lead], x.shape[batch + k]) for k in range(width)]
        return b.at(x, index[:batch] + tuple(place) + index[lead:])
    return b.map(shape, body, [x, indices])


def _columns(b: Builder, indices: Val, width: int) -> list[Val]:
    """The index tensor's last dimension taken apart; each column of a constant is one itself, so
    that it can be recognised as regular."""
    if indices.array is not None:
        return [b.const(indices.array[..., k], f"{indices.name}_{k}") for k in range(width)]

    def column(k: int) -> Element:
        return lambda index: b.at(indices, index + (Const(k),))
    return [Val(indices.shape[:-1], indices.dtype, fn=column(k)) for k in range(width)]


@op("ReverseSequence", since=10)
def reverse_sequence(node: Node, b: Builder) -> Result:
    x, lengths = b.input(0), b.input(1)
    time, batch = node.attr("time_axis", 0), node.attr("batch_axis", 1)

    def source(index: Index) -> Index:
        t, n = index[time], b.index_at(lengths, (index[batch],))
        place: Expr = Where(compare("lt", t, n), n - 1 - t, t)
        place = b.checked(place, x.shape[time], "a sequence is no longer than its axis")
        return index[:time] + (place,) + index[time + 1:]
    return b.map(x.shape, lambda index: b.at(x, source(index)), [x, lengths])
