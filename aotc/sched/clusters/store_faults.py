"""Faults of tensors that lie in the memory of a cluster, and of groups that are dealt to some."""

from aotc.errors import ScheduleError
from aotc.ir.program import Program, static_shape
from aotc.ir.schedule import Group, Schedule, Slot
from aotc.ir.simplify import upper
from aotc.sched.clusters.own_parts import Touched, dealt, has_own_part, touched_by
from aotc.sched.lowering.open_group import opened
from aotc.sched.memory.allocate import part_bytes
from aotc.sched.model.stages import group_stages
from aotc.target.base import Machine, Memory, Target


def cluster_faults(machine: Machine, group: Group) -> list[str]:
    """A number of clusters that the machine does not have."""
    most = machine.clusters if machine.stores else 0
    return [] if 0 <= group.clusters <= most else [
        f"group {group.name}: clusters {group.clusters}; choose from 0..{most}"]


def store_faults(program: Program, schedule: Schedule, target: Target) -> list[str]:
    """Places in memories of clusters that cannot be, and groups that do not find there what they
    touch.  ``program`` has its rewrites applied; of a Schedule without other faults."""
    faults = []
    homes = {b: s for b, s in schedule.buffers.items() if s.memory or s.parts != 1}
    if not homes:
        return []
    for b, s in homes.items():
        faults += _place(program, schedule, target.machine, b, s)
    slots = {s.slot: s.memory for s in homes.values()}
    faults += [f"buffers: {b}: slot {s.slot} stands for {slots[s.slot]}; choose another one, or "
               "that memory" for b, s in schedule.buffers.items()
               if slots.get(s.slot, s.memory) != s.memory]
    if faults:
        return faults
    for g in schedule.groups:
        near = {b for c in g.computes for b in program.producer[c].inputs if b in homes}
        near |= {b for b in g.outputs if b in homes}
        faults += _group(program, schedule, target, g, sorted(near)) if near else []
    return faults


def _place(program: Program, schedule: Schedule, machine: Machine, b: str, s: Slot) -> list[str]:
    where = f"buffers: {b}"
    stores: dict[str, Memory] = {x.name: x for x in machine.stores}
    if s.memory not in stores:
        return [f"{where}: memory {s.memory!r}; tensors can be stored in "
                + ", ".join((f'"" ({machine.memory.name})', *stores))]
    if not 1 <= s.parts <= machine.clusters:
        return [f"{where}: {s.parts} parts; choose from 1..{machine.clusters}"]
    shape = static_shape(program.shape(b))
    if shape is None or s.span != 1:
        return [f"{where}: in {s.memory} it needs fixed extents and one slot"]
    size, room = upper(part_bytes(program, schedule, b)), stores[s.memory].capacity
    if size is None or s.offset + size > room:
        return [f"{where}: ends at byte {s.offset + (size or 0)} of {s.memory}, which has {room}"]
    return []


def _group(program: Program, schedule: Schedule, target: Target, g: Group,
           near: list[str]) -> list[str]:
    """Faults of a group that touches the buffers ``near`` of a cluster's memory."""
    machine, where = target.machine, f"group {g.name}"
    found: Touched | None = None
    if group_stages(program, g):
        try:
            found = touched_by(opened(program, schedule, target, g))
        except ScheduleError as err:
            return err.faults
    faults = []
    for b in near:
        s = schedule.buffers[b]
        if found is None or b not in found.boxes:
            faults.append(f"{where}: touches {b}, which is in {s.memory}, without copying it to "
                          f"{machine.scratch}; store it in {machine.memory.name}")
        elif dealt(machine, g) != s.parts:
            faults.append(f"{where}: its work items are dealt to {dealt(machine, g)} clusters, {b} "
                          f"is in {s.memory} in {s.parts} parts; choose the same number")
        elif not has_own_part(program, found, b, s.parts):
            faults.append(f"{where}: a cluster would need more of {b} than its own of {s.parts} "
                          f"parts; choose 1 part and 1 cluster")
    return faults


__all__ = ["cluster_faults", "store_faults"]
