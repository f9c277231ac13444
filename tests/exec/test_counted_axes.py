"""What follows an axis of which data says how long it is: any operator, along that axis or beside
it, sees the elements that there are and nothing of what lies behind them."""

from functools import partial

import numpy as np
import onnxruntime
import pytest
from harness import every
from onnx import TensorProto, helper, numpy_helper

import aotc

F = np.float32
MICROSOFT = "com.microsoft"
C, ROOM = 4, 9
rng = np.random.default_rng(3)
ACROSS, TURNED = dict(perm=[0, 2, 1]), dict(perm=[2, 0, 1])


def some(*shape):
    return (rng.standard_normal(shape) / 2).astype(F)


def ints(*values):
    return np.array(values, np.int64)


def one(op, given="u", stored=None, outputs=1, **attrs):
    """A case of one operator: (nodes, its stored tensors)."""
    names = [*given.split(), *(stored or {})]
    made = ["y", "z", "h"][:outputs]
    return [(op, names, made, attrs)], stored or {}


def behind(first, op, stored=None, outputs=1, **attrs):
    """The same behind an operator (name, its other inputs by name, attributes)."""
    name, more, given = first
    nodes, held = one(op, "v", stored, outputs, **attrs)
    return [(name, ["u", *more], ["v"], given), *nodes], {**more, **held}


conv, back = partial(one, "Conv"), partial(one, "ConvTranspose")
TALL = ("Unsqueeze", {"a3": ints(3)}, {})
WIDE = ("Unsqueeze", {"a1": ints(1)}, {})
DEEP = ("Unsqueeze", {"a12": ints(1, 2)}, {})
STEPS, ROWS = ("Transpose", {}, TURNED), ("Transpose", {}, ACROSS)
END = ints(2**62)

