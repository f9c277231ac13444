"""Elements that data counts, at places that are computed: looked up, sampled, cut out of images,
chosen from again, padded to a fixed number, put back; and in bodies of loops and branches."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import aotc
from aotc.errors import UnsupportedError
from aotc.ir.simplify import upper
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.runtime.status import ShapeError

F, I64, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node, info = helper.make_node, helper.make_tensor_value_info
STORED = {"a0": np.array([0]), "a1": np.array([1]), "a2": np.array([2]), "a3": np.array([3]),
          "a4": np.array([4]), "a5": np.array([5]), "i0": np.array(0), "i1": np.array(1),
          "a01": np.array([0, 1]), "flat": np.array([-1]), "zero": np.float32(0),
          "half": np.float32(0.5), "eight": np.float32(8), "iou": np.array([0.5], np.float32),
          "least": np.array([0.1], np.float32), "two": np.array(2), "yes": np.array(True)}


def model_of(nodes, inputs, outputs, stored=(), opset=18):
    graph = helper.make_graph(
        nodes, "places", [info(n, t, s) for n, (t, s) in inputs.items()],
        [helper.make_empty_tensor_value_info(o) for o in outputs],
        [numpy_helper.from_array(a, n) for n, a in {**STORED, **dict(stored)}.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def compiled(tmp_path, model, target="c", **options):
    return aotc.compile(model, tmp_path / "b", name="m", target=target, **options).load(threads=1)


def expect(ours, theirs, feeds, label=""):
    got = ours.run(feeds)
    for out, w in zip(theirs.get_outputs(), theirs.run(None, feeds)):
        assert got[out.name].shape == w.shape, (out.name, label)
        np.testing.assert_allclose(got[out.name], w, rtol=2e-4, atol=2e-5,
                                   err_msg=f"{out.name} {label}")


def found():
    """Boxes above a threshold, and all that detectors do with them."""
    pads = {"pads": np.array([2, 0, 1, 0]), "more": np.array([1, 1, 0, 2])}
    nodes = [
        node("Greater", ["score", "half"], ["high"]), node("NonZero", ["high"], ["nz"], "pick"),
        node("Squeeze", ["nz", "a0"], ["at"]), node("Gather", ["boxes", "at"], ["few"]),
        node("Gather", ["score", "at"], ["s"]),
        # image numbers as a column beside the boxes
        node("Slice", ["few", "a0", "a1", "a1"], ["column"]), node("Shape", ["column"], ["like"]),
        node("ConstantOfShape", ["like"], ["zeros"]),
        node("Concat", ["zeros", "few"], ["rois"], axis=1),
        node("Gather", ["rois", "i0"], ["which"], axis=1), node("Cast", ["which"], ["n"], to=I64),
        node("Slice", ["rois", "a1", "a5", "a1"], ["regions"]),
        node("RoiAlign", ["image", "regions", "n"], ["cut"], output_height=2, output_width=2,
             sampling_ratio=2),
        # sampled at points
        node("Div", ["few", "eight"], ["near"]), node("Slice", ["near", "a0", "a2", "a1"], ["xy"]),
        node("Unsqueeze", ["xy", "a01"], ["grid"]),
        node("GridSample", ["image", "grid"], ["sampled"], align_corners=1),
        # looked up at computed places
        node("Div", ["at", "two"], ["halved"]), node("Gather", ["table", "halved"], ["looked"]),
        node("Unsqueeze", ["halved", "a1"], ["point"]),
        node("GatherND", ["table", "point"], ["pointed"]),
        # the best few of them
        node("Shape", ["at"], ["number"]), node("Min", ["number", "a3"], ["k"]),
        node("TopK", ["s", "k"], ["best", "order"], "best"),
        node("Gather", ["at", "order"], ["those"]), node("Div", ["those", "two"], ["anchor"]),
        node("Gather", ["table", "anchor"], ["anchors"]),
        # those that overlap none better
        node("Unsqueeze", ["few", "a0"], ["one"]), node("Unsqueeze", ["s", "a01"], ["one_s"]),
        node("NonMaxSuppression", ["one", "one_s", "number", "iou"], ["kept"], "nms"),
        # other numbers of them
        node("Pad", ["few", "pads", "half"], ["framed"]), node("Pad", ["few", "more"], ["wider"]),
        node("Sub", ["a4", "number"], ["lack"]), node("Max", ["lack", "a0"], ["rest"]),
        node("Concat", ["a0", "a0", "rest", "a0"], ["to_4"], axis=0),
        node("Pad", ["few", "to_4"], ["at_least_4"]),
        node("Slice", ["few", "a0", "a3", "a0"], ["three"]), node("Shape", ["three"], ["n3"]),
        node("Slice", ["n3", "a0", "a1"], ["lead"]), node("Sub", ["a3", "lead"], ["lack3"]),
        node("Concat", ["a0", "a0", "lack3", "a0"], ["to_3"], axis=0),
        node("Pad", ["three", "to_3", "half"], ["exactly_3"]),
        node("Concat", ["lack3", "a4"], ["none_3"], axis=0),
        node("ConstantOfShape", ["none_3"], ["missing"]),
        node("Concat", ["three", "missing"], ["filled_3"], axis=0),
        # added up by labels
        node("Gather", ["label", "at"], ["l"]), node("Unsqueeze", ["l", "a1"], ["lu"]),
        node("Shape", ["few"], ["whole"]), node("Expand", ["lu", "whole"], ["le"]),
        node("ScatterElements", ["sums", "le", "few"], ["added"], axis=0, reduction="add"),
        node("Concat", ["number", "a3"], ["n_3"], axis=0), node("Expand", ["lu", "n_3"], ["l3"])]
    outputs = ["cut", "sampled", "looked", "pointed", "best", "anchors", "kept", "framed", "wider",
               "at_least_4", "exactly_3", "filled_3", "added", "l3"]
    rng = np.random.default_rng(3)
    return model_of(nodes, {"score": (F, ["b"]), "boxes": (F, ["b", 4]), "label": (I64, ["b"]),
                            "image": (F, [1, 2, 8, 8]), "table": (F, [30, 3])}, outputs,
                    {**pads, "sums": rng.standard_normal((5, 4)).astype(np.float32)}, 20)


def boxes_of(rng, n, high):
    corner = rng.random((n, 2)).astype(np.float32) * 4
    score = rng.random(n).astype(np.float32) / 2
    score[rng.permutation(n)[:high]] += 0.5
    return {"score": score, "boxes": np.hstack([corner, corner + 1 + rng.random((n, 2), "f4") * 3]),
            "label": rng.integers(0, 5, n), "image": rng.standard_normal((1, 2, 8, 8), "f4"),
            "table": rng.standard_normal((30, 3), "f4")}


@pytest.mark.parametrize("target", [
    "c", pytest.param("x86-64-v3", marks=pytest.mark.product)])
def test_what_detectors_do_with_boxes(tmp_path, target):
    model = found()
    ours = compiled(tmp_path, model, target, dims={"b": (1, 50)})
    theirs, rng = onnxruntime.InferenceSession(model.SerializeToString()), np.random.default_rng()
    for n, high in ((1, 1), (6, 3), (50, 17), (50, 50), (9, 1), (7, 0)):
        expect(ours, theirs, boxes_of(rng, n, high), (n, high))


def of_images(rounds):
    """A Loop over images: boxes that overlap none better, padded to five, and their scores."""
    padded = [node("Shape", ["at"], ["n"]), node("Sub", ["a5", "n"], ["lack"]),
              node("Concat", ["a0", "a0", "lack", "a0"], ["frame"], axis=0),
              node("Concat", ["a0", "lack"], ["line"], axis=0),
              node("Pad", ["chosen", "frame"], ["out_boxes"]),
              node("Pad", ["chosen_s", "line"], ["out_s"])]
    body = helper.make_graph(
        [node("Identity", ["going"], ["on"]), node("Gather", ["boxes", "turn"], ["mine"]),
         node("Gather", ["score", "turn"], ["mine_s"]), node("Unsqueeze", ["mine", "a0"], ["one"]),
         node("Unsqueeze", ["mine_s", "a01"], ["one_s"]),
         node("NonMaxSuppression", ["one", "one_s", "a5", "iou", "least"], ["kept"], "nms"),
         node("Slice", ["kept", "a2", "a3", "a1"], ["column"]),
         node("Squeeze", ["column", "a1"], ["at"]), node("Gather", ["mine", "at"], ["chosen"]),
         node("Gather", ["mine_s", "at"], ["chosen_s"]), *padded],
        "body", [info("turn", I64, []), info("going", B, [])],
        [info("on", B, []), info("out_boxes", F, [5, 4]), info("out_s", F, [5])])
    return model_of([node("Loop", [rounds, "yes"], ["all_boxes", "all_s"], "images", body=body)],
                    {"boxes": (F, [3, 9, 4]), "score": (F, [3, 9])}, ["all_boxes", "all_s"],
                    {"three": np.array(3), "twenty": np.array(20)})


def test_counted_elements_inside_of_loops(tmp_path):
    """What a round counts stays in it: three rounds that are unrolled, and a region's."""
    for name, rounds in (("three", 3), ("twenty", 20)):
        model = of_images(name)
        for t in model.graph.input:
            t.type.tensor_type.shape.dim[0].dim_value = rounds
        ours = compiled(tmp_path / name, model)
        theirs = onnxruntime.InferenceSession(model.SerializeToString())
        rng = np.random.default_rng()
        corner = rng.random((rounds, 9, 2), "f4") * 3
        score = rng.random((rounds, 9), "f4") * np.array([0, 1, 0.2], "f4")[
            np.arange(rounds) % 3, None]
        expect(ours, theirs, {"boxes": np.concatenate([corner, corner + 2], 2), "score": score},
               name)


