"""Products on a unit beside the vectors, which has its operands in the memory of scratch (rows with
a ``unit``): where they lie, and what a work item must have there."""

from collections.abc import Sequence
from math import prod

from aotc.ir.access import is_unit, stride
from aotc.ir.category import Axes, Factors, factor_pairs, row_source
from aotc.ir.dtypes import DTYPES, HALF
from aotc.ir.expr import Axis, Cast, Const, Expr, Load, Where
from aotc.ir.schedule import Group
from aotc.ir.simplify import are_equal, simplify, upper
from aotc.ir.stage_choice import StageChoice
from aotc.sched.model.size import estimate
from aotc.sched.model.stages import Stage
from aotc.target.base import Target
from aotc.target.kernel_rows import ProductRow


def unit_rows(f: Factors) -> tuple[Load | None, Expr | None]:
    """(Load, guard) of a row operand that is stored as f32 or f16 and zero outside its guard; no
    Load for others."""
    a = f.a
    if isinstance(a, Cast) and a.dtype == "f32" and a.x.dtype == HALF:
        a = a.x
    elif isinstance(a, Where) and isinstance(a.a, Cast) and a.a.x.dtype == HALF:
        a = Where(a.cond, a.a.x, a.b)
    load, guard, fill = row_source(a)
    return (load, guard) if fill == 0 and load is not None and load.dtype in ("f32", HALF) else (
        None, None)


def tap_step(at: Expr, taps: Axes) -> Expr | None:
    """Elements from one tap to the next, counted row-major over ``taps``, for an offset; None where
    they do not lie evenly."""
    step: Expr | None = None
    count: Expr = Const(1)
    for t in reversed(taps):
        if t.extent == Const(1):
            continue
        found = stride(at, t)
        if found is None or step is not None and not are_equal(found, simplify(step * count)):
            return None
        step = step if step is not None else found
        count = simplify(count * t.extent)
    return step if step is not None else Const(0)


def has_columns_in_place(at: Expr, lane: Axis, k: Axis, taps: Axes) -> bool:
    """True if columns at an offset lie side by side along the lanes, and evenly along the sum."""
    return is_unit(at, lane) and stride(at, k) is not None and tap_step(at, taps) is not None


def near_operands(f: Factors, choice: StageChoice) -> tuple[str, ...]:
    """Buffers that a product on a unit reads where they lie."""
    found = []
    load, _ = unit_rows(f)
    if choice.a == "rows" and load is not None:
        found.append(load.buffer)
    if choice.b == "direct" and isinstance(f.b, Load):
        found.append(f.b.buffer)
    return tuple(dict.fromkeys(found))


def unit_needs(target: Target, group: Group,
               stages: Sequence[Stage]) -> dict[str, tuple[tuple[str, ...], int]]:
    """{stage on a unit: (buffers that it reads where they lie, bytes that it packs, or has for sums
    in slices)} of a group with rows and loops."""
    out = {}
    for s in stages:
        choice = group.choice(s.name)
        row = next((u for u in target.units if u.name == choice.row), None)
        f = next((f for f in factor_pairs(s.axes, s.raxes, s.fold, s.body) if any(
            a.name == choice.lanes for a in f.n)), None)
        if row is not None and f is not None:
            lane = next(a for a in f.n if a.name == choice.lanes)
            sums = sum_elements(group, f.m, lane, row) if slice_of(target, group, s) else 0
            out[s.name] = near_operands(f, choice), packed_bytes(
                f, choice, row) + sums * DTYPES["f32"].size
    return out


def slice_of(target: Target, group: Group, s: Stage) -> tuple[Axis, int] | None:
    """(innermost axis of its sum, steps of a slice) of a stage on a unit whose operands come slice
    by slice; None for others."""
    choice = group.choice(s.name)
    split = choice.split
    if not split or choice.row not in {u.name for u in target.units}:
        return None
    k = next(r for r in s.raxes if r.name == choice.k)
    return (k, split[k.name]) if split[k.name] < estimate(k.extent) else None


def cuts_evenly(f: Factors, k: Axis) -> bool:
    """True if a slice of the sum along ``k`` is one box of both operands: no index takes quotients
    or remainders of ``k``, whose box would lie otherwise than the tensor does."""
    return all(stride(i, k) is not None for x in (unit_rows(f)[0], f.b) if isinstance(x, Load)
               for i in x.index)


def sum_elements(group: Group, rows: Axes, lane: Axis, row: ProductRow) -> int:
    """Elements of the sums of a work item, in whole register tiles.  rows: axes of its rows."""
    count, columns = (prod(group.tile.get(a.name, upper(a.extent) or estimate(a.extent))
                           for a in axes) for axes in (rows, (lane,)))
    mr, nr = row.tile.mr, row.tile.nr
    return int(-(-count // mr) * mr * -(-columns // nr) * nr)


def packed_bytes(f: Factors, choice: StageChoice, row: ProductRow) -> int:
    """Bytes of scratch that a product takes for operands which a work item packs."""
    terms = prod(estimate(r.extent) for r in f.k)
    width = (choice.a == "packed") * row.tile.mr + (choice.b == "packed") * row.tile.nr
    return int(DTYPES["f32"].size * terms * width)


__all__ = ["has_columns_in_place", "cuts_evenly", "near_operands", "packed_bytes", "slice_of",
           "sum_elements", "tap_step", "unit_needs", "unit_rows"]
