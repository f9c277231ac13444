"""Index arithmetic: the normal form means the same, is stable, and its bounds really bound."""

import random

import numpy as np
import pytest

from aotc.ir.expr import (
    Axis,
    Binary,
    Cast,
    Const,
    Load,
    Sym,
    Unary,
    Where,
    check_index,
    compare,
    maximum,
    minimum,
    show,
    walk,
)
from aotc.ir.simplify import are_equal, lower, simplify, split_linear, upper
from aotc.oracle.eval_expr import EvalScope

SYMS = (Sym("s", 1, 5), Sym("r", 2, 3))


def random_axes(rng):
    extents = [Const(rng.randint(1, 7)), Const(rng.randint(1, 12)), rng.choice(SYMS),
               simplify(SYMS[0] * rng.randint(1, 3)), SYMS[0] * SYMS[1]]
    return [Axis(n, rng.choice(extents)) for n in "ijk"]


def divisor(rng):
    return rng.choice([Const(rng.randint(1, 9)), rng.choice(SYMS), SYMS[0] * SYMS[1],
                       SYMS[0] * rng.randint(1, 3), SYMS[1] + rng.randint(0, 2),
                       SYMS[0] * SYMS[1] + rng.randint(1, 3)])


def random_expr(rng, axes, depth):
    """An index expression of every operator; divisors are positive."""
    if depth == 0 or rng.random() < 0.1:
        return rng.choice([rng.choice(axes), rng.choice(axes), rng.choice(SYMS),
                           Const(rng.randint(-9, 9))])
    a = random_expr(rng, axes, depth - 1)
    kind = rng.choice(("add", "sub", "mul", "mulc", "div", "mod", "div", "mod", "min", "max",
                       "where", "cast", "neg"))
    if kind in ("div", "mod"):
        return Binary("floordiv" if kind == "div" else "mod", a, divisor(rng))
    if kind == "mulc":
        return a * rng.choice([rng.randint(-4, 6), rng.choice(SYMS)])
    if kind == "neg":
        return Unary("neg", a)
    b = random_expr(rng, axes, depth - 1)
    if kind == "where":
        return Where(random_cond(rng, axes, depth - 1), a, b)
    if kind == "cast":
        return Cast("i64", random_cond(rng, axes, depth - 1)) + a
    return Binary(kind, a, b)


def random_cond(rng, axes, depth):
    c = compare(rng.choice(("lt", "le", "gt", "ge", "eq", "ne")),
                random_expr(rng, axes, depth), random_expr(rng, axes, depth))
    if rng.random() < 0.3:
        return Binary(rng.choice(("and", "or")), c, random_cond(rng, axes, depth))
    return Unary("not", c) if rng.random() < 0.1 else c


def assignments():
    for s in range(1, 6):
        for r in range(2, 4):
            yield {"s": s, "r": r}


def table(e, axes, syms):
    ranges = {a: (0, int(EvalScope({}, None, syms).value(a.extent))) for a in axes}
    with np.errstate(all="ignore"):
        return np.broadcast_to(EvalScope(ranges, None, syms).value(e),
                               [n for _, n in ranges.values()])


def chunked_cases(count, size=25):
    return range(0, count, size)


@pytest.mark.parametrize("first", chunked_cases(1500))
def test_normal_form_means_the_same_and_bounds_hold(first):
    for seed in range(first, first + 25):
        rng = random.Random(seed)
        axes = random_axes(rng)
        e = random_expr(rng, axes, rng.randint(1, 4))
        new = simplify(e)
        assert simplify(new) == new, (seed, show(e), show(new), show(simplify(new)))
        lo, hi = lower(e), upper(e)
        for syms in assignments():
            want, got = table(e, axes, syms), table(new, axes, syms)
            assert np.array_equal(want, got), (seed, show(e), show(new), syms)
            assert lo is None or lo <= want.min(), (seed, show(e), lo, want.min())
            assert hi is None or hi >= want.max(), (seed, show(e), hi, want.max())


