"""Rounding to 8 bits in integers: within a quantum of the same in floats, for random and extreme
sums, and the arithmetic of the runtime, bit for bit."""

import ctypes
import subprocess

import numpy as np
import pytest
from quantised_programs import f32, product, quantised, whole, with_bias
from te_programs import Maker, ax

from aotc.installed import runtime_c
from aotc.ir.expr import Cast, Const, Unary, Where, all_hold, compare, maximum, minimum, walk
from aotc.ir.numbers.fixed_point import is_fixed, rescale
from aotc.oracle.check_program import check_program
from aotc.oracle.evaluate import evaluate
from aotc.passes.fold import fold_constants
from aotc.passes.quantised.integer_rounding import round_in_integers, sum_integers
from aotc.passes.quantised.products import integer_products
from aotc.passes.quantised.read import inline_dequantised
from aotc.passes.requantise import requantise
from aotc.runtime.compile_bundle import find_compiler

EXTREMES = [0, 1, -1, 2, -2, 127, 128, 255, 1 << 15, -(1 << 15), (1 << 24) - 1, 1 << 24,
            (1 << 29) - 1, -(1 << 29)]


def in_integers(p):
    p = fold_constants(integer_products(p, True, True))
    assert not check_program(p)
    p = sum_integers(fold_constants(inline_dequantised(p)))
    p = fold_constants(round_in_integers(requantise(p, chains=True)))
    assert not check_program(p)
    return p


def no_floats(step):
    return not any(n.dtype in ("f32", "f64") for n in walk(step.body))


@pytest.mark.parametrize("dtype, low, zero", [("u8", 0, 0), ("u8", 0, 113), ("i8", -128, -7)])
@pytest.mark.parametrize("ratios", [[0.3], [0.9, 0.001], [2e-4, 3e-5, 7e-4], [1e-6], [0.49999]])
def test_a_scaled_sum_is_rounded_within_a_quantum(ratios, dtype, low, zero):
    """Sums that fill the range of the result, beyond it, and the largest ones there are."""
    rng, n = np.random.default_rng(7), len(ratios)
    ratio = np.array(ratios, np.float32)
    reach = 300 / ratio.max()
    sums = np.concatenate([rng.integers(-int(reach), int(reach) + 1, 3000), EXTREMES])
    m = Maker()
    m.input("t", sums.size, n, dtype="i32")
    m.const("r", ratio)
    i, c = ax("i", sums.size), ax("c", n)
    e = Cast("f32", m.ref("t", i, c)) * (m.ref("r", c) if n > 1 else f32(float(ratio[0])))
    e = Unary("round", e) + f32(zero) if zero else Unary("round", e)
    m.step("z", (i, c), Cast(dtype, minimum(maximum(e, f32(low)), f32(low + 255))))
    p = m.done("z")
    new = round_in_integers(p)
    assert not check_program(new)
    step, = new.steps
    assert is_fixed(step.body) and no_floats(step)
    feeds = {"t": np.broadcast_to(sums[:, None], (sums.size, n)).astype(np.int32).copy()}
    got = evaluate(new, feeds)["z"].astype(int)
    exact = np.clip(feeds["t"] * ratio.astype(np.float64) + zero, low, low + 255)
    assert np.abs(got - exact).max() <= 0.5 + 0.011
    assert np.abs(got - evaluate(p, feeds)["z"]).max() <= 1


@pytest.mark.parametrize("ratios", [[1.5], [0.5, 1e-7]])
def test_what_would_be_further_off_stays_float(ratios):
    m = Maker()
    m.input("t", 4, 2, dtype="i32")
    m.const("r", np.array((ratios * 2)[:2], np.float32))
    i, c = ax("i", 4), ax("c", 2)
    e = Unary("round", Cast("f32", m.ref("t", i, c)) * m.ref("r", c))
    m.step("z", (i, c), Cast("u8", minimum(maximum(e, f32(0)), f32(255))))
    p = m.done("z")
    assert round_in_integers(p).steps == p.steps


@pytest.mark.parametrize("known", [False, True])
def test_a_number_is_added_in_integers_where_both_surely_fit(known):
    """Of an i32 whose size nothing bounds, the sum may be beyond 32 bits: it stays a float."""
    m = Maker()
    m.input("t", 40, dtype="u8" if known else "i32")
    i, t = ax("i", 40), m.ref("t", ax("i", 40))
    e = Cast("f32", Cast("i32", t) * Const(999, "i32") if known else t) * f32(1 / 64) + f32(77.0)
    m.step("z", (i,), Cast("u8", minimum(maximum(Unary("round", e), f32(0)), f32(255))))
    p = m.done("z")
    assert (round_in_integers(p).steps != p.steps) == known


