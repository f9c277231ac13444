"""Images resized to sizes that are known at run time: the extents of another input, or data."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import aotc

F = np.float32
NEAREST = [("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil"),
           ("asymmetric", "floor"), ("align_corners", "ceil")]
MODES = [dict(mode="nearest", coordinate_transformation_mode=c, nearest_mode=r)
         for c, r in NEAREST] + [
    dict(mode="linear", coordinate_transformation_mode="half_pixel"),
    dict(mode="linear", coordinate_transformation_mode="align_corners"),
    dict(mode="cubic", coordinate_transformation_mode="pytorch_half_pixel"),
    dict(mode="cubic", coordinate_transformation_mode="half_pixel", exclude_outside=1)]
# [h, w] of the image; of the other one
SIZES = [((3, 5), (7, 11)), ((6, 7), (13, 3)), ((1, 4), (5, 1)), ((9, 1), (1, 6)),
         ((4, 4), (4, 4)), ((24, 26), (52, 61)),
         ((5, 3), (10, 9)), ((17, 30), (12, 41)), ((1, 1), (1, 1))]


def model_of(nodes, inputs, outputs, consts=None):
    infos = [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()]
    outs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs.items()]
    graph = helper.make_graph(nodes, "resized", infos, outs, [
        numpy_helper.from_array(np.asarray(a), n) for n, a in (consts or {}).items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def to_other():
    """Every mode: x resized to the height and width of ``ref``."""
    nodes = [helper.make_node("Shape", ["x"], ["nc"], start=0, end=2),
             helper.make_node("Shape", ["ref"], ["hw"], start=2),
             helper.make_node("Concat", ["nc", "hw"], ["sizes"], axis=0)]
    nodes += [helper.make_node("Resize", ["x", "", "", "sizes"], [f"y{k}"], f"resize{k}", **m)
              for k, m in enumerate(MODES)]
    image = TensorProto.FLOAT
    return model_of(nodes, {"x": (image, ["b", 2, "h", "w"]), "ref": (image, ["b", 1, "H", "W"])},
                    {f"y{k}": [None] * 4 for k in range(len(MODES))})


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    model = to_other()
    bundle = aotc.compile(model, tmp_path_factory.mktemp("free") / "b", name="m", target="c")
    return bundle.load(threads=1), onnxruntime.InferenceSession(model.SerializeToString())


@pytest.mark.parametrize("old,new", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
def test_an_image_resized_to_another(other, old, new):
    feeds = {"x": np.random.default_rng().standard_normal((2, 2, *old)).astype(F),
             "ref": np.zeros((2, 1, *new), F)}
    feeds["x"].flat[0] = np.nan
    feeds["x"].flat[-1] = np.inf
    got, want = other[0].run(feeds), other[1].run(None, feeds)
    for k, w in enumerate(want):
        np.testing.assert_allclose(got[f"y{k}"], w, rtol=1e-4, atol=1e-5, err_msg=str(MODES[k]))


def test_smoothed_to_another(tmp_path):
    """As many elements go into one as the extents of a call ask for."""
    kinds = [dict(mode=m, antialias=1, exclude_outside=1) for m in ("linear", "cubic")]
    nodes = to_other().graph.node[:3]
    model = model_of([*nodes, *(helper.make_node("Resize", ["x", "", "", "sizes"], [f"y{k}"], **m)
                                for k, m in enumerate(kinds))],
                     {n: (TensorProto.FLOAT, ["b", c, *s]) for n, c, s in (
                         ("x", 2, "hw"), ("ref", 1, "HW"))}, {"y0": [None] * 4, "y1": [None] * 4})
    compiled = aotc.compile(model, tmp_path / "b", name="m", target="c").load(threads=1)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for old, new in ((40, 3), (3, 5)), ((7, 2), (1, 90)), ((1, 1), (1, 1)), ((24, 31), (11, 5)):
        feeds = {"x": np.random.default_rng().standard_normal((2, 2, *old)).astype(F),
                 "ref": np.zeros((2, 1, *new), F)}
        for got, want in zip(compiled.run(feeds).values(), session.run(None, feeds)):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
