"""Programs of quantised products and roundings, for tests of the passes over them."""

import numpy as np
from te_programs import Maker, ax

from aotc.ir.expr import Cast, Const, Unary, Where, all_hold, compare, maximum, minimum
from aotc.oracle.check_program import check_program
from aotc.passes.fold import fold_constants
from aotc.passes.quantised.products import integer_products
from aotc.passes.quantised.read import inline_dequantised
from aotc.passes.requantise import requantise


def f32(v):
    return Const(v, "f32")


def real(m, name, zero, scale, *index):
    """A step that dequantises ``name``; zero and scale are names of buffers or None."""
    axes = [ax(f"d{k}", e) for k, e in enumerate(m.buffers[name].shape)]
    e = Cast("i32", m.ref(name, *axes))
    if zero is not None:
        e = e - Cast("i32", m.ref(zero, *([axes[0]] if m.buffers[zero].shape else [])))
    s = m.ref(scale, *([axes[0]] if m.buffers[scale].shape else []))
    return m.step(f"{name}_real", axes, Cast("f32", e) * s)


def quantised(m, name, source, scale, zero, dtype="u8"):
    """A step that quantises ``source`` with numbers."""
    low, high = (0, 255) if dtype == "u8" else (-128, 127)

    def body(x, axes):
        e = Unary("round", x / f32(scale)) + f32(zero)
        return Cast(dtype, minimum(maximum(e, f32(low)), f32(high)))
    return m.pointwise(name, source, body)


def whole(p, rows=True):
    """The passes in the pipeline's order."""
    p = fold_constants(integer_products(p, rows))
    assert not check_program(p)
    p = requantise(fold_constants(inline_dequantised(p)))
    assert not check_program(p)
    return fold_constants(p)


def scalar(m, name, value, dtype):
    return m.const(name, np.array(value, dtype))


def product(weight="i8", zero_x=7, zero_w=0, per_channel=True, source="u8", pad=0, turned=False):
    """x f32[2, 4, 9] -> quantised -> convolution over 3 taps with 5 outputs -> f32[2, 5, 7]."""
    rng = np.random.default_rng(3)
    m = Maker()
    m.input("x", 2, 4, 9)
    quantised(m, "q", "x", 0.03, zero_x, source)
    low = np.iinfo(weight).min if weight == "i8" else 0
    weights = rng.integers(low, low + 256, (5, 4, 3)).astype(
        {"i8": np.int8, "u8": np.uint8}[weight])
    if turned:  # twice on the way
        m.const("w_stored", weights.transpose(2, 0, 1).copy())
        a, d, e = ax("a", 4), ax("d", 5), ax("e", 3)
        m.step("w_half", (a, d, e), m.ref("w_stored", e, d, a))
        m.step("w", (d, a, e), m.ref("w_half", a, d, e))
    else:
        m.const("w", weights)
    scalar(m, "zx", zero_x, np.int8 if source == "i8" else np.uint8)
    scalar(m, "sx", 0.03, np.float32)
    many = np.int8 if weight == "i8" else np.uint8
    zeros = np.full(5, zero_w, many) if per_channel else np.array(zero_w, many)
    scales = np.float32(0.01) * (1 + np.arange(5, dtype=np.float32))
    m.const("zw", zeros)
    m.const("sw", scales if per_channel else np.array(0.01, np.float32))
    real(m, "q", "zx", "sx")
    real(m, "w", "zw", "sw")
    n, o, c, t = ax("n", 2), ax("o", 5), ax("c", 4), ax("t", 3)
    i = ax("i", 7 + 2 * pad)
    at = i + t - pad
    value = m.ref("q_real", n, c, at)
    if pad:
        value = Where(all_hold([compare("ge", at, 0), compare("lt", at, 9)]), value, f32(0))
    m.step("y", (n, o, i), value * m.ref("w_real", o, c, t), (c, t), "sum")
    return m


def add_biased(m, bias, residual=False, relu=False):
    """y + bias (+ the quantised input's own channels), maybe ReLU, rounded to u8."""
    m.const("b", bias)
    n, o, i = ax("n", 2), ax("o", 5), ax("i", 7)
    e = m.ref("y", n, o, i) + m.ref("b", o)
    if residual:
        quantised(m, "r", "y", 0.5, 100)
        e = (Cast("f32", Cast("i32", m.ref("r", n, o, i)) - Const(100, "i32")) * f32(0.5)
             + Cast("f32", Cast("i32", m.ref("r", n, o, i)) - Const(90, "i32")) * f32(0.25))
    e = maximum(e, f32(0)) if relu else e
    m.step("t", (n, o, i), e)
    return quantised(m, "z", "t", 0.7, 11)


def with_bias(m, bias, relu=False, residual=False):
    add_biased(m, bias.astype(np.float32), residual, relu)
    return m
