"""Accesses under layouts: from logical indices to element offsets in memory, and back to indices of
an array for people to read."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import ClassVar

from aotc.ir.expr import Axis, Binary, Const, Expr, Load, Shape, rewrite, substitute
from aotc.ir.indices.polynomial import ONE, Poly, cancels, p_add
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

Inner = tuple[int, ...]  # extents of an array behind the first one
# how factors are divided by a stride: constants to the nearest whole number, since those of a
# window's padding are a little below a stride, or down; or all factors to the nearest, since those
# of remainders of axes are no constants
ROUNDED = ("nearest", "down", "all")



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

    def inners(self) -> Iterator[Inner]:
        """Extents of arrays that elements can be indexed by, the finest first: constants, all
        extents in front of which count as one."""
        found: list[int] = []
        for n in reversed([n for n in self.extents if n != Const(1)][1:]):
            if not isinstance(n, Const) or n.value < 1:
                break
            found.insert(0, n.value)
        for i in range(len(found)):
            yield tuple(found[i:])

    def index(self, offset: Expr, inner: Inner, rounded: str) -> tuple[Expr, ...]:
        """Indices of the element at an offset, one more than ``inner`` has extents.

        Factors of the strides tell them apart, ``rounded`` as ``ROUNDED`` says."""
        out, origins = self._split(offset, inner, rounded)
        return tuple(simplify(from_poly(p_add(p, o, -1))) for p, o in zip(out, origins))

    def is_clear(self, offset: Expr, inner: Inner, rounded: str,
                 narrowed: Mapping[Expr, Expr] | None = None) -> bool:
        """True if ``index`` gives the indices that the offset was made from: they lie in their
        extents; or as those of a padded window hardly outside, which is true of no others.
        narrowed: {axis: an expression of the values that it has there}."""
        own = self._ends(offset, inner, rounded, narrowed or {})
        wholes = self._wholes(inner)
        if all(lo >= 0 and hi < n for (lo, hi), n in zip(own, wholes)):
            return True
        if rounded == "all" or not _are_near(own, wholes) or not _are_plain(offset, inner):
            return False
        others = (self._ends(offset, inner, how, narrowed or {}) for how in ("up", *ROUNDED))
        return all(ends == own for ends in others if _are_near(ends, wholes))

    def inside(self, offset: Expr, inner: Inner, rounded: str) -> list[bool]:
        """Which of the indices behind the first surely lie in their extents."""
        ends = self._ends(offset, inner, rounded, {})
        return [lo >= 0 and hi < n for (lo, hi), n in zip(ends, self._wholes(inner))]

    def _ends(self, offset: Expr, inner: Inner, rounded: str,
              narrowed: Mapping[Expr, Expr]) -> list[tuple[int, int]]:
        """Bounds of the indices behind the first in the whole tensor."""
        out, _ = self._split(offset, inner, rounded)
        if narrowed:
            out = [to_poly(substitute(from_poly(p), narrowed)) for p in out]
        found = [(p_lower(p), p_upper(p)) for p in out[1:]]
        return [(-1 << 62 if lo is None else lo, 1 << 62 if hi is None else hi)
                for lo, hi in found]

    def _split(self, offset: Expr, inner: Inner, rounded: str) -> tuple[list[Poly], list[Poly]]:
        """(indices in the whole tensor, what they count from) of an offset: origins that are no
        part of it are none."""
        strides = [prod(inner[i:]) for i in range(len(inner))]
        rest, taken = to_poly(offset), list[Poly]()
        for origin, stride in zip(self._origins(inner), (*strides, 1)):
            first = {m: c * stride for m, c in origin.items()}
            taken.append(origin if cancels(rest, first) else {})
            rest = p_add(rest, first) if taken[-1] else rest
        return _digits(rest, strides, rounded), taken

    def _inside(self, inner: Inner) -> int:
        """The number of the first dimension that indices of ``inner`` run over."""
        at, left = len(self.extents), len(inner)
        while left:
            at -= 1
            left -= self.extents[at] != Const(1)
        return at

    def _origins(self, inner: Inner) -> list[Poly]:
        """The indices of the first element, all dimensions in front of ``inner`` as one."""
        at, stride = self._inside(inner), 1
        first: Poly = {}
        for n, origin in reversed([*zip(self.extents[:at], self.origins)]):
            first = p_add(first, to_poly(origin), stride)
            if not isinstance(n, Const):
                break
            stride *= n.value
        inside = zip(self.extents[at:], self.origins[at:])
        return [first, *(to_poly(o) for n, o in inside if n != Const(1))]

    def _wholes(self, inner: Inner) -> list[int]:
        """Extents of the whole tensor behind the first; 0 where they are no constants."""
        at = self._inside(inner)
        return [w.value if isinstance(w, Const) else 0
                for n, w in zip(self.extents[at:], self.wholes[at:]) if n != Const(1)]


@dataclass(frozen=True)
class ArrayOf:
    """A buffer as an array of arrays of extents ``inner``, by whose indices a kernel's text can
    tell all places in it."""

    BUFFERS: ClassVar[tuple[str, ...]] = ("buffer",)
    buffer: str
    form: ArrayForm
    inner: Inner
    rounded: str

    def index(self, offset: Expr) -> tuple[Expr, ...]:
        """Indices of the element at an offset."""
        return self.form.index(offset, self.inner, self.rounded)

    def row(self, offset: Expr) -> tuple[tuple[Expr, ...], Expr]:
        """(indices that lie in their extents whatever they count, elements behind what they name)
        of a place that may be outside of the array, as the first of some lanes is."""
        index = self.index(offset)
        inside = self.form.inside(offset, self.inner, self.rounded)
        count = 1 + next((i for i, sure in enumerate(inside) if not sure), len(inside))
        rest: Expr = Const(0)
        for i, e in enumerate(index[count:], count):
            rest = rest + e * prod(self.inner[i:])
        return index[:count], simplify(rest)


def _are_near(ends: Sequence[tuple[int, int]], extents: Sequence[int]) -> bool:
    """True for indices that lie outside of their extents by less than half of those, if at all."""
    return all(-(n // 2) <= lo < n and 0 <= hi < n + n // 2 for (lo, hi), n in zip(ends, extents))


def _are_plain(offset: Expr, inner: Inner) -> bool:
    """True if every factor of an axis is of one index: of whole strides, or far from one."""
    for m, c in to_poly(offset).items():
        for i in range(len(inner)) if m != ONE else ():
            stride = prod(inner[i:])
            if 2 * (abs(c) % stride) >= stride:
                return False
            c = abs(c) % stride
    return True


def _digits(p: Poly, strides: Sequence[int], rounded: str) -> list[Poly]:
    """``p`` as multiples of strides, and what is left."""
    out: list[Poly] = []
    for stride in strides:
        out.append({m: n for m, c in p.items() if (n := _whole(
            c, stride, "nearest" if rounded == "all" else rounded if m == ONE else "zero"))})
        p = p_add(p, out[-1], -stride)
    return [*out, p]


def _whole(c: int, stride: int, rounded: str) -> int:
    """A factor divided by a stride."""
    if rounded == "zero":
        return abs(c) // stride * (1 if c > 0 else -1)
    return (c + {"down": 0, "nearest": stride // 2, "up": stride - 1}[rounded]) // stride
