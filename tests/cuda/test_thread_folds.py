"""Folds that the threads of a block share: of every dtype, along any axis, and no thread idle."""

import warnings
from dataclasses import replace

import numpy as np
import onnx
import pytest
from cusim_build import needs_cxx
from onnx import TensorProto, helper
from small_models import make_model

import aotc
from aotc.errors import InterpreterError
from aotc.ir.expr import Axis, Binary, Const, Var, Where
from aotc.ir.expr import compare as comparison
from aotc.ir.kernel.plan_stages import Nest, points
from aotc.ir.program import Fold
from aotc.ir.simplify import upper
from aotc.ir.statements import Barrier, bodies, with_bodies
from aotc.options import Options
from aotc.oracle.run_plan import run_plan
from aotc.pipeline import run_pipeline
from aotc.sched.model.lane_nests import picks_element
from aotc.tools.peers import open_reference
from aotc.tools.verify import compare

TARGET = "cuda:sm_80"
node, rng = helper.make_node, np.random.default_rng
ONNX = {"f32": TensorProto.FLOAT, "f64": TensorProto.DOUBLE, "f16": TensorProto.FLOAT16,
        "i32": TensorProto.INT32, "i64": TensorProto.INT64, "u8": TensorProto.UINT8}
NUMPY = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "i32": np.int32,
         "i64": np.int64, "u8": np.uint8}
FOLDS = {"Sum": np.sum, "Prod": np.prod, "Max": np.max, "Min": np.min}
AXES = {"rows": (1,), "columns": (0,), "all": (0, 1)}
SHAPE = (75, 331)  # ragged by warps, blocks and teams


def reductions(dtype, shape=SHAPE):
    """A model of all folds of a matrix along all axes, an output each."""
    small = dtype == "u8"  # of which the standard folds these
    folds = ["Max", "Min"] if small else list(FOLDS)
    nodes, outs, tensors = [], {}, {}
    for where, axes in AXES.items():
        tensors[where] = np.array(axes, np.int64)
        for fold in folds:
            nodes.append(node(f"Reduce{fold}", ["x", where], [f"{fold}_{where}"], keepdims=0))
            outs[f"{fold}_{where}"] = (ONNX[dtype], [n for d, n in enumerate(shape)
                                                     if d not in axes])
    return make_model(nodes, {"x": (ONNX[dtype], list(shape))}, outs, tensors, opset=18)


def numbers(dtype):
    """A matrix whose products neither vanish nor overflow; of floats with specials in some rows."""
    r = rng()
    if dtype == "u8":
        return r.integers(0, 256, SHAPE).astype(np.uint8)
    if dtype[0] == "i":  # sums and products wrap around
        return r.integers(-2**31, 2**31, SHAPE).astype(NUMPY[dtype])
    x = (1 + 0.002 * r.standard_normal(SHAPE)) * r.choice([-1, 1], SHAPE)
    for row, special in enumerate((np.nan, np.inf, -np.inf)):
        x[row, r.integers(0, SHAPE[1], 2)] = special
    return x.astype(NUMPY[dtype])


@needs_cxx
@pytest.mark.parametrize("dtype", [d if d in ("f32", "f64", "i64") else pytest.param(
    d, marks=pytest.mark.product) for d in NUMPY])
def test_folds_of_any_dtype_are_those_of_numpy(tmp_path, dtype):
    model = aotc.compile(reductions(dtype), tmp_path / "b", target=TARGET).load(simulate=True)
    x = numbers(dtype)
    got = model.run({"x": x})
    wide = x.astype(np.float64) if dtype[0] == "f" else x
    for name, y in got.items():
        fold, where = name.split("_")
        with np.errstate(all="ignore"):
            want = FOLDS[fold](wide, axis=AXES[where]).astype(x.dtype)
        near = {"f16": 4e-3, "f32": 2e-4, "f64": 1e-10}.get(dtype, 0)
        assert y.dtype == want.dtype and np.allclose(y, want, near, near, equal_nan=True), name


