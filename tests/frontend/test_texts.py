"""Strings: labels, categories, and tensors of strings that are placed and compared."""

import json
import subprocess

import numpy as np
import pytest
from frontend_cases import by_onnxruntime, helper, numpy_helper, onnx, program_of, run
from ml_nodes import ML, floats

import aotc
from aotc.errors import ModelError, UnsupportedError
from aotc.tools.verify import verify

F32, I64, TEXT = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.STRING
NAMES = ["ca\"t", "dog*/", "\u00e9mu ??/"]  # nothing that C text must hold as it is


def model_of(nodes, inputs, outputs, tensors=(), ml=3):
    infos = [[helper.make_tensor_value_info(n, t, s) for n, (t, s) in part.items()]
             for part in (inputs, outputs)]
    graph = helper.make_graph(nodes, "small", *infos, list(tensors))
    return helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", 20), helper.make_opsetid(ML, ml)])


def strings(*values):
    return np.array(values, object)


def everything():
    """(model, feeds): each operator on strings once."""
    rng = np.random.default_rng(0)
    node = helper.make_node
    nodes = [
        node("LinearClassifier", ["x"], ["label", "p"], domain=ML, coefficients=floats(rng, 9),
             intercepts=[0.0, 0.1, 0.2], classlabels_strings=NAMES),
        node("Equal", ["label", "wanted"], ["hit"]),
        node("LabelEncoder", ["label"], ["code"], domain=ML, keys_strings=NAMES[:2],
             values_int64s=[7, 9], default_int64=-5),
        node("LabelEncoder", ["code"], ["word"], domain=ML, keys_int64s=[7, -5],
             values_strings=["seven", NAMES[2]], default_string="other"),
        node("CategoryMapper", ["s"], ["number"], domain=ML, cats_strings=NAMES[1:],
             cats_int64s=[3, 4], default_int64=-2),
        node("CategoryMapper", ["number"], ["back"], domain=ML, cats_strings=NAMES[1:],
             cats_int64s=[3, 4], default_string="none"),
        node("OneHotEncoder", ["s"], ["hot"], domain=ML, cats_strings=NAMES[::-1]),
        node("ArrayFeatureExtractor", ["table", "index"], ["taken"], domain=ML),
        node("Reshape", ["s", "column"], ["turned"]),
        node("Where", ["same", "s", "t"], ["chosen"]), node("Equal", ["s", "t"], ["same"])]
    table = helper.make_tensor("table", TEXT, [3], [n.encode() for n in NAMES])
    tensors = [table, helper.make_tensor("wanted", TEXT, [1], [NAMES[1].encode()]),
               numpy_helper.from_array(np.array([-1, 1]), "column")]
    outputs = {"label": (TEXT, ["n"]), "p": (F32, ["n", 3]), "hit": (9, ["n"]),
               "code": (I64, ["n"]), "word": (TEXT, ["n"]), "number": (I64, ["m"]),
               "back": (TEXT, ["m"]), "hot": (F32, ["m", 3]), "taken": (TEXT, [1, 4]),
               "turned": (TEXT, ["m", 1]), "same": (9, ["m"]), "chosen": (TEXT, ["m"])}
    model = model_of(nodes, {"x": (F32, ["n", 3]), "s": (TEXT, ["m"]), "t": (TEXT, ["m"]),
                             "index": (I64, [4])}, outputs, tensors)
    return model, {"x": rng.standard_normal((6, 3)).astype("f4"), "index": np.array([2, 0, 1, 1]),
                   "s": strings(NAMES[2], "unknown", NAMES[1], "nobody", NAMES[0]),
                   "t": strings(NAMES[2], "unknown", "nobody", "someone", NAMES[1])}


@pytest.mark.parametrize("target", ("c", "native"))
def test_strings_as_onnxruntime_has_them(target, tmp_path):
    model, feeds = everything()
    model.graph.node.sort(key=lambda n: n.output[0] == "chosen")
    bundle = aotc.compile(model, tmp_path / "b", target=target, name="net")
    got = bundle.load().run(feeds)
    for info, want in zip(model.graph.output, by_onnxruntime(model, feeds)):
        if want.dtype == object:
            assert got[info.name].tolist() == want.tolist(), info.name
        else:
            np.testing.assert_allclose(got[info.name], want, rtol=1e-5, err_msg=info.name)