@pytest.mark.parametrize("first", chunked_cases(500))
def test_conditions_are_decided_rightly(first):
    for seed in range(first, first + 25):
        rng = random.Random(seed)
        axes = random_axes(rng)
        e = random_cond(rng, axes, rng.randint(0, 3))
        new = simplify(e)
        assert simplify(new) == new, (seed, show(e), show(new), show(simplify(new)))
        for syms in assignments():
            want, got = table(e, axes, syms), table(new, axes, syms)
            assert np.array_equal(want, got), (seed, show(e), show(new), syms)


@pytest.mark.parametrize("first", chunked_cases(500))
def test_linear_parts_add_up(first):
    for seed in range(first, first + 25):
        rng = random.Random(seed)
        axes = random_axes(rng)
        e = random_expr(rng, axes, rng.randint(1, 3))
        parts = split_linear(e, axes[0])
        if parts is None:
            continue
        assert not any(axes[0] in set(walk(p)) for p in parts)
        assert are_equal(parts[0] * axes[0] + parts[1], e), (seed, show(e), list(map(show, parts)))


i, j = Axis("i", Const(12)), Axis("j", Sym("seq", 1, 512))
seq, c = j.extent, Axis("c", Const(256))
flat = Axis("f", seq * 12)


@pytest.mark.parametrize("e,text", [
    ((i * seq + j) // seq, "i"), ((i * seq + j) % seq, "j"),
    ((c // 64) * 64 + c % 64, "c"), ((flat // seq) * seq + flat % seq, "f"),
    (c // 8 // 8, "c // 64"), (c % 64 // 8, "c // 8 % 8"), (c % 64 % 16, "c % 16"),
    ((c * 4 + 3) // 4, "c"), ((c * 4 + 3) % 4, "3"), ((i * 6 + 3) // 9, "(i * 2 + 1) // 3"),
    ((i + 12) // 12, "1"), ((i + 256) % 12, "(i + 4) % 12"), (i - i, "0"),
    (Binary("min", i, Const(11)), "i"), (Binary("max", i - 3, i), "i"),
    (Where(compare("lt", i, 12), j, c), "j"), ((seq * 8) // 4, "seq * 2"),
    (((seq + 3) // 4 * 4) // 4, "(seq + 3) // 4"),
])
def test_normal_forms(e, text):
    assert show(simplify(e)) == text


@pytest.mark.parametrize("e,low,high", [
    (i * 2 - 3, -3, 19), (j - seq, -512, -1), (j + seq, 1, 1023), (c // 10, 0, 25),
    (c % 10, 0, 9), (Binary("min", j, Const(7)), 0, 7), (seq * 3 - j * 3, 3, 1536),
])
def test_bounds(e, low, high):
    assert (lower(e), upper(e)) == (low, high)


def test_nothing_unsigned_is_below_zero():
    x, zero = Load("x", (), "u32"), Const(0, "u32")
    assert simplify(compare("lt", x, zero)) == Const(False, "bool")
    assert simplify(compare("ge", x, zero)) == Const(True, "bool")
    assert simplify(compare("gt", zero, x)) == Const(False, "bool")
    assert simplify(compare("gt", x, zero)) == compare("gt", x, zero)


def test_halves_of_halves():
    """An extent halved three times, rounding up, is that of an eighth."""
    n = Sym("n", 1, None)
    assert are_equal(((n + 3) // 4 + 1) // 2, (n + 7) // 8)
    assert are_equal((n // 3 - 5) // 2, (n - 15) // 6) and not are_equal((n % 8 + 1) // 2,
                                                                         (n + 1) // 2 % 4)


@pytest.mark.parametrize("side", [2, 7, 32])
def test_extents_of_whole_windows(side):
    """However an extent is padded, or cropped, to whole windows, it is so many of them."""
    h = Sym("h", 4, None)
    for n in (h, h // 4, (h + 3) // 8, h * 3 + 1):
        up, down = (n + (side - 1)) // side, n // side
        pads = [(Const(side) - n % side) % side, (0 - n) % side, Unary("neg", n) % side,
                up * side - n,
                Where(compare("eq", n % side, 0), Const(0), Const(side) - n % side),
                Where(Unary("not", compare("eq", n % side, 0)), side - n % side, Const(0))]
        for pad in pads:
            whole = n + pad
            assert are_equal(whole, up * side) and are_equal(whole // side,
                                                             up) and are_equal(pad, pads[0])
            assert are_equal(whole % side, Const(0)) and (lower(pad), upper(pad)) == (0, side - 1)
            assert are_equal(whole - (0 - (0 - n) // side) * side, Const(0))
        assert side > 2 or are_equal(n + n % 2, up * 2)
        assert are_equal(n - n % side, down * side) and are_equal((n - n % side) // side, down)


def test_places_in_whole_windows():
    """Rows of windows are rows of the image: nothing is divided by an extent."""
    h, w = Sym("h", 1, None), Sym("w", 1, None)
    high, wide = (n + (Const(7) - n % 7) % 7 for n in (h, w))
    across = Axis("x", simplify(wide // 7))
    down, row, column = Axis("y", simplify(high // 7)), Axis("i", Const(7)), Axis("j", Const(7))
    flat = ((down * 7 + row) * simplify(wide // 7) + across) * 7 + column
    assert show(simplify(flat // wide)) == "i + y * 7"
    assert show(simplify(flat % wide)) == "j + x * 7"
    roll = minimum(high, Const(3) % high)
    assert are_equal(roll, Const(3)) and are_equal(Const(-3) % high, high - 3)
    assert are_equal(maximum(high - 7, Const(0)), high - 7)
    assert show(simplify((across - 3) % 7)) == "(x + 4) % 7"


def test_divisors_of_several_terms():
    """One window more than there are whole ones, a row more than there are tokens."""
    h, w = Sym("h", 1, None), Sym("w", 1, None)
    for n in (w // 7 + 1, h * w + 1, h + w + 2, w * 3 + 5):
        row, column, small = Axis("i", h), Axis("j", simplify(n)), Axis("k", Const(4))
        flat = row * n + column
        assert are_equal(flat // n, row) and are_equal(flat % n, column)
        assert are_equal((flat * 4 + small) // (n * 4), row)
        assert are_equal((flat * 4 + small) % (n * 4), column * 4 + small)
        assert are_equal((column - n) // n, Const(-1)) and are_equal(Const(-1) % n, n - 1)
        assert are_equal((h * n + n - 1) // n, h) and are_equal((h * n - 1) // n, h - 1)
    loose = (h * w + w) // (w + 3)
    assert simplify(simplify(loose)) == simplify(loose) and not are_equal(loose, h)


def test_bounds_hold_without_a_largest_extent():
    """n - (n + 1) // 2 >= 0 for any n, though neither term has a bound."""
    n, m = Sym("n", 0, None, 2048), Sym("m", 1, None, 64)
    i = Axis("i", (n + 1) // 2)
    assert lower(n - (n + 1) // 2) == 0 and upper(n // 2 * 2 - n) == 0 and upper(n) is None
    assert (lower((n + 3) // 4 * 4 - n), upper((n + 3) // 4 * 4 - n)) == (0, 3)
    assert upper(minimum(n, m) - m) == 0 and lower(minimum(n, m) - m) is None
    assert lower(maximum(n, m) - n) == 0 and upper(maximum(n, m) - n) is None
    assert upper(i * 2 - n) == -1 and upper(minimum(n, Const(7)) + 1) == 8


def test_what_compares_with_itself():
    """Known, but for NaN, and for an index that may be a fault."""
    i = Axis("i", Const(4))
    for op, holds in (("eq", True), ("le", True), ("ge", True), ("ne", False), ("lt", False),
                      ("gt", False)):
        for dtype in ("i32", "i64", "u8", "bool"):
            assert compare(op, Load("x", (i,), dtype), Load("x", (i,), dtype)) == Const(
                holds, "bool")
        place = check_index(Load("k", (i,), "i64"), Const(9))
        for x in (Load("x", (i,), "f32"), Load("x", (place,), "i32")):
            assert compare(op, x, x) == Binary(op, x, x)
