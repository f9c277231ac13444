"""Quantised models on GPUs: products of bytes run on tensor cores, whatever reads and makes them,
and every output is the evaluator's."""

import warnings

import numpy as np
import onnx
import pytest
from attention_model import attention
from cusim_build import needs_cxx
from harness import every
from onnx import TensorProto, helper
from small_models import conv_stack, fire_stack, make_model

import aotc
from aotc.ir.expr import Binary
from aotc.ir.kernel.plan_stages import Contract, Nest, points
from aotc.ir.statements import OWN, For, walk_body
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.passes.rewrites import apply_schedule_rewrites
from aotc.pipeline import run_pipeline
from aotc.target import get_target
from benchmarks.quantised import FORMS, quantise

TARGET = get_target("cuda:sm_80")
FEW = 16  # rows of a product that tensor cores are not for
MODELS = {"attention": lambda: attention(40),
          "conv stack": lambda: conv_stack(16, channels=(16, 32)),
          "fire stack": lambda: fire_stack(9, (16, 32), 32)}
node, rng = helper.make_node, np.random.default_rng


def until(stage, model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run_pipeline(Options(source=model, target=TARGET.name, name="net",
                                    stop_after=stage))


def off_tensor_cores(plan, floats=False):
    """Products of more than ``FEW`` rows that have no row of bytes on tensor cores (``floats``:
    those of f32 may be), and sums of more products of integers than a depthwise convolution has
    that are nests."""
    stages = [(k.name, s) for k in plan.kernels for s in k.lowered.stages]
    return [f"{name}: {s.row}" for name, s in stages
            if isinstance(s, Contract) and (points(s.m) or FEW + 1) > FEW
            and not TARGET.product_row(s.row).by_columns
            and not (floats and s.micro.dtypes.a == "f32")] + [
        f"{name}: {s.row}" for name, s in stages
        if isinstance(s, Nest) and s.fold == "sum" and isinstance(s.body, Binary)
        and s.body.op == "mul" and s.body.dtype == "i32" and (points(s.reduce) or FEW + 1) > FEW]


def on_bytes(plan):
    """How many products are on such rows."""
    return sum(isinstance(s, Contract) and TARGET.product_row(s.row).by_columns
               for k in plan.kernels for s in k.lowered.stages)


def quantised(name, form, folder, sizes=1):
    """(path of a small model that ONNX Runtime's tools have quantised, its input)."""
    model = MODELS[name]()
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    sets = [{"x": rng(n).standard_normal(shape).astype(np.float32)} for n in range(2)]
    onnx.save(model, folder / "f32.onnx")
    quantise(folder / "f32.onnx", form, folder / "q.onnx", sets)
    return folder / "q.onnx", sets[0]


@needs_cxx
@pytest.mark.parametrize("form", every(FORMS, 2))
@pytest.mark.parametrize("name", MODELS)
def test_a_quantised_model_runs_on_tensor_cores(name, form, tmp_path):
    path, feeds = quantised(name, form, tmp_path)
    work, plan = until("schedule", path), until("plan", path).plan
    assert not off_tensor_cores(plan, floats=form == "dynamic") and on_bytes(plan) >= 4
    rewritten = apply_schedule_rewrites(work.program, work.schedule)
    want = evaluate(rewritten, feeds)["y"].astype("f8")
    got = aotc.compile(path, tmp_path / "b", target=TARGET.name, name="net").load(
        simulate=True).run(feeds)["y"]
    assert np.abs(got - want).max() <= 2e-2 * np.ptp(want)  # a quantum of some tensor
    assert np.abs(got - want).mean() <= 1e-4 * np.ptp(want)


# ---------------------------------------------------------------- convolutions and products

def convolution(channels, kernel, stride, pad, zero, signed=False):
    """(y i32 of x, x: shape and dtype): ConvInteger behind another one, whose result lies channels
    last; x and what is between have a zero point."""
    r, kind = rng(channels), np.int8 if signed else np.uint8
    tensors = {"w": r.integers(-127, 128, (channels, 32, 1, 1)).astype(np.int8),
               "v": r.integers(-127, 128, (70, channels, kernel, kernel)).astype(np.int8),
               "one": np.float32(1), "part": np.float32(300), "zero": np.array(zero, kind),
               "none": np.zeros((), np.int8)}
    nodes = [node("QLinearConv", ["x", "one", "zero", "w", "one", "none", "part", "zero"], ["h"]),
             node("ConvInteger", ["h", "v", "zero"], ["y"], pads=[pad] * 4, strides=[stride] * 2)]
    elements = TensorProto.INT8 if signed else TensorProto.UINT8
    out = (9 + 2 * pad - kernel) // stride + 1
    return make_model(nodes, {"x": (elements, [2, 32, 9, 9])},
                      {"y": (TensorProto.INT32, [2, 70, out, out])}, tensors)


CONVOLUTIONS = {"16 channels": (16, 3, 1, 1, 131), "24 channels": (24, 3, 2, 1, 9),
                "4 channels": (4, 3, 1, 1, 200), "64 channels, no zero": (64, 3, 1, 1, 0),
                "no padding": (32, 2, 1, 0, 7), "5 channels": (5, 3, 1, 1, 77),
                "1x1": (48, 1, 1, 0, 90), "signed": (16, 3, 1, 1, -5, True),
                "20 channels": (20, 3, 1, 1, 50), "72 channels": (72, 2, 1, 1, 3)}


@needs_cxx
@pytest.mark.parametrize("name", every(CONVOLUTIONS, 3))
def test_convolutions_read_the_zero_point_outside(name, tmp_path):
    model = convolution(*CONVOLUTIONS[name])
    work, plan = until("schedule", model), until("plan", model).plan
    assert not off_tensor_cores(plan) and on_bytes(plan) == 2
    assert any(g.flat for g in work.schedule.groups)  # no tile ends where an image does
    kind = np.int8 if len(CONVOLUTIONS[name]) > 5 else np.uint8
    feeds = {"x": rng().integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, (2, 32, 9, 9), kind)}
    want = evaluate(apply_schedule_rewrites(work.program, work.schedule), feeds)["y"]
    got = aotc.compile(model, tmp_path / "b", target=TARGET.name, name="net").load(
        simulate=True).run(feeds)["y"]
    np.testing.assert_array_equal(got, want)


