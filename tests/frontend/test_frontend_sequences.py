"""Sequences whose length is known while compiling."""

import numpy as np
import onnx
import pytest
from frontend_cases import by_onnxruntime, compare, model_of, program_of, rand, run, same
from onnx import TensorProto, helper, numpy_helper

import aotc
from aotc.errors import ModelError, UnsupportedError
from aotc.tools.verify import verify

F, I = np.float32, np.int64
node = helper.make_node


def check(nodes, consts=None, shape=(5, 4), **more):
    return compare(model_of(nodes, {"x": (F, shape)}, ["y"], consts, **more),
                   {"x": rand(*(7 if isinstance(d, str) else d for d in shape))},
                   ("onnxruntime",))


@pytest.mark.parametrize("split, count", [(2, 3), ([1, 3, 1], 3), (None, 5)])
@pytest.mark.parametrize("at", [0, -1])
def test_pieces_of_a_tensor(split, count, at):
    given = ["x"] if split is None else ["x", "split"]
    consts = {} if split is None else {"split": np.array(split, I)}
    check([node("SplitToSequence", given, ["s"]), node("SequenceAt", ["s", "at"], ["y"])],
          consts | {"at": np.array(at, I)})
    check([node("SplitToSequence", given, ["s"]), node("SequenceLength", ["s"], ["n"]),
           node("Cast", ["n"], ["f"], to=TensorProto.FLOAT),
           node("Mul", ["x", "f"], ["y"])], consts)


def test_pieces_without_their_axis_and_joined_again():
    for fresh in (0, 1):
        check([node("SplitToSequence", ["x"], ["s"], axis=1, keepdims=0),
               node("ConcatFromSequence", ["s"], ["y"], axis=-1, new_axis=fresh)], shape=("n", 4))


def test_tensors_put_in_and_taken_out():
    build = [node("SequenceConstruct", ["x", "x2"], ["s0"]), node("Neg", ["x"], ["x2"]),
             node("SequenceInsert", ["s0", "x3", "one"], ["s1"]), node("Exp", ["x"], ["x3"]),
             node("SequenceInsert", ["s1", "x"], ["s2"]),
             node("SequenceErase", ["s2", "one"], ["s3"])]
    check([*build, node("ConcatFromSequence", ["s3"], ["y"], axis=0)], {"one": np.array(1, I)},
          ("n", 3))


def test_shapes_through_sequences():
    check([node("Shape", ["x"], ["sh"]), node("SplitToSequence", ["sh", "one"], ["s"]),
           node("SequenceAt", ["s", "zero"], ["n"]), node("Concat", ["four", "n"], ["to"], axis=0),
           node("Reshape", ["x", "to"], ["y"])],
          {"one": np.array(1, I), "zero": np.array(0, I), "four": np.array([4], I)}, ("n", 4))


def test_a_loop_that_collects():
    seq = helper.make_tensor_sequence_value_info
    body = helper.make_graph(
        [node("SequenceInsert", ["s", "x"], ["s2"]), node("Identity", ["c"], ["c2"])], "b",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []),
         helper.make_tensor_value_info("c", TensorProto.BOOL, []),
         seq("s", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("c2", TensorProto.BOOL, []),
         seq("s2", TensorProto.FLOAT, None)])
    check([node("SequenceEmpty", [], ["s0"]), node("Loop", ["three", "", "s0"], ["t"], body=body),
           node("ConcatFromSequence", ["t"], ["y"], axis=0)], {"three": np.array(3, I)})


def test_branches_that_make_sequences():
    def graph(name, op, count=1):
        nodes = [node(op, ["x"], [f"{name}1"]),
                 node("SequenceConstruct", [f"{name}1"] * count, [name])]
        info = helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None)
        return helper.make_graph(nodes, name, [], [info])
    nodes = [node("If", ["c"], ["s"], then_branch=graph("t", "Neg"), else_branch=graph("e", "Exp")),
             node("ConcatFromSequence", ["s"], ["y"], axis=0)]
    check(nodes, {"c": np.array(False)})
    nodes[0] = node("If", ["c"], ["s"], then_branch=graph("t", "Neg"),
                    else_branch=graph("e", "Exp", 2))
    model = model_of(nodes, {"x": (F, (2,)), "c": (np.bool_, ())}, ["y"])
    with pytest.raises(UnsupportedError, match="'If_s' .If.*a sequence of 1 and a sequence of 2"):
        program_of(model)