def test_what_leaves_a_round_has_a_known_number(tmp_path):
    body = helper.make_graph(
        [node("Identity", ["going"], ["on"]), node("Gather", ["score", "turn"], ["mine"]),
         node("NonZero", ["mine"], ["places"])],
        "body", [info("turn", I64, []), info("going", B, [])],
        [info("on", B, []), info("places", I64, [1, None])])
    model = model_of([node("Loop", ["i1", "yes"], ["y"], "rounds", body=body)],
                     {"score": (F, [3, 9])}, ["y"])
    with pytest.raises(UnsupportedError, match="'places' that has as many elements.*; pad"):
        aotc.compile(model, tmp_path / "b", target="c")


def in_branches():
    """Of no boxes none, else those that overlap none better, as exporters write batched
    suppression; and branches of as many elements each."""
    none = helper.make_graph([node("Identity", ["nothing"], ["no_places"])], "none", [],
                             [info("no_places", I64, [None])])
    some = helper.make_graph(
        [node("ReduceMax", ["few"], ["far"], keepdims=0), node("Mul", ["kinds", "far"], ["by"]),
         node("Unsqueeze", ["by", "a1"], ["by_box"]), node("Add", ["few", "by_box"], ["apart"]),
         node("Unsqueeze", ["apart", "a0"], ["one"]), node("Unsqueeze", ["s", "a01"], ["one_s"]),
         node("NonMaxSuppression", ["one", "one_s", "most", "iou"], ["kept"], "nms"),
         node("Gather", ["kept", "two"], ["places"], axis=1)],
        "some", [], [info("places", I64, [None])])
    twice, once = (helper.make_graph([node(op, ["s"], [op])], op, [], [info(op, F, [None])])
                   for op in ("Neg", "Exp"))
    nodes = [
        node("Greater", ["score", "half"], ["high"]), node("NonZero", ["high"], ["nz"], "pick"),
        node("Squeeze", ["nz", "a0"], ["at"]), node("Gather", ["boxes", "at"], ["few"]),
        node("Gather", ["score", "at"], ["s"]), node("Gather", ["label", "at"], ["l"]),
        node("Cast", ["l"], ["kinds"], to=F), node("Size", ["few"], ["size"]),
        node("Equal", ["size", "i0"], ["empty"]),
        node("If", ["empty"], ["keep"], "batched", then_branch=none, else_branch=some),
        node("Slice", ["keep", "a0", "a3", "a0"], ["first"]),
        node("Gather", ["few", "first"], ["chosen"]), node("Gather", ["s", "first"], ["scores"]),
        node("If", ["empty"], ["either"], then_branch=twice, else_branch=once)]
    return model_of(nodes, {"score": (F, ["b"]), "boxes": (F, ["b", 4]), "label": (I64, ["b"])},
                    ["keep", "chosen", "scores", "either"],
                    {"nothing": np.zeros(0, np.int64), "most": np.array([100])})


