"""Lowering: (Program, Schedule) -> Plan.  Decides nothing; the Schedule has every choice."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from aotc.errors import ScheduleError
from aotc.ir.access import ArrayForm, layout_from_json
from aotc.ir.contents import with_symbols
from aotc.ir.kernel.plan_kernels import Kernel, LoweredKernel, Size
from aotc.ir.plan import Place, Plan
from aotc.ir.program import Branch, LibCall, Loop, Program
from aotc.ir.schedule import Group, Schedule
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.accelerator.kernels import engines
from aotc.sched.check.check_schedule import check_schedule
from aotc.sched.expand.expand_stages import expand_kernel
from aotc.sched.expand.expansion import with_writing
from aotc.sched.lowering.group_to_stages import Staged, kept_stages
from aotc.sched.lowering.kernel_arrays import with_arrays
from aotc.sched.lowering.kernel_names import kernel_names
from aotc.sched.lowering.lower_call import lower_call
from aotc.sched.lowering.lower_region import Bodies, region_buffers
from aotc.sched.lowering.neighbours import lined_buffers
from aotc.sched.lowering.threads import share_by_threads, with_barriers
from aotc.sched.lowering.transposed_results import with_transposed_results
from aotc.sched.memory.allocate import slot_sizes
from aotc.sched.model.sparse_tables import sparse_constants
from aotc.sched.model.stages import find_call
from aotc.sched.model.stored_sizes import ALIGN, physical_elements
from aotc.sched.shared_functions import share_functions
from aotc.target.base import Target


def lower(program: Program, schedule: Schedule, target: Target,
          common: Mapping[str, LoweredKernel] | None = None) -> Plan:
    """The Plan of a checked Schedule without variants, or of one part of it
    (``sched.shape_variants``).  common: {group: its kernel for more calls than the Program's}
    (``sched.common_kernels``).  ScheduleError lists all faults of an illegal one."""
    assert not schedule.variants, "each part has a Plan of its own"
    faults = check_schedule(program, schedule, target)
    if faults:
        raise ScheduleError(faults)
    program = apply_rewrites(program, schedule.rewrites)
    bodies = Bodies({*program.buffers}, len(slots := slot_sizes(program, schedule)))
    labels = kernel_names(program, schedule.groups)
    told = engines(program, schedule, target, _kernels(
        program, schedule, target, bodies, common or {}, labels))
    used = {b for k in told.kernels for b in k.reads + k.writes} | region_buffers(bodies.regions)
    places, weights, end = [], [], 0
    sparse = sparse_constants(program)
    for i, name in enumerate(program.inputs):
        places.append(_place(program, schedule, name, "input", index=i))
    for i, name in enumerate(program.outputs):
        places.append(_place(program, schedule, name, "output", index=i))
    for name, array in program.consts.items():
        if name in used:
            stored = layout_from_json(schedule.layouts.get(name)).apply(array)
            place = _place(program, schedule, name, "weights", offset=end)
            places.append(replace(place, sparse=name in sparse))
            weights.append((name, stored))
            end = (end + stored.nbytes + ALIGN - 1) // ALIGN * ALIGN
    for name, slot in schedule.buffers.items():
        place = _place(program, schedule, name, "arena", slot.offset, slot.slot)
        places.append(told.placed(place, name))
    places += bodies.placed(end)
    known = {p.name: p for p in places}
    forms = {told.names.get(b, b): _form(program, schedule, b) for b in program.buffers}
    kernels = tuple(with_arrays(expand_kernel(with_barriers(k, known), target, known), forms)
                    for k in told.kernels)
    kernels = _for_calls_of(program, kernels, {
        label for g, label in zip(schedule.groups, labels) if g.name in (common or {})})
    plan = Plan(program.name, target.name, program.syms, program.checks, tuple(places),
                (*slots, *bodies.slots), kernels, (*weights, *bodies.weights), schedule.math,
                schedule.optimize, regions=tuple(bodies.regions), texts=program.texts,
                aliases=program.aliases)
    return share_functions((told.told(plan),))[0]


def _kernels(program: Program, schedule: Schedule, target: Target, bodies: Bodies,
             common: Mapping[str, LoweredKernel],
             labels: Sequence[str]) -> tuple[LoweredKernel, ...]:
    """The kernels in call order by the names ``labels``, those of groups in ``common`` as they are;
    those of regions' bodies are gathered in ``bodies``."""
    out: list[LoweredKernel] = []
    for g, label in zip(schedule.groups, labels):
        region = find_call(program, g)
        if isinstance(region, (Loop, Branch)):
            plans = [lower(b, s, target)
                     for b, s in zip(region.bodies, schedule.regions[region.name])]
            out += bodies.enter(region, plans, label, len(out))
        elif g.name in common:
            out.append(replace(common[g.name], name=label))
        else:
            out.append(lower_group(program, schedule, target, g, label))
    return tuple(out)


def _for_calls_of(program: Program, kernels: Iterable[Kernel],
                  known: Collection[str]) -> tuple[Kernel, ...]:
    """The kernels, those of the names ``known`` with the ranges that the Program's symbols have."""
    own = {s.name: s for s in program.syms}
    return tuple(with_symbols(k, lambda s: own.get(s.name, s)) if k.name in known else k
                 for k in kernels)


def _form(program: Program, schedule: Schedule, name: str) -> ArrayForm:
    """The indices of a buffer as it is stored."""
    return ArrayForm.of(layout_from_json(schedule.layouts.get(name)).shape(program.shape(name)))


def _place(program: Program, schedule: Schedule, name: str, storage: str, offset: int = 0,
           slot: int = 0, index: int = 0) -> Place:
    b = program.buffers[name]
    return Place(name, b.dtype, b.shape, storage, physical_elements(program, schedule, name),
                 offset, slot, index, b.onnx, stored=b.stored, counts=b.counts, scale=b.scale)


def lower_group(program: Program, schedule: Schedule, target: Target, group: Group,
                name: str = "") -> LoweredKernel:
    """One group as one kernel: the tile decode, scratch, and its stages in order.  ScheduleError
    where they cannot be written as it says, or scratch does not fit into its memory."""
    call = find_call(program, group)
    if isinstance(call, LibCall):
        return lower_call(program, schedule, target, group, call, name)
    found = kept_stages(program, schedule, target, group)
    return written_kernel(program, target, group, replace(found, kernel=replace(
        found.kernel, name=name)))


def written_kernel(program: Program, target: Target, group: Group, found: Staged) -> LoweredKernel:
    """The kernel of a staged group, each stage with the choices of how it is written."""
    stages = tuple(with_writing(s, owner, group) for s, owner in zip(
        found.kernel.stages, found.owners, strict=True))
    found = with_transposed_results(replace(found, kernel=replace(
        found.kernel, stages=stages)), group, target)
    kernel = share_by_threads(found.kernel, target, lined_buffers(
        program, found.kernel, target))
    _check_scratch(target, group, kernel, found.end)
    return kernel


def _check_scratch(target: Target, group: Group, kernel: LoweredKernel, slab: Size) -> None:
    """ScheduleError where scratch (``slab`` bytes) is no cache and does not fit into its memory
    with what micro-kernels take."""
    level = target.machine.near
    if not target.machine.managed:
        return
    assert isinstance(slab, int), group.name  # ``add_scratch`` refuses what has no bound
    if slab + kernel.staged > level.capacity:
        sizes = ", ".join(f"{s.name} {s.elements} elements" for s in kernel.scratch)
        raise ScheduleError([
            f"group {group.name}: its tiles take {slab + kernel.staged} bytes of {level.name} "
            f"memory ({sizes}; {kernel.staged} for micro-kernels), {target.name} has "
            f"{level.capacity}; choose smaller tiles of {group.anchor} or store a tensor"])


__all__ = ["lower", "lower_group", "written_kernel"]
