"""Convolutional nets with free batch, height and width: right at every extent, and with the forms
that fixed extents get."""

import numpy as np
import onnxruntime
import pytest
from harness import every

from aotc import compile as compile_model
from aotc import load
from aotc.options import Options
from aotc.pipeline import run_pipeline
from benchmarks.exported.build import Writer

DIMS = {"b": (1, 3), "h": (1, 40), "w": (1, 40)}
# (b, h, w): the least, below a tile, at its ends, ragged, the largest
SIZES = [(1, 1, 1), (1, 2, 3), (2, 3, 2), (1, 4, 4), (1, 5, 9), (3, 8, 7), (2, 12, 13), (1, 31, 6),
         (1, 40, 40), (2, 17, 40)]


def conv(g, x, inside, outside, size=3, stride=1, group=1, relu=True):
    """A convolution that keeps the image, but for its steps."""
    y = g.op("Conv", x, g.weight(outside, inside // group, size, size), g.weight(outside),
             pads=[size // 2] * 4, strides=[stride] * 2, group=group)
    return g.op("Relu", y) if relu else y


def residual():
    """Two blocks of 3x3 convolutions, one of which halves the image; a pooled end."""
    n = Writer("net", 1)
    image = n.input("x", ["b", 3, "h", "w"])
    x = conv(n, image, 3, 16, 7, 2)
    y = conv(n, conv(n, x, 16, 16), 16, 16, relu=False)
    x = n.op("Relu", n.op("Add", x, y))
    y = conv(n, conv(n, x, 16, 32, 3, 2), 32, 32, relu=False)
    x = n.op("Relu", n.op("Add", conv(n, x, 16, 32, 1, 2, relu=False), y))
    return n.model(n.op("GlobalAveragePool", x))


def separable():
    """Depthwise windows between products of channels, with steps of one and of two."""
    n = Writer("net", 2)
    image = n.input("x", ["b", 3, "h", "w"])
    x = conv(n, image, 3, 16, 3, 2)
    for stride in (1, 2, 1):
        x = conv(n, conv(n, x, 16, 48, 1), 48, 48, 3, stride, group=48)
        x = conv(n, x, 48, 16, 1, relu=False)
    return n.model(x)


def pooled():
    """Windows of other sizes: a maximum over 3x3, a mean over 2x2, a wide depthwise one."""
    n = Writer("net", 3)
    image = n.input("x", ["b", 3, "h", "w"])
    x = conv(n, image, 3, 24)
    x = n.op("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1])
    x = conv(n, x, 24, 24, 7, group=24)
    return n.model(n.op("AveragePool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1],
                        strides=[2, 2]))


NETS = {f.__name__: f for f in (residual, separable, pooled)}


@pytest.mark.parametrize("target", every(["native", "c", "x86-64-v3"], 3))
@pytest.mark.parametrize("name", NETS)
def test_every_extent(name, target, tmp_path):
    model = NETS[name]()
    compile_model(model, tmp_path / "b", target=target, dims=DIMS)
    ours = load(tmp_path / "b")
    theirs = onnxruntime.InferenceSession(model.SerializeToString(),
                                          providers=["CPUExecutionProvider"])
    rng = np.random.default_rng()
    for b, h, w in SIZES:
        x = rng.standard_normal((b, 3, h, w)).astype(np.float32)
        (mine,), (right,) = ours.run({"x": x}).values(), theirs.run(None, {"x": x})
        np.testing.assert_allclose(mine, right, rtol=1e-4, atol=1e-4, err_msg=f"{b} {h} {w}")


def rows(model, **dims):
    work = run_pipeline(Options(model, target="x86-64-v3", dims=dims, stop_after="schedule"))
    schedule = work.schedule
    used = {row for g in schedule.groups for row in g.rows.values()}
    return {(rule, tuple(sorted(p.items()))) for rule, _, p in schedule.rewrites if p}, used


@pytest.mark.product
def test_free_images_get_the_forms_of_fixed_ones():
    """Winograd forms, the copies of first layers, windows that compute neighbours together."""
    for make in (residual, separable):
        fixed = rows(make(), b=1, h=64, w=64)
        free = rows(make(), b=(1, 2), h=(48, 96), w=(48, 96))
        rules = [{rule for rule, _ in found} for found, _ in (fixed, free)]
        assert "winograd" not in rules[0] or "winograd" in rules[1]
        for kind in ("window_f32_4x", "transform"):
            assert any(kind in row for row in fixed[1]) == any(kind in row for row in free[1])


def test_first_layers_of_free_images_are_read_in_rows():
    work = run_pipeline(Options(residual(), target="x86-64-v3", dims=DIMS, stop_after="schedule"))
    assert "unfold" in {rule for rule, *_ in work.schedule.rewrites}
    first = work.schedule.groups[0]
    assert any(how.a == "rows" for how in first.choices.values())