def test_branches_that_give_other_numbers_of_elements(tmp_path):
    model = in_branches()
    ours = compiled(tmp_path, model, dims={"b": (1, 40)})
    theirs, rng = onnxruntime.InferenceSession(model.SerializeToString()), np.random.default_rng()
    for n, high in ((1, 1), (5, 2), (40, 40), (23, 9), (4, 0)):
        feeds = boxes_of(rng, n, high)
        expect(ours, theirs, {k: feeds[k] for k in ("score", "boxes", "label")}, (n, high))


def by_data():
    """Extents that data says: the largest label, a mask's sum, the place of a largest element."""
    nodes = [
        node("ReduceMax", ["label"], ["last"], keepdims=0), node("Add", ["last", "i1"], ["groups"]),
        node("Unsqueeze", ["groups", "a0"], ["g"]), node("Concat", ["g", "a4"], ["sized"], axis=0),
        node("ConstantOfShape", ["sized"], ["none"], "pool"),
        node("Unsqueeze", ["label", "a1"], ["lu"]), node("Shape", ["x"], ["whole"]),
        node("Expand", ["lu", "whole"], ["le"]),
        node("ScatterElements", ["none", "le", "x"], ["pooled"], axis=0, reduction="add"),
        # x[mask] = row, and as many of another tensor as the mask says
        node("NonZero", ["mask"], ["nz"]), node("Transpose", ["nz"], ["places"]),
        node("Cast", ["mask"], ["ones"], to=I64), node("ReduceSum", ["ones"], ["n"], keepdims=0),
        node("Reshape", ["n", "flat"], ["n1"]), node("Concat", ["n1", "a4"], ["up"], axis=0),
        node("Expand", ["row", "up"], ["rows"]),
        node("ScatterND", ["x", "places", "rows"], ["put"]),
        node("Slice", ["x", "a0", "n1", "a0"], ["some"]),
        node("ScatterND", ["x", "places", "some"], ["moved"]),
        node("Range", ["i0", "n", "i1"], ["steps"]), node("Neg", ["steps"], ["back"]),
        # cut at places of two axes that data says
        node("ArgMax", ["x"], ["best"], axis=1, keepdims=0),
        node("Gather", ["best", "a0"], ["end"]), node("Concat", ["n1", "end"], ["ends"], axis=0),
        node("Slice", ["x", "zeros", "ends"], ["corner"])]
    return model_of(nodes, {"x": (F, ["n", 4]), "label": (I64, ["n"]), "mask": (B, ["n"])},
                    ["pooled", "put", "moved", "back", "corner"],
                    {"row": np.arange(4, dtype=np.float32), "zeros": np.array([0, 0])})


