"""The tile-graph: a Program and a Schedule read together.

Computes are its nodes; an edge is a buffer that flows from the compute that makes it to one that
reads it, and carries the memory in which its tile is reused: a name of the target's ``Machine``, or
``register`` where it is inlined.  In the memory that holds everything it is stored whole, and its
two ends are in different groups.

    set_connect(program, schedule, edge, level, machine)    one edge moved to another memory
    propagate(program, group, tile)                the box of every buffer, from the output's tile
    mem_footprint(program, group, tile)            bytes live while one tile is computed
    mem_traffic(program, group, tile)              bytes moved for the whole output

Sizes are those of an interior tile (``aotc/sched/model/widths.py``); symbols take a typical value.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import gcd

from aotc.errors import ScheduleError
from aotc.ir.program import Program
from aotc.ir.schedule import REGISTER, Group, Schedule
from aotc.sched.model.tile_model import Widths
from aotc.sched.model.widths import group_model
from aotc.target.base import Machine

Split = Mapping[str, Mapping[str, int]]  # {stage: {reduction axis: extent of a slice}}
Life = tuple[int, int, int]  # bytes, first and last step
SHARED_ALIGN = 32  # bytes; what matrix fragments need


def connect_levels(machine: Machine) -> tuple[str, ...]:
    """What an edge inside a group may be connected at: ``register``, and the names of the memories
    that scratch may be in, fastest first."""
    return (REGISTER, *(x.name for x in machine.homes))


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
        new = [merged(program, source, sink, level)]
    groups = [g for g in schedule.groups if g is not source and g is not sink] + new
    return replace(schedule, groups=ordered(program, groups), layouts={}, buffers={})


def merged(program: Program, source: Group, sink: Group, level: str) -> Group:
    """One group of two, ``source`` before ``sink``, every buffer between them at ``level``.  The
    sink's anchor and tile stay."""
    computes = tuple(sorted(source.computes + sink.computes, key=lambda c: program.position[c]))
    made = {o for c in source.computes for o in program.producer[c].outs}
    between = {b for c in sink.computes for b in program.producer[c].inputs if b in made}
    connect = source.connect | sink.connect | dict.fromkeys(sorted(between), level)
    return replace(sink, computes=computes, outputs=_stored(program, computes), connect=connect,
                   choices=sink.slices, run={}, balance={})


def _stored(program: Program, computes: Sequence[str]) -> tuple[str, ...]:
    """Buffers made in ``computes`` that somebody outside reads, or the caller."""
    inside = set(computes)
    return tuple(o for c in computes for o in program.producer[c].outs
                 if o in program.results or any(s.outs[0] not in inside
                                                for s in program.consumers.get(o, ())))


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
            computes=tuple(computes), outputs=_stored(program, computes),
            anchor=group.anchor if mine else computes[-1], tile=group.tile if mine else {},
            connect={b: v for b, v in group.connect.items() if b in read and b != buffer and
                     program.producer[b].outs[0] in computes},
            parallel=group.parallel if mine else (), choices={}, run={}, balance={}))
    return out


def ordered(program: Program, groups: Iterable[Group]) -> tuple[Group, ...]:
    """Groups in an order in which each runs after those it reads from, ties by first compute.
    ScheduleError names the groups that wait for each other."""
    owner = {o: g.name for g in groups for c in g.computes for o in program.producer[c].outs}
    waits = {g.name: {owner[b] for c in g.computes for b in program.producer[c].inputs
                      if b in owner} - {g.name} for g in groups}
    left = sorted(groups, key=lambda g: min(program.position[c] for c in g.computes))
    out: list[Group] = []
    done: set[str] = set()
    while left:
        ready = next((g for g in left if waits[g.name] <= done), None)
        if ready is None:
            raise ScheduleError("groups wait for each other: " + ", ".join(g.name for g in left))
        left.remove(ready)
        done.add(ready.name)
        out.append(ready)
    return tuple(out)


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


def best_fit(tensors: Sequence[Life]) -> int:
    """End of the used memory when ``tensors`` (bytes, first, last step) lie where
    ``best_fit_places`` puts them."""
    return _end(tensors, best_fit_places(tensors))


def best_fit_places(tensors: Sequence[Life]) -> list[int]:
    """Offset of every tensor, in the order given.  They are placed one after the other, each in
    the smallest gap between those it lives with: step by step, or, where that takes less memory,
    the largest first, or those first that take most for longest."""
    orders = (lambda t: (t[1], -t[0]), lambda t: (-t[0], t[1]),
              lambda t: (-t[0] * (t[2] - t[1] + 1), t[1]))
    ways = [_placed(tensors, sorted(range(len(tensors)), key=lambda i: order(tensors[i])))
            for order in orders]
    return min(ways, key=lambda places: _end(tensors, places))


def _end(tensors: Sequence[Life], places: Sequence[int]) -> int:
    return max((at + n for at, (n, _, _) in zip(places, tensors)), default=0)


def _placed(tensors: Sequence[Life], order: Sequence[int]) -> list[int]:
    places: dict[int, int] = {}
    for i in order:
        size, first, last = tensors[i]
        busy = sorted((places[o], places[o] + tensors[o][0]) for o in order
                      if o in places and tensors[o][1] <= last and first <= tensors[o][2])
        gaps, at = [], 0
        for lo, hi in busy:
            if lo - at >= size:
                gaps.append((lo - at, at))
            at = max(at, hi)
        places[i] = min(gaps)[1] if gaps else at
    return [places[i] for i in range(len(tensors))]


def transactions(rows: int, row_bytes: int, unit: int) -> int:
    """Bytes that move when ``rows`` runs of ``row_bytes`` are fetched in whole units."""
    return rows * -(-row_bytes // unit) * unit


def block_size(counts: Iterable[int], low: int = 128, high: int = 1024) -> int:
    """Threads for a block whose stages have ``counts`` tiles each: the largest common divisor in
    low..high, or ``low`` (the spare threads idle) if the counts share none."""
    common = gcd(*counts)
    return max((d for d in range(low, high + 1) if common % d == 0), default=low)


__all__ = ["best_fit", "best_fit_places", "block_size", "connect_levels", "mem_footprint",
           "mem_traffic", "merged", "ordered", "propagate", "set_connect", "transactions"]
