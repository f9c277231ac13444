"""The tile-graph's sizes: Welder's worked examples, against symbolic analysis of reads, and edges
moved between levels."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from group_cases import GROUPS, schedule
from helpers.tile_graph import mem_footprint, mem_traffic, propagate, set_connect
from te_programs import Maker, ax, conv2d, matmul, random_feeds, relu, softmax

from aotc.errors import ScheduleError
from aotc.ir.expr import Axis, Const
from aotc.ir.schedule import Group, Schedule
from aotc.oracle.evaluate import evaluate
from aotc.oracle.interpret import interpret
from aotc.sched import check_schedule, complete, decide
from aotc.sched.model.boxes import stage_boxes, tile_anchor
from aotc.sched.model.group_model import group_model
from aotc.sched.model.group_numbers import Extra
from aotc.sched.model.size import estimate
from aotc.sched.model.stages import group_stages
from aotc.sched.model.tilegraph import best_fit, best_fit_places
from aotc.target import get_target

KIB, MIB = 1 << 10, 1 << 20
TARGET = get_target("c")


def group(program, connect=None, anchor=None, computes=None, outputs=None):
    names = tuple(computes or (s.outs[0] for s in program.steps))
    return Group("g", names, tuple(outputs or program.outputs), anchor or names[-1], connect or {})


# ---------------------------------------------------------------- matmul, then softmax

def matmul_softmax():
    m = Maker()
    m.input("a", 98304, 64)
    m.input("b", 64, 128)
    matmul(m, "s", "a", "b")
    softmax(m, "p", "s")
    return m.done("p")


PROGRAM = matmul_softmax()
L1 = {"p_max": "L1", "p_exp": "L1", "p_sum": "L1"}
FUSED = group(PROGRAM, L1 | {"s": "L1"})
MATMUL = group(PROGRAM, computes=("s",), outputs=("s",))
SOFTMAX = group(PROGRAM, L1, computes=("p_max", "p_exp", "p_sum", "p"))


@pytest.mark.parametrize("rows, kib, tiles, mib", [
    (4, 35, 24576, 840), (8, 38, 12288, 456), (16, 44, 6144, 264), (32, 56, 3072, 168),
    (64, 80, 1536, 120)])
def test_fused_matmul_softmax(rows, kib, tiles, mib):
    model = group_model(PROGRAM, FUSED)
    assert model.tiles(model.variables({"i0": rows})) == tiles
    assert mem_traffic(PROGRAM, FUSED, {"i0": rows}) == kib * KIB * tiles == mib * MIB
    assert mem_footprint(PROGRAM, FUSED, {"i0": rows}) == kib * KIB


def test_reduction_split_shrinks_the_footprint_only():
    tile, split = {"i0": 16}, {"s": {"k": 16}}
    assert mem_footprint(PROGRAM, FUSED, tile, split) == 17408
    assert mem_traffic(PROGRAM, FUSED, tile, split) == 264 * MIB
    assert propagate(PROGRAM, FUSED, tile, split)["a"] == (16, 16)


def test_unfused_and_ideal():
    unfused = mem_traffic(PROGRAM, MATMUL, {"i": 32, "j": 64})
    assert unfused == 192 * MIB
    assert mem_traffic(PROGRAM, SOFTMAX, {"i0": 32}) == 96 * MIB
    assert mem_traffic(PROGRAM, FUSED, {}) == 72 * MIB + 64 * 128 * 4


def least(program, g, split_name, splits, capacity, axes):
    """(least traffic in MiB, tile) over powers of two for the matmul's tiles; capacity is asked of
    the operands and the result, as the published example does."""
    best = (float("inf"), None)
    for sizes in product(*([1 << i for i in range(8)] if a != "i0" and a != "i" else
                           [1 << i for i in range(12)] for a in axes)):
        for k in splits:
            tile = dict(zip(axes, sizes))
            box = propagate(program, g, tile, {split_name: {"k": k}})
            if 4 * sum(np.prod(box[b]) for b in ("a", "b", "s")) <= capacity:
                found = mem_traffic(program, g, tile, {split_name: {"k": k}}) / MIB
                best = min(best, (found, tuple(sizes)))
    return best


@pytest.mark.parametrize("kib, k, unfused, fused", [
    (48, 64, (144, (64, 64)), (264, (16,))), (48, 8, (120, (64, 128)), (120, (64,))),
    (96, 64, (120, (64, 128)), (120, (64,))), (227, 64, (84, (256, 128)), (84, (256,)))])
def test_the_fusion_decision_flips_with_the_reduction_split(kib, k, unfused, fused):
    """Brute force over powers of two; softmax alone costs 96 MiB more where it is not fused."""
    alone = least(PROGRAM, MATMUL, "s", (k,), kib * KIB, ("i", "j"))
    assert alone[0] == unfused[0]
    assert mem_traffic(PROGRAM, MATMUL, dict(zip("ij", unfused[1]))) == unfused[0] * MIB
    assert least(PROGRAM, FUSED, "s", (k,), kib * KIB, ("i0",)) == fused
    assert (fused[0] < alone[0] + 96) == ((kib, k) != (48, 64))


@pytest.mark.parametrize("size, element, capacity, rows, footprint, mib", [
    ("x86", 4, 768 * KIB, 768, 608 * KIB, 76), ("GPU", 4, 227 * KIB, 256, 224 * KIB, 84),
    ("DSA", 2, 64 * KIB, 96, 52 * KIB, 52)])
def test_one_example_on_three_machines(size, element, capacity, rows, footprint, mib):
    scale = element / 4  # the Program is f32; an f16 tile is half of it
    assert mem_footprint(PROGRAM, FUSED, {"i0": rows}) * scale == footprint <= capacity
    assert mem_traffic(PROGRAM, FUSED, {"i0": rows}) * scale == mib * MIB
    larger = mem_footprint(PROGRAM, FUSED, {"i0": {96: 128}.get(rows, 2 * rows)}) * scale
    assert larger >= capacity


# ---------------------------------------------------------------- windows and chains

def conv_relu_pool():
    m = Maker()
    m.input("x", 1, 64, 56, 56)
    m.input("w", 64, 64, 3, 3)
    conv2d(m, "c", "x", "w", 1, 1)
    m.pointwise("r", "c", lambda e, _: relu(e))
    n, o, h, w, i, j = (ax(*a) for a in (("n", 1), ("o", 64), ("h", 28), ("w", 28), ("i", 2),
                                         ("j", 2)))
    m.step("y", (n, o, h, w), m.ref("r", n, o, h * 2 + i, w * 2 + j), (i, j), "max")
    return m.done("y")


@pytest.mark.parametrize("tile, connected, apart", [(7, 3.44, 4.97), (14, 1.63, 3.16)])
def test_convolution_and_pooling(tile, connected, apart):
    p = conv_relu_pool()
    one = group(p, {"c": "register", "r": "L1"})
    box = propagate(p, one, {"h": 1, "w": 1})
    assert (box["y"], box["r"], box["x"]) == ((1, 64, 1, 1), (1, 64, 2, 2), (1, 64, 4, 4))
    conv = group(p, {"c": "register"}, "c", ("c", "r"), ("r",))
    pool = group(p, computes=("y",))
    assert mem_traffic(p, one, {"h": tile, "w": tile}) / MIB == pytest.approx(connected, abs=.005)
    both = mem_traffic(p, conv, {"oh": 2 * tile, "ow": 2 * tile}) + mem_traffic(
        p, pool, {"h": tile, "w": tile})
    assert both / MIB == pytest.approx(apart, abs=.005)


@pytest.mark.parametrize("rows, connected, apart", [(64, 96, 144), (128, 72, 120)])
def test_two_dense_layers(rows, connected, apart):
    m = Maker()
    m.input("x", 98304, 64)
    m.input("w1", 64, 64)
    m.input("w2", 64, 64)
    matmul(m, "h", "x", "w1")
    matmul(m, "y", "h", "w2")
    p = m.done("y")
    assert mem_traffic(p, group(p, {"h": "L1"}), {"i": rows}) == connected * MIB
    single = [mem_traffic(p, group(p, computes=(c,), outputs=(c,)), {"i": rows}) for c in "hy"]
    assert sum(single) == apart * MIB


@pytest.mark.parametrize("tile, factor", [(4, 2.25), (8, 1.5625), (14, 1.306), (28, 1.148)])
def test_halo_recompute(tile, factor):
    m = Maker()
    m.input("x", 1, 4, 60, 60)
    for w in ("v", "w"):
        m.input(w, 4, 4, 3, 3)
    conv2d(m, "a", "x", "v")
    conv2d(m, "b", "a", "w")
    p = m.done("b")
    box = propagate(p, group(p, {"a": "L1"}), {"oh": tile, "ow": tile})
    assert np.prod(box["a"][2:]) / tile ** 2 == pytest.approx(factor, abs=.001)


# ---------------------------------------------------------------- against symbolic analysis

@pytest.mark.parametrize("name", GROUPS)
def test_boxes_cover_what_region_analysis_says(name):
    """Scratch of the generated code, whose bounds hold for every tile, is never larger than the
    widths say by more than the border; with symbols at their typical value both agree."""
    (p, connect, anchor, *_), tiles, _ = GROUPS[name]
    for tile in tiles:
        g = schedule(TARGET, p, connect, tile, anchor).groups[0]
        stages = group_stages(p, g)
        at = next(s for s in stages if g.anchor in s.computes)
        _, places = stage_boxes(p, g, stages, tile_anchor(at, g))
        box = propagate(p, g, tile)
        for b, dims in places.items():
            want = tuple(min(n, estimate(d)) for (_, n), d in zip(dims, p.shape(b)))
            assert box[b] == want, (b, tile)


def test_scratch_holds_all_that_its_stage_computes():
    """Two outputs of one stage, of which one is read whole and the other in the tile alone."""
    (p, connect, anchor), tiles, _ = GROUPS["whole norm"]
    for tile in tiles:
        g = schedule(TARGET, p, connect, tile, anchor).groups[0]
        stages = group_stages(p, g)
        assert {o.buffer for o in stages[0].outputs} == {"s", "p"}
        _, places = stage_boxes(p, g, stages, tile_anchor(stages[-1], g))
        assert places["s"] == places["p"] == ((Const(0), 9), (Const(0), 7))


def test_fast_measure_is_the_sum_of_its_parts():
    rng = np.random.default_rng(5)
    for p in (conv_relu_pool(), PROGRAM):
        for computes in [(s.outs[0],) for s in p.steps if s.fold != "none"]:
            model = group_model(p, group(p, computes=computes, outputs=computes))
            for unit in (1, 32):
                tile = tuple(int(rng.integers(1, n + 1)) for n in model.extents)
                assert model.measure(tile, unit=unit) == (model.traffic(tile, unit=unit),
                                                          model.peak(tile))


def test_whole_transactions():
    model = group_model(PROGRAM, MATMUL)
    whole, narrow = ((16, 128, 64), (16, 128, 8))
    assert model.traffic(whole, unit=128) == model.traffic(whole)
    assert model.traffic(narrow, unit=128) > model.traffic(narrow)


def test_best_fit_reuses_what_died_and_never_overlaps():
    assert best_fit([(8, 0, 0), (8, 1, 1)]) == 8
    assert best_fit([(8, 0, 1), (8, 1, 2), (8, 2, 2)]) == 16
    assert best_fit([(4, 0, 0), (8, 0, 2), (4, 1, 1)]) == 12
    # step by step the last one would find two gaps of 4 and 8, none of 10
    assert best_fit([(8, 0, 1), (2, 0, 3), (10, 2, 3)]) == 12
    rng, over = np.random.default_rng(3), []
    for _ in range(50):
        items = [(int(n), int(lo), int(lo + d)) for n, lo, d in rng.integers(0, 9, (7, 3))]
        live = max(sum(n for n, lo, hi in items if lo <= t <= hi) for t in range(20))
        assert live <= best_fit(items) <= sum(n for n, _, _ in items)
        over.append(best_fit(items) / live)
        placed = [(at, at + n, lo, hi) for at, (n, lo, hi) in zip(best_fit_places(items), items)]
        for i, (a, b, lo, hi) in enumerate(placed):
            assert all(b <= c or d <= a or hi < first or last < lo
                       for c, d, first, last in placed[:i])
    assert np.mean(over) < 1.02


# ---------------------------------------------------------------- edges

def small():
    m = Maker()
    m.input("x", 24, 16)
    m.input("w", 16, 20)
    matmul(m, "s", "x", "w")
    m.pointwise("t", "s", lambda e, _: relu(e))
    softmax(m, "p", "t")
    return m.done("p")


def bare(p):
    """Every compute a group of its own."""
    out = []
    for i, s in enumerate(p.steps):
        out.append(Group(f"g{i}", s.outs, s.outs, s.outs[0]))
    return Schedule(TARGET.name, tuple(out))


def runs(p, s):
    s = complete(p, s, TARGET)
    assert check_schedule(p, s, TARGET) == []
    feeds = random_feeds(p, np.random.default_rng(2))
    want = evaluate(p, feeds)
    for name, array in interpret(p, s, feeds).items():
        np.testing.assert_allclose(array, want[name], rtol=1e-5, atol=1e-6)
    return s


def test_connecting_every_edge_gives_one_group_that_runs():
    p = small()
    s = bare(p)
    for buffer, reader, level in (("s", "t", "register"), ("t", "p_max", "L1"),
                                  ("p_exp", "p_sum", "L1"), ("p_max", "p_exp", "L1"),
                                  ("p_exp", "p", "L1")):
        s = set_connect(p, s, (buffer, reader), level, TARGET.machine)
    g, = s.groups
    s = runs(p, replace(s, groups=(replace(g, anchor="p", tile={"i0": 5}),)))
    assert s.groups[0].connect == {"s": "register", "t": "L1", "p_max": "L1", "p_exp": "L1",
                                   "p_sum": "L1"}
    assert s.groups[0].outputs == ("p",)


def test_storing_an_edge_parts_the_group_again():
    p = small()
    s = decide(p, TARGET)
    edge = next((b, c) for g in s.groups for c in g.computes for b in p.producer[c].inputs
                if g.connect.get(b) == "register")
    apart = set_connect(p, s, edge, "DRAM", TARGET.machine)
    assert len(apart.groups) == len(s.groups) + 1
    assert edge[0] in {o for g in apart.groups for o in g.outputs}
    runs(p, apart)
    again = set_connect(p, apart, edge, "register", TARGET.machine)
    assert again.groups[0].computes == s.groups[0].computes


def test_unknown_edges_levels_and_cycles_are_refused():
    p = small()
    s = bare(p)
    for edge, level, text in ((("s", "t"), "L9", "choose from register"),
                              (("s", "t"), "L3", "choose from register, L1, L2, DRAM"),
                              (("s", "p"), "L1", "no edge s -> p"),
                              (("q", "t"), "L1", "no edge q -> t")):
        with pytest.raises(ScheduleError, match=text):
            set_connect(p, s, edge, level, TARGET.machine)
    s = set_connect(p, s, ("p_max", "p_exp"), "L1", TARGET.machine)
    with pytest.raises(ScheduleError, match="wait for each other"):
        set_connect(p, bare(p), ("t", "p_exp"), "L1", TARGET.machine)
    with pytest.raises(ScheduleError, match="no axis nowhere"):
        propagate(p, s.groups[0], {"nowhere": 2})


def test_data_dependent_reads_are_whole():
    m = Maker()
    m.input("table", 100, 8)
    m.input("i", 12, dtype="i64")
    n, c = ax("n", 12), ax("c", 8)
    m.step("y", (n, c), m.ref("table", m.ref("i", n), c))
    p = m.done("y")
    box = propagate(p, group(p), {"n": 3, "c": 2})
    assert box["table"] == (100, 2) and box["i"] == (3,)


def test_reshapes_keep_aligned_tiles():
    m = Maker()
    m.input("x", 12, 8)
    a = Axis("a", ax("", 96).extent)
    m.step("y", (a,), m.ref("x", a // 8, a % 8))
    p = m.done("y")
    assert propagate(p, group(p), {"a": 16})["x"] == (2, 8)
    assert propagate(p, group(p), {"a": 4})["x"] == (1, 4)
    assert propagate(p, group(p), {"a": 12})["x"] == (3, 8)


def test_runs_are_those_of_memory():
    """A narrow tile of the axis that lies innermost touches every unit of the tensor."""
    m = Maker()
    m.input("x", 64, 256)
    m.pointwise("y", "x", lambda e, _: relu(e))
    p = m.done("y")
    g = group(p, computes=("y",), outputs=("y",))
    plain, swapped = group_model(p, g), group_model(p, g, {"x": (1, 0), "y": (1, 0)})
    size, unit = 64 * 256 * 4, 64
    for model, tile, times in ((plain, (64, 4), 4), (plain, (4, 256), 1), (swapped, (64, 4), 1),
                               (swapped, (4, 256), 4)):
        assert model.traffic(tile) == 2 * size
        assert model.traffic(tile, unit=unit) == model.measure(tile, unit=unit)[0] == (
            2 * size * times)
    assert plain.traffic((64, 256), free={"x", "y"}, fetch=True) == size


def test_folds_that_keep_nothing_read_again():
    """Two folds over the same rows: what the first one has let go the second one fetches anew."""
    m = Maker()
    m.input("x", 4096, 64)
    c, r = ax("c", 64), ax("r", 4096)
    m.step("mean", (c,), m.ref("x", r, c), (r,), "sum")
    m.step("y", (c,), (m.ref("x", r, c) - m.ref("mean", c)), (r,), "max")
    p = m.done("y")
    g, size = group(p, {"mean": "L1"}), 4096 * 64 * 4
    assert mem_traffic(p, g, {}) == size + 256
    assert mem_traffic(p, g, {}, {"mean": {"r": 1}, "y": {"r": 1}}) == 2 * size + 256
    assert mem_footprint(p, g, {}, {"mean": {"r": 1}, "y": {"r": 1}}) < size / 1000


def test_stages_without_vectors_cost_more():
    m = Maker()
    m.input("x", 64, 256)
    m.pointwise("y", "x", lambda e, _: relu(e))
    p = m.done("y")
    g = group(p, computes=("y",), outputs=("y",))
    fast, slow = (group_model(p, g, extra=s).work((64, 256))[1] for s in (None, {"y": Extra(16)}))
    assert slow == 16 * fast > 0
