"""Rings: temps of which a cluster's memory holds what turns have made and not yet read to the end.

Index i of the outermost dimension lies at i modulo the ring's size, over the index that was there
before.  That is right where no turn reads an index that another one has taken the place of.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from aotc.ir.dtypes import Array
from aotc.ir.program import Program
from aotc.ir.schedule import Schedule, Slot
from aotc.sched.accelerator.items.own_parts import (
    Touched,
    count_clusters,
    find_group_touched,
    item_boxes_of,
    items_of_turn,
    users_of,
)
from aotc.sched.model.stored_sizes import find_outermost
from aotc.target.base import Machine, Target


@dataclass(frozen=True)
class _Touch:
    """What the work items of a turn make (or read) of a temp: the cluster of each, its first and
    last index of the outermost dimension."""

    makes: bool
    cluster: Array
    low: Array
    last: Array


def with_rings(program: Program, schedule: Schedule, target: Target) -> Schedule:
    """The Schedule with the smallest ring for each temp in clusters' memories that its turns leave;
    as it is without turns."""
    if not schedule.order:
        return schedule
    seen: dict[str, Touched | None] = {}
    found = dict(schedule.buffers)
    for b, s in schedule.buffers.items():
        if not _may_have(program, target.machine, b, s):
            continue
        touches, own = _touches(program, schedule, target, b, seen), _own(program, schedule, b)
        ring = next((r for r in range(1, own) if own % r == 0 and _keeps(
            touches, r, target.machine.clusters)), 0) if touches else 0
        found[b] = replace(s, ring=ring)
    return replace(schedule, buffers=found)


def ring_size_faults(program: Program, schedule: Schedule, machine: Machine, b: str) -> list[str]:
    """A ring that no tensor of that place and shape can have."""
    s = schedule.buffers[b]
    own = _own(program, schedule, b)
    if not s.ring or _may_have(program, machine, b, s) and 0 < s.ring <= own and own % s.ring == 0:
        return []
    sizes = [str(r) for r in range(1, own) if own % r == 0] if _may_have(
        program, machine, b, s) else []
    return [f"buffers: {b}: ring {s.ring}; choose from " + ", ".join(["0", *sizes])]


def ring_faults(program: Program, schedule: Schedule, target: Target) -> list[str]:
    """Turns that read what another one has taken the place of; of a Schedule whose order has no
    other faults."""
    seen: dict[str, Touched | None] = {}
    return [f"buffers: {b}: a turn reads what is not in its ring of {s.ring} any more; choose a "
            "larger one" for b, s in schedule.buffers.items() if s.ring and not _keeps(
                _touches(program, schedule, target, b, seen), s.ring, target.machine.clusters)]


def _may_have(program: Program, machine: Machine, b: str, s: Slot) -> bool:
    return b not in program.consts and s.memory in {x.name for x in machine.stores}


def _own(program: Program, schedule: Schedule, b: str) -> int:
    """Indices of the outermost dimension that each cluster has; 0 where layouts have none."""
    found = find_outermost(program, schedule, b)
    return found[1][found[0]] // schedule.buffers[b].parts if found else 0


def _touches(program: Program, schedule: Schedule, target: Target, b: str,
             seen: dict[str, Touched | None]) -> list[_Touch]:
    """What turns make and read of a temp, in order; [] if nobody knows.  seen: what is known of
    groups."""
    found, out = find_outermost(program, schedule, b), list[_Touch]()
    users = {g.name: g for i in users_of(program, schedule, b) for g in (schedule.groups[i],)}
    for name, first, end in schedule.order or [(n, 0, 0) for n in users]:
        g = users.get(name)
        if found is None or g is None:
            continue
        if name not in seen:
            seen[name] = find_group_touched(program, schedule, target, g)
        d, at = found[0], seen[name]
        ends = None if at is None else item_boxes_of(at, b)
        if ends is None:
            return []
        count = len(ends[0])
        chosen = items_of_turn(target.machine, g, count, first, end)
        cluster = np.arange(count) * count_clusters(target.machine, g) // count
        out.append(_Touch(b in g.outputs, cluster[chosen], ends[0][chosen, d], ends[1][chosen, d]))
    return out


def _keeps(touches: list[_Touch], ring: int, clusters: int) -> bool:
    """True if every turn finds in a ring what it reads."""
    there = np.full((clusters, ring), -1)
    for t in touches:
        if np.any(t.low // ring != t.last // ring):
            return False  # a box would go around
        for cluster, index in _indices(t):
            if t.makes:
                there[cluster, index % ring] = index
        if any(np.any(there[c, i % ring] != i) for c, i in _indices(t)):
            return False
    return bool(touches)


def _indices(t: _Touch) -> Iterator[tuple[Array, Array]]:
    """(cluster, index) of all work items side by side, index after index of their boxes."""
    for k in range(int((t.last - t.low).max(initial=-1)) + 1):
        live = t.low + k <= t.last
        yield t.cluster[live], t.low[live] + k


__all__ = ["ring_faults", "ring_size_faults", "with_rings"]
