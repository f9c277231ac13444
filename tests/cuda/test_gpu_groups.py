"""Weights of 8 and 4 bits in groups, in models of f16 and bf16, which bring them or are asked for
them: products of many rows run on tensor cores, and every output is the evaluator's."""

import warnings

import ml_dtypes
import numpy as np
import pytest
from cusim_build import needs_cxx
from half_models import codes, halved
from harness import every
from onnx import TensorProto, helper, numpy_helper
from small_models import make_model

import aotc
from aotc.ir.kernel.plan_stages import Contract, points
from aotc.ir.numbers.grouped import Grouping
from aotc.ir.schedule import WEIGHT_BITS
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.oracle.shares import share_of_range
from aotc.passes.precision.group_weights import round_weights
from aotc.passes.rewrites import apply_schedule_rewrites
from aotc.pipeline import run_pipeline
from aotc.target import get_target
from benchmarks.decoder_models import Sizes, llama
from benchmarks.gpu.nets import NETS
from benchmarks.low_precision_cases import in_groups

TARGET = get_target("cuda:sm_80")
FEW = 16  # rows of a product that tensor cores are not for
KINDS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
MOST = {"f16": 2e-3, "bf16": 1.5e-2}  # of a result's range, which is rounded last
node, rng = helper.make_node, np.random.default_rng


