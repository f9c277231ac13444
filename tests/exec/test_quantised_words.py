"""Integers of 16 bits in lanes, and constant integers that only sums of floats read."""

import json

import numpy as np
import pytest
from onnx import TensorProto, helper
from quick_builds import LEVEL
from small_models import make_model

import aotc
from aotc.ir.program import static_shape
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.target import TARGETS, runs_here

F32 = TensorProto.FLOAT
WORDS = {"u16": (TensorProto.UINT16, np.uint16, 30000), "i16": (TensorProto.INT16, np.int16, -5)}
HERE = [t for t in ("c", "x86-64-v1", "x86-64-v3", "x86-64-v4", "aarch64")
        if runs_here(TARGETS[t])]


def words(kind):
    """q = x in 16 bits, and d, what q and words that the caller gives say of floats."""
    code, dtype, zero = WORDS[kind]
    stored = {"s": np.float32(0.01), "z": dtype(zero)}
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
             helper.make_node("DequantizeLinear", ["q", "s", "z"], ["a"]),
             helper.make_node("DequantizeLinear", ["w", "s", "z"], ["b"]),
             helper.make_node("Add", ["a", "b"], ["d"])]
    shape = [3, "n"]
    model = make_model(nodes, {"x": (F32, shape), "w": (code, shape)},
                       {"q": (code, shape), "d": (F32, shape)}, stored, opset=21)
    model.ir_version = 10
    return model


