"""Sigmoids and scaled erf, tanh: found by structure, left alone where functions must be exact."""

import re
from dataclasses import replace

import pytest
from c_text import unbroken
from te_programs import Maker, ax

from aotc.emit.bundle.variants import EMITTERS
from aotc.ir.expr import Const, Unary
from aotc.sched import decide, lower
from aotc.target import get_target


def const(value):
    return Const(value, "f32")


ONE, ROOT = const(1.0), const(1.4142135)


def text_of(value, target="x86-64-v3", math=None):
    """C text of a kernel y[i] = value(x[i])."""
    m = Maker("forms")
    m.input("x", 64)
    i = ax("i", 64)
    m.step("y", (i,), value(m.ref("x", i)))
    program, target = m.done("y"), get_target(target)
    schedule = decide(program, target)
    plan = lower(program, replace(schedule, math=math or schedule.math), target)
    files = EMITTERS[target.emitter](plan, target)
    return unbroken("\n".join(t for n, t in files.items() if n.endswith(".c")))


def exp_of_minus(x):
    return Unary("exp", Unary("neg", x))


SIGMOIDS = {"sum": lambda x: ONE / (ONE + exp_of_minus(x)),
            "turned": lambda x: ONE / (exp_of_minus(x) + ONE),
            "gate": lambda x: x * (ONE / (ONE + exp_of_minus(x * const(1.702))))}
OTHERS = {"no sum": lambda x: ONE / exp_of_minus(x),
          "not negated": lambda x: ONE / (ONE + Unary("exp", x)),
          "two": lambda x: const(2.0) / (ONE + exp_of_minus(x)),
          "two in the sum": lambda x: ONE / (const(2.0) + exp_of_minus(x)),
          "used again": lambda x: exp_of_minus(x) / (ONE + exp_of_minus(x)) + (
              ONE / (ONE + exp_of_minus(x)))}


@pytest.mark.parametrize("name", SIGMOIDS)
def test_a_sigmoid_is_one_function(name):
    text = text_of(SIGMOIDS[name])
    assert "aotc_vsigmoid(" in text and "aotc_vexp(" not in text


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_sigmoid_or_needs_its_parts_is_none(name):
    text = text_of(OTHERS[name])
    assert "aotc_vsigmoid(" not in text and "aotc_vexp(" in text


@pytest.mark.parametrize("name", ["erf", "tanh"])
@pytest.mark.parametrize("value, scale", [
    (lambda x: x / ROOT, 1 / 1.4142135), (lambda x: x * const(0.7), 0.7),
    (lambda x: const(0.7) * x, 0.7)], ids=["quotient", "product", "turned"])
def test_a_constant_factor_goes_into_the_coefficients(name, value, scale):
    found = re.search(rf"aotc_v{name}_scaled\((.*), ([\d.]+)\)", text_of(
        lambda x: Unary(name, value(x))))
    assert float(found[2]) == pytest.approx(scale, rel=1e-6)
    assert " * " not in found[1] and "/" not in found[1]


@pytest.mark.parametrize("scale", [-1.0, 0.0, 1e-3, 1e3, float("inf"), float("nan")])
def test_other_factors_stay_outside(scale):
    assert "_scaled(" not in text_of(lambda x: Unary("erf", x * const(scale)))
    assert "_scaled(" not in text_of(lambda x: Unary("erf", x / const(scale)))


@pytest.mark.parametrize("target, math", [("x86-64-v3", "exact"), ("c", None), ("riscv64", None)])
def test_exact_functions_and_targets_without_them_keep_the_parts(target, math):
    text = text_of(SIGMOIDS["sum"], target, math) + text_of(
        lambda x: Unary("erf", x / ROOT), target, math)
    assert "vsigmoid(" not in text and "_scaled(" not in text
