"""Operators whose indices are data."""

from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import const
from aotc.frontend.building.values import Val
from aotc.ir.expr import Axis, Const, Load, Where, compare, walk
from aotc.ir.program import static_shape
from aotc.ir.simplify import simplify

TAKEN = "elements to take"


def index_of(b, v, index, n):
    """Element of an index tensor, as an index into an extent ``n``.  Constants are wrapped and
    checked here and now, shape values where they can be; data at run time."""
    i = b.index_at(v, index)
    loads_data = any(isinstance(e, Load) and e.buffer not in b.consts for e in walk(i))
    if not loads_data and any(isinstance(e, Load) for e in walk(i)):
        fixed = _fixed(b, v, n)
        return b.index_at(fixed, index) if fixed is not None else b.inside(i, n)
    return b.inside(i, n)


def _fixed(b, v, n):
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
def gather(node, b):
    x, indices = b.arg(0), b.arg(1)
    axis = b.axis(node.attr("axis", 0), x.rank)
    end = axis + indices.rank
    shape = x.shape[:axis] + indices.shape + x.shape[axis + 1:]
    b.nonempty(x.shape[axis], shape, TAKEN)

    def body(index):
        i = index_of(b, indices, index[axis:end], x.shape[axis])
        return b.at(x, index[:axis] + (i,) + index[end:])
    return b.map(shape, body, [x, indices])


@op("GatherElements", since=11)
def gather_elements(node, b):
    x, indices = b.arg(0), b.arg(1)
    axis = b.axis(node.attr("axis", 0), x.rank)
    if indices.rank != x.rank:
        raise b.bad("the indices must have the rank of what they index")
    for k, (n, extent) in enumerate(zip(indices.shape, x.shape)):
        if k != axis:
            b.require("le", n, extent, f"the indices reach no further than the data on axis {k}")

    b.nonempty(x.shape[axis], indices.shape, TAKEN)

    def body(index):
        i = index_of(b, indices, index, x.shape[axis])
        return b.at(x, index[:axis] + (i,) + index[axis + 1:])
    return b.map(indices.shape, body, [x, indices])


@op("GatherND", since=11)
def gather_nd(node, b):
    x, indices = b.arg(0), b.arg(1)
    batch = node.attr("batch_dims", 0)
    width = static_shape(indices.shape[-1:])
    if width is None:
        raise b.unsupported("an index tensor whose last dimension is symbolic", "make it constant")
    width = width[0]
    lead = indices.rank - 1
    shape = indices.shape[:-1] + x.shape[batch + width:]
    for d in x.shape[batch:batch + width]:
        b.nonempty(d, shape, TAKEN)
    columns = _columns(b, indices, width)

    def body(index):
        place = [index_of(b, columns[k], index[:lead], x.shape[batch + k]) for k in range(width)]
        return b.at(x, index[:batch] + tuple(place) + index[lead:])
    return b.map(shape, body, [x, indices])


def _columns(b, indices, width):
    """The index tensor's last dimension taken apart; each column of a constant is one itself, so
    that it can be recognised as regular."""
    if indices.array is not None:
        return [b.const(indices.array[..., k], f"{indices.name}_{k}") for k in range(width)]
    return [Val(indices.shape[:-1], indices.dtype,
                fn=lambda index, k=k: b.at(indices, index + (Const(k),))) for k in range(width)]


@op("ReverseSequence", since=10)
def reverse_sequence(node, b):
    x, lengths = b.arg(0), b.arg(1)
    time, batch = node.attr("time_axis", 0), node.attr("batch_axis", 1)

    def source(index):
        t, n = index[time], b.index_at(lengths, (index[batch],))
        place = Where(compare("lt", t, n), n - 1 - t, t)
        place = b.checked(place, x.shape[time], "a sequence is no longer than its axis")
        return index[:time] + (place,) + index[time + 1:]
    return b.map(x.shape, lambda index: b.at(x, source(index)), [x, lengths])


@op("CumProd", since=26)
def cumprod(node, b):
    return _cumulative(b, "prod", 1)


@op("CumSum", since=11)
def cumsum(node, b):
    return _cumulative(b, "sum", 0)


def _cumulative(b, fold, neutral):
    node = b.node
    x = b.arg(0)
    b.need(x, "fiu")
    axis = b.axis(b.static_ints(b.arg(1))[0], x.rank)
    exclusive, reverse = node.attr("exclusive", 0), node.attr("reverse", 0)
    extent = x.shape[axis]
    if fold == "sum" and b.symbolic(x):
        steady = _steady_sum(b, x, axis, exclusive, reverse)
        if steady is not None:
            return steady
    axes = b.axes(x.shape)
    k, i = Axis("k", extent), axes[axis]
    name = {(0, 0): "le", (1, 0): "lt", (0, 1): "ge", (1, 1): "gt"}[bool(exclusive), bool(reverse)]
    body = Where(compare(name, k, i), b.load(x, axes[:axis] + (k,) + axes[axis + 1:]),
                 const(neutral, x.dtype))
    return b.compute(axes, body, (k,), fold)


def _steady_sum(b, x, axis, exclusive, reverse):
    """Sum of a shape value that does not change along the axis: value times count."""
    probe = b.axes(x.shape)
    if any(e == probe[axis] for e in walk(b.at(x, probe))):
        return None
    extent = x.shape[axis]

    def body(index):
        i = index[axis]
        count = (extent - i if reverse else i + 1) - (1 if exclusive else 0)
        return simplify(b.at(x, index) * count)
    return b.map(x.shape, body, [x]) if x.dtype == "i64" else None
