"""Accesses under layouts: from logical indices to element offsets in memory."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import gcd

from aotc.ir.expr import Axis, Binary, Const, Expr, Load, Shape, rewrite
from aotc.ir.layout import Layout, LayoutJson, Reorder
from aotc.ir.simplify import linear_in, same, simplify, to_poly

WOVEN = 4  # rows that vectors weave into each other


def row_major(shape: Sequence[Expr]) -> Shape:
    """Strides in elements of a dense row-major tensor, outermost first."""
    strides: list[Expr] = []
    step: Expr = Const(1)
    for extent in reversed(shape):
        strides.append(step)
        step = simplify(step * extent)
    return tuple(reversed(strides))


def volume(shape: Iterable[Expr]) -> Expr:
    """Number of elements, as an expression."""
    n: Expr = Const(1)
    for extent in shape:
        n = n * extent
    return simplify(n)


def offset_of(index: Sequence[Expr], shape: Sequence[Expr], layout: Layout | None = None) -> Expr:
    """Element offset of logical ``index`` in a dense buffer of ``shape`` stored in ``layout``."""
    if layout is not None and not layout.is_identity:
        index, shape = layout.index(index, shape), layout.shape(shape)
    total: Expr = Const(0)
    for i, s in zip(index, row_major(shape)):
        total = total + i * s
    return simplify(total)


def linearise(expr: Expr, place: Callable[[str], Callable[[Shape], Expr]]) -> Expr:
    """Every Load gets one index, its offset: ``place(buffer)`` -> function index -> offset."""
    def visit(node: Expr) -> Expr | None:
        if isinstance(node, Load):
            return Load(node.buffer, (place(node.buffer)(node.index),), node.dtype)
        return None

    return rewrite(expr, visit)


def stride(offset: Expr, axis: Expr) -> Expr | None:
    """The constant (in ``axis``) step of an offset along an axis; None if it is not affine."""
    parts = linear_in(offset, axis)
    return None if parts is None else parts[0]


def affine_stride(offset: Expr, axis: Expr) -> Expr:
    """The stride of an offset that is known to be affine in the axis."""
    step = stride(offset, axis)
    assert step is not None, f"{offset} along {axis}"
    return step


def is_unit(offset: Expr, axis: Expr) -> bool:
    step = stride(offset, axis)
    return step is not None and same(step, Const(1))


def is_woven(offset: Expr, lane: Axis, block: Axis) -> bool:
    """True if neighbours along ``lane`` lie apart by the 2 to ``WOVEN`` points of ``block`` between
    them, which are all there is: rows of lanes that are woven into each other."""
    n, step = block.extent, stride(offset, lane)
    return isinstance(n, Const) and 1 < n.value <= WOVEN and step is not None and same(
        step, n) and is_unit(offset, block)


def layout_from_json(data: LayoutJson | None) -> Layout:
    """Layout of a Schedule's JSON value; row-major for None."""
    return Layout(()) if not data else Layout.from_json(data)


def dim_order(layout: Layout, rank: int) -> tuple[int, ...] | None:
    """Logical dims from outermost to innermost; None if the layout does more than reorder."""
    order = tuple(range(rank))
    for p in layout.primitives:
        if not isinstance(p, Reorder) or sorted(p.perm) != list(range(rank)):
            return None
        order = tuple(order[d] for d in p.perm)
    return order


def is_multiple(e: Expr, d: int, values: Mapping[Expr, Expr] | None = None) -> bool:
    """True if an index expression is provably a multiple of the positive integer ``d`` for all
    values of its axes and symbols.  values: {Axis: expression} of axes that stand for others, such
    as the ends of a tile."""
    if simplify(e % d) == Const(0):
        return True
    return all(any(_atom(a, d // gcd(c, d), values) for a in mono)
               for mono, c in to_poly(e).items() if c % d)


def _atom(a: Expr, d: int, values: Mapping[Expr, Expr] | None) -> bool:
    if isinstance(a, Axis) and values and a in values:
        return is_multiple(values[a], d, values)
    return isinstance(a, Binary) and a.op in ("min", "max") and all(
        is_multiple(x, d, values) for x in (a.a, a.b))
