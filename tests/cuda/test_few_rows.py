"""Products of few rows, and weights of 16, 8 and 4 bits as they are stored: which rows they get,
what ONNX Runtime says of them at ragged sizes, and what nvcc makes of them."""

import warnings

import ml_dtypes
import numpy as np
import onnx
import pytest
from cusim_build import needs_cxx
from half_models import codes, halved
from harness import every
from idle_threads import idle
from onnx import TensorProto, helper
from sass import compile_kernels, why_no_sass
from small_models import make_model

import aotc
from aotc.ir.schedule import Schedule
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.passes.rewrites import apply_schedule_rewrites
from aotc.pipeline import run_pipeline
from aotc.sched import check_schedule
from aotc.target import get_target
from aotc.tools.peers import open_reference

TARGET = "cuda:sm_80"
F32, F16, U8, I32 = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.UINT8, TensorProto.INT32)
node, rng = helper.make_node, np.random.default_rng


def floats(m, k, n):
    """y = x @ w in f32."""
    w = rng(1).standard_normal((k, n)).astype(np.float32)
    return make_model([node("MatMul", ["x", "w"], ["y"])], {"x": (F32, [m, k])},
                      {"y": (F32, [m, n])}, {"w": w})


def blocked(m, k, n, zeros=True):
    """y = x @ w, w i4 with scales per block of 16 steps of the sum."""
    r, kind = rng(3), helper.tensor_dtype_to_np_dtype(TensorProto.INT4)
    count = k // 16
    names = ["w", "s", *(["z"] if zeros else [])]
    tensors = {"w": r.integers(-8, 8, (k, n)).astype(kind),
               "s": r.uniform(0.1, 1, (count, n)).astype(np.float32),
               "z": r.integers(-8, 8, (count, n)).astype(kind)}
    return make_model([node("DequantizeLinear", names, ["f"], axis=0, block_size=16),
                       node("MatMul", ["x", "f"], ["y"])], {"x": (F32, [m, k])},
                      {"y": (F32, [m, n])}, {x: tensors[x] for x in names}, opset=21)


def integers(m, k, n):
    w = rng(4).integers(-128, 128, (k, n)).astype(np.int8)
    return make_model([node("MatMulInteger", ["x", "w"], ["y"])], {"x": (U8, [m, k])},
                      {"y": (I32, [m, n])}, {"w": w})


def quantised(m, k, n):
    """y = d(q(x)) @ d(w) + b, u8 by s8 per column."""
    r = rng(5)
    tensors = {"w": r.integers(-127, 128, (k, n)).astype(np.int8), "a": np.float32(0.02),
               "z": np.uint8(131), "s": r.uniform(0.01, 0.02, n).astype(np.float32),
               "o": np.zeros(n, np.int8),
               "b": r.standard_normal(n).astype(np.float32)}
    return make_model([node("QuantizeLinear", ["x", "a", "z"], ["q"]),
                       node("DequantizeLinear", ["q", "a", "z"], ["d"]),
                       node("DequantizeLinear", ["w", "s", "o"], ["v"], axis=1),
                       node("MatMul", ["d", "v"], ["p"]), node("Add", ["p", "b"], ["y"])],
                      {"x": (F32, [m, k])}, {"y": (F32, [m, n])}, tensors)