# the first few are of one kind each; u is [2, C, elements], behind them NaN
CASES = {
    "conv": conv(stored={"w": some(3, C, 3), "b": some(3)}, pads=[2, 2], dilations=[2]),
    "transposed": back(stored={"w": some(C, 3, 4), "b": some(3)}, strides=[2], pads=[1, 1]),
    "conv_same": conv(stored={"w": some(3, C, 4)}, auto_pad="SAME_UPPER", strides=[2]),
    "most": one("MaxPool", outputs=2, kernel_shape=[3], strides=[2], pads=[1, 1]),
    "mean": one("AveragePool", kernel_shape=[2], strides=[2], ceil_mode=1),
    "batch": one("BatchNormalization", stored={
        "g": some(C), "g2": some(C), "m": some(C), "q": np.abs(some(C)) + F(0.1)}),
    "instance": one("InstanceNormalization", stored={"g": some(C), "b": some(C)}),
    "pad": one("Pad", stored={"p": ints(0, 0, 2, 0, 1, 3), "c": F(1.5)}),
    "pad_edge": one("Pad", stored={"p": ints(0, 0, 2, 0, 0, 3)}, mode="edge"),
    "expand": behind(TALL, "Expand", {"s": ints(1, 1, 1, 3)}),
    "twice": one("Resize", stored={"": None, "by": np.array([1, 1, 2], F)}, mode="linear"),
    "every_other": one("Slice", stored={"b": ints(0), "e": END, "a": ints(2), "by": ints(2)}),
    "heads": one("Reshape", stored={"s": ints(2, 2, 2, -1)}),
    "flat": one("Flatten", axis=1),
    "elements": ([("ArgMax", ["u"], ["i"], {"axis": 1}),
                  ("GatherElements", ["u", "i"], ["y"], {"axis": 1})], {}),
    "norm_of_sum": ([("Transpose", ["u"], ["t"], ACROSS), (
        "SkipLayerNormalization", ["t", "t", "g", "b"], ["y"], {"domain": MICROSOFT})],
                    {"g": some(C), "b": some(C)}),
    "lstm": behind(STEPS, "LSTM", {"w": some(2, 12, C), "r": some(2, 12, 3)}, 3, hidden_size=3,
                   direction="bidirectional"),
    "whole_blocks": ([("Shape", ["u"], ["n"], {"start": 2}), ("Add", ["n", "three"], ["more"], {}),
                      ("Div", ["more", "four"], ["q"], {}), ("Mul", ["q", "four"], ["all"], {}),
                      ("Sub", ["all", "n"], ["left"], {}),
                      ("Concat", ["none", "left"], ["p"], {"axis": 0}),
                      ("Pad", ["u", "p"], ["v"], {}),
                      ("Conv", ["v", "w"], ["c"], dict(strides=[2], pads=[1, 1])),
                      ("ConvTranspose", ["c", "r"], ["e"], dict(strides=[2], pads=[1, 1])),
                      ("Add", ["e", "v"], ["f"], {}),
                      ("Slice", ["f", "zero", "n", "two"], ["y"], {})],
                     {"three": ints(3), "four": ints(4), "none": ints(0, 0, 0, 0, 0),
                      "w": some(C, C, 3), "r": some(C, C, 4), "zero": ints(0), "two": ints(2)}),
    # the rest differ from those in numbers and attributes
    "conv_stride": conv(stored={"w": some(3, C, 3)}, pads=[1, 2], strides=[3]),
    "conv_group": conv(stored={"w": some(6, 2, 3)}, pads=[1, 1], group=2),
    "conv_own": conv(stored={"w": some(C, 1, 3)}, pads=[2, 0], group=C),
    "conv_lower": conv(stored={"w": some(3, C, 3)}, auto_pad="SAME_LOWER", strides=[2]),
    "conv_2d": behind(WIDE, "Conv", {"w": some(3, 1, 3, 3)}, pads=[1, 1, 1, 1]),
    "conv_2d_first": behind(TALL, "Conv", {"w": some(3, C, 3, 1)}, pads=[1, 0, 1, 0]),
    "conv_3d": behind(DEEP, "Conv", {"w": some(3, 1, 3, 3, 3)}, pads=[1] * 6),
    "transposed_more": back(stored={"w": some(C, 3, 4)}, strides=[3], pads=[1, 1],
                            output_padding=[1]),
    "transposed_far": back(stored={"w": some(C, 3, 3)}, strides=[2], pads=[2, 2], dilations=[2],
                           group=2),
    "transposed_same": back(stored={"w": some(C, 3, 3)}, strides=[2], auto_pad="SAME_UPPER"),
    "most_ceil": one("MaxPool", kernel_shape=[2], strides=[2], ceil_mode=1),
    "mean_own": one("AveragePool", kernel_shape=[3], strides=[2], pads=[1, 1]),
    "mean_all": one("AveragePool", kernel_shape=[3], pads=[1, 1], count_include_pad=1),
    "power": one("LpPool", kernel_shape=[3], pads=[1, 1]),
    "all_mean": one("GlobalAveragePool"), "all_most": one("GlobalMaxPool"),
    "group": one("GroupNormalization", stored={"g": some(C), "b": some(C)}, num_groups=2),
    "layer": behind(ROWS, "LayerNormalization", {"g": some(C), "b": some(C)}),
    "layer_along": one("LayerNormalization", stored={"g": some(1, 1)}, axis=1),
    "lp": one("LpNormalization", axis=1), "lp_along": one("LpNormalization", axis=2, p=1),
    "variance": one("MeanVarianceNormalization", axes=[0, 2]),
    "pad_reflect": one("Pad", stored={"p": ints(0, 1, 0, 0, 2, 0)}, mode="reflect"),
    "pad_wrap": one("Pad", stored={"p": ints(0, 0, 1, 0, 0, 1)}, mode="wrap"),
    "pad_less": one("Pad", stored={"p": ints(0, 0, -1, 0, 0, 2)}),
    "expand_front": one("Expand", stored={"s": ints(3, 1, 1, 1)}),
    "tile": one("Tile", stored={"s": ints(1, 1, 2)}),
    "tile_beside": one("Tile", stored={"s": ints(1, 2, 1)}),
    "nearest": one("Resize", stored={"": None, "by": np.array([1, 1, 2], F)}, mode="nearest"),
    "half": one("Resize", stored={"": None, "by": np.array([1, 1, 0.5], F)}, mode="nearest"),
    "resize_beside": one("Resize", stored={"": None, "by": np.array([1, 2, 1], F)}, mode="linear"),
    "elements_first": one("GatherElements", axis=1,
                          stored={"i": np.array([[[1], [0], [3]], [[2], [2], [0]]])}),
    "gather_last": one("Gather", stored={"i": ints(-1)}, axis=2), "dropout": one("Dropout"),
    "running": one("CumSum", stored={"a": np.array(2)}),
    "running_back": one("CumSum", stored={"a": np.array(2)}, reverse=1, exclusive=1),
    "softmax": one("Softmax", axis=-1), "hardmax": one("Hardmax", axis=-1),
    "last_best": one("ArgMax", axis=2, select_last_index=1),
    "merged": one("Reshape", stored={"s": ints(8, -1)}),
    "lines": one("Reshape", stored={"s": ints(2, -1)}),
    "backwards": one("Slice", stored={"b": ints(-1), "e": -END, "a": ints(2), "by": ints(-1)}),
    "two_axes": one("Slice", stored={"b": ints(1, 1), "e": ints(3, 2**62), "a": ints(1, 2)}),
    "but_the_last": one("Slice", stored={"b": ints(0), "e": ints(-1), "a": ints(2)}),
    "with_input": one("Concat", "u x", axis=2), "split": one("Split", outputs=2, axis=1,
                                                             num_outputs=2),
    "gru": behind(STEPS, "GRU", {"w": some(1, 9, C), "r": some(1, 9, 3)}, 2, hidden_size=3),
    "rnn": behind(STEPS, "RNN", {"w": some(1, 3, C), "r": some(1, 3, 3)}, 2, hidden_size=3,
                  direction="reverse"),
    "blocks": behind(TALL, "DepthToSpace", blocksize=2),
    "bytes": one("DynamicQuantizeLinear", outputs=3),
    "attention": ([("Transpose", ["u"], ["t"], ACROSS), ("MatMul", ["t", "u"], ["s"], {}),
                   ("Trilu", ["s"], ["l"], {"upper": 0}), ("Softmax", ["l"], ["p"], {}),
                   ("MatMul", ["p", "t"], ["y"], {})], {}),
    "positions": ([("Shape", ["u"], ["s"], {"start": 2}), ("Transpose", ["u"], ["t"], ACROSS),
                   ("Slice", ["table", "no", "s", "a"], ["p"], {}), ("Add", ["t", "p"], ["y"], {})],
                  {"table": some(1, 20, C), "no": ints(0), "a": ints(1)}),
    "heads_of": ([("Transpose", ["u"], ["t"], ACROSS), (
        "MultiHeadAttention", ["t", "t", "t"], ["y"], dict(domain=MICROSOFT, num_heads=2))], {}),
    "activated": one("FusedConv", stored={"w": some(3, C, 3), "b": some(3)}, domain=MICROSOFT,
                     activation="Relu", pads=[1, 1], kernel_shape=[3]),
    "to_twice": ([("Shape", ["u"], ["n"], {"start": 2}), ("Mul", ["n", "two"], ["m"], {}),
                  ("Concat", ["own", "m"], ["s"], {"axis": 0}),
                  ("Resize", ["u", "", "", "s"], ["y"], {"mode": "linear"})],
                 {"two": ints(2), "own": ints(2, C)}),
    "of_batches": behind(("Transpose", {}, dict(perm=[1, 2, 0])), "LSTM", {
        "w": some(2, 12, 2), "r": some(2, 12, 3)}, 3, hidden_size=3, direction="bidirectional"),
    "sums": ([("Transpose", ["u"], ["t"], TURNED), ("Scan", ["start", "t"], ["z", "y"], dict(
        num_scan_inputs=1, body=helper.make_graph(
            [helper.make_node("Add", ["a", "e"], ["b"]), helper.make_node("Tanh", ["b"], ["o"])],
            "body", [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, C]) for n in "ae"],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, C]) for n in "bo"])))],
             {"start": some(2, C)}),
    "in_bytes": ([("DynamicQuantizeLinear", ["u"], ["q", "s", "o"], {}),
                  ("ConvInteger", ["q", "w", "o"], ["c"], {"pads": [1, 1]}),
                  ("Cast", ["c"], ["f"], {"to": TensorProto.FLOAT}),
                  ("Mul", ["f", "s"], ["y"], {})],
                 {"w": rng.integers(-9, 9, (3, C, 3)).astype(np.int8)}),
    "decoder": ([("ConvTranspose", ["u", "up"], ["a"], dict(strides=[2], pads=[1, 1])),
                 ("LeakyRelu", ["a"], ["b"], {}),
                 ("Conv", ["b", "far"], ["c"], dict(pads=[3, 3], dilations=[3])),
                 ("Add", ["a", "c"], ["d"], {}), ("Tanh", ["d"], ["y"], {})],
                {"up": some(C, 3, 4), "far": some(3, 3, 3)}),
}
FIRST = list(CASES).index("conv_stride")
SHORTEST = {"pad_reflect": 0, "pad_wrap": 1, "gather_last": 1, "last_best": 1, "bytes": 1}


