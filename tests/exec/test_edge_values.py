"""Images sampled at, beside and beyond their edges, beside ONNX Runtime: a neighbour that weighs
nothing gives nothing, also where it is infinite or no number."""

from itertools import product

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import aotc

ort = pytest.importorskip("onnxruntime")
# of images whose places are exact: twice a pixel's number over a power of two, less 1
SIZES = {0: (4, 8), 1: (5, 9)}
WAYS = tuple(product(("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (0, 1)))
RESIZED = tuple(product(("half_pixel", "align_corners", "asymmetric"), ((9, 17), (3, 7), (5, 2))))


def _model():
    nodes = [helper.make_node("GridSample", [f"x{a}", f"grid{a}"], [f"s{k}"], mode=m,
                              padding_mode=p, align_corners=a) for k, (m, p, a) in enumerate(WAYS)]
    nodes += [helper.make_node("Resize", ["x0", "", "", f"size{k}"], [f"r{k}"], mode="linear",
                               coordinate_transformation_mode=how)
              for k, (how, _) in enumerate(RESIZED)]
    sizes = [numpy_helper.from_array(np.array((2, 3, *size), np.int64), f"size{k}")
             for k, (_, size) in enumerate(RESIZED)]
    inputs = [helper.make_tensor_value_info(f"x{a}", TensorProto.FLOAT, (2, 3, *size))
              for a, size in SIZES.items()]
    inputs += [helper.make_tensor_value_info(f"grid{a}", TensorProto.FLOAT, (2, 9, 11, 2))
               for a in SIZES]
    outputs = [helper.make_tensor_value_info(n.output[0], TensorProto.FLOAT, None) for n in nodes]
    return helper.make_model(helper.make_graph(nodes, "edges", inputs, outputs, sizes),
                             opset_imports=[helper.make_opsetid("", 16)], ir_version=8)


def _places(rng, align):
    """Places at pixels and half way between them, on and beyond the edges."""
    size = np.array(SIZES[align][::-1])
    pixels = rng.integers(-4, 2 * size + 4, (2, 9, 11, 2)) / 2
    grid = 2 * pixels / (size - 1) - 1 if align else (2 * pixels + 1) / size - 1
    return grid.astype(np.float32)


@pytest.mark.parametrize("target", [
    "native", pytest.param("c", marks=pytest.mark.product)])
def test_no_value_of_a_neighbour_without_weight(tmp_path, target):
    model, rng = _model(), np.random.default_rng()
    loaded = aotc.compile(model, tmp_path / "b", target=target, name="edges").load()
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    for odd in (0.0, np.inf, -np.inf, np.nan):
        feeds = {f"grid{a}": _places(rng, a) for a in SIZES}
        for a, size in SIZES.items():
            x = rng.standard_normal((2, 3, *size)).astype(np.float32)
            x[rng.random(x.shape) < 0.2] = odd
            feeds[f"x{a}"] = x
        got = loaded.run(feeds)
        for name, want in zip(names, session.run(None, feeds)):
            here = ~np.isnan(want)  # where it is a number
            np.testing.assert_allclose(got[name][here], want[here], 1e-4, 1e-5,
                                       err_msg=f"{name} {odd}")
