"""Faults of what a group says that engines copy, and of a stage's choice for a unit."""

from collections.abc import Callable

from aotc.ir.access import stride
from aotc.ir.category import Factors
from aotc.ir.expr import Axis, Expr, Load, Shape, axes_of
from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.ir.stage_choice import StageChoice
from aotc.sched.accelerator.items.unit_operands import (
    cuts_evenly,
    has_columns_in_place,
    near_operands,
    unit_rows,
)
from aotc.sched.model.stages import Stage
from aotc.target.base import Machine
from aotc.target.kernel_rows import ProductRow


def copy_faults(program: Program, machine: Machine, group: Group) -> list[str]:
    """Memories that a box cannot lie in, buffers that no work item touches outside of scratch, and
    a number of clusters that the machine does not have.  Whether boxes fit, and that there are
    some, lowering finds."""
    where, most = f"group {group.name}", machine.clusters if machine.stores else 0
    faults = _pipeline(machine, group) + ([] if 0 <= group.clusters <= most else [
        f"{where}: clusters {group.clusters}; choose from 0..{most}"])
    if not group.copies:
        return faults
    load = machine.engine(machine.memory, machine.near)
    store = machine.engine(machine.near, machine.memory)
    if load is None or store is None:
        return faults + [f"{where}: copies; nothing copies between {machine.memory.name} and "
                         f"{machine.scratch}, remove it"]
    legal = machine.scratch, machine.memory.name
    touched = {b for c in group.computes for b in program.producer[c].inputs} | set(group.outputs)
    touched -= {b for b in group.connect if b not in group.outputs}
    return faults + [f"{where}: copies {b} to {m!r}; choose from {', '.join(legal)}"
            for b, m in group.copies.items() if m not in legal] + [
        f"{where}: copies {b}, which no work item touches outside of scratch; choose from "
        + ", ".join(sorted(touched)) for b in group.copies if b not in touched]


def _pipeline(machine: Machine, group: Group) -> list[str]:
    """A work item copies ahead where it makes steps that do not depend on the ones before."""
    where = f"group {group.name}"
    if group.pipeline not in (0, 2):
        return [f"{where}: pipeline {group.pipeline}; choose 0 or 2"]
    if not group.pipeline:
        return []
    if not group.run or machine.scratch not in group.copies.values():
        return [f"{where}: pipeline {group.pipeline}; it needs a run in steps, and copies to "
                f"{machine.scratch}"]
    if group.splits:
        return [f"{where}: pipeline {group.pipeline}; sums of {', '.join(group.splits)} come in "
                "slices, choose pipeline 0"]
    sliding = [s for s, how in group.reuses.items() if how != "recompute"]
    return [f"{where}: pipeline {group.pipeline}; {s} keeps part of a step for the next one, "
            "choose recompute" for s in sliding]


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
    if choice.b == "direct" and not (isinstance(f.b, Load) and has_columns_in_place(
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


__all__ = ["copy_faults", "unit_faults", "unit_slice_faults"]
