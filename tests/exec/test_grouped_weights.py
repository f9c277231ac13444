"""Weights of 8 and 4 bits in groups: ``precision="int8w"`` and ``"int4w"``, models that bring such
weights, the same numbers on every target."""

import json
import shutil
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
from edits import with_tables
from harness import RUNNABLE
from onnx import TensorProto, helper
from quick_builds import LEVEL
from small_models import make_model

import aotc
from aotc.as_asked import decide_for_target
from aotc.ir.numbers.group_bytes import group_bytes, weights_of
from aotc.ir.numbers.grouped import Grouping
from aotc.ir.schedule import WEIGHT_BITS, Schedule
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.oracle.interpret import interpret
from aotc.oracle.run_plan import run_plan
from aotc.oracle.shares import share_of_range
from aotc.passes.precision.group_weights import round_weights
from aotc.passes.rewrites import apply_schedule_rewrites
from aotc.pipeline import run_pipeline
from aotc.runtime.emulate import emulated_models
from aotc.sched import check_schedule
from aotc.sched.precision.levels import Level, uniform_levels
from aotc.sched.rows.useful_targets import reads_groups
from aotc.target import TARGETS, get_target
from aotc.tools.verify import verify

F32 = TensorProto.FLOAT
MS = "com.microsoft"
ROWS = ("dot_grouped_", "dot_expanded_")
CPUS = [t.name for t in RUNNABLE if reads_groups(t)]


@pytest.fixture(autouse=True)
def quick_builds(monkeypatch):
    monkeypatch.setenv("CFLAGS", LEVEL)


def layers(rows=5, seed=0):
    """y f32[rows, 21] = relu(x w + b) v^T, x f32[rows, 70], 40 columns in between."""
    rng = np.random.default_rng(seed)
    tensors = {n: rng.standard_normal(s).astype(np.float32)
               for n, s in {"w": (70, 40), "b": (40,), "v": (21, 40)}.items()}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]),
             helper.make_node("Add", ["p", "b"], ["q"]), helper.make_node("Relu", ["q"], ["h"]),
             helper.make_node("Gemm", ["h", "v"], ["y"], transB=1)]
    return make_model(nodes, {"x": (F32, [rows, 70])}, {"y": (F32, [rows, 21])}, tensors), tensors


def _near(w, bits):
    """The weights [K, N] that groups of 32 make of ``w``."""
    g = Grouping(bits, 32, 2)
    return weights_of(g, round_weights(g, np.ascontiguousarray(w)), len(w)).astype(np.float64)


def _expected(tensors, x, bits):
    h = np.maximum(x.astype(np.float64) @ _near(tensors["w"], bits) + tensors["b"], 0)
    return h @ _near(tensors["v"].T, bits)


def _rows(model):
    return {r for k in model.manifest["kernels"] for r in k["rows"]}


def _close(got, want, share=2e-6):
    assert got.shape == want.shape
    assert np.max(np.abs(got - want)) <= share * np.max(np.abs(want))


# ---------------------------------------------------------------- the numbers

@pytest.mark.parametrize("bits", [8, 4])
def test_rounding_is_to_the_nearest_code(bits):
    """Within half a step of every group but where the largest code cuts one off; zeros stay zeros,
    tiny groups too; a weight beyond bf16's steps is as near as its scale."""
    rng = np.random.default_rng(bits)
    w = rng.standard_normal((75, 9)).astype(np.float32)
    w[:32, 2], w[:, 3], w[32:64, 4] = 0, 1e-42, 1e30
    g = Grouping(bits, 32, 2)
    packed = round_weights(g, w)
    assert packed.shape == (3, g.rows, 9)
    near = weights_of(g, packed, len(w))
    for first in (0, 32, 64):
        part, got = w[first:first + 32], near[first:first + 32]
        step = np.abs(part).max(0) / ((1 << bits - 1) - 1) * 1.01
        assert np.all(np.abs(part - got) <= np.maximum(step, 1e-38))
    assert not near[:32, 2].any() and not near[:, 3].any()


