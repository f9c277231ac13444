"""Channels in another order, as windows, pools, norms and products read them."""

import numpy as np
import onnxruntime
import pytest
from harness import every

from aotc import compile as compile_model
from aotc import load
from aotc.ir.expr import Binary, Load, loads, walk
from aotc.options import Options
from aotc.oracle.check_program import check_program
from aotc.oracle.evaluate import evaluate
from aotc.passes.inline import is_move
from aotc.passes.unshuffle_channels import unshuffle_channels
from aotc.pipeline import run_pipeline
from benchmarks.exported.build import LAST, Writer

C, SIZE = 12, (5, 7)


def shuffled(g, x, groups, channels=C, size=SIZE):
    x = g.op("Reshape", x, [0, groups, channels // groups, *size])
    return g.op("Reshape", g.op("Transpose", x, perm=[0, 2, 1, 3, 4]), [0, channels, *size])


def looked_up(g, x, places):
    return g.op("Gather", x, np.array(places), axis=1)


def backwards(g, x):
    return g.op("Slice", x, [-1], [-LAST], [1], [-1])


def depthwise(g, x, stride=1):
    return g.conv(x, C, C, 3, stride, group=C)


def net(order, then, last=True, batch=2, first=True):
    """A product, the channels in another ``order``, ``then`` something per channel, a product."""
    g = Writer("net", seed=5)
    x = g.input("x", [batch, C, *SIZE])
    y = g.op("Relu", g.conv(x, C, C, 1)) if first else x
    y = then(g, order(g, y))
    return g.model(g.conv(y, C, 9, 1) if last else y)


def norm(g, x):
    y = g.op("InstanceNormalization", x, g.weight(C), g.weight(C))
    return depthwise(g, g.silu(y))


def pooled(g, x):
    return g.op("Add", *(g.op(kind, x, kernel_shape=[3, 3], pads=[1] * 4)
                         for kind in ("MaxPool", "AveragePool")))


def by(groups):
    return lambda g, x: shuffled(g, x, groups)


def second_reader():
    """The weights of the window serve another one, of channels as they are."""
    g = Writer("readers", seed=6)
    x = g.input("x", [2, C, *SIZE])
    w = g.weight(C, 1, 3, 3)
    how = {"group": C, "kernel_shape": [3, 3], "pads": [1] * 4}
    y = g.op("Add", g.op("Conv", shuffled(g, x, 3), w, **how), g.op("Conv", x, w, **how))
    return g.model(g.conv(y, C, C, 1))


def unit(groups, stride, batch=2):
    """A unit of ShuffleNet v1."""
    g = Writer("unit", seed=groups)
    x = g.input("x", [batch, C, *SIZE])
    y = shuffled(g, g.op("Relu", g.conv(x, C, C, 1, group=groups)), groups)
    y = g.conv(depthwise(g, y, stride), C, C, 1, group=groups)
    return g.model(g.op("Relu", g.op("Add", x, y)) if stride == 1 else y)


TAKEN = {  # nothing of the other order is left
    "depthwise": net(by(3), depthwise),
    "strided": net(by(4), lambda g, x: depthwise(g, x, 2)),
    "free batch": net(by(3), depthwise, batch="n"),
    "of an input": net(by(2), depthwise, first=False),
    "gathered": net(lambda g, x: looked_up(g, x, np.random.default_rng(3).permutation(C)),
                    depthwise),
    "backwards": net(backwards, depthwise),
    "twice": net(lambda g, x: shuffled(g, backwards(g, x), 3), depthwise),
    "again and again": net(by(3), lambda g, x: depthwise(g, shuffled(g, depthwise(g, x), 4))),
    "looked up, then shuffled": net(by(3), lambda g, x: depthwise(g, looked_up(
        g, shuffled(g, depthwise(g, x), 2), np.random.default_rng(8).permutation(C)))),
    "norm": net(by(3), norm),
    "pooled": net(by(3), pooled),
    "product": net(by(3), lambda g, x: g.conv(x, C, C)),
}
LEFT = {
    "handed out": net(by(3), depthwise, last=False),
    "repeated": net(lambda g, x: looked_up(g, x, [3, 1, 2, 0, 4, 5, 6, 6, 8, 9, 10, 11]),
                    depthwise),
    "two readers": second_reader(),
    "groups": net(by(3), lambda g, x: g.conv(x, C, C, 3, group=3)),
    "unit": unit(3, 1), "strided unit": unit(2, 2), "unit, free batch": unit(4, 1, "n"),
}


def inlined(model):
    return run_pipeline(Options(model, stop_after="inline")).program


def feeds_of(model, rng):
    shape = model.graph.input[0].type.tensor_type.shape.dim
    x = rng.standard_normal([d.dim_value or 3 for d in shape]).astype(np.float32)
    x[0].reshape(-1)[rng.permutation(x[0].size)[:3]] = np.nan, np.inf, -np.inf
    return {"x": x}


@pytest.mark.parametrize("name", TAKEN | LEFT)
def test_means_the_same(name):
    model = (TAKEN | LEFT)[name]
    before, after = run_pipeline(Options(model, stop_after="fold")).program, inlined(model)
    assert check_program(after) == [] and unshuffle_channels(after) is after
    feeds, syms = feeds_of(model, np.random.default_rng(4)), {s.name: 3 for s in before.syms}
    for a, b in zip(evaluate(before, feeds, syms).values(), evaluate(after, feeds, syms).values()):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", TAKEN)
def test_the_order_ends_in_constants(name):
    program = inlined(TAKEN[name])
    for s in program.steps:
        assert not is_move(s)
        for n in s.loads:
            for i in n.index:
                assert not loads(i) and not any(isinstance(e, Binary) and e.op in (
                    "floordiv", "mod") for e in walk(i)), (s.out, n)


def test_what_is_no_permutation_stays():
    (s,) = [s for s in inlined(LEFT["repeated"]).steps if isinstance(s.body, Load)]
    assert len(s.loads) == 2  # the tensor and the table


@pytest.mark.parametrize("name", every(TAKEN | LEFT, 7))
def test_runs_like_onnx_runtime(name, tmp_path):
    model = (TAKEN | LEFT)[name]
    compile_model(model, tmp_path / "bundle")
    theirs = onnxruntime.InferenceSession(model.SerializeToString(),
                                          providers=["CPUExecutionProvider"])
    feeds = feeds_of(model, np.random.default_rng())
    feeds["x"] = np.where(np.isfinite(feeds["x"]), feeds["x"], 0)
    ours = load(tmp_path / "bundle").run(feeds)
    for a, b in zip(ours.values(), theirs.run(None, feeds)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
