"""Constant folding keeps meaning, folds what it should and leaves what it must."""

from dataclasses import replace

import numpy as np
import pytest

from aotc.errors import FaultError
from aotc.ir.expr import Axis, Const, Load, Unary, check_index
from aotc.ir.program import Buffer, Compute, Program, make_const
from aotc.oracle import eval_expr
from aotc.oracle.check_program import check_program
from aotc.oracle.evaluate import evaluate
from aotc.passes.fold import fold_constants, part_constants
from aotc.passes.inline import inline_moves

RNG = np.random.default_rng(1)


def ax(name, n):
    return Axis(name, Const(n))


def build(steps, consts, x=(4, 3), outputs=("y",), dtypes=None):
    bufs = {"x": Buffer("x", tuple(map(Const, x)), "f32", "input")}
    bufs.update({n: make_const(n, a) for n, a in consts.items()})
    for s in steps:
        for o in s.outs:
            role = "output" if o in outputs else "temp"
            bufs[o] = Buffer(o, tuple(a.extent for a in s.axes), s.body.dtype, role)
    p = Program("p", ("x",), outputs, bufs, consts, tuple(steps))
    assert check_program(p) == []
    return p


def folded(p, **kw):
    out = fold_constants(p, **kw)
    assert check_program(out) == []
    x = RNG.standard_normal([d.value for d in p.shape("x")]).astype(np.float32)
    for name, value in evaluate(p, {"x": x}).items():
        np.testing.assert_allclose(evaluate(out, {"x": x})[name], value, rtol=1e-6)
    assert str(fold_constants(out, **kw)) == str(out)
    return out


def scaled(out, w):
    i, j = ax("i", 4), ax("j", 3)
    return Compute((out,), (i, j), (), "none", Load("x", (i, j), "f32") * Load(w, (j,), "f32"))


def test_constant_chain_folds_in_f64():
    j = ax("j", 3)
    var = RNG.random(3).astype(np.float32)
    t = Compute(("t",), (j,), (), "none", Load("var", (j,), "f32") + Load("eps", (Const(0),),
                                                                           "f32"))
    u = Compute(("u",), (j,), (), "none", Unary("sqrt", Load("t", (j,), "f32")))
    p = build([t, u, scaled("y", "u")], {"var": var, "eps": np.array([1e-5], np.float32)})
    out = folded(p)
    assert len(out.steps) == 1 and list(out.consts) == ["u"]


def test_equal_constants_and_computes_merge():
    w = RNG.random(3).astype(np.float32)
    i, k = ax("i", 4), ax("k", 3)
    add = Compute(("y",), (i, k), (), "none",
                  Load("a", (i, k), "f32") + Load("b", (i, k), "f32"))
    p = build([scaled("a", "w"), scaled("b", "v"), add], {"w": w, "v": w.copy()})
    out = folded(p)
    assert len(out.steps) == 2 and list(out.consts) == ["w"]
    assert str(out.steps[-1]) == "y[i, k] = a[i, k] + a[i, k]"


def test_different_bits_do_not_merge():
    w = np.zeros(3, np.float32)
    i, k = ax("i", 4), ax("k", 3)
    add = Compute(("y",), (i, k), (), "none",
                  Load("a", (i, k), "f32") + Load("b", (i, k), "f32"))
    assert len(folded(build([scaled("a", "w"), scaled("b", "v"), add],
                            {"w": w, "v": -w})).consts) == 2


def test_broadcast_of_a_small_constant_stays_small():
    i, j = ax("i", 4096), ax("j", 64)
    t = Compute(("t",), (i, j), (), "none", Load("w", (j,), "f32"))
    y = Compute(("y",), (i, j), (), "none", Load("x", (i, j), "f32") * Load("t", (i, j), "f32"))
    p = build([t, y], {"w": RNG.random(64).astype(np.float32)}, (4096, 64))
    assert list(folded(p).consts) == ["w"]
    assert list(folded(p, limit_bytes=1 << 21).consts) == ["t"]


def test_scalar_becomes_an_expression_and_outputs_are_still_written():
    i, j = ax("i", 4), ax("j", 3)
    y = Compute(("y",), (i, j), (), "none",
                Load("x", (i, j), "f32") * Load("s", (Const(0),), "f32"))
    z = Compute(("z",), (j,), (), "none", Unary("neg", Load("w", (j,), "f32")))
    u = Compute(("u",), (), (), "none", Load("s", (Const(0),), "f32") * Const(2, "f32"))
    consts = {"s": np.array([1.5], np.float32), "w": RNG.random(3).astype(np.float32)}
    out = folded(build([y, z, u], consts, outputs=("y", "z", "u")))
    assert [str(s) for s in out.steps] == ["y[i, j] = x[i, j] * 1.5", "z[j] = z_const[j]",
                                           "u[] = 3.0"]
    assert out.consts["z_const"].tobytes() == (-consts["w"]).tobytes()