def stage_rows(model):
    """(Plan, the rows of its products)."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan = run_pipeline(Options(source=model, out=None, target=TARGET, stop_after="plan")).plan
    names = {s.row for k in plan.kernels for s in k.lowered.stages}
    return plan, {n for n in names if n.startswith(("dot", "contraction"))}


# ---------------------------------------------------------------- which rows

WIDE = {"4 bits": codes, "8 bits": lambda *s: codes(*s, bits=8), "blocks": blocked,
        "bytes": integers, "quantised": quantised}


@pytest.mark.parametrize("kind", WIDE)
@pytest.mark.parametrize("m", every([1, 4, 16, 64, 256], 4))
def test_no_thread_is_idle(kind, m):
    plan, rows = stage_rows(WIDE[kind](m, 1024, 1024))
    assert not idle(plan, TARGET)
    few = {1: 1, 4: 4, 16: 8}.get(m)
    if few or "bit" in kind or kind == "blocks":
        (row,) = rows
        name = "dot_u8s8" if kind in ("bytes", "quantised") else "dot_grouped"
        assert row.startswith(f"{name}_{few or ''}"), row


def test_weights_are_read_once_for_as_many_rows_as_fit():
    for m, mr in ((1, 1), (2, 4), (4, 4), (5, 8), (8, 8), (12, 8), (16, 8)):
        assert stage_rows(codes(m, 256, 4096))[1] == {f"dot_grouped_{mr}x32__simt"}, m


def test_weights_in_groups_stay_bytes():
    """Neither weights nor what is between kernels is f32."""
    for model in (codes(1, 256, 128), codes(40, 256, 128), blocked(1, 256, 128)):
        plan, _ = stage_rows(model)
        assert {a.dtype for _, a in plan.weights} == {np.dtype("uint8")}
        assert not plan.slots


# ---------------------------------------------------------------- right

CASES = {
    "f32": (floats, (1, 77, 50), 1e-5), "f32 long": (floats, (1, 2051, 36), 1e-5),
    "4 bits": (codes, (1, 200, 50), 1e-5),
    "4 bits zeros": (lambda *s: codes(*s, block=64, zeros=True), (1, 320, 33), 1e-5),
    "4 bits, 3 rows": (lambda *s: codes(*s, block=16, zeros=True), (3, 112, 70), 1e-5),
    "4 bits, 13 rows": (lambda *s: codes(*s, block=128), (13, 300, 40), 1e-5),
    "4 bits, 37 rows": (lambda *s: codes(*s, zeros=True), (37, 100, 70), 1e-5),
    "8 bits": (lambda *s: codes(*s, bits=8), (1, 160, 50), 1e-5),
    "8 bits zeros, 9 rows": (lambda *s: codes(*s, bits=8, zeros=True), (9, 96, 50), 1e-5),
    # of which ONNX Runtime rounds the rows
    "blocks": (blocked, (1, 160, 50), 1e-2), "blocks, 5 rows": (blocked, (5, 96, 33), 1e-2),
    "blocks, 21 rows": (lambda *s: blocked(*s, zeros=False), (21, 96, 33), 1e-2),
    "bytes": (integers, (1, 77, 50), 0), "bytes, 3 rows": (integers, (3, 64, 33), 0),
    "bytes, 15 rows": (integers, (15, 100, 40), 0),
    "quantised": (quantised, (1, 96, 50), 1e-4),
    "quantised, 6 rows": (quantised, (6, 52, 40), 1e-4)}


def fed(model, shape):
    """Random values of its input, those of floats near 1."""
    kind = model.graph.input[0].type.tensor_type.elem_type
    if kind == U8:
        return {"x": rng().integers(0, 256, shape).astype(np.uint8)}
    return {"x": rng().standard_normal(shape).astype(helper.tensor_dtype_to_np_dtype(kind))}


@needs_cxx
@pytest.mark.parametrize("name", every(CASES, 5))
def test_products_are_those_of_another_runtime(name, tmp_path):
    make, (m, k, n), near = CASES[name]
    check(make(m, k, n), (m, k), near, tmp_path)


def check(model, shape, near, folder):
    onnx.save(model, folder / "m.onnx")
    feeds = fed(model, shape)
    want = open_reference(folder / "m.onnx")[1](feeds)["y"].astype(np.float64)
    got = aotc.compile(model, folder / "b", target=TARGET).load(simulate=True).run(feeds)["y"]
    assert np.max(np.abs(got - want)) <= near * np.max(np.abs(want))


@needs_cxx
def test_rows_along_several_axes_are_counted_through(tmp_path):
    model = codes(21, 96, 70)
    for v in (*model.graph.input, *model.graph.output):
        v.type.tensor_type.shape.dim.insert(0, v.type.tensor_type.shape.dim[0])
        v.type.tensor_type.shape.dim[0].dim_value = 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schedule = run_pipeline(Options(source=model, out=None, target=TARGET,
                                        stop_after="schedule")).schedule
    assert [len(g.flat) for g in schedule.groups] == [2]
    check(model, (5, 21, 96), 1e-5, tmp_path)


@needs_cxx
@pytest.mark.parametrize("k", [64, 77])
def test_a_single_row_of_f16(tmp_path, k):
    model = halved(floats(1, k, 50))
    plan, rows = stage_rows(model)
    assert rows == {"contraction_f32_1x8__simt"}
    assert {a.dtype for _, a in plan.weights} == {np.dtype("float16")}
    check(model, (1, k), 2e-3, tmp_path)


@needs_cxx
@pytest.mark.parametrize("k, n", [(64, 64), (77, 50)])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_a_single_row_reads_halves_as_they_are_stored(tmp_path, dtype, k, n):
    """Of two products, one of which reads what the other stores as f16 or bf16; infinities and NaN
    are what they are."""
    r = rng(6)
    tensors = {"w": r.standard_normal((k, n)).astype(np.float32),
               "v": r.standard_normal((n, k)).astype(np.float32)}
    model = halved(make_model(
        [node("MatMul", ["x", "w"], ["h"]), node("MatMul", ["h", "v"], ["y"])],
        {"x": (F32, [1, k])}, {"y": (F32, [1, k])}, tensors), dtype)
    plan, rows = stage_rows(model)
    assert rows == {"contraction_f32_1x8__simt"}
    assert {p.dtype for p in plan.places if p.storage == "weights"} == {dtype}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        work = run_pipeline(Options(source=model, target=TARGET, stop_after="schedule"))
        run = aotc.compile(model, tmp_path / "b", target=TARGET).load(simulate=True).run
    rounded = apply_schedule_rewrites(work.program, work.schedule)
    x = rng(8).standard_normal((1, k)).astype(np.float32)
    for edge in (1.0, np.inf, np.nan):
        x[0, k // 2] = edge
        given = x.astype(ml_dtypes.bfloat16 if dtype == "bf16" else np.float16)
        bits = given.view(np.uint16) if dtype == "bf16" else given
        (want,) = evaluate(rounded, {"x": bits}).values()
        got, want = (np.asarray(a).view(given.dtype).astype("f8")
                     for a in (run({"x": given})["y"], want))
        assert np.allclose(got, want, rtol=2e-2 if dtype == "bf16" else 2e-3,
                           atol=np.nanmax(np.abs(np.where(np.isfinite(want), want, 0))) * 1e-2,
                           equal_nan=True)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("m", [1, 2, 5, 8, 13, 16])
def test_few_rows_keep_all_workers_busy(m, dtype):
    """Of a product of 768 columns, whose weights are read once or twice: as many tiles as there are
    multiprocessors, or nearly; no sum is made in parts by a kernel more."""
    model = floats(m, 768, 768) if dtype == "f32" else halved(floats(m, 768, 768), dtype)
    plan, rows = stage_rows(model)
    (row,) = rows
    assert row == f"contraction_f32_{1 if m == 1 else 4 if m in (2, 13) else 8}x8__simt" or m > 8
    assert "__simt" in row and get_target(TARGET).product_row(row).tile.mr <= max(1, m + 3)
    (product,) = [s for k in plan.kernels for s in k.lowered.stages
                  if s.row.startswith("contraction")]
    assert 768 // product.micro.nr >= 96
    assert {a.dtype for _, a in plan.weights} == {np.dtype(
        {"f32": "float32", "f16": "float16", "bf16": "uint16"}[dtype])}


@needs_cxx
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("shape", every([(2, 64, 40), (4, 2051, 36), (7, 96, 768), (8, 40, 4096),
                                           (9, 131, 50), (16, 64, 64)], 2))
def test_few_rows_are_those_of_the_evaluator(tmp_path, dtype, shape):
    """Ragged rows, terms and columns, narrow tiles and wide ones; infinities and NaN."""
    m, k, n = shape
    x = rng(8).standard_normal((m, k)).astype(np.float32)
    x[m - 1, k // 2], x[0, 3] = np.inf, np.nan
    model, options = floats(m, k, n), {} if dtype == "f32" else {"precision": dtype}
    work = run_pipeline(Options(source=model, target=TARGET, stop_after="schedule", **options))
    want = evaluate(apply_schedule_rewrites(work.program, work.schedule), {"x": x})["y"]
    got = aotc.compile(model, tmp_path / "b", target=TARGET, **options).load(
        simulate=True).run({"x": x})["y"]
    size = np.max(np.abs(want[np.isfinite(want)]), initial=1.0)
    assert np.allclose(got, want, rtol=1e-5, atol=1e-5 * size, equal_nan=True)


# ---------------------------------------------------------------- refused

def test_what_a_row_of_threads_cannot_read_is_refused():
    """Columns that are computed; weights that are read in panels while they are staged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        work = run_pipeline(Options(source=codes(64, 64, 64), out=None, target=TARGET,
                                    stop_after="schedule"))
    text = work.schedule.to_json()
    assert '"b": "packed"' in text
    wrong = Schedule.from_json(text.replace('"b": "packed"', '"b": "panel"'))
    (fault, *_) = check_schedule(work.program, wrong, get_target(TARGET))
    assert "makes factors of weights while it stages them, use packed" in fault


