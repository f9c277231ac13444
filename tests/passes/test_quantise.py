"""Quantised products as integer sums, and rounding straight from integers: same values, and the
form that was asked for."""

import numpy as np
import pytest
from quantised_programs import f32, product, quantised, real, scalar, whole, with_bias
from te_programs import Maker, ax

from aotc.ir.category import category
from aotc.ir.expr import (
    Binary,
    Cast,
    Const,
    Load,
    Sym,
    Where,
    all_hold,
    compare,
    maximum,
    minimum,
    walk,
)
from aotc.ir.program import update
from aotc.oracle.check_program import check_program
from aotc.oracle.evaluate import evaluate
from aotc.passes.inline import inline_moves
from aotc.passes.requantise import match_rounding
from aotc.passes.round_before_view import round_before_views


def dots(p):
    """The steps that multiply 8-bit integers."""
    return [s for s in p.steps
            if s.fold == "sum" and category(s.axes, s.raxes, s.fold, s.body) == "dot"]


def compared(m, output, tol=1e-6):
    """The Program after the passes, having compared its values with those before."""
    p = m.done(output)
    x = {"x": np.random.default_rng(5).standard_normal((2, 4, 9)).astype(np.float32) * 3}
    new = whole(p)
    a, b = evaluate(p, x)[output], evaluate(new, x)[output]
    if a.dtype == np.float32:
        assert np.abs(a - b).max() <= tol * np.abs(a).max()
    else:
        assert np.abs(a.astype(int) - b).max() <= 1
    return new


@pytest.mark.parametrize("pad", (0, 1))
@pytest.mark.parametrize("zero_x", (0, 7, 255))
@pytest.mark.parametrize("per_channel", (True, False))
def test_a_convolution_sums_integers(zero_x, per_channel, pad):
    new = compared(product(zero_x=zero_x, per_channel=per_channel, pad=pad), "y")
    step, = dots(new)
    if pad:  # outside the tensor lies the zero point
        assert Const(zero_x, "u8") in set(walk(step.body))
    # corrections of constants are constants: the sum and the map that scales it are left
    assert len(new.steps) == 3


def test_weights_that_are_moved_first_are_weights():
    new = compared(product(turned=True), "y")
    step, = dots(new)
    assert {n.buffer for n in walk(step.body) if isinstance(n, Load)} & set(new.consts)


def test_signed_activations_are_stored_with_an_offset():
    new = compared(product(source="i8", zero_x=-3), "y")
    assert dots(new) and new.dtype("q") == "u8"


def test_unsigned_weights_become_signed():
    new = compared(product(weight="u8", zero_w=131), "y")
    assert dots(new)


def test_a_zero_point_of_the_weights_needs_sums_of_rows():
    new = compared(product(zero_w=5), "y")
    assert dots(new) and any(s.out.startswith("y_rows") for s in new.steps)


def test_a_scale_along_the_sum_stays_a_float_product():
    m = product()
    m.const("sc", np.ones(4, np.float32) + np.arange(4, dtype=np.float32))
    m.steps = [s for s in m.steps if s.out not in ("q_real", "y")]
    a = [ax(f"d{k}", e) for k, e in enumerate((2, 4, 9))]
    m.step("q_real", a, Cast("f32", m.ref("q", *a)) * m.ref("sc", a[1]))
    n, o, i, c, t = ax("n", 2), ax("o", 5), ax("i", 7), ax("c", 4), ax("t", 3)
    m.step("y", (n, o, i), m.ref("q_real", n, c, i + t) * m.ref("w_real", o, c, t), (c, t), "sum")
    assert not dots(compared(m, "y"))


