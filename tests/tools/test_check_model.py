"""aotc check: what a model needs, without compiling it."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from aotc.cli import main

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
                 "tensors at once at batch=1, seq=2: at most 2.4 KB",
                 "tensors at once at batch=64, seq=8: at most 608.0 KB"):
        assert part in text, text


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
