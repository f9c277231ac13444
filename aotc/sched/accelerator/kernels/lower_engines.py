"""What a Plan says of engines, and of what clusters and workers hold in their own memories."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from aotc.errors import ScheduleError
from aotc.ir.contents import with_buffers
from aotc.ir.expr import Const, as_expr
from aotc.ir.kernel.plan_kernels import About, Dealt, LoweredKernel
from aotc.ir.plan import Place, Plan
from aotc.ir.program import Program
from aotc.ir.schedule import Schedule
from aotc.ir.statements import Body, Box, Copy, Stmt, Wait
from aotc.sched.accelerator.items.own_parts import readers_of
from aotc.sched.accelerator.kernels.lower_copies import held_temps
from aotc.sched.memory.allocate import lives
from aotc.sched.model.stored_sizes import physical_elements, ring_elements, store_strides
from aotc.target.base import Machine, Target

KEPT = "_kept"  # behind the name of a constant: what clusters have of it


@dataclass(frozen=True)
class Engines:
    """``kernels`` in call order, with those that bring constants, and their ``turns``; ``names``:
    {constant that clusters have: the name of what lies there}."""

    program: Program
    schedule: Schedule
    machine: Machine
    kernels: tuple[LoweredKernel, ...]
    turns: tuple[tuple[int, int, int], ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def strides(self) -> Mapping[int, int]:
        """{slot that stands for memories of clusters or workers: bytes that one of them has}."""
        return store_strides(self.program, self.schedule)

    def placed(self, place: Place, buffer: str) -> Place:
        """The Place of a buffer in the arena, where that stands for memories of clusters or
        workers."""
        slot = self.schedule.buffers[buffer]
        return replace(
            place, name=self.names.get(buffer, buffer), memory=slot.memory, parts=slot.parts,
            each=slot.each, stride=self.strides[slot.slot],
            ring=ring_elements(self.program, self.schedule, buffer)) if slot.memory else place

    def told(self, plan: Plan) -> Plan:
        """The Plan with the machine's memories, engines and units, and turns."""
        machine = self.machine
        if not machine.on_copies:
            return plan
        inner = machine.near, *machine.stores
        outside = {machine.memory.name: ""}
        return replace(
            plan, memories=tuple((x.name, x.capacity) for x in inner), turns=self.turns,
            engines=tuple((e.name, outside.get(e.source, e.source),
                           outside.get(e.target, e.target)) for e in machine.engines),
            units=tuple((u.name, u.memory) for u in machine.units),
            cores=machine.cores if machine.stores else 0)


def engines(program: Program, schedule: Schedule, target: Target,
            kernels: tuple[LoweredKernel, ...]) -> Engines:
    """What engines are told between the kernels of a Schedule's groups; nothing on machines without
    them.  ScheduleError where scratch of a kernel goes over what stays in its memory meanwhile."""
    found = Engines(program, schedule, target.machine, kernels)
    if not target.machine.on_copies:
        return found
    faults = _scratch_faults(program, schedule, target.machine, kernels)
    if faults:
        raise ScheduleError(faults)
    names = _kept_names(program, schedule)
    if not names and not schedule.order:
        return found
    renamed = [with_buffers(k, names) for k in kernels] if names else kernels
    kernels, turns = _with_turns(program, schedule, target, renamed, names)
    return replace(found, kernels=kernels, turns=turns, names=names)


def _scratch_faults(program: Program, schedule: Schedule, machine: Machine,
                    kernels: Sequence[LoweredKernel]) -> list[str]:
    """Scratch of kernels that goes over what stays in its memory meanwhile."""
    stays = held_temps(schedule, machine)
    if not stays:
        return []
    live = lives(program, schedule)
    turns = [t[0] for t in schedule.order] or [g.name for g in schedule.groups]
    sizes = [k.slab_bytes if isinstance(k.slab_bytes, int) else 0 for k in kernels]  # it has bounds
    return [f"group {name}: its scratch ends at byte {size} of {machine.scratch} "
            f"and goes over {b}, which stays there from byte {schedule.buffers[b].offset} on; "
            "choose smaller tiles or store that elsewhere"
            for b in sorted(stays) for g, size in zip(schedule.groups, sizes)
            for name in [g.name] if any(
                live[b][0] <= n <= live[b][1] for n, t in enumerate(turns) if t == name)
            and size > schedule.buffers[b].offset]