def until(stage, model, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run_pipeline(Options(source=model, target=TARGET.name, name="net",
                                    stop_after=stage, **options))


def products(model, **options):
    """[(rows, row of the target)] of a model's products."""
    plan = until("plan", model, **options).plan
    return [(points(s.m), TARGET.product_row(s.row)) for k in plan.kernels
            for s in k.lowered.stages if isinstance(s, Contract)]


def check(model, feeds, dtype, folder, **options):
    """Every output is what the evaluator makes of the model."""
    given = {n: a.astype(KINDS[dtype]) if a.dtype == np.float32 else a for n, a in feeds.items()}
    work = until("schedule", model, **options)
    want = evaluate(apply_schedule_rewrites(work.program, work.schedule), {
        n: a.view(np.uint16) if a.dtype == ml_dtypes.bfloat16 else a for n, a in given.items()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bundle = aotc.compile(model, folder, target=TARGET.name, name="net", **options)
    got = bundle.load(simulate=True).run(given)
    for name, w in zip(got, want.values(), strict=True):
        w = w.view(ml_dtypes.bfloat16) if got[name].dtype == ml_dtypes.bfloat16 else w
        assert share_of_range(got[name].astype("f8"), w.astype("f8")) < MOST[dtype], name


# ---------------------------------------------------------------- decoders

SIZES = Sizes(96, 64, 1, 4, 2, 160, 256)


def decoder_feeds(seq, past):
    feeds = {"input_ids": rng(1).integers(0, SIZES.vocabulary, (1, seq))}
    return feeds | {f"past_key_values.0.{n}": rng(2).standard_normal(
        (1, SIZES.shared, past, SIZES.size)).astype(np.float32) for n in ("key", "value")}


@needs_cxx
@pytest.mark.parametrize("bits, dtype", [
    (4, "bf16"), pytest.param(4, "f16", marks=pytest.mark.product),
    pytest.param(8, "f16", marks=pytest.mark.product), (8, "bf16")])
def test_prefill_of_a_decoder_runs_on_tensor_cores(bits, dtype, tmp_path):
    model, seq, past = halved(in_groups(llama(SIZES), bits), dtype), 48, 16
    options = {"dims": {"batch": 1, "seq": seq, "past": past}}
    found = products(model, **options)
    assert not [r.name for m, r in found if (m is None or m > FEW)
                and not r.name.endswith("__mma")]
    assert sum(r.in_codes for _, r in found) >= 5
    check(model, decoder_feeds(seq, past), dtype, tmp_path / "b", **options)


# ---------------------------------------------------------------- on request

ROWS_OF = {48: "{}_32x64__mma", 12: "{}_16x32__mma", 8: "{}_8x32__mma", 1: "1x32__simt"}
QUICK = [("int4w", "f16", 48), ("int8w", "bf16", 8), ("int4w", "bf16", 1)]
ASKED = [pytest.param(p, d, n, marks=() if (p, d, n) in QUICK else pytest.mark.product)
         for p in WEIGHT_BITS for d in KINDS for n in ROWS_OF]


@needs_cxx
@pytest.mark.parametrize("precision, dtype, seq", ASKED)
def test_weights_of_a_decoder_in_halves_are_grouped(precision, dtype, seq, tmp_path):
    """All of its products; what is looked up stays a half."""
    model, options = halved(llama(SIZES), dtype), {"dims": {"batch": 1, "seq": seq, "past": 16}}
    found = products(model, precision=precision, **options)
    assert {r.name for _, r in found} == {f"dot_grouped_{ROWS_OF[seq].format(dtype)}"}
    assert len(found) == 6
    check(model, decoder_feeds(seq, 16), dtype, tmp_path / "b", precision=precision, **options)


@needs_cxx
@pytest.mark.parametrize("dtype", ["f16", pytest.param("bf16", marks=pytest.mark.product)])
def test_weights_of_bert_in_halves_are_grouped(dtype, tmp_path):
    model = halved(NETS["bert_base"](1, True), dtype)
    found = products(model, precision="int4w")
    assert found and all(r.name == f"dot_grouped_{dtype}_8x32__mma" for _, r in found)
    x = rng(3).standard_normal((1, 5, 16)).astype(np.float32)
    check(model, {"x": x}, dtype, tmp_path / "b", precision="int4w")


def layer(m, k, n, dtype):
    """(y = x w in a half, w as f32)."""
    w = rng(4).standard_normal((k, n)).astype(KINDS[dtype])
    f32, wide = TensorProto.FLOAT, w.astype(np.float32)
    model = make_model([node("MatMul", ["x", "w"], ["y"])], {"x": (f32, [m, k])},
                       {"y": (f32, [m, n])}, {"w": wide})
    return halved(model, dtype), wide


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("precision", WEIGHT_BITS)
def test_halves_are_rounded_as_the_same_numbers_of_f32(dtype, precision):
    model, w = layer(40, 100, 24, dtype)
    work = until("schedule", model, precision=precision)
    g = Grouping(WEIGHT_BITS[precision], 32, 2)
    program = apply_schedule_rewrites(work.program, work.schedule)
    (array,) = program.consts.values()
    assert np.array_equal(array, round_weights(g, w)) and work.schedule.precision == precision


@pytest.mark.parametrize("dtype", KINDS)
def test_halves_that_are_no_numbers_stay(dtype):
    model, w = layer(40, 64, 64, dtype)
    w[3, 5] = np.inf
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(w.astype(KINDS[dtype]), "w"))
    work = until("schedule", model, precision="int4w")
    assert not work.schedule.rewrites


@pytest.mark.parametrize("dtype", KINDS)
def test_a_budget_rounds_weights_that_are_halves(dtype):
    """Errors are of numbers: an output in bf16 is no integer."""
    model, _ = layer(8, 1024, 1024, dtype)
    found = until("schedule", model, precision="auto", error=0.2).narrowed
    assert set(map(str, found.levels.values())) <= set(WEIGHT_BITS) and found.levels
    assert 1e-4 < found.error < 0.1


@pytest.mark.parametrize("dtype", ["bf16", pytest.param("f16", marks=pytest.mark.product)])
def test_a_budget_keeps_joined_products_and_streams(dtype):
    """Queries, keys and values are rounded alike, and scores stay the halves that they are."""
    model = halved(llama(Sizes(512, 256, 1, 4, 2, 640, 256)), dtype)
    work = until("schedule", model, precision="auto", error=0.3,
                 dims={"batch": 1, "seq": 8, "past": 8})
    assert {x.precision for x in work.narrowed.levels.values()} <= set(WEIGHT_BITS)
    ((_, first, p),) = [r for r in work.schedule.rewrites if r[0] == "join_columns"
                        if len(r[2]["with"]) == 2]
    alike = {work.narrowed.levels.get(n) for n in (first, *p["with"])}
    assert len(alike) == 1 and alike != {None}
    assert work.narrowed.seconds < work.narrowed.exact_seconds


# ---------------------------------------------------------------- products

def blocked(m, k, n, dtype, bits, block, zeros):
    """y = x @ w, w of ``bits`` in blocks along the sum with scales in a half."""
    r, kind = rng(3), helper.tensor_dtype_to_np_dtype(
        TensorProto.INT4 if bits == 4 else TensorProto.INT8)
    half, count = 1 << bits - 1, -(-k // block)
    names = ["w", "s", *(["z"] if zeros else [])]
    tensors = {"w": r.integers(-half, half, (k, n)).astype(kind),
               "s": r.uniform(0.1, 1, (count, n)).astype(np.float32),
               "z": r.integers(-half, half, (count, n)).astype(kind)}
    f32 = TensorProto.FLOAT
    return halved(make_model(
        [node("DequantizeLinear", names, ["f"], axis=0, block_size=block),
         node("MatMul", ["x", "f"], ["y"])], {"x": (f32, [m, k])}, {"y": (f32, [m, n])},
        {x: tensors[x] for x in names}, opset=21), dtype)


CASES = {
    "4 bits": ("f16", lambda: halved(codes(37, 192, 70), "f16")),
    "4 bits, long groups": ("bf16", lambda: halved(codes(130, 384, 40, block=128), "bf16")),
    "4 bits, zeros": ("bf16", lambda: halved(codes(21, 96, 130, block=16, zeros=True), "bf16")),
    "4 bits, 2 rows": ("f16", lambda: halved(codes(2, 224, 70, block=32, zeros=True), "f16")),
    "4 bits, 8 rows": ("bf16", lambda: halved(codes(8, 384, 33, block=128), "bf16")),
    "4 bits, 9 rows": ("f16", lambda: halved(codes(9, 100, 40, block=16), "f16")),
    "8 bits, 16 rows": ("bf16", lambda: halved(codes(16, 144, 96, bits=8, zeros=True), "bf16")),
    "8 bits, 3 rows": ("f16", lambda: halved(codes(3, 256, 64, bits=8, block=64), "f16")),
    "8 bits, zeros": ("f16", lambda: halved(codes(70, 128, 33, 8, 64, True), "f16")),
    "8 bits, ragged": ("bf16", lambda: halved(codes(19, 100, 50, bits=8), "bf16")),
    "blocks of 4 bits": ("f16", lambda: blocked(40, 128, 33, "f16", 4, 16, True)),
    "4 bits, blocks of 48": ("f16", lambda: halved(codes(64, 96, 64, block=48), "f16")),
    "blocks of 8 bits": ("f16", lambda: blocked(33, 128, 65, "f16", 8, 64, False)),
}


@needs_cxx
@pytest.mark.parametrize("name", every(CASES, 3))
def test_products_run_on_tensor_cores(name, tmp_path):
    dtype, make = CASES[name]
    model = make()
    ((_, row),) = products(model)
    m, k = (d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim)
    assert row.a == dtype and row.name.endswith("__mma") and row.in_codes == (m > FEW)
    check(model, {"x": rng(5).standard_normal((m, k)).astype(np.float32)}, dtype, tmp_path / "b")


@pytest.mark.parametrize("dtype", KINDS)
def test_few_rows_read_weights_once(dtype):
    for m, mr in ((2, 8), (8, 8), (9, 16), (16, 16)):
        ((_, row),) = products(halved(codes(m, 256, 4096), dtype))
        assert row.name == f"dot_grouped_{dtype}_{mr}x32__mma", m


def test_rows_of_f32_stay_exact():
    """Tensor cores would round them."""
    ((_, row),) = products(codes(64, 128, 64))
    assert row.a == "f32" and not row.in_codes


@needs_cxx
@pytest.mark.parametrize("dtype, m", [("f16", 40), ("bf16", 40), ("bf16", 5), ("f16", 1)])
def test_a_precision_rounds_rows_of_f32(dtype, m, tmp_path):
    model = codes(m, 128, 70, zeros=True)
    ((_, row),) = products(model, precision=dtype)
    assert row.a == (dtype if m > 1 else "f32")
    work = until("schedule", model, precision=dtype)
    feeds = {"x": rng(6).standard_normal((m, 128)).astype(np.float32)}
    (want,) = evaluate(apply_schedule_rewrites(work.program, work.schedule), feeds).values()
    got = aotc.compile(model, tmp_path / "b", target=TARGET.name, name="net",
                       precision=dtype).load(simulate=True).run(feeds)["y"]
    assert share_of_range(got, want) < 2e-6


def test_steps_have_whole_groups_or_are_parts_of_one():
    rows = [r for r in TARGET.rows("dot") if r.in_codes]
    assert rows and all(r.steps == 64 for r in rows)
    assert [n for n in range(1, 257) if rows[0].reads_groups_of(n, 999)] == [
        16, 32, 64, 128, 192, 256]
    assert rows[0].reads_groups_of(48, 48) and not rows[0].reads_groups_of(50, 50)


@pytest.mark.parametrize("k", [40, 100, 200, 1101])
def test_whole_columns_run_on_tensor_cores(k):
    """Bytes with a scale for each column, of sums of any length."""
    w = {"w": rng(1).integers(-127, 128, (k, 48)).astype(np.int8),
         "s": rng(2).uniform(0.1, 1, 48).astype(np.float32), "o": np.zeros(48, np.int8)}
    f32 = TensorProto.FLOAT
    ((_, row),) = products(halved(make_model(
        [node("DequantizeLinear", ["w", "s", "o"], ["f"], axis=1),
         node("MatMul", ["x", "f"], ["y"])], {"x": (f32, [40, k])}, {"y": (f32, [40, 48])}, w),
        "f16"))
    assert row.in_codes


def test_one_layout_of_weights_serves_all_numbers_of_rows():
    """So calls of any number of rows read the same bytes."""
    layouts = set()
    for m in (1, 8, 64):
        schedule = until("schedule", halved(codes(m, 256, 128), "f16")).schedule
        layouts.add(str(schedule.layouts))
    assert len(layouts) == 1