@needs_cxx
def test_several_folds_of_columns_stand_in_one_kernel(tmp_path):
    model = make_model([node("ReduceLogSumExp", ["x", "a"], ["y"], keepdims=0)],
                       {"x": (ONNX["f32"], [300, 512])}, {"y": (ONNX["f32"], [512])},
                       {"a": np.array([0], np.int64)}, opset=18)
    teams = [sum(s.team > 1 and not s.folds_lanes for s in k.lowered.stages)
             for k in plan_of(model).kernels]
    assert max(teams) > 1
    x = rng().standard_normal((300, 512)).astype(np.float32)
    got = aotc.compile(model, tmp_path / "b", target=TARGET, name="net").load(
        simulate=True).run({"x": x})["y"]
    want = np.log(np.exp(x.astype(np.float64)).sum(0))
    assert compare("y", got, want.astype(np.float32)).ok


PICKS = {f"{op}_{axis}_{last}": (f"Arg{op}", axis, last)
         for op in ("Max", "Min") for axis in (0, 1) for last in (0, 1)}


@needs_cxx
def test_where_the_best_element_stands_is_what_another_runtime_says(tmp_path):
    """Of ties the first or the last, of a NaN in front and of others."""
    nodes = [node(op, ["x"], [name], axis=axis, select_last_index=last, keepdims=1)
             for name, (op, axis, last) in PICKS.items()]
    shapes = {name: (ONNX["i64"], [1 if d == axis else n for d, n in enumerate(SHAPE)])
              for name, (_, axis, _) in PICKS.items()}
    source = tmp_path / "picks.onnx"
    onnx.save(make_model(nodes, {"x": (ONNX["f32"], list(SHAPE))}, shapes, opset=18), source)
    x = rng().integers(0, 40, SHAPE).astype(np.float32)  # ties
    x[0, 0] = x[3, 7] = x[5, 200] = np.nan
    x[6], x[7, 100] = -np.inf, np.inf
    want = open_reference(source)[1]({"x": x})
    bundle = aotc.compile(source, tmp_path / "b", target=TARGET)
    got = bundle.load(simulate=True).run({"x": x})
    for name in PICKS:
        assert np.array_equal(got[name], want[name]), name


def test_only_folds_that_order_elements_are_made_in_slices():
    x, best, at, r = Var("x", "f32"), Var("best", "f32"), Var("at", "i64"), Axis("r", Const(9))

    def picks(wins):
        return picks_element(Fold(
            (("best", "f32"), ("at", "i64")), (Const(-np.inf, "f32"), Const(0)),
            (Where(wins, x, best), Where(wins, r, at))), (r,))
    greater, less = comparison("gt", x, best), comparison("lt", x, best)
    first, nan = comparison("eq", r, Const(0)), comparison("ne", x, x)
    assert all(map(picks, (greater, less, Binary("or", first, greater), Binary("or", less, nan))))
    assert not any(map(picks, (comparison("ne", x, best), Binary("or", greater, less),
                               Binary("or", greater, comparison("lt", r, Const(4))))))


