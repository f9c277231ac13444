"""Regions of images: sampled as densely as they need it, or pooled, against ONNX Runtime."""

import numpy as np
import pytest
from frontend_cases import by_onnxruntime, one_node, program_of, run, same

import aotc

F = np.float32


def image(n=2, h=9, w=11):
    return np.random.default_rng(h * w).standard_normal((n, 3, h, w)).astype(F)


def regions(k, h=9, w=11, scale=1.0):
    """Corners inside, across an edge, outside, far larger than the image, turned around, and of
    no size."""
    rng = np.random.default_rng(k)
    ends = rng.uniform(-3, 14, (k, 4))
    ends[:, 2:] = np.maximum(ends[:, :2], ends[:, 2:]) + rng.uniform(0, 6, (k, 2))
    ends[0] = [-90, -70, 80, 95]
    ends[1] = [7, 6, 2, 1]
    ends[2] = [3, 3, 3, 3]
    ends[3] = [40, 40, 47, 44]
    ends[4] = [0.3, 0.2, w - 0.1, h - 0.3]
    return (ends / scale).astype(F)


@pytest.mark.parametrize("way", ("half_pixel", "output_half_pixel"))
@pytest.mark.parametrize("mode", ("avg", "max"))
@pytest.mark.parametrize("fixed", (False, True))
def test_as_many_samples_as_a_region_needs(way, mode, fixed):
    attrs = dict(output_height=3, output_width=2, spatial_scale=0.5, mode=mode,
                 coordinate_transformation_mode=way)
    numbers = np.arange(20) % 2
    given = [image(), regions(20, scale=0.5), numbers]
    model, feeds = one_node("RoiAlign", given, attrs, (1, 2) if fixed else ())
    same(run(program_of(model), feeds), by_onnxruntime(model, feeds))
    model, feeds = one_node("RoiAlign", given, dict(attrs, sampling_ratio=3))
    same(run(program_of(model), feeds), by_onnxruntime(model, feeds))


@pytest.mark.parametrize("scale", (1.0, 0.25))
def test_largest_of_regions(scale):
    whole = np.rint(regions(20) * 2) / 2  # ends on pixels and between them
    rois = np.concatenate([np.arange(20)[:, None] % 2, whole / scale], 1).astype(F)
    for shape in ([1, 1], [3, 2], [12, 15]):
        model, feeds = one_node("MaxRoiPool", [image(), rois],
                                dict(pooled_shape=shape, spatial_scale=scale))
        same(run(program_of(model), feeds), by_onnxruntime(model, feeds))


def test_regions_of_images_of_any_size(tmp_path):
    """Compiled, any number of regions; those that are no numbers stay inside of the image."""
    attrs = dict(output_height=2, output_width=3)
    model, _ = one_node("RoiAlign", [image(), regions(20), np.arange(20) % 2], attrs, shapes={
        "in0": ["n", 3, "h", "w"], "in1": ["k", 4], "in2": ["k"]})
    net = aotc.compile(model, tmp_path / "b", target="c", name="net").load(threads=1)
    for k, h, w in ((20, 9, 11), (5, 1, 1), (7, 30, 4)):
        feeds = {"in0": image(2, h, w), "in1": regions(k), "in2": np.arange(k) % 2}
        same([net.run(feeds)["out0"]], by_onnxruntime(model, feeds))
    feeds["in1"][:] = [[np.nan, np.inf, 1, -np.inf]]
    assert net.run(feeds)["out0"].shape == (7, 3, 2, 3)
