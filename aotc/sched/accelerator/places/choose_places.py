"""Step ``places`` of ``decide``: what lies in the memories of clusters and workers, what is copied
ahead, and in which turns kernels run."""

from aotc.ir.program import Program
from aotc.ir.schedule import GRAPHTURBO, Schedule
from aotc.ir.simplify import upper
from aotc.sched.accelerator.places.choose_held import choose_held
from aotc.sched.accelerator.places.choose_order import choose_order
from aotc.sched.accelerator.places.choose_pipeline import choose_pipelines
from aotc.sched.accelerator.places.choose_stores import choose_stores
from aotc.sched.accelerator.places.choose_weights import choose_weights
from aotc.sched.accelerator.places.instance_groups import InstanceGroups, instance_groups
from aotc.sched.memory.allocate import liveness
from aotc.sched.model.stored_sizes import buffer_bytes
from aotc.target.base import Target


def places(program: Program, schedule: Schedule, target: Target, how: str = "",
           inner: bool = False) -> Schedule:
    """What lies in the memories of clusters and workers, what is copied ahead, and turns.  Where
    turns leave room for more, that is stored with clusters which whole tensors do not fit into.
    how: as of ``decide``; with ``GRAPHTURBO`` the places of its sub-graphs; "": of kernels that are
    given, whose temps are placed and no more.  inner: of a body, which runs in rounds and has
    nothing stored so."""
    if inner:
        return choose_pipelines(program, schedule, target) if how else schedule
    if not how:
        return choose_stores(program, schedule, target)
    found = instance_groups(program, target) if how == GRAPHTURBO else None
    first = _placed_by(program, schedule, target, found, True)
    if not first.order or not _outside(program, first):
        return first
    more = _placed_by(program, schedule, target, found, False)
    # only turns say that what does not fit as a whole does
    return min((first, more) if more.order else (first,), key=lambda s: _outside(program, s))


def _outside(program: Program, schedule: Schedule) -> int:
    """Bytes of the temps in the outermost memory."""
    return sum(upper(buffer_bytes(program, schedule, b)) or 0
               for b in liveness(program, schedule.groups)
               if b not in schedule.buffers or not schedule.buffers[b].memory)


def _placed_by(program: Program, schedule: Schedule, target: Target,
               found: InstanceGroups | None, fits: bool) -> Schedule:
    """The same; fits: of the temps that fit into the memories of clusters while they are whole."""
    schedule = choose_stores(program, schedule, target, found is not None,
                             found.outside if found else (), fits)
    schedule = choose_weights(program, schedule, target)
    schedule = choose_pipelines(program, schedule, target)
    instances = found.instances if found else ()
    if not choose_order(program, schedule, target, instances).order:
        schedule = choose_held(program, schedule, target)
    # once more: what kernels take says when copies must begin
    schedule = choose_weights(program, schedule, target)
    return schedule if any(s.memory == target.machine.scratch for s in schedule.buffers.values()
                           ) else choose_order(program, schedule, target, instances)


__all__ = ["places"]
