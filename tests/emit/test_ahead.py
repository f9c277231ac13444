"""What kernels fetch ahead: windows and grouped convolutions every line of a stream once, products
what they store and the next panel of weights, nothing where it does not pay."""

import itertools
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from c_text import unbroken
from fetched import prefetches, value
from te_programs import Maker, ax

from aotc.emit.bundle.variants import EMITTERS
from aotc.ir.expr import Const
from aotc.ir.kernel.operands import Slices
from aotc.ir.kernel.plan_stages import Contract
from aotc.ir.statements import For, Range, walk_body
from aotc.sched import decide, lower
from aotc.sched.expand.expansion import Expansion
from aotc.sched.expand.prefetch_tiles import next_panel
from aotc.sched.expand.tile_loops import B_COL, TileLoops
from aotc.target import get_target
from aotc.target.base import VectorFacts
from aotc.target.tuning import Tuning


def depthwise(channels, stride, width=26):
    """y[oh, ow, c]: 3x3 sums of a channels-last image, times a weight per channel."""
    m = Maker("depthwise")
    m.input("x", 9, width, channels)
    m.input("w", 3, 3, channels)
    oh, ow, c = ax("oh", (9 - 3) // stride + 1), ax("ow", (width - 3) // stride + 1), ax(
        "c", channels)
    i, j = ax("i", 3), ax("j", 3)
    m.step("y", (oh, ow, c), m.ref("x", oh * stride + i, ow * stride + j, c)
           * m.ref("w", i, j, c), (i, j), "sum")
    return m.done("y")


def alone(name):
    """The target with one worker, whose small products are one work item each."""
    target = get_target(name)
    return replace(target, machine=replace(target.machine, workers=1))


def plan_of(program, target):
    return lower(program, decide(program, target), target)


def text_of(program, target):
    plan = plan_of(program, target)
    return unbroken("\n".join(EMITTERS[target.emitter](plan, target).values()))


@pytest.mark.parametrize("target", ["x86-64-v1", "x86-64-v3", "x86-64-v4", "aarch64"])
@pytest.mark.parametrize("channels, stride", [(64, 1), (64, 2), (192, 1)])
def test_a_window_fetches_every_line_once(channels, stride, target):
    lanes = get_target(target).lanes
    plan = plan_of(depthwise(channels, stride), get_target(target))
    found = far(plan, "x")
    block, = {s.step for k in plan.kernels for s in walk_body(k.body)
              if isinstance(s, For) and s.axis.name == "ow" and s.step > 1}
    assert found
    lines = [value(x, {"ow": ow, "c": c}, 1)
             for ow in range(0, 2 * block, block) for c in range(0, channels, lanes) for x in found]
    assert len(set(lines)) == len(lines)
    first = min(lines)  # of the lowest row's part a page behind this block
    assert first == ((1 * stride + 2) * 26) * channels + 1024
    assert sorted(lines) == list(range(first, first + 2 * block * stride * channels, 16))


@pytest.mark.parametrize("target", ["c", "riscv64"])
def test_vectors_of_one_lane_or_of_any_length_fetch_nothing(target):
    for program in (depthwise(64, 1), grouped(4, 16)):
        assert "AOTC_PREFETCH_FAR(t_" not in text_of(program, get_target(target))


def grouped(groups, size):
    """y[n, oh, ow, g, o]: a 3x3 convolution in groups of ``size`` channels, channels last."""
    m = Maker("grouped")
    m.input("x", 2, 9, 20, groups * size)
    m.input("w", groups, 3, 3, size, 16)
    n = ax("n", 2)
    oh, ow, g, o = ax("oh", 7), ax("ow", 18), ax("g", groups), ax("o", 16)
    i, j, k = ax("i", 3), ax("j", 3), ax("k", size)
    m.step("y", (n, oh, ow, g, o), m.ref("x", n, oh + i, ow + j, g * size + k)
           * m.ref("w", g, i, j, k, o), (i, j, k), "sum")
    return m.done("y")


def far(plan, source):
    """Places of what is fetched into the second cache."""
    return [s.offset for s in prefetches(plan, source) if s.far and s.beyond]


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "aarch64"])
@pytest.mark.parametrize("groups, size", [(4, 16), (4, 32), (3, 30)])
def test_pieces_of_pixels_are_fetched_some_rows_ahead(groups, size, target):
    found = far(plan_of(grouped(groups, size), get_target(target)), "x")
    channels = groups * size
    first = (2 * 20 + 16) * channels  # the lowest row of the window, 16 pixels on
    at = [value(x, {}, 0) - first for x in found]
    assert at == list(range(0, size, 16)) + [size - 1] * (channels % 16 > 0)


def test_whole_pixels_and_long_pieces_are_streams():
    for groups, size in ((1, 64), (2, 128)):
        assert not far(plan_of(grouped(groups, size), get_target("x86-64-v3")), "x")


