"""Index arithmetic of Reshape: which old element each new index means."""

from collections.abc import Callable, Iterable

from aotc.frontend.building.values import Index, is_one
from aotc.ir.expr import Const, Expr, Shape
from aotc.ir.simplify import are_equal, simplify


def groups(old: Shape, new: Shape) -> list[tuple[range, range]]:
    """Split two shapes of equal size into the smallest runs of equal product, as a list of
    (old dimensions, new dimensions); what cannot be matched is one last group."""
    out, i, j = [], 0, 0
    while i < len(old) and j < len(new):
        cut = _next_cut(old[i:], new[j:])
        if cut is None:
            break
        out.append((range(i, i + cut[0]), range(j, j + cut[1])))
        i, j = i + cut[0], j + cut[1]
    if i < len(old) or j < len(new):
        out.append((range(i, len(old)), range(j, len(new))))
    return out


def _next_cut(old: Shape, new: Shape) -> tuple[int, int] | None:
    """Lengths of the shortest non-empty prefixes of equal product, or None."""
    left = _products(old)
    right = _products(new)
    for a, p in enumerate(left):
        for b, q in enumerate(right):
            if are_equal(p, q):
                return a + 1, b + 1
    return None


def _products(dims: Iterable[Expr]) -> list[Expr]:
    out: list[Expr] = []
    total: Expr = Const(1)
    for d in dims:
        total = simplify(total * d)
        out.append(total)
    return out


def source_index(old: Shape, new: Shape) -> Callable[[Index], list[Expr]]:
    """Function from an index of shape ``new`` to the index of shape ``old`` of that element."""
    parts = groups(old, new)

    def source(index: Index) -> list[Expr]:
        full: list[Expr] = [Const(0)] * len(old)
        for olds, news in parts:
            line: Expr = Const(0)
            for j in news:
                line = line * new[j] + index[j] if not is_one(new[j]) else line
            _unflatten(simplify(line), olds, old, full)
        return full
    return source


def _unflatten(line: Expr, dims: Iterable[int], shape: Shape, full: list[Expr]) -> None:
    """Spread a linear index over dimensions; the first one needs no modulo."""
    dims = [k for k in dims if not is_one(shape[k])]
    stride: Expr = Const(1)
    for place, k in enumerate(reversed(dims)):
        i = line // stride
        full[k] = simplify(i if place == len(dims) - 1 else i % shape[k])
        stride = simplify(stride * shape[k])
