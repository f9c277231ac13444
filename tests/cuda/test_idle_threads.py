"""Every operator and whole models on blocks of threads: none of many operations leaves half of the
threads idle, none has a thread that folds alone."""

import warnings

import frontend_cases
import numpy as np
import onnx
import pytest
from contrib_models import MODELS as LAYERS
from half_models import halved
from idle_threads import idle
from large_operators import large_cases
from onnx import helper
from operator_cases import own_cases, standard_cases
from product_models import MODELS as SMALL_MODELS
from zoo_files import OTHERS, SMALL

from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.sched import decide, lower
from aotc.target import get_target
from benchmarks.decoder_models import Sizes, gpt2, llama
from benchmarks.low_precision_cases import in_groups
from benchmarks.quantised import FORMS, quantise

TARGET = "cuda:sm_80"
LARGE = large_cases()
DEFAULT = ("ArgMax_1", "Col2Im", "Conv_depthwise_large", "Einsum_three", "Einsum_trace",
           "Hardmax_1", "LRN", "MatMul_int64", "MaxPool_places", "MaxPool_wide",
           "ReduceProd_columns", "Softmax_1", "TopK_300")
SIZES = Sizes(vocabulary=4000, width=512, layers=1, heads=8, shared=2, inner=1024)
TOKEN = {"batch": 1, "seq": 1, "past": 511}
CALLS = {"token": TOKEN, "prompt": {"batch": 1, "seq": 128, "past": 0}, "free": {}}
FORMS_OF = {"f32": lambda m: m, "f16": halved, "4 bits": in_groups}
PARTS = 6  # of the small cases


def plan_of(model, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run_pipeline(Options(source=model, out=None, target=TARGET, stop_after="plan",
                                    **options)).plan


def refused(plan):
    return "\n".join(idle(plan, TARGET))


@pytest.mark.parametrize("name", [n if n in DEFAULT else pytest.param(
    n, marks=pytest.mark.product) for n in LARGE])
def test_operators_on_large_tensors(name):
    assert not refused(plan_of(LARGE[name].model()[0]))


@pytest.fixture(scope="module")
def small_cases():
    """All of the standard's cases and of our own, for the target."""
    target, old = get_target(TARGET), frontend_cases.LIBRARY
    frontend_cases.LIBRARY = target.library
    try:
        return [*own_cases(3), *standard_cases(lambda op: True, library=target.library)]
    finally:
        frontend_cases.LIBRARY = old


@pytest.mark.product
@pytest.mark.parametrize("part", range(PARTS))
def test_operators_on_small_tensors(small_cases, part):
    target = get_target(TARGET)
    found = {c.name: refused(lower(c.program, decide(c.program, target), target))
             for c in small_cases[part::PARTS]}
    assert len(found) > 100 and not any(found.values()), {n: x for n, x in found.items() if x}


@pytest.mark.parametrize("model, form, call", [pytest.param(
    model, form, call, marks=() if (model, form, call) == (llama, "4 bits", "token") else
    pytest.mark.product) for model in (llama, gpt2) for form in FORMS_OF for call in CALLS])
def test_decoders(model, form, call):
    assert not refused(plan_of(FORMS_OF[form](model(SIZES)), dims=CALLS[call]))


@pytest.mark.product
@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_fused_operators(name):
    model, _ = LAYERS[name](*(() if name == "resnet" else (256,)))
    assert not refused(plan_of(model))


@pytest.mark.parametrize("name", [n if n == "wide" else pytest.param(n, marks=pytest.mark.product)
                                  for n in SMALL_MODELS])
def test_small_models(name):
    model, dims = SMALL_MODELS[name]
    assert not refused(plan_of(model(), dims=dims))


@pytest.mark.zoo
@pytest.mark.parametrize("name", (*SMALL, *OTHERS))
def test_zoo_models(zoo_model, name):
    assert not refused(plan_of(zoo_model(name)))


@pytest.mark.zoo
@pytest.mark.parametrize("name", ("bert_tiny", "mobilenet_v2", "resnet18"))
def test_zoo_models_in_f16(zoo_model, name):
    assert not refused(plan_of(halved(onnx.load(zoo_model(name)))))


@pytest.mark.zoo
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ("bert_tiny", "mobilenet_v2"))
def test_quantised_zoo_models(zoo_model, tmp_path, name, form):
    path = zoo_model(name)
    graph, rng = onnx.load(path).graph, np.random.default_rng()
    held, feeds = {t.name for t in graph.initializer}, {}
    for i in (i for i in graph.input if i.name not in held):
        tensor = i.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        feeds[i.name] = rng.random([d.dim_value or 1 for d in tensor.shape.dim]).astype(dtype)
    quantise(path, form, tmp_path / "q.onnx", [feeds])
    assert not refused(plan_of(tmp_path / "q.onnx"))
