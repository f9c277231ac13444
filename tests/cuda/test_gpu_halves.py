"""Models in f16 on GPUs: stored so between kernels and in weights, multiplied on tensor cores."""

import warnings

import numpy as np
import onnx
import pytest
from attention_model import attention
from cusim_build import needs_cxx
from half_models import halved
from small_models import conv_stack, fire_stack, u_net

import aotc
from aotc.ir.dtypes import HALF
from aotc.ir.kernel.plan_stages import Contract, points
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.oracle.shares import share_of_range
from aotc.passes.rewrites import apply_schedule_rewrites
from aotc.pipeline import run_pipeline
from aotc.target import get_target
from aotc.tools.peers import open_reference

TARGET = get_target("cuda:sm_90")
FEW = 16  # rows of a product that tensor cores are not for
MODELS = {"attention": lambda: attention(40), "conv stack": conv_stack, "u-net": u_net,
          "fire stack": lambda: fire_stack(9, (16, 32), 32)}


def until(stage, model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run_pipeline(Options(source=model, target=TARGET.name, name="net",
                                    stop_after=stage))


def on_simt(plan):
    """Products of more than ``FEW`` rows that tensor cores do not compute."""
    return [f"{k.name}: {s.row}" for k in plan.kernels for s in k.lowered.stages
            if isinstance(s, Contract) and (points(s.m) or FEW + 1) > FEW
            and TARGET.product_row(s.row).a != HALF]


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


@pytest.mark.zoo
@pytest.mark.parametrize("name", ["bert_tiny", "mobilenet_v2", "resnet18", "squeezenet1_1",
                                  "swin_tiny"])
def test_no_product_of_a_zoo_model_in_halves_is_left_on_simt(zoo_model, name):
    assert not on_simt(until("plan", halved(onnx.load(zoo_model(name)))).plan)
