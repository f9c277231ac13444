"""Faults of the turns of groups: an item that is missing, or runs before what it reads is made."""

from collections.abc import Mapping

import numpy as np

from aotc.ir.program import Program
from aotc.ir.schedule import Group, Schedule
from aotc.sched.accelerator.items.group_turns import (
    item_boxes_of,
    meets,
    opened_touch,
    own_items,
    own_number,
)
from aotc.sched.accelerator.items.own_parts import Touched, item_count
from aotc.target.base import Machine, Target


def order_faults(program: Program, schedule: Schedule, target: Target) -> list[str]:
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
        at = found.setdefault(name, opened_touch(program, schedule, target, g))
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
    inside = own_number(machine, g, len(reads[0]))
    chosen = (inside >= first) & (inside < end) if end else np.ones(len(reads[0]), bool)
    left = own_number(machine, p, len(makes[0])) >= made
    return bool(meets((reads[0][chosen], reads[1][chosen]),
                      (makes[0][left], makes[1][left])).any())


__all__ = ["order_faults"]
