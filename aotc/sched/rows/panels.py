"""Panels of a product's columns: NR columns side by side, step after step of the sum."""

from collections.abc import Callable, Sequence

from aotc.ir.access import stride
from aotc.ir.category import Axes
from aotc.ir.expr import Axis, Binary, Const, Expr, Shape, substitute
from aotc.ir.layout import Layout, Movement, Pad, Reorder, Split
from aotc.ir.simplify import are_equal, simplify


def panel_layout(index: Shape, lane: Axis, reduction: Axes, k: Axis, nr: int,
                 shape: Sequence[int]) -> Layout:
    """Pad the lane dim to a multiple of NR, split it, order: others, N/NR, taps, K, N%NR."""
    dim = {i: d for d, i in enumerate(index) if isinstance(i, Axis)}
    n = dim[lane]
    primitives: list[Movement] = []
    padded = -(-shape[n] // nr) * nr
    if padded != shape[n]:
        primitives.append(Pad(n, 0, padded - shape[n]))
    primitives.append(Split(n, (padded // nr, nr)))

    def after(d: int) -> int:
        return d if d <= n else d + 1

    taps = [after(dim[r]) for r in reduction if r != k and r in dim]
    tail = [n] + taps + [after(dim[k]), n + 1]
    others = [d for d in range(len(shape) + 1) if d not in tail]
    primitives.append(Reorder(tuple(others + tail)))
    return Layout(tuple(primitives))


def panel_base(offset: Callable[[Shape], Expr], index: Shape, lane: Axis, k: Axis, taps: Axes,
               nr: int) -> Expr | None:
    """Offset of the panel that starts at lane ``n0`` (a multiple of NR), as an expression in the
    lane axis and the outer axes; None if the layout is not panels of (taps, k, NR)."""
    panel = Axis(f"{lane.name}_panel", simplify((lane.extent + (nr - 1)) // nr))
    inside = Axis("lane", Const(nr))
    mapping = {lane: panel * nr + inside}
    at = simplify(offset(tuple(simplify(substitute(i, mapping)) for i in index)))
    step: Expr = Const(nr)
    for r in (k,) + tuple(reversed(taps)):
        s = stride(at, r)
        if r.extent != Const(1) and (s is None or not are_equal(s, step)):
            return None
        step = simplify(step * r.extent)
    s = stride(at, inside)
    if s is None or not are_equal(s, Const(1)):
        return None
    zero = {r: Const(0) for r in taps + (k, inside)}
    at = simplify(substitute(at, zero))
    return simplify(substitute(at, {panel: Binary("floordiv", lane, Const(nr))}))
