"""Of step ``kernels`` of ``decide``: how many threads share a work item of each group."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.sched.model.group_model import group_model
from aotc.sched.model.lane_nests import picks_element
from aotc.sched.model.size import estimate_volume
from aotc.sched.model.stages import Stage, group_stages
from aotc.target.base import Target


def choose_threads(program: Program, target: Target, groups: Sequence[Group]) -> tuple[Group, ...]:
    """Groups with ``threads`` filled where it is 0 and work items are blocks of threads: what their
    micro-kernels need, else as many as have something to do in one of their nests."""
    if not target.machine.threads:
        return tuple(groups)
    known = {u.name: u.threads for u in target.ukernels}
    return tuple(g if g.threads else replace(g, threads=max(
        (known.get(u, 0) for u in g.rows.values()), default=0) or _of_nests(program, target, g))
        for g in groups)


def _of_nests(program: Program, target: Target, g: Group) -> int:
    """As many threads as the nest of a group that has most to do keeps at work, in whole warps; of
    a library call as many as the machine says."""
    if not any(g.anchor in s.computes for s in group_stages(program, g)):
        return target.machine.threads
    found = _outputs(program, g)
    if (of_rows := _of_rows(target, g, found)) is not None:
        return of_rows
    # twice as many as the fold with the least to do has work for: half of them wait for it
    most = min((2 * n * _most_together(target, g, s) for s, n in found if s.raxes),
               default=target.machine.threads_max)
    most = -(-most // target.lanes) * target.lanes
    return min(most, max(_of_nest(target, g, s, n) for s, n in found))


def _of_rows(target: Target, g: Group, found: Sequence[tuple[Stage, int]]) -> int | None:
    """Threads of folds and maps of the same rows, which they may have in registers: warps for every
    row until all workers have enough of them, as long as a thread has some terms.  None of
    others."""
    machine, tuning, lanes = target.machine, target.tuning, target.lanes
    folds = [(s, n) for s, n in found if len(s.raxes) == 1 and _lanes_fold(g, s)]
    if not folds:
        return None
    (first, rows), whole = folds[0], estimate_volume(a.extent for a in folds[0][0].axes)
    length = _terms_shared(g, first)
    if length > machine.threads * tuning.row_registers or any(
            g.choice(s.name).row == "loops" or (n, _terms_shared(g, s)) != (rows, length) and (
                n != rows * length or _lanes_fold(g, s)
                or _terms_shared(g, s) > tuning.thread_terms) for s, n in found):
        return None
    team, most = 1, max(1, machine.threads // (lanes * rows))
    enough = machine.workers * tuning.worker_threads // (4 * lanes)
    while team < most and team * lanes * tuning.thread_terms < length and (
            whole * team < enough or lanes * rows * team < tuning.row_threads):
        team *= 2
    return min(machine.threads, lanes * rows * team)


def _of_nest(target: Target, g: Group, s: Stage, outputs: int) -> int:
    """Threads for so many outputs of a work item: those that fold an output together have some
    terms each, and where each would have very many and some workers no work item, there are as many
    threads as a work item may have."""
    machine, lanes, terms = target.machine, target.lanes, _terms_shared(g, s)
    most, whole = machine.threads, estimate_volume(a.extent for a in s.axes)
    if outputs * terms > most * target.tuning.lane_alone and whole < outputs * machine.workers:
        most = machine.threads_max
    each = max(1, terms // target.tuning.thread_terms)
    if _lanes_fold(g, s):
        each = max(lanes, each)  # a warp folds one output at least
    return min(most, -(-max(1, outputs * each) // lanes) * lanes)


def _most_together(target: Target, g: Group, s: Stage) -> int:
    """Threads that may fold an output of a nest together."""
    terms = _terms_shared(g, s)
    return terms if _lanes_fold(g, s) else max(1, terms // target.tuning.thread_terms)


def _terms_shared(g: Group, s: Stage) -> int:
    """Terms of an output that threads may share out: 1 of a map, and of what one folds alone."""
    together = g.choice(s.name).row != "loops" and (
        isinstance(s.fold, str) or picks_element(s.fold, s.raxes))
    return estimate_volume(r.extent for r in s.raxes) if together else 1


def _lanes_fold(g: Group, s: Stage) -> bool:
    """True if lanes lie along the terms of a nest's fold."""
    return any(r.name == g.choice(s.name).lanes for r in s.raxes)


def _outputs(program: Program, g: Group) -> list[tuple[Stage, int]]:
    """[(stage of a group, outputs of it that a work item makes)]."""
    model = group_model(program, g)
    boxes = model.boxes(model.variables(g.tile, g.splits))
    return [(s, prod(whole[:m.rank])) for s, m, (whole, _) in zip(
        group_stages(program, g), model.stages, boxes)]


__all__ = ["choose_threads"]
