"""Levels of precision on GPUs: what is rounded for them, in which types it is stored, on which rows
it is multiplied, and what is refused."""

import warnings
from dataclasses import replace

import numpy as np
import onnx
import pytest
from attention_model import attention
from cusim_build import needs_cxx
from te_programs import Maker, ax

import aotc
from aotc.as_asked import find_precisions
from aotc.ir.dtypes import BF16, TF32, holds, to_tf32
from aotc.ir.kernel.plan_stages import Contract
from aotc.ir.numbers.narrow import is_tf32, round_tf32
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.oracle.shares import share_of_range
from aotc.passes.rewrites import apply_schedule_rewrites
from aotc.pipeline import run_pipeline
from aotc.sched import check_schedule, decide
from aotc.target import get_target
from aotc.target.kernel_rows import ProductRow
from aotc.tools.peers import open_reference

TARGET = get_target("cuda:sm_90")
X = np.random.default_rng(5).standard_normal((40, 64)).astype(np.float32)


def until(stage, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run_pipeline(Options(source=attention(40), target=TARGET.name, name="net",
                                    stop_after=stage, **options))


def rows_of(plan, target=TARGET):
    return {target.product_row(s.row).a for k in plan.kernels for s in k.lowered.stages
            if isinstance(s, Contract)}


@pytest.fixture(scope="module")
def exact(tmp_path_factory):
    """The output of the model in f32, of another runtime."""
    file = tmp_path_factory.mktemp("exact") / "net.onnx"
    onnx.save(attention(40), file)
    return open_reference(file)[1]({"x": X})["y"].astype("f8")


@needs_cxx
@pytest.mark.parametrize("precision, limit", [("bf16", 1e-2), ("int8w", 1e-2), ("int4w", 2e-1)])
def test_a_level_rounds_what_its_rewrites_say(precision, limit, exact, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bundle = aotc.compile(attention(40), tmp_path / "b", target=TARGET.name, name="net",
                              precision=precision)
    work = until("schedule", precision=precision)
    assert work.schedule.precision == precision == bundle.manifest["precision"]
    got = bundle.load(simulate=True).run({"x": X})["y"].astype("f8")
    rounded = evaluate(apply_schedule_rewrites(work.program, work.schedule), {"x": X})["y"]
    assert share_of_range(got, rounded.astype("f8")) < 2e-4
    assert 0 < share_of_range(got, exact) < limit


def test_bf16_is_stored_and_multiplied_as_such():
    """Weights, and what products alone read; products of two computed tensors, too."""
    plan = until("plan", precision=BF16).plan
    assert rows_of(plan) == {BF16}
    assert {p.dtype for p in plan.places if p.storage == "weights"} == {BF16}
    assert sum(p.dtype == BF16 for p in plan.places if p.storage == "arena") == 6


def test_without_a_level_everything_is_f32():
    plan = until("plan").plan
    assert rows_of(plan) == {"f32"} and {p.dtype for p in plan.places} == {"f32"}


@needs_cxx
def test_auto_keeps_its_budget(exact, tmp_path):
    """Of a budget that allows some rounding, and of one that allows none."""
    for budget in (1e-2, 1e-7):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            bundle = aotc.compile(attention(40), tmp_path / f"{budget}", target=TARGET.name,
                                  name="net", precision="auto", error=budget)
        got = bundle.load(simulate=True).run({"x": X})["y"].astype("f8")
        assert share_of_range(got, exact) < max(budget, 1e-5)
    work = until("schedule", precision="auto", error=1e-7)
    assert work.schedule.precision == "f32" and not work.narrowed.levels


def test_auto_takes_nothing_that_is_predicted_to_be_slower():
    narrowed = until("schedule", precision="auto", error=0.3).narrowed
    assert narrowed.seconds <= narrowed.exact_seconds


# ---------------------------------------------------------------- tf32

def test_tf32_is_rounded_to_the_nearest_halves_away_from_zero():
    """Bits against arithmetic in double precision; NaN and infinities; what an expression says."""
    rng = np.random.default_rng()
    x = rng.integers(0, 1 << 32, 5000, dtype=np.uint32).view(np.float32)
    x[:6] = np.inf, -np.inf, np.nan, 0.0, -0.0, np.float32(1 + 2**-11)  # the last: half a step
    got = to_tf32(x)
    finite = np.isfinite(x) & (np.abs(x) > 2.0**-126) & (np.abs(x) < 2.0**127)
    step = np.exp2(np.floor(np.log2(np.abs(x[finite]).astype("f8"))) - 10)
    near = np.sign(x[finite]) * np.floor(np.abs(x[finite]).astype("f8") / step + 0.5) * step
    assert np.array_equal(got[finite].astype("f8"), near)
    assert np.array_equal(got[:5], x[:5], equal_nan=True) and got[5] == 1 + 2.0**-10
    assert holds(TF32, got[finite]) and not holds(TF32, x)
    m, i = Maker("rounded"), ax("i", len(x))
    m.input("x", len(x))
    m.step("y", (i,), round_tf32(m.ref("x", i)))
    assert is_tf32(round_tf32(m.ref("x", i))) and not is_tf32(m.ref("x", i))
    assert np.array_equal(evaluate(m.done("y"), {"x": x})["y"], got, equal_nan=True)


def test_tf32_is_offered_where_rows_multiply_it():
    assert find_precisions(TARGET) == ("f32", TF32, BF16, "f16", "int8w", "int4w", "auto")
    without = replace(TARGET, ukernels=tuple(
        u for u in TARGET.ukernels if not isinstance(u, ProductRow) or u.a != TF32))
    assert TF32 not in find_precisions(without)


def test_products_of_tf32_get_its_rows_and_nothing_else_is_rounded():
    """Where it is asked for; results move by 2^-11 of each operand."""
    program = until("inline").program

    def rows_chosen(schedule):
        names = {c.row for g in schedule.groups for c in g.choices.values()}
        return {u.a for u in TARGET.rows("contraction") if u.name in names}
    assert rows_chosen(decide(program, TARGET)) == {"f32"}
    schedule = decide(program, TARGET, precision=TF32)
    assert schedule.precision == TF32 and rows_chosen(schedule) == {TF32}
    narrowed = [p for rule, _, p in schedule.rewrites if rule == "narrow"]
    assert narrowed == [{"dtype": TF32, "stored": "f32"}] * 6
    rounded = apply_schedule_rewrites(program, schedule)
    copies = [b for b in rounded.buffers if b.endswith(TF32)]
    assert {rounded.dtype(b) for b in copies} == {"f32"}
    assert all(holds(TF32, rounded.consts[b]) for b in copies if b in rounded.consts)
    got, whole = (evaluate(p, {"x": X})["y"].astype("f8") for p in (rounded, program))
    assert 1e-6 < share_of_range(got, whole) < 2e-3


@needs_cxx
def test_products_of_tf32_are_right_in_the_simulator(tmp_path, exact):
    bundle = aotc.compile(attention(40), tmp_path / "b", target=TARGET.name, name="net",
                          precision=TF32)
    got = bundle.load(simulate=True).run({"x": X})["y"]
    assert 1e-6 < share_of_range(got, exact) < 2e-3
    text = "".join(f.read_text() for f in (tmp_path / "b").glob("*_kernels_*.cu"))
    assert "aotc_mma_m16n8k8_tf32f32" in text and "aotc_to_tf32" not in text  # rounded already


def test_what_a_schedule_cannot_round_to_is_refused():
    work = until("schedule", precision=BF16)
    rule, name, said = next(r for r in work.schedule.rewrites if r[0] == "narrow")
    wrong = replace(work.schedule, rewrites=((rule, name, {"dtype": TF32, "stored": "bits"}),))
    assert f"rewrites: narrow {name}: stored 'bits'; tf32 is stored as 'f32'" in check_schedule(
        work.program, wrong, TARGET)
    found = check_schedule(work.program, work.schedule, get_target("x86-64-v3"))
    assert found[0] == (f"rewrites: narrow {name}: x86-64-v3 has no products that read bf16 as it "
                        "is stored; choose stored 'f32'")
    assert said == {"dtype": BF16, "stored": "bits"}


