"""Inputs that are maps: matrices of the keys that a model knows; dicts from Python."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from small_models import make_model

import aotc
from aotc.errors import ModelError, UnsupportedError
from aotc.tools.verify import verify

ML = "ai.onnx.ml"


def model_of(nodes, key=TensorProto.STRING, value=TensorProto.FLOAT, outputs=("y",)):
    """A model of nodes that read the map ``x``."""
    model = make_model(nodes, {"x": (value, None)}, {n: (value, ["x_rows", None])
                                                    for n in outputs})
    model.opset_import.append(helper.make_opsetid(ML, 1))
    model.graph.input[0].type.ClearField("tensor_type")
    kind = model.graph.input[0].type.map_type
    kind.key_type, kind.value_type.tensor_type.elem_type = key, value
    return model


def vectorised(out="y", **vocabulary):
    return helper.make_node("DictVectorizer", ["x"], [out], domain=ML, name=f"the_{out}",
                            **vocabulary)


def test_dicts_and_matrices(tmp_path):
    """Two lists of keys of one map; keys that a dict lacks are 0, others have no place."""
    model = model_of([vectorised("y", string_vocabulary=["b", "a\"*/", "c"]),
                      vectorised("z", string_vocabulary=["d", "b"])], outputs=("y", "z"))
    bundle = aotc.compile(model, tmp_path / "b", target="c").load()
    assert bundle.manifest["keys"] == {"x": ["b", "a\"*/", "c", "d"]}
    got = bundle.run({"x": {"b": 2, "d": 3, "other": 4}})
    assert got["y"].tolist() == [[2, 0, 0]] and got["z"].tolist() == [[3, 2]]
    got = bundle.run([[{"a\"*/": 1.5}, {}, {"c": -1}]])
    assert got["y"].tolist() == [[0, 1.5, 0], [0, 0, 0], [0, 0, -1]]
    got = bundle.run([np.arange(8, dtype=np.float32).reshape(2, 4)])
    assert got["y"].tolist() == [[0, 1, 2], [4, 5, 6]] and got["z"].tolist() == [[3, 0], [7, 4]]


@pytest.mark.parametrize("value, dtype", [(TensorProto.DOUBLE, "f8"), (TensorProto.INT64, "i8")])
def test_other_keys_and_values(value, dtype, tmp_path):
    model = model_of([vectorised(int64_vocabulary=[7, -1])], TensorProto.INT64, value)
    got = aotc.compile(model, tmp_path / "b", target="c").load().run({"x": [{-1: 4}, {7: 5}]})
    assert got["y"].dtype == dtype and got["y"].tolist() == [[0, 4], [5, 0]]


def test_cast_map(tmp_path):
    node = helper.make_node("CastMap", ["x"], ["y"], domain=ML, map_form="SPARSE", max_map=3,
                            cast_to="TO_FLOAT")
    model = model_of([node], TensorProto.INT64)
    got = aotc.compile(model, tmp_path / "b", target="c").load().run({"x": {2: 1.5, 0: 3, 9: 1}})
    assert got["y"].tolist() == [[3, 0, 1.5]]


def test_against_onnx_runtime(tmp_path):
    """Row after row, each as a dict."""
    pytest.importorskip("onnxruntime")
    nodes = [vectorised("v", string_vocabulary=["b", "a"]),
             helper.make_node("LinearClassifier", ["v"], ["l", "p"], domain=ML,
                              coefficients=[1.0, -2, 0.5, 1], intercepts=[0.25, 0.0],
                              classlabels_ints=[3, 1], post_transform="SOFTMAX"),
             helper.make_node("ZipMap", ["p"], ["y"], domain=ML, classlabels_int64s=[3, 1])]
    model = model_of(nodes)
    model.graph.output[0].type.ClearField("tensor_type")
    kind = model.graph.output[0].type.sequence_type.elem_type.map_type
    kind.key_type, kind.value_type.tensor_type.elem_type = TensorProto.INT64, TensorProto.FLOAT
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    told = []
    results = verify(path, target="c", report=told.append)
    assert results and all(m.ok for _, m in results) and "onnxruntime" in told[0]


@pytest.mark.parametrize("nodes, kind, words", [
    ([helper.make_node("Identity", ["x"], ["y"])], {}, "a map that Identity reads: only DictVec"),
    ([vectorised(string_vocabulary=["a"])], dict(value=TensorProto.STRING), "a map of STRING: on"),
    ([helper.make_node("CastMap", ["x"], ["y"], domain=ML)], dict(key=TensorProto.INT64),
     "how many keys a dense map has is not known")])
def test_maps_that_are_refused(nodes, kind, words, tmp_path):
    with pytest.raises(UnsupportedError, match=words):
        aotc.compile(model_of(nodes, **kind), tmp_path / "b")


def test_keys_that_are_none(tmp_path):
    for keys in ({}, dict(string_vocabulary=["a", "a"]), dict(int64_vocabulary=[1])):
        with pytest.raises(ModelError, match="a list of different keys is expected"):
            aotc.compile(model_of([vectorised(**keys)]), tmp_path / "b")
