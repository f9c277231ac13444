"""Levels of precision on GPUs: what is rounded for them, in which types it is stored, on which rows
it is multiplied, and what is refused."""

import warnings
from dataclasses import replace

import numpy as np
import onnx
import pytest
from attention_model import attention
from cusim_build import needs_cxx
from gpu_stages import on_simt
from small_models import conv_stack, fire_stack, make_model
from te_programs import Maker, ax

import aotc
from aotc.as_asked import find_precisions
from aotc.ir.dtypes import BF16, HALF, TF32, holds, to_tf32
from aotc.ir.kernel.plan_stages import Contract
from aotc.ir.numbers.narrow import is_tf32, round_tf32
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.oracle.shares import share_of_range
from aotc.passes.rewrites import apply_schedule_rewrites
from aotc.pipeline import run_pipeline
from aotc.sched import check_schedule, decide
from aotc.sched.cost.predict import group_seconds
from aotc.sched.precision.offers import seconds_of
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
@pytest.mark.parametrize("precision, limit", [("bf16", 1e-2), ("f16", 1e-3), ("int8w", 1e-2),
                                              ("int4w", 2e-1)])
def test_a_level_rounds_what_its_rewrites_say(precision, limit, exact, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bundle = aotc.compile(attention(40), tmp_path / "b", target=TARGET.name, name="net",
                              precision=precision)
    work = until("schedule", precision=precision)
    assert work.schedule.precision == precision == bundle.manifest["precision"]
    got = bundle.load(simulate=True).run({"x": X})["y"].astype("f8")
    rounded = evaluate(apply_schedule_rewrites(work.program, work.schedule), {"x": X})["y"]
    # a stream rounds its weights before they are divided by their sum
    beside = {"bf16": 3e-3, "f16": 4e-4}.get(precision, 2e-4)
    assert share_of_range(got, rounded.astype("f8")) < beside
    assert 0 < share_of_range(got, exact) < limit


@pytest.mark.parametrize("dtype", [BF16, HALF])
def test_halves_are_stored_and_multiplied_as_such(dtype):
    """Weights, and what products alone read; products of two computed tensors, too.  Queries, keys
    and values are one product, which rounds x in its block's memory; scores and what becomes of
    them lie nowhere."""
    plan = until("plan", precision=dtype).plan
    assert rows_of(plan) == {dtype}
    assert {p.dtype for p in plan.places if p.storage == "weights"} == {dtype}
    assert sum(p.dtype == dtype for p in plan.places if p.storage == "arena") == 2


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


def test_products_take_the_seconds_of_what_they_became():
    """Parts of sums, and products that are joined, or a budget takes them for nothing."""
    long = make_model([onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
                      {"x": (onnx.TensorProto.FLOAT, [64, 2048])},
                      {"y": (onnx.TensorProto.FLOAT, [64, 64])},
                      {"w": np.ones((2048, 64), np.float32)})
    for model, rule, count in ((long, "split_k", 1), (attention(40), "join_columns", 3)):
        work = run_pipeline(Options(source=model, target=TARGET.name, name="net",
                                    stop_after="schedule"))
        own = [[c, *p.get("with", ())] for r, c, p in work.schedule.rewrites if r == rule]
        assert list(map(len, own)) == [count]
        made = apply_schedule_rewrites(work.program, work.schedule)
        by_group = group_seconds(work.program, work.schedule, TARGET, {})
        found = seconds_of(own[0], work.schedule, made, by_group)
        of = [by_group[g.name] for g in work.schedule.groups
              if count == 1 or f"{own[0][0]}_joined" in g.computes]
        assert sum(found.values()) == pytest.approx(sum(of)) and min(found.values()) > 0


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
    assert narrowed == [{"dtype": TF32, "stored": "f32"}] * 4
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
    before = tuple(r for r in work.schedule.rewrites if r[0] != "narrow")
    wrong = replace(work.schedule, rewrites=(
        *before, (rule, name, {"dtype": TF32, "stored": "bits"})))
    assert f"rewrites: narrow {name}: stored 'bits'; tf32 is stored as 'f32'" in check_schedule(
        work.program, wrong, TARGET)
    found = check_schedule(work.program, work.schedule, get_target("x86-64-v3"))
    assert found[0] == (f"rewrites: narrow {name}: x86-64-v3 has no products that read bf16 as it "
                        "is stored; choose stored 'f32'")
    assert said == {"dtype": BF16, "stored": "bits"}


# ---------------------------------------------------------------- f16

@needs_cxx
@pytest.mark.parametrize("name", ["conv stack", "fire stack"])
def test_convolutions_of_f16_are_right_in_the_simulator(name, tmp_path):
    """A small net against the evaluator, whose first convolution has three channels."""
    model = {"conv stack": lambda: conv_stack(channels=(16, 24)),
             "fire stack": lambda: fire_stack(9, (16, 32), 24)}[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bundle = aotc.compile(model, tmp_path / "b", target=TARGET.name, name="net",
                              precision=HALF)
        work = run_pipeline(Options(source=model, target=TARGET.name, name="net",
                                    stop_after="plan", precision=HALF))
    assert not on_simt(work.plan)
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng().standard_normal(shape).astype(np.float32)
    got = bundle.load(simulate=True).run({"x": x})["y"].astype("f8")
    rounded = evaluate(apply_schedule_rewrites(work.program, work.schedule), {"x": x})["y"]
    whole = evaluate(work.program, {"x": x})["y"].astype("f8")
    assert share_of_range(got, rounded.astype("f8")) < 1e-3
    assert 0 < share_of_range(got, whole) < 3e-3


def matrix(x, w):
    """y = x @ w."""
    return make_model([onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
                      {"x": (onnx.TensorProto.FLOAT, x.shape)},
                      {"y": (onnx.TensorProto.FLOAT, (x.shape[0], w.shape[1]))}, {"w": w})


def numbers(*shape):
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def test_products_that_f16_cannot_hold_keep_f32():
    """Weights beyond its range; a product of few columns keeps its rows, and of two weights of
    one model each has its own."""
    w = numbers(64, 48)
    for value, rules in ((1.0, {"y": "narrow"}), (np.inf, {"y": "narrow"}), (7e4, {})):
        w[3, 5] = value
        work = run_pipeline(Options(source=matrix(numbers(40, 64), w), target=TARGET.name,
                                    name="net", stop_after="plan", precision=HALF))
        assert {name: rule for rule, name, _ in work.schedule.rewrites} == rules, value
        assert rows_of(work.plan) == ({HALF} if rules else {"f32"})
    work = run_pipeline(Options(source=matrix(numbers(40, 64), numbers(64, 12)),
                                target=TARGET.name, name="net", stop_after="plan",
                                precision=HALF))
    assert [rule for rule, *_ in work.schedule.rewrites] == ["halve"]
    wrong = replace(work.schedule, rewrites=(("narrow", "y", {"dtype": HALF, "stored": HALF}),))
    program = run_pipeline(Options(source=matrix(numbers(40, 64), w), target=TARGET.name,
                                   name="net", stop_after="inline")).program
    assert any("beyond 65504, the largest f16" in f for f in check_schedule(
        program, wrong, TARGET))


@pytest.mark.parametrize("dtype", [HALF, BF16])
def test_an_odd_sum_has_whole_panels(dtype):
    """Of weights that tensor cores, and threads of a single row, read by rows."""
    for rows in (1, 40):
        work = run_pipeline(Options(source=matrix(numbers(rows, 77), numbers(77, 50)),
                                    target=TARGET.name, name="net", stop_after="plan",
                                    precision=dtype))
        assert {p.dtype for p in work.plan.places if p.storage == "weights"} == {dtype}


@needs_cxx
@pytest.mark.parametrize("rows", [1, 9, 40])
def test_what_is_beyond_f16_becomes_an_infinity(rows, tmp_path):
    """Of rows, as the conversion does: the largest that rounds to 65504, the least that does not;
    infinities and NaN stay, what is no normal f16 keeps the bits that it has.  A single row is not
    rounded."""
    x, w = numbers(rows, 50), np.abs(numbers(50, 36)) + np.float32(0.1)
    edges = [65519.0, -65519.0, 65520.0, -7e4, np.inf, np.nan, 3e-7, 2e-8]
    x[0, :] = 0
    for i, edge in enumerate(edges):  # of a row each, where there are as many
        x[i % rows, 7 + i] = edge
    bundle = aotc.compile(matrix(x, w), tmp_path / "b", target=TARGET.name, name="net",
                          precision=HALF)
    model = bundle.load(simulate=True)
    with np.errstate(all="ignore"):
        low = (x if rows == 1 else x.astype(np.float16)).astype("f8")
        want = low @ w.astype(np.float16).astype("f8")
        got = model.run({"x": x})["y"].astype("f8")
    assert np.array_equal(np.isnan(got), np.isnan(want))
    finite = np.isfinite(want)
    assert np.array_equal(got[~finite], want[~finite], equal_nan=True)
    assert np.allclose(got[finite], want[finite], rtol=1e-4, atol=1e-3)


def test_auto_refuses_rows_beyond_f16(tmp_path):
    """What its inputs make infinite is not within any budget: tf32 has the range of f32."""
    x, w = numbers(512, 1024), numbers(1024, 1024)
    for scale in (1.0, 1e5):
        np.savez(tmp_path / "x.npz", x=x * np.float32(scale))
        work = run_pipeline(Options(source=matrix(x, w), target=TARGET.name, name="net",
                                    stop_after="schedule", precision="auto", error=2e-2,
                                    inputs=str(tmp_path / "x.npz")))
        found = {str(o.level): o.error for u in work.narrowed.lots for o in u.offers}
        taken = {str(level) for level in work.narrowed.levels.values()}
        assert taken == {HALF if scale == 1 else TF32}
        assert found[HALF] == (None if scale == 1 else np.inf)


@pytest.mark.parametrize("name", ["x86-64-v3", "c", "dsa:stcp920"])
def test_other_targets_round_weights_alone(name):
    target = get_target(name)
    work = run_pipeline(Options(source=matrix(numbers(40, 64), numbers(64, 48)), target=name,
                                name="net", stop_after="schedule", precision=HALF))
    assert [rule for rule, *_ in work.schedule.rewrites] == ["halve"]
    wrong = replace(work.schedule, rewrites=(("narrow", "y", {"dtype": HALF, "stored": HALF}),))
    assert any(f"{name} has no products that read f16 rows" in f
               for f in check_schedule(work.program, wrong, target))


@pytest.mark.zoo
@pytest.mark.parametrize("name", ["bert_tiny", "mobilenet_v2", "resnet18", "squeezenet1_1",
                                  "swin_tiny"])
@pytest.mark.parametrize("dtype", [HALF, BF16])
def test_no_product_of_a_zoo_model_is_left_on_simt(zoo_model, name, dtype):
    """Where f16 or bf16 is asked for of a model in f32."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        work = run_pipeline(Options(source=str(zoo_model(name)), target="cuda:sm_80", name="net",
                                    stop_after="plan", precision=dtype))
    assert not on_simt(work.plan, dtype)
