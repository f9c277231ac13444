"""The oracle against numpy written out by hand."""

import math

import numpy as np
import pytest

from aotc.errors import FaultError, UnsupportedError
from aotc.ir.expr import (
    Axis,
    Binary,
    Cast,
    Const,
    Load,
    Sym,
    Unary,
    Var,
    Where,
    check_index,
    compare,
)
from aotc.ir.program import Buffer, Check, Compute, Fold, LibCall, Program
from aotc.oracle import evaluate as ev
from aotc.oracle.check_program import check_program
from aotc.oracle.evaluate import eval_compute, evaluate

RNG = np.random.default_rng(0)


def ax(name, extent):
    return Axis(name, extent if not isinstance(extent, int) else Const(extent))


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def one(compute, shape, inputs, dtype="f32", syms=(), consts=None, checks=()):
    """Program of one Compute; inputs: name -> (shape, dtype)."""
    bufs = {n: Buffer(n, tuple(Const(d) if isinstance(d, int) else d for d in s), t, "input")
            for n, (s, t) in inputs.items()}
    bufs["y"] = Buffer("y", tuple(shape), dtype, "output")
    program = Program("one", tuple(inputs), ("y",), bufs, consts or {}, (compute,), syms, checks)
    assert check_program(program) == []
    return program


def conv(pad, stride, N=1, C=3, H=8, O=4, K=3):
    OH = (H + 2 * pad - K) // stride + 1
    n, oc, oh, ow = ax("n", N), ax("oc", O), ax("oh", OH), ax("ow", OH)
    ic, kh, kw = ax("ic", C), ax("kh", K), ax("kw", K)
    ih, iw = oh * stride + kh - pad, ow * stride + kw - pad
    inside = [compare("ge", ih, 0), compare("lt", ih, H), compare("ge", iw, 0),
              compare("lt", iw, H)]
    cond = inside[0]
    for c in inside[1:]:
        cond = Binary("and", cond, c)
    x = Load("x", (n, ic, ih, iw), "f32")
    body = Where(cond, x, Const(0, "f32")) if pad else x
    body = body * Load("w", (oc, ic, kh, kw), "f32")
    c = Compute(("y",), (n, oc, oh, ow), (ic, kh, kw), "sum", body)
    return one(c, tuple(a.extent for a in c.axes),
               {"x": ((N, C, H, H), "f32"), "w": ((O, C, K, K), "f32")})


def conv_numpy(x, w, pad, stride):
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    K, OH = w.shape[2], (x.shape[2] - w.shape[2]) // stride + 1
    out = np.zeros((x.shape[0], w.shape[0], OH, OH))
    for i in range(OH):
        for j in range(OH):
            patch = x[:, :, i * stride:i * stride + K, j * stride:j * stride + K]
            out[:, :, i, j] = np.tensordot(patch, w.astype(np.float64), ((1, 2, 3), (1, 2, 3)))
    return out.astype(np.float32)


@pytest.mark.parametrize("pad,stride", [(0, 1), (1, 1), (1, 2), (2, 3)])
@pytest.mark.parametrize("chunk", [ev.CHUNK, 40])
def test_convolution(pad, stride, chunk, monkeypatch):
    monkeypatch.setattr(ev, "CHUNK", chunk)
    x, w = f32(1, 3, 8, 8), f32(4, 3, 3, 3)
    y = evaluate(conv(pad, stride), {"x": x, "w": w})["y"]
    np.testing.assert_allclose(y, conv_numpy(x, w, pad, stride), rtol=1e-6, atol=1e-6)


def test_box_is_a_window_of_the_whole():
    p = conv(1, 1)
    feeds = {"x": f32(1, 3, 8, 8), "w": f32(4, 3, 3, 3)}
    whole = evaluate(p, feeds)["y"]
    part = eval_compute(p.steps[0], ((0, 1), (1, 2), (3, 4), (0, 5)), feeds.__getitem__, {})
    np.testing.assert_array_equal(part, whole[0:1, 1:3, 3:7, 0:5])


