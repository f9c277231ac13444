"""Turns of kernels in the order of sub-graph instances.

An instance of a sub-graph is a piece of the work items of each of its kernels, as many of every
cluster's own.  Pieces run in the order of the instances; one that reads what another one makes
pulls that in front of it, so that every order of instances is an order of turns.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from aotc.ir.program import Program
from aotc.ir.schedule import Group, Schedule, Turn
from aotc.ir.simplify import upper
from aotc.sched.accelerator.items.own_parts import (
    Touched,
    find_group_touched,
    find_meeting,
    item_boxes_of,
    item_count,
    own_items,
    own_number,
)
from aotc.sched.accelerator.items.rings import with_rings
from aotc.sched.accelerator.places.choose_weights import Taken, gap
from aotc.sched.memory.allocate import lives
from aotc.sched.model.stored_sizes import part_bytes
from aotc.target.base import Machine, Target

# (groups of a sub-graph in order, how many instances it has), once for each instance as they run
Instances = Sequence[tuple[tuple[str, ...], int]]


def choose_order(program: Program, schedule: Schedule, target: Target,
                 instances: Instances) -> Schedule:
    """The Schedule, whose groups and places are chosen, with turns in the order of ``instances``
    and the rings and places that follow; as it is where no group has more than one piece."""
    if schedule.regions or not target.machine.stores:
        return schedule
    turns = _Turns(program, schedule, target, instances)
    order = _joined(turns.order())
    if len(order) <= len(schedule.groups):
        return schedule
    turned = with_rings(program, replace(schedule, order=order), target)
    return settle_places(program, turned, target)


def settle_places(program: Program, schedule: Schedule, target: Target) -> Schedule:
    """The Schedule with what lies in clusters' memories at places that turns leave free, temps
    before constants; what has none lies in the outermost memory."""
    live = lives(program, schedule)
    found = dict(schedule.buffers)
    for memory in target.machine.stores:
        taken: list[Taken] = []
        names = [b for b, s in found.items() if s.memory == memory.name]
        for b in sorted(names, key=lambda b: (b in program.consts, live[b][1] - live[b][0], b)):
            size = upper(part_bytes(program, schedule, b)) or 0
            at = gap(taken, *live[b], size, int(memory.capacity * memory.usable))
            if at is None:
                del found[b]
                continue
            taken.append(Taken(*live[b], at, at + size))
            found[b] = replace(found[b], offset=at)
    if len(found) < len(schedule.buffers) and any(s.slot == 0 for s in found.values()):
        # temps that have lost their places are in the first slot from now on
        found = {b: replace(s, slot=s.slot + 1) for b, s in found.items()}
    return replace(schedule, buffers=found)


@dataclass(frozen=True)
class _Turns:
    """The turns of a Schedule's groups in pieces."""

    program: Program
    schedule: Schedule
    target: Target
    instances: Instances

    @property
    def machine(self) -> Machine:
        return self.target.machine

    @cached_property
    def groups(self) -> Mapping[str, Group]:
        """Name -> group."""
        return {g.name: g for g in self.schedule.groups}

    @cached_property
    def found(self) -> Mapping[str, Touched | None]:
        """Group -> what its work items touch; None for library kernels."""
        return {g.name: find_group_touched(self.program, self.schedule, self.target, g)
                for g in self.schedule.groups}

    @cached_property
    def own(self) -> Mapping[str, int]:
        """Group -> work items that each cluster has of it; 0 if that is not known."""
        return {n: own_items(self.machine, self.groups[n], item_count(t)) if t is not None
                and item_count(t) else 0 for n, t in self.found.items()}

    @cached_property
    def pieces(self) -> Mapping[str, int]:
        """Group -> how many pieces its work items are cut into: as many as its sub-graph has
        instances, or fewer, for each has work for all cores of a cluster."""
        out = dict.fromkeys(self.groups, 1)
        # once for a sub-graph, which may have thousands of instances
        for names, count in dict.fromkeys(self.instances):
            for n in (n for n in names if n in self.groups):
                most = max(1, self.own[n] // self.machine.cores)
                out[n] = max(f for f in range(1, min(count, most) + 1) if count % f == 0
                             and self.own[n] % f == 0)
        return out

    @cached_property
    def before(self) -> Mapping[tuple[str, int], Sequence[tuple[str, int]]]:
        """Piece -> pieces that make what it reads."""
        maker = {o: g.name for g in self.schedule.groups for o in g.outputs}
        out: dict[tuple[str, int], list[tuple[str, int]]] = {
            (n, k): [] for n in self.groups for k in range(self.pieces[n])}
        for n, g in self.groups.items():
            for b in dict.fromkeys(b for c in g.computes
                                   for b in self.program.producer[c].inputs):
                p = maker.get(b)
                if p is not None and p != n:
                    need = self._needs(n, p, b)
                    for k in range(self.pieces[n]):
                        out[n, k] += [(p, j) for j in range(self.pieces[p]) if need[k][j]]
        return out

    def _needs(self, reader: str, maker: str, b: str) -> Sequence[Sequence[bool]]:
        """[piece of the reader][piece of the maker]: whether it reads what that makes."""
        shape = self.pieces[reader], self.pieces[maker]
        every = np.ones(shape, bool)
        reads, makes = (None if t is None else item_boxes_of(t, b)
                        for t in (self.found[reader], self.found[maker]))
        if shape == (1, 1) or reads is None or makes is None:
            return every.tolist()
        out = ~every
        r, m = (own_number(self.machine, self.groups[n], len(x[0])) // max(
            1, self.own[n] // self.pieces[n]) for n, x in ((reader, reads), (maker, makes)))
        for i, j in zip(*np.nonzero(find_meeting(reads, makes))):
            out[r[i], m[j]] = True
        return out.tolist()

    def order(self) -> list[Turn]:
        """Turns, each behind those that it reads of."""
        done: dict[tuple[str, int], None] = {}
        # pieces of a kernel run in the order of their work items: the first instance of a sub-graph
        # to run has the first of them, whichever it is (depth first begins with the last one)
        ran: Counter[tuple[str, ...]] = Counter()
        wanted: list[tuple[str, int]] = []
        for names, count in self.instances:
            wanted += [(n, ran[names] * self.pieces[n] // count) for n in names if n in self.groups]
            ran[names] += 1
        for piece in (*wanted, *self.before):
            stack = [piece]
            while stack:
                name, k = stack[-1]
                first = [(name, k - 1)] if k else []
                left = [x for x in (*first, *self.before[name, k]) if x not in done]
                if not left:
                    done[stack.pop()] = None
                stack += reversed(left)
        return [self._turn(n, k) for n, k in done]

    def _turn(self, name: str, piece: int) -> Turn:
        if self.pieces[name] == 1:
            return name, 0, 0
        size = self.own[name] // self.pieces[name]
        return name, piece * size, (piece + 1) * size


def _joined(order: Sequence[Turn]) -> tuple[Turn, ...]:
    """Turns of one group that follow each other as one."""
    out: list[Turn] = []
    for name, first, end in order:
        if out and out[-1][0] == name:
            out[-1] = name, out[-1][1], end
        else:
            out.append((name, first, end))
    return tuple(out)


__all__ = ["Instances", "choose_order", "settle_places"]
