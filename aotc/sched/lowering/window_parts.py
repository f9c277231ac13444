"""Windows whose neighbouring outputs are computed together: cut where the padding begins to take
taps away."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from aotc.ir.expr import Axis, Binary, Const, Expr, axes_of, compare, maximum, minimum, substitute
from aotc.ir.simplify import simplify, split_linear
from aotc.ir.statements import Range
from aotc.sched.items.context import Context
from aotc.sched.model.stages import Stage
from aotc.target.kernel_rows import NestRow


@dataclass(frozen=True)
class Piece:
    """One axis of one piece of a box: the original axis is ``axis + base``, lo <= axis < hi."""

    axis: Axis
    base: int
    lo: Expr
    hi: Expr


Pieces = Mapping[Axis, Piece]
Part = tuple[Pieces, Axis | None, Sequence[Range]]


def window_parts(ctx: Context, stage: Stage, row: NestRow, part: Pieces,
                 ranges: Sequence[Range]) -> list[Part]:
    """Split the block axis where its taps start to be cut by the padding: edge, interior, edge.
    Yields (pieces, unrolled reduction axis or None, reduction ranges)."""
    name = ctx.group.choice(stage.name).block
    whole: list[Part] = [(part, None, ranges)]
    axis = next((a for a in part if a.name == name), None)
    if row.block < 2 or axis is None:
        return whole
    taps = [r for r in ranges if axis in axes_of(r.lo) | axes_of(r.hi)] or [
        r for r in ranges if any(axis in axes_of(i) and r.axis in axes_of(i)
                                 for n in stage.loads() for i in n.index)]
    if len(taps) != 1 or (axes_of(taps[0].lo) | axes_of(taps[0].hi)) - {axis}:
        return whole
    tap = taps[0]
    inside = _interior(axis, tap)
    if inside is None:
        return whole
    full = tuple(Range(r.axis, Const(0), r.axis.extent) if r is tap else r for r in ranges)
    p, (first, end) = part[axis], inside
    out: list[Part] = []
    for lo, hi, unrolled in ((Const(0), first, None), (first, end, tap.axis),
                             (end, axis.extent, None)):
        if compare("lt", lo, hi) != Const(False, "bool"):
            cut = replace(p, lo=simplify(maximum(p.lo, lo)), hi=simplify(minimum(p.hi, hi)))
            out.append(({**part, axis: cut}, unrolled, full if unrolled else ranges))
    return out


def _interior(axis: Axis, tap: Range) -> tuple[Const, Expr] | None:
    """(first, end) of the axis values whose taps are all inside, as expressions; None if there are
    none, or no such bounds are found."""
    if not isinstance(tap.axis.extent, Const):
        return None
    if not isinstance(axis.extent, Const):
        return _symbolic_interior(axis, tap)
    good = []
    for v in range(axis.extent.value):
        lo, hi = (simplify(substitute(e, {axis: Const(v)})) for e in (tap.lo, tap.hi))
        if lo == Const(0) and hi == tap.axis.extent:
            good.append(v)
    if not good or good[-1] - good[0] + 1 != len(good):
        return None
    return Const(good[0]), Const(good[-1] + 1)


def _symbolic_interior(axis: Axis, tap: Range) -> tuple[Const, Expr] | None:
    """``_interior`` where the axis's extent is a symbol's and the taps' bounds fall as it grows:
    lo = max(0, a - s*axis) is 0 from a/s on, hi = min(taps, b - s*axis) is all until (b - taps)/s.
    """
    first: Expr = Const(0)
    last: list[Expr] = [axis.extent - 1]
    for end, op in ((tap.lo, "max"), (tap.hi, "min")):
        for part in _parts_of(end, op):
            if part == (Const(0) if op == "max" else tap.axis.extent):
                continue
            parts = split_linear(part, axis)
            if parts is None or not isinstance(parts[0], Const) or parts[0].value >= 0 or axes_of(
                    parts[1]):
                return None
            step, rest = -parts[0].value, parts[1]
            if op == "max":
                first = maximum(first, (rest + (step - 1)) // step)
            else:
                last.append((rest - tap.axis.extent) // step)
    first = simplify(first)
    if not isinstance(first, Const):
        return None
    return first, simplify(maximum(first, reduce(minimum, last) + 1))


def _parts_of(e: Expr, op: str) -> list[Expr]:
    """The operands of nested ``op``."""
    if isinstance(e, Binary) and e.op == op:
        return [*_parts_of(e.a, op), *_parts_of(e.b, op)]
    return [e]