def test_window_read_outside_faults():
    p = conv(0, 1)
    x, w = f32(1, 3, 8, 8), f32(4, 3, 3, 3)
    read = {"x": (x[:, :, 2:5, 2:5], (0, 0, 2, 2)), "w": w}.__getitem__
    inside = eval_compute(p.steps[0], ((0, 1), (0, 4), (2, 1), (2, 1)), read, {})
    whole = evaluate(p, {"x": x, "w": w})["y"]
    np.testing.assert_array_equal(inside, whole[:, :, 2:3, 2:3])
    with pytest.raises(FaultError, match="dimension 2"):
        eval_compute(p.steps[0], ((0, 1), (0, 4), (2, 2), (2, 1)), read, {})


def test_symbols_come_from_shapes_and_must_agree():
    s = Sym("seq", 1, 64)
    i, k = ax("i", s), ax("k", s)
    c = Compute(("y",), (i,), (k,), "sum", Load("a", (i, k), "f32") * Load("b", (k,), "f32"))
    p = one(c, (s,), {"a": ((s, s), "f32"), "b": ((s,), "f32")}, syms=(s,))
    a, b = f32(5, 5), f32(5)
    y = evaluate(p, {"a": a, "b": b})["y"]
    np.testing.assert_allclose(y, a.astype("f8") @ b.astype("f8"), rtol=1e-6)
    with pytest.raises(ValueError, match="seq is 6"):
        evaluate(p, {"a": a, "b": f32(6)})
    with pytest.raises(ValueError, match="0..?1..64|1..64"):
        evaluate(p, {"a": f32(65, 65), "b": f32(65)})
    with pytest.raises(ValueError, match="missing"):
        evaluate(p, {"a": a})


@pytest.mark.parametrize("fold", ["max", "min", "sum", "prod"])
@pytest.mark.parametrize("dtype", ["f32", "i32", "i8", "i64"])
def test_folds(fold, dtype, monkeypatch):
    monkeypatch.setattr(ev, "CHUNK", 7)
    i, j, k = ax("i", 3), ax("j", 2), ax("k", 5)
    c = Compute(("y",), (j,), (i, k), fold, Load("x", (i, j, k), dtype))
    p = one(c, (Const(2),), {"x": ((3, 2, 5), dtype)}, dtype)
    x = (RNG.standard_normal((3, 2, 5)) * 3).astype(p.buffers["x"].dtype and
                                                    ev.DTYPES[dtype].numpy)
    y = evaluate(p, {"x": x})["y"]
    wide = x.astype(np.float64 if dtype == "f32" else np.int64)
    want = getattr(np, fold)(wide, axis=(0, 2)).astype(x.dtype)
    np.testing.assert_allclose(y, want, rtol=1e-6)


def test_max_propagates_nan_and_empty_folds_are_neutral():
    i, k = ax("i", 2), ax("k", 3)
    c = Compute(("y",), (i,), (k,), "max", Load("x", (i, k), "f32"))
    x = np.array([[1, np.nan, 2], [3, -np.inf, 4]], np.float32)
    y = evaluate(one(c, (Const(2),), {"x": ((2, 3), "f32")}), {"x": x})["y"]
    np.testing.assert_array_equal(y, np.array([np.nan, 4], np.float32))
    n = Sym("n", 0, 4)
    c = Compute(("y",), (i,), (ax("k", n),), "max", Load("x", (i, ax("k", n)), "f32"))
    p = one(c, (Const(2),), {"x": ((2, n), "f32")}, syms=(n,))
    assert np.all(evaluate(p, {"x": np.zeros((2, 0), np.float32)})["y"] == -np.inf)


@pytest.mark.parametrize("chunk", [ev.CHUNK, 8])
def test_argmax_fold_with_two_states(chunk, monkeypatch):
    monkeypatch.setattr(ev, "CHUNK", chunk)
    i, k = ax("i", 4), ax("k", 9)
    best, at, x = Var("best", "f32"), Var("at", "i64"), Var("x", "f32")
    better = compare("gt", x, best)
    fold = Fold((("best", "f32"), ("at", "i64")), (Const(-math.inf, "f32"), Const(0)),
                (Where(better, x, best), Where(better, k, at)))
    c = Compute(("v", "y"), (i,), (k,), fold, Load("x", (i, k), "f32"))
    bufs = {"x": Buffer("x", (Const(4), Const(9)), "f32", "input"),
            "v": Buffer("v", (Const(4),), "f32"), "y": Buffer("y", (Const(4),), "i64", "output")}
    p = Program("argmax", ("x",), ("v", "y"), bufs, {}, (c,))
    x = f32(4, 9)
    out = evaluate(p, {"x": x})
    np.testing.assert_array_equal(out["y"], x.argmax(1))
    np.testing.assert_array_equal(out["v"], x.max(1))


