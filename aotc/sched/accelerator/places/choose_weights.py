"""Which constants come into the memory of every cluster, and when.

Workers that each copy a constant from the outermost memory share its bandwidth; a cluster brings
it once into its own memory while kernels before compute, and its workers copy it from there.  That
is worth it where what kernels gain is more than the time of the copy that nothing hides.
Each constant is brought as late as hides its copy, as far as there is room that long.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from aotc.ir.program import Program
from aotc.ir.schedule import Schedule, Slot
from aotc.ir.simplify import upper
from aotc.sched.accelerator.items.own_parts import count_clusters, readers_of
from aotc.sched.accelerator.places.item_seconds import group_seconds
from aotc.sched.memory.allocate import lives
from aotc.sched.model.stored_sizes import part_bytes
from aotc.target.base import Target


@dataclass(frozen=True)
class Taken:
    """Bytes of a cluster's memory from ``offset`` to ``end`` that something has from group
    ``first`` to group ``last``."""

    first: int
    last: int
    offset: int
    end: int


def choose_weights(program: Program, schedule: Schedule, target: Target) -> Schedule:
    """The Schedule, whose temps have their places in clusters' memories, with places there for
    constants (instead of those that it has); as it is on machines without such memories, and where
    groups have turns."""
    machine = target.machine
    if not machine.stores or schedule.regions or schedule.order or machine.engine(
            machine.memory, machine.stores[0]) is None:
        return schedule
    memory = machine.stores[0]
    found = {b: s for b, s in schedule.buffers.items() if b not in program.consts}
    schedule = replace(schedule, buffers=found)
    live = lives(program, schedule)
    taken = [Taken(*live[b], s.offset, s.offset + _bytes(program, schedule, b))
             for b, s in found.items() if s.memory == memory.name]
    number = next((s.slot for s in found.values() if s.memory == memory.name), max(
        [len(live), *(s.slot + s.span for s in found.values())]))
    starts, free = [0.0], 0.0  # when each group begins, and when the clusters' engines are free
    for i in range(len(schedule.groups)):
        readable = _readable(program, schedule, i)
        for b in readable:
            now = replace(schedule, buffers=found)
            brought = _brought(program, now, target, i, b, starts, free, taken)
            if brought is not None:
                slot, free = brought
                found = {**found, b: replace(slot, slot=number)}
        taking = group_seconds(
            program, replace(schedule, buffers=found), target, schedule.groups[i])
        starts.append(max(starts[-1], free if found.keys() & readable else 0.0) + taking)
    return replace(schedule, buffers=found)


def _readable(program: Program, schedule: Schedule, i: int) -> list[str]:
    """Constants that group ``i`` is the first one to read, and that all do by copies."""
    mine = dict.fromkeys(b for c in schedule.groups[i].computes
                         for b in program.producer[c].inputs if b in program.consts)
    readers = {b: readers_of(program, schedule, b) for b in mine}
    return [b for b, found in readers.items() if found[0] == i and all(
        b in schedule.groups[n].copies for n in found)]


def _brought(program: Program, schedule: Schedule, target: Target, i: int, b: str,
             starts: Sequence[float], free: float, taken: list[Taken]
             ) -> tuple[Slot, float] | None:
    """(where a constant lies that group ``i`` reads first, and since which group, when the engines
    are free again), whose bytes are added to ``taken``; None if that gains nothing, or there is no
    room."""
    machine, memory = target.machine, target.machine.stores[0]
    readers = [schedule.groups[n] for n in readers_of(program, schedule, b)]
    last = schedule.groups.index(readers[-1])
    slot = Slot(0, memory=memory.name, each=max(count_clusters(machine, g) for g in readers))
    near = replace(schedule, buffers={**schedule.buffers, b: slot})
    gain = sum(group_seconds(program, schedule, target, g) - group_seconds(
        program, near, target, g) for g in readers)
    if not 0 < gain < inf:
        return None
    size = _bytes(program, near, b)
    busy = size * slot.each / machine.memory.bandwidth + machine.memory.latency
    best = None
    for since in range(i, -1, -1):
        at = gap(taken, since, last, size, int(memory.capacity * memory.usable))
        if at is None:
            break
        best = since, at
        if max(starts[since], free) + busy <= starts[i] or starts[since] <= free:
            break  # its copy is hidden, or would not begin earlier
    if best is None:
        return None
    since, at = best
    end = max(starts[since], free) + busy
    if gain <= end - max(starts[i], free):
        return None
    taken.append(Taken(since, last, at, at + size))
    return replace(slot, offset=at, since=schedule.groups[since].name if since < i else ""), end


def gap(taken: Sequence[Taken], first: int, last: int, size: int, room: int) -> int | None:
    """Where so many bytes have the smallest gap between what is taken from group ``first`` to
    ``last``, below ``room``; None if they have none."""
    busy = sorted((t.offset, t.end) for t in taken if t.first <= last and first <= t.last)
    best, least, at = None, inf, 0
    for low, end in (*busy, (room, room)):
        if size <= low - at < least:
            best, least = at, low - at
        at = max(at, end)
    return best


def _bytes(program: Program, schedule: Schedule, b: str) -> int:
    size = upper(part_bytes(program, schedule, b))
    assert size is not None, b  # ``choose_stores`` asks for fixed extents, constants have them
    return size


__all__ = ["Taken", "choose_weights", "gap"]