def loop_with(nodes, states, last):
    """The body of a Loop of one state "s" (a sequence, or none), whose last output is "last"."""
    info, seq = helper.make_tensor_value_info, helper.make_tensor_sequence_value_info
    bools = [info(c, TensorProto.BOOL, []) for c in ("c", "c2")]
    return helper.make_graph(
        [*nodes, node("Identity", ["c"], ["c2"])], "b",
        [info("i", TensorProto.INT64, []), bools[0],
         *(seq(s, TensorProto.FLOAT, None) for s in states)], [bools[1], *last])


@pytest.mark.parametrize("how", ["gathered", "appended", "put in front"])
def test_a_loop_with_sequences_that_tensors_would_have_to_be(how):
    """Rounds that may not run pick what a state was; gathered values are stacked, and so is what is
    appended to a list."""
    info, seq = helper.make_tensor_value_info, helper.make_tensor_sequence_value_info
    if how == "gathered":
        body = loop_with([node("SequenceConstruct", ["x"], ["g"])], [],
                         [seq("g", TensorProto.FLOAT, None)])
        loop, rest = node("Loop", ["three", ""], ["y"], body=body), []
    else:
        at = ["zero"] if how == "put in front" else []
        body = loop_with([node("SequenceInsert", ["s", "x", *at], ["s2"]),
                          node("Neg", ["x"], ["g"])],
                         ["s"], [seq("s2", TensorProto.FLOAT, None),
                                 info("g", TensorProto.FLOAT, [2])])
        loop = node("Loop", ["n", "", "s0"], ["t", "y"], body=body)
        rest = [node("SequenceEmpty", [], ["s0"])]
    model = model_of([*rest, loop], {"x": (F, (2,)), "n": (I, ())}, ["y"], {
        "three": np.array(3, I), "zero": np.array(0, I)})
    model.graph.output[0].CopyFrom(info("y", TensorProto.FLOAT, [3, 2]))
    if how == "appended":
        feeds = {"x": np.array([1, -2], F), "n": np.array(3, I)}
        same(run(program_of(model), feeds), by_onnxruntime(model, feeds))
        return
    with pytest.raises(UnsupportedError, match="Loop.*a sequence; take its tensors out"):
        program_of(model)


@pytest.mark.parametrize("nodes, error, words", [
    ([node("SplitToSequence", ["x"], ["s"]), node("Neg", ["s"], ["y"])], UnsupportedError,
     "'Neg_y' .Neg.*sequence of 5.*: a sequence; take its tensors out first"),
    ([node("SplitToSequence", ["x"], ["s"]), node("SequenceAt", ["s", "at"], ["y"])], ModelError,
     "position 9 in a sequence of 5"),
    ([node("SequenceAt", ["x", "at"], ["y"])], ModelError, "input 0 must be a sequence"),
    ([node("SplitToSequence", ["x", "three"], ["s"]), node("SequenceAt", ["s", "zero"], ["y"])],
     ModelError, "must add up to the extent"),
])
def test_what_is_no_sequence_and_what_is_one(nodes, error, words):
    consts = {"at": np.array(9, I), "three": np.array([3], I), "zero": np.array(0, I)}
    with pytest.raises(error, match=words):
        program_of(model_of(nodes, {"x": (F, (5, 4))}, ["y"], consts))


