"""One cost in seconds: every term by hand, and what must not change it."""

from dataclasses import replace

import pytest
from published import GPU, gemm, one_group
from te_programs import Maker, ax, matmul, relu

from aotc.ir.schedule import Group
from aotc.sched.choose.gensor import TileSpace
from aotc.sched.cost.group_cost import (
    Aligned,
    bank_passes,
    cut_utilisation,
    group_cost,
    resident_buffers,
    work_item,
)
from aotc.sched.model.group_model import group_model
from aotc.target import get_target
from aotc.target.base import Machine, Memory

PLAIN = Machine((Memory("far", 1 << 40, 1e9, "device"), Memory("near", 1 << 16, 1e10, "thread")),
                4, 1e9, 1, scratch="near")


@pytest.mark.parametrize("tiles, value", [(24, 0.30), (768, 0.96), (6144, 0.997)])
def test_utilisation_of_80_cores(tiles, value):
    assert cut_utilisation([(tiles, 1.0)], 80) == pytest.approx(value, abs=5e-4)


@pytest.mark.parametrize("tiles, value", [(18, 0.621), (144, 0.947), (270, 0.982), (288, 0.947)])
def test_wave_term_of_40_multiprocessors(tiles, value):
    assert cut_utilisation([(tiles, 1.0)], 40, 0.5) == pytest.approx(value, abs=5e-4)


@pytest.mark.parametrize("tiles, places, value", [(128, 16, 1.0), (384, 132, 0.985),
                                                  (1024, 32, 1.0)])
def test_waves_of_the_three_machines(tiles, places, value):
    assert cut_utilisation([(tiles, 1.0)], places, 0.5) == pytest.approx(value, abs=1e-3)


def test_virtual_threads_share_banks():
    assert [bank_passes(128, 32, 1) / bank_passes(128, 32, v) for v in (1, 2, 3, 4, 8)] == [
        1, 2, 2, 4, 4]
    assert bank_passes(128, 0) == 1


def test_every_term_by_hand():
    model = one_group(gemm(64, 32, 64))
    cost = group_cost(model, PLAIN, ((16, 16, 32),))
    tiles, bytes_in = 16, 4 * (16 * 32 + 32 * 16 + 16 * 16)
    assert cost.levels == (("far", tiles * bytes_in / 1e9, tiles * bytes_in),)
    assert cost.compute == pytest.approx(2 * 64 * 64 * 32 / 4e9)
    assert cost.util == 1.0 and cost.recompute == 1.0
    assert cost.seconds == pytest.approx(max(cost.levels[0][1], cost.compute))
    assert cost.bound == "far" and "far" in str(cost)
    late = group_cost(model, replace(PLAIN, launch=1.0), ((16, 16, 32),))
    assert late.seconds == pytest.approx(1 + cost.seconds)
    steps = group_cost(model, replace(PLAIN, step=1.0), ((16, 16, 32),))
    assert steps.seconds == pytest.approx(16 / 4 + cost.seconds)
    loose = group_cost(model, replace(PLAIN, overlap=0.5), ((16, 16, 32),))
    assert loose.seconds == pytest.approx(cost.seconds + cost.compute / 2)


def test_few_tiles_leave_workers_idle():
    model = one_group(gemm(64, 32, 64))
    one, four = (group_cost(model, PLAIN, (t,)) for t in ((64, 64, 32), (32, 32, 32)))
    assert one.util == pytest.approx(1 / (0.5 * 4 + 0.5)) and four.util == 1.0


def test_workers_share_only_what_is_shared():
    private = replace(PLAIN, memories=(Memory("far", 1 << 40, 1e9), PLAIN.memories[1]))
    model = one_group(gemm(64, 32, 64))
    shared, own = (group_cost(model, m, ((16, 16, 32),)).levels[0] for m in (PLAIN, private))
    assert shared[1] == pytest.approx(4 * own[1]) and shared[2] == own[2]


def test_rows_pad_what_they_do_not_divide():
    model = one_group(gemm(64, 32, 64))
    at = Aligned(0, (0,), 1, 6, 64)
    plain, padded = (group_cost(model, PLAIN, ((16, 64, 32),), aligned=a) for a in ((), (at,)))
    assert padded.compute == pytest.approx(plain.compute * 18 / 16)
    last = group_cost(model, PLAIN, ((12, 64, 32),), aligned=(at,))  # 4 of 64 rows are left
    assert last.compute == pytest.approx(plain.compute * 66 / 64)


