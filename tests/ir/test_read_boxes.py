"""The analysis of reads: Welder's worked examples, and every index read lies inside the box."""

import random

import numpy as np
import pytest

from aotc.ir.expr import (
    Axis,
    Binary,
    Const,
    Load,
    Sym,
    Var,
    Where,
    all_hold,
    axes_of,
    check_index,
    compare,
    loads,
    maximum,
    minimum,
    show,
    substitute,
)
from aotc.ir.program import Compute
from aotc.ir.read_boxes import boxes_read, interval, read_intervals, reads_once
from aotc.ir.simplify import simplify
from aotc.oracle.eval_expr import EvalScope


def ax(name, n):
    return Axis(name, Const(n) if isinstance(n, int) else n)


def conv2d(x, w, y, c=64, f=64, size=56, stride=1, pad=1):
    """3x3 convolution, padded by a guard."""
    n, oc, oh, ow = ax("n", 1), ax("oc", f), ax("oh", size // stride), ax("ow", size // stride)
    ic, kh, kw = ax("ic", c), ax("kh", 3), ax("kw", 3)
    ih, iw = oh * stride + kh - pad, ow * stride + kw - pad
    inside = all_hold([compare("ge", ih, 0), compare("lt", ih, size), compare("ge", iw, 0),
                       compare("lt", iw, size)])
    body = Where(inside, Load(x, (n, ic, ih, iw), "f32"), Const(0, "f32"))
    return Compute((y,), (n, oc, oh, ow), (ic, kh, kw), "sum",
                   body * Load(w, (oc, ic, kh, kw), "f32"))


def maxpool(x, y, f=64, size=56):
    n, c, oh, ow = ax("n", 1), ax("c", f), ax("oh", size // 2), ax("ow", size // 2)
    kh, kw = ax("kh", 2), ax("kw", 2)
    body = Load(x, (n, c, oh * 2 + kh, ow * 2 + kw), "f32")
    return Compute((y,), (n, c, oh, ow), (kh, kw), "max", body)


SHAPES = {"x": (1, 64, 56, 56), "t": (1, 64, 56, 56), "u": (1, 64, 56, 56),
          "w": (64, 64, 3, 3), "v": (64, 64, 3, 3)}


def shape(name):
    return tuple(map(Const, SHAPES[name]))


def tile(compute, h, w):
    """A box at an unknown origin: h x w of the two last axes, the others whole."""
    n, c, oh, ow = compute.axes
    return {oh: (Var("h0"), Const(h)), ow: (Var("w0"), Const(w))}


def read_boxes(compute, box, shape):
    """{buffer: ((lo, size), ...)} read by a box {Axis: (lo, size)} of the compute: ``lo`` is the
    first index, inside the buffer; ``size`` bounds the extent for every position of the box."""
    ranges = {a: (lo, simplify(lo + size - 1)) for a, (lo, size) in box.items()}
    return {b: tuple((simplify(maximum(minimum(lo, extent - 1), Const(0))),
                      simplify(minimum(width + 1, extent)))
                     for (lo, _, width), extent in zip(dims, shape(b)))
            for b, dims in boxes_read((compute.body,), ranges, shape).items()}


def sizes(dims):
    return [show(size) for _, size in dims]


def box_of(compute, dims):
    return dict(zip(compute.axes, dims))


def test_conv_relu_pool_tile_one_needs_conv_two_by_two_and_input_four_by_four():
    conv, pool = conv2d("x", "w", "t"), maxpool("t", "y")
    middle = read_boxes(pool, tile(pool, 1, 1), shape)["t"]
    assert sizes(middle) == ["1", "64", "2", "2"]
    row = read_boxes(pool, {pool.axes[2]: (ax("t", 28), Const(1))}, shape)["t"][2]
    assert [show(e) for e in row] == ["t * 2", "2"]
    need = read_boxes(conv, box_of(conv, middle), shape)
    assert sizes(need["x"]) == ["1", "64", "4", "4"]
    assert sizes(need["w"]) == ["64", "64", "3", "3"]


@pytest.mark.parametrize("pool_tile,connected,apart", [(7, 3.44, 4.97), (14, 1.63, 3.16)])
def test_pool_traffic(pool_tile, connected, apart):
    """MiB moved for 56x56x64: input + weights per tile, then the output; unconnected writes and
    reads the middle tensor once more."""
    conv, pool = conv2d("x", "w", "t"), maxpool("t", "y")
    middle = read_boxes(pool, tile(pool, pool_tile, pool_tile), shape)["t"]
    need = read_boxes(conv, box_of(conv, middle), shape)
    def volume(dims):
        return np.prod([int(size.value) for _, size in dims])
    tiles = (28 // pool_tile) ** 2
    x, w = volume(need["x"]) * tiles, volume(need["w"]) * tiles
    y, t = 64 * 28 * 28, 64 * 56 * 56
    mib = 4 / 2 ** 20
    assert round((x + w + y) * mib, 2) == pytest.approx(connected, abs=0.011)
    assert round((x + w + y + 2 * t) * mib, 2) == pytest.approx(apart, abs=0.011)


@pytest.mark.parametrize("side,factor", [(4, 2.25), (8, 1.56), (14, 1.31), (28, 1.15)])
def test_halo_recompute_factors(side, factor):
    first, second = conv2d("x", "w", "t"), conv2d("t", "v", "y")
    middle = read_boxes(second, tile(second, side, side), shape)["t"]
    height, width = middle[2][1].value, middle[3][1].value
    assert (height, width) == (side + 2, side + 2)
    assert height * width / side ** 2 == pytest.approx(factor, abs=0.005)
    need = read_boxes(first, box_of(first, middle), shape)["x"]
    assert sizes(need)[2:] == [str(side + 4)] * 2


def test_ends_are_clamped_and_exact_at_run_time():
    conv = conv2d("x", "w", "t")
    oh = conv.axes[2]
    first, last = read_intervals(conv, {oh: (Const(0), Const(3))}, shape)["x"][2]
    assert (first, last) == (Const(0), Const(4))
    ends = read_intervals(conv, {oh: (Const(52), Const(55))}, shape)["x"][2]
    assert ends == (Const(51), Const(55))
    first, last = read_intervals(conv, {oh: (Var("o"), Var("o") + 3)}, shape)["x"][2]
    assert {show(first), show(last)} == {"max(o - 1, 0)", "min(o + 4, 55)"}


def test_whole_axes_and_data_dependent_indices():
    i, j = ax("i", 8), ax("j", 16)
    at = check_index(Load("ids", (i,), "i64"), Const(100))
    gather = Compute(("y",), (i, j), (), "none", Load("table", (at, j), "f32"))
    shapes = {"ids": (Const(8),), "table": (Const(100), Const(16))}
    got = read_boxes(gather, {i: (Var("o"), Const(2))}, shapes.__getitem__)
    assert [str(s) for _, s in got["table"]] == ["100", "16"]
    assert show(got["table"][0][0]) == "0" and show(got["ids"][0][1]) == "2"


def test_reshape_of_rows_keeps_the_size_constant():
    i = ax("i", 24)
    split = Compute(("y",), (i,), (), "none", Load("x", (i // 6, i % 6), "f32"))
    shapes = {"x": (Const(4), Const(6))}.__getitem__
    rows = read_boxes(split, {i: (Var("o"), Const(12))}, shapes)["x"]
    assert [show(s) for _, s in rows] == ["3", "6"]
    rows = read_boxes(split, {i: (ax("t", 2) * 12, Const(12))}, shapes)["x"]
    assert [(show(lo), show(s)) for lo, s in rows] == [("t * 2", "2"), ("0", "6")]


def test_concat_pieces_are_tightened_by_their_conditions():
    i = ax("i", 10)
    body = Where(compare("lt", i, 4), Load("a", (i,), "f32"), Load("b", (i - 4,), "f32"))
    cat = Compute(("y",), (i,), (), "none", body)
    shapes = {"a": (Const(4),), "b": (Const(6),)}.__getitem__
    got = read_intervals(cat, {i: (Const(2), Const(6))}, shapes)
    assert got == {"a": ((Const(2), Const(3)),), "b": ((Const(0), Const(2)),)}
    sub = Where(compare("lt", i, 4), Load("x", (i,), "f32"), Const(0, "f32"))
    got = read_intervals(Compute(("y",), (i,), (), "none", sub), {}, lambda b: (Const(10),))
    assert got == {"x": ((Const(0), Const(3)),)}


def test_symbolic_extents_stay_symbolic():
    s = Sym("seq", 1, 512)
    i, k = ax("i", s), ax("k", s)
    c = Compute(("y",), (i,), (k,), "sum",
                Load("a", (i, k), "f32") * Load("b", (k, i), "f32"))
    got = read_boxes(c, {i: (ax("t", (s + 3) // 4) * 4, Const(4))}, lambda b: (s, s))
    assert show(got["a"][1][1]) == "seq" and show(got["a"][1][0]) == "0"
    assert show(got["a"][0][1]) in ("min(4, seq)", "min(seq, 4)")


def test_interval_refuses_what_it_cannot_bound():
    i, d = ax("i", 8), Load("n", (), "i64")
    assert interval(i + d, {}) == (None, None)
    assert interval(i // d, {}) == (None, None)


# ---------------------------------------------------------------- against enumeration

def random_index(rng, axes, depth):
    if depth == 0:
        return rng.choice(axes) if rng.random() < 0.8 else Const(rng.randint(-4, 9))
    a = random_index(rng, axes, depth - 1)
    op = rng.choice(("+", "-", "*", "//", "%", "min", "max"))
    if op in "+-":
        b = random_index(rng, axes, depth - 1)
        return a + b if op == "+" else a - b
    c = rng.randint(1, 6)
    if op == "*":
        return a * rng.choice((c, -c))
    return {"//": a // c, "%": a % c}[op] if op in ("//", "%") else Binary(op, a, Const(c))


def points(e, ranges):
    scope = EvalScope(ranges, None, {})
    return np.broadcast_to(scope.value(e), [s for _, s in ranges.values()])


def number(e, values):
    e = simplify(substitute(e, values))
    assert isinstance(e, Const), show(e)
    return e.value


@pytest.mark.parametrize("seed", range(300))
def test_every_read_lies_inside(seed):
    """Random guarded loads over a random box, the box's origin known only as a variable."""
    rng = random.Random(seed)
    axes = [ax(name, rng.randint(1, 12)) for name in "ijk"][:rng.randint(1, 3)]
    dim = rng.randint(1, 20)
    body = None
    for _ in range(rng.randint(1, 3)):
        index = random_index(rng, axes, rng.randint(0, 3))
        inside = all_hold([compare("ge", index, 0), compare("lt", index, dim)])
        if rng.random() < 0.5:
            inside = Binary("and", inside, compare(rng.choice(("lt", "ge", "le", "gt", "eq")),
                                                   rng.choice(axes), rng.randint(0, 12)))
        other = Where(inside, Load("x", (index,), "f32"), Const(0, "f32"))
        body = other if body is None else body + other
    compute = Compute(("y",), tuple(axes), (), "none", body)
    box, values, ranges = {}, {}, {}
    for a in axes:
        lo = rng.randint(0, a.extent.value - 1)
        size = rng.randint(1, a.extent.value - lo)
        box[a], values[Var(a.name + "0")] = (Var(a.name + "0"), Const(size)), Const(lo)
        ranges[a] = (lo, size)
    used = set()

    def mark(e, active):
        if isinstance(e, Where):
            cond = points(e.cond, ranges)
            mark(e.a, active & cond)
            return
        if isinstance(e, Load):
            used.update(points(e.index[0], ranges)[active].tolist())
            return
        for k in (e.a, e.b) if isinstance(e, Binary) else ():
            mark(k, active)

    mark(body, np.ones([s for _, s in ranges.values()], bool))
    (lo, size), = read_boxes(compute, box, lambda b: (Const(dim),))["x"]
    assert isinstance(size, Const) and not axes_of(size)
    first, last = read_intervals(compute, {a: (lo, simplify(lo + size - 1))
                                  for a, (lo, size) in box.items()}, lambda b: (Const(dim),))[
        "x"][0]
    start, f, e = (number(v, values) for v in (lo, first, last))
    for at in used:
        assert start <= at < start + size.value, (show(body), ranges, show(lo), show(size))
        assert f <= at <= e
    assert loads(body)


@pytest.mark.parametrize("once, pick", [
    (True, lambda i, p, c: Where(compare("lt", p, 1), Load("x", (i, c), "f32"),
                                 Load("y", (i, c), "f32"))),  # p is 0
    (True, lambda i, p, c: Where(compare("ge", p, 2), Load("x", (c, i), "f32"),
                                 Load("y", (i, c), "f32"))),  # p is 2
    (False, lambda i, p, c: Where(compare("lt", p, 2), Load("x", (i, c), "f32"),
                                  Load("y", (i, c), "f32"))),  # p is 0 or 1
    (True, lambda i, p, c: Load("x", (i + 3, p + 1, c), "f32")),
    (False, lambda i, p, c: Load("x", (i, p), "f32")),  # every c
    (False, lambda i, p, c: Load("x", (i, p, c // 2), "f32")),
    (False, lambda i, p, c: Load("x", (i, p, p + c), "f32")),
    (False, lambda i, p, c: Load("x", (i, p, c), "f32") + Load("x", (i, p, c + 1), "f32")),
])
def test_what_is_read_once(once, pick):
    axes = ax("i", 4), ax("p", 3), ax("c", 5)
    assert reads_once(Compute(("o",), axes, (), "none", pick(*axes)), "x") is once
