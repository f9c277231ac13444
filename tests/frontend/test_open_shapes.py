"""Extents and ranks of inputs that a file leaves open."""

import numpy as np
import pytest
from frontend_cases import program_of, rand, run
from onnx import TensorProto, helper, numpy_helper

import aotc
from aotc.cli import main
from aotc.errors import ModelError, UnsupportedError
from aotc.frontend import load_model, read_graph, to_program

node, info = helper.make_node, helper.make_tensor_value_info
F32 = TensorProto.FLOAT


def model_of(nodes, inputs, output=None, constants=None):
    graph = helper.make_graph(nodes, "open", [info(n, F32, s) for n, s in inputs.items()],
                              [info("y", F32, output)],
                              [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()])
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])


RELU = [node("Relu", ["x"], ["y"])]
CONV = [node("Conv", ["x", "w"], ["y"])]
W = rand(2, 3, 1, 1, seed=1)


@pytest.mark.parametrize("name", ("?", "-1", "", None, -1, "unknown", "None", "unk", " "))
def test_unknown_extents_have_nothing_to_do_with_each_other(name):
    program, x = program_of(model_of(RELU, {"x": [name, name]}, [name, name])), rand(2, 5)
    assert len(program.syms) == 2
    np.testing.assert_array_equal(run(program, {"x": x})[0], np.maximum(x, 0))


def test_names_stay_names():
    assert len(program_of(model_of(RELU, {"x": ["n", "n"]})).syms) == 1
    assert len(program_of(model_of(RELU, {"x": ["unk__7", "unk__7"]})).syms) == 1


def test_an_unknown_name_says_nothing_of_an_output():
    nodes = [node("Concat", ["x", "x"], ["y"], axis=0)]
    program, x = program_of(model_of(nodes, {"x": ["?", 3]}, ["?", 3])), rand(2, 3)
    np.testing.assert_array_equal(run(program, {"x": x})[0], np.concatenate([x, x]))


def made(model, **shapes):
    return to_program(read_graph(load_model(model), shapes=shapes))


def test_a_shape_is_given():
    program = made(model_of(RELU, {"x": None}), x=(2, "h", None))
    x = rand(2, 3, 4)
    assert [s.name for s in program.syms] == ["h", "d0"]
    np.testing.assert_array_equal(run(program, {"x": x})[0], np.maximum(x, 0))
    program = made(model_of(RELU, {"x": ["?", "?"]}), x=("h", "h"))
    assert [s.name for s in program.syms] == ["h"]
    assert made(model_of(RELU, {"x": None}), x=()).buffers["x"].shape == ()
    assert [s.name for s in made(model_of(RELU, {"x": ["n", "?"]}), x=(None, "m")).syms] == [
        "n", "m"]


@pytest.mark.parametrize("shapes, match", (
    ({"z": (1,)}, "no input 'z'.*it has: x"), ({"x": (3, 3)}, r"\['n', 2\].*cannot be \[3, 3\]"),
    ({"x": (2,)}, "cannot be"), ({"x": (-1, 2)}, "-1 is neither"), ({"x": 4}, "no list"),
    ({"x": (True, 2)}, "True is neither")))
def test_a_wrong_shape_is_an_error(shapes, match):
    with pytest.raises(ModelError, match=match):
        made(model_of(RELU, {"x": ["n", 2]}), **shapes)


def test_the_one_rank_that_compiles_needs_not_be_given():
    program, x = program_of(model_of(RELU, {"x": None}, [None, None])), rand(2, 5)
    np.testing.assert_array_equal(run(program, {"x": x})[0], np.maximum(x, 0))
    program = program_of(model_of(CONV, {"x": None}, None, {"w": W}))
    x = rand(1, 3, 4, 5)
    np.testing.assert_allclose(run(program, {"x": x})[0], np.einsum(
        "oc,nchw->nohw", W[:, :, 0, 0], x), rtol=1e-4, atol=1e-5)


def test_several_ranks_are_asked_for_on_the_command_line_too(tmp_path, capsys):
    model = model_of(RELU, {"x": None})
    with pytest.raises(UnsupportedError, match="'x' has no shape.*--shape x=1,3,h,w"):
        program_of(model)
    path = tmp_path / "open.onnx"
    path.write_bytes(model.SerializeToString())
    assert main(["check", str(path), "--shape", "x=2,h"]) == 0
    assert "f32[2, h]" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["check", str(path), "--shape", "x"])
    bundle = aotc.compile(model, tmp_path / "b", target="c", shapes={"x": [2, "h"]}).load()
    x = rand(2, 3)
    np.testing.assert_array_equal(bundle.run({"x": x})["y"], np.maximum(x, 0))


def test_a_fixed_value_fits_an_unknown_extent():
    model = model_of([node("Add", ["x", "b"], ["y"])], {"x": [3], "b": [-1]})
    program = to_program(read_graph(load_model(model), fix={"b": [1.0, 2.0, 3.0]}))
    np.testing.assert_array_equal(run(program, {"x": np.zeros(3, "f4")})[0], [1, 2, 3])