@pytest.mark.parametrize("residual, relu", [(False, False), (False, True), (True, True)])
@pytest.mark.parametrize("bias", [[3, -400, 0, 7, 1 << 20], [0.123, 0.456, -3, 8, 0]])
def test_a_layer_is_integers_from_sum_to_result(bias, residual, relu):
    scales = np.float32(0.03) * (np.float32(0.01) * (1 + np.arange(5, dtype=np.float32)))
    p = with_bias(product(), np.array(bias, np.float32) * scales, relu, residual).done("z")
    new, floats = in_integers(p), whole(p)
    x = np.random.default_rng(5).standard_normal((2, 4, 9)).astype(np.float32) * 3
    a, b = evaluate(floats, {"x": x})["z"], evaluate(new, {"x": x})["z"]
    assert np.abs(a.astype(int) - b).max() <= 1
    assert no_floats(new.producer["z"])


@pytest.mark.parametrize("pad", [0, 1])
def test_an_average_is_a_sum_of_integers(pad):
    m = Maker()
    m.input("x", 3, 40)
    quantised(m, "q", "x", 0.03, 7)
    n, i, t = ax("n", 3), ax("i", 40 - 8 + 2 * pad), ax("t", 9)
    e = (Cast("f32", m.ref("q", n, i + t - pad)) - f32(7)) * f32(0.03)
    inside = all_hold([compare("ge", i + t - pad, 0), compare("lt", i + t - pad, 40)])
    m.step("s", (n, i), Where(inside, e, f32(0)) if pad else e, (t,), "sum")
    m.step("a", (n, i), m.ref("s", n, i) * f32(1 / 9))
    quantised(m, "z", "a", 0.011, 30)
    p = m.done("z")
    new = in_integers(p)
    x = {"x": np.random.default_rng(1).standard_normal((3, 40)).astype(np.float32)}
    assert np.abs(evaluate(p, x)["z"].astype(int) - evaluate(new, x)["z"]).max() <= 1
    assert all(no_floats(s) for s in new.steps if s.out != "q")


@pytest.mark.parametrize("halves", ["", "-D__thumb__"])  # the second: as where nothing has 64 bits
def test_the_runtime_rescales_as_the_evaluator_does(halves, tmp_path):
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.integers(-2**31, 2**31, 4000), EXTREMES, [2**31 - 1, -2**31]])
    x, m = np.meshgrid(x, [1 << 30, (1 << 31) - 1, 1518500250, 1 << 15, 65535, 65536])
    x, m = x.ravel().astype(np.int32), m.ravel().astype(np.int32)
    shifts = (31, 32, 33, 38, 47, 62)
    calls = "\n".join(f"        z[{k} * n + i] = aotc_rescale(x[i], m[i], {s});"
                      for k, s in enumerate(shifts))
    (tmp_path / "fixed.c").write_text(f"""
#include "aotc_fixed.h"
void run(const int32_t *x, const int32_t *m, int32_t *z, int64_t n);
void run(const int32_t *x, const int32_t *m, int32_t *z, int64_t n)
{{
    for (int64_t i = 0; i < n; i++) {{
{calls}
    }}
}}
""")
    subprocess.run([*find_compiler(), "-std=c11", "-O2", "-Wall", "-Wextra", "-Wconversion",
                    "-Werror", "-fsanitize=undefined", "-fno-sanitize-recover", "-shared", "-fPIC",
                    *halves.split(), f"-I{runtime_c()}", "fixed.c", "-o", "fixed.so"],
                   cwd=tmp_path, check=True)
    z = np.empty((len(shifts), x.size), np.int32)
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (x, m, z)]
    ctypes.CDLL(str(tmp_path / "fixed.so")).run(*pointers, ctypes.c_int64(x.size))
    maker = Maker()
    maker.input("x", x.size, dtype="i32")
    maker.input("m", x.size, dtype="i32")
    i = ax("i", x.size)
    for shift in shifts:
        maker.step(f"z{shift}", (i,), rescale(maker.ref("x", i), maker.ref("m", i), shift))
    want = evaluate(maker.done(*(f"z{s}" for s in shifts)), {"x": x, "m": m})
    for shift, got in zip(shifts, z, strict=True):
        exact = (x.astype(object) * m + (1 << (shift - 1))) >> shift
        assert np.array_equal(want[f"z{shift}"], exact.astype(np.int64).astype(np.int32))
        assert np.array_equal(got, want[f"z{shift}"]), shift
