"""Accesses under layouts: from logical indices to element offsets in memory, and back to indices of
an array for people to read."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod
from typing import ClassVar

from aotc.ir.expr import Axis, Binary, Const, Expr, Load, Shape, as_expr, rewrite
from aotc.ir.indices.polynomial import ONE, Monomial, Poly, cancels, p_add
from aotc.ir.layout import Layout, LayoutJson, Reorder
from aotc.ir.simplify import are_equal, from_poly, lower, simplify, split_linear, to_poly, upper

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


def flat_index(load: Load, place: Callable[[str], Callable[[Shape], Expr]]) -> Expr:
    """The offset that ``linearise`` gives a Load: of those in its index, too."""
    flat = linearise(load, place)
    assert isinstance(flat, Load), flat
    return flat.index[0]


def stride(offset: Expr, axis: Expr) -> Expr | None:
    """The constant (in ``axis``) step of an offset along an axis; None if it is not affine."""
    parts = split_linear(offset, axis)
    return None if parts is None else parts[0]


def affine_parts(offset: Expr, axis: Expr) -> tuple[Expr, Expr]:
    """(stride, what is left at 0) of an offset that is known to be affine in the axis."""
    parts = split_linear(offset, axis)
    assert parts is not None, f"{offset} along {axis}"
    return parts


def affine_stride(offset: Expr, axis: Expr) -> Expr:
    """The stride of an offset that is known to be affine in the axis."""
    return affine_parts(offset, axis)[0]


def is_unit(offset: Expr, axis: Expr) -> bool:
    step = stride(offset, axis)
    return step is not None and are_equal(step, Const(1))


def is_woven(offset: Expr, lane: Axis, block: Axis) -> bool:
    """True if neighbours along ``lane`` lie apart by the 2 to ``WOVEN`` points of ``block`` between
    them, which are all there is: rows of lanes that are woven into each other."""
    n, step = block.extent, stride(offset, lane)
    return isinstance(n, Const) and 1 < n.value <= WOVEN and step is not None and are_equal(
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


# ---------------------------------------------------------------- offsets as indices of arrays

# which factors are divided by a stride to the nearest whole number: constants, since those of a
# window's padding are a little below a stride; none; or all, since those of remainders of axes are
# no constants.  Other factors become what is in them whole, other constants are rounded down
ROUNDED = ("constants", "none", "all")


@dataclass(frozen=True)
class ArrayForm:
    """How the elements of a buffer lie: ``extents``, outermost first.  Of a part of a tensor, as
    scratch is, ``origins``: the index of its first element along each (of a whole tensor zeros)."""

    extents: Shape
    origins: Shape

    @staticmethod
    def of(extents: Shape) -> "ArrayForm":
        """Of a whole tensor."""
        return ArrayForm(extents, (Const(0),) * len(extents))

    def arrays(self, buffer: str) -> "Iterator[ArrayOf]":
        """The buffer as arrays of arrays, the finest first: constant extents, all in front of which
        count as one, in every way of ``ROUNDED``."""
        inner: list[int] = []
        for n in reversed([n for n in self.extents if n != Const(1)][1:]):
            if not isinstance(n, Const) or n.value < 1:
                break
            inner.insert(0, n.value)
        for i in range(len(inner)):
            yield from (ArrayOf(buffer, self, tuple(inner[i:]), how) for how in ROUNDED)


@dataclass(frozen=True)
class ArrayOf:
    """A buffer as an array of arrays of extents ``inner``, by whose indices a kernel's text can
    tell all places in it.  Factors of the strides tell indices apart, ``rounded`` as ``ROUNDED``
    says; that they lie in their extents, whoever makes one proves: then no others are right."""

    BUFFERS: ClassVar[tuple[str, ...]] = ("buffer",)
    buffer: str
    form: ArrayForm
    inner: tuple[int, ...]
    rounded: str

    def index(self, offset: Expr) -> tuple[Expr, ...]:
        """Indices of the element at an offset, one more than ``inner`` has extents."""
        rest, taken = to_poly(offset), list[Poly]()
        for origin, stride in zip(self._origins, self._strides):
            first = {m: c * stride for m, c in origin.items()}
            taken.append(origin if cancels(rest, first) else {})  # else it is no part of the offset
            rest = p_add(rest, first) if taken[-1] else rest
        out: list[Poly] = []
        for stride in self._strides[:-1]:
            out.append({m: n for m, c in rest.items() if (n := self._whole(c, stride, m == ONE))})
            rest = p_add(rest, out[-1], -stride)
        return tuple(simplify(from_poly(p_add(p, o, -1))) for p, o in zip((*out, rest), taken))

    def row(self, offset: Expr) -> tuple[tuple[Expr, ...], Expr]:
        """(indices that lie in their extents whatever they count, elements behind what they name)
        of a place that may be outside of the array, as the first of some lanes is."""
        index, count = self.index(offset), 1
        for e, n in zip(index[1:], self.inner):
            lo, hi = lower(e), upper(e)
            if lo is None or hi is None or lo < 0 or hi >= n:
                break
            count += 1
        rest = sum((e * n for e, n in zip(index[count:], self._strides[count:])), start=as_expr(0))
        return index[:count], simplify(rest)

    @cached_property
    def _strides(self) -> tuple[int, ...]:
        """Elements from one index to the next, the last 1."""
        return tuple(prod(self.inner[i:]) for i in range(len(self.inner) + 1))

    @cached_property
    def _origins(self) -> tuple[Poly, ...]:
        """The indices of the first element, all dimensions in front of ``inner`` as one."""
        extents, origins = self.form.extents, [to_poly(o) for o in self.form.origins]
        inside = [d for d, n in enumerate(extents) if n != Const(1)][-len(self.inner):]
        first, stride = dict[Monomial, int](), 1
        for d in reversed(range(inside[0])):
            first, n = p_add(first, origins[d], stride), extents[d]
            if not isinstance(n, Const):
                break
            stride *= n.value
        return first, *(origins[d] for d in inside)

    def _whole(self, c: int, stride: int, constant: bool) -> int:
        """A factor divided by a stride."""
        if self.rounded == "all" or self.rounded == "constants" and constant:
            return (2 * c + stride - 1) // (2 * stride)
        return c // stride if constant else abs(c) // stride * (1 if c > 0 else -1)
