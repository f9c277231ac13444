"""Resize of free extents: by factors, to the extents of other tensors, to extents from data."""

import numpy as np
import pytest
from frontend_cases import compare, helper, model_of, program_of, rand, run

from aotc.errors import FaultError

F = np.float32
COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
IMAGE = {"x": (F, (1, 2, "h", "w"))}


def node(op, inputs, *outputs, **attrs):
    return helper.make_node(op, list(inputs), list(outputs), **attrs)


@pytest.mark.parametrize("scale", (0.7, 2.3, 3.0))
def test_factors_that_are_numbers(scale):
    kinds = [(m, c) for c in COORDINATES for m in ("nearest", "linear", "cubic")]
    model = model_of([node("Resize", ["x", "", "s"], f"y{k}", mode=m,
                           coordinate_transformation_mode=c) for k, (m, c) in enumerate(kinds)],
                     IMAGE, [f"y{k}" for k in range(len(kinds))], {"s": np.array([1, 1, scale,
                                                                                  scale], F)})
    for size in ((4, 9), (11, 2)):
        compare(model, {"x": rand(1, 2, *size)}, ("onnxruntime",))


def to_other(old, new, dtype=F, opset=18, **attrs):
    return model_of([node("Shape", ["ref"], "s"), node("Resize", ["x", "", "", "s"], "y", **attrs)],
                    {"x": (dtype, old), "ref": (F, new)}, ["y"], opset=opset)


def test_images_of_other_ranks_and_types():
    compare(to_other(("a",), ("b",), mode="linear"), {"x": rand(5), "ref": rand(9)}, ("reference",))
    compare(to_other((2, 1, "a"), (2, 1, "b"), mode="nearest"),
            {"x": rand(2, 1, 5), "ref": rand(2, 1, 3)}, ("onnxruntime",))
    compare(to_other((1, 2, "a", 3, "c"), (1, 2, "b", 4, "d"), mode="linear"),
            {"x": rand(1, 2, 5, 3, 4), "ref": rand(1, 2, 9, 4, 3)}, ("onnxruntime",))
    for dtype in (np.uint8, np.float16, np.float64):
        compare(to_other((1, 1, "a", "c"), (1, 1, "b", "d"), dtype, mode="linear"),
                {"x": (rand(1, 1, 5, 6) * 40 + 99).astype(dtype), "ref": rand(1, 1, 9, 4)},
                ("reference",))


def divided(mode):
    """Factors as models without sizes write them: the extents of ref over those of x."""
    return model_of([node("Shape", ["x"], "sx"), node("Shape", ["ref"], "sr"),
                     node("Cast", ["sx"], "fx", to=1), node("Cast", ["sr"], "fr", to=1),
                     node("Div", ["fr", "fx"], "s"), node("Resize", ["x", "", "s"], "y",
                                                          mode=mode)],
                    {**IMAGE, "ref": (F, (1, 2, "H", "W"))}, ["y"])


def test_factors_that_are_quotients_of_extents():
    for mode in ("nearest", "linear"):
        model = divided(mode)
        compare(model, {"x": rand(1, 2, 3, 5), "ref": rand(1, 2, 7, 4)}, ("onnxruntime",))
    assert F(41) * (F(1) / F(41)) < 1
    with pytest.raises(FaultError, match="must be the extent that is meant"):
        run(program_of(model), {"x": rand(1, 2, 41, 5), "ref": rand(1, 2, 1, 4)})


def by_data(kind, shaping):
    """x resized by an input, to the declared extents of ref."""
    names = ["x", "", "s"] if kind == "scales" else ["x", "", "", "s"]
    model = model_of([node("Resize", names, "y", mode="linear"), node("Neg", ["ref"], "z")],
                     {**IMAGE, "s": (shaping.dtype.type, (4,)), "ref": (F, ("H", "W"))},
                     ["y", "z"])
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, [1, 2, "H", "W"]))
    return model


