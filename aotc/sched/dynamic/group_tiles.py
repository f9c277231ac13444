"""DietCode's search on fused groups: the work item of a group is a micro-kernel that any call runs
over a grid, decided once and varied around that.

    space      T of each tiled axis in [T0/2, 2 T0], in steps that micro-kernel rows are made for
    cost       local * spatial * padding: what work items reach in full waves, the waves that are
               not full, and the work that is none (``group_cost`` has all three, in seconds; what
               was measured of work items stands for the first)
    vote       few tiles of a group that serve all calls well, as many as G says

A group is one of many, so what its tiles bring counts as its share of the calls' time, and what
they add as its share of the code.
Source: Zheng et al., DietCode (MLSys 2022), 4.
"""

from collections.abc import Sequence
from dataclasses import replace

from aotc.errors import ScheduleError
from aotc.ir.program import Program
from aotc.ir.schedule import Group, Schedule
from aotc.sched.asking.vote import select_by_gain
from aotc.sched.cost.decided import aligned_products
from aotc.sched.cost.predict import Prices
from aotc.sched.model.stages import group_stages
from aotc.sched.model.typical_calls import Call
from aotc.sched.writing.choose_writing import kernel_faults
from aotc.target.base import Target

TRIED = 4  # tiles of an axis beside the decided one
ASKED = 9  # calls that tiles are compared on
NOTICED = 0.01  # of the calls' time that a group takes at least


def tile_candidates(prices: Prices, schedule: Schedule, calls: Sequence[Call],
                    seconds: Sequence[float]) -> tuple[Schedule, ...]:
    """Schedules with other tiles of some groups, each with the tiles that serve one or more of the
    calls best; none where the decided ones do.  ``seconds``: of the Schedule on every call."""
    step = -(-len(calls) // ASKED)
    asked = range(0, len(calls), step)
    best: list[dict[str, Group]] = [{} for _ in asked]
    for group in schedule.groups:
        ways = _tiled_ways(prices, schedule, group)
        if len(ways) < 2:
            continue
        table = [[prices.group(schedule, way, calls[i].extents) for i in asked] for way in ways]
        share = sum(t / seconds[i] for t, i in zip(table[0], asked)) / len(asked)
        if share < NOTICED:
            continue
        for n, way in enumerate(_voted(table, share, len(schedule.groups))):
            if way:
                best[n][group.name] = ways[way]
    combined = {tuple(sorted((n, str(g.tile)) for n, g in chosen.items())): chosen
                for chosen in best if chosen}
    return tuple(replace(schedule, groups=tuple(chosen.get(g.name, g) for g in schedule.groups))
                 for chosen in combined.values())


def _voted(table: Sequence[Sequence[float]], share: float, groups: int) -> tuple[int, ...]:
    """Which of a group's ways each call wants, of those that votes keep; ``table``: [way][call]
    seconds.  Performance and size are those of the model that the group is a share of."""
    calls = range(len(table[0]))
    least = [min(way[i] for way in table) for i in calls]
    performance = [[1 - share + share * least[i] / way[i] for i in calls] for way in table]

    def size(kept: Sequence[int]) -> float:
        return 1 + (len(kept) - 1) / groups

    return select_by_gain(performance, least, size).best


def _tiled_ways(prices: Prices, schedule: Schedule, group: Group) -> list[Group]:
    """The group, and it with other tiles of one axis or of two at once, those that are legal."""
    program, target = prices.rewritten(schedule), prices.target
    if group.run or group.splits or not group.tile:
        return [group]
    steps = _steps(program, group, target) | group.balance
    found = {a: _thinned(mutations(group.tile[a], steps.get(a, 1)), group.tile[a])
             for a in group.tile if group.tile[a] > 1}
    tiles = [{**group.tile, a: n} for a, sizes in found.items() for n in sizes]
    ways = [group]
    for tile in tiles:
        way = replace(group, tile=tile)
        try:
            if not kernel_faults(program, schedule, target, way):
                ways.append(way)
        except ScheduleError:  # no kernel at all with such a tile
            continue
    return ways


def _thinned(sizes: Sequence[int], decided: int) -> list[int]:
    """A few of the sizes, ends included, without the decided one."""
    others = [n for n in sizes if n != decided]
    if len(others) <= TRIED:
        return others
    return [others[i * (len(others) - 1) // (TRIED - 1)] for i in range(TRIED)]


def _steps(program: Program, group: Group, target: Target) -> dict[str, int]:
    """{axis of the anchor: what its tiles are a multiple of}: the register tile's rows of the only
    row axis of its product, columns of the lanes."""
    stages = group_stages(program, group)
    for a in aligned_products(stages, group, target):
        s = stages[a.stage]
        if group.anchor in s.computes:
            rows = {s.axes[a.rows[-1]].name: a.mr} if len(a.rows) == 1 else {}
            return {**rows, s.axes[a.lane].name: a.nr}
    anchor = next(s for s in stages if group.anchor in s.computes)
    lane = group.choice(anchor.name).lanes
    return {lane: target.tuning.lane_cut} if lane else {}


def mutations(tile: int, step: int) -> tuple[int, ...]:
    """Tiles worth trying around the best one for the largest call: from half of it to its double,
    in multiples of ``step``.  Twice the tile takes up a last wave that is cut, half of it fills
    places that idle (DietCode, 4.1)."""
    first = max(step, -(-tile // 2 // step) * step)
    return tuple(range(first, 2 * tile + 1, step))


__all__ = ["mutations", "tile_candidates"]
