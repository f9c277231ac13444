"""What is refused, and in which words."""

import numpy as np
import onnx
import pytest
from frontend_cases import helper, model_of, numpy_helper, one_node, program_of, rand

from aotc.errors import ModelError, UnsupportedError
from aotc.frontend import load_model, read_graph

F = np.float32


def node(op, inputs, outputs, **attrs):
    return helper.make_node(op, inputs, outputs, **attrs)


@pytest.mark.parametrize("data", (b"", b"not a model", b"\x08\x01", b"\xff" * 64))
def test_bytes_that_are_no_model(data):
    with pytest.raises(ModelError, match="is not an ONNX model"):
        load_model(data)


@pytest.mark.parametrize("path", ("missing.onnx", "a\0b", "."))
def test_paths_that_cannot_be_read(path):
    with pytest.raises(ModelError, match="cannot be read"):
        load_model(path)


def test_a_model_from_nowhere():
    with pytest.raises(ModelError, match="cannot load a model from int"):
        load_model(7)


def external(tmp_path, location, write=True, length=None):
    """Path of a model whose weight lies in ``location``."""
    model = model_of([node("Add", ["x", "w"], ["y"])], {"x": (F, (4,))}, ["y"], {"w": rand(4)})
    tensor = model.graph.initializer[0]
    raw = tensor.raw_data
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    length = str(length or len(raw))
    for key, value in (("location", location), ("offset", "0"), ("length", length)):
        tensor.external_data.add(key=key, value=value)
    folder = tmp_path / "model"
    folder.mkdir()
    if write:
        (folder / location).write_bytes(raw)
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_next_to_the_model(tmp_path):
    model = load_model(external(tmp_path, "weights.bin"))
    np.testing.assert_array_equal(numpy_helper.to_array(model.graph.initializer[0]), rand(4))


def test_external_data_that_is_missing_or_short(tmp_path):
    with pytest.raises(ModelError, match="'weights.bin', which is missing"):
        load_model(external(tmp_path, "weights.bin", write=False))
    (tmp_path / "short").mkdir()
    with pytest.raises(ModelError, match="lie outside"):
        load_model(external(tmp_path / "short", "weights.bin", length=999))


@pytest.mark.parametrize("location", ("../weights.bin", "/etc/hostname", "a/../../weights.bin", ""))
def test_external_data_outside_the_folder(tmp_path, location):
    (tmp_path / "weights.bin").write_bytes(rand(4).tobytes())
    with pytest.raises(ModelError, match="outside the folder"):
        load_model(external(tmp_path, location, write=False))


def test_external_data_behind_a_link(tmp_path):
    (tmp_path / "secret.bin").write_bytes(rand(4).tobytes())
    path = external(tmp_path, "weights.bin", write=False)
    (path.parent / "weights.bin").symlink_to(tmp_path / "secret.bin")
    with pytest.raises(ModelError, match="outside the folder"):
        load_model(path)


def test_external_data_without_a_folder(tmp_path):
    with pytest.raises(ModelError, match="load the model by its path"):
        load_model(external(tmp_path, "weights.bin").read_bytes())


def test_every_unknown_operator_is_named_at_once():
    nodes = [node("Frobnicate", ["x"], ["a"], name="first", domain="made.up"),
             node("Relu", ["a"], ["b"]), node("ImageDecoder", ["b"], ["y"], name="second")]
    model = model_of(nodes, {"x": (F, (2, 3))}, ["y"], domains=("made.up",))
    with pytest.raises(UnsupportedError) as caught:
        read_graph(load_model(model))
    text = str(caught.value)
    assert "2 node(s)" in text and "'first': operator made.up.Frobnicate" in text
    assert "f32[2, 3]" in text and "'second': operator ai.onnx.ImageDecoder (opset 18)" in text
    assert "export the model without them" in text


def test_equal_refusals_are_one_line_with_the_names_of_all():
    nodes = [node("FusedMatMul", ["x", "x"], [f"a{k}"], name=f"m{k}", domain="made.up")
             for k in range(8)] + [node("Sum", [f"a{k}" for k in range(8)], ["y"])]
    model = model_of(nodes, {"x": (F, (2, 2))}, ["y"], domains=("made.up",))
    with pytest.raises(UnsupportedError) as caught:
        read_graph(load_model(model))
    lines = str(caught.value).splitlines()
    assert "8 node(s)" in lines[0] and len(lines) == 3
    assert "FusedMatMul x8 (opset 1) on f32[2, 2]" in lines[1]
    assert all(f"'m{k}'" in lines[1] for k in range(8))


