"""Models in f16 and bf16 on GPUs: stored so between kernels and in weights, multiplied on tensor
cores."""

import warnings
from dataclasses import replace

import ml_dtypes
import numpy as np
import onnx
import pytest
from attention_model import attention
from cusim_build import needs_cxx
from gpu_stages import on_simt
from half_models import halved
from small_models import conv_stack, fire_stack, u_net

import aotc
from aotc.ir.dtypes import BF16, HALF
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.oracle.shares import share_of_range
from aotc.passes.rewrites import apply_schedule_rewrites
from aotc.pipeline import run_pipeline
from aotc.sched import check_schedule
from aotc.target import get_target
from aotc.tools.peers import open_reference

TARGET = get_target("cuda:sm_90")
MODELS = {"attention": lambda: attention(40), "conv stack": conv_stack, "u-net": u_net,
          "fire stack": lambda: fire_stack(9, (16, 32), 32)}


def until(stage, model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run_pipeline(Options(source=model, target=TARGET.name, name="net",
                                    stop_after=stage))


@needs_cxx
@pytest.mark.parametrize("name", MODELS)
def test_a_model_in_bf16_is_stored_and_multiplied_so(name, tmp_path):
    """The same, near to what the model in f32 gives."""
    whole = MODELS[name]()
    model = halved(whole, BF16)
    work = until("schedule", model)
    bundle = aotc.compile(model, tmp_path / "b", target=TARGET.name, name="net")
    plan = until("plan", model).plan
    assert not on_simt(plan, BF16)
    kinds = [p.dtype for p in plan.places if p.storage == "arena"]
    assert kinds.count(BF16) > kinds.count("f32")
    weights = {p.dtype for p in plan.places if p.storage == "weights" and len(p.shape) > 1}
    assert BF16 in weights <= {BF16, "u16"}  # bits are what windows read
    shape = [d.dim_value for d in whole.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng().standard_normal(shape).astype(ml_dtypes.bfloat16)
    rounded = apply_schedule_rewrites(work.program, work.schedule)
    want = evaluate(rounded, {"x": x.view(np.uint16)})["y"].view(ml_dtypes.bfloat16)
    got = bundle.load(simulate=True).run({"x": x})["y"]
    assert got.dtype == ml_dtypes.bfloat16
    assert share_of_range(got.astype("f8"), want.astype("f8")) < 1.2e-2
    onnx.save(whole, tmp_path / "net.onnx")
    other = open_reference(tmp_path / "net.onnx")[1]({"x": x.astype(np.float32)})["y"]
    assert share_of_range(got.astype("f8"), other.astype("f8")) < 8e-2


@needs_cxx
@pytest.mark.parametrize("name", MODELS)
def test_a_model_in_halves_is_stored_and_multiplied_so(name, tmp_path):
    """Each output is what the model that rounds what is stored has, as the evaluator says, and near
    to what another runtime makes of it."""
    model = halved(MODELS[name]())
    work = until("schedule", model)
    bundle = aotc.compile(model, tmp_path / "b", target=TARGET.name, name="net")
    plan = until("plan", model).plan
    assert not on_simt(plan)
    kinds = [p.dtype for p in plan.places if p.storage == "arena"]
    assert kinds.count(HALF) > kinds.count("f32")
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng().standard_normal(shape).astype(np.float16)
    rounded = apply_schedule_rewrites(work.program, work.schedule)
    want = evaluate(rounded, {"x": x})["y"].astype("f8")
    got = bundle.load(simulate=True).run({"x": x})["y"]
    assert got.dtype == np.float16 and share_of_range(got, want) < 2e-3
    onnx.save(model, tmp_path / "net.onnx")
    other = open_reference(tmp_path / "net.onnx")[1]({"x": x})["y"].astype("f8")
    assert share_of_range(got, other) < 2e-2


def test_targets_without_products_of_bf16_store_none():
    """Neither by themselves nor where a Schedule says so."""
    model = halved(attention(40), BF16)
    work = run_pipeline(Options(source=model, target="x86-64-v3", name="net", stop_after="plan"))
    assert BF16 not in {p.dtype for p in work.plan.places}
    stored = next(r for r in until("schedule", model).schedule.rewrites
                  if r[0] == "store" and r[1] in work.program.buffers)
    wrong = replace(work.schedule, rewrites=(*work.schedule.rewrites, stored))
    found = check_schedule(work.program, wrong, get_target("x86-64-v3"))
    assert found[0] == (f"rewrites: store {stored[1]}: x86-64-v3 has no products that read bf16 as "
                        "it is stored; take the rewrite out")


@pytest.mark.zoo
@pytest.mark.parametrize("name", ["bert_tiny", "mobilenet_v2", "resnet18", "squeezenet1_1",
                                  "swin_tiny"])
@pytest.mark.parametrize("dtype", [HALF, BF16])
def test_no_product_of_a_zoo_model_in_halves_is_left_on_simt(zoo_model, name, dtype):
    assert not on_simt(until("plan", halved(onnx.load(zoo_model(name)), dtype)).plan, dtype)
