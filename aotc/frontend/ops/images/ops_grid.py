"""GridSample: reading an image at positions that are data."""

from collections.abc import Sequence
from itertools import product

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import add_values, cast, conjunction, const
from aotc.frontend.building.values import Index, Result, Val
from aotc.frontend.graph import Node
from aotc.ir.expr import Const, Expr, Unary, Where, as_expr, compare, maximum, minimum

Taps = list[tuple[Expr, Expr | None]]  # (place, weight; None: 1)


def _reflected(x: Expr, last: Expr, align: bool) -> Expr:
    """Coordinates outside bounce off the edges: pixel centres if aligned, else pixel borders."""
    half = const(0 if align else 0.5, x.dtype)
    low, width = Unary("neg", half), maximum(last + half + half, const(1, x.dtype))
    far = Unary("abs", x - low)
    turns = Unary("floor", far / width)
    rest = far - turns * width
    even = compare("eq", turns, const(2, x.dtype) * Unary("floor", turns * const(0.5, x.dtype)))
    x = Where(even, rest + low, width - rest + low)
    return minimum(maximum(x, const(0, x.dtype)), last)


def _nearest(x: Expr) -> Taps:
    return [(Unary("round", x), None)]


def _linear(x: Expr) -> Taps:
    low = Unary("floor", x)
    one = const(1, x.dtype)
    return [(low, one - (x - low)), (low + one, x - low)]


def _cubic(x: Expr) -> Taps:
    low, a = Unary("floor", x), -0.75
    t = x - low

    def c(value: float) -> Const:
        return const(value, x.dtype)

    def near(d: Expr) -> Expr:
        return ((c(a + 2) * d - c(a + 3)) * d) * d + c(1)

    def far(d: Expr) -> Expr:
        return ((c(a) * d - c(5 * a)) * d + c(8 * a)) * d - c(4 * a)
    one = c(1)
    weights = far(t + one), near(t), near(one - t), far(c(2) - t)
    return [(low + c(k - 1), w) for k, w in enumerate(weights)]


# (taps of a place, how many neighbours on either side)
_MODES = {"nearest": (_nearest, 1), "linear": (_linear, 1), "bilinear": (_linear, 1),
          "cubic": (_cubic, 2), "bicubic": (_cubic, 2)}
_PADDINGS = ("zeros", "border", "reflection")


@op("GridSample", since=16)
def grid_sample(node: Node, b: Builder) -> Result:
    x, grid = b.input(0), b.input(1)
    b.need(x, "f")
    b.same_dtype(x, grid)
    mode, padding = node.attr("mode", "linear"), node.attr("padding_mode", "zeros")
    align, rank = bool(node.attr("align_corners", 0)), x.rank - 2
    if mode not in _MODES or padding not in _PADDINGS:
        raise b.unsupported(f"GridSample mode {mode!r} with padding {padding!r}",
                            f"use {', '.join(_MODES)} and {', '.join(_PADDINGS)}")
    if grid.rank != x.rank:
        raise b.bad("the grid must have the input's rank")
    b.require("eq", grid.shape[-1], rank, "a grid holds one coordinate per spatial dimension")
    shape = x.shape[:2] + grid.shape[1:-1]
    for d in x.shape[2:]:
        b.nonempty(d, shape, "pixels to sample")

    def taps(index: Index, k: int) -> Taps:
        """Taps along spatial dimension k; the grid's coordinates come innermost first."""
        n = x.shape[2 + k]
        g = b.at(grid, (index[0], *index[2:], Const(rank - 1 - k)))
        one, half = const(1, x.dtype), const(0.5, x.dtype)
        size = cast(x.dtype, n)
        place = ((g + one) * half * (size - one) if align
                 else ((g + one) * size - one) * half)
        last, (neighbours, reach) = size - one, _MODES[mode]
        if padding == "border":  # there all taps are the edge's, and linear weights are halves
            out = const(reach - 0.5, x.dtype)
            place = minimum(maximum(place, Unary("neg", out)), last + out)
        taken = neighbours(place)
        if padding == "reflection":  # every tap by itself: the last pixel has a neighbour too
            taken = [(_reflected(p, last, align), w) for p, w in taken]
        return taken

    def body(index: Index) -> Expr:
        def weighted(corner: Sequence[tuple[Expr, Expr | None]]) -> Expr:
            e = element(b, x, index[:2], [cast("i64", p) for p, _ in corner],
                        padding == "zeros")
            for _, w in corner:
                e = e if w is None else e * w
            return e
        return add_values(map(weighted, product(*(taps(index, k) for k in range(rank)))))
    return b.map(shape, body, [x, grid])


def element(b: Builder, x: Val, lead: Index, place: Sequence[Expr], zeros: bool) -> Expr:
    """x at integer positions: clamped, and zero outside where asked."""
    dims = x.shape[2:]
    inner = tuple(minimum(maximum(i, Const(0)), d - 1) for i, d in zip(place, dims))
    value = b.at(x, lead + inner)
    if not zeros:
        return value
    conds = [c for i, d in zip(place, dims)
             for c in (compare("ge", i, Const(0)), compare("lt", i, as_expr(d)))]
    return Where(conjunction(conds), value, const(0, x.dtype))