def listed(nodes, inputs, outputs, opset=18, **initializers):
    """A model of (name, type, dims): sequences (a list of dims), optionals (a set), tensors."""
    def info(name, elem, dims):
        of = helper.make_tensor_type_proto(
            elem, dims if isinstance(dims, tuple) else next(iter(dims)))
        if isinstance(dims, list):
            of = helper.make_sequence_type_proto(of)
        if isinstance(dims, set):
            of = helper.make_optional_type_proto(of)
        return helper.make_value_info(name, of)
    graph = helper.make_graph(nodes, "lists", [info(*i) for i in inputs],
                              [info(*o) for o in outputs],
                              [numpy_helper.from_array(a, n) for n, a in initializers.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


FLOAT = TensorProto.FLOAT


def mapped():
    """Every tensor of a sequence by a sub-graph, beside a tensor that all see."""
    body = helper.make_graph(
        [node("Mul", ["a", "b"], ["c"]), node("ReduceMax", ["c"], ["d"], keepdims=0)], "each",
        [helper.make_tensor_value_info("a", FLOAT, None),
         helper.make_tensor_value_info("b", FLOAT, None)],
        [helper.make_tensor_value_info("c", FLOAT, None),
         helper.make_tensor_value_info("d", FLOAT, None)])
    return listed([node("SequenceMap", ["x", "w"], ["y", "z"], body=body)],
                  [("x", FLOAT, [("n",)]), ("w", FLOAT, (1,))],
                  [("y", FLOAT, [("n",)]), ("z", FLOAT, [()])])


def test_sequences_go_in_and_come_out(tmp_path):
    model, rng = mapped(), np.random.default_rng()
    x, w = [rng.normal(size=n).astype(F) for n in (5, 1, 8)], rng.normal(size=1).astype(F)
    bundle = aotc.compile(model, tmp_path / "b", lists={"x": [[5], [1], [8]]}).load()
    for got in (bundle.run({"x": x, "w": w}), bundle.run([x, w])):
        for g, a in zip(got["y"], x, strict=True):
            np.testing.assert_allclose(g, a * w, rtol=1e-6)
        for g, a in zip(got["z"], x, strict=True):
            np.testing.assert_allclose(g, (a * w).max(), rtol=1e-6)
    with pytest.raises(ValueError, match="input x is for 3 tensors, 2 given"):
        bundle.run({"x": x[:2], "w": w})
    rows = verify_model(model, tmp_path, lists={"x": 2})
    assert {m.output for _, m in rows} == {"y[0]", "y[1]", "z[0]", "z[1]"}
    assert all(m.ok for _, m in rows)


def verify_model(model, folder, **more):
    onnx.save(model, folder / "model.onnx")
    return verify(folder / "model.onnx", target="c", report=lambda line: None, **more)


@pytest.mark.parametrize("there", [True, False])
def test_an_optional_is_there_or_not(tmp_path, there):
    empty, full = (helper.make_graph(nodes, "b", [], [helper.make_tensor_value_info(
        "r", FLOAT, (3,))]) for nodes in ([node("Neg", ["x"], ["r"])], [
            node("OptionalGetElement", ["o"], ["e"]), node("Add", ["e", "x"], ["r"])]))
    model = listed([node("OptionalHasElement", ["o"], ["h"]),
                    node("If", ["h"], ["y"], then_branch=full, else_branch=empty)],
                   [("o", FLOAT, {(3,)}), ("x", FLOAT, (3,))], [("y", FLOAT, (3,))])
    x, o = rand(3), rand(3)
    bundle = aotc.compile(model, tmp_path / "b", target="c",
                          **({} if there else {"lists": {"o": None}})).load()
    got = bundle.run({"x": x, "o": o if there else None})["y"]
    np.testing.assert_array_equal(got, x + o if there else -x)
    with pytest.raises(ValueError, match="is not there" if there else "is for nothing, 3 given"):
        bundle.run({"x": x, "o": None if there else o})


def test_an_if_of_sequences(tmp_path):
    def branch(op):
        return helper.make_graph(
            [node(op, ["x"], ["p"]), node("SequenceConstruct", ["p", "x"], ["s"])], op, [],
            [helper.make_tensor_sequence_value_info("s", FLOAT, None)])
    model = listed([node("If", ["c"], ["y"], then_branch=branch("Neg"), else_branch=branch("Abs"))],
                   [("c", TensorProto.BOOL, ()), ("x", FLOAT, (4,))], [("y", FLOAT, [(4,)])])
    bundle, x = aotc.compile(model, tmp_path / "b", target="c").load(), rand(4)
    for c in (True, False):
        got = bundle.run({"c": np.array(c), "x": x})["y"]
        np.testing.assert_array_equal(got, [-x if c else abs(x), x])


@pytest.mark.parametrize("lists, error, text", [
    ({}, UnsupportedError, "'x' is a sequence: say how many tensors it has"),
    ({"x": -1}, ModelError, "cannot hold -1 tensors"),
    ({"x": "3"}, ModelError, "give the number of its tensors or a list of their shapes"),
    ({"x": None}, ModelError, "it is always there"),
    ({"w": 1}, ModelError, "no sequence or optional 'w' among its inputs; it has: x"),
    ({"x": 0}, UnsupportedError, "no output holds a tensor")])
def test_what_is_said_of_lists_is_checked(tmp_path, lists, error, text):
    with pytest.raises(error, match=text):
        aotc.compile(mapped(), tmp_path / "b", target="c", lists=lists)


def test_an_optional_that_is_not_there_has_no_element(tmp_path):
    model = listed([node("OptionalGetElement", ["o"], ["y"])], [("o", FLOAT, {(3,)})],
                   [("y", FLOAT, (3,))])
    with pytest.raises(ModelError, match="OptionalGetElement.*without an element"):
        aotc.compile(model, tmp_path / "b", target="c", lists={"o": None})


def test_a_tensor_as_an_optional():
    check([node("Optional", ["x"], ["o"]), node("OptionalGetElement", ["o"], ["e"]),
           node("Neg", ["e"], ["y"])])
