"""Work items of calls of all sizes.  Tiles that are decided for a typical call leave a small one
with fewer work items than workers; what is asked is whether they should be

    balanced     smaller in such a call, by its workers, along one axis
    cut          of fewer columns in every call
    of several   images, whose rows read the weights once

    score = mean over calls of log(seconds / seconds with the decided tile)

by calls of the whole range, with all workers and with one alone.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import lcm, log, prod
from statistics import fmean

from aotc.ir.expr import Const, substitute
from aotc.ir.program import Program
from aotc.ir.schedule import Group, Schedule
from aotc.sched.choose.order import order_items
from aotc.sched.cost.decided import aligned_products
from aotc.sched.cost.predict import Prices
from aotc.sched.judge.judge import Judge
from aotc.sched.memory.scratch import scratch_bytes
from aotc.sched.model.boxes import tile_anchor
from aotc.sched.model.size import estimate
from aotc.sched.model.stages import Stage, group_stages
from aotc.sched.model.typical_calls import spread_calls
from aotc.sched.rows.transforms import find_transform
from aotc.sched.rows.winograd_stages import transform_lanes
from aotc.sched.text_choices.choose_writing import kernel_faults
from aotc.target.base import Target

ASKED = 9  # calls that tiles are compared on
IDLE = 4  # work items for each worker, of which one more for some is noticed
MORE = (2, 4)  # of the outermost axis in a work item
PARTS = (2, 4, 8)  # into which an axis of a work item is cut
EASY = 0.002  # of its time that balance saves at least: where there is work for all, it is nothing


def choose_call_tiles(program: Program, target: Target, schedule: Schedule) -> tuple[Group, ...]:
    """The groups of a Schedule of a rewritten Program, in work items that serve calls over the
    whole range; themselves where no extent is a symbol, and where a worker is no thread."""
    machine = target.machine
    # small and large ones for every extent of the first symbol
    calls = sorted((c.extents for c in spread_calls(program)),
                   key=lambda e: (next(iter(e.values()), 0), prod(e.values())))
    if not program.syms or not calls or machine.workers == 1 or (
            machine.threads or machine.managed):
        return schedule.groups
    count = min(ASKED, len(calls))
    asked = [calls[i * (len(calls) - 1) // max(1, count - 1)] for i in range(count)]
    prices = Prices(program, target, sharing=True)

    room = max(_scratch(program, schedule.groups), default=0)
    judge, known, out = Judge(program, target), dict[Hashable, Group](), list[Group]()
    for g in schedule.groups:
        if not group_stages(program, g):  # a library call: its items are its own
            out.append(g)
            continue
        key = judge.signature(g), _decisions(program, schedule, g)  # equal layers are asked once
        like = known.get(key) or _best(prices, schedule, g, asked, room)
        known[key] = like
        out.append(replace(g, tile=like.tile, parallel=like.parallel, balance=like.balance))
    return tuple(out)


def _decisions(program: Program, schedule: Schedule, group: Group) -> Hashable:
    """What is decided of a group besides its merges, without names of buffers."""
    stages = group_stages(program, group)
    buffers = [b for s in stages for b in s.buffers]
    return str([group.choice(s.name) for s in stages]), str((
                     group.tile, group.parallel, group.run,
                     [schedule.layouts.get(b) for b in buffers]))


def _best(prices: Prices, schedule: Schedule, group: Group, calls: Sequence[Mapping[str, int]],
          room: int) -> Group:
    """The group in the work items that score best, of those that are legal and take no more than
    ``room`` bytes of scratch."""
    program, target = prices.program, prices.target

    def seconds(way: Group) -> list[float]:
        return [t for e in calls for t in prices.by_workers(schedule, way, e)]

    ways = list(_ways(program, target, group, calls))
    known = seconds(group) if ways else []
    found = []
    for n, (gain, way) in enumerate(ways):
        score = fmean(log(t / k) for t, k in zip(seconds(way), known)) + gain
        if score < 0:
            found.append((score, n, way))
    for _, _, way in sorted(found, key=lambda x: x[:2]):
        if not kernel_faults(program, schedule, target, way) and (
                max(_scratch(program, [way])) <= room):
            return order_items(program, target.machine, way)
    return group


def _ways(program: Program, target: Target, group: Group, calls: Sequence[Mapping[str, int]]
          ) -> Iterator[tuple[float, Group]]:
    """(what it must gain over others, the group in other work items), where some calls have too
    few: balanced along an axis, of less of one that no symbol is the extent of, of several of the
    outermost, and both."""
    stages = group_stages(program, group)
    anchor = next((s for s in stages if group.anchor in s.computes), None)
    if anchor is None or group.splits or not any(
            _leaves_idle(program, anchor, group, e, target.machine.workers) for e in calls):
        return
    steps = _steps(program, target, group, stages, anchor)
    extents = _extents(group, anchor, steps)
    columns = [a.name for a in anchor.axes if isinstance(a.extent, Const)
               and a.name not in group.run]
    tiles = [(EASY, group.tile), *((target.tuning.slack, group.tile | {a: n}) for a in columns
                                   for n in _parts(extents[a], steps.get(a, 1)))]
    tiles += [(2 * target.tuning.slack, group.tile | {a.name: n}) for a in anchor.axes[:1]
              if len(stages) > 1 and not group.run and not isinstance(a.extent, Const)
              and group.tile.get(a.name) == 1 for n in MORE]
    for gain, tile in tiles:
        balanced = [(gain, {a: steps.get(a, 1)}, tile if a in group.run else {a: n} | tile)
                    for a, n in extents.items()]
        for least, balance, cut in [(gain, {}, tile)] * (tile is not group.tile) + balanced:
            if all(n < group.run.get(a, cut[a]) and cut[a] % n == 0 for a, n in balance.items()):
                order = {a.name: cut[a.name] for a in anchor.axes if a.name in cut}
                yield least, replace(group, tile=order, parallel=tuple(order), balance=balance)


def _scratch(program: Program, groups: Sequence[Group]) -> list[int]:
    """Bytes of scratch of each of the groups that have some."""
    return [scratch_bytes(program, g, likely=True) if len(group_stages(program, g)) > 1 else 0
            for g in groups]


def _leaves_idle(program: Program, anchor: Stage, group: Group, extents: Mapping[str, int],
                 workers: int) -> bool:
    """True if some workers of a call have less to do than others, by a work item of few."""
    count = tile_anchor(anchor, group).count
    items = estimate(substitute(count, {s: Const(extents[s.name]) for s in program.syms}))
    return items % workers > 0 and items < IDLE * workers


def _extents(group: Group, anchor: Stage, steps: Mapping[str, int]) -> dict[str, int]:
    """{axis: extent of a work item along it} of the axes that it may have less of: of those whose
    extents are symbols' and that are whole the outermost one if none is cut, whose whole steps a
    usual call has."""
    cut = any(group.tile.get(a.name, 1) > 1 for a in anchor.axes if not isinstance(a.extent, Const))
    out = {}
    for a in anchor.axes:
        size = group.run.get(a.name) or group.tile.get(a.name)
        if size is None and not isinstance(a.extent, Const):
            if cut or estimate(a.extent) == 1:
                continue
            cut = True
        step = 1 if isinstance(a.extent, Const) else steps.get(a.name, 1)
        out[a.name] = size or -(-estimate(a.extent) // step) * step
    return out


def _parts(size: int, step: int) -> list[int]:
    """Smaller extents of a work item, in whole steps."""
    count = -(-size // step)
    return [n * step for n in dict.fromkeys(-(-count // p) for p in PARTS) if n < count]


def _steps(program: Program, target: Target, group: Group, stages: Sequence[Stage],
           anchor: Stage) -> dict[str, int]:
    """{axis: what work items are a multiple of}: steps of a run, tiles of a form, columns of a
    register tile, and its rows if they have one axis."""
    steps = {a: group.tile[a] for a in group.run}
    for s in stages:
        found = find_transform(program, s)
        for name, n in found.blocks.items() if found is not None else ():
            steps[name] = lcm(steps.get(name, 1), n)
    products = aligned_products(stages, group, target)
    lane = transform_lanes(program).get(anchor.name)
    lanes = lane.name if lane else group.choices[anchor.name].lanes
    if lanes:
        steps[lanes] = max((a.nr for a in products), default=target.tuning.lane_cut)
    for a in products:
        if stages[a.stage] is anchor and len(a.rows) == 1:
            steps[anchor.axes[a.rows[0]].name] = a.mr
    return steps


__all__ = ["choose_call_tiles"]