@pytest.mark.parametrize("kind", WORDS)
@pytest.mark.parametrize("target", HERE)
def test_words_are_what_numpy_makes_of_them(target, kind, tmp_path):
    _, dtype, zero = WORDS[kind]
    bundle = aotc.compile(words(kind), tmp_path / "b", target=target, name="words")
    ends, loaded = np.iinfo(dtype), bundle.load()
    rng = np.random.default_rng()
    for n in (1, 7, 16, 37, 100):
        x = rng.uniform(-700, 700, (3, n)).astype(np.float32)
        x[0, 0], x[1, 0], x[2, 0] = np.inf, -np.inf, 0.015
        w = rng.integers(ends.min, ends.max, (3, n), dtype, endpoint=True)
        got = loaded.run({"x": x, "w": w})
        q = np.clip(np.rint(x / np.float32(0.01)) + np.float32(zero), ends.min, ends.max)
        np.testing.assert_array_equal(got["q"], q.astype(dtype))
        want = sum((v.astype(np.int32) - zero).astype(np.float32) * np.float32(0.01)
                   for v in (q.astype(np.int64), w))
        np.testing.assert_allclose(got["d"], want, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("kind", WORDS)
def test_words_of_one_target_are_those_of_another(kind, tmp_path):
    """Also of what no integer stands for."""
    x = np.array([[np.nan, np.inf, -np.inf, -0.0] * 9] * 3, np.float32)
    w = np.zeros(x.shape, WORDS[kind][1])
    found = [aotc.compile(words(kind), tmp_path / t, target=t, name="words").load().run(
        {"x": x, "w": w}) for t in HERE]
    for other in found[1:]:
        for name, array in found[0].items():
            np.testing.assert_array_equal(other[name], array)


@pytest.mark.parametrize("target", [t for t in HERE if t in ("x86-64-v3", "x86-64-v4")])
def test_words_are_not_taken_one_by_one(target, tmp_path):
    bundle = aotc.compile(words("u16"), tmp_path / "b", target=target, name="words")
    text = "".join(f.read_text() for f in bundle.path.glob("words_kernels_*.c"))
    assert "aotc_load_u16(" in text and "aotc_store_16(" in text and "g1[" not in text


def weighted(conv):
    """A product of f32 and weights of 8 bits with a scale for every column."""
    rng = np.random.default_rng(3)
    shape = (96, 64, 3, 3) if conv else (300, 400)
    columns = shape[0] if conv else shape[1]
    stored = {"w": rng.integers(-127, 128, shape).astype(np.int8),
              "s": rng.uniform(0.001, 0.01, columns).astype(np.float32),
              "z": np.zeros(columns, np.int8)}
    nodes = [helper.make_node("DequantizeLinear", ["w", "s", "z"], ["f"], axis=0 if conv else 1),
             helper.make_node("Conv" if conv else "MatMul", ["x", "f"], ["y"])]
    size = [1, 64, 9, 9] if conv else [5, 300]
    return make_model(nodes, {"x": (F32, size)}, {"y": (F32, None)}, stored)


@pytest.mark.parametrize("conv", [False, True])
def test_weights_of_sums_of_floats_are_floats(conv, tmp_path):
    """Which a kernel takes in its own order; small code keeps them as they are, and products have
    rows for bytes with a scale."""
    def consts(optimize):
        program = run_pipeline(Options(weighted(conv), target="x86-64-v3", optimize=optimize,
                                       stop_after="inline")).program
        return {program.dtype(n) for n, a in program.consts.items()
                if np.prod(static_shape(program.shape(n))) > 1000}
    assert [consts(None), consts("size")] == ([{"f32"}, {"i8"}] if conv else [{"u8"}] * 2)
    model = weighted(conv)
    x = np.random.default_rng().standard_normal([1, 64, 9, 9] if conv else [5, 300])
    x = x.astype(np.float32)
    got = aotc.compile(model, tmp_path / "b", target="c", name="b").load().run({"x": x})["y"]
    small = aotc.compile(model, tmp_path / "s", target="c", name="s",
                         optimize="size").load().run({"x": x})["y"]
    np.testing.assert_allclose(got, small, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("optimize, other", [("size", None), ("size", "speed"), (None, "size")])
def test_a_schedule_says_which_weights_are_floats(optimize, other, tmp_path):
    """One that is given again is for the Program that it was decided for."""
    first = aotc.compile(weighted(True), tmp_path / "a", target="c", name="b",
                         optimize=optimize)
    again = aotc.compile(weighted(True), tmp_path / "b", target="c", name="b",
                         optimize=other, schedule=first.path / "schedule.json")
    weights = [json.loads((f.path / "manifest.json").read_text())["weights_bytes"]
               for f in (first, again)]
    assert weights[0] == weights[1] and (weights[0] > 200_000) == (optimize is None)


# columns shorter and longer than a group, odd ones, whole sums of which a cache holds slices
COLUMNS = [(70, 40, "i8"), (300, 40, "u8"), (1024, 512, "i8"), (1500, 33, "i8"), (2100, 48, "u8")]


def columns(depth, n, dtype, rows, across):
    """y = x dequantised(w), a scale and a zero point for every column."""
    rng, low = np.random.default_rng(depth), 0 if dtype == "u8" else -128
    kind = np.uint8 if dtype == "u8" else np.int8
    w = rng.integers(low, low + 256, (depth, n)).astype(kind)
    zero = np.zeros(n, kind) if dtype == "i8" else rng.integers(120, 130, n).astype(kind)
    scale = rng.uniform(0.001, 0.01, n).astype(np.float32)
    nodes = [helper.make_node("DequantizeLinear", ["w", "s", "z"], ["f"], axis=0 if across else 1),
             helper.make_node("Gemm" if across else "MatMul", ["x", "f"], ["y"],
                              **({"transB": 1} if across else {}))]
    model = make_model(nodes, {"x": (F32, [rows, depth])}, {"y": (F32, [rows, n])},
                       {"w": np.ascontiguousarray(w.T if across else w), "s": scale, "z": zero})
    return model, (w.astype(np.float64) - zero) * scale


@pytest.mark.parametrize("target, across, step", [
    pytest.param(t, across, step, marks=() if step > 1 and across == (k % 2 > 0)
                 else pytest.mark.product)
    for k, t in enumerate(("c", "x86-64-v3", "x86-64-v4", "aarch64")) if t in HERE
    for across in (False, True) for step in ((2, 1) if across == (k % 2 > 0) else (1,))])
def test_whole_columns_are_groups(target, across, step, tmp_path, monkeypatch):
    """Of bytes, in any number of rows; the sum is that of the model's own numbers."""
    monkeypatch.setenv("CFLAGS", LEVEL)
    rng = np.random.default_rng()
    cases = [*zip(COLUMNS * 2, (1, 5, 100, 1, 5, 5, 1, 1, 100, 100))]
    for (depth, n, dtype), rows in cases[::step]:
        model, w = columns(depth, n, dtype, rows, across)
        name = f"m{depth}_{rows}"
        bundle = aotc.compile(model, tmp_path / name, target=target, name=name)
        assert bundle.path.joinpath(f"{name}_weights.bin").stat().st_size < (
            2.5 * w.size + 4096), (depth, n)
        x = rng.standard_normal((rows, depth)).astype(np.float32)
        want = x.astype(np.float64) @ w
        got = bundle.load().run({"x": x})["y"]
        assert np.max(np.abs(got - want)) <= 2e-6 * np.sqrt(depth) * np.std(want), (depth, rows)


def test_narrow_products_get_floats_of_columns(tmp_path):
    """What was asked for are rows of bf16, which read no groups."""
    program = run_pipeline(Options(columns(300, 40, "i8", 5, False)[0], target="x86-64-v4",
                                   precision="bf16", stop_after="inline")).program
    assert {program.dtype(n) for n, a in program.consts.items() if a.size > 1000} == {"f32"}
