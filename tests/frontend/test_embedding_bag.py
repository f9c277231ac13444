"""EmbeddingBag as exporters write it: loops over runs of rows, gathered or joined from a
sequence."""

import numpy as np
import pytest
from frontend_cases import by_onnxruntime, helper, numpy_helper, onnx, program_of, run, same

import aotc
from aotc.errors import ModelError
from aotc.ir.kernel.plan_stages import Nest
from aotc.sched import decide, lower
from aotc.target import get_target

node, value = helper.make_node, helper.make_tensor_value_info
F32, I64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
TABLE = np.random.default_rng(0).standard_normal((10, 4)).astype(np.float32)
PLACES = np.array([1, 2, 4, 5, 4, 3, 9])
MODES = ("ReduceSum", "ReduceMean", "ReduceMax")
FEEDS = {"places": PLACES, "offsets": np.array([0, 3, 6])}


def model_of(nodes, constants, weighted, free, opset):
    bags, rows = free if isinstance(free, tuple) else ("bags", "rows") if free else (3, 7)
    inputs = [value("places", I64, [rows]), value("offsets", I64, [bags])]
    inputs += [value("weights", F32, [rows])] if weighted else []
    table = {"table": TABLE, "zero": np.array([0]), "one": np.array(1)} | constants
    graph = helper.make_graph(nodes, "bags", inputs, [value("y", F32, [bags, 4])],
                              [numpy_helper.from_array(np.asarray(a), n)
                               for n, a in table.items()])
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", opset)])


def reduced(mode, opset, keep):
    """The node that folds ``found`` into ``row``."""
    by_input = mode == "ReduceSum" or opset >= 18
    return node(mode, ["found", "zero"] if by_input else ["found"], ["row"], keepdims=keep,
                **({} if by_input else {"axes": [0]}))


def looped(mode="ReduceSum", weighted=False, free=False, more="next"):
    """Rounds gather; a bag's end is the next number, or is looked up in a list of its own."""
    ends, place = ("ends", "k") if more == "ends" else ("all", "next")
    nodes = [node("Add", ["k", "one"], ["next"]),
             node("Gather", ["all", "k"], ["s0"]), node("Gather", [ends, place], ["e0"]),
             node("Unsqueeze", ["s0", "zero"], ["s"]), node("Unsqueeze", ["e0", "zero"], ["e"]),
             node("Slice", ["places", "s", "e", "zero"], ["own"]),
             node("Gather", ["table", "own"], ["plain" if weighted else "found"])]
    if weighted:
        nodes += [node("Slice", ["weights", "s", "e", "zero"], ["w0"]),
                  node("Unsqueeze", ["w0", "first"], ["w"]), node("Mul", ["plain", "w"], ["found"])]
    nodes += [reduced(mode, 14, 0), node("Cast", ["one"], ["again"], to=BOOL)]
    body = helper.make_graph(
        nodes, "body", [value("k", I64, []), value("on", BOOL, [])],
        [value("again", BOOL, []), value("row", F32, None)],
        [numpy_helper.from_array(np.array([1]), "first")])
    outer = [node("Concat", ["offsets", "largest"], ["all"], axis=0),
             node("Slice", ["all", "first", "largest", "zero"], ["ends"]),
             node("Shape", ["offsets"], ["n"]), node("Squeeze", ["n"], ["count"]),
             node("Cast", ["one"], ["go"], to=BOOL),
             node("Loop", ["count", "go"], ["y"], body=body)]
    return model_of(outer, {"largest": np.array([2 ** 63 - 1]), "first": np.array([1])}, weighted,
                    free, 14)


def listed(mode="ReduceSum", free=False, keep=0):
    """Rounds insert into a sequence, zeros where a bag is empty."""
    empty = helper.make_graph([node("Expand", ["nothing", "shape"], ["none"])], "empty", [],
                              [value("none", F32, None)])
    full = helper.make_graph(
        [node("Reshape", ["s", "minus"], ["s1"]), node("Reshape", ["e", "minus"], ["e1"]),
         node("Slice", ["whole", "s1", "e1"], ["found"]), reduced(mode, 18, keep)], "full", [],
        [value("row", F32, None)])
    nodes = [node("Gather", ["all", "k"], ["s"]), node("Add", ["k", "one"], ["next"]),
             node("Gather", ["all", "next"], ["e"]), node("Equal", ["s", "e"], ["same"]),
             node("If", ["same"], ["made"], then_branch=empty, else_branch=full),
             node("SequenceInsert", ["before", "made"], ["after"]),
             node("Identity", ["on"], ["again"])]
    rows = helper.make_tensor_sequence_value_info
    body = helper.make_graph(nodes, "body", [value("k", I64, []), value("on", BOOL, []),
                                             rows("before", F32, None)],
                             [value("again", BOOL, []), rows("after", F32, None)])
    outer = [node("Gather", ["table", "places"], ["whole"]), node("Shape", ["places"], ["size"]),
             node("Concat", ["offsets", "size"], ["all"], axis=0),
             node("Shape", ["offsets"], ["n"]), node("Squeeze", ["n"], ["count"]),
             node("SequenceEmpty", [], ["start"]),
             node("Loop", ["count", "", "start"], ["parts"], body=body),
             node("ConcatFromSequence", ["parts"], ["y"], axis=0, new_axis=1 - keep)]
    return model_of(outer, {"minus": np.array([-1]), "nothing": np.zeros(1, np.float32),
                            "shape": np.array([1, 4] if keep else [4])}, False, free, 18)