def test_all_refused_nodes_are_listed_not_the_first():
    """Unknown operators, two reasons to refuse known ones, and a node that depends on one."""
    nodes = [node("Relu", ["u"], ["a"], name="one"), node("Relu", ["u"], ["b"], name="two"),
             node("Pad", ["x", "pads"], ["c"], name="three", mode="mirror"),
             node("Neg", ["c"], ["d"], name="four"), node("Frobnicate", ["x"], ["e"], name="five",
                                                           domain="made.up"),
             node("Relu", ["x"], ["f"], name="six")]
    model = model_of(nodes, {"x": (F, (2,)), "u": (np.uint8, (2,))}, list("abdef"),
                     {"pads": np.array([1, 1])}, domains=("made.up",))
    with pytest.raises(UnsupportedError) as caught:
        program_of(model)
    text = str(caught.value)
    assert "4 node(s) of model 'small' are refused:" in text
    assert "nodes 'one', 'two' (Relu x2, opset 18, inputs u8[2]): dtype u8; cast to" in text
    assert "node 'three' (Pad, opset 18, inputs f32[2], i64[2]): Pad mode 'mirror'; use" in text
    assert "node 'five': operator made.up.Frobnicate (opset 1) on f32[2]" in text
    assert "four" not in text and "six" not in text


def test_subgraphs_are_searched_for_unknown_operators():
    branch = helper.make_graph([node("ImageDecoder", ["x"], ["t"])], "b", [],
                               [helper.make_empty_tensor_value_info("t")])
    model = model_of([node("If", ["c"], ["y"], name="choice", then_branch=branch,
                           else_branch=branch)],
                     {"x": (np.uint8, (2,)), "c": (np.bool_, ())}, ["y"])
    with pytest.raises(UnsupportedError, match="operator ai.onnx.ImageDecoder"):
        read_graph(load_model(model))


def test_dtypes_without_an_implementation():
    model = model_of([node("Relu", ["x"], ["y"])], {"x": (F, (2,))}, ["y"])
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.COMPLEX64
    with pytest.raises(UnsupportedError, match="input 'x' has dtype COMPLEX64: convert the model"):
        read_graph(load_model(model))
    model = model_of([node("Add", ["x", "w"], ["y"])], {"x": (F, (2,))}, ["y"],
                     {"w": np.ones(2, F)})
    model.graph.initializer[0].CopyFrom(helper.make_tensor("w", onnx.TensorProto.COMPLEX64, [2],
                                                           [1.0, 1.0]))
    with pytest.raises(UnsupportedError, match="initializer 'w' has dtype COMPLEX64"):
        read_graph(load_model(model))


def test_unknown_attributes():
    model, _ = one_node("Relu", [rand(2)], dict(speed=3))
    with pytest.raises(UnsupportedError, match="'the_node' .Relu, opset 18.: unknown attribute 's"):
        read_graph(load_model(model))


@pytest.mark.parametrize("case,words", [
    (("Conv", [rand(1, 3, 4, 4), rand(2, 2, 3, 3)], {}), "'the_node' .Conv.*groups do not fit"),
    (("Conv", [rand(1, 2, 2, 2), rand(2, 2, 3, 3)], {}), "window must fit the padded input"),
    (("Add", [rand(2, 3), rand(2, 4)], {}), "Add, opset 18, inputs f32.2, 3., f32.2, 4.*broadcast"),
    (("Add", [rand(2), np.ones(2, np.int64)], {}), "inputs must have one dtype"),
    (("MatMul", [rand(2, 3), rand(4, 5)], {}), "inner dimensions must be equal: 3 == 4 does"),
    (("Reshape", [rand(2, 3), np.array([4, 2])], {}), "keeps the number of elements"),
    (("Reshape", [rand(2, 3), np.array([4, -1])], {}), "must divide"),
    (("Reshape", [rand(2, 3), np.array([-1, -1])], {}), "-1 once"),
    (("Transpose", [rand(2, 3)], dict(perm=[0, 0])), "is no permutation"),
    (("Softmax", [rand(2, 3)], dict(axis=2)), "axis 2 is out of range for rank 2"),
    (("Squeeze", [rand(2, 3), np.array([0])], {}), "dimension 0 must be 1"),
    (("Gather", [rand(2, 3), np.array([1, 0, 2])], {}), "constant indices 0..2 do not lie in an"),
    (("Slice", [rand(4)] + [np.array([k]) for k in (0, 3, 0, 0)], {}), "step 0"),
    (("Split", [rand(4), np.array([1, 2])], {}), "must add up"),
    (("Einsum", [rand(2, 3)], dict(equation="ij,jk->ik")), "2 terms for 1 inputs"),
    (("Where", [rand(2), rand(2), rand(2)], {}), "condition must be bool"),
])
def test_models_that_contradict_themselves(case, words):
    op, arrays, attrs = case
    model, _ = one_node(op, arrays, attrs, tuple(range(1, len(arrays))), 2 if op == "Split" else 1)
    with pytest.raises(ModelError, match=words):
        program_of(model)


