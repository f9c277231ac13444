"""Nodes that stand for others: operators that are compiled through their definition in the
standard, and calls of the model's own functions."""

import numpy as np
import onnx
import pytest
from frontend_cases import by_reference, compare, model_of, one_node, program_of, rand, run, same
from onnx import TensorProto, helper, numpy_helper

from aotc.errors import ModelError, UnsupportedError
from aotc.frontend.read import definitions

F = np.float32
QKV = [rand(1, 2, 4, 8, seed=s) for s in range(3)]
CASES = {
    "Attention": (QKV, {}, 23),
    "RotaryEmbedding": ([rand(2, 3, 4, 8), rand(6, 4), rand(6, 4),
                         np.array([[0, 1, 2, 3], [2, 3, 4, 5]])], {}, 23),
    "NegativeLogLikelihoodLoss": ([rand(3, 5), np.array([0, 4, 2]), rand(5)], {}, 22),
    "SoftmaxCrossEntropyLoss": ([rand(3, 5), np.array([0, 4, 2])], {}, 13),
}
OPERATORS = pytest.mark.parametrize("op", CASES)


def typed(model, *types):
    """The model with element types of its outputs, which the standard asks for."""
    for out, elem in zip(model.graph.output, types or (TensorProto.FLOAT,)):
        out.type.tensor_type.elem_type = elem
    return model


@OPERATORS
def test_any_input_may_be_an_initializer(op):
    arrays, attrs, opset = CASES[op]
    for consts in [(k,) for k in range(len(arrays))] + [tuple(range(1, len(arrays)))]:
        model, feeds = one_node(op, arrays, attrs, consts, opset=opset)
        compare(typed(model), feeds, ("reference",))


@pytest.mark.parametrize("given", [(3,), (4, 5), (3, 4, 5)])
def test_optional_inputs_left_out_in_the_middle(given):
    arrays = QKV + [rand(4, 6 if 4 in given else 4), rand(1, 2, 2, 8), rand(1, 2, 2, 8)]
    arrays = [a if k < 3 or k in given else None for k, a in enumerate(arrays)]
    for consts in ((), given):
        model, feeds = one_node("Attention", arrays, consts=consts, opset=23)
        compare(typed(model), feeds, ("reference",))


@OPERATORS
def test_in_branches_and_in_functions_of_functions(op):
    arrays, attrs, opset = CASES[op]
    model, feeds = one_node(op, arrays, attrs, (1,), opset=opset)
    want = by_reference(typed(model), feeds)
    names, (inner,) = list(model.graph.node[0].input), model.graph.node
    imports = [*model.opset_import, helper.make_opsetid("my", 1)]
    model.functions.append(helper.make_function("my", "One", names, ["out0"], [inner], imports))
    for call, body in (("Two", "One"), ("Three", "Two")):
        model.functions.append(helper.make_function("my", call, names, ["r"], [
            helper.make_node(body, names, ["r"], domain="my")], imports))
    model.opset_import.append(imports[-1])
    model.graph.node[0].CopyFrom(helper.make_node("Three", names, ["out0"], domain="my"))
    same(run(program_of(model), feeds), want)
    branches = {f"{kind}_branch": helper.make_graph(
        [helper.make_node(op, names, [f"{kind}_out"], **attrs)], kind, [],
        [helper.make_tensor_value_info(f"{kind}_out", TensorProto.FLOAT, None)])
        for kind in ("then", "else")}
    model.graph.node[0].CopyFrom(helper.make_node("If", ["which"], ["out0"], **branches))
    model.graph.input.append(helper.make_tensor_value_info("which", TensorProto.BOOL, []))
    same(run(program_of(model), {**feeds, "which": np.array(True)}), want)


def call_model(functions, calls, inputs=(("x", F, (3,)),), consts=None, opset=18):
    nodes = [helper.make_node(f, i, o, domain="my", **attrs) for f, i, o, attrs in calls]
    model = model_of(nodes, {n: (d, s) for n, d, s in inputs}, ["y"], consts, opset, ("my",))
    model.functions.extend(functions)
    return typed(model)


def function(name, inputs, outputs, nodes, opset=18, **more):
    return helper.make_function("my", name, inputs, outputs, nodes, [
        helper.make_opsetid("", opset), helper.make_opsetid("my", 1)], **more)


def test_attributes_of_a_call_and_their_defaults():
    leaky = helper.make_node("LeakyRelu", ["a"], ["b"])
    ref = onnx.AttributeProto(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="slope")
    leaky.attribute.append(ref)
    for default in ([], [helper.make_attribute("slope", 0.5)]):
        made = function("Leaky", ["a"], ["b"], [leaky], attribute_protos=default,
                        attributes=[] if default else ["slope"])
        for attrs in ({}, {"slope": 0.25}):
            model = call_model([made], [("Leaky", ["x"], ["y"], attrs)])
            slope = attrs.get("slope", 0.5 if default else 0.01)
            got, = run(program_of(model), {"x": np.array([-1, 0, 2], F)})
            np.testing.assert_allclose(got, np.array([-slope, 0, 2], F), rtol=1e-6)


def test_a_function_has_its_own_opset():
    """Softmax of opset 11 flattens, that of the model's opset does not."""
    flat = function("Flat", ["a"], ["b"], [helper.make_node("Softmax", ["a"], ["b"], axis=0)], 11)
    model = call_model([flat], [("Flat", ["x"], ["y"], {})], [("x", F, (2, 3))])
    x = rand(2, 3)
    got, = run(program_of(model), {"x": x})
    np.testing.assert_allclose(got, np.exp(x) / np.exp(x).sum(), rtol=1e-5)


