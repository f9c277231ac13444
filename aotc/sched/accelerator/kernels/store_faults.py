"""Faults of tensors that lie in the memory of a cluster or a worker."""

from aotc.errors import ScheduleError
from aotc.ir.program import Program, static_shape
from aotc.ir.schedule import Group, Schedule, Slot
from aotc.ir.simplify import upper
from aotc.sched.accelerator.items.group_turns import has_own_item
from aotc.sched.accelerator.items.own_parts import (
    Touched,
    dealt,
    has_own_part,
    item_count,
    touched_by,
)
from aotc.sched.accelerator.items.rings import ring_faults, ring_size_faults
from aotc.sched.accelerator.kernels.order_faults import order_faults
from aotc.sched.items.open_group import opened
from aotc.sched.model.stages import group_stages
from aotc.sched.model.stored_sizes import part_bytes
from aotc.target.base import Machine, Memory, Target


def store_faults(program: Program, schedule: Schedule, target: Target) -> list[str]:
    """Places in memories of clusters that cannot be, and groups that do not find there what they
    touch.  ``program`` has its rewrites applied; of a Schedule without other faults."""
    faults = []
    homes = {b: s for b, s in schedule.buffers.items()
             if s.memory or s.parts != 1 or s.each or s.since or s.ring or b in program.consts}
    if not homes:
        return order_faults(program, schedule, target)
    for b, s in homes.items():
        faults += _place(program, schedule, target.machine, b, s)
        faults += _since(program, schedule, b, s)
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
    return faults or order_faults(program, schedule, target) or ring_faults(
        program, schedule, target)


def _place(program: Program, schedule: Schedule, machine: Machine, b: str, s: Slot) -> list[str]:
    where = f"buffers: {b}"
    constant = b in program.consts
    stores: dict[str, Memory] = {x.name: x for x in machine.stores}
    if not constant and machine.stores:
        stores[machine.scratch] = machine.near
    if s.memory not in stores:
        legal = tuple(stores) if constant else (f'"" ({machine.memory.name})', *stores)
        return [f"{where}: memory {s.memory!r}; tensors can be stored in " + ", ".join(legal)]
    if s.memory == machine.scratch:
        if s.each % machine.cores or not 0 < s.each <= machine.workers or (
                s.parts % max(1, s.each // machine.cores)):
            return [f"{where}: {s.parts} parts with {s.each} workers; choose a multiple of "
                    f"{machine.cores} up to {machine.workers}, and as many parts for each cluster"]
    elif not 1 <= (s.each if constant else s.parts) <= machine.clusters or (
            s.parts != 1 if constant else s.each):
        return [f"{where}: each {s.each}; choose from 1..{machine.clusters} clusters that each "
                "have all of it, in 1 part" if constant else
                f"{where}: {s.parts} parts; choose from 1..{machine.clusters}"]
    shape = static_shape(program.shape(b))
    if shape is None or s.span != 1:
        return [f"{where}: in {s.memory} it needs fixed extents and one slot"]
    faults = ring_size_faults(program, schedule, machine, b)
    if faults:
        return faults
    size, room = upper(part_bytes(program, schedule, b)), stores[s.memory].capacity
    if size is None or s.offset + size > room:
        return [f"{where}: ends at byte {s.offset + (size or 0)} of {s.memory}, which has {room}"]
    return []


def _since(program: Program, schedule: Schedule, b: str, s: Slot) -> list[str]:
    """A group since which a constant is copied that runs behind one that reads it."""
    names = [g.name for g in schedule.groups]
    readers = [i for i, g in enumerate(schedule.groups) if any(
        b in program.producer[c].inputs for c in g.computes)]
    if not s.since or s.since in names and b in program.consts and readers and (
            names.index(s.since) <= readers[0]):
        return []
    first = names[:readers[0] + 1] if readers and b in program.consts else []
    return [f"buffers: {b}: since {s.since}; choose from " + (", ".join(first) or "no group")]


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
        elif s.memory == machine.scratch:
            faults += _held(program, schedule, machine, found, b)
        elif b in program.consts:
            if dealt(machine, g) > s.each:
                faults.append(f"{where}: its work items are dealt to {dealt(machine, g)} clusters, "
                              f"of which {s.each} have {b}; choose no more")
        elif dealt(machine, g) != s.parts:
            faults.append(f"{where}: its work items are dealt to {dealt(machine, g)} clusters, {b} "
                          f"is in {s.memory} in {s.parts} parts; choose the same number")
        elif not has_own_part(program, found, b, s.parts):
            faults.append(f"{where}: a cluster would need more of {b} than its own of {s.parts} "
                          f"parts; choose 1 part and 1 cluster")
    return faults


def _held(program: Program, schedule: Schedule, machine: Machine, found: Touched,
          b: str) -> list[str]:
    """Faults of a group that touches a temp which stays with workers."""
    g, s = found.at.ctx.group, schedule.buffers[b]
    items, workers = item_count(found), dealt(machine, g) * machine.cores
    if (items, workers) != (s.parts, s.each):
        return [f"group {g.name}: has {items} work items on {workers} workers, {b} is in "
                f"{s.memory} in {s.parts} parts on {s.each}; choose the same numbers"]
    if not has_own_item(program, schedule, found, b):
        return [f"group {g.name}: a work item would need more of {b} than its own of {s.parts} "
                f"parts; store it in another memory than {s.memory}"]
    return []


__all__ = ["store_faults"]