@pytest.mark.parametrize("g", [Grouping(8, 32, 2), Grouping(8, 16, 4, True), Grouping(4, 32, 3),
                               Grouping(4, 18, 4, True)])
def test_bytes_hold_codes_scales_and_zero_points(g):
    rng = np.random.default_rng(g.size)
    half, depth, n = 1 << g.bits - 1, 3 * g.size - 5, 7
    codes = rng.integers(-half, half, (depth, n)).astype(np.int8)
    zero = rng.integers(-half, half, (3, n)).astype(np.int8)
    scale = rng.standard_normal((3, n)).astype(np.float32)
    scale = (scale.view(np.uint32) & np.uint32((1 << 32) - (1 << 8 * (4 - g.planes)))).view("f4")
    group = np.arange(depth) // g.size
    number = codes.astype(np.int32) - (zero[group] if g.zeros else 0)
    want = number.astype(np.float32) * scale[group]
    got = weights_of(g, group_bytes(g, codes, scale, zero if g.zeros else None), depth)
    assert np.array_equal(got, want)


# ---------------------------------------------------------------- on request

@pytest.mark.parametrize("name", [n for n in CPUS if get_target(n).halves][-1:])
def test_one_row_by_weights_of_f16_reads_codes(name, tmp_path):
    """A megabyte of them, which stays f16 otherwise."""
    w = np.random.default_rng(1).standard_normal((512, 512)).astype(np.float16)
    f16 = TensorProto.FLOAT16
    model = make_model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (f16, [1, 512])},
                       {"y": (f16, [1, 512])}, {"w": w})
    made = {p: aotc.compile(model, tmp_path / p, target=name, precision=p)
            for p in ("f32", "int4w")}
    size = {p: b.manifest["weights_bytes"] for p, b in made.items()}
    assert size["f32"] / size["int4w"] > 3.5
    x = np.random.default_rng(2).standard_normal((1, 512)).astype(np.float16)
    want = x.astype(np.float64) @ _near(w.astype(np.float32), 4)
    _close(aotc.load(tmp_path / "int4w").run({"x": x})["y"].astype(np.float64), want, 1e-3)


@pytest.mark.parametrize("name, precision", [
    pytest.param(n, p, marks=() if (n, p) in ((CPUS[0], "int8w"), (CPUS[-1], "int4w"))
                 else pytest.mark.product) for n in CPUS for p in ("int8w", "int4w")])
def test_weights_are_rounded_and_nothing_else(name, precision, tmp_path):
    """One row and several; the manifest says so, weights shrink, the arena does not grow."""
    for rows in (1, 5):
        model, tensors = layers(rows)
        x = np.random.default_rng(1).standard_normal((rows, 70)).astype(np.float32)
        made = aotc.compile(model, tmp_path / f"b{rows}", target=name, precision=precision)
        got = aotc.load(tmp_path / f"b{rows}").run({"x": x})["y"]
        _close(got, _expected(tensors, x, WEIGHT_BITS[precision]))
        assert made.manifest["precision"] == precision
        assert any(r.startswith(ROWS) for r in _rows(made))
        plain = aotc.compile(model, tmp_path / f"f{rows}", target=name)
        assert made.manifest["weights_bytes"] < plain.manifest["weights_bytes"] / 1.5
        panel = 4 * 48 * 70 * any("expanded" in r for r in _rows(made))  # for all rows of an item
        room = [b.manifest["arena_bytes_max"] + b.manifest["slab_bytes_per_worker"]
                for b in (made, plain)]
        assert room[0] <= room[1] + panel


def test_large_weights_shrink_as_their_bits_say(tmp_path):
    rng = np.random.default_rng(0)
    model = make_model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (F32, [1, 512])},
                       {"y": (F32, [1, 512])},
                       {"w": rng.standard_normal((512, 512)).astype(np.float32)})
    size = {p: aotc.compile(model, tmp_path / p, target="c", precision=p).manifest["weights_bytes"]
            for p in ("f32", "int8w", "int4w")}
    assert size["f32"] / size["int8w"] > 3.7 and size["f32"] / size["int4w"] > 7


