"""Outputs of which data says how many elements there are: room for all, cut by the count."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import aotc
from aotc.errors import UnsupportedError
from aotc.runtime.status import IndexFault

F = np.float32
CONSTS = {"most": np.array(3), "overlap": np.array(0.5, F), "least": np.array(0.2, F),
          "two": np.array(2), "first": np.array([0]), "one": np.array(1)}
NODES = [
    ("NonZero", ["x"], ["places"], {}), ("Transpose", ["places"], ["turned"], dict(perm=[1, 0])),
    ("GatherND", ["x", "turned"], ["picked"], {}), ("Neg", ["picked"], ["negated"], {}),
    ("Compress", ["x", "flags"], ["columns"], dict(axis=1)),
    ("Unique", ["x"], ["values", "firsts", "inverse", "times"], {}),
    ("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["chosen"], {}),
    ("Gather", ["chosen", "two"], ["at"], dict(axis=1)),
    ("Squeeze", ["boxes", "first"], ["all"], {}), ("Gather", ["all", "at"], ["best"], {}),
    ("Cast", ["chosen"], ["short"], dict(to=TensorProto.INT32))]
OUTPUTS = ["turned", "negated", "columns", "values", "firsts", "inverse", "times", "best", "short"]


def model_of(nodes, outputs, inputs):
    infos = [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()]
    outs = [helper.make_empty_tensor_value_info(n) for n in outputs]
    graph = helper.make_graph([helper.make_node(op, i, o, **a) for op, i, o, a in nodes], "counted",
                              infos, outs, [numpy_helper.from_array(a, n)
                                            for n, a in CONSTS.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


IMAGE = {"x": (TensorProto.FLOAT, ["h", "w"]), "flags": (TensorProto.BOOL, ["w"]),
         "boxes": (TensorProto.FLOAT, [1, "n", 4]), "scores": (TensorProto.FLOAT, [1, 2, "n"])}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    model = model_of(NODES, OUTPUTS, IMAGE)
    bundle = aotc.compile(model, tmp_path_factory.mktemp("counted") / "b", name="m", target="c")
    return bundle.load(threads=1), onnxruntime.InferenceSession(model.SerializeToString())


def feeds_of(rng, size, share):
    x = rng.integers(1, 5, size).astype(F)
    corners = rng.random((1, 35, 4)).astype(F)
    corners[..., 2:] = corners[..., :2] + F(0.3)
    return {"x": np.where(rng.random(size) < share, x, 0).astype(F),
            "flags": rng.random(size[1]) < share, "boxes": corners,
            "scores": (rng.random((1, 2, 35)) * share).astype(F)}


@pytest.mark.parametrize("share", (0.0, 0.4, 1.0))
@pytest.mark.parametrize("size", ((3, 5), (1, 1), (7, 40)), ids=lambda s: f"{s[0]}x{s[1]}")
def test_outputs_have_the_elements_that_there_are(compiled, size, share):
    feeds = feeds_of(np.random.default_rng(), size, share)
    got, want = compiled[0].run(feeds), compiled[1].run(None, feeds)
    assert list(got) == OUTPUTS
    for name, w in zip(OUTPUTS, want):
        assert got[name].dtype == w.dtype, name
        np.testing.assert_array_equal(got[name], w, err_msg=name)


def test_a_bound_call_has_the_room_and_the_count(compiled):
    feeds = feeds_of(np.random.default_rng(0), (3, 5), 0.4)
    found, picked = compiled[0].bind(feeds)(), np.argwhere(feeds["x"])
    assert found["turned"].shape == (15, 2) and found["turned_count"] == len(picked)
    np.testing.assert_array_equal(found["turned"][:len(picked)], picked)
    assert not found["turned"][len(picked):].any()


@pytest.mark.parametrize("after", (
    ("Unique", ["places"], ["y"], {}), ("Unique", ["places"], ["y"], {"axis": 1})))
def test_what_depends_on_how_many_there_are_is_refused(tmp_path, after):
    nodes = [NODES[0], after]
    with pytest.raises(UnsupportedError, match="needs to know how many"):
        aotc.compile(model_of(nodes, ["y"], {"x": IMAGE["x"]}), tmp_path / "b", target="c")
    assert not (tmp_path / "b").exists()


def test_places_that_are_computed_with(tmp_path):
    """Behind the elements that there are lies a zero, which a sum may move out of the table."""
    nodes = [NODES[0], ("Add", ["places", "one"], ["more"], {}),
             ("Gather", ["table", "more"], ["y"], {})]
    model = model_of(nodes, ["y"], {"x": IMAGE["x"], "table": (TensorProto.FLOAT, [5])})
    ours = aotc.compile(model, tmp_path / "b", name="m", target="c").load(threads=1)
    theirs = onnxruntime.InferenceSession(model.SerializeToString())
    for last in (1, 2, 3):
        x = np.zeros((4, 3), F)
        x[:last, 1] = 1
        feeds = {"x": x, "table": np.arange(5, dtype=F)}
        np.testing.assert_array_equal(ours.run(feeds)["y"], theirs.run(None, feeds)[0])
    with pytest.raises(IndexFault):
        ours.run({"x": np.eye(7, 7, dtype=F), "table": np.arange(5, dtype=F)})
