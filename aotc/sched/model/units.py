"""Products on a unit beside the vectors, which has its operands in the memory of scratch (rows with
a ``unit``): which it can take, where they lie, and what a work item must have there."""

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

from aotc.ir.access import is_unit, stride
from aotc.ir.category import Axes, Factors, factor_pairs, row_source
from aotc.ir.dtypes import DTYPES, HALF
from aotc.ir.expr import Axis, Cast, Const, Expr, Load, Shape, Where, axes_of, loads
from aotc.ir.layout import Layout, Reorder
from aotc.ir.program import static_shape
from aotc.ir.schedule import Group
from aotc.ir.simplify import same, simplify, upper
from aotc.ir.stage_choice import StageChoice
from aotc.sched.cost.row_cost import unit_pays
from aotc.sched.model.size import MAX_TAPS, estimate, estimate_volume
from aotc.sched.model.stages import Stage
from aotc.target.base import Target
from aotc.target.kernel_rows import ProductRow

if TYPE_CHECKING:  # which needs this module
    from aotc.sched.choose.loops import Choices

PACKED_PART = 4  # of a unit's memory, one part of so many may be packed operands


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
        if found is None or step is not None and not same(found, simplify(step * count)):
            return None
        step = step if step is not None else found
        count = simplify(count * t.extent)
    return step if step is not None else Const(0)


def unit_choice(c: "Choices", s: Stage, f: Factors, lane: Axis | None,
                row: ProductRow) -> StageChoice | None:
    """The choice of a product on a unit; None where vectors take less time, or what it would have
    to pack is too much.  Constants get the layout of its columns."""
    if lane is None or lane not in f.n:
        return None
    m, n = estimate_volume(a.extent for a in f.m), estimate(lane.extent)
    if not unit_pays(row, m, n, c.target.tuning) or any(
            static_shape((r.extent,)) is None for r in f.k):
        return None
    k, rows = _row_mode(c, f)
    choice = StageChoice(row.name, lane.name, k.name, rows, _column_mode(c, f, lane, k))
    room = c.target.machine.near.capacity // PACKED_PART
    return choice if packed_bytes(f, choice, row) <= room else None


def _row_mode(c: "Choices", f: Factors) -> tuple[Axis, str]:
    """(innermost reduction axis, "rows" where rows are read in place, else "packed")."""
    best = max(f.k, key=lambda r: estimate(r.extent))
    load, guard = unit_rows(f)
    if load is None or any(loads(i) for i in load.index):
        return best, "packed"
    offset = c.offset(load)
    free = [r for r in f.k if (guard is None or r not in axes_of(guard)) and stride(
        offset, r) is not None]
    if not free:
        return best, "packed"
    k = max(free, key=lambda r: (estimate(r.extent), is_unit(offset, r)))
    taps = prod(estimate(r.extent) for r in f.k if r is not k)
    return k, "rows" if taps <= MAX_TAPS["contraction"] else "packed"


def _column_mode(c: "Choices", f: Factors, lane: Axis, k: Axis) -> str:
    """"direct" where columns are read in place, else "packed"."""
    b = f.b
    if not isinstance(b, Load) or b.dtype not in ("f32", HALF) or any(loads(i) for i in b.index):
        return "packed"
    plain = all(isinstance(i, Axis) or i == Const(0) for i in b.index) and len(
        {i for i in b.index if isinstance(i, Axis)}) == sum(isinstance(i, Axis) for i in b.index)
    if b.buffer in c.program.consts and b.buffer not in c.plain and plain:
        dims = {i: d for d, i in enumerate(b.index) if isinstance(i, Axis)}
        last = [dims[r] for r in (*(r for r in f.k if r != k), k, lane) if r in dims]
        order = tuple([d for d in range(len(b.index)) if d not in last] + last)
        c.layouts.setdefault(b.buffer, Layout((Reorder(order),) if order != tuple(
            range(len(order))) else ()))
    taps = tuple(r for r in f.k if r != k)
    return "direct" if columns_in_place(c.offset(b), lane, k, taps) else "packed"


def columns_in_place(at: Expr, lane: Axis, k: Axis, taps: Axes) -> bool:
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


def unit_slice_faults(group: Group, s: Stage, choice: StageChoice, f: Factors | None) -> list[str]:
    """What is wrong with a group's ``split`` of a stage on a unit, with these Factors."""
    split = group.choices[s.name].split
    if len(group.computes) > 1 and any(b in group.connect for b in s.reads) or (
            choice.a != "rows" or choice.b != "direct"):
        return ["sums run in slices where both operands are copied; remove it"]
    if set(split) != {choice.k} or any(
            not isinstance(n, int) or n < 1 for n in split.values()):
        return [f"choose {choice.k} and a positive number of steps"]
    if f is None or not all(cuts_evenly(f, r) for r in f.k if r.name == choice.k):
        return [f"slices of {choice.k}, of which an operand's indices take quotients, are no "
                "boxes; remove it"]
    return []


def unit_faults(f: Factors, choice: StageChoice, row: ProductRow, lane: Axis, k: Axis,
                place: Callable[[str], Callable[[Shape], Expr]], group: Group) -> list[str]:
    """What is wrong with the operands of a product on a unit.  place: {buffer: index -> offset}."""
    faults = [f"{key} {said!r}; choose {' or '.join(legal)}" for key, said, legal in (
        ("a", choice.a, ("rows", "packed")), ("b", choice.b, ("direct", "packed")))
        if said not in legal]
    load, guard = unit_rows(f)
    if choice.a == "rows" and (load is None or stride(
            place(load.buffer)(load.index), k) is None or guard is not None and (
                k in axes_of(guard))):
        faults.append(f"a 'rows' needs a plain load with one stride along {k.name}, and padding "
                      "that does not depend on it; use 'packed'")
    taps = tuple(r for r in f.k if r != k)
    if choice.b == "direct" and not (isinstance(f.b, Load) and columns_in_place(
            place(f.b.buffer)(f.b.index), lane, k, taps)):
        faults.append(f"b 'direct' needs unit stride along {lane.name} and one stride along the "
                      "sum; use 'packed'")
    if faults or not group.copies:
        return faults
    return [f"{row.name} multiplies what is in {row.near}; copy {b} there, or choose another row"
            for b in near_operands(f, choice) if group.copies.get(b, row.near) != row.near]


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


__all__ = ["columns_in_place", "cuts_evenly", "near_operands", "packed_bytes", "slice_of",
           "sum_elements", "tap_step", "unit_choice", "unit_faults", "unit_needs", "unit_rows",
           "unit_slice_faults"]
