"""Welder's functions on a Program and a Schedule, by the values that the compiler has for them.

    set_connect(program, schedule, edge, level, machine)    one edge moved to another memory
    propagate(program, group, tile)                the box of every buffer, from the output's tile
    mem_footprint(program, group, tile)            bytes live while one tile is computed
    mem_traffic(program, group, tile)              bytes moved for the whole output

Sizes are those of an interior tile (``aotc/sched/model/group_model.py``); symbols take a typical
value.
"""

from collections.abc import Mapping
from dataclasses import replace

from aotc.errors import ScheduleError
from aotc.ir.program import Program
from aotc.ir.schedule import Group, Schedule
from aotc.sched.model.group_model import group_model
from aotc.sched.model.group_numbers import Widths
from aotc.sched.model.tilegraph import (
    best_fit,
    connect_levels,
    merge_groups,
    order_groups,
    stored_outputs,
)
from aotc.target.base import Machine

Split = Mapping[str, Mapping[str, int]]  # {stage: {reduction axis: extent of a slice}}
SHARED_ALIGN = 32  # bytes; what matrix fragments need


def set_connect(program: Program, schedule: Schedule, edge: tuple[str, str],
                level: str, machine: Machine) -> Schedule:
    """The Schedule with one edge at another level.

    edge: (buffer, compute that reads it); level: one of ``connect_levels`` or the memory that holds
    everything.  Rising from there merges the groups of its ends (the reader's anchor and tile
    stay); falling to it parts the group into what its other edges still connect.  Rows, loops,
    runs, layouts and places in the arena of what changes are left out: ``complete`` decides them
    again.
    ScheduleError for an unknown edge or level, and where merging would close a cycle.
    """
    buffer, reader = edge
    stored, legal = machine.memory.name, connect_levels(machine)
    if level not in (*legal, stored):
        raise ScheduleError(f"connect level {level!r}; choose from {', '.join(legal)}, {stored}")
    maker = program.producer.get(buffer)
    owner = {c: g for g in schedule.groups for c in g.computes}
    if maker is None or maker.outs[0] not in owner or reader not in owner or (
            buffer not in program.producer[reader].inputs):
        raise ScheduleError(f"no edge {buffer} -> {reader}: {buffer} must be made by a compute of "
                            "the schedule and read by the other")
    source, sink = owner[maker.outs[0]], owner[reader]
    if level == stored:
        new = [source] if source is not sink else _parted(program, source, buffer)
    elif source is sink:
        new = [replace(source, connect=source.connect | {buffer: level}, run={},
                       balance={}, choices=source.slices)]
    else:
        new = [merge_groups(program, source, sink, level)]
    groups = [g for g in schedule.groups if g is not source and g is not sink] + new
    return replace(schedule, groups=order_groups(program, groups), layouts={}, buffers={})


def _parted(program: Program, group: Group, buffer: str) -> list[Group]:
    """Groups that the other edges of a group still hold together."""
    root = {c: c for c in group.computes}

    def find(c: str) -> str:
        while root[c] != c:
            c = root[c]
        return c

    for c in group.computes:
        for b in program.producer[c].inputs:
            if b in group.connect and b != buffer:
                root[find(c)] = find(program.producer[b].outs[0])
    parts: dict[str, list[str]] = {}
    for c in group.computes:
        parts.setdefault(find(c), []).append(c)
    if len(parts) == 1:
        raise ScheduleError(f"group {group.name}: {buffer} cannot be stored between parts of it, "
                            "other edges connect them; store those first")
    out = []
    for number, computes in enumerate(parts.values()):
        read = {b for c in computes for b in program.producer[c].inputs}
        mine = group.anchor in computes
        out.append(replace(
            group, name=group.name if mine else f"{group.name}_{number}",
            computes=tuple(computes), outputs=stored_outputs(program, computes),
            anchor=group.anchor if mine else computes[-1], tile=group.tile if mine else {},
            connect={b: v for b, v in group.connect.items() if b in read and b != buffer and
                     program.producer[b].outs[0] in computes},
            parallel=group.parallel if mine else (), choices={}, run={}, balance={}))
    return out


def propagate(program: Program, group: Group, tile: Mapping[str, int],
              split: Split | None = None) -> dict[str, Widths]:
    """{buffer: extents of the box that one tile needs or makes}, Welder's Propagate.

    tile: {axis of the anchor: extent}, an axis not named is whole; split: {stage: {reduction
    axis: extent}}, which cuts what is read from outside the group.
    """
    model = group_model(program, group)
    out: dict[str, Widths] = {}
    for s, (whole, sliced) in zip(model.stages, model.boxes(model.variables(tile, split))):
        for a in s.reads + s.writes:
            shape = a.shape(sliced if a in s.reads and a.buffer not in model.scratch else whole)
            out[a.buffer] = tuple(map(max, out.get(a.buffer, shape), shape))
    return out


def mem_traffic(program: Program, group: Group, tile: Mapping[str, int],
                split: Split | None = None) -> int:
    """Bytes that cross into and out of the level that holds the tile, for the group's whole
    output: everything read from outside once per tile (once per slice of a reduction split it
    moves along), everything stored once."""
    model = group_model(program, group)
    return model.traffic(model.variables(tile, split))


def mem_footprint(program: Program, group: Group, tile: Mapping[str, int],
                  split: Split | None = None, align: int = SHARED_ALIGN) -> int:
    """Bytes of the level while one tile is computed: peak of a best-fit allocation of all tiles in
    execution order, each rounded up to ``align``."""
    model = group_model(program, group)
    return best_fit([(n, lo, hi) for _, n, lo, hi in
                     model.lifetimes(model.variables(tile, split), align=align)])
