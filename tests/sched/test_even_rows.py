"""Which rows of windows matrix tiles read in place."""

import pytest
from te_programs import ax

from aotc.ir.expr import Axis, Const, Sym, all_hold, compare
from aotc.sched.cost.even_rows import uneven_share


def counted(lines, width, pad, step, channels=32):
    """The same by looking: rows of 3x3 taps around each pixel of an image of that many lines."""
    size = (width - 1) * step + 3 - 2 * pad
    uneven = tiles = 0
    for i in range(3):
        for j in range(3):
            places = [((y * step + i) * size + x * step + j - pad) * channels
                      if 0 <= x * step + j - pad < size else None
                      for y in range(lines) for x in range(width)]
            for t in range(0, len(places) // 16 * 16, 16):
                apart = {b - a if a is not None and b is not None else None
                         for a, b in zip(places[t:t + 15], places[t + 1:t + 16])}
                uneven += len(apart) > 1 or None in apart
                tiles += 1
    return uneven / tiles


@pytest.mark.parametrize("width, pad, step", [(64, 1, 1), (32, 1, 1), (14, 1, 1), (28, 1, 1),
                                              (32, 0, 1), (24, 1, 2), (7, 0, 1)])
def test_the_share_is_what_looking_finds(width, pad, step):
    y, x, i, j = Axis("y", Const(48)), Axis("x", Const(width)), ax("i", 3), ax("j", 3)
    size, column = (width - 1) * step + 3 - 2 * pad, x * step + j - pad
    group = ax("group", 4)  # beside rows and taps: its value moves all rows alike
    at = ((y * step + i) * size + column) * 32 + group * 8
    inside = all_hold([compare("ge", column, Const(0)), compare("lt", column, Const(size))])
    assert uneven_share((y, x), (i, j), at, inside, 16) == pytest.approx(
        counted(16, width, pad, step))


def test_what_is_not_known_is_not_even():
    y, x, i = Axis("y", Const(48)), Axis("x", Sym("w", 1, 99)), ax("i", 3)
    assert uneven_share((y, x), (i,), (y * 50 + x + i) * 32, None, 16) == 1.0
    assert uneven_share((ax("x", 8),), (i,), (ax("x", 8) + i) * 32, None, 16) == 1.0  # no tile

