"""Bounds for what data decides the number of: room for so many, a fault beyond, the number told."""

import numpy as np
import onnxruntime
import pytest
from harness import every
from onnx import TensorProto, helper, numpy_helper

import aotc
from aotc.cli import main
from aotc.errors import ModelError, UnsupportedError
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.runtime.status import IndexFault, ShapeError

F, I64 = TensorProto.FLOAT, TensorProto.INT64
node = helper.make_node


def doubled_until():
    """Body of a Loop: x doubles while it is below ``limit``; every round's x is kept."""
    info = helper.make_tensor_value_info
    return helper.make_graph(
        [node("Add", ["before", "before"], ["after"]),
         node("ReduceMax", ["after"], ["most"], keepdims=0),
         node("Less", ["most", "limit"], ["on"]), node("Identity", ["after"], ["made"])],
        "body", [info("turn", I64, []), info("going", TensorProto.BOOL, []),
                 info("before", F, [3])],
        [info("on", TensorProto.BOOL, []), info("after", F, [3]), info("made", F, [3])])


def model_of(nodes, inputs, outputs, stored=()):
    """A model whose outputs declare no shape."""
    graph = helper.make_graph(
        nodes, "bounds", [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [helper.make_empty_tensor_value_info(o) for o in outputs],
        [numpy_helper.from_array(a, n) for n, a in dict(stored).items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def loop():
    return model_of([node("Loop", ["rounds", "", "x"], ["last", "all"], "doubling",
                          body=doubled_until()), node("Neg", ["all"], ["negated"])],
                    {"rounds": (I64, []), "x": (F, [3])}, ["last", "negated"],
                    {"limit": np.float32(100)})


def counting():
    """Three models in one: places, a range, the largest."""
    return model_of(
        [node("NonZero", ["x"], ["places"], "keep"), node("Transpose", ["places"], ["turned"]),
         node("Range", ["first", "end", "by"], ["steps"], "walk"),
         node("TopK", ["x", "k"], ["most", "where"], "best", axis=0)],
        {"x": (F, ["n"]), "first": (I64, []), "end": (I64, []), "k": (I64, [1])},
        ["turned", "steps", "most", "where"], {"by": np.int64(3)})


BOUNDS = {"keep": 6, "steps": 5}


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    model = counting()
    bundle = aotc.compile(model, tmp_path_factory.mktemp("b") / "b", name="m", target="c",
                          bound=BOUNDS)
    return bundle, bundle.load(threads=1), onnxruntime.InferenceSession(model.SerializeToString())


def feeds_of(x, end=12, k=2):
    return {"x": np.asarray(x, np.float32), "first": np.array(0), "end": np.array(end),
            "k": np.array([k])}


@pytest.mark.parametrize("feeds", [
    feeds_of([0, 3, 0, 5, 1, 0, 0, 2]), feeds_of([0], 0, 0), feeds_of([7], 15, 1),
    feeds_of(np.arange(7), -4, 7), feeds_of([0] * 40 + [1] * 6, 14, 40)])
def test_what_there_is_is_returned(counted, feeds):
    _, ours, theirs = counted
    got, want = ours.run(feeds), theirs.run(None, feeds)
    for name, w in zip(("turned", "steps", "most", "where"), want):
        assert got[name].dtype == w.dtype and got[name].shape == w.shape
        if name != "where":  # equal elements may stand in another order
            np.testing.assert_array_equal(got[name], w, err_msg=name)


@pytest.mark.parametrize("feeds, text", [
    (feeds_of([1] * 7), r"keep.*at most the min.6, n. elements"),
    (feeds_of([0], 16), "walk.*at most the 5 elements"),
    (feeds_of([0, 1, 2], k=4), "best.*at most"), (feeds_of([0, 1, 2], k=-1), "best.*at most")])
def test_more_than_the_bound_is_a_fault(counted, feeds, text):
    _, ours, _ = counted
    with pytest.raises(ShapeError, match=text):
        ours.run(feeds)
    got = ours.run(feeds_of([0, 1]))
    assert got["turned"].tolist() == [[1]]


def test_memory_is_for_the_bound():
    """Outputs have the room that was said, whatever the extents of inputs."""
    small, large = (run_pipeline(Options(
        counting(), target="c", bound={**BOUNDS, "keep": most}, stop_after="program")).program
        for most in (6, 1000))
    assert [str(d) for d in small.shape("turned")] == ["min(6, n)", "1"]
    assert [str(d) for d in large.shape("turned")] == ["min(1000, n)", "1"]
    assert [str(d) for d in small.shape("steps")] == ["5"]


@pytest.mark.parametrize("target", ["c", "x86-64-v3"])
def test_a_loop_of_a_run_time_number_of_rounds(tmp_path, target):
    model = loop()
    ours = aotc.compile(model, tmp_path / "b", name="m", target=target,
                        bound={"doubling": 6}).load(threads=1)
    theirs = onnxruntime.InferenceSession(model.SerializeToString())
    for rounds, x in ((0, [1, 2, 3]), (3, [1, 2, 3]), (50, [1, 2, 30]), (6, [0, 1, 2]),
                      (1, [99, 0, 0])):
        feeds = {"rounds": np.array(rounds), "x": np.array(x, np.float32)}
        got, want = ours.run(feeds), theirs.run(None, feeds)
        for name, w in zip(("last", "negated"), want):
            np.testing.assert_array_equal(got[name], w, err_msg=f"{rounds} {name}")
    with pytest.raises(ShapeError, match="doubling.*at most the 6"):
        ours.run({"rounds": np.array(7), "x": np.zeros(3, np.float32)})


@pytest.mark.parametrize("model, name", [(loop, "doubling"), (counting, "walk")])
def test_a_bound_is_asked_for_by_name(tmp_path, model, name):
    with pytest.raises(UnsupportedError, match=f"--bound '{name}'=1000"):
        aotc.compile(model(), tmp_path / "b", target="c")
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("bound, text", [
    ({"nothing": 4}, "no node is called so.*keep, Transpose_turned, walk, best"),
    ({"walk": -1}, "no number of elements"), ({"walk": True}, "no number"),
    ({"walk": 4, "turned": 3}, "'turned': a bound is for a node of which data decides")])
def test_bounds_that_are_none(tmp_path, bound, text):
    with pytest.raises(ModelError, match=text):
        aotc.compile(counting(), tmp_path / "b", target="c", bound=bound)
    assert not (tmp_path / "b").exists()


def test_on_the_command_line(tmp_path, capsys):
    path = tmp_path / "m.onnx"
    path.write_bytes(counting().SerializeToString())
    assert main(["check", str(path), "--target", "c"]) == 1
    assert "--bound 'walk'=1000" in capsys.readouterr().out
    assert main(["compile", str(path), "-o", str(tmp_path / "b"), "--target", "c", "--bound",
                 "walk=7"]) == 0
    with pytest.raises(SystemExit, match="2"):
        main(["compile", str(path), "-o", str(tmp_path / "c"), "--bound", "walk"])


def folding():
    """What follows elements that data chooses: rows, and folds over as many as there are."""
    rng = np.random.default_rng(5)
    nodes = [
        node("Greater", ["s", "zero"], ["flags"]),
        node("Compress", ["x", "flags"], ["rows"], "pick", axis=0),
        node("MatMul", ["rows", "w"], ["product"]), node("Add", ["product", "bias"], ["moved"]),
        node("Relu", ["moved"], ["made"]), node("Softmax", ["made"], ["shares"], axis=-1),
        node("Softmax", ["made"], ["down"], axis=0), node("Transpose", ["made"], ["turned"]),
        node("MatMul", ["turned", "made"], ["gram"]),
        *(node(f"Reduce{kind}", ["moved", "first"], [kind], keepdims=0)
          for kind in ("Sum", "Mean", "Max", "Min", "L2", "LogSumExp")),
        # a sum that is nearly 0 has few exact digits, and so has a product of such
        node("Add", ["made", "one"], ["grown"]),
        node("ReduceProd", ["grown", "first"], ["Prod"], keepdims=0),
        node("ReduceMean", ["moved"], ["all"], keepdims=1),
        node("ReduceMax", ["moved", "second"], ["each"], keepdims=0),
        node("ArgMax", ["moved"], ["best"], axis=0),
        node("Sub", ["moved", "Mean"], ["centred"]),
        node("Mul", ["centred", "centred"], ["square"]),
        node("ReduceMean", ["square", "first"], ["variance"])]
    outputs = ["shares", "down", "gram", "Sum", "Mean", "Max", "Min", "Prod", "L2", "LogSumExp",
               "all", "each", "best", "variance"]
    return model_of(nodes, {"x": (F, ["n", 4]), "s": (F, ["n"])}, outputs, {
        "zero": np.float32(0), "one": np.float32(1),
        "w": rng.standard_normal((4, 5)).astype(np.float32),
        "bias": rng.standard_normal(5).astype(np.float32), "first": np.array([0]),
        "second": np.array([1])})


@pytest.mark.parametrize("target", every(["c", "x86-64-v3"], 2))
def test_folds_see_what_there_is(tmp_path, target):
    model = folding()
    ours = aotc.compile(model, tmp_path / "b", name="m", target=target,
                        bound={"pick": 40}).load(threads=1)
    theirs, rng = onnxruntime.InferenceSession(model.SerializeToString()), np.random.default_rng()
    for n, chosen in ((1, 1), (7, 3), (61, 40), (40, 40), (33, 17)):
        s = np.zeros(n, np.float32)
        s[rng.permutation(n)[:chosen]] = 1
        feeds = {"x": rng.standard_normal((n, 4)).astype(np.float32), "s": s}
        got = ours.run(feeds)
        for out, w in zip(theirs.get_outputs(), theirs.run(None, feeds)):
            np.testing.assert_allclose(got[out.name], w, rtol=2e-4, atol=1e-5,
                                       err_msg=f"{out.name} {n} {chosen}")
    with pytest.raises(ShapeError, match="pick.*at most the min.40"):
        ours.run({"x": np.zeros((41, 4), np.float32), "s": np.ones(41, np.float32)})
    none = ours.run({"x": np.ones((5, 4), np.float32), "s": np.zeros(5, np.float32)})
    assert none["shares"].shape == (0, 5) and np.isnan(none["Mean"]).all()
    assert not none["Sum"].any() and not none["gram"].any() and (none["Max"] == -np.inf).all()


def images():
    """What follows images and boxes that data chooses, one by one along the first axis."""
    rng = np.random.default_rng(6)
    shapes = {"k": (3, 2, 3, 3), "back": (3, 2, 2, 2), "s": (2,), "b": (2,), "m": (2,), "v": (2,),
              "w": (48, 5), "c": (5,), "g": (5,), "whole": (1, 2, 8, 8)}
    stored = {n: np.abs(rng.standard_normal(size)).astype(np.float32) for n, size in shapes.items()}
    nodes = [
        node("Greater", ["score", "zero"], ["flags"]),
        node("NonZero", ["flags"], ["found"], "pick"),
        *(node("Gather", ["found", n], [to], axis=0) for n, to in (
            ("first", "numbers"), ("second", "at"))),  # of images, of their boxes
        *(node("Gather", [of, "at"], [to]) for of, to in (("x", "few"), ("boxes", "frames"))),
        node("RoiAlign", ["whole", "frames", "numbers"], ["cut"], output_height=3, output_width=2,
             sampling_ratio=2),
        node("Conv", ["few", "k"], ["conv"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("ConvTranspose", ["conv", "back"], ["wider"]),
        node("BatchNormalization", ["few", "s", "b", "m", "v"], ["batch"]),
        node("InstanceNormalization", ["few", "s", "b"], ["each"]),
        node("MaxPool", ["few"], ["most"], kernel_shape=[3, 3]),
        node("AveragePool", ["few"], ["mean"], kernel_shape=[2, 2]),
        node("GlobalAveragePool", ["few"], ["all"]), node("Flatten", ["conv"], ["flat"]),
        node("Gemm", ["flat", "w", "c"], ["gemm"]),
        node("LayerNormalization", ["gemm", "g"], ["norm"])]
    outputs = ["cut", "conv", "wider", "batch", "each", "most", "mean", "all", "gemm", "norm"]
    inputs = {"x": (F, ["n", 2, 8, 8]), "score": (F, [1, "n"]), "boxes": (F, ["n", 4])}
    return model_of(nodes, inputs, outputs, {"zero": np.float32(0), "first": np.array(0),
                                             "second": np.array(1), **stored})


@pytest.mark.parametrize("target", every(["x86-64-v3", "c"], 2))
def test_layers_of_what_there_is(tmp_path, target):
    model = images()
    ours = aotc.compile(model, tmp_path / "b", name="m", target=target,
                        bound={"pick": 9}).load(threads=1)
    theirs, rng = onnxruntime.InferenceSession(model.SerializeToString()), np.random.default_rng()
    for n, chosen in ((1, 1), (5, 2), (9, 9), (13, 7)):
        score = np.zeros((1, n), np.float32)
        score[0, rng.permutation(n)[:chosen]] = 1
        corner = rng.random((n, 2)).astype(np.float32) * 3
        feeds = {"x": rng.standard_normal((n, 2, 8, 8)).astype(np.float32), "score": score,
                 "boxes": np.hstack([corner, corner + 3])}
        got = ours.run(feeds)
        for out, w in zip(theirs.get_outputs(), theirs.run(None, feeds)):
            np.testing.assert_allclose(got[out.name], w, rtol=2e-4, atol=2e-4,
                                       err_msg=f"{out.name} {n} {chosen}")


def arithmetic():
    """What is done along axes that data counts, and with their numbers."""
    stored = {"half": np.float32(0.5), "i0": np.array(0), "i1": np.array(1),
              "last": np.array(-1), "a0": np.array([0]), "a1": np.array([1]), "far": np.array(
                  [np.iinfo(np.int64).max]), "three": np.array([3]), "few": np.array([-3]),
              "flat": np.array([-1]), "pair": np.array([-1, 2]), "more": np.array([[7, 8]]),
              "twice": np.array([2, 1]), "sizes": np.array([2, 3]), "four": np.array([4])}
    nodes = [
        node("NonZero", ["x"], ["p"], "keep"), node("NonZero", ["z"], ["q"], "other"),
        node("Shape", ["p"], ["shape"]), node("Size", ["p"], ["size"]),
        node("Gather", ["shape", "i1"], ["number"]), node("Cast", ["number"], ["real"], to=F),
        node("Mul", ["real", "half"], ["halved"]),
        node("Transpose", ["p"], ["turned"]), node("Reshape", ["turned", "flat"], ["line"]),
        node("Gather", ["w", "line"], ["rows"]), node("Shape", ["rows"], ["dims"]),
        node("Slice", ["dims", "a0", "a1"], ["lead"]),
        node("Concat", ["lead", "sizes"], ["to"], axis=0),
        node("Reshape", ["rows", "to"], ["blocks"]), node("Reshape", ["rows", "pair"], ["pairs"]),
        node("Concat", ["p", "q"], ["both"], axis=1), node("Cast", ["both"], ["many"], to=F),
        node("ReduceMean", ["many", "a1"], ["mean"]), node("Softmax", ["many"], ["soft"], axis=1),
        node("Concat", ["more", "p", "more"], ["framed"], axis=1),
        *(node("Slice", ["p", *ends, "a1"], [out]) for out, *ends in (
            ("head", "a0", "three"), ("tail", "few", "far"), ("rest", "a1", "far"))),
        node("Gather", ["p", "last"], ["end"], axis=1), node("Tile", ["p", "twice"], ["tiled"]),
        node("CumSum", ["p", "i1"], ["sums"]), node("Expand", ["half", "shape"], ["halves"]),
        node("Range", ["i0", "number", "i1"], ["steps"]), node("Add", ["p", "steps"], ["stepped"]),
        node("Gather", ["x", "line"], ["chosen"]), node("Less", ["chosen", "half"], ["low"]),
        node("Compress", ["chosen", "low"], ["lower"], "second", axis=0),
        node("NonZero", ["low"], ["where"], "third"), node("Gather", ["rows", "where"], ["again"]),
        node("Min", ["dims", "four"], ["least"]), node("Slice", ["least", "a0", "a1"], ["k"]),
        node("TopK", ["chosen", "k"], ["best", "at"], "best"),
        node("Transpose", ["rows"], ["columns"]), node("MatMul", ["rows", "columns"], ["scores"]),
        node("Softmax", ["scores"], ["shares"], axis=-1),
        node("MatMul", ["shares", "rows"], ["mix"]),
        node("Cast", ["p"], ["pf"], to=F), node("Cast", ["q"], ["qf"], to=F),
        node("Transpose", ["pf"], ["pt"]), node("MatMul", ["pt", "qf"], ["outer"])]
    outputs = ["shape", "size", "halved", "line", "blocks", "pairs", "both", "mean", "soft",
               "framed", "head", "tail", "rest", "end", "tiled", "sums", "halves", "stepped",
               "lower", "again", "best", "scores", "mix", "outer"]
    return model_of(nodes, {"x": (F, ["n"]), "z": (F, ["m"]), "w": (F, ["n", 6])}, outputs, stored)


@pytest.mark.parametrize("target", [
    "c", pytest.param("x86-64-v3", marks=pytest.mark.product)])
def test_arithmetic_along_counted_axes(tmp_path, target):
    model = arithmetic()
    ours = aotc.compile(model, tmp_path / "b", name="m", target=target).load(threads=1)
    theirs, rng = onnxruntime.InferenceSession(model.SerializeToString()), np.random.default_rng()
    for n, m, share in ((1, 1, 1), (5, 3, 0.6), (17, 40, 0.5), (12, 1, 0.9), (9, 9, 1)):
        feeds = {"x": rng.standard_normal(n), "z": rng.standard_normal(m) * (rng.random(m) < share),
                 "w": rng.standard_normal((n, 6))}
        feeds["x"][1:] *= rng.random(n - 1) < share  # one at least
        feeds = {k: a.astype(np.float32) for k, a in feeds.items()}
        got = ours.run(feeds)
        for out, w in zip(theirs.get_outputs(), theirs.run(None, feeds)):
            np.testing.assert_allclose(got[out.name], w, rtol=2e-4, atol=1e-4,
                                       err_msg=f"{out.name} {n} {m}")
    with pytest.raises(IndexFault, match="end"):  # the last of none
        ours.run({k: np.zeros_like(a) for k, a in feeds.items()})


def test_numbers_that_must_agree(tmp_path):
    """Two masks whose elements meet: their numbers are compared at run time."""
    nodes = [node("NonZero", ["x"], ["p"], "one"), node("NonZero", ["z"], ["q"], "two"),
             node("Add", ["p", "q"], ["y"]), node("Squeeze", ["p", "first"], ["line"]),
             node("Gather", ["x", "line"], ["there"]), node("TopK", ["there", "k"], ["best", "at"])]
    model = model_of(nodes, {"x": (F, ["n"]), "z": (F, ["n"])}, ["y", "best"],
                     {"first": np.array([0]), "k": np.array([2])})
    ours = aotc.compile(model, tmp_path / "b", name="m", target="c").load(threads=1)
    x = np.array([0, 3, 0, 1, 2], np.float32)
    got = ours.run({"x": x, "z": x[::-1].copy()})
    assert got["y"].tolist() == [[1, 4, 7]] and got["best"].tolist() == [3, 2]
    with pytest.raises(ShapeError, match="one and two must give equally many"):
        ours.run({"x": x, "z": np.ones(5, np.float32)})
    with pytest.raises(ShapeError, match="TopK takes no more elements than there are"):
        ours.run({"x": x // 3, "z": x // 3})


def test_who_needs_the_number_is_told(tmp_path):
    """A bound does not help where an operator wants to know it."""
    model = model_of([node("NonZero", ["x"], ["places"], "keep"),
                      node("Unique", ["places"], ["y"])], {"x": (F, ["n"])}, ["y"])
    for bound in ({}, {"keep": 6}):
        with pytest.raises(UnsupportedError, match=r"'Unique_y' .Unique.*know how many .*'keep'"):
            aotc.compile(model, tmp_path / "b", target="c", bound=bound)
    assert not (tmp_path / "b").exists()
