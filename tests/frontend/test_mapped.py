"""Models whose weights stay in their file: the same Graph, and the same refusals."""

import numpy as np
import onnx
import pytest
from frontend_cases import run
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from aotc.errors import ModelError
from aotc.frontend import load_model, read_graph, to_program
from aotc.frontend.read import mapped

LARGE = mapped.LARGE


def model_of(extra=()):
    rng = np.random.default_rng(0)
    held = {"w": rng.standard_normal((200, 150)).astype("f4"), "k": np.arange(9000),
            "h": rng.standard_normal(40000).astype("f2"), "small": np.ones(3, "f4")}
    node = helper.make_node
    nodes = [node("MatMul", ["x", "w"], ["y"]), node("Gather", ["k", "i"], ["z"]),
             node("Gather", ["h", "i"], ["v"]), node("Gather", ["small", "i"], ["u"])]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "large", [value("x", TensorProto.FLOAT, [2, 200]),
                         value("i", TensorProto.INT64, [1])],
        [value(n, t, None) for n, t in (("y", 1), ("z", 7), ("v", 10), ("u", 1))],
        [numpy_helper.from_array(a, n) for n, a in held.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize("external", (False, True))
def test_the_same_graph(external, tmp_path):
    model, path = model_of(), tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=external, size_threshold=LARGE)
    kept = load_model(path, mapped=True)
    held = {t.name for t in kept.graph.initializer if external_data_helper.uses_external_data(t)}
    assert held == {"w", "k", "h"} and kept.ByteSize() < LARGE
    got, want = read_graph(kept), read_graph(load_model(path))
    for name, array in want.initializers.items():
        other = got.initializers[name]
        assert other.dtype == array.dtype and np.array_equal(other, array), name
    assert str(got) == str(want)
    feeds = {"x": np.ones((2, 200), "f4"), "i": np.array([1])}
    for a, b in zip(run(to_program(got, True), feeds), run(to_program(want, True), feeds)):
        assert np.array_equal(a, b)


def test_files_that_are_no_models(tmp_path):
    """Cut anywhere, or with lengths that are wrong, they are refused as ever."""
    data, path = model_of().SerializeToString(), tmp_path / "m.onnx"
    rng = np.random.default_rng(1)
    cuts = [data[:n] for n in rng.integers(LARGE, len(data), 20)]
    bad = [data[:n] + bytes([255] * 11) + data[n + 11:] for n in rng.integers(0, 400, 10)]
    for text in (*cuts, *bad, bytes(2 * LARGE), b"\xff" * 2 * LARGE):
        path.write_bytes(text)
        said = []
        for kept in (False, True):
            try:
                read_graph(load_model(path, mapped=kept))
                said.append("")
            except ModelError as err:
                said.append(type(err).__name__)
        assert said[0] == said[1]


def test_bytes_that_are_no_tensor(tmp_path):
    model, path = model_of(), tmp_path / "m.onnx"
    model.graph.initializer[0].dims[0] = 201
    onnx.save(model, path)
    for kept in (False, True):
        with pytest.raises(ModelError, match="its data does not fit its shape"):
            read_graph(load_model(path, mapped=kept))
