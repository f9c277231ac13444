"""Construction by a walk: the published formulas, their repairs, and distance from brute force."""

from dataclasses import replace
from math import exp, log
from random import Random
from statistics import median

import pytest
from published import (
    EXTRA,
    GPU,
    OPERATORS,
    TABLE_IV,
    brute_force,
    gemm,
    nearer,
    one_group,
    printed_benefit,
    printed_moves,
)
from te_programs import Maker, softmax

from aotc.errors import ScheduleError
from aotc.ir.program import flops, static_shape
from aotc.ir.schedule import Group
from aotc.sched.choose.gensor import (
    STEPS,
    Budget,
    TileSpace,
    TileState,
    cache_multiplier,
    construct,
    descend,
    grow_greedily,
    keep_probability,
    ladder,
    moves,
    pick,
    tile_benefit,
    vthread_benefit,
    walk,
)
from aotc.sched.model.group_model import group_model
from aotc.target import get_target
from aotc.target.base import Memory

ALL = 1 << 30  # states: every walker walks
CUBE = one_group(gemm(1024, 1024, 1024))


def sizes(tile):
    """(bytes moved, bytes live) of a tile (m, n, k) of the 1024 cube."""
    return CUBE.measure(tile)


def test_benefits_of_the_published_example():
    (q, f), (q_new, f_new) = sizes((32, 32, 8)), sizes((64, 32, 8))
    assert q / q_new == pytest.approx(1.327, abs=5e-4)
    assert f_new / f == pytest.approx(1.833, abs=5e-4)
    assert printed_benefit(q, q_new, f, f_new) == pytest.approx(2.43, abs=5e-3)
    assert printed_benefit(q, q_new, f_new, f) == pytest.approx(0.72, abs=5e-3)
    assert tile_benefit(q, q_new, 2.0) == pytest.approx((q / q_new) ** 2)


def test_a_longer_slice_of_the_reduction_moves_as_much():
    (q, f), (q_new, f_new) = sizes((32, 32, 8)), sizes((32, 32, 16))
    assert q == q_new
    assert printed_benefit(q, q_new, f, f_new) == pytest.approx(1.333, abs=5e-4)
    assert printed_benefit(q, q_new, f_new, f) == pytest.approx(0.75)
    assert tile_benefit(q, q_new, 4.0) == 1.0


def test_going_nearer_swamps_every_tile():
    low = Memory("device", 1 << 40, 1e12, latency=500e-9)
    high = Memory("shared", 1 << 16, 20e12, latency=30e-9)
    assert nearer(1e3, low, high) == pytest.approx(16.7, abs=.05)
    assert nearer(1e6, low, high) == pytest.approx(18.8, abs=.06)


def test_cache_multiplier():
    values = [cache_multiplier(t) for t in (0, 5, 10, 20, 30, 50)]
    assert values == pytest.approx([0.5, 0.927, 1.5, 2.5, 2.885, 2.995], abs=5e-4)


def test_virtual_threads():
    assert [vthread_benefit(128, 32, v) for v in (1, 2, 3, 4, 8)] == [1, 2, 2, 4, 4]


def test_keep_probability_rises_as_it_cools():
    cold = [1.0, 2.0 ** -20, 2.0 ** -30]
    assert [1 - keep_probability(t) for t in cold] == pytest.approx(
        [0.993, 0.127, 0.0045], abs=5e-4)
    assert [keep_probability(t) for t in cold] == pytest.approx([0.0067, 0.873, 0.9955], abs=5e-4)
    assert keep_probability(0.3) == pytest.approx(1 / (1 + exp(-0.5 * (-log(0.3) - 10))))


def test_roulette_draws_in_proportion():
    """The printed test (a fresh number per entry, >=) would draw .30, .56, .126 and nothing."""
    weights, n = (0.7, 0.2, 0.1), 10000
    drawn = [pick(weights, (i + 0.5) / n) for i in range(n)]
    assert [drawn.count(i) / n for i in range(3)] == pytest.approx(weights, abs=1e-3)
    assert pick((0.0, 2.0, 0.0), 1.0) == 1


def test_ladders_serve_odd_extents():
    assert ladder(64) == (1, 2, 4, 8, 16, 32, 64)
    assert {1, 16, 83} <= set(ladder(83)) and {125, 250, 500} <= set(ladder(1000))
    assert {6, 12, 24, 48} <= set(ladder(50, 6))


def test_staying_breaks_the_period_of_two():
    """Up and down moves change one rung each, so without ``stay`` only even walks return."""
    space = TileSpace(one_group(gemm(4, 4, 4)), GPU)
    start = TileState(((2, 2, 2),))
    kinds = moves(space, start, 1.0, 0)
    assert {k for _, k, _ in kinds} == {"tile", "inverse", "stay", "cache"}

    def returns(length, allowed):
        reached = {start}
        for _ in range(length):
            reached = {s for r in reached for w, k, s in moves(space, r, 1.0, 0)
                       if k in allowed and w > 0}
        return start in reached

    steps = ("tile", "inverse")
    assert [n for n in range(1, 7) if returns(n, steps)] == [2, 4, 6]
    assert all(returns(n, steps + ("stay",)) for n in range(1, 7))