def test_gather_is_checked_only_where_it_counts():
    i = ax("i", 4)
    at = Load("ids", (i,), "i64")
    safe = check_index(at, Const(3))
    gather = Compute(("y",), (i,), (), "none", Load("t", (safe,), "f32"), origin=("g",))
    shapes = {"ids": ((4,), "i64"), "t": ((3,), "f32")}
    p, t = one(gather, (Const(4),), shapes), f32(3)
    ids = np.array([2, 0, 1, 2])
    np.testing.assert_array_equal(evaluate(p, {"ids": ids, "t": t})["y"], t[ids])
    with pytest.raises(FaultError, match=r"index out of range.*7.*\(from g\)"):
        evaluate(p, {"ids": np.array([2, 0, 7, 2]), "t": t})
    guarded = Compute(("y",), (i,), (), "none",
                      Where(compare("lt", at, Const(3)), Load("t", (safe,), "f32"),
                            Const(-1, "f32")), origin=("g",))
    y = evaluate(one(guarded, (Const(4),), shapes), {"ids": np.array([2, 0, 7, 2]), "t": t})["y"]
    np.testing.assert_array_equal(y, [t[2], t[0], -1, t[2]])


def unary(op, x, dtype):
    i = ax("i", len(x))
    c = Compute(("y",), (i,), (), "none", Unary(op, Load("x", (i,), dtype)))
    return evaluate(one(c, (i.extent,), {"x": ((len(x),), dtype)}, c.body.dtype), {"x": x})["y"]


@pytest.mark.parametrize("op,fn", [("exp", math.exp), ("erf", math.erf), ("tanh", math.tanh),
                                   ("asinh", math.asinh), ("atan", math.atan),
                                   ("sin", math.sin), ("abs", abs), ("floor", math.floor)])
def test_unary_functions_are_correctly_rounded(op, fn):
    x = f32(50)
    np.testing.assert_array_equal(unary(op, x, "f32"),
                                  np.array([fn(float(v)) for v in x], np.float32))


def test_round_half_even_sign_and_specials():
    x = np.array([0.5, 1.5, -2.5, np.nan, np.inf, -0.0], np.float32)
    np.testing.assert_array_equal(unary("round", x, "f32"), [0, 2, -2, np.nan, np.inf, -0.0])
    np.testing.assert_array_equal(unary("isnan", x, "f32"), [0, 0, 0, 1, 0, 0])
    np.testing.assert_array_equal(unary("sqrt", -np.ones(2, np.float32), "f32"), [np.nan] * 2)
    np.testing.assert_array_equal(unary("not", np.array([1, 0], np.uint8), "u8"), [0, 1])


def pairs(op, a, b, dtype):
    i = ax("i", len(a))
    c = Compute(("y",), (i,), (), "none",
                Binary(op, Load("a", (i,), dtype), Load("b", (i,), dtype)))
    p = one(c, (i.extent,), {n: ((len(a),), dtype) for n in "ab"}, c.body.dtype)
    t = ev.DTYPES[dtype].numpy
    return evaluate(p, {"a": np.array(a, t), "b": np.array(b, t)})["y"].tolist()


def test_integer_semantics():
    assert pairs("floordiv", [-7, 7, -7], [2, -2, -2], "i64") == [-4, -4, 3]
    assert pairs("mod", [-7, 7, -7], [2, -2, -2], "i64") == [1, -1, -1]
    assert pairs("div", [-7, 7, -7, 6], [2, -2, -2, 3], "i32") == [-3, -3, 3, 2]
    assert pairs("add", [127], [1], "i8") == [-128]
    assert pairs("mul", [2 ** 31 - 1], [2], "i32") == [-2]
    assert pairs("pow", [2, -1, 5, 1], [10, -3, -1, -2], "i64") == [1024, -1, 0, 1]
    assert pairs("mod", [-7.5], [2], "f32") == [-1.5]
    assert pairs("shr", [200], [3], "u8") == [25]
    assert pairs("max", [1.0, math.nan], [math.nan, 2.0], "f32") != [1.0, 2.0]