def test_interpreter_and_evaluator_follow_the_rewrite():
    model, tensors = layers()
    feeds = {"x": np.random.default_rng(1).standard_normal((5, 70)).astype(np.float32)}
    work = run_pipeline(Options(model, target="x86-64-v4", precision="int4w", stop_after="plan"))
    want = _expected(tensors, feeds["x"], 4)
    _close(evaluate(apply_schedule_rewrites(work.program, work.schedule), feeds)["y"], want)
    _close(interpret(apply_schedule_rewrites(work.program, work.schedule), work.schedule,
                     feeds)["y"], want)


@pytest.mark.parametrize("name", ["aarch64", pytest.param("riscv64", marks=pytest.mark.product)])
def test_emulated_machines_read_the_same_weights(name, tmp_path):
    """A target without rows for them stores the rounded numbers as f32."""
    cross = TARGETS[name].cross
    if not any(map(shutil.which, cross.cc)) or not shutil.which(cross.emulator[0]):
        pytest.skip(f"needs {', '.join(cross.packages)} (Debian)")
    model, tensors = layers(3)
    x = np.random.default_rng(1).standard_normal((3, 70)).astype(np.float32)
    aotc.compile(model, tmp_path / "b", target=name, precision="int4w")
    for run in emulated_models(tmp_path / "b").values():
        _close(run.run({"x": x})["y"], _expected(tensors, x, 4))


# ---------------------------------------------------------------- rows of bytes

def _coded(x, rows):
    """(signed codes, scales) of rows f32[M, K]."""
    scale = np.abs(x).max(1, keepdims=True) * np.float32(1 / {"s8": 127, "s16": 32767}[rows])
    return np.rint(x / scale).astype(np.float64), scale.astype(np.float64)


def _by_integers(tensors, x, bits, rows):
    q, s = _coded(x, rows)
    h = np.maximum(q @ _near(tensors["w"], bits) * s + tensors["b"], 0).astype(np.float32)
    q, s = _coded(h, rows)
    return q @ _near(tensors["v"].T, bits) * s


def scheduled(model, target, precision, rows):
    """The Work of a model whose Schedule has every product at one level."""
    work = run_pipeline(Options(model, target=target, stop_after="inline"))
    level = uniform_levels(work.program, Level(precision, rows))
    schedule, _ = decide_for_target(work.program, work.target, work.options, work.ranges, (), level)
    return replace(work, schedule=schedule)


@pytest.mark.parametrize("bits, rows, kind", [
    (8, "s16", "dot_words_"), (4, "s8", "dot_bytes_"),
    pytest.param(8, "s8", "dot_bytes_", marks=pytest.mark.product),
    pytest.param(4, "s16", "dot_words_", marks=pytest.mark.product)])
@pytest.mark.parametrize("name", [CPUS[-1], *(pytest.param(n, marks=pytest.mark.product)
                                              for n in CPUS[:-1])])
def test_rows_become_integers(name, bits, rows, kind, tmp_path):
    """Products run in integers, of rows rounded as the page says."""
    model, tensors = layers(13)
    x = np.random.default_rng(1).standard_normal((13, 70)).astype(np.float32)
    made = aotc.compile(model, tmp_path / "b", target=name,
                        schedule=scheduled(model, name, f"int{bits}w", rows).schedule)
    assert any(r.startswith(kind) for r in _rows(made))
    _close(aotc.load(tmp_path / "b").run({"x": x})["y"], _by_integers(tensors, x, bits, rows),
           1e-5)


