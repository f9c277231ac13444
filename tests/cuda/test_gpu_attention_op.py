"""The operator Attention of opset 23 streams on GPUs as what it is made of does: rows that a mask
leaves nothing are 0, and no scores are stored."""

import warnings

import numpy as np
import pytest
from cusim_build import needs_cxx
from onnx import TensorProto, helper
from small_models import make_model

import aotc
from aotc.ir.kernel.plan_stages import Stream
from aotc.options import Options
from aotc.pipeline import run_pipeline

TARGET, HEADS, SIZE = "cuda:sm_80", 4, 64
F16, F32, BOOL = TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.BOOL


def attention(rows, keys, groups=HEADS, mask=None, batch=1, element=F16, **attributes):
    """y of q [batch, HEADS, rows, SIZE], k and v [batch, groups, keys, SIZE], and which keys a row
    has, "kept", or what its scores get, "added"."""
    inputs = {"q": (element, [batch, HEADS, rows, SIZE]),
              **{x: (element, [batch, groups, keys, SIZE]) for x in "kv"}}
    inputs |= {"mask": (BOOL, [rows, keys])} if mask == "kept" else {}
    inputs |= {"mask": (element, [batch, 1, rows, keys])} if mask == "added" else {}
    return make_model([helper.make_node("Attention", [*inputs], ["y"], **attributes)], inputs,
                      {"y": inputs["q"]}, {}, opset=23)


def exact(feeds, causal):
    """In f64; rows without keys are 0."""
    q, k, v = (feeds[x].astype("f8") for x in "qkv")
    k, v = (np.repeat(x, HEADS // x.shape[1], axis=1) for x in (k, v))
    bias = np.zeros((q.shape[2], k.shape[2]))
    if causal:
        bias = np.where(np.tril(bias + 1), 0, -np.inf)
    elif "mask" in feeds:
        mask = feeds["mask"]
        bias = np.where(mask, 0, -np.inf) if mask.dtype == bool else mask.astype("f8")
    s = np.maximum(q @ k.swapaxes(2, 3) / SIZE**0.5 + bias, -1e9)
    e = np.where(bias > -np.inf, np.exp(s - s.max(axis=3, keepdims=True)), 0.0)
    return e / np.maximum(e.sum(axis=3, keepdims=True), 1e-30) @ v


def masks(r, form, rows, keys):
    """Of half of the keys, of the first few, of rows that some have none, of none at all; None
    where a form has no mask."""
    some = np.arange(rows)[:, None] % 3 * np.ones(keys) > 0
    few = np.broadcast_to(np.arange(keys) < 60, (rows, keys))
    for kept in (r.random((rows, keys)) < 0.5, few, some, some & False) if "mask" in form else (
            None,):
        if form.get("mask") != "added":
            yield kept
            continue
        shape = (form.get("batch", 1), 1, rows, keys)
        yield np.where(kept, r.standard_normal(shape), -np.inf).astype(np.float16)


KEPT, ADDED = {"mask": "kept"}, {"mask": "added"}
CASES = {"plain": (70, 90, {}), "causal": (90, 90, {"is_causal": 1}), "masked": (70, 90, KEPT),
         "groups": (40, 130, {"groups": 2}), "masked groups": (40, 130, {"groups": 2, **KEPT}),
         "token": (1, 1100, {}), "token in groups": (1, 1100, {"groups": 2}),
         "masked token": (1, 1100, KEPT),
         "masked token in groups": (1, 1100, {"groups": 2, **KEPT}),
         "masked tokens of a batch": (1, 1100, {"groups": 2, "batch": 3, **ADDED}),
         "few masked rows": (3, 1100, ADDED)}
QUICK = "causal", "token in groups", "masked token in groups"


def check(name, folder, number=np.float16, limit=4e-3, **options):
    """That a case streams, that no kernel copies keys or values, and that numbers are right."""
    rows, keys, form = CASES[name]
    r, groups, batch = np.random.default_rng(), form.get("groups", HEADS), form.get("batch", 1)
    feeds = {x: r.standard_normal((batch, HEADS if x == "q" else groups, rows if x == "q" else keys,
                                   SIZE)).astype(number) for x in "qkv"}
    model = attention(rows, keys, element=F16 if number == np.float16 else F32, **form)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan = run_pipeline(Options(model, target=TARGET, name="net", stop_after="plan",
                                    **options)).plan
        net = aotc.compile(model, folder / "b", target=TARGET, name="net", **options)
    net = net.load(simulate=True)
    assert any(isinstance(s, Stream) for k in plan.kernels for s in k.lowered.stages)
    given = {p.name for p in plan.places if p.onnx in ("k", "v")}
    assert all(any(isinstance(s, Stream) for s in k.lowered.stages)
               for k in plan.kernels if given & {*k.reads})
    for mask in masks(r, form, rows, keys):
        feeds |= {} if mask is None else {"mask": mask}
        want, got = exact(feeds, "is_causal" in form), net.run(feeds)["y"].astype("f8")
        assert np.abs(got - want).max() <= limit * max(np.abs(want).max(), 1e-3)


@needs_cxx
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(
    n, marks=pytest.mark.product) for n in CASES])
def test_the_operator_streams(name, tmp_path):
    check(name, tmp_path)


@needs_cxx
@pytest.mark.parametrize("precision, limit", [("tf32", 4e-3), ("f16", 4e-3), ("bf16", 3e-2)])
@pytest.mark.parametrize("name", ["masked token in groups", pytest.param(
    "token in groups", marks=pytest.mark.product)])
def test_tokens_of_f32_are_rounded_where_they_stream(name, precision, limit, tmp_path):
    """Keys, which lie turned, too."""
    check(name, tmp_path, np.float32, limit, precision=precision)
