"""The worked examples of ALT (layouts as primitives), with their numbers."""

from itertools import product

import numpy as np
import pytest
from te_programs import Maker, ax

from aotc.errors import ScheduleError
from aotc.ir.expr import Axis, Const, substitute
from aotc.ir.layout import Fuse, Layout, Reorder, Split, Unfold, unfold_for_tile
from aotc.ir.simplify import are_equal, simplify
from aotc.oracle.evaluate import evaluate
from aotc.passes.relayout import relayout
from aotc.sched.choose.layout_choices import nearest_divisor


def wrong_accesses(size, stride, step, length, extent):
    """Accesses T[step*i + r] that the tile i // P of an unfolded T would answer wrongly."""
    per, bad = (size - length) // step + 1, 0
    tiles = -(-(extent - size) // stride) + 1
    for i in range((extent - length) // step + 1):
        bad += sum(i // per >= tiles or not 0 <= step * i + r - stride * (i // per) < size
                   for r in range(length))
    return bad


def accepted(size, stride, step, length):
    try:
        Unfold(0, size, stride).window(Axis("i", Const(9)), Const(0), length, step)
    except ScheduleError:
        return False
    return True


def test_unfold_of_five_elements():
    u = Unfold(0, 3, 2)
    np.testing.assert_array_equal(Layout((u,)).apply(np.arange(1, 6)), [[1, 2, 3], [3, 4, 5]])
    assert u.tiles(Const(5)) == Const(2)
    assert accepted(3, 2, 1, 2) and accepted(3, 2, 2, 3)  # P = 2 and P = 1
    assert not accepted(3, 2, 1, 3) and wrong_accesses(3, 2, 1, 3, 5) == 4


def test_a_window_is_exact_iff_stride_is_step_times_windows_per_tile():
    """145 of 145 allowed combinations are right, all 1160 others wrong."""
    right = wrong = 0
    for step, length, size in product((1, 2, 3), range(1, 6), range(1, 14)):
        for stride in range(1, size + 1) if size >= length else ():
            exact = wrong_accesses(size, stride, step, length, 60) == 0
            assert exact == accepted(size, stride, step, length)
            right, wrong = right + exact, wrong + (not exact)
    assert (right, wrong) == (145, 1160)


def test_sixteen_windows_of_three():
    assert (6 - 3) // 1 + 1 == 4 and wrong_accesses(6, 4, 1, 3, 18) == 0
    assert [wrong_accesses(6, s, 1, 3, 18) for s in (3, 5)] == [10, 10]


def test_split_fuse_and_reorder():
    split = Layout((Split(0, (2, 3, 4)),))
    assert [i.value for i in split.index((Const(17),), (24,))] == [1, 1, 1]
    fuse = Layout((Fuse(0, 3),))
    assert fuse.index((Const(1),) * 3, (2, 3, 4)) == (Const(17),) == (Const(12 + 4 + 1),)
    assert tuple(np.argsort((2, 0, 1))) == (1, 2, 0)
    assert Layout((Reorder((2, 0, 1)), Reorder((1, 2, 0)))).permutation() == (0, 1, 2)


def test_stem_convolution():
    """230 x 230, 7 x 7, stride 2: 28 x 7 x 4 blocks of 4 x 16 x 16; the unfolded input takes 1.78
    times its size."""
    assert (230 - 7) // 2 + 1 == 112
    out = Layout((Split(1, (-1, 16)), Split(3, (-1, 4)), Split(5, (-1, 16)),
                  Reorder((0, 3, 5, 1, 4, 6, 2))))
    assert [d.value for d in out.shape((1, 64, 112, 112))] == [1, 28, 7, 4, 4, 16, 16]
    assert out.text("NOHW") == "N H/4 W/16 O/16 H%4 W%16 O%16"
    rows, columns = unfold_for_tile(2, 4, 7, 2), unfold_for_tile(4, 16, 7, 2)
    stored = [d.value for d in Layout((rows, columns)).shape((1, 3, 229, 229))]
    assert stored == [1, 3, 28, 13, 7, 37]  # the windows read 229 of 230
    assert round(28 * 13 * 7 * 37 / 230 ** 2, 2) == 1.78
    flops = 2 * 112 ** 2 * 64 * 3 * 49
    assert round(flops / 1e6) == 236 and round(flops / 0.25e-3 / 1e9) == 944


def test_the_printed_template_is_legal_but_misaligned_for_stride_two():
    """B = h + KH - 1, S = h: 56 input tiles for 28 output tiles; h no multiple of V is wrong."""
    printed = Unfold(2, 4 + 7 - 1, 4)
    assert (10 - 7) // 2 + 1 == 2 and printed.tiles(Const(230)) == Const(56)
    printed.window(Axis("i", Const(112)), Const(0), 7, 2)
    assert not accepted(3 + 7 - 1, 3, 2, 7)
    ours = unfold_for_tile(2, 4, 7, 2)
    assert ours == Unfold(2, 13, 8) and ours.tiles(Const(229)) == Const(28)


@pytest.mark.parametrize("step,dilation", [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_the_template_of_a_convolution_equals_the_convolution(step, dilation):
    """Conv N H/4 W/4 O/4 h w o, Ker O/4 I/2 KH KW i o, Inp N H W I/2 BH BW i: to 1e-14."""
    m, size = Maker(), 7 * step + dilation * 2 + 1
    m.input("x", 1, 4, size, size, dtype="f64")
    kernel = np.random.default_rng(3).standard_normal((8, 4, 3, 3))
    m.const("k", kernel)
    n, o, h, w = (ax(a, e) for a, e in zip("nohw", (1, 8, 8, 8)))
    i, p, q = ax("i", 4), ax("p", 3), ax("q", 3)
    m.step("y", (n, o, h, w), m.ref("x", n, i, h * step + p * dilation, w * step + q * dilation)
           * m.ref("k", o, i, p, q), (i, p, q), "sum")
    program = m.done("y")
    layouts = {
        "y": Layout((Split(1, (-1, 4)), Split(3, (-1, 4)), Split(5, (-1, 4)),
                     Reorder((0, 3, 5, 1, 4, 6, 2)))),
        "k": Layout((Split(0, (-1, 4)), Split(2, (-1, 2)), Reorder((0, 2, 4, 5, 3, 1)))),
        "x": Layout((Split(1, (-1, 2)), unfold_for_tile(3, 4, 3, step, dilation),
                     unfold_for_tile(5, 4, 3, step, dilation), Reorder((0, 3, 5, 1, 4, 6, 2))))}
    new = relayout(program, layouts)
    x = np.random.default_rng(4).standard_normal((1, 4, size, size))
    got = evaluate(new, {"x": layouts["x"].apply(x)})["y"]
    want = evaluate(program, {"x": x})["y"]
    np.testing.assert_allclose(layouts["y"].unapply(got, want.shape), want, rtol=0, atol=2e-14)
    # inside its tile a window starts at V * (i mod h_t) + dilation * r
    body = simplify(new.producer["y"].body.a.index[4])
    h, p = (next(a for a in (*new.producer["y"].axes, *new.producer["y"].raxes) if a.name == x)
            for x in ("h_1", "p"))
    assert are_equal(body, h * step + p * dilation)


def test_blocked_channels_and_a_layout_that_only_rechunks():
    blocked = Layout((Split(1, (4, 16)), Reorder((0, 1, 3, 4, 2))))
    assert blocked.text("NOHW") == "N O/16 H W O%16"
    h, w, o = 2, 4, 12
    layout = Layout((Fuse(1, 3), Split(1, (-1, 4, h * w)), Reorder((0, 1, 3, 2))))
    axes = [Axis(a, Const(d)) for a, d in zip("nhwo", (1, h, w, o))]
    at = layout.index(axes, (1, h, w, o))
    for point in product(range(h), range(w), range(o)):
        where = dict(zip(axes, map(Const, (0, *point))))
        got = [simplify(substitute(e, where)).value for e in at]
        e = (point[0] * w + point[1]) * o + point[2]
        assert got == [0, e // (4 * h * w), e % (h * w), e // (h * w) % 4]


def test_nearest_divisors():
    assert [nearest_divisor(n, n * a) for n, a in (
        (32, 0.5), (112, 0.15), (56, 0.3), (7, 0.4), (3, 0.5))] == [16, 16, 14, 1, 1]
    assert (32 // nearest_divisor(32, 16), nearest_divisor(32, 16)) == (2, 16)


def test_where_a_uniform_action_leads():
    """R(64 a) picks 32 or 64 in 62 % and at most 8 in 19 %; R(64^a) spreads over all divisors."""
    grid = (np.arange(20000) + 0.5) / 20000
    linear = [nearest_divisor(64, 64 * a) for a in grid[::10]]
    assert round(100 * np.mean([f >= 32 for f in linear])) == 62
    assert round(100 * np.mean([f <= 8 for f in linear])) == 19
    shares = [np.mean([nearest_divisor(64, 64 ** a) == d for a in grid[::10]])
              for d in (1, 2, 4, 8, 16, 32, 64)]
    assert min(shares) > 0.065 and max(shares) < 0.175


def test_measured_tables_of_the_paper_are_consistent():
    """Stem layouts: L1 loads and misses (1e6), ms."""
    loads, misses = (166.4, 206.6, 193.6, 174.3), (9.7, 4.5, 9.9, 3.9)
    assert [round(100 * m / n, 1) for m, n in zip(misses, loads)] == [5.8, 2.2, 5.1, 2.2]
    assert round(100 * (0.37 - 0.25) / 0.37, 1) == 32.4