def test_names_inside_hide_those_outside():
    """The function's tensor t, its branch's t and the model's t are three."""
    branch = helper.make_graph(
        [helper.make_node("Mul", ["a", "t"], ["u"]), helper.make_node("Neg", ["u"], ["r"])], "b",
        [], [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array([2], F), "t")])
    other = onnx.GraphProto.FromString(branch.SerializeToString())
    made = function("Odd", ["a", "c"], ["b"], [
        helper.make_node("Add", ["a", "a"], ["u"]),
        helper.make_node("If", ["c"], ["v"], then_branch=branch, else_branch=other),
        helper.make_node("Add", ["u", "v"], ["b"])])
    model = call_model([made], [("Odd", ["t", "c"], ["u"], {}), ("Odd", ["u", "c"], ["y"], {})],
                       [("t", F, (3,)), ("c", np.bool_, ())])
    got, = run(program_of(model), {"t": np.ones(3, F), "c": np.array(True)})
    assert got.tolist() == [0, 0, 0]


def test_outputs_that_are_inputs_and_outputs_that_nobody_reads():
    both = function("Both", ["a", "b"], ["b", "a", "s"],
                    [helper.make_node("Add", ["a", "b"], ["s"])])
    model = call_model([both], [("Both", ["x", "two"], ["p", "", "q"], {}),
                                ("Both", ["p", "q"], ["", "", "y"], {})],
                       consts={"two": np.full(3, 2, F)})
    got, = run(program_of(model), {"x": np.ones(3, F)})
    assert got.tolist() == [5, 5, 5]


def test_types_that_a_function_declares():
    """What depends on data needs a declared shape, inside functions too."""
    made = function("Kept", ["a"], ["b"], [
        helper.make_node("NonZero", ["a"], ["n"]), helper.make_node("Identity", ["n"], ["b"])],
        value_info=[helper.make_tensor_value_info("n", TensorProto.INT64, [1, 2])])
    model = call_model([made], [("Kept", ["x"], ["y"], {})])
    typed(model, TensorProto.INT64)
    got, = run(program_of(model), {"x": np.array([3, 0, 1], F)})
    assert got.tolist() == [[0, 2]]


def test_a_call_with_more_than_its_function_has():
    one = function("One", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])])
    with pytest.raises(ModelError, match="'One_y'.*2 inputs and 1 outputs, its function has 1"):
        program_of(call_model([one], [("One", ["x", "x"], ["y"], {})]))


def test_a_definition_that_fails_names_its_node(monkeypatch):
    """... and takes no other node down with it."""
    arrays, attrs, opset = CASES["NegativeLogLikelihoodLoss"]
    model, _ = one_node("NegativeLogLikelihoodLoss", arrays, attrs, (1,), opset=opset)

    def fails(*given):
        raise RuntimeError("no type for it\nin line 3")
    monkeypatch.setattr(definitions, "definition_of", fails)
    with pytest.raises(UnsupportedError, match="'the_node' .Neg.*fails .no type for it.; "):
        program_of(typed(model))


def test_messages_about_a_definition_begin_with_its_node():
    arrays = [rand(3, 5), np.array([0, 4, 2, 1])]
    model, _ = one_node("NegativeLogLikelihoodLoss", arrays, opset=22)
    with pytest.raises(ModelError, match="node 'the_node/"):
        program_of(typed(model))


def test_subgraphs_of_a_definition_may_have_any_names():
    """The standard writes the sub-graphs of an attention's scores as text."""
    info = helper.make_tensor_value_info
    score = helper.make_graph([helper.make_node("Mul", ["in/1", "by 2"], ["out 3"], name="a b")],
                              "score", [info("in/1", TensorProto.FLOAT, None)],
                              [info("out 3", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(np.array(2, F), "by 2")])
    node = helper.make_node("FlexAttention", ["q", "k", "v"], ["y"], domain="ai.onnx.preview",
                            score_mod=score)
    model = typed(model_of([node], dict.fromkeys("qkv", (F, (1, 2, 4, 8))), ["y"], opset=26,
                           domains=("ai.onnx.preview",)))
    got, = run(program_of(model), dict(zip("qkv", QKV)))
    logits = 2 * QKV[0].astype(np.float64) @ QKV[1].swapaxes(2, 3) / np.sqrt(8)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    np.testing.assert_allclose(got, weights / weights.sum(-1, keepdims=True) @ QKV[2], rtol=1e-4,
                               atol=1e-5)


def test_types_that_a_branch_declares():
    """What depends on data there has the shape that is declared there; where two differ, as many
    elements as the one that runs."""
    def model(extents):
        branches = {f"{kind}_branch": helper.make_graph(
            [helper.make_node("NonZero", ["x"], ["n"])], kind, [],
            [helper.make_tensor_value_info("n", TensorProto.INT64, [1, extent])])
            for kind, extent in zip(("then", "else"), extents)}
        made = model_of([helper.make_node("If", ["c"], ["y"], **branches)],
                        {"x": (F, (3,)), "c": (np.bool_, ())}, ["y"])
        return typed(made, TensorProto.INT64)
    feeds = {"x": np.array([3, 0, 1], F), "c": np.array(True)}
    got, = run(program_of(model((2, 2))), feeds)
    assert got.tolist() == [[0, 2]]
    got, count = run(program_of(model((2, 1))), feeds)
    assert count == 2 and got[:, :2].tolist() == [[0, 2]]
