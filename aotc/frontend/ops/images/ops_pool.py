"""Pooling."""

from collections.abc import Iterable, Sequence

import numpy as np

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import cast, const
from aotc.frontend.building.values import At, Index, Result, Val
from aotc.frontend.graph import Node
from aotc.frontend.ops.images.window import Window, counts, guards, kernel_of, spatial_names, window
from aotc.ir.dtypes import INDEX, is_float
from aotc.ir.expr import Axis, Binary, Const, Expr, Unary, Var, Where, compare
from aotc.ir.program import Fold, neutral_value
from aotc.ir.simplify import simplify


def _pool(b: Builder, x: Val, fold: str, outside: Expr, element: At = lambda e: e,
          tag: str = "") -> tuple[Window, Val]:
    """Fold ``element`` over every window; ``outside`` stands for taps off the input."""
    win = window(b, x.shape[2:], kernel_of(b), bool(b.node.attr("ceil_mode", 0)))
    rank = len(win.kernel)
    n, c = Axis("n", x.shape[0]), Axis("c", x.shape[1])
    o = b.axes(win.out, spatial_names("o", rank))
    k = b.axes(win.kernel, spatial_names("k", rank))
    inner = tuple(win.at(d, o[d], k[d]) for d in range(rank))
    cond = guards(inner, x.shape[2:])
    body = element(b.load(x, (n, c) + inner))
    body = body if cond is None else Where(cond, body, outside)
    return win, b.compute((n, c) + o, body, k, fold, tag)


@op("MaxPool")
def max_pool(node: Node, b: Builder) -> Result:
    x = b.input(0)
    b.need(x, "fiu")
    if len(node.outputs) > 1 and node.outputs[1]:
        return _max_with_index(b, x)
    return _pool(b, x, "max", neutral_value("max", x.dtype))[1]


def _max_with_index(b: Builder, x: Val) -> tuple[Val, Val]:
    """The largest element of every window and its place in the flattened input: a NaN is larger
    than all, the first of equals counts.  Taps in the padding never do."""
    win = window(b, x.shape[2:], kernel_of(b), bool(b.node.attr("ceil_mode", 0)))
    rank = len(win.kernel)
    n, c = Axis("n", x.shape[0]), Axis("c", x.shape[1])
    o, k = b.axes(win.out, spatial_names("o", rank)), b.axes(win.kernel, spatial_names("k", rank))
    inner = tuple(win.at(d, o[d], k[d]) for d in range(rank))
    cond = guards(inner, x.shape[2:])
    body: Expr = b.load(x, (n, c) + inner)
    body = body if cond is None else Where(cond, body, neutral_value("max", x.dtype))
    tap: Expr = Const(0)
    for d in range(rank):
        tap = tap * win.kernel[d] + k[d]
    element, best, arg = Var("x", x.dtype), Var("best", x.dtype), Var("arg", INDEX)
    wins: Expr = Binary("gt", element, best)
    if is_float(x.dtype):
        wins = nan_wins(wins, element, best)
    fold = Fold((("best", x.dtype), ("arg", INDEX)), (neutral_value("max", x.dtype), Const(-1)),
                (Where(wins, element, best), Where(wins, simplify(tap), arg)))
    top, taps = b.compute_fold((n, c) + o, k, fold, body, ("", "tap"))

    def flat(index: Index) -> Expr:
        left, order = b.at(taps, index), list(range(rank))
        at: dict[int, Expr] = {}
        none = compare("lt", left, Const(0))  # above the least: the first element counts
        for d in reversed(order):
            at[d] = win.at(d, index[2 + d], Where(
                none, win.first_inside(d, index[2 + d]), left % win.kernel[d]))
            left = left // win.kernel[d]
        place = index[0] * x.shape[1] + index[1]
        for d in order[::-1] if b.node.attr("storage_order", 0) else order:
            place = place * x.shape[2 + d] + at[d]
        return place
    return top, b.map(taps.shape, flat, [taps], out=1)


