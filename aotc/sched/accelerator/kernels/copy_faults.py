"""Faults of what a group says that engines copy."""

from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.target.base import Machine


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
        return [f"{where}: copies; nothing copies between {machine.memory.name} and "
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


__all__ = ["copy_faults"]
