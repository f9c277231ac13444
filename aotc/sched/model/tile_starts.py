"""Where boxes start in a group's first tile: what tells boxes of one form apart.

Queries, keys and values of one product are three runs of its columns; a tile of heads asks for the
hull of all three.  Widths alone (``aotc.sched.model.group_model``) would take them for one.
"""

from collections.abc import Mapping

from aotc.ir.expr import Axis, Binary, Expr, Load, axes_of
from aotc.ir.simplify import to_poly
from aotc.sched.model.size import estimate
from aotc.sched.model.stages import Stage

Hull = tuple[tuple[int, int], ...]  # (first, end) per dimension


def hull(old: Hull | None, new: Hull) -> Hull:
    """((first, end) per dimension) of two boxes together; ``old`` may be None."""
    if old is None:
        return new
    return tuple([(a if a < c else c, b if b > d else d) for (a, b), (c, d) in zip(old, new)])


def first_axes(s: Stage, first: Mapping[str, tuple[int, ...]]) -> dict[Axis, int]:
    """{axis: its first value in the first tile} of a stage, from where readers start; 0 if it
    cannot be told."""
    out: dict[Axis, int] = {}
    for o in s.outputs:
        if o.buffer in first and o.index == s.axes:
            out |= {a: min(out.get(a, lo), lo) for a, lo in zip(s.axes, first[o.buffer])}
    return out


def first_value(index: Expr, lows: Mapping[Axis, int]) -> int:
    """Value of an index in the first tile; data counts as 0."""
    if isinstance(index, Axis):
        return lows.get(index, 0)
    total = 0
    for mono, c in to_poly(index).items():
        for a in mono:
            if isinstance(a, Binary) and a.op in ("floordiv", "mod"):
                x, d = max(0, first_value(a.a, lows)), max(1, estimate(a.b))
                c *= x // d if a.op == "floordiv" else x % d
            else:
                c *= lows.get(a, 0) if isinstance(a, Axis) else 0 if axes_of(a) or isinstance(
                    a, Load) else estimate(a)
        total += c
    return total


__all__ = ["first_axes", "first_value", "hull"]
