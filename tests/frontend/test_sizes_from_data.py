"""Images resized to sizes that data says, cut to such before: masks of the size of an image that is
an input."""

import numpy as np
import pytest
from frontend_cases import by_onnxruntime, program_of, rand, run
from onnx import TensorProto, helper, numpy_helper

import aotc
from aotc.errors import FaultError
from aotc.frontend import load_model, read_graph, to_program

node, info = helper.make_node, helper.make_tensor_value_info
F32, I64 = TensorProto.FLOAT, TensorProto.INT64
CONSTANTS = {"front": np.array([1, 2]), "zero": np.array([0]), "two": np.array([2]),
             "ends": np.array([2, 3]), "start": np.array([0, 0])}


def model_of(nodes, shape=(1, 2, 9, 7)):
    graph = helper.make_graph(
        nodes, "sizes", [info("x", F32, shape), info("cut", I64, [2]), info("size", I64, [2])],
        [info("y", F32, [1, 2, "height", "width"])],
        [numpy_helper.from_array(a, n) for n, a in CONSTANTS.items()])
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])


def cropped(**attrs):
    """x, cut to the first rows and columns, of another size."""
    return model_of([node("Slice", ["x", "start", "cut", "ends"], ["c"]),
                     node("Concat", ["front", "size"], ["sizes"], axis=0),
                     node("Resize", ["c", "", "", "sizes"], ["y"], **attrs)])


def plain(**attrs):
    return model_of([node("Concat", ["front", "size"], ["sizes"], axis=0),
                     node("Resize", ["x", "", "", "sizes"], ["y"], **attrs),
                     node("Mul", ["cut", "cut"], ["unused"])])


WAYS = [dict(mode="linear", coordinate_transformation_mode="pytorch_half_pixel"),
        dict(mode="linear", coordinate_transformation_mode="align_corners"),
        dict(mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        dict(mode="cubic")]


def made(program, feeds):
    y, height, width = run(program, feeds)
    return y[:, :, :height, :width]


@pytest.mark.parametrize("attrs", WAYS, ids=lambda a: a["mode"] + str(len(a)))
def test_sizes_that_data_says(attrs):
    for model in cropped(**attrs), plain(**attrs):
        program = to_program(read_graph(load_model(model), bounds={"Resize_y": 24}))
        for cut, size in ((9, 7), (12, 8)), ((4, 3), (9, 2)), ((1, 7), (3, 21)):
            feeds = {"x": rand(1, 2, 9, 7), "cut": np.array(cut), "size": np.array(size)}
            want, = by_onnxruntime(model, feeds)
            got = made(program, feeds)
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_there_is_room_for_the_sides_of_an_image_or_for_what_is_said(tmp_path):
    model = cropped(mode="linear")
    feeds = {"x": rand(1, 2, 9, 7), "cut": np.array([9, 7]), "size": np.array([10, 5])}
    with pytest.raises(FaultError, match="at most the 9 elements.*--bound 'Resize_y'"):
        run(program_of(model), feeds)
    graph = read_graph(load_model(model), bounds={"Resize_y": 16})
    assert [str(d) for d in to_program(graph).buffers["y"].shape[2:]] == ["16", "16"]
    bundle = aotc.compile(model, tmp_path / "b", target="c", bound={"Resize_y": 16}).load()
    feeds["size"] = np.array([12, 8])
    want, = by_onnxruntime(model, feeds)
    np.testing.assert_allclose(bundle.run(feeds)["y"], want, rtol=1e-4, atol=1e-5)
