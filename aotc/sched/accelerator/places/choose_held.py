"""Temps that stay with workers from the kernel that makes them to the one that reads them.

Where work item n of both kernels touches just the n-th of equal parts of a tensor, and both run
on one worker, nothing of it need be copied.  Kernels are cut alike for that where the model of time
says that it gains more than their own cuts are worth.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from aotc.errors import ScheduleError
from aotc.ir.access import dim_order, layout_from_json
from aotc.ir.program import Program, static_shape
from aotc.ir.schedule import Group, Schedule, Slot
from aotc.ir.simplify import are_equal, upper
from aotc.sched.accelerator.items.own_parts import count_clusters, find_group_touched, users_of
from aotc.sched.accelerator.kernels.scratchpad_tile import fitted_tile
from aotc.sched.accelerator.kernels.store_faults import home_faults
from aotc.sched.accelerator.places.item_seconds import group_seconds
from aotc.sched.check.check_group import check_group
from aotc.sched.memory.allocate import liveness
from aotc.sched.model.group_model import group_model
from aotc.sched.model.stages import group_stages
from aotc.sched.model.stored_sizes import part_bytes
from aotc.sched.text_choices.choose_writing import chosen_kernel
from aotc.target.base import Machine, Target

Cut = dict[int, int]  # dimension of a tensor -> indices that a part has of it


def choose_held(program: Program, schedule: Schedule, target: Target) -> Schedule:
    """The Schedule, whose groups and places are chosen, with places in workers' own memories for
    temps that one kernel makes and one reads; as it is on machines whose clusters have none, and
    where groups have turns."""
    machine = target.machine
    if not machine.stores or schedule.regions or schedule.order or program.syms:
        return schedule
    number = max((s.slot + s.span for s in schedule.buffers.values()), default=0)
    for b in liveness(program, schedule.groups):
        users = users_of(program, schedule, b)
        if len(users) != 2 or static_shape(program.shape(b)) is None or not all(
                group_stages(program, schedule.groups[i]) for i in users):
            continue
        number = max(number, 1)
        found = _held(program, schedule, target, b, users, number)
        schedule = schedule if found is None else found
    return schedule


def _held(program: Program, schedule: Schedule, target: Target, b: str, users: Sequence[int],
          number: int) -> Schedule | None:
    """The Schedule with ``b`` with the workers; None if that gains nothing or cannot be."""
    machine = target.machine
    first, last = (schedule.groups[i] for i in users)
    if count_clusters(machine, first) != count_clusters(machine, last):
        return None
    workers = machine.cores * count_clusters(machine, first)
    cut = _cut(program, schedule, b, workers)
    if cut is None:
        return None
    least = sum(group_seconds(program, schedule, target, g) for g in (first, last))
    best = None
    slot = Slot(number, 0, memory=machine.scratch, parts=workers, each=workers)
    tried = replace(schedule, buffers={**schedule.buffers, b: slot})
    size = upper(part_bytes(program, tried, b)) or 0
    taken = [schedule.buffers[x].offset for i in range(users[0], users[1] + 1)
             for x in _staying(program, schedule, machine, i)]
    at = (min([int(machine.room(machine.near)) // 64 * 64, *taken]) - size) // 64 * 64
    if at <= 0:
        return None
    tried = replace(tried, buffers={**tried.buffers, b: replace(slot, offset=at)})
    for one in _cuts(program, tried, target, first, b, cut):
        for other in _cuts(program, tried, target, last, b, cut):
            groups = list(tried.groups)
            groups[users[0]], groups[users[1]] = one, other
            now = replace(tried, groups=tuple(groups))
            taking = sum(group_seconds(program, now, target, g) for g in (one, other))
            if taking < least and _legal(program, now, target, users):
                best, least = now, taking
    return best


def _cut(program: Program, schedule: Schedule, b: str, parts: int) -> Cut | None:
    """Equal parts that lie side by side in memory; None if there are none."""
    shape = static_shape(program.shape(b))
    layout = layout_from_json(schedule.layouts.get(b))
    order = dim_order(layout, len(shape)) if shape is not None else None
    if shape is None or order is None:
        return None
    out: Cut = {}
    for d in order:
        f = next(f for f in range(min(parts, shape[d]), 0, -1)
                 if parts % f == 0 and shape[d] % f == 0)
        if f > 1:
            out[d] = shape[d] // f
            parts //= f
        if f < shape[d]:
            break  # further cuts would not lie together
    return out if parts == 1 else None


def _cuts(program: Program, schedule: Schedule, target: Target, g: Group, b: str,
          cut: Cut) -> Iterator[Group]:
    """A group whose work items have the parts of ``b``: whole otherwise, or walking along one more
    axis, whose boxes come ahead."""
    machine, model = target.machine, group_model(program, g)
    names = model.axes[:model.rank]
    each = replace(g, tile=dict.fromkeys(names, 1), parallel=tuple(names), run={}, pipeline=0)
    found = find_group_touched(program, schedule, target, each)
    if found is None or b not in found.boxes or g.threads:
        return
    axes: dict[str, int] = {}
    for d, extent in cut.items():
        name = next((a.name for a, (lo, _) in found.at.tile.box.items()
                     if are_equal(found.boxes[b].dims[d][0], lo)), None)
        if name is None or name not in names:
            return
        axes[name] = extent
    rest = [a for a in names if a not in axes]
    i = next(i for i, other in enumerate(schedule.groups) if other.name == g.name)
    held = sum(upper(part_bytes(program, schedule, x)) or 0
               for x in _staying(program, schedule, machine, i))
    for share in (1.0, 0.5):
        tile = fitted_tile(model, machine, axes, tuple(axes), share, held)
        if tile is None or any(tile.get(a) != n for a, n in axes.items()):
            continue
        more = [a for a in rest if a in tile and tile[a] < model.extents[model.axes.index(a)]]
        order = (*axes, *more)
        made = replace(g, tile={a: tile[a] for a in order}, parallel=order, run={}, pipeline=0)
        if not more:
            yield made
        elif len(more) == 1 and not g.splits:
            whole = model.extents[model.axes.index(more[0])]
            yield replace(made, run={more[0]: whole})
            yield replace(made, run={more[0]: whole}, pipeline=2)


def _legal(program: Program, schedule: Schedule, target: Target, users: Sequence[int]) -> bool:
    """True if work items have their own parts of all that lies with clusters and workers, and
    scratch of the kernels in between leaves that alone."""
    return not any(check_group(program, schedule, target, g) or home_faults(
        program, schedule, target, g) for g in map(schedule.groups.__getitem__, users)) and all(
            _clear(program, schedule, target, i) for i in range(users[0], users[1] + 1))


def _staying(program: Program, schedule: Schedule, machine: Machine, i: int) -> list[str]:
    """Temps that stay with workers while group ``i`` runs."""
    live = liveness(program, schedule.groups)
    return [x for x, s in schedule.buffers.items()
            if s.memory == machine.scratch and live[x][0] <= i <= live[x][1]]


def _clear(program: Program, schedule: Schedule, target: Target, i: int) -> bool:
    """True if scratch of a kernel ends in front of what stays."""
    g = schedule.groups[i]
    staying = _staying(program, schedule, target.machine, i)
    low = min((schedule.buffers[x].offset for x in staying), default=1 << 62)
    if not group_stages(program, g):
        return True
    try:
        size = chosen_kernel(program, schedule, target, g).slab_bytes
    except ScheduleError:
        return False
    return isinstance(size, int) and size <= low


__all__ = ["choose_held"]