def test_constant_index_out_of_range_is_found():
    j = ax("j", 2)
    at = check_index(Load("ids", (j,), "i64"), Const(3))
    t = Compute(("t",), (j,), (), "none", Load("w", (at,), "f32"), origin=("Gather_7",))
    y = Compute(("y",), (j,), (), "none", Load("x", (j,), "f32") + Load("t", (j,), "f32"))
    p = build([t, y], {"ids": np.array([0, 3]), "w": np.ones(3, np.float32)}, (2,))
    with pytest.raises(FaultError, match="Gather_7"):
        fold_constants(p)


def test_packing_a_large_weight_is_one_copy(monkeypatch):
    n, k, b = ax("n", 32), ax("k", 2048), ax("b", 64)
    w = RNG.random((2048, 2048), np.float32)
    pack = Compute(("p",), (n, k, b), (), "none", Load("w", (k, n * 64 + b), "f32"))
    back = Compute(("q",), (ax("c", 2048), ax("d", 2048)), (), "none",
                   Load("p", (ax("d", 2048) // 64, ax("c", 2048), ax("d", 2048) % 64), "f32"))
    y = Compute(("y",), (ax("r", 2048), ax("o", 1)), (), "none",
                Load("q", (ax("r", 2048), ax("o", 1)), "f32")
                + Load("x", (ax("r", 2048), ax("o", 1)), "f32"))
    views = []

    def strided(scope, load, *rest, real=eval_expr._strided):
        view = real(scope, load, *rest)
        if load.buffer == "w":
            views.append(view)
        return view

    monkeypatch.setattr(eval_expr, "_strided", strided)
    out = fold_constants(build([pack, back, y], {"w": w}, (2048, 1)))
    assert views and all(v is not None for v in views)  # packing copies a view, no gather
    assert list(out.consts) == ["w"]


def test_a_transposed_constant_that_is_needed_both_ways_stays_one():
    i, j, k = ax("i", 4), ax("j", 3), ax("k", 5)
    w = RNG.random((5, 3)).astype(np.float32)
    turned = Compute(("t",), (j, k), (), "none", Load("w", (k, j), "f32"))
    product = Compute(("y",), (i, k), (j,), "sum",
                      Load("x", (i, j), "f32") * Load("t", (j, k), "f32"))
    picked = Compute(("z",), (i, j), (), "none",
                     Load("w", (Const(2), j), "f32") + Load("x", (i, j), "f32"))
    both = folded(build([turned, product, picked], {"w": w}, outputs=("y", "z")))
    assert list(both.consts) == ["w"] and len(both.steps) == 3
    merged = fold_constants(inline_moves(both))
    assert list(merged.consts) == ["w"] and [s.out for s in merged.steps] == ["y", "z"]
    # an equal constant under another name is the same constant
    twice = build([turned, product, replace(picked, body=Load(
        "v", (Const(2), j), "f32") + Load("x", (i, j), "f32"))], {"w": w, "v": w.copy()},
        outputs=("y", "z"))
    assert list(folded(twice).consts) == ["w"]
    # with one reader the transposed values are what is stored
    alone = folded(build([turned, product], {"w": w}))
    assert list(alone.consts) == ["t"] and alone.consts["t"].shape == (3, 5)


def test_a_transposed_constant_that_is_computed_folds_too():
    i, j, k = ax("i", 4), ax("j", 3), ax("k", 5)
    w = RNG.random((5, 3)).astype(np.float32)
    doubled = Compute(("d",), (k, j), (), "none", Load("w", (k, j), "f32") * 2.0)
    turned = Compute(("t",), (j, k), (), "none", Load("d", (k, j), "f32"))
    product = Compute(("y",), (i, k), (j,), "sum",
                      Load("x", (i, j), "f32") * Load("t", (j, k), "f32"))
    out = folded(build([doubled, turned, product], {"w": w}))
    assert list(out.consts) == ["t"] and [s.out for s in out.steps] == ["y"]


def test_what_is_read_at_one_place_becomes_a_constant_of_its_own():
    """Directions of a layer: each part has one reader that may lay it out, and what nobody reads is
    gone; a constant that a loop over the dimension reads, too, stays whole."""
    i, j, k = ax("i", 4), ax("j", 5), ax("k", 3)
    w, v = RNG.random((3, 3, 5)).astype(np.float32), RNG.random((3, 5)).astype(np.float32)
    steps = [Compute((out,), (i, j), (k,), "sum", Load("x", (i, k), "f32")
                     * Load("w", (Const(d), k, j), "f32") * Load("v", (at, j), "f32"))
             for out, d, at in (("y", 2, Const(1)), ("z", 0, k))]
    p = build(steps, {"w": w, "v": v}, outputs=("y", "z"))
    out = part_constants(p)
    assert check_program(out) == [] and str(part_constants(out)) == str(out)
    assert {n: a.shape for n, a in out.consts.items()} == {
        "v": (3, 5), "w_2": (1, 3, 5), "w_0": (1, 3, 5)}
    x = RNG.standard_normal((4, 3)).astype(np.float32)
    for name, value in evaluate(p, {"x": x}).items():
        np.testing.assert_array_equal(evaluate(out, {"x": x})[name], value)
