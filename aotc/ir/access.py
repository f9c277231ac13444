"""Accesses under layouts: from logical indices to element offsets in memory."""

from aotc.ir.expr import Const, Load, rewrite
from aotc.ir.layout import Layout, Reorder
from aotc.ir.simplify import linear_in, same, simplify


def row_major(shape):
    """Strides in elements of a dense row-major tensor, outermost first."""
    strides, step = [], Const(1)
    for extent in reversed(shape):
        strides.append(step)
        step = simplify(step * extent)
    return tuple(reversed(strides))


def volume(shape):
    """Number of elements, as an expression."""
    n = Const(1)
    for extent in shape:
        n = n * extent
    return simplify(n)


def offset_of(index, shape, layout=None):
    """Element offset of logical ``index`` in a dense buffer of ``shape`` stored in ``layout``."""
    if layout is not None and not layout.is_identity:
        index, shape = layout.index(index, shape), layout.shape(shape)
    total = Const(0)
    for i, s in zip(index, row_major(shape)):
        total = total + i * s
    return simplify(total)


def linearise(expr, place):
    """Every Load gets one index, its offset: ``place(buffer)`` -> function index -> offset."""
    def visit(node):
        if isinstance(node, Load):
            return Load(node.buffer, (place(node.buffer)(node.index),), node.dtype)
        return None

    return rewrite(expr, visit)


def stride(offset, axis):
    """The constant (in ``axis``) step of an offset along an axis; None if it is not affine."""
    parts = linear_in(offset, axis)
    return None if parts is None else parts[0]


def is_unit(offset, axis):
    step = stride(offset, axis)
    return step is not None and same(step, Const(1))


def layout_from_json(data):
    """Layout of a Schedule's JSON value; row-major for None."""
    return Layout(()) if not data else Layout.from_json(data)


def dim_order(layout, rank):
    """Logical dims from outermost to innermost; None if the layout does more than reorder."""
    order = tuple(range(rank))
    for p in layout.primitives:
        if not isinstance(p, Reorder) or sorted(p.perm) != list(range(rank)):
            return None
        order = tuple(order[d] for d in p.perm)
    return order