@pytest.mark.parametrize("kind,shaping,bad", (
    ("sizes", np.array([1, 2, 4, 6]), np.array([1, 2, 4, -1])),
    ("scales", np.array([1, 1, 1.5, 1.3], F), np.array([1, 1, np.nan, 1.3], F))))
def test_extents_from_data_are_those_declared(kind, shaping, bad):
    model, feeds = by_data(kind, shaping), {"x": rand(1, 2, 3, 5), "ref": rand(4, 6)}
    compare(model, {**feeds, "s": shaping}, ("onnxruntime",))
    with pytest.raises(FaultError, match="must give the declared shape"):
        run(program_of(model), {**feeds, "s": bad})


def test_an_old_upsample_of_free_extents():
    model = model_of([node("Upsample", ["x", "s"], "y", mode="linear")], IMAGE, ["y"],
                     {"s": np.array([1, 1, 1.5, 2], F)}, opset=9)
    compare(model, {"x": rand(1, 2, 4, 5)}, ("onnxruntime",))


SMOOTH = [dict(mode="linear", antialias=1), dict(mode="cubic", antialias=1),
          dict(mode="linear", antialias=1, exclude_outside=1),
          dict(mode="cubic", antialias=1, exclude_outside=1,
               coordinate_transformation_mode="pytorch_half_pixel")]


@pytest.mark.parametrize("attrs", SMOOTH)
def test_smoothing(attrs):
    """To the extents of another image, to numbers, by a factor; of more than 16 elements, too."""
    nodes = [node("Shape", ["ref"], "s"), node("Resize", ["x", "", "", "s"], "y0", **attrs),
             node("Resize", ["x", "", "", "to"], "y1", **attrs),
             node("Resize", ["x", "", "by"], "y2", **attrs)]
    model = model_of(nodes, {**IMAGE, "ref": (F, (1, 2, "H", "W"))}, ["y0", "y1", "y2"],
                     {"to": np.array([1, 2, 5, 3]), "by": np.array([1, 1, 0.4, 0.7], F)})
    executor = "onnxruntime" if "exclude_outside" in attrs else "reference"
    for old, new in (((9, 31), (4, 2)), ((6, 7), (13, 5)), ((5, 4), (5, 9))):
        compare(model, {"x": rand(1, 2, *old), "ref": rand(1, 2, *new)}, (executor,))


@pytest.mark.parametrize("mode", ("nearest", "linear", "cubic"))
def test_regions(mode):
    attrs = dict(mode=mode, coordinate_transformation_mode="tf_crop_and_resize",
                 extrapolation_value=7.0)
    nodes = [node("Shape", ["ref"], "s"), node("Resize", ["x", "roi", "", "s"], "y0", **attrs),
             node("Resize", ["x", "box", "", "to"], "y1", **attrs)]
    model = model_of(nodes, {**IMAGE, "ref": (F, (1, 2, "H", "W")), "roi": (F, (8,))},
                     ["y0", "y1"], {"to": np.array([1, 2, 1, 4]), "box": np.array(
                         [0, 0, 0.2, 0.31, 1, 1, 0.83, 1.23], F)})
    for old, new in (((9, 14), (4, 2)), ((6, 7), (13, 5))):
        compare(model, {"x": rand(1, 2, *old), "ref": rand(1, 2, *new), "roi": np.array(
            [0, 0, -0.27, 0.37, 1, 1, 0.61, 0.94], F)}, ("reference",))


@pytest.mark.parametrize("policy", ("not_larger", "not_smaller"))
def test_aspect_ratios_of_free_extents(policy):
    model = model_of([node("Resize", ["x", "", "", "to"], "y", mode="linear", axes=[2, 3],
                           keep_aspect_ratio_policy=policy)], IMAGE, ["y"],
                     {"to": np.array([7, 8])})
    for size in ((9, 14), (6, 3), (7, 8), (5, 8)):
        compare(model, {"x": rand(1, 2, *size)}, ("onnxruntime",))