def product(m, k, n, left, right, zeros, computed):
    """y i32[2, m, n] = (a - za) (b - zb): MatMulInteger."""
    kinds = {"u8": (TensorProto.UINT8, np.uint8), "s8": (TensorProto.INT8, np.int8)}
    tensors = {"za": np.array(zeros[0], kinds[left][1]), "zb": np.array(zeros[1], kinds[right][1])}
    inputs = {"a": (kinds[left][0], [2, m, k])}
    if computed:
        inputs["b"] = kinds[right][0], [2, k, n]
    else:
        tensors["b"] = rng(3).integers(-100, 100, (k, n)).astype(np.int8).view(kinds[right][1])
    return make_model([node("MatMulInteger", ["a", "b", "za", "zb"], ["y"])], inputs,
                      {"y": (TensorProto.INT32, [2, m, n])}, tensors)


PRODUCTS = {"u8s8": (37, 100, 70, "u8", "s8", (3, 0), False),
            "u8s8, both zeros": (20, 64, 130, "u8", "s8", (3, 5), False),
            "u8u8": (33, 48, 20, "u8", "u8", (120, 130), False),
            "s8s8": (65, 81, 33, "s8", "s8", (4, 0), False),
            "s8s8, few rows": (3, 80, 33, "s8", "s8", (4, 0), False),
            "s8s8, one row": (1, 80, 33, "s8", "s8", (4, 0), False),
            "two tensors": (37, 66, 70, "u8", "s8", (3, 0), True),
            "two tensors, s8": (18, 32, 48, "s8", "s8", (0, 0), True),
            "two tensors, u8": (20, 33, 17, "u8", "u8", (9, 8), True),
            "two tensors, one row": (1, 48, 40, "u8", "s8", (3, 0), True)}


@needs_cxx
@pytest.mark.parametrize("name", every(PRODUCTS, 4))
def test_products_of_every_kind_of_bytes_are_exact(name, tmp_path):
    m, k, n, left, right, zeros, computed = PRODUCTS[name]
    model = product(*PRODUCTS[name])
    assert not off_tensor_cores(until("plan", model).plan)
    kinds = {"u8": np.uint8, "s8": np.int8}
    feeds = {"a": rng().integers(0, 256, (2, m, k)).astype(np.uint8).view(kinds[left])}
    if computed:
        feeds["b"] = rng().integers(0, 256, (2, k, n)).astype(np.uint8).view(kinds[right])
        b = feeds["b"]
    else:
        b = onnx.numpy_helper.to_array(next(
            t for t in model.graph.initializer if t.name == "b"))
    want = (feeds["a"].astype(np.int64) - zeros[0]) @ (b.astype(np.int64) - zeros[1])
    got = aotc.compile(model, tmp_path / "b", target=TARGET.name, name="net").load(
        simulate=True).run(feeds)["y"]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("channels", [16, 20, 24, 32, 40, 64, 72])
def test_steps_run_on_from_tap_to_tap(channels):
    """Of few channels, or of more than fill their steps: none of a step but the last is zeros."""
    plan = until("plan", convolution(channels, 3, 1, 1, 7)).plan
    (kernel, c), = [(k, s) for k in plan.kernels for s in k.lowered.stages
                    if isinstance(s, Contract) and s.taps]
    row = TARGET.product_row(c.row)
    (loop,) = [s for s in walk_body(kernel.body) if isinstance(s, For)
               and s.axis.name == f"{OWN}next"]
    steps = loop.hi.value - (c.writing.stages - 1)
    assert row.by_columns and steps == -(-9 * channels // row.steps)


# ---------------------------------------------------------------- whole models

@pytest.mark.zoo
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["bert_tiny", "bert_small", "mobilenet_v2", "resnet18",
                                  "squeezenet1_1", "vit_base_16"])
def test_no_product_of_a_quantised_zoo_model_is_off_tensor_cores(zoo_model, name, form, tmp_path):
    path = zoo_model(name)
    graph, feeds = onnx.load(path).graph, {}
    held = {t.name for t in graph.initializer}
    for i in (i for i in graph.input if i.name not in held):
        tensor = i.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        feeds[i.name] = rng().random([d.dim_value or 1 for d in tensor.shape.dim]).astype(dtype)
    quantise(path, form, tmp_path / "q.onnx", [feeds])
    plan = until("plan", tmp_path / "q.onnx").plan
    assert not off_tensor_cores(plan, floats=form == "dynamic") and on_bytes(plan) > 4
