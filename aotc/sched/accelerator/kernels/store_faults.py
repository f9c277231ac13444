"""Faults of tensors that lie in the memory of a cluster or a worker, and of the turns of groups: an
item that is missing, or runs before what it reads is made."""

from collections.abc import Mapping

from aotc.errors import ScheduleError
from aotc.ir.program import Program, static_shape
from aotc.ir.schedule import Group, Schedule, Slot
from aotc.ir.simplify import upper
from aotc.sched.accelerator.items.own_parts import (
    Touched,
    count_clusters,
    find_group_touched,
    find_meeting,
    find_touched,
    has_own_item,
    has_own_part,
    item_boxes_of,
    item_count,
    items_of_turn,
    own_items,
    own_number,
    readers_of,
)
from aotc.sched.accelerator.items.rings import ring_faults, ring_size_faults
from aotc.sched.items.group_context import open_group
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
        return _order_faults(program, schedule, target)
    for b, s in homes.items():
        faults += _place(program, schedule, target.machine, b, s)
        faults += _since(program, schedule, b, s)
    slots = {s.slot: s.memory for s in homes.values()}
    faults += [f"buffers: {b}: slot {s.slot} stands for {slots[s.slot]}; choose another one, or "
               "that memory" for b, s in schedule.buffers.items()
               if slots.get(s.slot, s.memory) != s.memory]
    if faults:
        return faults
    faults = [f for g in schedule.groups for f in home_faults(program, schedule, target, g)]
    return faults or _order_faults(program, schedule, target) or ring_faults(
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
    readers = readers_of(program, schedule, b)
    if not s.since or s.since in names and b in program.consts and readers and (
            names.index(s.since) <= readers[0]):
        return []
    first = names[:readers[0] + 1] if readers and b in program.consts else []
    return [f"buffers: {b}: since {s.since}; choose from " + (", ".join(first) or "no group")]


def home_faults(program: Program, schedule: Schedule, target: Target, g: Group) -> list[str]:
    """Faults of a group that touches what lies in memories of clusters or workers."""
    machine, where = target.machine, f"group {g.name}"
    touched = {b for c in g.computes for b in program.producer[c].inputs} | set(g.outputs)
    near = sorted(b for b in touched & set(schedule.buffers) if schedule.buffers[b].memory)
    found: Touched | None = None
    if near and group_stages(program, g):
        try:
            found = find_touched(open_group(program, schedule, target, g))
        except ScheduleError as err:
            return err.faults
    faults, clusters = [], count_clusters(machine, g)
    for b in near:
        s = schedule.buffers[b]
        if found is None or b not in found.boxes:
            faults.append(f"{where}: touches {b}, which is in {s.memory}, without copying it to "
                          f"{machine.scratch}; store it in {machine.memory.name}")
        elif s.memory == machine.scratch:
            faults += _held(program, schedule, machine, found, b)
        elif b in program.consts:
            if clusters > s.each:
                faults.append(f"{where}: its work items are dealt to {clusters} clusters, "
                              f"of which {s.each} have {b}; choose no more")
        elif clusters != s.parts:
            faults.append(f"{where}: its work items are dealt to {clusters} clusters, {b} "
                          f"is in {s.memory} in {s.parts} parts; choose the same number")
        elif not has_own_part(program, found, b, s.parts):
            faults.append(f"{where}: a cluster would need more of {b} than its own of {s.parts} "
                          f"parts; choose 1 part and 1 cluster")
    return faults


def _held(program: Program, schedule: Schedule, machine: Machine, found: Touched,
          b: str) -> list[str]:
    """Faults of a group that touches a temp which stays with workers."""
    g, s = found.at.ctx.group, schedule.buffers[b]
    items, workers = item_count(found), count_clusters(machine, g) * machine.cores
    if (items, workers) != (s.parts, s.each):
        return [f"group {g.name}: has {items} work items on {workers} workers, {b} is in "
                f"{s.memory} in {s.parts} parts on {s.each}; choose the same numbers"]
    if not has_own_item(program, schedule, found, b):
        return [f"group {g.name}: a work item would need more of {b} than its own of {s.parts} "
                f"parts; store it in another memory than {s.memory}"]
    return []


def _order_faults(program: Program, schedule: Schedule, target: Target) -> list[str]:
    """Turns that do not run every work item once, in order, or one before what it reads is made."""
    if not schedule.order:
        return []
    groups = {g.name: g for g in schedule.groups}
    if not target.machine.stores or schedule.regions:
        return [f"order: {target.name} runs whole groups, remove it" if not schedule.regions else
                "order: a schedule with regions runs whole groups, remove it"]
    done: dict[str, int] = {}
    found: dict[str, Touched | None] = {}
    faults = []
    for name, first, end in schedule.order:
        g = groups.get(name)
        if g is None:
            return [f"order: {name}; choose from " + ", ".join(groups)]
        at = found.setdefault(name, find_group_touched(program, schedule, target, g))
        count = item_count(at) if at is not None else 0
        own = own_items(target.machine, g, count) if count else 0
        whole = (first, end) == (0, 0)
        if not whole and (first != done.get(name, 0) or not first < end <= own):
            return [f"order: {name} from {first} to {end}; its work items from "
                    f"{done.get(name, 0)} to {own} are left, or write 0 to 0 for all of them"]
        if whole and name in done:
            return [f"order: {name} has had a turn; it cannot have all of its work items in one"]
        done[name] = own if whole else end
        faults += _before(program, schedule, target, (g, first, end), done, found)
        done[name] = max(done[name], 1)
    missing = [n for n, g in groups.items()
               if done.get(n, 0) < _all(target.machine, g, found.get(n))]
    return faults + [f"order: {n} has work items left without a turn" for n in missing]


def _all(machine: Machine, g: Group, at: Touched | None) -> int:
    return max(1, own_items(machine, g, item_count(at))) if at is not None else 1


def _before(program: Program, schedule: Schedule, target: Target, turn: tuple[Group, int, int],
            done: Mapping[str, int], found: Mapping[str, Touched | None]) -> list[str]:
    """What a turn reads that has not been made."""
    g, first, end = turn
    maker = {o: p for p in schedule.groups for o in p.outputs}
    faults = []
    for b in dict.fromkeys(b for c in g.computes for b in program.producer[c].inputs):
        p = maker.get(b)
        if p is None or p is g:
            continue
        own = _all(target.machine, p, found.get(p.name))
        if done.get(p.name, 0) >= own and p.name in done:
            continue
        late = _late(target.machine, (g, first, end), p, done.get(p.name, 0), b, found)
        if late is None or late:
            faults.append(f"order: {g.name} from {first} to {end} reads {b} before {p.name} has "
                          "made it; choose a later turn")
    return faults


def _late(machine: Machine, turn: tuple[Group, int, int], p: Group, made: int, b: str,
          found: Mapping[str, Touched | None]) -> bool | None:
    """True if items of a turn meet what items of ``p`` make behind the first ``made`` of each
    cluster; None if nobody knows."""
    g, first, end = turn
    reader, maker = found.get(g.name), found.get(p.name)
    if reader is None or maker is None:
        return None
    reads, makes = item_boxes_of(reader, b), item_boxes_of(maker, b)
    if reads is None or makes is None:
        return None
    chosen = items_of_turn(machine, g, len(reads[0]), first, end)
    left = own_number(machine, p, len(makes[0])) >= made
    return bool(find_meeting((reads[0][chosen], reads[1][chosen]),
                             (makes[0][left], makes[1][left])).any())


__all__ = ["home_faults", "store_faults"]
