"""Half precision: conversions bit by bit on every kind of vector, and models whose tensors are f16
against their f32 twins and ONNX Runtime, in vectors throughout."""

import os
import shutil
import subprocess

import numpy as np
import onnx
import pytest
from harness import DISTINCT, at_length
from onnx import TensorProto, helper, numpy_helper
from quick_builds import KEPT, LEVEL

import aotc
from aotc.installed import runtime_c
from aotc.ir.bundle import emulators
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.passes.precision import half_weights as halves
from aotc.pipeline import run_pipeline
from aotc.runtime.compile_bundle import find_compiler
from aotc.runtime.emulate import emulated_models
from aotc.target import get_target

WARNINGS = ("-Wall -Wextra -Wconversion -Wsign-conversion -Wshadow -Wcast-align -Wcast-qual "
            "-Wdouble-promotion -pedantic -Werror")
STRICT = f"{LEVEL} {os.environ.get(KEPT, '')} {WARNINGS}"
# each with what it has for halves; the conversions themselves are compared on every one
ALL = [pytest.param(t, id=t.name, marks=at_length(t)) for t in DISTINCT]
HALF = np.float16
F16, F32 = TensorProto.FLOAT16, TensorProto.FLOAT

# ---------------------------------------------------------------- conversions

_FIXED = """
#define AOTC_LANES {lanes}
#include "aotc_num.h"
#include "aotc_vec.h"
#include "aotc_half.h"
#define WIDEN(at) aotc_store(wide + i, at)
#define EACH(n) for (int64_t i = 0; i < n; i += AOTC_LANES)
#define TURN_LOAD EACH(65536) WIDEN(aotc_half_load(all + i));
#define TURN_BITS EACH(65536) WIDEN(aotc_half_widen(aotc_half_bits(all + i)));
#define TURN_STORE EACH(N) aotc_half_store(narrow + i, aotc_load(x + i));
#define TURN_PUT EACH(N) aotc_half_put(narrow + i, aotc_half_narrow(aotc_load(x + i)));
#define TURN_MOVE EACH(65536) aotc_half_put(narrow + i, aotc_half_bits(all + i));
"""
_ANY = """
#define AOTC_LANES 1
#include "aotc_num.h"
#include "aotc_rvv.h"
#include "aotc_rvv_half.h"
#define EACH(n, m) for (int64_t i = 0, vl; i < n && (vl = (int64_t)__riscv_vsetvl_e32##m( \\
        (size_t)(n - i))) > 0; i += vl)
#define TURN_LOAD EACH(65536, m1) __riscv_vse32(wide + i, aotc_half_widen_m1( \\
        aotc_half_bits_m1(all + i, (size_t)vl), (size_t)vl), (size_t)vl);
#define TURN_BITS EACH(65536, m4) __riscv_vse32(wide + i, aotc_half_widen_m4( \\
        aotc_half_bits_m4(all + i, (size_t)vl), (size_t)vl), (size_t)vl);
#define TURN_STORE EACH(N, m2) aotc_half_put_m2(narrow + i, aotc_half_narrow_m2( \\
        __riscv_vle32_v_f32m2(x + i, (size_t)vl), (size_t)vl), (size_t)vl);
#define TURN_PUT EACH(N, m4) aotc_half_put_m4(narrow + i, aotc_half_narrow_m4( \\
        __riscv_vle32_v_f32m4(x + i, (size_t)vl), (size_t)vl), (size_t)vl);
#define TURN_MOVE EACH(65536, m2) aotc_half_put_m2(narrow + i, \\
        aotc_half_bits_m2(all + i, (size_t)vl), (size_t)vl);
"""
_MAIN = """
#include <stdio.h>
#define N 73728
static uint16_t all[65536], narrow[N];
static float wide[65536], x[N];
#define PUT(a, n) if (fwrite(a, sizeof *a, n, stdout) != n) return 1;
int main(void)
{
    for (uint32_t i = 0; i < 65536; ++i)
        all[i] = (uint16_t)i;
    if (fread(x, sizeof x, 1, stdin) != 1)
        return 1;
    TURN_LOAD
    PUT(wide, 65536)
    TURN_BITS
    PUT(wide, 65536)
    for (int i = 0; i < 65536; ++i)
        wide[i] = aotc_f16_to_f32(all[i]);
    PUT(wide, 65536)
    TURN_STORE
    PUT(narrow, N)
    TURN_PUT
    PUT(narrow, N)
    for (int i = 0; i < N; ++i)
        narrow[i] = aotc_f32_to_f16(x[i]);
    PUT(narrow, N)
    TURN_MOVE
    PUT(narrow, 65536)
    return 0;
}
"""
EMULATED = ("aarch64", "riscv64", "riscv64-zvfh")
ONE_NAN = ("riscv64-zvfh",)  # whose instructions give the same NaN for all