def test_rows_of_convolutions_become_bytes(tmp_path):
    """The sum over the one point of a window is none that scales know."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((24, 32, 1, 1)).astype(np.float32)
    model = make_model([helper.make_node("Conv", ["x", "w"], ["y"])],
                       {"x": (F32, [1, 32, 5, 7])}, {"y": (F32, [1, 24, 5, 7])}, {"w": w})
    made = aotc.compile(model, tmp_path / "b", target=CPUS[-1],
                        schedule=scheduled(model, CPUS[-1], "int8w", "s8").schedule)
    assert any(r.startswith("dot_bytes_") for r in _rows(made))
    x = rng.standard_normal((1, 32, 5, 7)).astype(np.float32)
    want = np.einsum("oi,bihw->bohw", w[:, :, 0, 0], x)
    assert share_of_range(made.load().run({"x": x})["y"], want) < 2e-2


def test_rows_become_bytes_within_a_budget():
    """With room in the budget they do where that is predicted to be faster; without they stay
    f32."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((256, 256)).astype(np.float32)
    model = make_model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (F32, [64, 256])},
                       {"y": (F32, [64, 256])}, {"w": w})
    for error, rules in ((0.5, ["group", "integer_rows"]), (1e-6, ["group"])):
        work = run_pipeline(Options(model, target="x86-64-v4-vnni", precision="int4w", error=error,
                                    stop_after="schedule"))
        assert [rule for rule, *_ in work.schedule.rewrites] == rules
        assert work.schedule.precision == "int4w"


@pytest.mark.product
def test_rows_of_brought_weights_become_bytes_within_a_budget(tmp_path):
    """A precision of weights with a budget, or auto: models that bring theirs in groups gain."""
    model = bits_model(20, 128, 64)
    x = np.random.default_rng(1).standard_normal((20, 128)).astype(np.float32)
    exact = aotc.compile(model, tmp_path / "e", target=CPUS[-1]).load().run({"x": x})["y"]
    for precision, error, rows in (("int4w", 0.1, True), ("int4w", 1e-6, False)):
        made = aotc.compile(model, tmp_path / f"{error}", target=CPUS[-1], precision=precision,
                            error=error)
        assert any(r.startswith("dot_bytes_") for r in _rows(made)) == rows
        got = made.load().run({"x": x})["y"]
        assert np.abs(got - exact).max() <= error * np.ptp(exact)
    work = run_pipeline(Options(model, target=CPUS[-1], precision="auto", error=0.1,
                                stop_after="schedule"))
    assert [rule for rule, *_ in work.schedule.rewrites] == ["integer_rows"]


def test_a_row_that_is_no_number_has_no_results():
    model, _ = layers(6)
    work = run_pipeline(Options(model, target=CPUS[-1], stop_after="plan", schedule=scheduled(
        model, CPUS[-1], "int8w", "s8").schedule))
    program = apply_schedule_rewrites(work.program, work.schedule)
    feeds = {"x": np.random.default_rng(1).standard_normal((6, 70)).astype(np.float32)}
    feeds["x"][2, 5], feeds["x"][3], feeds["x"][4, 0] = np.nan, 0, np.inf
    got = run_plan(work.plans.alternatives[0].plan, feeds)["y"]
    want = evaluate(program, feeds)["y"]
    assert np.isnan(want[2]).all() and not np.isfinite(want[4]).any()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_products_of_one_tensor_share_its_codes():
    rng = np.random.default_rng(0)
    tensors = {n: rng.standard_normal((64, 32)).astype(np.float32) for n in "vw"}
    model = make_model([helper.make_node("MatMul", ["x", n], [f"y{n}"]) for n in "vw"],
                       {"x": (F32, [20, 64])}, {f"y{n}": (F32, [20, 32]) for n in "vw"}, tensors)
    work = scheduled(model, "c", "int8w", "s8")
    program = apply_schedule_rewrites(work.program, work.schedule)
    assert sum(program.dtype(b) == "u8" and b not in program.consts for b in program.buffers) == 1
    rewrites = work.schedule.rewrites
    for wrong, text in ((("integer_rows", "nothing", {}), "choose from"),
                        (("integer_rows", rewrites[-1][1], {"bits": 9}), "one of 8, 16")):
        faults = check_schedule(work.program, replace(work.schedule, rewrites=(
            *rewrites[:2], wrong)), TARGETS["c"])
        assert any(text in f for f in faults), faults


@pytest.mark.product
def test_gpus_multiply_the_rounded_numbers(tmp_path):
    model, tensors = layers()
    x = np.random.default_rng(1).standard_normal((5, 70)).astype(np.float32)
    aotc.compile(model, tmp_path / "b", target="cuda", precision="int4w")
    got = aotc.load(tmp_path / "b", simulate=True).run({"x": x})["y"]
    _close(got, _expected(tensors, x, 4))