def test_tiles_at_the_ends_do_what_is_left():
    model = one_group(gemm(99, 32, 64))
    whole, cut = (group_cost(model, PLAIN, ((m, 64, 32),)) for m in (99, 64))
    assert cut.compute == whole.compute and cut.recompute == 1.0
    b = 4 * 32 * 64  # that each of two tiles reads; rows and results move once
    assert cut.levels[0][2] - whole.levels[0][2] == b
    assert cut.util == pytest.approx(1 / (0.5 * 4 * 64 / 99 + 0.5))
    assert sum(n * w[0] * w[1] for n, w in model.parts((64, 24, 32))) == 99 * 64
    assert model.parts((64, 24, 32)) == [(2, (64, 24, 32)), (1, (64, 16, 32)), (2, (35, 24, 32)),
                                         (1, (35, 16, 32))]


def test_halo_is_counted_as_work():
    m = Maker()
    m.input("x", 64)
    m.input("w", 3)
    for out, src, n in (("a", "x", 62), ("b", "a", 60)):
        i, k = ax("i", n), ax("k", 3)
        m.step(out, (i,), m.ref(src, i + k) * m.ref("w", k), (k,), "sum")
    p = m.done("b")
    model = group_model(p, Group("g", ("a", "b"), ("b",), "b", {"a": "L1"}))
    cost = group_cost(model, PLAIN, ((6, 3, 3),))
    assert cost.recompute == pytest.approx((10 * (6 + 8)) / (60 + 62))


def test_what_is_already_near_is_free():
    model = one_group(gemm(64, 32, 64))
    tile = ((16, 16, 32),)
    free = group_cost(model, PLAIN, tile, free=(frozenset({"a"}),))
    assert group_cost(model, PLAIN, tile).levels[0][2] - free.levels[0][2] == 16 * 16 * 32 * 4


def test_banks_and_transactions_come_from_the_level_read():
    model = one_group(gemm(1024, 64, 1024))
    tiles = ((64, 64, 8), (8, 64, 1))
    one, four = (group_cost(model, GPU, tiles, v).levels for v in (1, 2))
    assert one[0] == four[0] and one[1][1] == 2 * four[1][1]
    far, *near = GPU.memories
    loose = replace(GPU, memories=(replace(far, transaction=1), *near))
    thin = ((64, 4, 1), (8, 4, 1))
    assert group_cost(model, GPU, thin).levels[0][2] > group_cost(model, loose, thin).levels[0][2]


def test_usable_part_and_work_item():
    machine = get_target("x86-64-v3").machine
    assert machine.memories[work_item(machine, 4) + 1].name == "L2"
    assert work_item(GPU, 2) == 0
    model = one_group(gemm(512, 512, 512))
    far, near = PLAIN.memories
    half = replace(PLAIN, memories=(far, replace(near, usable=0.5)))
    tile = (64, 64, 64)  # 48 KiB of 64
    assert TileSpace(model, PLAIN).fits(0, tile) and not TileSpace(model, half).fits(0, tile)


def test_temps_stay_in_the_caches_that_hold_them():
    m = Maker()
    m.input("x", 320, 320)
    m.input("w", 320, 320)
    matmul(m, "s", "x", "w")
    m.pointwise("y", "s", lambda e, _: relu(e))
    p, machine = m.done("y"), get_target("x86-64-v3").machine
    third, second, first, _ = resident_buffers(p, machine)
    assert third == second == {"s"} and not first  # 400 KB
    managed = tuple(replace(x, kind="managed" if x.name == "L2" else x.kind)
                    for x in machine.memories)
    third, second, _, registers = resident_buffers(p, replace(machine, memories=managed))
    assert third == {"s"} and not second  # memory that the program fills is no cache
    shared = tuple(replace(x, kind="managed" if x.name in ("L2", "L3") else x.kind)
                   for x in machine.memories)
    third, *_ = resident_buffers(p, replace(machine, memories=shared))
    assert not third and not registers  # nor is that which all share


def test_cost_knows_no_machine_by_name():
    """The same numbers under other names cost the same."""
    names = {x.name: f"m{i}" for i, x in enumerate(GPU.memories)}
    other = replace(GPU, scratch=names[GPU.scratch], memories=tuple(
        replace(x, name=names[x.name]) for x in GPU.memories))
    model = one_group(gemm(256, 64, 256))
    tiles = ((64, 64, 8), (8, 8, 1))
    assert group_cost(model, GPU, tiles).seconds == group_cost(model, other, tiles).seconds
