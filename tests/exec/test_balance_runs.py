"""Calls whose work items are balanced: right, and the same bits, by any number of workers."""

import json

import numpy as np
import onnxruntime
import pytest
from harness import every

import aotc
from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.oracle.run_plan import run_plan
from aotc.pipeline import run_pipeline
from benchmarks.exported.build import Writer

DIMS = {"b": (1, 8), "h": (8, 70), "w": (8, 70)}


def forms():
    """3x3 convolutions of many channels: Winograd forms, which share columns or rows."""
    g = Writer("forms", 1)
    x = g.input("x", ["b", 64, "h", "w"])
    x = g.op("Relu", g.op("Conv", x, g.weight(128, 64, 3, 3), strides=[2, 2], pads=[1] * 4))
    return g.model(g.op("Relu", g.op("Conv", x, g.weight(128, 128, 3, 3), pads=[1] * 4)))


def bottlenecks():
    """An expansion, a window and a projection in one kernel, which runs down the image."""
    g = Writer("bottlenecks", 2)
    x = g.input("x", ["b", 24, "h", "w"])
    for stride in (1, 2):
        y = g.op("Relu", g.op("Conv", x, g.weight(96, 24, 1, 1)))
        y = g.op("Conv", y, g.weight(96, 1, 3, 3), group=96, strides=[stride] * 2, pads=[1] * 4)
        x = g.op("Conv", y, g.weight(24, 96, 1, 1))
    return g.model(x)


def products():
    """Rows of products, few or many, and a softmax over them."""
    g = Writer("products", 3)
    x = g.input("x", ["b", "h", 160])
    x = g.op("Softmax", g.op("MatMul", x, g.weight(160, 192)), axis=-1)
    return g.model(g.op("MatMul", x, g.weight(192, 96)))


MODELS = {"forms": (forms, 64), "bottlenecks": (bottlenecks, 24), "products": (products, 0)}
CALLS = ((1, 8, 8), (1, 33, 17), (2, 24, 40), (3, 9, 70), (1, 70, 64), (8, 13, 12))


def shape_of(channels, call):
    b, h, w = call
    return (b, channels, h, w) if channels else (b, h, 160)


@pytest.mark.parametrize("name", MODELS)
def test_any_number_of_workers(name, tmp_path):
    make, channels = MODELS[name]
    model = make()
    dims = {n: r for n, r in DIMS.items() if channels or n != "w"}
    aotc.compile(model, tmp_path / "b", target="native", dims=dims, schedule_out=tmp_path / "s")
    assert '"balance"' in (tmp_path / "s").read_text()
    theirs = onnxruntime.InferenceSession(model.SerializeToString())
    ours = [aotc.load(tmp_path / "b", threads=n) for n in (1, 2, 3, 7)]
    rng = np.random.default_rng()
    for call in CALLS:
        x = rng.standard_normal(shape_of(channels, call)).astype(np.float32)
        right, = theirs.run(None, {"x": x})
        first, *others = (next(iter(m.run({"x": x}).values())) for m in ours)
        np.testing.assert_allclose(first, right, rtol=1e-3, atol=1e-4 * np.abs(right).max(),
                                   err_msg=str(call))
        for other in others:
            np.testing.assert_array_equal(first, other, err_msg=str(call))


@pytest.mark.parametrize("name", every(MODELS, 3))
def test_the_plan_stays_inside_its_buffers(name):
    """The interpreter has three workers and knows every element that a work item may touch."""
    make, channels = MODELS[name]
    dims = {n: (lo, 20) for n, (lo, hi) in DIMS.items() if channels or n != "w"}
    work = run_pipeline(Options(make(), target="x86-64-v3", dims=dims | {"b": (1, 3)},
                                stop_after="plan"))
    rng = np.random.default_rng(1)
    for call in ((1, 8, 8), (1, 19, 11), (2, 20, 9), (3, 16, 20)):
        x = rng.standard_normal(shape_of(channels, call)).astype(np.float32)
        feeds, syms = {"x": x}, {s.name: n for s, n in zip(work.program.syms, call)}
        out, = run_plan(work.plan, feeds, syms).values()
        right, = evaluate(work.program, feeds, syms).values()
        np.testing.assert_allclose(out, right, rtol=1e-3, atol=1e-4 * np.abs(right).max())


def test_work_items_of_several_images(tmp_path):
    """Rows of one to three images in a work item, shared by columns where there are few."""
    model, dims = forms(), DIMS
    aotc.compile(model, tmp_path / "b", target="native", dims=dims, schedule_out=tmp_path / "s")
    decided = json.loads((tmp_path / "s").read_text())
    balanced = [g for g in decided["groups"] if "balance" in g and g["tile"].get("n") == 1]
    assert balanced
    for g in balanced:
        g["tile"]["n"] = 3
    (tmp_path / "s").write_text(json.dumps(decided))
    aotc.compile(model, tmp_path / "c", target="native", dims=dims, schedule=tmp_path / "s")
    one, several = (aotc.load(tmp_path / n, threads=3) for n in "bc")
    rng = np.random.default_rng()
    for call in CALLS:
        x = rng.standard_normal(shape_of(64, call)).astype(np.float32)
        np.testing.assert_array_equal(*(next(iter(m.run({"x": x}).values()))
                                        for m in (one, several)), err_msg=str(call))
