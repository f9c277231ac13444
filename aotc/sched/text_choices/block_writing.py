"""How stages are written that the threads of a block share: the cheapest of the ways that are
left."""

from collections.abc import Collection, Sequence

from aotc.ir.dtypes import DTYPES
from aotc.ir.kernel.plan_kernels import LoweredKernel
from aotc.ir.kernel.plan_stages import Contract, Nest, points
from aotc.ir.simplify import upper
from aotc.ir.stage_choice import TEXTS
from aotc.sched.cost.block_cost import (
    OperandFetch,
    fetch_cost,
    fold_cost,
    order_cost,
    pick_cheapest,
    product_step,
)
from aotc.sched.cost.block_figures import block_figures
from aotc.sched.lowering.neighbours import Lined, Lines, lines_of, wides
from aotc.sched.lowering.operand_ways import (
    Way,
    may_team,
    most_threads_together,
    own_axis,
    runs_inside,
    scratch_room,
    steps_between,
    ways_left,
)
from aotc.sched.model.size import estimate
from aotc.target.base import Machine, Target
from aotc.target.kernel_rows import ProductRow

ENDLESS = 1 << 20  # elements of a fold without a bound


def shared_product(c: Contract, kernel: LoweredKernel, target: Target,
                   lined: Collection[str]) -> dict[str, int | str]:
    """All choices of a product of a kernel whose work items threads share; what its ``writing`` has
    is kept.  lined: buffers that begin at a multiple of 16 bytes outside the block's memory.
    ScheduleError where no way is left."""
    row = target.product_row(c.row)
    found: dict[str, int | str] = {"order": _order(c, target.machine)}
    if row.staging is not None:
        accesses, scratch = 0.0, scratch_room(kernel)
        for which in "ab":
            ways = ways_left(c, which, row, scratch, lined)
            costs = [way_cost(c, which, w, target) for w in ways]
            found |= pick_cheapest(ways, costs, 0).said(which)
            accesses += min(costs)
        step = row.bytes_of_step(c.micro.grouping)
        step -= row.rows_bytes if found["a_fetch"] == "place" else 0
        found["stages"] = _stages(row, step, kernel, target, accesses)
    return found | c.writing.said


def shared_nests(nests: Sequence[Nest], kernel: LoweredKernel, target: Target,
                 lined: Lined) -> dict[str, int]:
    """All choices of the Nests of one stage of a kernel whose work items threads share.  lined: as
    of ``shared_product``, with how many elements they have."""
    found = shared_fold(nests, kernel.threads, target)
    if not nests:
        return found
    lines = lines_of(kernel, lined)
    width = max(_neighbours(n, lines, kernel.threads, target.lanes * found.get("team", 1))
                for n in nests)
    return found | {"neighbours": width}


def _neighbours(nest: Nest, lines: Lines, threads: int, team: int) -> int:
    """Neighbours of a Nest that a thread has: so many that those who share its points (its terms,
    of a sum along lanes: ``team`` do) are done in the fewest turns, and no more."""
    folds = nest.fold != "none"
    count = points(nest.reduce[nest.parts:] if folds else nest.ranges)
    ways, least = [w.width for w in wides(nest, lines)], team if folds else threads
    if count is None:
        return max(ways, default=1)
    return min((1, *reversed(ways)), key=lambda width: -(-count // (width * least)))


def shared_fold(nests: Sequence[Nest], threads: int, target: Target) -> dict[str, int]:
    """How many threads, or times the target's lanes threads, fold a row together, in all Nests of
    one stage; nothing where they fold nothing."""
    folds = [n for n in nests if may_team(n)]
    if not folds:
        return {}
    most = min(_most(n, threads, target) for n in folds)
    ways = [1 << n for n in range(most.bit_length())]
    costs = [sum(team_cost(n, threads, target, w) for n in folds) for w in ways]
    return {"team": pick_cheapest(ways, costs, 0)}


def _most(nest: Nest, threads: int, target: Target) -> int:
    """How many threads of ``threads`` are worth folding a row of a Nest together: each has some
    terms.  Of lanes along the sum there are as many anyway."""
    most, terms = most_threads_together(nest, threads, target.lanes), points(nest.reduce)
    if nest.folds_lanes or terms is None:
        return most
    return max(1, min(most, terms // target.tuning.thread_terms))


def team_cost(nest: Nest, threads: int, target: Target, team: int) -> float:
    """Seconds of folding the rows of a Nest, each by a team of threads, or of warps where the
    target's lanes lie along it."""
    rows, length = points(nest.ranges), points(nest.reduce)
    each = target.lanes if nest.folds_lanes else 1
    return fold_cost(rows or 1, ENDLESS if length is None else length, threads, each, team,
                     target.tuning)


def way_cost(c: Contract, which: str, way: Way, target: Target) -> float:
    """``fetch_cost`` of an operand of a Contract that is fetched in a way."""
    row = target.product_row(c.row)
    assert row.staging is not None, row.name
    if way.fetch == "place":
        return 0.0
    count = row.tile.mr if which == "a" else row.tile.nr
    axis, steps, inner = own_axis(c, which), row.steps, runs_inside(c, which, way.along)
    there = count if axis is None else upper(axis.extent) or count
    run = steps if way.along == "sum" else min(count, there)
    return fetch_cost(OperandFetch(
        count * steps, way.width, -(-run // way.width), tuple(
            s if s is None else s * way.width for s in steps_between(c, which, way.along)),
        way.width if inner else row.staging.pitch[which == "b"], way.fetch == "copy",
        DTYPES[row.stored].size if way.fetch == "copy" else 4),
        target.lanes, target.tuning)


def _order(c: Contract, machine: Machine) -> str:
    """Which loop over a work item's register tiles is the outermost."""
    sizes, ways = tuple(map(points, (c.own_rows, (c.n,), (*c.taps, c.k)))), [
        str(w) for w in TEXTS["order"]]
    rows, columns, terms = sizes
    if rows is None or columns is None or terms is None:
        return ways[0]
    return pick_cheapest(ways, [order_cost(machine, (rows, columns, terms), c.micro.mr, c.micro.nr,
                                           w)
                                for w in ways], machine.tuning.same_order - 1)


def _stages(row: ProductRow, step: int, kernel: LoweredKernel, target: Target,
            accesses: float) -> int:
    """Steps of a product's sum, of ``step`` bytes each, in the block's memory: as usual for the
    row, or so many as save time and fit."""
    staging = row.staging
    assert staging is not None, row.name
    room, slab = target.machine.near.capacity, kernel.slab_bytes
    assert isinstance(slab, int), slab
    fit = [n for n in range(staging.least, staging.most + 1) if slab + n * step <= room]
    ways = sorted(fit, key=lambda n: n != staging.usual) or [staging.least]
    machine, tuning = target.machine, target.tuning
    most = -(-estimate(kernel.tiles) // machine.workers)

    def held(stages: int) -> int:
        return min(most, block_figures(
            machine, row, row.threads, slab + stages * step).blocks)
    return pick_cheapest(ways, [product_step(machine, row, target.lanes, n, accesses, held(n))
                                for n in ways], tuning.slack)


__all__ = ["ENDLESS", "shared_fold", "shared_nests", "shared_product", "team_cost", "way_cost"]
