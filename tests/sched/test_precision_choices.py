"""Which products are rounded, and what the rate of their rows decides."""

from dataclasses import replace

import numpy as np
import pytest
from te_programs import Maker, ax, conv2d

from aotc.ir.category import BF16_PRODUCT
from aotc.ir.schedule import Schedule
from aotc.oracle.evaluate import evaluate
from aotc.oracle.shares import share_of_range
from aotc.passes.precision.narrow_operands import candidates, faults_of
from aotc.passes.precision.rounding_table import ROUNDING
from aotc.passes.rewrites import apply_rewrites
from aotc.passes.winograd import stages_of_forms
from aotc.sched import check_schedule, decide
from aotc.sched.choose.precision import choose_precision
from aotc.sched.cost.product_rows import pick_row
from aotc.sched.precision.levels import Level
from aotc.target import TARGETS

TARGET = TARGETS["x86-64-v4-bf16"]


def product(depth=24, columns=40, constant=True, rows=9):
    """y f32[rows, columns] = x f32[rows, depth] * w f32[depth, columns]."""
    m = Maker()
    m.input("x", rows, depth)
    if constant:
        m.const("w", np.ones((depth, columns), np.float32))
    else:
        m.input("w", depth, columns)
    i, j, k = ax("i", rows), ax("j", columns), ax("k", depth)
    m.step("y", (i, j), m.ref("x", i, k) * m.ref("w", k, j), (k,), "sum")
    return m.done("y")


def with_rate(rate):
    tuning = replace(TARGET.tuning, narrow_rate=rate)
    return replace(TARGET, machine=replace(TARGET.machine, tuning=tuning))


@pytest.mark.parametrize("program, chosen", [
    (product(), True), (product(depth=7), False), (product(depth=9), True),
    (product(columns=15), False), (product(constant=False), False),
    (product(constant=False, rows=90), True)])
def test_products_with_work_enough_are_rounded(program, chosen):
    assert bool(choose_precision(program, TARGET, "bf16")) == chosen
    assert not choose_precision(program, TARGET, "f32")
    assert candidates(program) == ("y",)


def test_columns_that_are_packed_must_save_more_than_that_takes():
    """Where rows of bf16 are no faster, two computed tensors stay f32."""
    program = product(constant=False, rows=90)
    assert not choose_precision(program, with_rate(1.0), "bf16")
    assert not choose_precision(program, TARGETS["c"], "bf16")
    schedule = decide(program, TARGET, precision="bf16")
    assert not check_schedule(program, schedule, TARGET)
    choice = next(g.choices["y"] for g in schedule.groups if "y" in g.choices)
    assert choice.b == "packed"
    wrong = replace(schedule, groups=tuple(
        replace(g, choices=g.choices | {"y": replace(choice, b="panel")})
        if "y" in g.choices else g for g in schedule.groups))
    assert any("use packed" in f for f in check_schedule(program, wrong, TARGET))


@pytest.mark.parametrize("target, stored", [
    (TARGET, "bf16"), (TARGETS["c"], "bf16"), (with_rate(0.5), "f32"), (TARGETS["riscv64"], "f32")])
def test_slow_rows_and_none_store_f32(target, stored):
    program = product()
    (rule, name, parameters), = choose_precision(program, target, "bf16")
    assert (rule, name, parameters) == ("narrow", "y", {"dtype": "bf16", "stored": stored})
    schedule = decide(program, target, precision="bf16")
    assert schedule.precision == "bf16" and not check_schedule(program, schedule, target)
    rewritten = apply_rewrites(program, schedule.rewrites)
    assert rewritten.dtype("w_bf16") == stored
    rows = {r for g in schedule.groups for r in g.rows.values()}
    assert any(r.startswith("dot_bf16_" if stored == "bf16" else "contraction_f32_") for r in rows)
    assert Schedule.from_json(schedule.to_json()) == schedule


