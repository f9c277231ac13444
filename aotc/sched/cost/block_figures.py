"""What a block of threads is to the worker that runs it: one function says what its accesses ask of
memories, how many registers it takes, how many blocks a worker holds at once, and what its row
reaches.  All numbers come from the machine, its ``Tuning`` and the row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from aotc.sched.cost.lane_accesses import count_passes, count_sectors, least_sectors
from aotc.sched.cost.row_cost import load_cost, row_rate
from aotc.target.base import Machine
from aotc.target.kernel_rows import KernelRow, ProductRow
from aotc.target.tuning import Tuning

LaneAccess = tuple[tuple[int, ...], int]  # byte addresses of the lanes of a warp, bytes of each


@dataclass(frozen=True)
class BlockFigures:
    """Of a kernel's blocks.  sectors: that accesses of the memory outside a block's move, for each
    that as many bytes side by side would; passes: over the banks of a block's memory that one
    access takes; registers: of a thread; blocks: that a worker holds at once; rate: products of the
    row in the time of one in f32 (1 for nests)."""

    sectors: float
    passes: float
    registers: int
    blocks: int
    rate: float


def block_figures(machine: Machine, row: KernelRow, threads: int, shared: int,
                  far: Sequence[LaneAccess] = (), near: Sequence[LaneAccess] = ()) -> BlockFigures:
    """The BlockFigures of a kernel of ``row`` in blocks of ``threads`` that have ``shared`` bytes
    of memory each; far, near: accesses of warps outside of that, and to it."""
    tuning = machine.tuning
    moved = sum(count_sectors(a, n, tuning) for a, n in far)
    least = sum(least_sectors(a, n, tuning) for a, n in far)
    passes = sum(count_passes(a, n, tuning) for a, n in near)
    registers = thread_registers(row, threads, tuning)
    return BlockFigures(
        moved / least if far else 1.0, passes / len(near) if near else 1.0, registers,
        held_blocks(threads, registers, shared, tuning),
        row_rate(row, tuning) if isinstance(row, ProductRow) else 1.0)


def thread_registers(row: KernelRow, threads: int, tuning: Tuning) -> int:
    """Registers that a thread of a row takes, as they are given; of a row that does not say so, as
    many as leave a worker one block."""
    own = row.shared.registers if isinstance(row, ProductRow) and row.shared is not None else (
        tuning.nest_registers)
    grain = tuning.register_grain
    return -(-own // grain) * grain or max(grain, tuning.worker_registers // threads)


def held_blocks(threads: int, registers: int, shared: int, tuning: Tuning) -> int:
    """Blocks of so many threads, registers of each and bytes of memory that a worker holds at once:
    as many as its registers, its threads, its memory and its places for blocks allow, one at
    least."""
    return max(1, min(tuning.worker_registers // (threads * registers),
                      tuning.worker_threads // threads, tuning.worker_blocks,
                      tuning.worker_shared // (shared + tuning.block_reserved)
                      if shared + tuning.block_reserved else tuning.worker_blocks))


def product_figures(machine: Machine, row: ProductRow) -> BlockFigures:
    """The BlockFigures of a product on a row, with the usual steps in memory."""
    assert row.shared is not None, row.name
    usual = 0 if row.staging is None else row.staging.usual
    shared = max(row.shared.sum_bytes, usual * row.step_bytes) + row.tap_bytes
    return block_figures(machine, row, row.threads, shared)


def tile_reach(machine: Machine, row: ProductRow, blocks: int) -> float:
    """What so many blocks on one worker, one tile of a row each, reach of its multipliers: few
    threads wait for each other, loads from their memory take places of multiply-adds."""
    tuning = machine.tuning
    held = min(blocks, product_figures(machine, row).blocks)
    alone = tuning.tile_rate * min(1.0, row.threads / (
        machine.threads if row.per_thread else tuning.unit_threads))
    loads = load_cost(row, tuning) * row.loads * tuning.load_shown
    return min(1.0, held * alone) / (1.0 + loads)


__all__ = ["BlockFigures", "LaneAccess", "block_figures", "held_blocks", "product_figures",
           "thread_registers", "tile_reach"]