def test_extents_that_data_says(tmp_path):
    model = by_data()
    ours = compiled(tmp_path, model, dims={"n": (1, 60)})
    theirs, rng = onnxruntime.InferenceSession(model.SerializeToString()), np.random.default_rng()
    for n, share, groups in ((1, 1, 1), (9, 0.5, 4), (60, 0.3, 60), (7, 0, 2), (33, 1, 1)):
        mask = rng.permutation(n) < n * share
        feeds = {"x": rng.standard_normal((n, 4), "f4"), "label": rng.integers(0, groups, n),
                 "mask": mask}
        expect(ours, theirs, feeds, (n, share))
    feeds["label"] = np.full(33, 59)  # there is room for the largest extent of an input
    with pytest.raises(ShapeError, match="pool.*at most the .* elements.*--bound"):
        ours.run(feeds)
    ours = compiled(tmp_path / "said", model, dims={"n": (1, 60)}, bound={"pool": 80})
    expect(ours, theirs, feeds, "bound")


def padded_sequence(rows, total):
    """Rows of lengths that data says, one behind the other in a line, padded to the longest."""
    any_of = [None, None]
    body = helper.make_graph(
        [node("Identity", ["going"], ["on"]), node("Gather", ["lengths", "turn"], ["n"]),
         node("Add", ["start", "n"], ["end"]), node("Unsqueeze", ["start", "a0"], ["su"]),
         node("Unsqueeze", ["end", "a0"], ["eu"]), node("Slice", ["x", "su", "eu", "a0"], ["row"]),
         node("Range", ["i0", "n", "i1"], ["steps"]),
         node("Unsqueeze", ["steps", "a1"], ["column"]),
         node("Unsqueeze", ["turn", "a0"], ["tu"]), node("Shape", ["column"], ["like"]),
         node("Expand", ["tu", "like"], ["rows"]),
         node("Concat", ["rows", "column"], ["places"], axis=1),
         node("ScatterND", ["table", "places", "row"], ["filled"])],
        "body", [info("turn", I64, []), info("going", B, []), info("table", F, any_of),
                 info("start", I64, [])],
        [info("on", B, []), info("filled", F, any_of), info("end", I64, [])])
    nodes = [
        node("ReduceMax", ["lengths"], ["longest"], keepdims=0), node("Shape", ["lengths"], ["b"]),
        node("Squeeze", ["b", "a0"], ["rounds"]), node("Unsqueeze", ["longest", "a0"], ["w"]),
        node("Concat", ["b", "w"], ["size"], axis=0), node("ConstantOfShape", ["size"], ["none"]),
        node("Loop", ["rounds", "", "none", "i0"], ["padded", "used"], "pad", body=body),
        node("ReduceSum", ["padded", "a1"], ["sums"], keepdims=0)]
    return model_of(nodes, {"x": (F, [total]), "lengths": (I64, [rows])},
                    ["padded", "used", "sums"])


