"""Offsets as indices of arrays: the indices they were made from, in bounds, and no others."""

from itertools import product
from math import prod

import numpy as np
import pytest

from aotc.ir.access import ArrayForm, ArrayOf, offset_of, row_major
from aotc.ir.expr import Axis, Const, Sym, as_expr, maximum, substitute
from aotc.ir.simplify import simplify
from aotc.oracle.prove import ProofScope
from aotc.sched.lowering.kernel_arrays import has_indices

RNG = np.random.default_rng()


def value(e, at):
    found = simplify(substitute(e, {a: Const(int(v)) for a, v in at.items()}))
    assert isinstance(found, Const), found
    return found.value


def shaped(*extents):
    return tuple(map(as_expr, extents))


def inners(form):
    """What arrays a buffer may be, by their extents behind the first."""
    return list(dict.fromkeys(a.inner for a in form.arrays("x")))


def index(form, offset, inner, names=(), facts=()):
    """The indices of an offset that are proved to lie in their extents; None if there are none.
    names: {Axis: how it is bound}; facts: expressions that are >= 0."""
    scope = ProofScope(dict(names))
    return next((a.index(offset) for a in form.arrays("x")
                 if a.inner == inner and has_indices(a, offset, scope, facts, {})), None)


def axes_of(extents):
    return [Axis(f"i{n}", as_expr(e)) for n, e in enumerate(extents)]


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_indices_are_those_that_an_offset_was_made_from(rank):
    for _ in range(20):
        extents = [int(n) for n in RNG.integers(2, 40, rank)]
        axes = axes_of(extents)
        form = ArrayForm.of(shaped(*extents))
        inner = inners(form)[0]
        assert inner == tuple(extents[1:])
        assert index(form, offset_of(axes, extents), inner) == tuple(axes)


def test_extents_of_one_are_no_indices_and_symbols_stand_first():
    n = Sym("n", 1, None)
    form = ArrayForm.of((Const(1), n, Const(1), Const(6), Const(5)))
    assert inners(form) == [(6, 5), (5,)]
    i, j, k = Axis("i", n), Axis("j", Const(6)), Axis("k", Const(5))
    offset = simplify(i * 30 + j * 5 + k)
    assert index(form, offset, (6, 5)) == (i, j, k)
    assert index(form, offset, (5,)) == (simplify(i * 6 + j), k)
    assert inners(ArrayForm.of((n, Const(3), n))) == []
    assert inners(ArrayForm.of((Const(1), Const(7)))) == []


def test_a_flattened_axis_has_no_index_of_its_own():
    """Sums over pixels as one axis are rows of pixels, whatever the image's width is."""
    for rows, width in ((2, 16), (7, 7), (3, 2)):
        form = ArrayForm.of(shaped(rows, width, 8))
        pixel, c = Axis("p", Const(rows * width)), Axis("c", Const(8))
        assert index(form, simplify(pixel * 8 + c), (width, 8)) is None
        assert index(form, simplify(pixel * 8 + c), (8,)) == (pixel, c)


def test_a_padded_window_has_indices_where_its_guard_holds():
    h, w, i, j = (Axis(n, Const(e)) for n, e in (("h", 14), ("w", 14), ("i", 3), ("j", 3)))
    row, column = simplify(h + i - 1), simplify(w + j - 1)
    offset, form = simplify(row * 14 + column), ArrayForm.of(shaped(14, 14))
    assert index(form, offset, (14,), facts=(column, simplify(13 - column))) == (row, column)
    assert index(form, offset, (14,)) is None


def test_a_step_of_several_columns_is_within_the_row_that_loops_leave_it():
    """Columns 32.. of 48 are not those 16 before the next row's: which, their loop tells."""
    form, m, c = ArrayForm.of(shaped(9, 48)), Axis("m", Const(9)), Axis("c", Const(48))
    offset = simplify(m * 48 + c + 32)
    assert index(form, offset, (48,)) is None
    short = {c: ("range", Const(0), Const(8))}
    assert index(form, offset, (48,), short) == (m, simplify(c + 32))


def test_a_part_is_indexed_from_its_own_first_element():
    """Rows m_lo.. and columns tile*64.. of f32[96, 256], 12 by 64 of them in scratch."""
    tile, m_lo = Axis("tile", Const(4)), Axis("m_lo", Const(96))
    m, n = Axis("m", Const(96)), Axis("n", Const(256))
    form = ArrayForm(shaped(12, 64), (m_lo, simplify(tile * 64)))
    offset = simplify((m - m_lo) * 64 + (n - tile * 64))
    columns = {n: ("range", simplify(tile * 64), simplify(tile * 64 + 63))}
    assert index(form, offset, (64,), columns) == (simplify(m - m_lo), simplify(n - tile * 64))
    assert index(form, offset, (64,)) is None  # all of the tensor's columns are not there
    i, j = Axis("i", Const(12)), Axis("j", Const(64))
    assert index(form, simplify(i * 64 + j), (64,)) == (i, j)  # counted from there anyway


def test_joined_parts_have_no_index_in_a_part():
    """Channels 128.. of a concatenation, of which a work item has 64 from c_lo on: 128 elements are
    as well two rows."""
    c_lo, c, p = Axis("c_lo", Const(256)), Axis("c", Const(128)), Axis("p", Const(9))
    form = ArrayForm(shaped(9, 64), (Const(0), c_lo))
    offset = simplify(p * 64 + c + 128 - c_lo)
    there = {c: ("range", maximum(c_lo - 128, Const(0)), simplify(c_lo - 65))}
    assert index(form, offset, (64,), there) is None


def test_a_place_that_may_be_outside_is_counted_from_its_row():
    """Lanes of a padded window begin at column -1: no index, but elements before the row's."""
    h, w, i, j = (Axis(n, Const(e)) for n, e in (("h", 14), ("w", 14), ("i", 3), ("j", 3)))
    c = Axis("c", Const(4))
    array = ArrayOf("x", ArrayForm.of(shaped(4, 14, 14)), (14, 14), "constants")
    column = simplify(c * 196 + h * 14 + (w + j - 1))
    assert array.row(column) == ((c, h), simplify(w + j - 1))
    assert array.row(simplify(column + i * 14 - 14)) == (
        (c,), simplify((h + i - 1) * 14 + (w + j - 1)))
    assert array.row(simplify(c * 196 + h * 14 + w)) == ((c, h, w), Const(0))


@pytest.mark.parametrize("rank", [2, 3])
def test_any_indices_name_the_element_at_the_offset(rank):
    """Also where they are not those that it was made from."""
    for _ in range(30):
        extents = [int(n) for n in RNG.integers(2, 9, rank)]
        axes = [Axis(f"i{n}", Const(e)) for n, e in enumerate(RNG.integers(2, 6, rank).tolist())]
        factors = RNG.integers(0, prod(extents) // 2 + 1, rank).tolist()
        offset = simplify(sum((a * f for a, f in zip(axes, factors)), start=Const(0))
                          + int(RNG.integers(-3, 20)))
        form = ArrayForm.of(shaped(*extents))
        for inner in inners(form):
            found = index(form, offset, inner)
            if found is None:
                continue
            strides = [s.value for s in row_major(shaped(1, *inner))]
            for at in product(*(range(a.extent.value) for a in axes)):
                known = dict(zip(axes, at))
                indices = [value(e, known) for e in found]
                assert sum(i * s for i, s in zip(indices, strides)) == value(offset, known)
                assert all(0 <= i < n for i, n in zip(indices[1:], inner))
