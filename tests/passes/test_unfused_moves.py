"""Moves that stay by themselves before windows, and those that windows take in."""

import numpy as np
import onnxruntime
import pytest
from harness import every

from aotc import compile as compile_model
from aotc import load
from aotc.options import Options
from aotc.passes.inline import is_move
from aotc.pipeline import run_pipeline
from benchmarks.exported.build import Writer


def window(order, channels, shape=(1, 16, 6, 10), group=None, product=True, kernel=3):
    """What ``order`` makes of a product (or of the input), under a window of ``kernel``."""
    g = Writer("window", seed=channels)
    x = g.input("x", shape)
    y = g.op("Relu", g.conv(x, shape[1], shape[1], 1)) if product else x
    y = order(g, y)
    y = g.conv(y, channels, channels, kernel, group=group or channels)
    return g.model(g.conv(y, channels, 8, 1))


def permuted(first, perm, last):
    return lambda g, x: g.op("Reshape", g.op("Transpose", g.op("Reshape", x, first), perm=perm),
                             last)


def half_of_a_shuffle(g, x):
    y = permuted([0, 2, 8, 6, 10], [0, 2, 1, 3, 4], [0, 16, 6, 10])(g, x)
    return g.op("Split", y, outputs=2, axis=1)[1]


def upsampled(g, x):
    return g.op("Resize", x, "", np.array([1, 1, 2, 2], np.float32), mode="nearest",
                coordinate_transformation_mode="asymmetric", nearest_mode="floor")


PIXELS = permuted([0, 4, 2, 2, 6, 10], [0, 1, 4, 2, 5, 3], [0, 4, 12, 20])
UNSHUFFLED = permuted([0, 16, 3, 2, 5, 2], [0, 1, 3, 5, 2, 4], [0, 64, 3, 5])
SHUFFLED = permuted([0, 2, 8, 6, 10], [0, 2, 1, 3, 4], [0, 16, 6, 10])
WINDOWS = permuted([0, 16, 2, 3, 2, 5], [0, 2, 4, 1, 3, 5], [4, 16, 3, 5])

APART = {
    "pixel shuffle": window(PIXELS, 4), "of an input": window(PIXELS, 4, product=False),
    "pixel shuffle, product": window(PIXELS, 4, group=1),
    "depth to space": window(lambda g, x: g.op("DepthToSpace", x, blocksize=2), 4),
    "space to depth": window(lambda g, x: g.op("SpaceToDepth", x, blocksize=2), 64),
    "pixel unshuffle": window(UNSHUFFLED, 64), "free batch": window(PIXELS, 4, ["n", 16, 6, 10]),
    "half of a shuffle": window(half_of_a_shuffle, 8), "groups": window(SHUFFLED, 16, group=2),
}
TAKEN = {
    "upsampled": window(upsampled, 16),  # the copy would be four times as large
    "windows of tokens": window(WINDOWS, 16),  # the channels stay neighbours
    "pointwise": window(SHUFFLED, 16, group=2, kernel=1),
    "a reshape": window(lambda g, x: g.op("Reshape", x, [0, 16, 10, 6]), 16, product=False),
}


@pytest.mark.parametrize("name", APART | TAKEN)
def test_who_takes_a_move_in(name):
    program = run_pipeline(Options((APART | TAKEN)[name], stop_after="inline")).program
    assert any(map(is_move, program.steps)) == (name in APART)


@pytest.mark.parametrize("name", APART)
def test_no_window_runs_in_plain_loops(name):
    work = run_pipeline(Options(APART[name], target="x86-64-v3", stop_after="schedule"))
    plain = {s for g in work.schedule.groups for s, row in g.rows.items() if row == "loops"}
    assert all(is_move(work.rewritten.producer[s]) for s in plain)


@pytest.mark.parametrize("name", every(APART | TAKEN, 7))
def test_runs_like_onnx_runtime(name, tmp_path):
    model = (APART | TAKEN)[name]
    compile_model(model, tmp_path / "bundle")
    theirs = onnxruntime.InferenceSession(model.SerializeToString(),
                                          providers=["CPUExecutionProvider"])
    shape = model.graph.input[0].type.tensor_type.shape.dim
    x = np.random.default_rng().standard_normal([d.dim_value or 3 for d in shape])
    feeds = {"x": x.astype(np.float32)}
    for a, b in zip(load(tmp_path / "bundle").run(feeds).values(), theirs.run(None, feeds)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
