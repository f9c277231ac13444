"""What a Plan says of engines, and of what clusters and workers hold in their own memories."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from aotc.errors import ScheduleError
from aotc.ir.contents import with_buffers
from aotc.ir.kernel.plan_kernels import LoweredKernel
from aotc.ir.plan import Place, Plan
from aotc.ir.program import Program
from aotc.ir.schedule import Schedule
from aotc.sched.accelerator.kernels.lower_copies import held
from aotc.sched.accelerator.kernels.lower_turns import kept_names, with_turns
from aotc.sched.memory.allocate import lives
from aotc.sched.model.stored_sizes import ring_elements, store_strides
from aotc.target.base import Machine, Target


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
        ends = {x.name: x.name for x in inner}  # what holds everything has no name
        return replace(
            plan, memories=tuple((x.name, x.capacity) for x in inner), turns=self.turns,
            engines=tuple((e.name, ends.get(e.source, ""), ends.get(e.target, ""))
                          for e in machine.engines),
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
    names = kept_names(program, schedule)
    if not names and not schedule.order:
        return found
    renamed = [with_buffers(k, names) for k in kernels] if names else kernels
    kernels, turns = with_turns(program, schedule, target, renamed, names)
    return replace(found, kernels=kernels, turns=turns, names=names)


def _scratch_faults(program: Program, schedule: Schedule, machine: Machine,
                    kernels: Sequence[LoweredKernel]) -> list[str]:
    """Scratch of kernels that goes over what stays in its memory meanwhile."""
    stays = held(schedule, machine)
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


__all__ = ["Engines", "engines"]