def scores(x="u8", w="u8", zeros=(7, 0), depth=9, turned=False):
    """x f32[2, 4, 9], rounded twice -> y[n, i, j] = sum(k) p[n, i, k] q[n, j, k]; ``turned``: q is
    moved before it is read as a number."""
    m = Maker()
    m.input("x", 2, 4, depth)
    for name, dtype, zero, scale in zip("pq", (x, w), zeros, (0.03, 0.05)):
        quantised(m, name, "x", scale, zero, dtype)
        scalar(m, f"z{name}", zero, np.uint8 if dtype == "u8" else np.int8)
        scalar(m, f"s{name}", scale, np.float32)
    n, i, j, k = ax("n", 2), ax("i", 4), ax("j", 4), ax("k", depth)
    columns = "q"
    if turned:
        columns = m.step("t", (n, k, j), m.ref("q", n, j, k))
    real(m, "p", "zp", "sp")
    real(m, columns, "zq", "sq")
    at = (n, k, j) if turned else (n, j, k)
    m.step("y", (n, i, j), m.ref("p_real", n, i, k) * m.ref(f"{columns}_real", *at), (k,), "sum")
    return m


@pytest.mark.parametrize("turned", (False, True))
@pytest.mark.parametrize("x, w, zeros, rows, corrections", [
    ("u8", "u8", (0, 128), "u8", 0), ("u8", "u8", (7, 200), "u8", 2),
    ("u8", "i8", (0, 0), "u8", 0), ("u8", "i8", (7, -3), "u8", 2),
    ("i8", "i8", (0, 0), "i8", 0), ("i8", "i8", (-5, 0), "i8", 1), ("i8", "u8", (0, 3), "i8", 1)])
def test_a_product_of_two_tensors_sums_integers(x, w, zeros, rows, corrections, turned):
    new = compared(scores(x, w, zeros, turned=turned), "y")
    step, = dots(new)
    assert new.dtype("p") == rows and new.dtype("q") == "i8"
    sums = [s for s in new.steps if s.fold == "sum" and s is not step]
    assert len(sums) == corrections and all(s.body.dtype == "f32" for s in sums)


def test_without_rows_for_it_a_product_of_two_tensors_stays_float():
    p = scores().done("y")
    new = whole(p, rows=False)
    assert not dots(new) and new.dtype("q") == "u8"
    x = {"x": np.random.default_rng(5).standard_normal((2, 4, 9)).astype(np.float32)}
    assert np.allclose(evaluate(p, x)["y"], evaluate(new, x)["y"], rtol=1e-5)


@pytest.mark.parametrize("most", (40, None))
def test_a_product_along_a_free_axis_sums_integers(most):
    p = scores(zeros=(7, 200), depth=Sym("k", 1, most)).done("y")
    new = whole(p)
    step, = dots(new)
    sums = [s for s in new.steps if s.fold == "sum" and s is not step]
    assert sum(s.body.dtype == "f32" for s in sums) == 2
    assert len(sums) == (2 if most else 4)  # without an end, sums of parts and of those
    for k in (1, 2, 3, 5, 33):
        x = {"x": np.random.default_rng(k).standard_normal((2, 4, k)).astype(np.float32) * 3}
        a, b = (evaluate(q, x, {"k": k})["y"] for q in (p, new))
        assert np.abs(a - b).max() <= 1e-5 * np.abs(a).max()


@pytest.mark.parametrize("length", (1, (1 << 16) - 1, 1 << 16, (1 << 16) + 1, 140_000))
def test_sums_without_an_end_are_exact(length):
    """Sums of the largest bytes, beyond what f32 holds."""
    m = Maker()
    n, zeros = Sym("k", 1, None), {"p": 3, "q": 100}
    k, i, j = ax("k", n), ax("i", 1), ax("j", 1)
    for name, zero in zeros.items():
        m.input(name, *((1, n) if name == "p" else (n, 1)), dtype="u8")
        m.pointwise(f"{name}_centred", name, lambda e, a, z=zero: Cast("i32", e) - Const(z, "i32"))
    m.step("y", (i, j), m.ref("p_centred", i, k) * m.ref("q_centred", k, j), (k,), "sum")
    new = whole(m.done("y"))
    x = {"p": np.full((1, length), 255, np.uint8), "q": np.full((length, 1), 101, np.uint8)}
    assert dots(new) and evaluate(new, x, {"k": length})["y"].item() == 252 * length


