"""The tile-graph: a Program and a Schedule read together.

Computes are its nodes; an edge is a buffer that flows from the compute that makes it to one that
reads it, and carries the memory in which its tile is reused: a name of the target's ``Machine``, or
``register`` where it is inlined.  In the memory that holds everything it is stored whole, and its
two ends are in different groups.

    merged(program, source, sink, level)    one group of the two ends of an edge
    ordered(program, groups)                groups, each after those it reads from
    best_fit(tensors)                       bytes that tensors take that live at given steps
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from aotc.errors import ScheduleError
from aotc.ir.program import Program
from aotc.ir.schedule import REGISTER, STREAM, Group
from aotc.target.base import Machine

Life = tuple[int, int, int]  # bytes, first and last step


def connect_levels(machine: Machine) -> tuple[str, ...]:
    """What an edge inside a group may be connected at: ``register``, ``stream`` where threads share
    a work item, and the names of the memories that scratch may be in, fastest first."""
    return (REGISTER, *((STREAM,) if machine.threads else ()), *(x.name for x in machine.homes))


def merge_groups(program: Program, source: Group, sink: Group, level: str) -> Group:
    """One group of two, ``source`` before ``sink``, every buffer between them at ``level``.  The
    sink's anchor and tile stay."""
    computes = tuple(sorted(source.computes + sink.computes, key=lambda c: program.position[c]))
    made = {o for c in source.computes for o in program.producer[c].outs}
    between = {b for c in sink.computes for b in program.producer[c].inputs if b in made}
    connect = source.connect | sink.connect | dict.fromkeys(sorted(between), level)
    return replace(sink, computes=computes, outputs=stored_outputs(program, computes),
                   connect=connect, choices=sink.slices, run={}, balance={}, scratch="")


def stored_outputs(program: Program, computes: Sequence[str]) -> tuple[str, ...]:
    """Buffers made in ``computes`` that somebody outside reads, or the caller."""
    inside = set(computes)
    return tuple(o for c in computes for o in program.producer[c].outs
                 if o in program.results or any(s.outs[0] not in inside
                                                for s in program.consumers.get(o, ())))


def order_groups(program: Program, groups: Iterable[Group]) -> tuple[Group, ...]:
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


def best_fit(tensors: Sequence[Life]) -> int:
    """End of the used memory when ``tensors`` (bytes, first, last step) lie where
    ``best_fit_places`` puts them."""
    return _end(tensors, best_fit_places(tensors))


def best_fit_places(tensors: Sequence[Life]) -> list[int]:
    """Offset of every tensor, in the order given.  They are placed one after the other, each in
    the smallest gap between those it lives with: step by step, or, where that takes less memory,
    the largest first, or those first that take most for longest."""
    orders: tuple[Callable[[Life], tuple[int, int]], ...] = (
        lambda t: (t[1], -t[0]), lambda t: (-t[0], t[1]),
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


__all__ = ["best_fit", "best_fit_places", "connect_levels", "merge_groups", "order_groups",
           "stored_outputs"]