def test_casts_truncate_and_wrap():
    i = ax("i", 4)
    for to, want in (("i32", [-1, 2, 300, 0]), ("u8", [255, 2, 44, 0]), ("bool", [1, 1, 1, 0])):
        c = Compute(("y",), (i,), (), "none", Cast(to, Load("x", (i,), "f32")))
        x = np.array([-1.9, 2.9, 300.5, 0], np.float32)
        y = evaluate(one(c, (i.extent,), {"x": ((4,), "f32")}, to), {"x": x})["y"]
        np.testing.assert_array_equal(y, want)


def test_reshape_is_a_view_and_right():
    i, j = ax("i", 4), ax("j", 6)
    flat = i * 6 + j
    c = Compute(("y",), (i, j), (), "none", Load("x", (flat // 8, flat % 8), "f32"))
    x = f32(3, 8)
    y = evaluate(one(c, (i.extent, j.extent), {"x": ((3, 8), "f32")}), {"x": x})["y"]
    np.testing.assert_array_equal(y, x.reshape(4, 6))


def test_sum_over_an_axis_no_factor_has():
    i, k, q = ax("i", 3), ax("k", 4), ax("q", 5)
    c = Compute(("y",), (i,), (k, q), "sum", Load("x", (i, k), "f32") * Const(0.5, "f32"))
    x = f32(3, 4)
    y = evaluate(one(c, (Const(3),), {"x": ((3, 4), "f32")}), {"x": x})["y"]
    np.testing.assert_allclose(y, 2.5 * x.sum(1), rtol=1e-5)


def test_quantised_product_accumulates_in_i32():
    i, k = ax("i", 3), ax("k", 300)
    body = Cast("i32", Load("x", (i, k), "u8")) * Cast("i32", Load("w", (k,), "i8"))
    c = Compute(("y",), (i,), (k,), "sum", body, acc="i32")
    x = RNG.integers(0, 256, (3, 300), dtype=np.uint8)
    w = RNG.integers(-128, 128, 300, dtype=np.int8)
    p = one(c, (Const(3),), {"x": ((3, 300), "u8"), "w": ((300,), "i8")}, "i32")
    np.testing.assert_array_equal(evaluate(p, {"x": x, "w": w})["y"],
                                  x.astype(np.int64) @ w.astype(np.int64))


def test_entry_checks_and_library_calls():
    s, i = Sym("n", 1, 9), ax("i", Sym("n", 1, 9))
    c = Compute(("y",), (i,), (), "none", Load("x", (i,), "f32"))
    p = one(c, (s,), {"x": ((s,), "f32")}, syms=(s,),
            checks=(Check(compare("eq", s % 2, Const(0)), "Split_3 halves it"),))
    assert evaluate(p, {"x": f32(4)})["y"].shape == (4,)
    with pytest.raises(FaultError, match="Split_3"):
        evaluate(p, {"x": f32(3)})
    bufs = {"x": Buffer("x", (s,), "f32", "input"), "y": Buffer("y", (s,), "f32", "output")}
    p = Program("sort", ("x",), ("y",), bufs, {}, (LibCall("sort", (), ("x",), ("y",)),), (s,))
    with pytest.raises(UnsupportedError, match="sort"):
        evaluate(p, {"x": f32(3)})
    x = f32(5)
    out = evaluate(p, {"x": x}, libcalls={"sort": lambda attrs, xs, shapes: [np.sort(xs[0])]})
    np.testing.assert_array_equal(out["y"], np.sort(x))


def test_zeros_of_both_signs_and_nan_are_told_apart():
    assert Const(0.0, "f32") != Const(-0.0, "f32")
    assert Const(math.nan, "f32") == Const(float("nan"), "f32")
    i = ax("i", 1)
    x = Load("x", (i,), "f32")
    copysign = Where(compare("lt", x, Const(0, "f32")), Const(-0.0, "f32"), Const(0.0, "f32"))
    p = one(Compute(("y",), (i,), (), "none", Const(1, "f32") / copysign), (Const(1),),
            {"x": ((1,), "f32")})
    for value, want in ((-1, -math.inf), (1, math.inf)):
        assert evaluate(p, {"x": np.array([value], np.float32)})["y"][0] == want
