"""The operator Attention of opset 23 streams on GPUs as what it is made of does: rows that a mask
leaves nothing are 0, and no scores are stored."""

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
F16, BOOL = TensorProto.FLOAT16, TensorProto.BOOL


def attention(rows, keys, groups=HEADS, masked=False, **attributes):
    """y of q [1, HEADS, rows, SIZE], k and v [1, groups, keys, SIZE], and which keys a row has."""
    inputs = {"q": (F16, [1, HEADS, rows, SIZE]),
              **{x: (F16, [1, groups, keys, SIZE]) for x in "kv"}}
    inputs |= {"mask": (BOOL, [rows, keys])} if masked else {}
    return make_model([helper.make_node("Attention", [*inputs], ["y"], **attributes)], inputs,
                      {"y": inputs["q"]}, {}, opset=23)


def exact(feeds, causal):
    """In f64; rows without keys are 0."""
    q, k, v = (feeds[x].astype("f8") for x in "qkv")
    k, v = (np.repeat(x, HEADS // x.shape[1], axis=1) for x in (k, v))
    kept = np.ones((q.shape[2], k.shape[2]), bool)
    kept &= np.tril(kept) if causal else feeds.get("mask", kept)
    s = np.where(kept, q @ k.swapaxes(2, 3) / SIZE**0.5, -1e9)
    e = np.where(kept, np.exp(s - s.max(axis=3, keepdims=True)), 0.0)
    return e / np.maximum(e.sum(axis=3, keepdims=True), 1e-30) @ v


CASES = {"plain": (70, 90, {}), "causal": (90, 90, {"is_causal": 1}),
         "masked": (70, 90, {"masked": True}), "groups": (40, 130, {"groups": 2}),
         "token": (1, 1100, {}), "token in groups": (1, 1100, {"groups": 2}),
         "masked groups": (40, 130, {"masked": True, "groups": 2})}


@needs_cxx
@pytest.mark.parametrize("name", [n if n in ("causal", "token in groups") else pytest.param(
    n, marks=pytest.mark.product) for n in CASES])
def test_the_operator_streams(name, tmp_path):
    rows, keys, form = CASES[name]
    r, groups = np.random.default_rng(), form.get("groups", HEADS)
    feeds = {x: r.standard_normal((1, HEADS if x == "q" else groups, rows if x == "q" else keys,
                                   SIZE)).astype(np.float16) for x in "qkv"}
    model = attention(rows, keys, **form)
    plan = run_pipeline(Options(model, target=TARGET, name="net", stop_after="plan")).plan
    assert any(isinstance(s, Stream) for k in plan.kernels for s in k.lowered.stages)
    given = {p.name for p in plan.places if p.onnx in ("k", "v")}
    assert all(any(isinstance(s, Stream) for s in k.lowered.stages)
               for k in plan.kernels if given & {*k.reads})  # none copies keys or values
    net = aotc.compile(model, tmp_path / "b", target=TARGET, name="net").load(simulate=True)
    masks = (r.random((rows, keys)) < 0.5, np.arange(rows)[:, None] % 3 * np.ones(keys) > 0,
             np.zeros((rows, keys)))
    for mask in masks if "masked" in form else (None,):
        feeds |= {} if mask is None else {"mask": mask.astype(bool)}
        want, got = exact(feeds, "is_causal" in form), net.run(feeds)["y"].astype("f8")
        assert np.abs(got - want).max() <= 4e-3 * max(np.abs(want).max(), 1e-3)