# ---------------------------------------------------------------- what nvcc makes of it

needs_sass = pytest.mark.skipif(bool(why_no_sass()), reason=why_no_sass())
LOOPS = {  # (model, multiplier, its instructions for each weight: 16 bytes at a time)
    "f32": (lambda: floats(1, 4096, 1024), "FFMA", 2.0),
    "f32 wide": (lambda: floats(1, 2048, 4096), "FFMA", 2.0),
    "f16": (lambda: halved(floats(1, 4096, 1024)), "FFMA", 2.5),
    "bf16": (lambda: floats(1, 4096, 1024), "FFMA", 2.8, "bf16"),
    "f16, 4 rows": (lambda: floats(4, 4096, 1024), "FFMA", 1.6, "f16"),
    "bf16, 8 rows": (lambda: floats(8, 4096, 1024), "FFMA", 1.4, "bf16"),
    "4 bits": (lambda: codes(1, 4096, 1024), "FFMA", 3.8),
    "4 bits zeros": (lambda: codes(1, 4096, 1024, zeros=True), "FFMA", 4.8),
    "8 bits": (lambda: codes(1, 4096, 1024, bits=8), "FFMA", 4.0),
    "4 bits, 4 rows": (lambda: codes(4, 4096, 1024), "FFMA", 2.2),
    "4 bits, 8 rows": (lambda: codes(8, 4096, 1024, zeros=True), "FFMA", 2.2),
    "bytes": (lambda: integers(1, 4096, 1024), "IDP", 4.5),
    "bytes, 8 rows": (lambda: integers(8, 4096, 1024), "IDP", 2.2)}


@needs_sass
@pytest.mark.product
@pytest.mark.parametrize("gpu", ["sm_80", "sm_90", "sm_120"])
@pytest.mark.parametrize("name", LOOPS)
def test_loops_read_16_bytes_and_multiply(name, gpu, tmp_path):
    make, opcode, most, *precision = LOOPS[name]
    bundle = aotc.compile(make(), tmp_path / "b", target=f"cuda:{gpu}",
                          precision=precision[0] if precision else None)
    found = compile_kernels(bundle.path, get_target(f"cuda:{gpu}").cflags)
    (code,) = [c for c in found.values() if c.code.count(opcode) > 16]
    loop = code.code.hot_loop(opcode)
    assert not code.spilled and loop is not None
    assert loop.count("LDG.128") >= 6 and not loop.count("LDG.U8", "LDG.S8", "LDL", "STL")
    rows = loop.count("LDG.64")  # four terms of a row of halves
    assert loop.count("LDG") == loop.count("LDG.128") + rows and (
        not rows or precision or "16" in name)
    assert len(loop.instructions) / loop.count(opcode) <= most
