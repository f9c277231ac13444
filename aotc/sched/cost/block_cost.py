"""Time of stages that the threads of a block share: how operands are fetched, how many steps of a
sum are on their way, how many threads fold a row.  Terms that ways are compared by; all numbers
come from the machine and its ``Tuning``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import TypeVar

from aotc.sched.cost.lane_accesses import count_sectors, touched_units
from aotc.sched.cost.row_cost import load_cost
from aotc.target.base import Machine
from aotc.target.kernel_rows import ProductRow
from aotc.target.tuning import Tuning

Way = TypeVar("Way")
LINE = 4  # sectors of a line


@dataclass(frozen=True)
class OperandFetch:
    """How ``lanes`` neighbouring threads bring ``elements`` of ``size`` bytes of an operand to the
    memory of steps.  width: elements at once; run: threads whose elements are neighbours along one
    axis; steps: elements between those of two neighbouring threads, of every load (None: anywhere);
    near: the same between their places; copied: no register lies between."""

    elements: int
    width: int
    run: int
    steps: tuple[int | None, ...]
    near: int
    copied: bool
    size: int = 4


def fetch_cost(fetch: OperandFetch, lanes: int, tuning: Tuning) -> float:
    """Accesses of the memory of steps that a fetch takes as long as: the lines that are looked up,
    the sectors that come, places in one bank, and the instructions."""
    run = max(1, min(lanes, fetch.run))
    asked, size = 0.0, fetch.size * fetch.width
    for step in fetch.steps:
        sectors, lines = run * -(-size // tuning.sector), run  # each thread asks for its own
        if step is not None:
            places = [fetch.size * step * n for n in range(run)]
            sectors = count_sectors(places, size, tuning)
            lines = len(touched_units(places, size, LINE * tuning.sector))
        asked += (lines + sectors * tuning.sector_cost) * lanes / run
    banks = tuning.block_banks
    words = size / 4
    reached = min(banks, banks // gcd(banks, max(1, fetch.near)) * words)
    passes = max(lanes * words / banks, run * words / min(reached, run * words))
    moved = 1.0 + asked + passes + (0.0 if fetch.copied else tuning.by_register)
    return fetch.elements / (fetch.width * lanes) * moved


def product_step(machine: Machine, row: ProductRow, lanes: int, stages: int, accesses: float,
                 blocks: int = 1) -> float:
    """Seconds of a step of a product's sum in one block, ``stages`` steps of which are in memory,
    the one that is multiplied among them; ``accesses``: as ``fetch_cost`` says, of both operands.
    Data that are on their way for longer than steps before them take are waited for; of several
    ``blocks`` on a worker, others work meanwhile."""
    tuning = machine.tuning
    work = 2.0 * row.tile.mr * row.tile.nr * row.steps
    if row.per_thread:
        work *= 1.0 + load_cost(row, tuning) * row.loads
    busy = (work + 2.0 * lanes * accesses * tuning.access_cost) / machine.flops
    wait = tuning.far_wait / (stages - 1)
    alone = max(busy, wait) + tuning.unhidden * min(busy, wait) + tuning.barrier
    return max(busy, alone / blocks)


def order_cost(machine: Machine, sizes: tuple[int, int, int], mr: int, nr: int,
               order: str) -> float:
    """Seconds of what a work item fetches from beyond the cache behind its own memory: all rows and
    columns once where those of all workers fit there, else what the outermost loop runs over once
    and the others with each of its tiles.  sizes: rows, columns, terms."""
    rows, columns, terms = sizes
    fetched = rows + columns
    if 4 * fetched * terms * machine.workers > machine.outside(machine.near).capacity:
        fetched = columns + rows * -(-columns // nr) if order == "columns" else (
            rows + columns * -(-rows // mr))
    return 4.0 * fetched * terms * machine.workers / machine.memory.bandwidth


def fold_cost(rows: int, length: int, threads: int, lanes: int, team: int, tuning: Tuning) -> float:
    """Seconds of folding ``rows`` rows of ``length`` elements by ``team`` times ``lanes`` threads
    each, of ``threads``."""
    at_once = max(1, threads // (lanes * team))
    steps = -(-length // (lanes * team))
    joined = 2 * tuning.barrier + (team - 1) * tuning.fold_part if team > 1 else 0.0
    return -(-rows // at_once) * (steps * tuning.fold_step + joined)


def pick_cheapest(ways: Sequence[Way], costs: Sequence[float], slack: float) -> Way:
    """The first of ways, the usual one in front, that takes as long as the fastest, but for a
    share."""
    least = min(costs)
    return next(w for w, c in zip(ways, costs) if c <= least * (1 + slack))


__all__ = ["OperandFetch", "pick_cheapest", "fetch_cost", "fold_cost", "order_cost", "product_step"]
