"""Turns of kernels, and what clusters' engines bring into their memories before a kernel begins."""

from collections.abc import Iterable, Mapping, Sequence

from aotc.ir.expr import Const, as_expr
from aotc.ir.kernel.plan_kernels import About, Dealt, LoweredKernel
from aotc.ir.program import Program
from aotc.ir.schedule import Schedule
from aotc.ir.statements import Body, Box, Copy, Stmt, Wait
from aotc.sched.model.stored_sizes import physical_elements
from aotc.target.base import Target

KEPT = "_kept"  # behind the name of a constant: what clusters have of it


def kept_names(program: Program, schedule: Schedule) -> dict[str, str]:
    """{constant that has a place in a cluster's memory: the name of what lies there}."""
    out: dict[str, str] = {}
    for b in schedule.buffers:
        if b in program.consts:
            name = b + KEPT
            while name in program.buffers:
                name += "_"
            out[b] = name
    return out


def with_turns(program: Program, schedule: Schedule, target: Target,
               kernels: Sequence[LoweredKernel], names: Mapping[str, str]
               ) -> tuple[tuple[LoweredKernel, ...], tuple[tuple[int, int, int], ...]]:
    """(kernels, turns): those of the groups, in front of the first turn of each one that waits for
    constants or since which others are copied, with those whose work items are the clusters that
    have them, one for each number of clusters.  No turns where none are chosen."""
    number = {g.name: i for i, g in enumerate(schedule.groups)}
    readers = {b: [k for k, g in enumerate(schedule.groups) if any(
        b in program.producer[c].inputs for c in g.computes)] for b in names}
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


__all__ = ["kept_names", "with_turns"]