def test_moves_that_do_not_fit_are_none():
    space = TileSpace(CUBE, GPU)
    full = grow_greedily(space).tiles[0]
    for w, _, s in moves(space, TileState((full,)), 4.0, 3):
        assert w > 0 and space.fits(len(s.tiles) - 1, s.tiles[-1])


@pytest.mark.parametrize("name", TABLE_IV)
def test_published_shapes(name):
    program, rows, gflop = TABLE_IV[name]
    c = program.steps[0]
    shape = static_shape(program.shape(program.outputs[0]))
    if rows is not None:
        assert shape[-2:] == (rows, rows)
    if gflop is not None:
        assert flops(c).value / 1e9 == pytest.approx(gflop, rel=1e-2)


@pytest.mark.parametrize("name", [
    pytest.param(n, marks=pytest.mark.product) if n in ("C1", "C2", "C3", "P2", "P3") else n
    for n in OPERATORS])
def test_within_five_percent_of_brute_force(name):
    model = one_group(OPERATORS[name])
    best = brute_force(model, GPU)
    for seed in (0, 1):
        found = construct(model, GPU, Budget(ALL, kept=4, seed=seed))
        assert best * (1 - 1e-9) <= found.cost.seconds <= 1.05 * best


def test_five_extra_shapes():
    assert len(TABLE_IV) == 12 and len(EXTRA) == 5


def test_restarts_and_descent_only_help():
    model = one_group(OPERATORS["C2"])
    grown, walked = (construct(model, GPU, Budget(states)) for states in (0, ALL))
    assert walked.cost.seconds < 0.95 * grown.cost.seconds
    space = TileSpace(model, GPU)
    end = descend(space, grow_greedily(space))
    assert space.score(end) <= space.score(grow_greedily(space)) and descend(space, end) == end


def test_walks_begin_as_long_as_the_budget_of_states_lasts():
    model = one_group(OPERATORS["V1"])
    alone, some, all_of_them = (construct(model, GPU, Budget(n)).states for n in (0, 1000, ALL))
    assert alone < 1000 <= some < all_of_them


def test_a_walk_finds_better_tiles_for_blocks_of_threads():
    """The ladder of 617 channels has two rungs: growth takes one of them whole at once, where
    nothing says that single elements move as many bytes as neighbours do."""
    machine = get_target("cuda:sm_90").machine
    machine = replace(machine, memories=tuple(
        replace(m, transaction=1) for m in machine.memories))
    budget = Budget(machine.tuning.walk_states)
    model = one_group(OPERATORS["P3"])
    grown, walked = (construct(model, machine, b, depth=machine.depth, strict=False).cost.seconds
                     for b in (Budget(), budget))
    assert budget.states and walked < grown / 1.3


def test_the_literal_walk_leaves_the_first_level_at_once():
    """As printed, the cache benefit wins before any tile has grown: tens of times slower."""
    model = one_group(gemm(8192, 8192, 8192))
    space = TileSpace(model, GPU)
    best = construct(model, GPU).cost.seconds

    def literal(rng):
        state, t = TileState((space.least,)), 0
        for _ in range(STEPS):
            options = printed_moves(space, state, t)
            _, new = options[pick([w for w, _ in options], rng.random())]
            t = 0 if len(new.tiles) > len(state.tiles) else t + 1
            state = new
        return state

    def typical(last):
        return median(space.score(last(Random(i)))[0] for i in range(20)) / best

    assert typical(literal) > 10 and typical(lambda rng: walk(space, rng)[-1]) < 2


def test_the_same_seed_gives_the_same_state():
    model = one_group(gemm(500, 96, 384))
    assert construct(model, GPU, Budget(ALL, seed=4)) == construct(model, GPU, Budget(ALL, seed=4))


def test_nested_levels_of_a_cpu():
    machine = get_target("x86-64-v4").machine
    model = one_group(gemm(512, 768, 2304))
    found = construct(model, machine, grains={"i": 6, "j": 64})
    assert len(found.state.tiles) == len(machine.memories) - 1
    for i, tile in enumerate(found.state.tiles):
        memory = machine.memories[i + 1]
        assert model.peak(tile) <= memory.capacity * memory.usable
        assert not i or all(a <= b for a, b in zip(tile, found.state.tiles[i - 1]))


def test_rows_that_cannot_be_cut_need_room():
    m = Maker()
    m.input("x", 64, 4096)
    softmax(m, "p", "x")
    p = m.done("p")
    g = Group("g", tuple(s.outs[0] for s in p.steps), ("p",), "p",
              {"p_max": "L1", "p_exp": "L1", "p_sum": "L1"})
    far, near, last = GPU.memories
    small = replace(GPU, memories=(far, replace(near, capacity=1 << 10), last))
    with pytest.raises(ScheduleError, match="smallest tile needs"):
        construct(group_model(p, g), small)