def nan_wins(wins: Expr, element: Expr, best: Expr) -> Expr:
    """``wins``, or the element is the first NaN."""
    return Binary("or", wins, Binary("and", compare("ne", element, element),
                                     compare("eq", best, best)))


@op("AveragePool")
def average_pool(node: Node, b: Builder) -> Result:
    x = b.input(0)
    b.need(x, "f")
    win, total = _pool(b, x, "sum", const(0, x.dtype), tag="sum")
    include = bool(node.attr("count_include_pad", 0))
    names = ["n", "c"] + spatial_names("o", len(win.kernel))

    def body(index: Index) -> Expr:
        n = counts(win, index[2:], include)
        if isinstance(n, Const):  # the mean of nothing is none
            return b.at(total, index) * const(1 / n.value if n.value else np.nan, x.dtype)
        return b.at(total, index) / cast(x.dtype, n)
    return b.map(total.shape, body, [total], names=names)


@op("LpPool")
def lp_pool(node: Node, b: Builder) -> Result:
    x, p = b.input(0), node.attr("p", 2)
    b.need(x, "f")
    total = _pool(b, x, "sum", const(0, x.dtype), lambda e: power_of(e, p), "sum")[1]
    return b.map(total.shape, lambda i: root_of(b.at(total, i), p), [total])


def power_of(e: Expr, p: int) -> Expr:
    """abs(e)**p"""
    return {1: Unary("abs", e), 2: e * e}.get(p) or Binary(
        "pow", Unary("abs", e), const(p, e.dtype))


def root_of(e: Expr, p: int) -> Expr:
    """e**(1/p)"""
    return {1: e, 2: Unary("sqrt", e)}.get(p) or Binary("pow", e, const(1 / p, e.dtype))


def _global(b: Builder, x: Val, fold: str, element: At = lambda e: e, tag: str = "") -> Val:
    if x.rank < 3:
        raise b.bad("global pooling needs rank 3 or more")
    n, c = Axis("n", x.shape[0]), Axis("c", x.shape[1])
    rank = x.rank - 2
    k = b.axes(x.shape[2:], spatial_names("k", rank))
    ones = b.axes((Const(1),) * rank, spatial_names("o", rank))
    return b.compute((n, c) + ones, element(b.load(x, (n, c) + k)), k, fold, tag)


@op("GlobalAveragePool")
def global_average_pool(node: Node, b: Builder) -> Result:
    x = b.input(0)
    b.need(x, "f")
    total = _global(b, x, "sum", tag="sum")
    names = ["n", "c"] + spatial_names("o", x.rank - 2)
    return scaled_by_count(b, total, x.shape[2:], names=names)


def scaled_by_count(b: Builder, total: Val, dims: Iterable[Expr], tag: str = "",
                    names: Sequence[str] | None = None) -> Val:
    """total / number of elements of ``dims``, NaN for none; of floats, a constant count becomes a
    factor."""
    count: Expr = Const(1)
    for d in dims:
        count = count * d
    count = simplify(count)
    if isinstance(count, Const) and count.value and is_float(total.dtype):
        factor = const(1 / count.value, total.dtype)
        return b.map(total.shape, lambda i: b.at(total, i) * factor, [total], tag, names=names)
    return b.map(total.shape, lambda i: b.at(total, i) / cast(total.dtype, count), [total], tag,
                 names=names)


@op("GlobalMaxPool")
def global_max_pool(node: Node, b: Builder) -> Result:
    return _global(b, b.input(0), "max")


@op("GlobalLpPool")
def global_lp_pool(node: Node, b: Builder) -> Result:
    x, p = b.input(0), node.attr("p", 2)
    b.need(x, "f")
    total = _global(b, x, "sum", lambda e: power_of(e, p), "sum")
    return b.map(total.shape, lambda i: root_of(b.at(total, i), p), [total])
