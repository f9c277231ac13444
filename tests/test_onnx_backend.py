"""The onnx.backend interface."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import aotc.onnx_backend as backend
from aotc.errors import UnsupportedError


@pytest.fixture(autouse=True)
def portable(monkeypatch):
    """The portable target: these tests are about the interface."""
    monkeypatch.setenv("AOTC_TARGET", "c")


def model():
    """y = x - z, both f32[2, 3]."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph([helper.make_node("Sub", ["x", "z"], ["y"])], "g",
                              [value(n, TensorProto.FLOAT, [2, 3]) for n in ("x", "z")],
                              [value("y", TensorProto.FLOAT, [2, 3])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


X = np.arange(6, dtype=np.float32).reshape(2, 3)
Z = np.ones((2, 3), np.float32)


def test_prepare_once_run_often():
    rep = backend.prepare(model())
    for inputs in ([X, Z], {"z": Z, "x": X}):
        outputs = rep.run(inputs)
        np.testing.assert_array_equal(outputs[0], X - Z)
        np.testing.assert_array_equal(outputs.y, X - Z)


def test_run_model_and_compatibility():
    np.testing.assert_array_equal(backend.run_model(model(), [X, Z])[0], X - Z)
    assert backend.is_compatible(model())
    assert not backend.is_compatible(model(), device="CUDA")


def test_run_node_with_and_without_output_types():
    node = helper.make_node("Softmax", ["x"], ["y"], axis=1)
    want = np.exp(X) / np.exp(X).sum(1, keepdims=True)
    np.testing.assert_allclose(backend.run_node(node, [X])[0], want, rtol=1e-6)
    info = [(np.dtype(np.float32), (2, 3))]
    np.testing.assert_allclose(backend.run_node(node, [X], outputs_info=info)[0], want, rtol=1e-6)


def test_devices_and_operators_that_are_not_there():
    assert backend.supports_device("CPU") and not backend.supports_device("CUDA:0")
    with pytest.raises(UnsupportedError, match="CUDA"):
        backend.prepare(model(), device="CUDA")
    node = helper.make_node("ImageDecoder", ["x"], ["y"])
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.UINT8, [99])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, [8, 8, 3])])
    images = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.checker.check_model(images)
    assert not backend.is_compatible(images)
    with pytest.raises(NotImplementedError):
        backend.prepare(images)


def test_a_tensor_may_be_an_output_twice_and_an_input_be_one():
    """Both outputs are there, in the model's order; by name they are one."""
    twice = model()
    twice.graph.output.insert(0, twice.graph.input[1])
    for name in ("y", "z"):
        twice.graph.output.append(next(o for o in twice.graph.output if o.name == name))
    outputs = backend.run_model(twice, [X, Z])
    assert len(outputs) == 4
    for got, want in zip(outputs, (Z, X - Z, X - Z, Z)):
        np.testing.assert_array_equal(got, want)
    assert outputs["y"].shape == outputs["z"].shape == (2, 3)