def plan_of(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run_pipeline(Options(source=model, out=None, target=TARGET, stop_after="plan")).plan


def without_barriers(body):
    """Every body that lacks one barrier."""
    for i, s in enumerate(body):
        if isinstance(s, Barrier):
            yield body[:i] + body[i + 1:]
        for name, inner in bodies(s):
            for less in without_barriers(inner):
                yield (*body[:i], with_bodies(s, {name: less}), *body[i + 1:])


def test_no_barrier_between_the_threads_of_a_column_can_be_left_out():
    one = make_model([node("ReduceSum", ["x", "a"], ["y"], keepdims=0)],
                     {"x": (ONNX["f32"], [700, 40])}, {"y": (ONNX["f32"], [40])},
                     {"a": np.array([0], np.int64)}, opset=18)
    plan = plan_of(one)
    nests = [s for k in plan.kernels for s in k.lowered.stages]
    assert all(isinstance(n, Nest) and not n.folds_lanes and n.team > 1 for n in nests)
    x = rng().standard_normal((700, 40)).astype(np.float32)
    assert compare("y", run_plan(plan, {"x": x}, {})["y"], x.sum(0)).ok
    kernel = plan.kernels[0]
    mutants = list(without_barriers(kernel.body))
    assert mutants
    between = 0
    for body in mutants:
        try:
            run_plan(replace(plan, kernels=(replace(kernel, body=body), *plan.kernels[1:])),
                     {"x": x}, {})
        except InterpreterError as err:
            assert "without a barrier" in str(err)
            between += 1
    assert between  # the last one is for what comes behind, of which there is nothing


# ---------------------------------------------------------------- no thread idle

MOST_ALONE = 256  # terms that a thread of a plain nest makes one after another
FLOPS = 1e6  # of a kernel that is looked at
WARP = 32


def idle(plan):
    """What is wrong with the kernels of a Plan: half of the threads have nothing to do in a nest
    of many operations, or few threads make long folds of a plain one."""
    wrong = []
    for kernel in plan.kernels:
        k = kernel.lowered
        for s in (s for s in k.stages if isinstance(s, Nest)):
            each = s.team * (WARP if s.folds_lanes else 1)
            terms = points(s.reduce) or MOST_ALONE + 1
            at_once, items = (points(s.ranges) or k.threads) * each, upper(k.tiles) or 1
            if at_once * items * terms < FLOPS:
                continue
            if at_once < k.threads / 2:
                wrong.append(f"{k.name}: {at_once} of {k.threads} threads at work\n{s}")
            if s.row == "loops" and s.fold != "none" and terms > MOST_ALONE:
                wrong.append(f"{k.name}: a thread makes {terms} terms alone\n{s}")
    return wrong


def product(op, dtype, m, k, n, out=None, weights=None, **fields):
    made = rng(0).integers(-9, 9, (k, n)) if weights is None else weights
    return make_model([node(op, ["x", "w"], ["y"], **fields)], {"x": (ONNX[dtype], [m, k])},
                      {"y": (ONNX[out or dtype], [m, n])},
                      {"w": made.astype(np.int8 if dtype == "u8" else NUMPY[dtype])})


def four_bits(m, k, n):
    w = rng(0).integers(0, 256, (n, k // 32, 16)).astype(np.uint8)
    scales = rng(0).random(n * (k // 32)).astype(np.float32)
    one = node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=k, N=n, bits=4,
               block_size=32)
    return make_model([one], {"x": (ONNX["f32"], [m, k])}, {"y": (ONNX["f32"], [m, n])},
                      {"w": w, "s": scales})


def quantised(m, k, n):
    w = rng(0).integers(-127, 128, (k, n)).astype(np.int8)
    nodes = [node("QuantizeLinear", ["x", "a", "z"], ["q"]),
             node("DequantizeLinear", ["q", "a", "z"], ["d"]),
             node("DequantizeLinear", ["w", "b"], ["v"]), node("MatMul", ["d", "v"], ["y"])]
    return make_model(nodes, {"x": (ONNX["f32"], [m, k])}, {"y": (ONNX["f32"], [m, n])}, {
        "w": w, "a": np.float32(0.02), "z": np.uint8(128), "b": np.float32(0.01)})


MODELS = {
    "f64": lambda: product("MatMul", "f64", 96, 512, 96),
    "i32": lambda: product("MatMul", "i32", 96, 512, 96),
    "i64, one row": lambda: product("MatMul", "i64", 1, 2048, 1024),
    "u8": lambda: product("MatMulInteger", "u8", 96, 512, 96, "i32"),
    "u8, one row": lambda: product("MatMulInteger", "u8", 1, 2048, 1024, "i32"),
    "quantised": lambda: quantised(96, 512, 96),
    "4 bits": lambda: four_bits(16, 1024, 512),
    "4 bits, one row": lambda: four_bits(1, 4096, 1024),
    "best of rows": lambda: make_model(
        [node("ArgMax", ["x"], ["y"], axis=1)], {"x": (ONNX["f32"], [64, 50000])},
        {"y": (ONNX["i64"], [64, 1])}),
    **{d: lambda d=d: reductions(d, (512, 4096)) for d in ("f32", "f64", "f16", "i64")},
}


@pytest.mark.parametrize("name", MODELS)
def test_no_thread_is_idle_where_a_product_or_a_long_fold_is(name):
    assert not idle(plan_of(MODELS[name]()))