@pytest.mark.parametrize("free", (False, True))
def test_rows_of_a_loop_that_are_as_long_as_the_longest(tmp_path, free):
    model = padded_sequence("b", "t") if free else padded_sequence(4, 14)
    ours = compiled(tmp_path, model)
    theirs, rng = onnxruntime.InferenceSession(model.SerializeToString()), np.random.default_rng()
    for lengths in ((3, 0, 7, 4), (1, 1, 1, 11), *(((2,), (90, 3, 7)) if free else ())):
        expect(ours, theirs, {"x": rng.standard_normal(14 if not free else sum(lengths), "f4"),
                              "lengths": np.array(lengths)}, lengths)
    with pytest.raises(ShapeError, match="ConstantOfShape.*at most the .* elements.*--bound"):
        ours.run({"x": np.ones(14, np.float32), "lengths": np.array([15, 1, 1, 1])})


def sized_images():
    """Images of sizes that are fed: resized, cut first to what the sizes say, cropped."""
    linear = {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}
    nodes = [
        node("Concat", ["lead", "size"], ["to"], axis=0),
        node("Resize", ["x", "", "", "to"], ["linear"], "grow", **linear),
        node("Resize", ["x", "", "", "to"], ["nearest"], mode="nearest"),
        node("Resize", ["x", "", "", "to"], ["cubic"], mode="cubic",
             coordinate_transformation_mode="align_corners"),
        # cut to the share of the longer side, as segmenters do that were given padded images
        node("ReduceMax", ["size"], ["longest"], keepdims=0), node("Cast", ["size"], ["s"], to=F),
        node("Cast", ["longest"], ["m"], to=F), node("Div", ["eight", "m"], ["share"]),
        node("Mul", ["s", "share"], ["parts"]), node("Round", ["parts"], ["whole"]),
        node("Cast", ["whole"], ["ends"], to=I64),
        node("Slice", ["x", "zeros", "ends", "image"], ["cut"]),
        node("Shape", ["cut"], ["dims"]), node("Slice", ["dims", "a0", "a2"], ["first"]),
        node("Concat", ["first", "size"], ["again"], axis=0),
        node("Resize", ["cut", "", "", "again"], ["back"], "back", **linear),
        node("Relu", ["back"], ["mask"]),
        node("CenterCropPad", ["x", "size"], ["middle"], axes=[2, 3]),
        node("Gather", ["size", "i0"], ["depth"]), node("OneHot", ["label", "depth", "values"],
                                                        ["hot"])]
    return model_of(nodes, {"x": (F, [1, 2, 8, 8]), "size": (I64, [2]), "label": (I64, [3])},
                    ["linear", "nearest", "cubic", "mask", "middle", "hot"],
                    {"lead": np.array([1, 2]), "zeros": np.array([0, 0]),
                     "image": np.array([2, 3]), "values": np.array([0, 2], np.float32)})