def test_verify_allows_the_rounding_and_reports_it(tmp_path):
    path, lines = tmp_path / "layers.onnx", []
    onnx.save(layers()[0], path)
    results = verify(path, CPUS[0], precision="int8w", report=lines.append)
    assert all(m.ok for _, m in results)
    assert any(line.startswith("  y: against f64: int8w ") for line in lines)


def test_a_schedule_says_how_weights_are_stored(tmp_path):
    """Groups may be longer, a product may stay f32; a wrong word is refused with the legal ones."""
    model, _ = layers()
    work = run_pipeline(Options(model, target="c", precision="int4w", stop_after="schedule"))
    schedule, program = work.schedule, work.program
    assert [r for r, *_ in schedule.rewrites] == ["group", "group"]
    assert Schedule.from_json(schedule.to_json()) == schedule
    rule, name, how = schedule.rewrites[0]
    bare = tuple(with_tables(g, ukernel={}, loops={}) for g in schedule.groups)
    one = Schedule("c", bare, rewrites=((rule, name, {**how, "size": 128}),), precision="int4w")
    made = aotc.compile(model, tmp_path / "b", target="c", schedule=one)
    for kind in (ROWS, "contraction"):
        assert any(r.startswith(kind) for r in _rows(made))
    for wrong, text in (({**how, "size": 5}, "one of 32, 128"),
                        ({**how, "bits": 3}, "one of 8, 4")):
        faults = check_schedule(program, replace(schedule, rewrites=((rule, name, wrong),)),
                                TARGETS["c"])
        assert any(text in f for f in faults)
    faults = check_schedule(program, replace(schedule, precision="f32"), TARGETS["c"])
    assert any("choose from int8w, int4w" in f for f in faults)


def test_what_is_no_number_stays_f32(tmp_path):
    model, tensors = layers()
    w = tensors["w"].copy()
    w[3, 4] = np.inf
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(w, "w"))
    made = aotc.compile(model, tmp_path / "b", target="c", precision="int4w")
    rewrites = json.loads((tmp_path / "b" / "schedule.json").read_text())["rewrites"]
    assert len(rewrites) == 1 and any("contraction_f32" in r for r in _rows(made))


# ---------------------------------------------------------------- models that bring them

