"""What blocks of threads are to a worker: sectors and bank passes of lane addresses, registers,
blocks at once, rates."""

from dataclasses import replace

import numpy as np
import pytest

from aotc.ir.expr import Axis, Const
from aotc.sched.cost.block_figures import (
    block_figures,
    held_blocks,
    product_figures,
    thread_registers,
    tile_reach,
)
from aotc.sched.cost.lane_accesses import count_passes, count_sectors, least_sectors
from aotc.sched.cost.row_cost import row_rate
from aotc.sched.cost.thread_accesses import lane_sectors
from aotc.target import get_target
from aotc.target.gpus import GPUS

GPU = get_target("cuda:sm_90")
TUNING, KIB = GPU.tuning, 1 << 10
LANES = range(32)


@pytest.mark.parametrize("addresses, size, sectors, least", [
    ([4 * n for n in LANES], 4, 4, 4), ([4 * n + 4 for n in LANES], 4, 5, 4),
    ([2 * n for n in LANES], 2, 2, 2), ([16 * n for n in LANES], 16, 16, 16),
    ([32 * n for n in LANES], 4, 32, 4), ([4096 * n for n in LANES], 16, 32, 16),
    ([8 * n for n in LANES], 4, 8, 4), ([0] * 32, 4, 1, 1), ([30], 4, 2, 1)])
def test_sectors_of_an_access(addresses, size, sectors, least):
    assert count_sectors(addresses, size, TUNING) == sectors
    assert least_sectors(addresses, size, TUNING) == least


@pytest.mark.parametrize("addresses, size, passes", [
    ([4 * n for n in LANES], 4, 1), ([0] * 32, 4, 1), ([128 * n for n in LANES], 4, 32),
    ([8 * n for n in LANES], 4, 2), ([12 * n for n in LANES], 4, 1),
    ([2 * n for n in LANES], 2, 1), ([256 * n for n in LANES], 2, 32),
    ([8 * n for n in LANES], 8, 2), ([16 * n for n in LANES], 16, 4),
    ([128 * n for n in LANES], 16, 32), ([80 * n for n in LANES], 16, 4),
    ([64 * (n // 2) + 16 * (n % 2) for n in LANES], 16, 8)])
def test_passes_over_banks(addresses, size, passes):
    assert count_passes(addresses, size, TUNING) == passes


@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_passes_are_those_of_a_table_of_banks(size):
    """Beside a table of which words each part of a warp asks every bank for."""
    rng = np.random.default_rng()
    for _ in range(20):
        at = (rng.integers(0, 512, 32) * size).tolist()
        parts = np.split(np.array(at), max(1, size // 4))
        total = 0
        for part in parts:
            words = {a // 4 + w for a in part for w in range(max(1, size // 4))}
            total += np.bincount([w % 32 for w in words], minlength=32).max()
        assert count_passes(at, size, TUNING) == total


@pytest.mark.parametrize("threads, registers, shared, capability, blocks", [
    (256, 32, 0, "h100", 8), (256, 32, 0, "rtx4090", 6), (256, 128, 0, "h100", 2),
    (256, 168, 0, "h100", 1), (128, 128, 0, "h100", 4), (1024, 32, 0, "a10", 1),
    (256, 128, 113 * KIB, "h100", 2), (256, 128, 114 * KIB, "h100", 1),
    (128, 64, 32 * KIB, "a10", 3), (32, 16, 0, "h100", 32), (32, 16, 0, "rtx4090", 24),
    (32, 16, 0, "orin", 16), (1024, 64, 227 * KIB, "h100", 1)])
def test_blocks_at_once(threads, registers, shared, capability, blocks):
    """As NVIDIA's occupancy calculator has them."""
    tuning = GPUS[capability].machine.tuning
    assert held_blocks(threads, registers, shared, tuning) == blocks


def row(name):
    return GPU.product_row(name)


def test_a_kernels_figures():
    large = block_figures(GPU.machine, row("contraction_f32_128x128__simt"), 256, 50 * KIB)
    assert (large.registers, large.blocks, large.rate) == (168, 1, 1.0)
    assert (large.sectors, large.passes) == (1.0, 1.0)
    nest = block_figures(
        GPU.machine, GPU.row("map__simt"), 256, 0,
        far=[(tuple(32 * n for n in LANES), 4), (tuple(4 * n for n in LANES), 4)],
        near=[(tuple(8 * n for n in LANES), 4), (tuple(4 * n for n in LANES), 4)])
    assert (nest.sectors, nest.passes, nest.rate) == (36 / 8, 1.5, 1.0)
    assert nest.registers == TUNING.nest_registers and nest.blocks == 6


def test_a_row_that_does_not_say_registers_leaves_room_for_one_block():
    one = row("contraction_f32_64x64__simt")
    silent = replace(one, shared=replace(one.shared, registers=0))
    assert product_figures(GPU.machine, one).blocks > 1 == product_figures(
        GPU.machine, silent).blocks
    assert thread_registers(silent, silent.threads, TUNING) == 65536 // silent.threads


def test_few_warps_reach_less():
    small, large = row("contraction_f32_64x64__simt"), row("contraction_f32_128x128__simt")
    reached = [tile_reach(GPU.machine, small, n) for n in (1, 2, 3, 4, 99)]
    assert reached == sorted(reached) and reached[1] == 2 * reached[0]
    assert reached[-1] == reached[-2] <= 1
    alone = tile_reach(GPU.machine, large, 1)
    assert alone == tile_reach(GPU.machine, large, 9) and 0.4 < alone < 0.63  # as was measured


def test_rates_of_units_are_those_of_the_gpu():
    half = next(u for u in GPU.rows("contraction") if u.a == "f16")
    rates = {n: row_rate(half, g.machine.tuning) for n, g in GPUS.items()}
    assert rates["rtx4090"] == rates["rtx5090"] == 2.0 and rates["h100"] == half.rate
    plain = row("contraction_f32_64x64__simt")
    assert {row_rate(plain, g.machine.tuning) for g in GPUS.values()} == {1.0}


I, J, K = Axis("i", Const(40)), Axis("j", Const(64)), Axis("k", Const(8))


@pytest.mark.parametrize("place, size, axes, sectors", [
    (I * 64 + J, 4, [J, I], 4), (J * 40 + I, 4, [J, I], 32), (J * 2, 4, [J], 8),
    (J // 2, 4, [J], 2), (J % 4, 4, [J], 1), (I * 0 + 7, 4, [J, I], 1), (K + I * 8, 4, [K, I], 4),
    (K * 40 + I, 4, [K, I], 8), (I * 64 + J, 2, [J, I], 2), (63 - J, 4, [J], 4),
    (K, 4, [K], 1), (J * 64 + I, 8, [I, J], 8)])
def test_sectors_of_lanes_along_axes(place, size, axes, sectors):
    assert lane_sectors(place, size, axes, 32, TUNING) == sectors
