"""Images of the caller's that are read at places from data, beside ONNX Runtime: with as many
channels as lanes they are copied with the channels innermost, with fewer they are not."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import aotc
from aotc.options import Options
from aotc.pipeline import run_pipeline

ort = pytest.importorskip("onnxruntime")


def sampler(shape, size, **attrs):
    n, c = shape[:2]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in (
        ("x", shape), ("grid", (n, *size, 2)), ("y", (n, c, *size)))]
    node = helper.make_node("GridSample", ["x", "grid"], ["y"], **attrs)
    return helper.make_model(helper.make_graph([node], "sampler", info[:2], info[2:]),
                             opset_imports=[helper.make_opsetid("", 16)], ir_version=8)


@pytest.mark.parametrize("shape, size, attrs, copied", [
    ((2, 37, 13, 9), (7, 11), {"mode": "bilinear", "align_corners": 1}, True),
    ((1, 16, 5, 6), (9, 5), {"mode": "nearest", "padding_mode": "border"}, True),
    ((2, 17, 4, 7), (5, 6), {"mode": "bilinear", "padding_mode": "reflection"}, True),
    ((1, 3, 8, 5), (6, 7), {"mode": "bilinear"}, False),
    ((1, 16, 40, 40), (2, 1), {"mode": "bilinear"}, False)])
@pytest.mark.parametrize("target", ["native", pytest.param("c", marks=pytest.mark.product)])
def test_sampled_as_onnxruntime(tmp_path, shape, size, attrs, copied, target):
    rng = np.random.default_rng()
    model = sampler(shape, size, **attrs)
    feeds = {"x": rng.standard_normal(shape).astype(np.float32),
             "grid": rng.uniform(-1.6, 1.6, (shape[0], *size, 2)).astype(np.float32)}
    feeds["x"][0, 0, 1, 1], feeds["x"][0, -1, 2, 2] = np.nan, np.inf
    want = ort.InferenceSession(model.SerializeToString(), providers=[
        "CPUExecutionProvider"]).run(None, feeds)[0]
    aotc.compile(model, tmp_path / "bundle", target=target)
    got = aotc.load(tmp_path / "bundle").bind(feeds)()["y"]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    found = run_pipeline(Options(model, target="x86-64-v4", stop_after="schedule")).schedule
    assert copied == any(rule == "layout" and b == "x" for rule, b, _ in found.rewrites)
