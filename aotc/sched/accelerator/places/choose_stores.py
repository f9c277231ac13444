"""Which temps are stored in the memory of a cluster, from the kernel that makes them to the last
that reads them.

Where work items of different clusters touch different parts of a tensor, every cluster has its own
part of it.  Else all kernels that touch it run on one cluster: by cost, if what is saved of the
outermost memory is more than what fewer workers lose.  What does not fit goes by the rule of
``instances/spill.py``: what is live longest is stored further out.
"""

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from aotc.ir.expr import Const
from aotc.ir.program import Program, static_shape
from aotc.ir.schedule import Group, Schedule, Slot
from aotc.sched.accelerator.instances.spill import Lifetime, place_outputs, spill_outputs
from aotc.sched.accelerator.items.own_parts import find_group_touched, has_own_part, users_of
from aotc.sched.accelerator.places.item_seconds import group_seconds
from aotc.sched.memory.allocate import liveness
from aotc.sched.model.stages import group_stages
from aotc.sched.model.stored_sizes import part_bytes
from aotc.target.base import Memory, Target


def choose_stores(program: Program, schedule: Schedule, target: Target, always: bool = False,
                  barred: Collection[str] = (), fits: bool = True) -> Schedule:
    """The Schedule with places in a cluster's memory for temps, and ``clusters`` of the groups that
    touch them; as it is on machines without one, and where extents are not known.  always: also
    where fewer workers lose more than it saves; barred: temps that stay in the outermost memory;
    fits: leave out what does not fit while all of it is there (turns may leave less of it)."""
    machine = target.machine
    temps = liveness(program, schedule.groups)
    if not machine.stores or schedule.regions or any(
            static_shape(program.shape(b)) is None for b in temps):
        return schedule
    memory = machine.stores[0]
    memory = memory if fits else replace(memory, capacity=sys.maxsize, usable=1.0)
    users = {b: users_of(program, schedule, b) for b in temps if b not in barred}

    def legal(of: Schedule, parts: int) -> list[str]:
        found = [find_group_touched(program, of, target, g) for g in of.groups]
        return [b for b, at in users.items() if all(
            (t := found[i]) is not None and has_own_part(program, t, b, parts) for i in at)]

    if machine.clusters > 1:
        turned = replace(schedule, groups=tuple(_in_order(program, g) for g in schedule.groups))
        homes = legal(turned, machine.clusters)
        if homes:
            return _stored(program, turned, memory, homes, users, machine.clusters)
    homes = legal(schedule, 1)
    if not always and machine.clusters > 1:
        homes = _paying(program, schedule, target, users, homes)
    return _stored(program, schedule, memory, homes, users, 1) if homes else schedule


def _in_order(program: Program, g: Group) -> Group:
    """The group with its work items numbered along the anchor's axes in their order: those of a
    tensor's outermost dimension part it."""
    anchor = next((s for s in group_stages(program, g) if g.anchor in s.computes), None)
    if anchor is None or g.run:
        return g
    order = [a.name for a in anchor.axes if a.name in g.parallel]
    return replace(g, parallel=tuple(order))


def _paying(program: Program, schedule: Schedule, target: Target, users: Mapping[str, list[int]],
            homes: Sequence[str]) -> list[str]:
    """Of temps that one cluster could hold those whose kernels, with all that hang together by
    them, take less time on its workers than on all with the temps in the outermost memory."""
    owner = list(range(len(schedule.groups)))

    def root(i: int) -> int:
        while owner[i] != i:
            i = owner[i]
        return i

    for b in homes:
        for i in users[b]:
            owner[root(i)] = root(users[b][0])
    gain: dict[int, float] = {}
    for i in {i for b in homes for i in users[b]}:
        g, near = schedule.groups[i], {b: Slot(0, memory=target.machine.stores[0].name)
                                       for b in homes if i in users[b]}
        before = group_seconds(program, replace(schedule, buffers={}), target, g)
        after = group_seconds(program, replace(schedule, buffers=near), target,
                              replace(g, clusters=1))
        gain[root(i)] = gain.get(root(i), 0.0) + before - after
    return [b for b in homes if gain[root(users[b][0])] > 0]


def _stored(program: Program, schedule: Schedule, memory: Memory, homes: Sequence[str],
            users: Mapping[str, list[int]], parts: int) -> Schedule:
    """The Schedule with those of ``homes`` that fit in a cluster's memory."""
    slots = {b: Slot(0, 0, memory=memory.name, parts=parts) for b in homes}
    sized = replace(schedule, buffers=slots)
    lives = []
    for b in homes:
        size = part_bytes(program, sized, b)
        assert isinstance(size, Const), size
        at = users[b]
        lives.append(Lifetime(b, size.value, at[0], at[-1], tuple(at[1:])))
    offsets = _offsets(lives, int(memory.capacity * memory.usable))
    number = int(len(offsets) < len(liveness(program, schedule.groups)))
    slots = {b: replace(slots[b], slot=number, offset=offset) for b, offset in offsets.items()}
    alone = {i for b in offsets for i in users[b]} if parts == 1 else set()
    groups = tuple(replace(g, clusters=1) if i in alone else g
                   for i, g in enumerate(schedule.groups))
    return replace(schedule, groups=groups, buffers=slots)


def _offsets(lives: Sequence[Lifetime], room: int) -> dict[str, int]:
    """Places in a memory of those that lie there: what would end behind it, because what is free
    lies in pieces, does not."""
    levels = spill_outputs(lives, (room, 1 << 62))
    while True:
        places = [p for p in place_outputs(lives, levels) if p.level == 0]
        over = next((p.name for p in places if p.offset + p.size > room), None)
        if over is None:
            return {p.name: p.offset for p in places}
        levels = replace(levels, level={**levels.level, over: 1})


__all__ = ["choose_stores"]