def test_columns_that_the_caller_gives_are_made_signed():
    m = Maker()
    m.input("p", 3, 9, dtype="u8")
    m.input("q", 9, 5, dtype="u8")
    i, j, k = ax("i", 3), ax("j", 5), ax("k", 9)
    for name, zero in (("p", 200), ("q", 100)):
        m.pointwise(f"{name}_centred", name, lambda e, a, z=zero: Cast("i32", e) - Const(z, "i32"))
    m.step("y", (i, j), m.ref("p_centred", i, k) * m.ref("q_centred", k, j), (k,), "sum")
    p = m.done("y")
    new = whole(p)
    assert dots(new)[0].body.dtype == "i32" and new.dtype("p") == new.dtype("q") == "u8"
    x = {n: np.random.default_rng(1).choice([0, 255], s).astype(np.uint8)
         for n, s in (("p", (3, 9)), ("q", (9, 5)))}
    assert np.array_equal(evaluate(p, x)["y"], evaluate(new, x)["y"])


@pytest.mark.parametrize("groups", (4, 2))
def test_sums_of_few_channels_are_exact_floats(groups):
    """Depthwise, whose factors are converted where they are read, and in groups of two channels."""
    m = Maker()
    m.input("x", 2, 4, 9)
    quantised(m, "q", "x", 0.03, 131)
    m.const("w", np.random.default_rng(3).integers(-127, 128, (4, 4 // groups, 3)).astype(np.int8))
    scalar(m, "zq", 131, np.uint8)
    scalar(m, "sq", 0.03, np.float32)
    m.const("sw", np.float32(0.01) * (1 + np.arange(4, dtype=np.float32)))
    real(m, "q", "zq", "sq")
    real(m, "w", None, "sw")
    size = 4 // groups
    n, g, o, i, c, t = (ax("n", 2), ax("g", groups), ax("o", size), ax("i", 9), ax("c", size),
                        ax("t", 3))
    inside = all_hold([compare("ge", i + t - 1, 0), compare("lt", i + t - 1, 9)])
    value = Where(inside, m.ref("q_real", n, g * size + c, i + t - 1), f32(0))
    m.step("y", (n, g, o, i), value * m.ref("w_real", g * size + o, c, t), (c, t), "sum")
    new = compared(m, "y")
    step, = (s for s in new.steps if s.fold == "sum")
    x = {"x": np.random.default_rng(1).standard_normal((2, 4, 9)).astype(np.float32) * 3}
    kept = evaluate(update(new, outputs=(*new.outputs, step.out)), x)[step.out]
    assert np.array_equal(kept, np.rint(kept)) and np.abs(kept).max() > 1000


@pytest.mark.parametrize("clamped", (False, True))
def test_a_number_that_is_cut_off_is_stored_as_it_is(clamped):
    """Stored 128 larger, what lies between -1 and 0 would be cut off to -1."""
    m = Maker()
    m.input("x", 2, 4, 9)
    m.pointwise("q", "x", lambda e, axes: Cast(
        "i8", minimum(maximum(e, f32(-128)), f32(127)) if clamped else e))
    m.const("w", np.ones((5, 9), np.int8))
    scalar(m, "s", 0.03, np.float32)
    real(m, "q", None, "s")
    real(m, "w", None, "s")
    n, c, o, k = ax("n", 2), ax("c", 4), ax("o", 5), ax("k", 9)
    m.step("y", (n, c, o), m.ref("q_real", n, c, k) * m.ref("w_real", o, k), (k,), "sum")
    new = compared(m, "y")
    assert dots(new) and new.dtype("q") == "i8"


@pytest.mark.parametrize("relu", (False, True))
def test_a_bias_that_is_a_multiple_is_added_to_the_sum(relu):
    m = product()
    scales = np.float32(0.03) * (np.float32(0.01) * (1 + np.arange(5, dtype=np.float32)))
    new = compared(with_bias(m, scales * np.array([3, -400, 0, 7, 1 << 20], np.float32), relu), "z")
    body = new.producer["z"].body
    assert not any(isinstance(n, Binary) and n.op == "div" for n in walk(body))
    assert sum(isinstance(n, Load) for n in walk(body)) == 3  # sum, offset, ratio


def test_another_bias_is_added_to_the_scaled_sum():
    new = compared(with_bias(product(), np.array([0.123, 0.456, -3, 8, 0])), "z")
    assert not any(isinstance(n, Binary) and n.op == "div" for n in walk(new.producer["z"].body))


@pytest.mark.parametrize("relu", (False, True))
def test_sums_of_scaled_integers_are_rounded_once(relu):
    new = compared(with_bias(product(), np.zeros(5), relu, residual=True), "z")
    assert not any(isinstance(n, Binary) and n.op == "div" for n in walk(new.producer["z"].body))


def test_a_zero_point_under_scales_along_an_axis_joins_the_offset():
    m = Maker()
    m.input("x", 2, 4, 9)
    quantised(m, "q", "x", 0.03, 7)
    scalar(m, "zx", 7, np.uint8)
    m.const("s", np.array([0.02, 0.05], np.float32))
    real(m, "q", "zx", "s")
    quantised(m, "z", "q_real", 0.04, 3)
    new = compared(m, "z")
    assert not any(isinstance(n, Binary) and n.op == "div" for n in walk(new.producer["z"].body))


def test_rounding_of_a_float_keeps_its_division():
    m = Maker()
    m.input("x", 2, 4, 9)
    quantised(m, "z", "x", 0.3, 4)
    new = compared(m, "z")
    assert match_rounding(new.producer["z"].body) is not None
    assert any(isinstance(n, Binary) and n.op == "div" for n in walk(new.producer["z"].body))


@pytest.mark.parametrize("fold", ("max", "min"))
def test_the_largest_byte_is_found_among_floats(fold):
    m = Maker()
    m.input("x", 2, 4, 9)
    quantised(m, "q", "x", 0.03, 128)
    n, c, i, t = ax("n", 2), ax("c", 4), ax("i", 9), ax("t", 3)
    inside = compare("lt", i + t, 9)
    m.step("y", (n, c, i), Where(inside, m.ref("q", n, c, i + t), Const(0, "u8")), (t,), fold)
    new = compared(m, "y")
    assert {s.body.dtype for s in new.steps if s.fold == fold} == {"f32"}


def _view(m, name, source):
    """name[n, r] = source[n, r // k, r % k], for source[n, h, k]: a step that is a move."""
    n, h, k = m.buffers[source].shape
    i, r = ax("i", n), ax("r", h * k)
    return m.step(name, (i, r), m.ref(source, i, r // k, r % k))


def test_a_rounded_view_is_rounded_where_it_lies():
    m = Maker()
    m.input("x", 2, 4, 9)
    axes = [ax(f"d{k}", e) for k, e in enumerate((2, 4, 9))]
    m.step("t", axes, m.ref("x", *axes) * f32(2))
    _view(m, "v", "t")
    quantised(m, "q", "v", 0.05, 100)
    m.pointwise("y", "q", lambda q, a: Cast("f32", q))
    p = m.done("y")
    new = inline_moves(round_before_views(inline_moves(p)))
    assert not check_program(new)
    own = new.producer["q_own"]
    assert own.loads[0].index == own.axes
    x = {"x": np.random.default_rng(5).standard_normal((2, 4, 9)).astype(np.float32)}
    assert np.array_equal(evaluate(p, x)["y"], evaluate(new, x)["y"])


def test_a_rounded_view_that_looks_at_its_indices():
    """Axes of the tensor and of the view of it are equal where extents are."""
    m = Maker()
    m.input("x", 4, 8, 4, dtype="u8")
    i, j, k = (ax(f"i{n}", e) for n, e in enumerate((8, 4, 4)))
    m.step("y", (i, j, k), Where(compare("ge", k - j, Const(1)), m.ref("x", k, i, j),
                                 Const(0, "u8")))
    p = m.done("y")
    x = {"x": np.random.default_rng(5).integers(0, 256, (4, 8, 4)).astype(np.uint8)}
    new = round_before_views(p)
    assert not check_program(new) and len(new.steps) == 2
    assert np.array_equal(evaluate(new, x)["y"], np.triu(x["x"].transpose(1, 2, 0), 1))


@pytest.mark.parametrize("fold", ("max", "min"))
def test_the_largest_of_a_view_is_that_of_the_tensor(fold):
    m = Maker()
    m.input("x", 2, 4, 9)
    i, r = ax("i", 2), ax("r", 36)
    m.step("y", (), m.ref("x", i, r % 4, r // 4), (i, r), fold)
    p = m.done("y")
    new = round_before_views(p)
    assert not check_program(new)
    step = new.producer["y"]
    assert step.body.index == step.raxes and len(step.raxes) == 3
    x = {"x": np.random.default_rng(5).standard_normal((2, 4, 9)).astype(np.float32)}
    assert evaluate(p, x)["y"] == evaluate(new, x)["y"]


@pytest.mark.parametrize("fold", ("max", "min"))
@pytest.mark.parametrize("shape, rows", [
    ((1, 5, 70), (1, 5)), ((3, 8, 9), (3,)), ((1, 1, 70), None), ((70,), None), ((7, 9), None),
    ((Sym("n", 1, 9), 64), (Sym("n", 1, 9),)), ((64, Sym("n", 1, 9)), None),
    ((64, Sym("n", 1, None)), (64,))])
def test_the_largest_of_all_is_that_of_the_rows(fold, shape, rows):
    m = Maker()
    m.input("x", *shape)
    axes = tuple(ax(f"r{k}", e) for k, e in enumerate(shape))
    one = ax("one", 1)
    m.step("y", (one,), m.ref("x", *axes), axes, fold)
    p = m.done("y")
    new = round_before_views(p)
    assert not check_program(new)
    assert [new.shape(s.out) for s in new.steps[:-1]] == (
        [] if rows is None else [tuple(e if isinstance(e, Sym) else Const(e) for e in rows)])
    x = np.random.default_rng(5).standard_normal([3 if isinstance(e, Sym) else e for e in shape])
    for value in (0.0, np.nan, np.inf):
        x.flat[-1] = value
        feeds = {"x": x.astype(np.float32)}
        assert np.array_equal(evaluate(p, feeds)["y"], evaluate(new, feeds)["y"], equal_nan=True)


def test_what_is_no_view_stays():
    m = Maker()
    m.input("x", 2, 4, 9)
    r = ax("r", 8)
    m.step("y", (), m.ref("x", 1, r // 2, r % 2), (r,), "max")  # a part of the tensor
    p = m.done("y")
    assert round_before_views(p).producer["y"].body == p.producer["y"].body


@pytest.mark.parametrize("depth, exact", [(9, True), (400, False)])
def test_short_integer_sums_of_two_tensors_are_exact_floats(depth, exact):
    m = Maker()
    m.input("p", 3, depth, dtype="u8")
    m.input("q", depth, 5, dtype="i8")
    for name, zero in (("p", 200), ("q", -100)):
        m.pointwise(f"{name}_centred", name, lambda e, a, z=zero: Cast("i32", e) - Const(z, "i32"))
    i, j, k = ax("i", 3), ax("j", 5), ax("k", depth)
    m.step("y", (i, j), m.ref("p_centred", i, k) * m.ref("q_centred", k, j), (k,), "sum")
    p = m.done("y")
    new = whole(p, rows=False)
    step = next(s for s in new.steps if s.fold == "sum")
    assert step.body.dtype == ("f32" if exact else "i32")
    rng = np.random.default_rng(1)
    x = {"p": rng.choice([0, 255], (3, depth)).astype(np.uint8),
         "q": rng.choice([-128, 127], (depth, 5)).astype(np.int8)}
    assert np.array_equal(evaluate(p, x)["y"], evaluate(new, x)["y"])
