"""Layouts: shapes, index rewriting and arrays agree; ALT's worked examples hold."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotc.errors import ScheduleError
from aotc.ir.expr import Axis, Const, Sym, show
from aotc.ir.layout import (
    Fuse,
    Layout,
    Pad,
    Reorder,
    Split,
    StoreAt,
    Unfold,
    unfold_for_tile,
)
from aotc.oracle.eval_expr import EvalScope

BLOCKED = Layout((Split(1, (4, 16)), Reorder((0, 1, 3, 4, 2))))


def divisors(n):
    return [d for d in range(1, n + 1) if n % d == 0]


@st.composite
def layouts(draw):
    """(shape, layout): every primitive legal for the shape it meets."""
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    start, prims = tuple(shape), []
    for _ in range(draw(st.integers(0, 4))):
        dim = draw(st.integers(0, len(shape) - 1))
        kind = draw(st.sampled_from(("split", "reorder", "fuse", "unfold", "pad")))
        if kind == "split":
            inner = draw(st.sampled_from(divisors(shape[dim])))
            p = Split(dim, (draw(st.sampled_from((-1, shape[dim] // inner))), inner))
        elif kind == "reorder":
            p = Reorder(tuple(draw(st.permutations(range(len(shape))))))
        elif kind == "fuse":
            p = Fuse(dim, draw(st.integers(1, len(shape) - dim)))
        elif kind == "unfold":
            size = draw(st.integers(1, shape[dim]))
            p = Unfold(dim, size, draw(st.integers(1, size)))
        else:
            p = Pad(dim, draw(st.integers(0, 2)), draw(st.integers(0, 2)))
        shape = [d.value for d in p.shape([Const(d) for d in shape])]
        prims.append(p)
    return start, Layout(tuple(prims))


def values(exprs, axes):
    scope = EvalScope({a: (0, a.extent.value) for a in axes}, None, {})
    return [np.broadcast_to(scope.value(e), [a.extent.value for a in axes]) for e in exprs]


@settings(max_examples=200, deadline=None)
@given(layouts())
def test_array_index_and_shape_agree(case):
    shape, layout = case
    x = np.arange(1, 1 + np.prod(shape)).reshape(shape)
    stored = layout.apply(x)
    assert stored.shape == tuple(d.value for d in layout.shape(shape))
    np.testing.assert_array_equal(layout.unapply(stored, shape), x)
    axes = [Axis(f"i{k}", Const(d)) for k, d in enumerate(shape)]
    at = values(layout.index(axes, shape), axes)
    np.testing.assert_array_equal(stored[tuple(at)], x)
    back = values(layout.inverse_index(layout.index(axes, shape), shape), axes)
    for axis, got in zip(values(axes, axes), back):
        np.testing.assert_array_equal(got, axis)


@settings(max_examples=100, deadline=None)
@given(layouts())
def test_every_stored_place_names_its_element_or_padding(case):
    shape, layout = case
    x = np.arange(1, 1 + np.prod(shape)).reshape(shape)
    stored = layout.apply(x)
    axes = [Axis(f"p{k}", Const(d)) for k, d in enumerate(stored.shape)]
    logical = values(layout.inverse_index(axes, shape), axes)
    cond = layout.inside(axes, shape)
    inside = np.bool_(True) if cond is None else values((cond,), axes)[0]
    for i, d in zip(logical, shape):
        assert np.all((i >= 0) & (i < d) | ~inside)
    want = np.where(inside, x[tuple(np.clip(i, 0, d - 1) for i, d in zip(logical, shape))], 0)
    np.testing.assert_array_equal(stored, want)


@settings(max_examples=100, deadline=None)
@given(layouts())
def test_json_round_trip(case):
    _, layout = case
    assert Layout.from_json(json.loads(json.dumps(layout.to_json()))) == layout
    assert Layout.from_json(layout.to_json()) == layout


def test_text_and_permutation():
    assert BLOCKED.text("NCHW") == "N C/16 H W C%16"
    assert Layout((Split(1, (2, 4, 16)),)).text("NCHW") == "N C/64 C/16%4 C%16 H W"
    assert Layout((Fuse(1, 2),)).text("NCHW") == "N (C*H) W"
    nhwc = Layout((Reorder((0, 2, 3, 1)),))
    assert nhwc.permutation() == (0, 2, 3, 1) and not nhwc.is_identity
    back = nhwc.then(Layout((Reorder((0, 3, 1, 2)),)))
    assert back.permutation() == (0, 1, 2, 3)
    assert BLOCKED.permutation() is None
    assert Layout().is_identity and Layout().permutation(3) == (0, 1, 2)
    assert nhwc.then(BLOCKED).primitives == nhwc.primitives + BLOCKED.primitives


def test_symbolic_extents():
    n = Sym("n", 1, 64)
    assert [show(d) for d in BLOCKED.shape((n, 64, 56, n))] == ["n", "4", "56", "n", "16"]
    index = [Axis(a, Const(4) if a == "c" else n) for a in "abd"]
    fused = Layout((Fuse(0, 2),))
    assert show(fused.index(index[:2], (n, n))[0]) == "a * n + b"
    with pytest.raises(ScheduleError, match="provably divides"):
        Layout((Split(0, (-1, 16)),)).shape((n,))


def test_packed_weight_index():
    k, n = Axis("k", Const(64)), Axis("n", Const(256))
    packed = Layout((Split(1, (-1, 64)), Reorder((1, 0, 2))))
    assert packed.text("KN") == "N/64 K N%64"
    assert [show(i) for i in packed.index((k, n), (64, 256))] == ["n // 64", "k", "n % 64"]
    b, j = Axis("b", Const(4)), Axis("j", Const(64))
    assert [show(i) for i in packed.inverse_index((b, k, j), (64, 256))] == ["k", "b * 64 + j"]


def test_worked_example_split_fuse_reorder():
    split = Layout((Split(0, (2, 3, 4)),))
    assert [i.value for i in split.index((Const(17),), (24,))] == [1, 1, 1]
    assert split.inverse_index((Const(1),) * 3, (24,)) == (Const(17),)
    assert Layout((Reorder((2, 0, 1)), Reorder((1, 2, 0)))).permutation() == (0, 1, 2)


def test_worked_example_nhwo_rechunking():
    h, w, o = 2, 4, 12
    layout = Layout((Fuse(1, 3), Split(1, (o // 4, 4, h * w)), Reorder((0, 1, 3, 2))))
    axes = [Axis(a, Const(d)) for a, d in zip("nhwo", (1, h, w, o))]
    e = sum(np.prod((h, w, o)[k + 1:]) * v for k, v in enumerate(values(axes, axes)[1:]))
    got = values(layout.index(axes, (1, h, w, o)), axes)
    for a, b in zip(got, (0 * e, e // (4 * h * w), e % (h * w), e // (h * w) % 4)):
        np.testing.assert_array_equal(a, b)


def test_worked_example_unfold():
    u = Layout((Unfold(0, 3, 2),))
    np.testing.assert_array_equal(u.apply(np.arange(1, 6)), [[1, 2, 3], [3, 4, 5]])
    i, r = Axis("i", Const(3)), Axis("r", Const(2))
    tile, at = Unfold(0, 3, 2).window(i, r, 2)
    x, stored = np.arange(5), u.apply(np.arange(5))
    t, b = values((tile, at), (i, r))
    np.testing.assert_array_equal(stored[t, b], x[np.arange(3)[:, None] + np.arange(2)])
    with pytest.raises(ScheduleError, match="need stride 1"):
        Unfold(0, 3, 2).window(i, r, 3)


def wrong_accesses(size, stride, step, length, extent):
    """Sliding accesses that the unfolded tensor would answer wrongly, by enumeration."""
    per, bad = (size - length) // step + 1, 0
    for i in range((extent - length) // step + 1):
        for r in range(length):
            at = step * i + r - stride * (i // per)
            bad += not 0 <= at < size  # else tile i // per holds T[step*i + r] there
    return bad


@pytest.mark.parametrize("step,length", itertools.product((1, 2, 3), (1, 2, 3, 4, 5)))
def test_window_is_exact_where_it_is_allowed(step, length):
    i = Axis("i", Const((60 - length) // step + 1))
    r = Axis("r", Const(length))
    x = np.arange(60)
    for size in range(length, 14):
        for stride in range(1, size + 1):
            u = Unfold(0, size, stride)
            try:
                tile, at = u.window(i, r, length, step)
            except ScheduleError:
                continue
            t, b = values((tile, at), (i, r))
            want = x[np.arange(i.extent.value)[:, None] * step + np.arange(length)]
            np.testing.assert_array_equal(Layout((u,)).apply(x)[t, b], want)
            assert wrong_accesses(size, stride, step, length, 60) == 0


def test_worked_example_window_counts():
    assert Unfold(0, 6, 4).window(Axis("i", Const(16)), Const(0), 3)
    assert wrong_accesses(6, 4, 1, 3, 18) == 0
    assert unfold_for_tile(0, 4, 7, 2) == Unfold(0, 13, 8)
    assert unfold_for_tile(0, 4, 3, 1, 2) == Unfold(0, 8, 4)
    assert [d.value for d in Layout((unfold_for_tile(0, 4, 7, 2),)).shape((230,))] == [29, 13]


def test_store_at_round_trip():
    w, b = np.arange(12.0).reshape(3, 4), np.arange(4.0) + 100
    place = StoreAt("w", 0)
    grown = place.store(w, b)
    assert grown.shape == (4, 4)
    np.testing.assert_array_equal(grown[:-1], w)
    np.testing.assert_array_equal(grown[-1], b)
    layout = Layout((place,))
    assert Layout.from_json(json.loads(json.dumps(layout.to_json()))) == layout
    with pytest.raises(ScheduleError, match="inside w"):
        layout.apply(b)


@pytest.mark.parametrize("layout,words", [
    (Layout((Split(0, (4, 16)),)), "1, 2, 5, 10, 25, 50.*Pad\\(dim=0, before=0, after=14\\)"),
    (Layout((Split(3, (4, 16)),)), "legal: 0..1"),
    (Layout((Reorder((0, 0)),)), "permutation of 0..1"),
    (Layout((Fuse(1, 2),)), "count must be in 1..1"),
    (Layout((Unfold(0, 5, 6),)), "1 <= stride <= size <= 50"),
    (Layout((Pad(0, -1, 0),)), ">= 0"),
])
def test_illegal_layouts_say_what_is_legal(layout, words):
    with pytest.raises(ScheduleError, match=words):
        layout.shape((50, 8))


@pytest.mark.parametrize("data", [[["spilt", 0, [2, 3]]], [["split", 0]], [["reorder", 3]],
                                  [["pad", 0, 1, "x"]], [7], [[]]])
def test_malformed_json_is_refused(data):
    with pytest.raises(ScheduleError, match="layout"):
        Layout.from_json(data)