def test_sizes_that_are_fed(tmp_path):
    model = sized_images()
    theirs, rng = onnxruntime.InferenceSession(model.SerializeToString()), np.random.default_rng()
    ours = compiled(tmp_path, model)
    larger = compiled(tmp_path / "said", model, bound=dict.fromkeys(
        ("grow", "nearest", "cubic", "back", "middle", "hot"), 40))
    for size in ((8, 8), (5, 7), (1, 8), (3, 2), (17, 40)):
        feeds = {"x": rng.standard_normal((1, 2, 8, 8), "f4"), "size": np.array(size),
                 "label": np.array([0, size[0] - 1, -1])}
        if max(size) <= 8:
            expect(ours, theirs, feeds, size)
        expect(larger, theirs, feeds, size)
    with pytest.raises(ShapeError, match="grow.*at most the 8 elements.*--bound 'grow'"):
        ours.run(feeds)


def test_numbers_that_are_declared(tmp_path):
    """An output of declared extents has those, whatever follows the elements that data counts."""
    model = model_of([node("NonZero", ["mask"], ["nz"], "pick"),
                      node("Squeeze", ["nz", "a0"], ["at"]), node("Gather", ["x", "at"], ["y"])],
                     {"x": (F, [5, 2]), "mask": (B, [5])}, ["y"])
    model.graph.output[0].CopyFrom(info("y", F, [3, 2]))
    ours = compiled(tmp_path, model)
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    got = ours.run({"x": x, "mask": np.array([0, 1, 1, 0, 1], bool)})
    assert list(got) == ["y"] and got["y"].tolist() == [[2, 3], [4, 5], [8, 9]]
    with pytest.raises(ShapeError, match="pick.*the 3 elements that 'y' is declared to have"):
        ours.run({"x": x, "mask": np.ones(5, bool)})


def test_room_is_what_arithmetic_proves():
    program = run_pipeline(Options(found(), target="c", dims={"b": (1, 50)},
                                   stop_after="program")).program
    rooms = {program.buffers[o].onnx: upper(program.shape(o)[0]) for o in program.outputs
             if program.shape(o)}
    assert rooms["best"] == rooms["anchors"] == rooms["exactly_3"] == rooms["filled_3"] == 3
    assert rooms["kept"] == 50 and rooms["framed"] == 53
    counts = {t for o in program.outputs for t, _ in program.buffers[o].counts}
    assert not {"exactly_3", "filled_3", "added"} & counts and "best" in counts