def test_products_that_read_one_tensor_share_its_copy():
    m = Maker()
    m.input("x", 9, 24)
    i, k = ax("i", 9), ax("k", 24)
    for n in (32, 48):
        m.const(f"w{n}", np.ones((24, n), np.float32))
        j = ax("j", n)
        m.step(f"y{n}", (i, j), m.ref("x", i, k) * m.ref(f"w{n}", k, j), (k,), "sum")
    program = m.done("y32", "y48")
    after = apply_rewrites(program, choose_precision(program, TARGET, "bf16"))
    assert [n for n, b in after.buffers.items() if b.dtype == "bf16" and b.role == "temp"] == [
        "x_bf16"]
    assert set(after.consts) == {"w32_bf16", "w48_bf16"}


def test_costs_reckon_with_the_rows_that_will_run():
    pairs = [u for u in TARGET.rows("dot") if u.takes(BF16_PRODUCT)]
    assert pick_row(TARGET, 90, 64, pairs).name.startswith("dot_bf16_")
    assert pick_row(TARGET, 90, 64).name.startswith("contraction_f32_")
    assert pick_row(TARGETS["riscv64"], 90, 64, []).category == "contraction"


def test_wrong_parameters_are_named():
    for parameters in ({}, {"dtype": "u8", "stored": "f32"}, {"dtype": "bf16", "stored": "u8"}):
        assert "parameters are" in faults_of(product(), "y", parameters)[0]
    for dtype, stored in (("f16", "f32"), ("tf32", "bits"), ("bf16", "f16")):
        fault, = faults_of(product(), "y", {"dtype": dtype, "stored": stored})
        assert f"stored '{stored}'; {dtype} is stored as" in fault
    assert "choose from y" in faults_of(product(), "x", {"dtype": "bf16", "stored": "f32"})[0]


def convolutions(layers=2, channels=64, size=14):
    """y f32[1, channels, size, size]: convolutions "c0", "c1", .. of a tensor that a product
    makes."""
    m, rng = Maker(), np.random.default_rng(4)
    m.input("x", 1, 8, size, size)
    last = conv2d(m, "t", "x", m.const("v", rng.standard_normal(
        (channels, 8, 1, 1)).astype(np.float32)), 1, 0)
    for i in range(layers):
        w = rng.standard_normal((channels, channels, 3, 3)).astype(np.float32)
        last = conv2d(m, f"c{i}", last, m.const(f"w{i}", w / 24), 1, 1)
    return m.done(last)


@pytest.mark.parametrize("target, precision, levels, formed", [
    (with_rate(1.0), "bf16", None, True), (with_rate(9.0), "bf16", None, False),
    (with_rate(0.5), "bf16", None, True), (with_rate(1.0), "f32", "bf16", True),
    (TARGET, "f16", None, True), (TARGET, "int8w", None, True), (TARGET, "int4w", None, True)])
def test_a_convolution_has_a_form_in_f32_or_is_rounded(target, precision, levels, formed):
    """Whichever takes less time; the transforms would magnify roundings between them, so that the
    error is that of what is rounded beside the forms."""
    program = convolutions()
    own = levels and {s.outs[0]: Level(levels) for s in program.steps}
    schedule = decide(program, target, winograd="auto", precision=precision, levels=own)
    assert not check_schedule(program, schedule, target)
    forms = tuple(r for r in schedule.rewrites if r[0] == "winograd")
    rounded = tuple(r for r in schedule.rewrites if r[0] in ROUNDING)
    made = apply_rewrites(program, schedule.rewrites)
    assert {c for _, c, _ in forms} == ({"c0", "c1"} if formed else set())
    assert stages_of_forms(made).keys().isdisjoint(c for _, c, _ in rounded)
    assert precision not in ("bf16", "f16") or "t" in {c for _, c, _ in rounded}
    x = {"x": np.random.default_rng(5).standard_normal((1, 8, 14, 14)).astype(np.float32)}
    want, = evaluate(program, x).values()
    direct, = evaluate(apply_rewrites(program, rounded), x).values()
    got, = evaluate(made, x).values()
    assert share_of_range(got, want) <= 1.2 * share_of_range(direct, want) + 1e-6