def _floats():
    """Floats around every half and between two of them, and any others."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(HALF).astype(np.float32).view(np.uint32)
    near = np.concatenate([halves[::4] + d for d in (0, 0x1000, 0xfff, 0x1001)])
    return np.concatenate([near, np.random.default_rng(0).integers(
        0, 1 << 32, 73728 - near.size, dtype=np.uint32)]).view(np.float32)



@pytest.mark.parametrize("target", [*DISTINCT, *map(get_target, EMULATED)], ids=lambda t: t.name)
def test_conversions_bit_by_bit(target, tmp_path):
    emulated = target.name in EMULATED
    cross = target.cross
    compiler = [next(filter(shutil.which, cross.cc), None), *cross.cflags] if emulated else [
        *find_compiler()]
    if emulated and (compiler[0] is None or not shutil.which(cross.emulator[0])):
        pytest.skip(f"needs {', '.join(cross.packages)} (Debian)")
    (tmp_path / "half.c").write_text((_ANY if target.folder == "riscv64" else _FIXED.replace(
        "{lanes}", str(target.lanes))) + _MAIN)
    subprocess.run([*compiler, "-std=c11", "-O2", *WARNINGS.split(), *target.cflags,
                    f"-I{runtime_c()}", f"-I{runtime_c() / 'riscv64'}", "half.c", "-o", "half",
                    *(cross.ldflags if emulated else ()), "-lm"], cwd=tmp_path, check=True)
    commands = emulators({"emulator": cross.emulator, "vlens": cross.vlens}).values() if (
        emulated) else [()]
    x = _floats()
    bits = np.arange(1 << 16, dtype=np.uint16)
    wide = bits.view(HALF).astype(np.float32).view(np.uint32)
    wide = np.where(np.isnan(bits.view(HALF)), wide | 0x400000, wide)
    with np.errstate(all="ignore"):
        narrow = x.astype(HALF).view(np.uint16)
    xb = x.view(np.uint32)
    narrow = np.where(np.isnan(x), xb >> 16 & 0x8000 | 0x7e00 | xb >> 13 & 0x3ff, narrow)
    of_lanes = [wide, narrow]
    if target.name in ONE_NAN:
        of_lanes = [np.where(np.isnan(bits.view(HALF)), 0x7fc00000, wide),
                    np.where(np.isnan(x), 0x7e00, narrow)]
    for command in commands:
        out = subprocess.run([*command, str(tmp_path / "half")], input=x.tobytes(), check=True,
                             capture_output=True).stdout
        for dtype, lanes, scalar in zip((np.uint32, np.uint16), of_lanes, (wide, narrow)):
            for want in (lanes, lanes, scalar):
                np.testing.assert_array_equal(np.frombuffer(out, dtype, want.size), want)
                out = out[np.dtype(dtype).itemsize * want.size:]
        np.testing.assert_array_equal(np.frombuffer(out, np.uint16), bits)


# ---------------------------------------------------------------- models

def _weight(rng, *shape):
    return (rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]) or 1)).astype(HALF)


def _node(op, ins, out, **attributes):
    return helper.make_node(op, ins.split(), [out], **attributes)


def _models():
    """name -> (nodes, {input: shape}, {weight: array}, outputs): every kind of stage."""
    rng = np.random.default_rng(1)
    w = {"w": _weight(rng, 24, 5, 3, 3), "d": _weight(rng, 24, 1, 3, 3), "e": _weight(rng, 37, 24),
         "b": _weight(rng, 24), "g": _weight(rng, 24), "t": _weight(rng, 50, 24),
         "pads": np.array([0, 0, 1, 2, 0, 0, 0, 3]), "axes": np.array([-1]), "one": np.array([1]),
         "i": np.array([[3, 49], [0, 3]]), "v": HALF(2.5)}
    image, rows = {"x": (2, 5, 11, 9)}, {"x": (3, 7, 24)}
    return {
        "maps": ([_node("Sigmoid", "x", "s"), _node("Mul", "x s", "m"), _node("Erf", "m", "y"),
                  _node("Softmax", "x", "z"), _node("ReduceMean", "x axes", "r"),
                  _node("ReduceMax", "x one", "q")], rows, w, "y z r q"),
        "moves": ([_node("Transpose", "x", "y", perm=[0, 2, 3, 1]), _node("Pad", "x pads v", "z"),
                   _node("Transpose", "x", "u", perm=[3, 2, 1, 0]),
                   _node("Concat", "x x", "c", axis=3), _node("Slice", "x a o ax st", "s")], image,
                  {**w, "a": np.array([2]), "o": np.array([8]), "ax": np.array([3]),
                   "st": np.array([1])}, "y z u c s"),
        "images": ([_node("Conv", "x w b", "c", pads=[1] * 4), _node("Relu", "c", "r"),
                    _node("Conv", "r d b", "y", pads=[1] * 4, group=24),
                    _node("MaxPool", "x", "m", kernel_shape=[3, 3], pads=[1] * 4),
                    _node("AveragePool", "y", "a", kernel_shape=[2, 2], strides=[2, 2]),
                    _node("Add", "c y", "z")], image, w, "y m a z"),
        "attention": ([_node("LayerNormalization", "x g b", "n"), _node("Transpose", "n", "k",
                                                                        perm=[0, 2, 1]),
                       _node("MatMul", "n k", "s"), _node("Softmax", "s", "p"),
                       _node("MatMul", "p n", "o"), _node("Add", "o x", "h"),
                       _node("Transpose", "e", "f", perm=[1, 0]), _node("MatMul", "h f", "y")],
                      rows, w, "y s"),
        "lookups": ([_node("Gather", "t i", "l"), _node("Gather", "t j", "k"),
                     _node("Mul", "k x", "y"), _node("Cast", "y", "z", to=F32)],
                    {"x": (3, 7, 24), "j": (3, 7)}, w, "l k y z"),
    }


def _model(half=True):
    """All of them in one graph, tensors called after their model."""
    to, nodes, inputs, outputs, arrays = F16 if half else F32, [], [], [], {}
    for name, (steps, shapes, weights, outs) in _models().items():
        for n in steps:
            n = onnx.NodeProto.FromString(n.SerializeToString())
            for names in (n.input, n.output):
                names[:] = [f"{name}_{k}" for k in names]
            nodes.append(n)
        used = {i for n in nodes for i in n.input}
        for k, a in weights.items():
            if f"{name}_{k}" in used:
                a = np.asarray(a)
                arrays[f"{name}_{k}"] = a if half or a.dtype != HALF else a.astype("f4")
        inputs += [helper.make_tensor_value_info(
            f"{name}_{k}", TensorProto.INT64 if k == "j" else to, s) for k, s in shapes.items()]
        outputs += [helper.make_tensor_value_info(
            f"{name}_{o}", F32 if name == "lookups" and o == "z" else to, None)
            for o in outs.split()]
    graph = helper.make_graph(nodes, "g", inputs, outputs,
                              [numpy_helper.from_array(a, k) for k, a in arrays.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _feeds(half=True):
    rng = np.random.default_rng(2)
    return {f"{name}_{k}": rng.integers(0, 50, s) if k == "j" else rng.normal(size=s).astype(
        HALF).astype(HALF if half else "f4") for name, m in _models().items()
        for k, s in m[1].items()}


@pytest.fixture(scope="module")
def twin():
    """What the f32 twin gives."""
    work = run_pipeline(Options(_model(False), target="c", name="net", stop_after="inline"))
    found = evaluate(work.program, _feeds(False))
    return {work.program.buffers[n].onnx: a for n, a in found.items()}


def _rounded(target):
    """What the model gives where tensors are rounded that the Schedule stores as f16."""
    work = run_pipeline(Options(_model(), target=target, name="net", stop_after="schedule"))
    found = evaluate(work.as_rounded, _feeds())
    return {work.program.buffers[n].onnx: a for n, a in found.items()}


def _close(key, got, exact, rounded):
    """To the twin: half a unit in the last place of f16, and what f32 sums and functions may be
    off.  Behind a tensor that is rounded on the way: a unit from what is rounded alike."""
    if np.array_equal(exact.astype(rounded.dtype), rounded, equal_nan=True):
        np.testing.assert_allclose(got, exact, rtol=2**-11 + 1e-5, err_msg=key,
                                   atol=2e-6 * np.abs(exact).max())
    else:
        np.testing.assert_allclose(got, rounded, rtol=2**-10 + 1e-5, err_msg=key,
                                   atol=2e-5 * np.abs(exact).max())


@pytest.mark.parametrize("target", [
    pytest.param(t, id=t.name, marks=() if t is DISTINCT[-1] else pytest.mark.product)
    for t in DISTINCT])
def test_models_are_their_twins_rounded(target, twin, tmp_path, monkeypatch):
    monkeypatch.setenv("CFLAGS", STRICT)
    bundle = aotc.compile(_model(), tmp_path / "b", target=target.name, name="net")
    got = bundle.load(threads=2).run(_feeds())
    rounded = _rounded(target.name)
    for key, want in twin.items():
        assert got[key].dtype == (np.float32 if key == "lookups_z" else HALF)
        _close(key, got[key], want, rounded[key])


def test_onnxruntime_agrees(twin):
    ort = pytest.importorskip("onnxruntime")
    model = onnx.shape_inference.infer_shapes(_model())
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    for key, other in zip(names, session.run(None, _feeds())):
        np.testing.assert_allclose(twin[key], other.astype("f4"), rtol=4e-3, err_msg=key,
                                   atol=4e-3 * np.abs(twin[key]).max())


@pytest.mark.parametrize("target", ("x86-64-v4", "aarch64", "riscv64", "riscv64-zvfh"))
def test_vectors_throughout(target):
    """On targets with vectors no float is computed, moved or stored in scalar loops."""
    work = run_pipeline(Options(_model(), target=target, name="net", stop_after="schedule"))
    plain = [s for g in work.schedule.groups for s, row in g.rows.items() if row == "loops"]
    assert not [s for s in plain if work.program.dtype(s)[0] == "f"], plain


@pytest.mark.parametrize("target", [*(
    pytest.param(n, marks=pytest.mark.product) for n in ("aarch64", "riscv64")), "riscv64-zvfh"])
def test_other_machines(target, twin, tmp_path, monkeypatch):
    cross = get_target(target).cross
    if not any(map(shutil.which, cross.cc)) or not shutil.which(cross.emulator[0]):
        pytest.skip(f"needs {', '.join(cross.packages)} (Debian)")
    monkeypatch.setenv("CFLAGS", LEVEL)
    aotc.compile(_model(), tmp_path / "b", target=target, name="net")
    rounded = _rounded(target)
    for model in emulated_models(tmp_path / "b").values():
        for (key, got), want in zip(model.run(_feeds()).items(), twin.values(), strict=True):
            _close(key, got, want, rounded[key])


def test_moves_keep_every_bit(tmp_path):
    """All numbers there are, signalling NaNs among them."""
    x = np.arange(1 << 16, dtype=np.uint16).reshape(1, 64, 32, 32).view(HALF)
    nodes = [_node("Transpose", "x", "y", perm=[0, 2, 3, 1]),
             _node("Transpose", "x", "z", perm=[1, 0, 3, 2]),
             _node("Concat", "x x", "c", axis=3), _node("Pad", "x pads", "p")]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", F16, x.shape)],
        [helper.make_tensor_value_info(n, F16, None) for n in "yzcp"],
        [numpy_helper.from_array(np.array([0, 0, 1, 1, 0, 0, 1, 1]), "pads")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    want = {"y": x.transpose(0, 2, 3, 1), "z": x.transpose(1, 0, 3, 2),
            "c": np.concatenate([x, x], 3), "p": np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])}
    for target in DISTINCT[1:]:
        got = aotc.compile(model, tmp_path / target.name, target=target.name, name="net").load(
            threads=1).run({"x": x})
        for key, array in want.items():
            np.testing.assert_array_equal(got[key].view(np.uint16),
                                          np.ascontiguousarray(array).view(np.uint16))


@pytest.mark.parametrize("target", ALL)
def test_functions_of_every_half(target, tmp_path):
    x = np.arange(1 << 16, dtype=np.uint16).view(HALF)
    graph = helper.make_graph(
        [_node("Exp", "x", "e"), _node("Sigmoid", "x", "s")], "g",
        [helper.make_tensor_value_info("x", F16, x.shape)],
        [helper.make_tensor_value_info(n, F16, x.shape) for n in "es"])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    got = aotc.compile(model, tmp_path / "b", target=target.name, name="net").load().run({"x": x})
    with np.errstate(all="ignore"):
        wide = x.astype("f8")
        exact = {"e": np.exp(wide), "s": 1 / (1 + np.exp(-wide))}
        for key, want in exact.items():
            near = want.astype(HALF)
            np.testing.assert_array_equal(np.isnan(got[key]), np.isnan(near))
            number = ~np.isnan(near)
            steps = np.abs(got[key].view(np.int16).astype(int) - near.view(np.int16))[number]
            assert steps.max() <= 1 and np.mean(steps) < 0.01, key


def _chain(nodes, out=F16):
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", F16, (64,))],
                              [helper.make_tensor_value_info("y", out, (64,))],
                              [numpy_helper.from_array(HALF(300.0), "c"),
                               numpy_helper.from_array(HALF(0.37), "k")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_only_stored_tensors_round(tmp_path):
    """What flows from operator to operator neither rounds nor overflows; an operator that a
    rounding may turn over sees the tensor as it is stored."""
    x = np.linspace(-900, 900, 64).astype(HALF)
    square = _chain([_node("Mul", "x c", "a"), _node("Div", "a c", "y")])
    got = aotc.compile(square, tmp_path / "a", name="net").load().run({"x": x})["y"]
    np.testing.assert_array_equal(got, x)
    floor = _chain([_node("Mul", "x k", "a"), _node("Floor", "a", "y")])
    got = aotc.compile(floor, tmp_path / "b", name="net").load().run({"x": x})["y"]
    np.testing.assert_array_equal(got, np.floor(x * HALF(0.37)))
    integers = _chain([_node("Mul", "x k", "a"), _node("Cast", "a", "y", to=TensorProto.INT32)],
                      TensorProto.INT32)
    got = aotc.compile(integers, tmp_path / "c", name="net").load().run({"x": x})["y"]
    np.testing.assert_array_equal(got, (x * HALF(0.37)).astype(np.int32))



@pytest.mark.parametrize("target", ALL)
def test_weights_of_few_rows_stay_half(target, tmp_path, monkeypatch):
    """Reading weights is what such products do: half of the bytes, converted as they are
    multiplied, where an instruction does that.  Others become f32 when the model is compiled."""
    monkeypatch.setattr(halves, "LEAST_BYTES", 1 << 12)
    monkeypatch.setenv("CFLAGS", STRICT)
    rng = np.random.default_rng(3)
    shapes = {"a": (1, 70), "b": (5, 70), "c": (40, 70)}
    weights = {k: _weight(rng, 70, 83) for k in shapes} | {"d": _weight(rng, 83, 70)}
    nodes = [_node("MatMul", f"x{k} {k}", f"y{k}") for k in shapes]
    nodes.append(_node("Gemm", "xb d", "yd", transB=1))
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(f"x{k}", F16, s) for k, s in shapes.items()],
        [helper.make_tensor_value_info(f"y{k}", F16, None) for k in "abcd"],
        [numpy_helper.from_array(w, k) for k, w in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    work = run_pipeline(Options(model, target=target.name, name="net", stop_after="inline"))
    kept = sorted(a.dtype.name for a in work.program.consts.values())
    assert kept == (["float16"] * 3 if target.halves else ["float32"] * 3) + ["float32"]
    feeds = {f"x{k}": rng.normal(size=s).astype(HALF) for k, s in shapes.items()}
    got = aotc.compile(model, tmp_path / "b", target=target.name, name="net").load(threads=2).run(
        feeds)
    wide = {k: a.astype("f8") for k, a in (feeds | weights).items()}
    for k in "abcd":
        want = wide["xb"] @ wide["d"].T if k == "d" else wide[f"x{k}"] @ wide[k]
        np.testing.assert_allclose(got[f"y{k}"], want, rtol=2**-11 + 1e-5, atol=1e-5)