def in_branches(name, condition, outputs, then, other, stored=()):
    """An If whose branches are lists of nodes with one result each."""
    bodies = [helper.make_graph(nodes, f"{name}_{k}", [], [value(out, F32, None)],
                                [numpy_helper.from_array(a, n) for n, a in stored] * (k == 0))
              for k, (nodes, out) in enumerate(((then, outputs[0]), (other, outputs[1])))]
    return node("If", [condition], [name], then_branch=bodies[0], else_branch=bodies[1])


def counting(mode="ReduceSum", free=False, last=False):
    """Rounds that count themselves; the last one is told apart where that is not a sum.  ``last``:
    the list of ends has the last one, too."""
    cut = node("Slice", ["whole", "s", "e"], ["found"])
    full = [cut, node(mode, ["found", "zero"], ["full"])]
    if mode == "ReduceMean":
        some = [node("Cast", ["left"], ["left_f"], to=F32),
                node("Div", ["sum", "left_f"], ["some"])]
        ended = [node("ReduceSum", ["found", "zero"], ["sum"]),
                 node("Shape", ["places"], ["size_in"]), node("Sub", ["size_in", "s"], ["left"]),
                 node("CastLike", ["none", "left"], ["none_like"]),
                 node("Greater", ["left", "none_like"], ["any"]),
                 in_branches("ended", "any", ("some", "nothing"), some,
                             [node("Identity", ["sum"], ["nothing"])])]
        full = [cut, node("Equal", ["k", "most"], ["at_last"]), in_branches(
            "full", "at_last", ("ended", "mean"), ended, [node(mode, ["found", "zero"], ["mean"])])]
    if mode == "ReduceMax":
        full = [node("Equal", ["k", "most"], ["at_last"]), in_branches(
            "found", "at_last", ("to_end", "run"),
            [node("Slice", ["whole", "s", "size"], ["to_end"])],
            [node("Slice", ["whole", "s", "e"], ["run"])]), full[-1]]
    zeros = [("row0", np.zeros((1, 4), np.float32))]
    nodes = [node("Reshape", ["k", "minus"], ["k1"]), node("CastLike", ["one", "k1"], ["one_like"]),
             node("Add", ["k1", "one_like"], ["next"]), node("Add", ["k1", "two"], ["after_next"]),
             node("Slice", ["all", "k1", "next"], ["s"]),
             node("Slice", ["all", "next", "after_next"], ["e"]),
             node("Equal", ["s", "e"], ["same"]), node("Sub", ["count", "one"], ["most"]),
             in_branches("row", "same", ("row0", "full"), [], full, zeros),
             node("SequenceInsert", ["before", "row"], ["after"]),
             node("Add", ["k", "one"], ["more"]), node("Less", ["more", "count"], ["on"])]
    rows = helper.make_tensor_sequence_value_info
    body = helper.make_graph(nodes, "body", [value("turn", I64, []), value("going", BOOL, []),
                                             value("k", I64, []), rows("before", F32, None)],
                             [value("on", BOOL, []), value("more", I64, []),
                              rows("after", F32, None)])
    outer = [node("Gather", ["table", "places"], ["whole"]), node("Shape", ["places"], ["size"]),
             node("Size", ["offsets"], ["numbers"]), node("SequenceEmpty", [], ["start"]),
             *([node("Identity", ["offsets"], ["all"]), node("Sub", ["numbers", "one"], ["count"])]
               if last else [node("Concat", ["offsets", "size"], ["all"], axis=0),
                             node("Identity", ["numbers"], ["count"])]),
             node("Less", ["none", "count"], ["go"]),
             node("Loop", ["", "go", "none", "start"], ["rounds", "parts"], body=body),
             node("ConcatFromSequence", ["parts"], ["y"], axis=0)]
    model = model_of(outer, {"minus": np.array([-1]), "two": np.array(2), "none": np.array(0)},
                     False, free, 20)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def check(model, feeds):
    same(run(program_of(model), feeds), by_onnxruntime(model, feeds), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("free", (False, True))
@pytest.mark.parametrize("mode", MODES)
def test_bags_that_rounds_gather(mode, free):
    check(looped(mode, free=free), FEEDS)
    check(looped(mode, free=free, more="ends"), FEEDS)
    weights = np.random.default_rng(1).standard_normal(7).astype(np.float32)
    check(looped(mode, True, free), FEEDS | {"weights": weights})


@pytest.mark.parametrize("free", (False, True))
@pytest.mark.parametrize("mode", MODES)
def test_bags_in_a_sequence(mode, free):
    for keep in (0, 1):
        for offsets in ([0, 3, 6], [0, 3, 3], [0, 0, 7]):
            check(listed(mode, free, keep), FEEDS | {"offsets": np.array(offsets)})


@pytest.mark.parametrize("free", (False, True))
@pytest.mark.parametrize("mode", MODES)
def test_bags_of_rounds_that_count_themselves(mode, free):
    for last in (False, True):
        model = counting(mode, free, last)
        program = program_of(model)
        for offsets in ([0, 3, 6], [0, 3, 3], [0, 0, 7], [2, 5, 6], [0, 4, 4]):
            feeds = FEEDS | {"offsets": np.array(offsets)}
            same(run(program, feeds), by_onnxruntime(model, feeds), atol=1e-6, rtol=1e-5)


def test_ends_as_slices_take_them():
    """Counted from the last row, beyond it, and before where a bag begins."""
    for offsets in ([-4, -2, 9], [5, 2, 0], [0, -100, 100]):
        check(looped(free=True), FEEDS | {"offsets": np.array(offsets)})


def test_bags_compiled_for_any_number(tmp_path):
    model, rng = looped("ReduceMean", free=True), np.random.default_rng(2)
    compiled = aotc.compile(model, tmp_path / "b", target="c", name="net").load(threads=2)
    for bags, rows in ((1, 1), (3, 7), (19, 40)):
        starts = np.sort(rng.choice(rows, bags - 1, replace=False)) if bags > 1 else []
        feeds = {"places": rng.integers(0, 10, rows),
                 "offsets": np.unique(np.array([0, *starts], np.int64))}
        same(list(compiled.run(feeds).values()), by_onnxruntime(model, feeds), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_bags_look_at_their_own_rows(mode):
    """Also more bags than a list of axes has numbers, which is what a fold's second input is."""
    rng, c = np.random.default_rng(3), get_target("c")
    for make in (looped, listed):
        model = make(mode, free=(300, 500))
        program = program_of(model)
        feeds = {"places": rng.integers(0, 10, 500), "offsets": np.sort(rng.integers(0, 500, 300))}
        if mode == "ReduceSum" or make is listed:  # elsewhere an empty bag has no value
            same(run(program, feeds), by_onnxruntime(model, feeds), atol=1e-5, rtol=1e-5)
        plan = lower(program, decide(program, c), c)
        assert any(s.ends for k in plan.kernels for s in k.lowered.stages if isinstance(s, Nest))


def inner(model, op):
    """A node of the model's Loop."""
    (loop,) = [n for n in model.graph.node if n.op_type == "Loop"]
    return next(n for n in loop.attribute[0].g.node if n.op_type == op)


def other_test(model):
    inner(model, "Equal").input[1] = "k"


def other_rows(model):
    inner(model, "Slice").input[1] = "e"
    inner(model, "Slice").input[2] = "k1"
    inner(model, "Unsqueeze").CopyFrom(node("Unsqueeze", ["k", "zero"], ["k1"]))


def stops(model):
    inner(model, "Cast").CopyFrom(node("Less", ["k", "one"], ["again"]))


def nothing_made(model):
    del inner(model, "If").attribute[0].g.output[:]


@pytest.mark.parametrize("make, change", ((listed, other_test), (looped, other_rows),
                                          (looped, stops)))
def test_what_is_no_bag_is_left_alone(make, change):
    """Its runs are rows that data counts, round by round."""
    model = make()
    change(model)
    if change is stops:
        model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 2
    check(model, FEEDS)


def test_a_round_that_makes_nothing_is_refused():
    model = listed()
    nothing_made(model)
    with pytest.raises(ModelError, match="If"):
        program_of(model)