def bits_model(rows, k, n, bits=4, block=32, zeros=False, order=None, bias=False, seed=0):
    """y = MatMulNBits(x f32[rows, k]) with n columns."""
    rng = np.random.default_rng(seed)
    blocks = -(-k // block)
    tensors = {"B": rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8),
               "s": rng.uniform(0.05, 0.2, n * blocks).astype(np.float32)}
    names = ["x", "B", "s", "", "", ""]
    if zeros:
        tensors["z"] = rng.integers(0, 256, n * -(-blocks * bits // 8)).astype(np.uint8)
        names[3] = "z"
    if order is not None:
        tensors["g"] = np.asarray(order, np.int32)
        names[4] = "g"
    if bias:
        tensors["bias"] = rng.standard_normal(n).astype(np.float32)
        names[5] = "bias"
    while not names[-1]:
        names.pop()
    node = helper.make_node("MatMulNBits", names, ["y"], domain=MS, K=k, N=n, bits=bits,
                            block_size=block)
    model = make_model([node], {"x": (F32, [rows, k])}, {"y": (F32, [rows, n])}, tensors)
    model.opset_import.append(helper.make_opsetid(MS, 1))
    return model


def _as_onnxruntime(model, tmp_path, name, grouped=True):
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
    options = onnxruntime.SessionOptions()  # else it rounds activations, too
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    want = session.run(None, {"x": x})[0]
    made = aotc.compile(model, tmp_path / name, target=name)
    _close(aotc.load(tmp_path / name).run({"x": x})["y"], want, 3e-6)
    assert any(r.startswith(ROWS) for r in _rows(made)) == grouped, _rows(made)
    assert "precision" not in made.manifest
    return made


@pytest.mark.parametrize("case", [
    dict(rows=1, k=100, n=33, zeros=True), dict(rows=5, k=70, n=33, zeros=True, bias=True),
    dict(rows=3, k=100, n=33, bits=8, zeros=True),
    dict(rows=2, k=64, n=20, order=np.arange(64) // 32), *(
        pytest.param(c, marks=pytest.mark.product) for c in (
            dict(rows=1, k=96, n=70), dict(rows=3, k=256, n=40, block=128),
            dict(rows=1, k=100, n=33, bits=8), dict(rows=9, k=48, n=40, block=16),
            dict(rows=3, k=96, n=40, order=np.random.default_rng(0).permutation(96) // 32)))],
    ids=lambda c: ",".join(f"{k}={v if np.ndim(v) == 0 else 1}" for k, v in c.items()))
def test_products_of_bits_stay_bits(case, tmp_path):
    made = _as_onnxruntime(bits_model(**case), tmp_path, CPUS[-1])
    k, n, bits = case["k"], case["n"], case.get("bits", 4)
    padded = -(-n // 64) * 64
    assert made.manifest["weights_bytes"] < padded * (k + 160) * bits / 8 * 1.6 + 1024


def test_groups_of_other_lengths_are_evaluated(tmp_path):
    order = np.random.default_rng(0).integers(0, 2, 64)
    _as_onnxruntime(bits_model(3, 64, 20, order=order), tmp_path, CPUS[0], grouped=False)


@pytest.mark.parametrize("dtype, turned", [
    (TensorProto.INT4, False), (TensorProto.UINT4, True), (TensorProto.INT8, True),
    pytest.param(TensorProto.UINT8, False, marks=pytest.mark.product)])
def test_blocked_constants_in_front_of_a_product_stay_bits(dtype, turned, tmp_path):
    rng = np.random.default_rng(dtype)
    small, unsigned = dtype in (TensorProto.INT4, TensorProto.UINT4), dtype in (
        TensorProto.UINT4, TensorProto.UINT8)
    half = 8 if small else 128
    shape, blocks = ((40, 96), (40, 3)) if turned else ((96, 40), (3, 40))
    q, z = (rng.integers(0, 2 * half, s) - (0 if unsigned else half) for s in (shape, blocks))
    nodes = [helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=int(turned),
                              block_size=32)]
    nodes += [helper.make_node("Transpose", ["w"], ["t"])] if turned else []
    nodes.append(helper.make_node("MatMul", ["x", "t" if turned else "w"], ["y"]))
    model = make_model(nodes, {"x": (F32, [2, 96])}, {"y": (F32, [2, 40])},
                       {"s": rng.uniform(0.05, 0.2, blocks).astype(np.float32)})
    for name, v in (("q", q), ("z", z)):
        model.graph.initializer.append(helper.make_tensor(name, dtype, v.shape, v.reshape(-1)))
    model.opset_import[0].version = 21
    _as_onnxruntime(model, tmp_path, CPUS[-1])


def test_integers_far_from_zero_need_no_zero_point_beyond_a_byte(tmp_path):
    """Bytes without a sign that span fewer than 16 numbers at the end of their range."""
    rng = np.random.default_rng(7)
    tensors = {"w": rng.integers(241, 256, (64, 20)).astype(np.uint8),
               "s": rng.uniform(0.1, 1, (2, 20)).astype(np.float32)}
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["f"], axis=0, block_size=32),
             helper.make_node("MatMul", ["x", "f"], ["y"])]
    model = make_model(nodes, {"x": (F32, [3, 64])}, {"y": (F32, [3, 20])}, tensors, opset=21)
    x = rng.standard_normal((3, 64)).astype(np.float32)
    got = aotc.compile(model, tmp_path / "b", target=CPUS[0]).load().run({"x": x})["y"]
    want = x.astype("f8") @ (tensors["w"] * np.repeat(tensors["s"], 32, axis=0).astype("f8"))
    _close(got, want)


def test_brought_weights_on_targets_without_rows_are_f32(tmp_path):
    made = aotc.compile(bits_model(3, 64, 20), tmp_path / "b", target="riscv64")
    assert not any("grouped" in r for r in _rows(made))
