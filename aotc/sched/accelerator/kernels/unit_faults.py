"""What is wrong with a stage's choice for a unit beside the vectors."""

from collections.abc import Callable

from aotc.ir.access import stride
from aotc.ir.category import Factors
from aotc.ir.expr import Axis, Expr, Load, Shape, axes_of
from aotc.ir.schedule import Group
from aotc.ir.stage_choice import StageChoice
from aotc.sched.accelerator.items.unit_operands import (
    columns_in_place,
    cuts_evenly,
    near_operands,
    unit_rows,
)
from aotc.sched.model.stages import Stage
from aotc.target.kernel_rows import ProductRow


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


def unit_slice_faults(group: Group, s: Stage, choice: StageChoice,
                      f: Factors | None) -> list[str]:
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


__all__ = ["unit_faults", "unit_slice_faults"]
