"""Nets that GPUs run, small ones of a few layers and some of the zoo, in f32, f16 and bf16 and with
weights of 4 and 8 bits: in the simulator against the evaluator, which rounds where they do."""

import warnings

import ml_dtypes
import numpy as np
import onnx
import pytest
from cusim_build import needs_cxx
from half_models import halved

import aotc
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.oracle.shares import share_of_range
from aotc.passes.rewrites import apply_schedule_rewrites
from aotc.pipeline import run_pipeline
from benchmarks.gpu.nets import NETS, Net, net_feeds
from benchmarks.low_precision_cases import in_groups

TARGET = "cuda:sm_80"
TYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
FORMS = {"": {}, " 4 bits": {}, " 8 bits": {"precision": "int8w"}}  # of weights: options
SMALL = [(kind, dtype, form) for kind in ("resnet50", "llama_layer", "bert_base")
         for form in FORMS for dtype in TYPES if not form or kind == "llama_layer"]
QUICK = [("resnet50", "f16", ""), ("llama_layer", "bf16", " 4 bits")]


def check(model, feeds, dtype, folder, **options):
    """Every output of a model, in ``dtype``, is what the evaluator makes of it."""
    given = {n: a.astype(TYPES[dtype]) if a.dtype == np.float32 else a for n, a in feeds.items()}
    model = model if dtype == "f32" else halved(model, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that levels of precision leave some products as they are
        bundle = aotc.compile(model, folder, target=TARGET, name="net", **options)
        work = run_pipeline(Options(source=model, target=TARGET, name="net",
                                    stop_after="schedule", **options))
    want = evaluate(apply_schedule_rewrites(work.program, work.schedule), {
        n: a.view(np.uint16) if a.dtype == ml_dtypes.bfloat16 else a for n, a in given.items()})
    got = bundle.load(simulate=True).run(given)
    assert len(got) == len(want)
    # sums in another order may round what is stored to the number beside
    most = {"f32": 2e-5, "f16": 2e-3, "bf16": 1.5e-2}[dtype]
    for name, w in zip(got, want.values(), strict=True):
        found = got[name]
        w = w.view(ml_dtypes.bfloat16) if found.dtype == ml_dtypes.bfloat16 else w
        assert share_of_range(found.astype("f8"), w.astype("f8")) < most, name


@needs_cxx
@pytest.mark.parametrize("kind, dtype, form", [
    pytest.param(*c, id=f"{c[0]} {c[1]}{c[2]}", marks=() if c in QUICK else pytest.mark.product)
    for c in SMALL])
def test_small_nets(kind, dtype, form, tmp_path):
    net = Net(kind, 1, small=True)
    model = NETS[kind](1, True)
    model = in_groups(model) if form == " 4 bits" else model
    kinds = {onnx.TensorProto.INT64: "int64", onnx.TensorProto.FLOAT: "float32"}
    tensors = [(i.name, i.type.tensor_type) for i in model.graph.input]
    feeds = net_feeds(net, [(name, kinds[t.elem_type], [
        d.dim_value or d.dim_param for d in t.shape.dim]) for name, t in tensors])
    check(model, feeds, dtype, tmp_path / "b", **net.options, **FORMS[form])


@needs_cxx
@pytest.mark.product
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["bert_tiny", "mobilenet_v2"])
def test_nets_of_the_zoo_in_halves(zoo_model, name, dtype, tmp_path):
    model, rng = onnx.load(zoo_model(name)), np.random.default_rng()
    feeds = {}
    for i in model.graph.input:
        shape = [d.dim_value or 1 for d in i.type.tensor_type.shape.dim]
        feeds[i.name] = rng.standard_normal(shape).astype(np.float32) if (
            i.type.tensor_type.elem_type == onnx.TensorProto.FLOAT) else rng.integers(0, 2, shape)
    check(model, feeds, dtype, tmp_path / "b")