def product(rows, columns, depth):
    """y[m, n] = sum over k of x[m, k] * w[k, n]."""
    m = Maker("product")
    m.input("x", rows, depth)
    m.const("w", np.zeros((depth, columns), np.float32))
    i, j, k = ax("m", rows), ax("n", columns), ax("k", depth)
    m.step("y", (i, j), m.ref("x", i, k) * m.ref("w", k, j), (k,), "sum")
    return m.done("y")


@pytest.mark.parametrize("target", ["x86-64-v1", "x86-64-v3", "x86-64-v4", "aarch64"])
@pytest.mark.parametrize("columns", [192, 200])
def test_a_product_fetches_every_line_it_stores(columns, target):
    program, target = product(50, columns, 300), get_target(target)
    text, places = text_of(program, target), prefetches(plan_of(program, target), "y")
    mr, nr = (int(x) for x in re.search(r"contraction_f32_(\d+)x(\d+)", text).groups())
    lines = {value(s.offset, {"m": m, "n0": n0, "n_hi": columns}) // 16 for m in range(50)
             for n0 in range(0, columns, nr) for s in places}
    assert lines == set(range(50 * columns // 16))
    assert f"i < {mr}; ++i) {{ /* for the epilogue */" in text


@pytest.mark.parametrize("target", ["x86-64-v1", "x86-64-v3", "x86-64-v4", "aarch64"])
@pytest.mark.parametrize("rows", [0, 1, 4, 9, 30, 128, 1000])
def test_row_tiles_share_the_next_panel(rows, target):
    """Together they fetch all of it and nothing behind it, as far as a line per step of k reaches;
    and none fetches much more than its share.  One alone fetches nothing."""
    target, depth = alone(target), 300
    text = text_of(product(rows, 512, depth), target)
    mr, nr = (int(x) for x in re.search(r"contraction_f32_(\d+)x(\d+)", text).groups())
    if rows <= mr:
        assert "b_next" not in text and "_alone(" in text and " - n0, NULL, 0, acc_tile" in text
        return
    names = {"rows": rows, "b_next": 0, "aotc_min": min, "aotc_max": max}
    whole = re.search(rf"int64_t ahead = rows > {mr} \? (.*) : 0;", text)
    at, ahead = re.search(r" - n0, (b_next.*), (\w+), acc_tile", text).groups()
    names["ahead"] = eval(whole[1].replace("/", "//"), names) if whole else None
    tiles, ahead, fetched = -(-rows // mr), eval(ahead, names), set()
    for m0 in range(0, rows, mr):
        first = eval(at.replace("/", "//"), names | {"m0": m0})
        fetched |= {(first + k * ahead) // 16 for k in range(depth)}
    lines = {i // 16 for i in range(nr * depth)}
    assert fetched <= lines
    assert lines == fetched or ahead == min(16, nr) and len(fetched) > 0.99 * tiles * depth
    assert ahead == 2 or ahead - 1 <= nr * mr / rows


def batched(batch, rows, columns, depth):
    """y[a, b, m, n] = sum over k of x[a, b, m, k] * w[a, b, k, n], as in a Winograd form."""
    m = Maker("batched")
    m.input("x", *batch, rows, depth)
    m.const("w", np.zeros((*batch, depth, columns), np.float32))
    a, b, i, j, k = ax("a", batch[0]), ax("b", batch[1]), ax("m", rows), ax("n", columns), ax(
        "k", depth)
    m.step("y", (a, b, i, j), m.ref("x", a, b, i, k) * m.ref("w", a, b, k, j), (k,), "sum")
    return m.done("y")


def convolution(channels, columns):
    """y[oh, ow, o]: a 3x3 convolution, channels last."""
    m = Maker("convolution")
    m.input("x", 10, 10, channels)
    m.const("w", np.zeros((3, 3, channels, columns), np.float32))
    oh, ow, o = ax("oh", 8), ax("ow", 8), ax("o", columns)
    i, j, k = ax("i", 3), ax("j", 3), ax("k", channels)
    m.step("y", (oh, ow, o), m.ref("x", oh + i, ow + j, k) * m.ref("w", i, j, k, o), (i, j, k),
           "sum")
    return m.done("y")


def panels_in_turn(c, ends):
    """(place of a panel that a Contract reads, place it takes for the next one) of all, in order.
    ends: {name: value} of the loops' ends that a work item sets."""
    loops = TileLoops(c)
    point, = next_panel(c, loops, Expansion(VectorFacts(), Tuning().line_floats, ()), Const(0))
    size = c.k.axis.extent.value
    steps = [[(name, i) for i in range(value(lo, ends), value(hi, ends), step)]
             for name, lo, hi, step in
             [(r.axis.name, r.lo, r.hi, 1) for r in c.outer]
             + [("tap0", Const(0), loops.taps, 1)]
             + [("k_lo", Const(0), c.k.axis.extent, c.slices.steps if c.slices else size)]
             + [("n0", c.n.lo, c.n.hi, loops.nr)]]
    found = []
    for turn in itertools.product(*steps):
        at = ends | dict(turn)
        at[c.n.axis.name] = at["n0"]
        col = value(c.b.offset, at) + value(loops.slice_offset(), at)
        _, place = next(way for way in point.ways if way[0] is None or value(way[0], at))
        found.append((col, value(place.offset, at) + (col if place.buffer == B_COL else 0)))
    return found


@pytest.mark.parametrize("program, ends, steps", [
    (product(64, 512, 300), {"n_lo": 48, "n_hi": 192}, 0),
    (product(64, 512, 300), {"n_lo": 48, "n_hi": 192}, 128),
    (batched((5, 6), 16, 200, 64), {}, 0),
    (batched((5, 6), 16, 200, 64), {}, 24),
    (convolution(100, 96), {}, 48),
], ids=["columns", "slices", "batches", "slices in batches", "slices of taps"])
def test_what_is_fetched_next_is_what_is_read_next(program, ends, steps):
    target = get_target("x86-64-v3")
    plan = plan_of(program, target)
    c, = (s for k in plan.kernels for s in k.lowered.stages if isinstance(s, Contract))
    c = replace(c, outer=tuple(Range(r.axis, Const(0), r.axis.extent) for r in c.outer))
    if steps:
        c = replace(c, taps=(), slices=Slices("sums", steps, c.taps))
    if not ends:
        c = replace(c, n=Range(c.n.axis, Const(0), c.n.axis.extent))
    nr = c.micro.nr
    turns = panels_in_turn(c, ends)
    assert len(turns) > 3
    assert [then for _, then in turns[:-1]] == [col for col, _ in turns[1:]]
    then = turns[-1][1]  # another work item's first panel, or the first of all for other rows
    depth = math.prod(r.axis.extent.value for r in c.sums)
    assert then == (192 // nr * nr * depth if ends else 0)
    assert all(col != then for col, then in turns)


@pytest.mark.parametrize("target", ["x86-64-v1", "x86-64-v3", "x86-64-v4", "aarch64"])
@pytest.mark.parametrize("columns", [8, 192])
def test_short_rows_are_fetched_two_tiles_ahead_once(columns, target):
    """Every line of the rows of a tile, while the first panel runs."""
    program, target = product(97, columns, 48), alone(target)
    plan, text = plan_of(program, target), text_of(program, target)
    mr, nr = map(int, re.search(r"contraction_f32_(\d+)x(\d+)__", text).groups())
    assert f"i < {48 * mr}; i += 16) {{ /* 2 tiles later */" in text
    fetch, = (s for s in prefetches(plan, "x") if s.beyond and not s.far)
    for m0 in (0, mr):
        found = [value(fetch.offset, {"i": i, "m0": m0}, 0) for i in range(0, 48 * mr, 16)]
        assert found == [*range(48 * (m0 + 2 * mr), 48 * (m0 + 3 * mr), 16)]
    assert ("if (n0 == 0) {" in text) == (columns > nr)


def test_long_rows_and_rows_in_scratch_are_not_fetched():
    for program, target in ((product(97, 64, 512), "x86-64-v4"), (product(97, 64, 48), "riscv64"),
                            (product(97, 64, 48), "c")):
        assert "AOTC_PREFETCH_AT" not in text_of(program, get_target(target))
    m = Maker("layers")
    m.input("x", 997, 512)
    i = ax("m", 997)
    for name, source, k, n in (("h", "x", 512, 64), ("y", "h", 64, 48)):
        m.const(f"w_{name}", np.ones((k, n), np.float32))
        j, r = ax("n", n), ax("k", k)
        m.step(name, (i, j), m.ref(source, i, r) * m.ref(f"w_{name}", r, j), (r,), "sum")
    text = text_of(m.done("y"), get_target("x86-64-v4"))
    assert "float (*const s_h)[64]" in text and "AOTC_PREFETCH_AT" not in text


@pytest.mark.parametrize("target", ["x86-64-v1", "x86-64-v4", "aarch64"])
def test_a_single_panel_has_no_next_one(target):
    """Nothing is fetched in its sums: it would be the panel itself."""
    text = text_of(product(200, 4, 300), get_target(target))
    assert "b_next" not in text and "_alone(" in text


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_what_the_kernel_has_just_stored_is_not_fetched(target):
    """Neither rows of a product nor what its epilogue reads, if an output of the model also."""
    m = Maker("layers")
    m.input("x", 997, 512)
    i = ax("m", 997)
    for name, source, k, n in (("h", "x", 512, 96), ("z", "h", 96, 96)):
        m.const(f"w_{name}", np.ones((k, n), np.float32))
        j, r = ax("n", n), ax("k", k)
        m.step(name, (i, j), m.ref(source, i, r) * m.ref(f"w_{name}", r, j), (r,), "sum")
    m.pointwise("y", "z", lambda e, a: e + m.ref("h", *a))
    program, target = m.done("h", "y"), get_target(target)
    plan = plan_of(program, target)
    kernel, = plan.kernels
    stored = prefetches(plan, "h")  # before the sums of h itself
    assert kernel.writes == ("h", "y") and not any(s.beyond for s in stored)
    assert stored and len(stored) == len(set(stored))