def test_a_resize_to_nothing():
    model, _ = one_node("Resize", [rand(1, 1, 2, 2)], {})
    with pytest.raises(ModelError, match="neither scales nor sizes"):
        program_of(model)


@pytest.mark.parametrize("case,words", [
    (("Reshape", [rand(2, 3), np.array([6])], {}, ()), "depends on data; make it a constant"),
    (("Relu", [np.ones(2, np.uint8)], {}, ()), "dtype u8; cast to a supported dtype first"),
    (("Pad", [rand(2), np.array([1, 1])], dict(mode="mirror"), (1,)), "Pad mode 'mirror'; use"),
    (("Resize", [rand(1, 1, 2, 2), None, np.array([1, 1, 2, 2], F)], dict(
        coordinate_transformation_mode="half_way"), (2,)), "half_way.; use one of half_pixel"),
    (("Cast", [rand(2)], dict(to=14), ()), "conversion to this dtype; use one of f64, f32"),
])
def test_what_is_not_compiled_says_what_to_do(case, words):
    op, arrays, attrs, consts = case
    model, _ = one_node(op, arrays, attrs, consts)
    with pytest.raises(UnsupportedError, match=words):
        program_of(model)


def test_old_opsets_that_cannot_be_converted():
    model, _ = one_node("Tile", [rand(2), np.float32(2), np.float32(0)], opset=1)
    with pytest.raises(UnsupportedError, match="opset 1 is older than 7 and cannot be converted"):
        program_of(model)


GRAPHS = [
    ([node("Relu", ["q"], ["y"])], "'Relu_y' .Relu. reads 'q', which no node"),
    ([node("Relu", ["b"], ["a"]), node("Relu", ["a"], ["b"]), node("Add", ["a", "x"], ["y"])],
     "cycle"),
    ([node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"])], "'y' is written twice"),
    ([node("Relu", ["x"], ["z"])], "output 'y' is produced by no node"),
]


@pytest.mark.parametrize("nodes,words", GRAPHS)
def test_graphs_that_are_none(nodes, words):
    model = model_of(nodes, {"x": (F, (2,))}, ["y"])
    with pytest.raises(ModelError, match=words):
        program_of(model)


def test_nodes_may_come_in_any_order():
    nodes = [node("Neg", ["a"], ["y"]), node("Relu", ["x"], ["a"])]
    program = program_of(model_of(nodes, {"x": (F, (2,))}, ["y"]))
    assert [s.out for s in program.steps] == ["a_2", "y"]


@pytest.mark.parametrize("dims,words", [
    ({"length": 3}, "has no dimension 'length'; it has n"), ({"n": 0.5}, "neither an extent nor"),
    ({"n": (3, 2)}, "neither"), ({"n": -1}, "neither"), ({"n": (1, 2, 3)}, "neither"),
    ({"n": True}, "neither"),
])
def test_ranges_that_make_no_sense(dims, words):
    model = model_of([node("Relu", ["x"], ["y"])], {"x": (F, ("n",))}, ["y"])
    with pytest.raises(ModelError, match=words):
        program_of(model, dims=dims)


def test_the_text_of_a_graph_names_types_and_attributes():
    model = model_of([node("Softmax", ["x"], ["y"], axis=0)], {"x": (F, ("rows", 3))}, ["y"])
    text = str(read_graph(load_model(model), name="tiny"))
    assert "graph tiny opset ai.onnx 18" in text
    assert "sym rows in 1.. (default: no range given)" in text
    assert "%0 = Softmax(x) axis=0 : f32[rows, 3]" in text
