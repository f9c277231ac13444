"""Pixel shuffles of what products make: channels in the order that the shuffle wants."""

import numpy as np
import onnxruntime
import pytest
from harness import every

from aotc import compile as compile_model
from aotc import load
from aotc.ir.expr import axes_of
from aotc.ir.program import Compute
from aotc.ir.simplify import split_linear
from aotc.options import Options
from aotc.oracle.check_program import check_program
from aotc.oracle.evaluate import evaluate
from aotc.passes.pixel_shuffle_order import order_pixel_shuffles
from aotc.pipeline import run_pipeline
from benchmarks.exported.build import Writer

SIZE = (3, 5)


def written_out(g, x, channels, by):
    """A pixel shuffle as torch writes it."""
    h, w = SIZE
    x = g.op("Transpose", g.op("Reshape", x, [0, channels, by, by, h, w]),
             perm=[0, 1, 4, 2, 5, 3])
    return g.op("Reshape", x, [0, channels, by * h, by * w])


def columns_first(g, x, channels, by):
    return g.op("DepthToSpace", x, blocksize=by, mode="CRD")


def in_rows(g, x, channels, by):
    return g.op("DepthToSpace", x, blocksize=by)


def net(shuffle, channels=6, by=2, act=Writer.gelu, batch=2, then="window", extra=False):
    """A product, ``act``, a shuffle, ``then`` a window, a skip or the output."""
    g, n = Writer("net", seed=channels), channels * by * by
    x = g.input("x", [batch, 5, *SIZE])
    t = act(g, g.conv(x, 5, n))
    y = shuffle(g, t, channels, by)
    if then == "window":
        y = g.conv(g.conv(y, channels, channels, 3, group=channels), channels, 4, 1)
    if then == "skip":
        skip = g.op("Resize", g.conv(x, 5, channels, 1), "", np.array([1, 1, by, by], np.float32),
                    mode="nearest", coordinate_transformation_mode="asymmetric",
                    nearest_mode="floor")
        y = g.conv(g.op("Add", y, skip), channels, 4)
    return g.model(y, g.conv(t, n, 3, 1)) if extra else g.model(y)


TURNED = {
    "written out": net(written_out), "columns, rows, depth": net(columns_first, by=3),
    "skip": net(written_out, then="skip"), "free batch": net(written_out, batch="n"),
    "no map": net(written_out, act=lambda g, x: x),
    "per channel": net(written_out, act=lambda g, x: g.op("PRelu", x, g.weight(24, 1, 1))),
    "chain": net(written_out, act=lambda g, x: g.silu(g.op("Add", x, g.silu(x)))),
}
LEFT = {
    "in order already": net(in_rows), "output": net(written_out, then=""),
    "another reader": net(written_out, extra=True),
    "normed": net(written_out, act=lambda g, x: g.op(
        "Reshape", g.op("Softmax", g.op("Reshape", x, [0, 8, 3, *SIZE]), axis=1),
        [0, 24, *SIZE])),
}


def test_heads_stay_as_they_are():
    """``head*K + channel``: the channels are runs already."""
    g = Writer("heads")
    x = g.input("x", [1, 7, 24])
    program = inlined(g.model(g.self_attention(x, 24, 4)))
    assert not any(b.endswith("_own") for b in program.consts)
    assert order_pixel_shuffles(program) is program


def inlined(model):
    return run_pipeline(Options(model, stop_after="inline")).program


def steps_of(program):
    """Steps above 1 that loads of temps take in their second dimension, where the channels are."""
    found = set()
    for s in program.steps:
        for n in s.loads if isinstance(s, Compute) and s.fold == "none" else ():
            if program.buffers[n.buffer].role == "temp" and len(n.index) == 4:
                for a in s.axes:
                    parts = split_linear(n.index[1], a) if a in axes_of(n.index[1]) else None
                    found |= {parts[0].value} if parts else set()
    return found - {1}


@pytest.mark.parametrize("name", TURNED | LEFT)
def test_means_the_same(name):
    model = (TURNED | LEFT)[name]
    before, after = run_pipeline(Options(model, stop_after="fold")).program, inlined(model)
    assert check_program(after) == [] and order_pixel_shuffles(after) is after
    assert bool(steps_of(after)) == (name in LEFT and name != "in order already")
    shape = [d.dim_value or 3 for d in model.graph.input[0].type.tensor_type.shape.dim]
    feeds = {"x": np.random.default_rng(4).standard_normal(shape).astype(np.float32)}
    feeds["x"][0, 1, 2] = np.nan, np.inf, -np.inf, 0, 1
    syms = {s.name: 3 for s in before.syms}
    for a, b in zip(evaluate(before, feeds, syms).values(), evaluate(after, feeds, syms).values()):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", every(TURNED | LEFT, 4))
def test_runs_like_onnx_runtime(name, tmp_path):
    model = (TURNED | LEFT)[name]
    compile_model(model, tmp_path / "bundle")
    theirs = onnxruntime.InferenceSession(model.SerializeToString(),
                                          providers=["CPUExecutionProvider"])
    shape = [d.dim_value or 3 for d in model.graph.input[0].type.tensor_type.shape.dim]
    feeds = {"x": np.random.default_rng().standard_normal(shape).astype(np.float32)}
    for a, b in zip(load(tmp_path / "bundle").run(feeds).values(), theirs.run(None, feeds)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