def model_of(names, room=ROOM):
    """One model of several cases, whose tensors are called after them; ``room``: the extent of
    what is chosen from, a number or a name."""
    nodes, stored, outputs = [], {}, []
    for name in names:
        steps, held = CASES[name]
        shared = {"u", "x", ""}
        stored.update({f"{name}_{k}": a for k, a in held.items() if k})
        for op, inputs, made, attrs in steps:
            nodes.append(helper.make_node(
                op, [i if i in shared else f"{name}_{i}" for i in inputs],
                [f"{name}_{o}" for o in made], **attrs))
        outputs += nodes[-1].output
    before = [helper.make_node("Compress", ["x", "k"], ["c"], axis=2),
              helper.make_node("Div", ["c", "c"], ["n"]),  # what lies behind is 0 / 0
              helper.make_node("Mul", ["n", "c"], ["u"])]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        before + nodes, "axes", [info("x", TensorProto.FLOAT, [2, C, room]),
                                 info("k", TensorProto.BOOL, [room])],
        [helper.make_empty_tensor_value_info(o) for o in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in stored.items() if a is not None])
    return helper.make_model(graph, opset_imports=[
        helper.make_opsetid("", 22), helper.make_opsetid(MICROSOFT, 1)], ir_version=10)


def expect(names, folder, target="c", room=ROOM):
    """Every output as ONNX Runtime has it, for any number of elements."""
    model, fresh = model_of(names, room), np.random.default_rng()
    ours = aotc.compile(model, folder / "b", name="m", target=target).load(threads=1)
    theirs = onnxruntime.InferenceSession(model.SerializeToString())
    least = max(SHORTEST.get(n, 1) for n in names)
    for count in (ROOM, 5, 2, least):
        feeds = {"x": fresh.uniform(0.5, 2, (2, C, ROOM)).astype(F) * fresh.choice(
            np.array([-1, 1], F), (2, C, ROOM)), "k": fresh.permutation(ROOM) < count}
        got = ours.run(feeds)
        for out, w in zip(theirs.get_outputs(), theirs.run(None, feeds)):
            assert got[out.name].shape == w.shape, (out.name, count)
            np.testing.assert_allclose(got[out.name], w, rtol=2e-3, atol=2e-4,
                                       err_msg=f"{out.name} {count}")
    return ours


@pytest.mark.parametrize("target", every(("c", "x86-64-v3"), 2))
def test_an_operator_of_each_kind(tmp_path, target):
    ours = expect(list(CASES)[:FIRST], tmp_path, target)
    none = ours.run({"x": np.ones((2, C, ROOM), F), "k": np.zeros(ROOM, bool)})
    assert none["conv_y"].shape == (2, 3, 0) and none["transposed_y"].shape == (2, 3, 0)
    assert none["pad_y"].shape == (2, C + 1, 5) and (none["pad_y"] == 1.5).all()
    assert none["lstm_y"].shape == (0, 2, 2, 3) and not none["lstm_z"].any()


@pytest.mark.product
def test_room_that_is_free(tmp_path):
    expect(list(CASES)[:FIRST], tmp_path, room="n")


@pytest.mark.product
@pytest.mark.parametrize("part", range(6))
def test_variants(tmp_path, part):
    expect(list(CASES)[FIRST:][part::6], tmp_path)
