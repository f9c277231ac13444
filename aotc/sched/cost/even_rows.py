"""How rows of a product lie in memory: matrix tiles read those in place that lie evenly apart, and
copy others first."""

from collections.abc import Sequence
from math import prod

import numpy as np

from aotc.ir.expr import Axis, Const, Expr, Load, Sym, axes_of, walk
from aotc.oracle.eval_expr import EvalScope


def uneven_share(rows: Sequence[Axis], taps: Sequence[Axis], at: Expr, inside: Expr | None,
                 side: int) -> float:
    """The share of tiles of ``side`` rows, over all ``taps`` of a window, that do not lie evenly
    apart.  rows: the outermost first; at: elements in front of a row's, for a tap, where ``inside``
    holds; others are read elsewhere.  Counted in the middle of an image, whose neighbouring lines
    have places of every kind among ``side`` of them; 1 where extents or places are not known."""
    asked = [at] if inside is None else [at, inside]
    sizes = [a.extent.value for a in (*rows, *taps) if isinstance(a.extent, Const)]
    if len(sizes) < len(rows) + len(taps) or any(
            isinstance(n, (Load, Sym)) for e in asked for n in walk(e)):
        return 1.0
    others = {a for e in asked for a in axes_of(e)}.difference(rows, taps)
    ranges = {a: (0, n) for a, n in zip((*rows, *taps), sizes)}
    for a in rows[:-1]:
        lines = min(side if a is rows[-2] else 1, ranges[a][1])
        ranges[a] = (ranges[a][1] - lines) // 2, lines
    scope = EvalScope(ranges | dict.fromkeys(others, (0, 1)), None, {})  # those move all rows alike
    place = np.broadcast_to(scope.value(at), [n for _, n in scope.ranges.values()])
    if inside is not None:
        place = np.where(scope.value(inside), place, np.iinfo(np.int64).min // 2)
    count = prod(ranges[a][1] for a in rows)
    whole = count // side * side
    if not whole:
        return 1.0
    tiles = place.reshape(count, -1)[:whole].reshape(whole // side, side, -1)
    apart = np.diff(tiles, axis=1)
    even = np.all(apart == apart[:, :1], axis=1) & (apart[:, 0] != 0)
    return 1.0 - float(np.mean(even))


__all__ = ["uneven_share"]
