"""Accesses under layouts: from logical indices to element offsets in memory, and back to indices of
an array for people to read."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd, prod
from typing import ClassVar

from aotc.ir.expr import Axis, Binary, Const, Expr, Load, Shape, as_expr, rewrite, substitute
from aotc.ir.indices.polynomial import ONE, Monomial, Poly, cancels, p_add
from aotc.ir.layout import Layout, LayoutJson, Reorder
from aotc.ir.simplify import from_poly, linear_in, p_lower, p_upper, same, simplify, to_poly

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


# ---------------------------------------------------------------- offsets as indices of arrays

# which factors are divided by a stride to the nearest whole number: constants, since those of a
# window's padding are a little below a stride; none; or all, since those of remainders of axes are
# no constants.  Other factors become what is in them whole, other constants are rounded down
ROUNDED = ("constants", "none", "all")
_ENDLESS = 1 << 62


@dataclass(frozen=True)
class ArrayForm:
    """How the elements of a buffer lie: ``extents``, outermost first.  Of a part of a tensor, as
    scratch is, ``origins``: the index of its first element along each, in a tensor of ``wholes``
    (of a whole tensor zeros, and ``extents``)."""

    extents: Shape
    origins: Shape
    wholes: Shape

    @staticmethod
    def of(extents: Shape) -> "ArrayForm":
        """Of a whole tensor."""
        return ArrayForm(extents, (Const(0),) * len(extents), extents)

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
    says."""

    BUFFERS: ClassVar[tuple[str, ...]] = ("buffer",)
    buffer: str
    form: ArrayForm
    inner: tuple[int, ...]
    rounded: str

    def index(self, offset: Expr) -> tuple[Expr, ...]:
        """Indices of the element at an offset, one more than ``inner`` has extents."""
        return tuple(simplify(from_poly(p_add(p, o, -1))) for p, o in zip(*self._split(offset)))

    def row(self, offset: Expr) -> tuple[tuple[Expr, ...], Expr]:
        """(indices that lie in their extents whatever they count, elements behind what they name)
        of a place that may be outside of the array, as the first of some lanes is."""
        index, inside = self.index(offset), [_is_inside(e) for e in self._ends(offset, {})]
        count = 1 + (inside.index(False) if False in inside else len(inside))
        rest = sum((e * n for e, n in zip(index[count:], self._strides[count:])), start=as_expr(0))
        return index[:count], simplify(rest)

    def is_clear(self, offset: Expr, narrowed: Mapping[Expr, Expr]) -> bool:
        """True if ``index`` gives the indices that the offset was made from: they lie in their
        extents; or as those of a padded window hardly outside, which is true of no others.
        narrowed: {axis: an expression of the values that it has there}."""
        own = self._ends(offset, narrowed)
        if all(map(_is_inside, own)):
            return True
        if self.rounded == "all" or not all(map(_is_near, own)) or not self._is_plain(offset):
            return False
        others = (replace(self, rounded=how)._ends(offset, narrowed) for how in ("up", *ROUNDED))
        return all(ends == own for ends in others if all(map(_is_near, ends)))

    @cached_property
    def _strides(self) -> tuple[int, ...]:
        """Elements from one index to the next, the last 1."""
        return tuple(prod(self.inner[i:]) for i in range(len(self.inner) + 1))

    def _split(self, offset: Expr) -> tuple[list[Poly], list[Poly]]:
        """(indices in the whole tensor, what they count from) of an offset: origins that are no
        part of it are none."""
        rest, taken = to_poly(offset), list[Poly]()
        for (origin, _, _), stride in zip(self._dims, self._strides):
            first = {m: c * stride for m, c in origin.items()}
            taken.append(origin if cancels(rest, first) else {})
            rest = p_add(rest, first) if taken[-1] else rest
        out: list[Poly] = []
        for stride in self._strides[:-1]:
            out.append({m: n for m, c in rest.items() if (n := self._whole(c, stride, m == ONE))})
            rest = p_add(rest, out[-1], -stride)
        return [*out, rest], taken

    def _whole(self, c: int, stride: int, constant: bool) -> int:
        """A factor divided by a stride."""
        if self.rounded == "all" or self.rounded == "constants" and constant:
            return (2 * c + stride - 1) // (2 * stride)
        if constant:
            return (c + (stride - 1) * (self.rounded == "up")) // stride
        return abs(c) // stride * (1 if c > 0 else -1)

    def _ends(self, offset: Expr, narrowed: Mapping[Expr, Expr]) -> list[tuple[int, int, int]]:
        """(least, largest, extent) of the indices behind the first: of those that count from an
        origin in the whole tensor."""
        out, taken = self._split(offset)
        if narrowed:
            out = [to_poly(substitute(from_poly(p), narrowed)) for p in out]
        found = []
        for p, origin, (_, part, whole) in zip(out[1:], taken[1:], self._dims[1:]):
            lo, hi = p_lower(p), p_upper(p)
            found.append((-_ENDLESS if lo is None else lo, _ENDLESS if hi is None else hi,
                          whole if origin else part))
        return found

    @cached_property
    def _dims(self) -> tuple[tuple[Poly, int, int], ...]:
        """(origin, extent of the part, of the whole) along each index; 0 for extents that are no
        constants, and of the first, which stands for all dimensions in front of ``inner``."""
        extents, origins = self.form.extents, [to_poly(o) for o in self.form.origins]
        inside = [d for d, n in enumerate(extents) if n != Const(1)][-len(self.inner):]
        first, stride = dict[Monomial, int](), 1
        for d in reversed(range(inside[0])):
            first, n = p_add(first, origins[d], stride), extents[d]
            if not isinstance(n, Const):
                break
            stride *= n.value
        return (first, 0, 0), *((origins[d], _known(extents[d]), _known(self.form.wholes[d]))
                                for d in inside)

    def _is_plain(self, offset: Expr) -> bool:
        """True if every factor of an axis is of one index: of whole strides, or far from one."""
        for m, c in to_poly(offset).items():
            for stride in self._strides[:-1] if m != ONE else ():
                c = abs(c) % stride
                if 2 * c >= stride:
                    return False
        return True


def _known(extent: Expr) -> int:
    """An extent, 0 if it is no constant."""
    return int(extent.value) if isinstance(extent, Const) else 0


def _is_inside(ends: tuple[int, int, int]) -> bool:
    lo, hi, extent = ends
    return lo >= 0 and hi < extent


def _is_near(ends: tuple[int, int, int]) -> bool:
    """True for an index that lies outside of its extent by less than half of it, if at all."""
    lo, hi, n = ends
    return -(n // 2) <= lo < n and 0 <= hi < n + n // 2
