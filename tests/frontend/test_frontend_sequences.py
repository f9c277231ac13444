"""Sequences whose length is known while compiling."""

import numpy as np
import pytest
from frontend_cases import compare, model_of, program_of, rand
from onnx import TensorProto, helper

from aotc.errors import ModelError, UnsupportedError

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
    def graph(name, op):
        nodes = [node(op, ["x"], [f"{name}1"]), node("SequenceConstruct", [f"{name}1"], [name])]
        info = helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None)
        return helper.make_graph(nodes, name, [], [info])
    nodes = [node("If", ["c"], ["s"], then_branch=graph("t", "Neg"), else_branch=graph("e", "Exp")),
             node("ConcatFromSequence", ["s"], ["y"], axis=0)]
    check(nodes, {"c": np.array(False)})
    model = model_of(nodes, {"x": (F, (2,)), "c": (np.bool_, ())}, ["y"])
    with pytest.raises(UnsupportedError, match="'If_s' .If.*a sequence; take its tensors out"):
        program_of(model)


def loop_with(nodes, states, last):
    """The body of a Loop of one state "s" (a sequence, or none), whose last output is "last"."""
    info, seq = helper.make_tensor_value_info, helper.make_tensor_sequence_value_info
    bools = [info(c, TensorProto.BOOL, []) for c in ("c", "c2")]
    return helper.make_graph(
        [*nodes, node("Identity", ["c"], ["c2"])], "b",
        [info("i", TensorProto.INT64, []), bools[0],
         *(seq(s, TensorProto.FLOAT, None) for s in states)], [bools[1], *last])


@pytest.mark.parametrize("gathered", [False, True])
def test_a_loop_with_sequences_that_tensors_would_have_to_be(gathered):
    """Rounds that may not run pick what a state was; gathered values are stacked."""
    info, seq = helper.make_tensor_value_info, helper.make_tensor_sequence_value_info
    if gathered:
        body = loop_with([node("SequenceConstruct", ["x"], ["g"])], [],
                         [seq("g", TensorProto.FLOAT, None)])
        loop, rest = node("Loop", ["three", ""], ["y"], body=body), []
    else:
        body = loop_with([node("SequenceInsert", ["s", "x"], ["s2"]), node("Neg", ["x"], ["g"])],
                         ["s"], [seq("s2", TensorProto.FLOAT, None),
                                 info("g", TensorProto.FLOAT, [2])])
        loop = node("Loop", ["n", "", "s0"], ["t", "y"], body=body)
        rest = [node("SequenceEmpty", [], ["s0"])]
    model = model_of([*rest, loop], {"x": (F, (2,)), "n": (I, ())}, ["y"], {
        "three": np.array(3, I)})
    model.graph.output[0].CopyFrom(info("y", TensorProto.FLOAT, [3, 2]))
    with pytest.raises(UnsupportedError, match="Loop.*a sequence; take its tensors out"):
        program_of(model)


@pytest.mark.parametrize("nodes, error, words", [
    ([node("SplitToSequence", ["x"], ["s"]), node("Neg", ["s"], ["y"])], UnsupportedError,
     "'Neg_y' .Neg.*sequence of 5.*: a sequence; take its tensors out first"),
    ([node("SplitToSequence", ["x"], ["y"])], UnsupportedError, "'y' is a sequence of 5 tensors"),
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
