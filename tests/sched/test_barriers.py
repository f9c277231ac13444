"""Barriers between the threads of a work item: placed by bytes, proved of every Plan."""

import random
from dataclasses import replace

import pytest
from changed_kernels import relowered, without_barrier
from te_programs import Maker, ax, conv2d, matmul, softmax
from te_random import random_program, random_schedule

from aotc.ir.expr import Unary
from aotc.ir.kernel.plan_stages import Contract, Nest
from aotc.ir.program import LibCall
from aotc.passes.inline import inline_moves
from aotc.sched import decide, lower
from aotc.sched.lowering.threads import barrier_faults
from aotc.target import get_target

TARGET = get_target("cuda:sm_90")
# rows pass through scratch, none is held in registers
SCRATCHED = replace(TARGET, machine=replace(TARGET.machine, tuning=replace(
    TARGET.tuning, row_registers=0)))


def row_statistics(rows=4096, columns=128):
    """y = x * (s_x * q_x + s_w * q_w) with, per row, s = sum(exp(a - max a)) and
    q = max(exp(a - max a)); x, w, y f32[rows, columns].  Scratch of x's part dies before w's."""
    m, at = Maker("statistics"), {}
    i, r = ax("i", rows), ax("r", columns)
    for t in "xw":
        m.input(t, rows, columns)
        m.step(f"m_{t}", (i,), m.ref(t, i, r), (r,), "max")
        m.pointwise(f"e_{t}", t, lambda e, a, t=t: Unary("exp", e - m.ref(f"m_{t}", a[0])))
        for out, fold in ((f"s_{t}", "sum"), (f"q_{t}", "max")):
            m.step(out, (i,), m.ref(f"e_{t}", i, r), (r,), fold)
        at[t] = m.ref(f"s_{t}", i) * m.ref(f"q_{t}", i)
    m.step("c", (i,), at["x"] + at["w"])
    m.pointwise("y", "x", lambda e, a: e * m.ref("c", a[0]))
    return m.done("y")


def planned(program, schedule=None, target=TARGET):
    """The Plan of a Program for a target, decided if no Schedule is given."""
    return lower(program, schedule or decide(program, target), target)


def bytes_of(scratch):
    return range(scratch.offset, scratch.offset + scratch.elements * 4)


def test_bytes_that_are_used_again_wait_for_their_readers():
    plan = planned(row_statistics(), target=SCRATCHED)
    kernel = next(k for k in plan.kernels if len(k.scratch) > 1)
    taken = sum(len(bytes_of(s)) for s in kernel.scratch)
    assert taken > kernel.slab_bytes, "the case needs scratch buffers in the same place"
    barriers = kernel.lowered.block.barriers
    assert barriers and not barrier_faults(plan)
    assert str(kernel).count("barrier") == len(barriers)


def without(plan, kernel, number):
    """The Plan without the barrier in front of stage ``number`` of ``kernel``."""
    left = without_barrier(kernel, number)
    return replace(plan, kernels=tuple(left if k is kernel else k for k in plan.kernels))


def attention():
    m = Maker("attention")
    for name, shape in (("q", (300, 64)), ("k", (64, 96)), ("v", (96, 64))):
        m.input(name, *shape)
    matmul(m, "s", "q", "k")
    softmax(m, "p", "s")
    matmul(m, "y", "p", "v")
    return m.done("y")


@pytest.mark.parametrize("program", [row_statistics, attention])
def test_every_barrier_that_is_left_out_is_named(program):
    plan = planned(program(), target=SCRATCHED)
    planted = [(k, n) for k in plan.kernels for n in k.lowered.block.barriers]
    assert planted
    for kernel, number in planted:
        faults = barrier_faults(without(plan, kernel, number))
        assert faults and all(f"kernel {kernel.name}, stage " in f for f in faults)


def test_scratch_moved_over_what_the_same_stage_reads_is_named():
    plan = planned(row_statistics(), target=SCRATCHED)
    kernel = next(k for k in plan.kernels if len(k.scratch) > 1)
    for stage in kernel.lowered.stages:
        out = {p.buffer for p in stage.puts} & {s.name for s in kernel.scratch}
        read = next((s for s in kernel.scratch
                     if s.name not in out and repr(s.name) in repr(stage)), None)
        if not out or read is None:
            continue
        moved = tuple(replace(s, offset=read.offset) if s.name in out else s
                      for s in kernel.scratch)
        bad = replace(plan, kernels=tuple(relowered(k, scratch=moved) if k is kernel else k
                                          for k in plan.kernels))
        assert any(f"{read.name}" in f for f in barrier_faults(bad))
        return
    raise AssertionError("no stage reads and writes scratch")


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.product)
                                        for n in (30, 60, 90))])
def test_random_programs_and_schedules_are_proved(first):
    proved = 0
    for seed in range(first, first + 30):
        program = inline_moves(random_program(seed))
        if any(isinstance(s, LibCall) for s in program.steps):
            continue
        schedule = random_schedule(program, TARGET, seed) if seed % 2 else None
        plan = planned(program, schedule)
        assert not barrier_faults(plan), seed
        planted = [(k, n) for k in plan.kernels for n in k.lowered.block.barriers]
        for kernel, number in random.Random(seed).sample(planted, min(2, len(planted))):
            assert barrier_faults(without(plan, kernel, number)), seed
            proved += 1
    assert proved > 5


def test_starts_of_rows_take_what_the_taps_need():
    """A window of 9 x 9 has more taps than the 64 that once were the bound."""
    sizes = {}
    for side in (3, 9):
        m = Maker("windows")
        m.input("x", 1, 32, 40, 40)
        m.input("w", 64, 32, side, side)
        conv2d(m, "y", "x", "w", pad=side // 2)
        kernel = next(k for k in planned(m.done("y")).kernels
                      if any(isinstance(s, Contract) for s in k.lowered.stages))
        stage = next(s for s in kernel.lowered.stages if isinstance(s, Contract))
        row = TARGET.product_row(stage.row)
        rows = row.tap_bytes * side * side if stage.a.mode == "rows" else 0
        sizes[side] = kernel.lowered.staged
        steps = row.staging.usual * row.step_bytes
        assert kernel.lowered.staged == max(row.shared.sum_bytes, steps) + rows
    assert sizes


def test_teams_of_warps_fold_few_long_rows():
    m = Maker("rows")
    m.input("x", 2, 1 << 14)
    m.step("y", (ax("i", 2),), m.ref("x", ax("i", 2), ax("r", 1 << 14)),
           (ax("r", 1 << 14),), "sum")
    kernel = planned(m.done("y")).kernels[0]
    teams = {s.team for s in kernel.lowered.stages if isinstance(s, Nest)}
    assert max(teams) > 1 and kernel.lowered.staged == 4 * (kernel.threads // TARGET.lanes)


def test_a_product_that_does_not_wait_for_the_memory_of_its_steps_is_named():
    plan = planned(attention())
    kernel = next(k for k in plan.kernels if any(isinstance(s, Contract) for s in k.lowered.stages))
    stages = tuple(replace(s, again=False) if isinstance(s, Contract) else s
                   for s in kernel.lowered.stages)
    several = relowered(kernel, stages=(*stages, *stages))
    faults = barrier_faults(replace(plan, kernels=(several,)))
    assert any("is used again, without a barrier behind a tile" in f for f in faults)
