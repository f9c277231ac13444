"""What masks of streams are made by is computed in the streams where that takes less time: layers
that share a mask start no kernel for it."""

import ml_dtypes
import numpy as np
import pytest
from cusim_build import needs_cxx
from onnx import TensorProto, helper
from small_models import make_model

import aotc
from aotc.ir.kernel.plan_stages import Stream
from aotc.options import Options
from aotc.pipeline import run_pipeline

TARGET, LAYERS = "cuda:sm_80", 2
KINDS = {"f16": (TensorProto.FLOAT16, np.float16), "bf16": (TensorProto.BFLOAT16,
                                                            ml_dtypes.bfloat16)}


def layers(mask, rows=70, keys=90, heads=2, count=LAYERS, dtype="f16", outputs=()):
    """Attention ``count`` times, each of the one before and of keys and values of its own, with
    the ``mask`` that its nodes make of ``m``, a number for every key."""
    kind, node = KINDS[dtype][0], helper.make_node
    consts = [helper.make_tensor(n, kind, [], [x]) for n, x in (
        ("scale", 0.125), ("zero", 0.0), ("low", -30000.0))]
    inputs, nodes, last = {"y0": (kind, [1, heads, rows, 64])}, list(mask), "y0"
    for i in range(count):
        inputs |= {f"{x}{i}": (kind, [1, heads, keys, 64]) for x in "kv"}
        nodes += [node("Transpose", [f"k{i}"], [f"t{i}"], perm=[0, 1, 3, 2]),
                  node("MatMul", [last, f"t{i}"], [f"s{i}"]),
                  node("Mul", [f"s{i}", "scale"], [f"scaled{i}"]),
                  node("Add", [f"scaled{i}", "mask"], [f"x{i}"]),
                  node("Softmax", [f"x{i}"], [f"p{i}"], axis=-1),
                  node("MatMul", [f"p{i}", f"v{i}"], [last := f"y{i + 1}"])]
    inputs["m"] = (TensorProto.INT64, [1, 1, 1, keys])
    model = make_model(nodes, inputs, {last: inputs["y0"], **{
        o: (kind, [1, 1, 1, keys]) for o in outputs}}, {})
    model.graph.initializer.extend(consts)
    return model


def kept():
    """0 where ``m`` is not 0, a low number elsewhere: two maps."""
    return (helper.make_node("Cast", ["m"], ["kept"], to=TensorProto.BOOL),
            helper.make_node("Where", ["kept", "zero", "low"], ["mask"]))


def grown():
    """What takes three exps of each number."""
    return (helper.make_node("Cast", ["m"], ["m0"], to=TensorProto.FLOAT16),
            *(helper.make_node("Exp", [f"m{i}"], [f"m{i + 1}"]) for i in range(3)),
            helper.make_node("Neg", ["m3"], ["mask"]))


def mask_kernels(model):
    """Those that read ``m`` and are no streams; all others that read it are."""
    plan = run_pipeline(Options(model, target=TARGET, name="net", stop_after="plan")).plan
    given, = (p.name for p in plan.places if p.onnx == "m")
    streams = [k for k in plan.kernels if any(isinstance(s, Stream) for s in k.lowered.stages)]
    assert len(streams) == LAYERS
    return [k for k in plan.kernels if given in k.reads and k not in streams]


def exact(feeds, count=LAYERS):
    y = feeds["y0"].astype("f8")
    for i in range(count):
        k, v = (feeds[f"{x}{i}"].astype("f8") for x in "kv")
        s = y @ k.swapaxes(2, 3) / 8 + np.where(feeds["m"], 0.0, -30000.0)
        e = np.exp(s - s.max(axis=3, keepdims=True))
        y = e / e.sum(axis=3, keepdims=True) @ v
    return y


@needs_cxx
@pytest.mark.parametrize("dtype", KINDS)
def test_layers_that_share_a_mask_start_no_kernel_for_it(dtype, tmp_path):
    model, r = layers(kept(), dtype=dtype), np.random.default_rng(5)
    assert not mask_kernels(model)
    feeds = {n: r.standard_normal((1, 2, 70 if n == "y0" else 90, 64)).astype(KINDS[dtype][1])
             for n in ("y0", *(f"{x}{i}" for x in "kv" for i in range(LAYERS)))}
    net = aotc.compile(model, tmp_path / "b", target=TARGET, name="net").load(simulate=True)
    for m in (r.random(90) < 0.6, np.arange(90) > 70, np.arange(90) < 3, np.zeros(90)):
        feeds["m"] = m.astype(np.int64).reshape(1, 1, 1, 90) * r.choice([-3, 1 << 40])
        want, got = exact(feeds), net.run(feeds)[f"y{LAYERS}"].astype("f8")
        # a low number that 90 scores are added to leaves them few digits, in halves and in f64
        limit = 0.1 if not m.any() else 4e-3 if dtype == "f16" else 3e-2
        assert np.abs(got - want).max() <= limit * np.abs(want).max()


def test_a_mask_that_is_a_result_too_is_made_once():
    assert len(mask_kernels(layers(kept(), outputs=("mask",)))) == 1


def test_what_takes_longer_for_every_score_is_made_once():
    model = layers(grown(), rows=2048, keys=2048, heads=16)
    assert len(mask_kernels(model)) == 1
    model = layers(kept(), rows=2048, keys=2048, heads=12)
    assert len(mask_kernels(model)) == 1