def _kept_names(program: Program, schedule: Schedule) -> dict[str, str]:
    """{constant that has a place in a cluster's memory: the name of what lies there}."""
    out: dict[str, str] = {}
    for b in schedule.buffers:
        if b in program.consts:
            name = b + KEPT
            while name in program.buffers:
                name += "_"
            out[b] = name
    return out


def _with_turns(program: Program, schedule: Schedule, target: Target,
               kernels: Sequence[LoweredKernel], names: Mapping[str, str]
               ) -> tuple[tuple[LoweredKernel, ...], tuple[tuple[int, int, int], ...]]:
    """(kernels, turns): those of the groups, in front of the first turn of each one that waits for
    constants or since which others are copied, with those whose work items are the clusters that
    have them, one for each number of clusters.  No turns where none are chosen."""
    number = {g.name: i for i, g in enumerate(schedule.groups)}
    readers = {b: readers_of(program, schedule, b) for b in names}
    begun: set[str] = set()  # groups that have had a turn
    out: list[LoweredKernel] = []
    turns: list[tuple[int, int, int]] = []
    place: dict[int, int] = {}
    waited: set[str] = set()
    order = schedule.order or tuple((g.name, 0, 0) for g in schedule.groups)
    tokens = {b: n for n, b in enumerate(names)}
    for name, first, end in order:
        k = number[name]
        if name not in begun:
            begun.add(name)
            late = [b for b in names if k in readers[b] and b not in waited]
            waited |= set(late)
            early = [b for b in names if number.get(
                schedule.buffers[b].since, readers[b][0]) == k]
            for holders in sorted({schedule.buffers[b].holders for b in (*early, *late)}):
                some = [[b for b in found if schedule.buffers[b].holders == holders]
                        for found in (early, late)]
                out.append(_bringing(program, schedule, target, f"{kernels[k].name}_{holders}",
                                     names, tokens, *some))
                turns.append((len(out) - 1, 0, 0))
            place[k] = len(out)
            out.append(kernels[k])
        turns.append((place[k], first, end))
    return tuple(out), tuple(turns) if schedule.order else ()


def _bringing(program: Program, schedule: Schedule, target: Target, kernel: str,
              names: Mapping[str, str], tokens: Mapping[str, int], early: Iterable[str],
              late: Iterable[str]) -> LoweredKernel:
    """What clusters do in front of a kernel: their engines begin to copy the constants ``early``,
    and those ``late``, which the kernel reads, must be there."""
    machine, body = target.machine, list[Stmt]()
    for b in early:
        engine = machine.engine(machine.memory, machine.store(schedule.buffers[b].memory))
        assert engine is not None, b  # ``store_faults`` has asked
        body.append(Copy(Box(names[b], Const(0), (Const(1),)), Box(b, Const(0), (Const(1),)),
                         (as_expr(physical_elements(program, schedule, b)),), program.dtype(b),
                         "box", engine.name, tokens[b]))
    body += [Wait(tokens[b], schedule.buffers[b].memory) for b in late]
    clusters = max(schedule.buffers[b].holders for b in (*early, *late))
    whole: Body = tuple(body)
    return LoweredKernel(
        f"{kernel}_before", About(f"what {kernel} begins to copy and waits for"), Const(clusters),
        (), (), (), tuple(early), tuple(names[b] for b in early),
        dealt=Dealt(clusters, ((0, whole),)))


__all__ = ["Engines", "engines"]
