"""Elements that data counts, put back where they came from, summed by labels, and met by tensors
that must have as many."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import aotc
from aotc.errors import UnsupportedError
from aotc.frontend import read_graph, to_program
from aotc.oracle.evaluate import evaluate
from aotc.runtime.status import IndexFault, ShapeError

F, I64, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node = helper.make_node
HOW = ("none", "add", "mul", "max", "min")
STORED = {"zero": np.array([0]), "flat": np.array([-1]), "half": np.float32(0.3),
          "down": np.array(0), "far": np.array([np.iinfo(np.int64).max])}


def model_of(nodes, inputs, outputs, stored=()):
    """A model whose outputs declare no shape; x and mask, and the rows that the mask chooses."""
    rows = [node("NonZero", ["mask"], ["found"], "pick"), node("Transpose", ["found"], ["places"]),
            node("Squeeze", ["found", "zero"], ["line"]), node("Gather", ["x", "line"], ["rows"])]
    inputs = {"x": (F, ["n", 4]), "mask": (B, ["n"]), **inputs}
    graph = helper.make_graph(
        [*rows, *nodes], "updates",
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [helper.make_empty_tensor_value_info(o) for o in outputs],
        [numpy_helper.from_array(a, n) for n, a in {**STORED, **dict(stored)}.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def updating():
    """Every way to put elements back, and products and sums over as many as there are."""
    rng = np.random.default_rng(8)
    nodes = [
        node("MatMul", ["rows", "w"], ["moved"]), node("Tanh", ["moved"], ["new"]),
        *(node("ScatterND", ["x", "places", "new"], [f"nd_{how}"], reduction=how) for how in HOW),
        node("Gather", ["new", "down"], ["column"], axis=1),
        node("Gather", ["x", "down"], ["old"], axis=1),
        *(node("ScatterElements", ["old", "line", "column"], [f"el_{how}"], reduction=how)
          for how in HOW),
        # y[mask] = source, as many of the source as there are places
        node("Reshape", ["source", "flat"], ["all"]), node("Shape", ["rows"], ["dims"]),
        node("Slice", ["dims", "zero", "one"], ["count"]),
        node("Slice", ["all", "zero", "count", "zero"], ["some"]),
        node("ScatterND", ["old", "places", "some"], ["filled"]),
        node("Slice", ["all", "count", "far"], ["rest"]),
        # chosen from what was chosen, and put back there
        node("Less", ["column", "half"], ["low"]), node("NonZero", ["low"], ["inner"], "again"),
        node("Transpose", ["inner"], ["at"]), node("GatherND", ["column", "at"], ["few"]),
        node("Exp", ["few"], ["grown"]), node("ScatterND", ["column", "at", "grown"], ["put"]),
        *(node("Einsum", inputs, [f"sum_{k}"], equation=text) for k, (text, *inputs) in enumerate((
            ("ij->i", "rows"), ("ij->j", "rows"), ("ij,kj->ik", "rows", "new"),
            ("ni,nj->ij", "rows", "new"), ("...i,ij->...j", "rows", "w"), ("n,ni", "column", "new"),
            ("ij,ij->", "rows", "new")))),
        *(node("CumSum", ["rows", "down"], [f"run_{e}"], reverse=1, exclusive=e) for e in (0, 1))]
    outputs = [*(f"{kind}_{how}" for kind in ("nd", "el") for how in HOW), "filled", "rest", "put",
               *(f"sum_{k}" for k in range(7)), "run_0", "run_1"]
    return model_of(nodes, {"source": (F, ["n"])}, outputs, {
        "one": np.array([1]), "w": rng.standard_normal((4, 4)).astype(np.float32)})


def feeds_of(rng, n, share):
    mask = rng.permutation(n) < round(n * share)
    return {"x": rng.standard_normal((n, 4)).astype(np.float32), "mask": mask,
            "source": rng.standard_normal(n).astype(np.float32)}


CALLS = ((1, 1), (5, 0.6), (17, 0.5), (40, 1), (9, 0.2))


def expect(got, theirs, feeds, label):
    for out, w in zip(theirs.get_outputs(), theirs.run(None, feeds)):
        assert got[out.name].shape == w.shape, (out.name, label)
        np.testing.assert_allclose(got[out.name], w, rtol=2e-4, atol=1e-5,
                                   err_msg=f"{out.name} {label}")


@pytest.mark.parametrize("target", [
    "c", pytest.param("x86-64-v3", marks=pytest.mark.product)])
def test_updates_that_data_counts(tmp_path, target):
    model = updating()
    ours = aotc.compile(model, tmp_path / "b", name="m", target=target).load(threads=1)
    theirs, rng = onnxruntime.InferenceSession(model.SerializeToString()), np.random.default_rng()
    for n, share in CALLS:
        feeds = feeds_of(rng, n, share)
        expect(ours.run(feeds), theirs, feeds, (n, share))
    feeds = feeds_of(rng, 6, 0)  # none at all
    got = ours.run(feeds)
    for how in HOW:
        np.testing.assert_array_equal(got[f"nd_{how}"], feeds["x"])
    assert got["run_0"].shape == (0, 4) and not got["sum_3"].any()


def test_updates_that_are_looked_for():
    """The same without library kernels, in the evaluator."""
    model, n = updating(), 9
    program = to_program(read_graph(model, dims={"n": n}), library=())
    theirs = onnxruntime.InferenceSession(model.SerializeToString())
    feeds = feeds_of(np.random.default_rng(), n, 0.5)
    results = evaluate(program, feeds)
    for out, w in zip(theirs.get_outputs(), theirs.run(None, feeds)):
        there = tuple(map(slice, w.shape))
        np.testing.assert_allclose(results[out.name][there], w, rtol=2e-4, atol=1e-5,
                                   err_msg=out.name)


def meeting():
    """Rows that meet those of another node with other room, and tensors that are fed."""
    nodes = [
        node("NonZero", ["more"], ["others"], "other"), node("Add", ["found", "others"], ["sum"]),
        node("Concat", ["found", "others"], ["both"], axis=0),
        node("Gather", ["x", "down"], ["column"], axis=1),
        node("Gather", ["rows", "down"], ["firsts"], axis=1),
        node("Mul", ["firsts", "given"], ["scaled"]), node("Shape", ["firsts"], ["dims"]),
        node("Expand", ["given", "dims"], ["wide"])]
    return model_of(nodes, {"more": (B, ["m"]), "given": (F, ["k"])},
                    ["sum", "both", "scaled", "wide"])


def test_what_meets_counted_rows_has_as_many(tmp_path):
    model = meeting()
    ours = aotc.compile(model, tmp_path / "b", name="m", target="c",
                        dims={"k": (0, 50)}).load(threads=1)
    theirs, rng = onnxruntime.InferenceSession(model.SerializeToString()), np.random.default_rng()
    for n, m, chosen in ((7, 12, 3), (12, 5, 5), (1, 1, 1), (9, 9, 9)):
        feeds = {"x": rng.standard_normal((n, 4)).astype(np.float32),
                 "mask": rng.permutation(n) < chosen, "more": rng.permutation(m) < chosen}
        for k in (chosen, 1):
            fed = {**feeds, "given": rng.standard_normal(k).astype(np.float32)}
            expect(ours.run(fed), theirs, fed, (n, m, k))
    with pytest.raises(ShapeError, match="pick must give as many elements as 'given' has"):
        ours.run({**fed, "given": np.ones(8, np.float32)})
    with pytest.raises(ShapeError, match="pick and other must give equally many"):
        ours.run({**fed, "more": np.ones(4, bool)})
    got = ours.run({"x": np.ones((3, 4), np.float32), "mask": np.zeros(3, bool),
                    "more": np.zeros(2, bool), "given": np.zeros(0, np.float32)})
    assert got["scaled"].shape == (0,) and got["both"].shape == (2, 0)


def test_room_for_one_element(tmp_path):
    """A row of which there is one at most is a row, not an element that stands for all."""
    model = model_of([node("Gather", ["rows", "down"], ["firsts"], axis=1),
                      node("Mul", ["firsts", "given"], ["out"])], {"given": (F, ["k"])}, ["out"])
    ours = aotc.compile(model, tmp_path / "b", name="m", target="c",
                        bound={"pick": 1}).load(threads=1)
    feeds = {"x": np.ones((3, 4), np.float32), "mask": np.arange(3) == 1}
    assert ours.run({**feeds, "given": np.full(1, 2, np.float32)})["out"].tolist() == [2]
    with pytest.raises(ShapeError, match="pick must give as many"):
        ours.run({**feeds, "given": np.ones(2, np.float32)})


def fed_updates():
    """x[mask] = y, of which the caller feeds y."""
    return model_of([node("ScatterND", ["x", "places", "y"], ["out"])], {"y": (F, ["k", 4])},
                    ["out"])


def test_updates_that_are_fed(tmp_path):
    model = fed_updates()
    ours = aotc.compile(model, tmp_path / "b", name="m", target="c",
                        dims={"k": (0, 50)}).load(threads=1)
    rng = np.random.default_rng()
    for n, chosen in ((6, 4), (3, 3), (5, 0)):
        feeds = {"x": rng.standard_normal((n, 4)).astype(np.float32),
                 "mask": rng.permutation(n) < chosen,
                 "y": rng.standard_normal((chosen, 4)).astype(np.float32)}
        want = feeds["x"].copy()
        want[feeds["mask"]] = feeds["y"]
        np.testing.assert_array_equal(ours.run(feeds)["out"], want)
    for k in (1, 6):  # one update is none for all places
        with pytest.raises(ShapeError, match="pick must give as many elements as 'y' has"):
            ours.run({**feeds, "mask": np.ones(5, bool), "y": np.ones((k, 4), np.float32)})


def test_places_among_what_there_is(tmp_path):
    """Places in counted elements are looked for among those that there are."""
    model = model_of([node("ScatterElements", ["rows", "at", "new"], ["out"], axis=0)],
                     {"at": (I64, [1, 4]), "new": (F, [1, 4])}, ["out"])
    ours = aotc.compile(model, tmp_path / "b", name="m", target="c").load(threads=1)
    theirs, x = onnxruntime.InferenceSession(model.SerializeToString()), np.eye(6, 4, dtype="f4")
    feeds = {"x": x, "mask": np.arange(6) < 3, "new": np.ones((1, 4), np.float32)}
    for at in ([0, 1, 2, -1], [-3, 2, 0, 0]):
        fed = {**feeds, "at": np.array([at])}
        expect(ours.run(fed), theirs, fed, at)
    for at in (3, -4):
        with pytest.raises(IndexFault, match="out"):
            ours.run({**feeds, "at": np.full((1, 4), at)})


@pytest.mark.parametrize("nodes", (
    [node("ScatterElements", ["x", "more", "new"], ["y"], axis=1)],  # rows beside the axis
    [node("Unique", ["rows"], ["y"])]))
def test_what_cannot_be_followed_is_refused(tmp_path, nodes):
    before = [node("Cast", ["rows"], ["more"], to=I64), node("Neg", ["rows"], ["new"]),
              node("Shape", ["rows"], ["both"]), node("Slice", ["both", "zero", "one"], ["dims"])]
    with pytest.raises(UnsupportedError, match="needs to know how many|not followed"):
        aotc.compile(model_of([*before, *nodes], {"w": (F, [4, 4])}, ["y"], {
            "one": np.array([1]), "two": np.array([2])}), tmp_path / "b", target="c")
    assert not (tmp_path / "b").exists()
