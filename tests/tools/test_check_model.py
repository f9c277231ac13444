"""aotc check: what a model needs, without compiling it."""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aotc
from aotc.cli import main
from aotc.options import Options
from aotc.tools.check_model import check_model

node = helper.make_node
F32 = TensorProto.FLOAT


def model_of(nodes, outputs):
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "checked", [value("x", F32, ["batch", 4, "seq"])],
                              [value(n, F32, None) for n in outputs],
                              [numpy_helper.from_array(np.ones((4, 300), "f4"), "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20),
                                                   helper.make_opsetid("com.microsoft", 1)])


def checked(model, folder, capsys, *options):
    onnx.save(model, folder / "m.onnx")
    code = main(["check", str(folder / "m.onnx"), *options])
    assert not [f for f in folder.iterdir() if f.name != "m.onnx"]  # nothing is written
    return code, capsys.readouterr().out


def test_a_model_that_compiles(tmp_path, capsys):
    model = model_of([node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
                      node("MatMul", ["t", "w"], ["y"])], ["y"])
    code, text = checked(model, tmp_path, capsys, "--dim", "seq=2..8")
    assert code == 0
    for part in ("m.onnx: ai.onnx 20, com.microsoft 1, 2 nodes, 4.7 KB of weights",
                 "operators: Transpose x1, MatMul x1", "supported",
                 "in  x: f32[batch, 4, seq]", "out y: f32[batch, seq, 300]",
                 "dim batch in 1.. (default: a batch)", "dim seq in 2..8 (given)",
                 "arena at batch=1, seq=2: about 0 bytes",
                 "arena at batch=64, seq=8: about 0 bytes"):
        assert part in text, text


def test_the_arena_is_about_that_of_the_bundle(tmp_path):
    """Of layers with activations between them, a residual, and a region."""
    rng = np.random.default_rng(0)
    weights = {f"w{k}": rng.standard_normal((64, 64)).astype("f4") for k in range(3)}
    nodes = [node("MatMul", ["x", "w0"], ["a"]), node("Relu", ["a"], ["b"]),
             node("Transpose", ["b"], ["t"], perm=[0, 2, 1]),
             node("MatMul", ["t", "b"], ["s"]), node("Softmax", ["s"], ["p"]),
             node("MatMul", ["b", "p"], ["m"]), node("Add", ["m", "b"], ["r"]),
             node("MatMul", ["r", "w2"], ["y"])]
    graph = helper.make_graph(nodes, "layers", [helper.make_tensor_value_info(
        "x", F32, [2, 512, 64])], [helper.make_tensor_value_info("y", F32, [2, 512, 64])],
        [numpy_helper.from_array(a, n) for n, a in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    (_, about), = check_model(Options(model, target="c")).arenas
    aotc.compile(model, tmp_path / "b", target="c")
    exact = json.loads((tmp_path / "b" / "manifest.json").read_text())["arena_bytes_max"]
    assert about / 2 < exact < 2 * about


def test_all_that_is_missing_at_once(tmp_path, capsys):
    nodes = [node("BeamSearch", ["x"], ["a"], domain="com.microsoft"),
             *(node("Gellu", ["x"], [f"g{k}"], name=f"act{k}") for k in range(3))]
    code, text = checked(model_of(nodes, ["a", "g0", "g1", "g2"]), tmp_path, capsys)
    assert code == 1 and "not supported:" in text
    assert "com.microsoft.BeamSearch" in text and "search outside of it" in text
    assert "nodes 'act0', 'act1', 'act2': operator ai.onnx.Gellu x3" in text
    assert "the nearest that compiles is ai.onnx.Gelu" in text


def test_a_model_that_contradicts_itself(tmp_path, capsys):
    code, text = checked(model_of([node("MatMul", ["x", "w"], ["y"])], ["y"]), tmp_path, capsys,
                         "--dim", "seq=7")
    assert code == 1 and "contradicts itself" in text and "MatMul" in text


def test_no_model(tmp_path, capsys):
    (tmp_path / "m.onnx").write_bytes(b"nothing")
    assert main(["check", str(tmp_path / "m.onnx")]) == 1
    assert "is not an ONNX model" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["check"])
