"""Resize of free extents: by factors, to the extents of other tensors, to extents from data."""

import numpy as np
import pytest
from frontend_cases import compare, helper, model_of, program_of, rand, run

from aotc.errors import FaultError, UnsupportedError

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


def test_smoothing_is_refused_on_free_extents():
    with pytest.raises(UnsupportedError, match="pin the dimensions"):
        program_of(to_other((1, 1, "a", "c"), (1, 1, "b", "d"), mode="linear", antialias=1))
