"""What is wrong with a stage's choice for a unit beside the vectors."""

from collections.abc import Callable

from aotc.ir.access import stride
from aotc.ir.category import Factors
from aotc.ir.expr import Axis, Expr, Load, Shape, axes_of
from aotc.ir.schedule import Group
from aotc.ir.stage_choice import StageChoice
from aotc.sched.accelerator.items.unit_operands import columns_in_place, near_operands, unit_rows
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


__all__ = ["unit_faults"]