def test_c_has_the_table(tmp_path):
    model = model_of([helper.make_node("LabelEncoder", ["i"], ["s"], domain=ML, keys_int64s=[4, 5],
                                       values_strings=NAMES[:2], default_string=NAMES[2])],
                     {"i": (I64, ["n"])}, {"s": (TEXT, ["n"])})
    folder = tmp_path / "b"
    bundle = aotc.compile(model, folder, target="c", name="net")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert sorted(manifest["texts"]) == sorted(NAMES)
    assert manifest["outputs"][0]["stored"] == "string"
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "net.h"\nint main(void)\n{\n'
        "    for (int i = 0; i < NET_TEXTS; i++) puts(net_texts[i]);\n    return 0;\n}\n")
    subprocess.run(["make", "-C", folder, "-s", "libnet.a"], check=True, capture_output=True)
    subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{folder}",
                    tmp_path / "main.c", folder / "libnet.a", "-lpthread", "-lm", "-o",
                    tmp_path / "main"], check=True)
    said = subprocess.run([tmp_path / "main"], capture_output=True, check=True).stdout.decode()
    assert said.splitlines() == manifest["texts"]
    places = bundle.load().bind({"i": np.array([5, 4, 0])})()["s"]
    assert [manifest["texts"][k] for k in places] == [NAMES[1], NAMES[0], NAMES[2]]


def test_encoders_of_old_opsets():
    for text in (True, False):
        model = model_of([helper.make_node("LabelEncoder", ["x"], ["y"], domain=ML,
                                           classes_strings=NAMES)],
                         {"x": (TEXT if text else I64, ["n"])},
                         {"y": (I64 if text else TEXT, ["n"])}, ml=1)
        program = program_of(model)
        assert [program.buffers[n].stored for n in (*program.inputs, *program.outputs)] == (
            ["string", ""] if text else ["", "string"])


@pytest.mark.parametrize("rows", (3, "rows"))
def test_labels_of_what_is_known_stay_strings(rows):
    """Of an extent: a number, or a choice made at run time."""
    node = helper.make_node
    model = model_of([
        node("Shape", ["x"], ["extents"]),
        node("LabelEncoder", ["extents"], ["label"], domain=ML, keys_int64s=[3, 5],
             values_strings=NAMES[:2], default_string=NAMES[2]),
        node("LabelEncoder", ["label"], ["y"], domain=ML, keys_strings=NAMES,
             values_floats=[1.0, 2.0, 4.0]),
        node("OneHotEncoder", ["label"], ["z"], domain=ML, cats_strings=NAMES)],
        {"x": (F32, [rows, 5])}, {"y": (F32, [2]), "z": (F32, [2, 3])})
    feeds = {"x": np.zeros((3, 5), "f4")}
    for got, want in zip(run(program_of(model), feeds), by_onnxruntime(model, feeds), strict=True):
        assert np.array_equal(got, want)


@pytest.mark.parametrize("node, words", [
    (helper.make_node("Add", ["s", "s"], ["y"]), "a tensor of strings; strings are placed and"),
    (helper.make_node("Cast", ["s"], ["y"], to=F32), "a tensor of strings"),
    (helper.make_node("Unique", ["s"], ["y"]), "a tensor of strings"),
    (helper.make_node("Cast", ["x"], ["y"], to=TEXT), "conversion to this dtype")])
def test_what_computes_refuses_strings(node, words):
    model = model_of([node], {"s": (TEXT, [2]), "x": (F32, [2])}, {"y": (F32, [2])})
    with pytest.raises(UnsupportedError, match=words):
        program_of(model)


def test_strings_are_no_numbers():
    node = helper.make_node("Equal", ["s", "i"], ["y"])
    with pytest.raises(ModelError, match="one dtype"):
        program_of(model_of([node], {"s": (TEXT, [2]), "i": (I64, [2])}, {"y": (9, [2])}))
    node = helper.make_node("LabelEncoder", ["s"], ["y"], domain=ML, keys_int64s=[1],
                            values_int64s=[2])
    with pytest.raises(ModelError, match="keys i64 for elements string"):
        program_of(model_of([node], {"s": (TEXT, [2])}, {"y": (I64, [2])}))
    node = helper.make_node("Identity", ["s"], ["y"])
    with pytest.raises(ModelError, match="declared as i64, its node makes string"):
        program_of(model_of([node], {"s": (TEXT, [2])}, {"y": (I64, [2])}))


def test_verify_compares_strings(tmp_path):
    model, _ = everything()
    model.graph.node.sort(key=lambda n: n.output[0] == "chosen")
    onnx.save(model, tmp_path / "m.onnx")
    found = verify(tmp_path / "m.onnx", "c", report=lambda line: None)
    assert len(found) > 11 and all(m.ok for _, m in found)
