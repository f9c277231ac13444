"""Dimensions that may be 0: nothing divides by them, nothing is read of what has no element."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

import aotc
from aotc.runtime.status import ShapeError

F32 = np.float32


def compiled(nodes, inputs, outputs, folder, dims, consts=()):
    """(model, loaded bundle); inputs: {name: (TensorProto dtype, shape)}."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value(n, *t) for n, t in inputs.items()],
                              [helper.make_empty_tensor_value_info(n) for n in outputs],
                              [numpy_helper.from_array(np.asarray(a), n) for n, a in consts])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return model, aotc.compile(model, folder, name="g", target="c", dims=dims).load()


def test_arithmetic_on_extents_that_may_be_nothing(tmp_path):
    """Rows are split, turned and put together again by quotients of the extents."""
    node = helper.make_node
    nodes = [node("Reshape", ["x", "s0"], ["a"]), node("Reshape", ["x", "s1"], ["b"]),
             node("Transpose", ["x"], ["t"], perm=[1, 0]), node("Flatten", ["t"], ["c"], axis=0),
             node("Shape", ["x"], ["dims"]), node("Gather", ["dims", "zero"], ["n"]),
             node("Gather", ["dims", "one"], ["m"]), node("Mul", ["n", "m"], ["nm"]),
             node("Mod", ["m", "n"], ["rest"]),
             node("Concat", ["n", "two", "m"], ["ndims"], axis=0),
             node("Concat", ["x", "x"], ["xx"], axis=1), node("Reshape", ["xx", "ndims"], ["d"]),
             node("Tile", ["x", "s2"], ["e"]), node("Softmax", ["x"], ["f"]),
             node("Add", ["rest", "nm"], ["h"])]
    consts = [("s0", np.array([-1])), ("s1", np.array([-1, 1])), ("zero", np.array([0])),
              ("one", np.array([1])), ("two", np.array([2])), ("s2", np.array([2, 3]))]
    outs = ["a", "b", "c", "d", "e", "f"]
    model, loaded = compiled(nodes, {"x": (TensorProto.FLOAT, ["n", "m"])}, [*outs, "h"],
                             tmp_path / "b", {"n": (0, 5), "m": (0, 6)}, consts)
    for n, m in ((0, 0), (0, 6), (5, 0), (1, 1), (4, 6)):
        x = np.random.default_rng(n).standard_normal((n, m)).astype(F32)
        got = loaded.run({"x": x})
        if n and m:
            want = dict(zip([*outs, "h"], ReferenceEvaluator(model).run(None, {"x": x})))
        for name in outs:
            if n and m:
                np.testing.assert_allclose(got[name], want[name], rtol=1e-5, atol=1e-6)
            else:
                assert not got[name].size


@pytest.mark.parametrize("op", ("Gather", "GatherElements", "GatherND", "ScatterND",
                                "ScatterElements"))
def test_nothing_to_take_from_is_a_fault_unless_nothing_is_taken(op, tmp_path):
    i64, f32 = TensorProto.INT64, TensorProto.FLOAT
    where = {"GatherElements": ["k", 3], "ScatterElements": ["k", 3]}.get(op, ["k", 1])
    inputs = {"x": (f32, ["n", 3]), "at": (i64, where)}
    if op.startswith("Scatter"):
        inputs["new"] = (f32, ["k", 3])
    _, loaded = compiled([helper.make_node(op, list(inputs), ["y"])], inputs, ["y"],
                         tmp_path / "b", {"n": (0, 4), "k": (0, 4)})

    def run(n, k):
        feeds = {"x": np.ones((n, 3), F32), "at": np.zeros((k, *where[1:]), np.int64),
                 "new": np.ones((k, 3), F32)}
        return loaded.run({name: feeds[name] for name in inputs})["y"]
    assert run(4, 4).size and run(0, 0).size == 0 and run(4, 0).shape[1:] is not None
    with pytest.raises(ShapeError, match="elements to"):
        run(0, 2)
    with pytest.raises(ShapeError, match="negative|elements"):
        run(0, 4)


def test_extents_that_would_be_negative_are_a_fault(tmp_path):
    pad = helper.make_node("Pad", ["x", "p"], ["y"])
    _, loaded = compiled([pad], {"x": (TensorProto.FLOAT, ["n"])}, ["y"], tmp_path / "b",
                         {"n": (0, 9)}, [("p", np.array([-2, -3]))])
    assert loaded.run({"x": np.arange(6, dtype=F32)})["y"].tolist() == [2.0]
    assert loaded.run({"x": np.ones(5, F32)})["y"].size == 0
    with pytest.raises(ShapeError, match="negative"):
        loaded.run({"x": np.ones(4, F32)})


def test_a_loop_that_carries_nothing(tmp_path):
    """Its state takes no bytes, and a place all the same."""
    model = parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[0, 2] x, int64 n) => (float[0, 2] last, float[4, 0] y)
          <bool go = {1}, int64[1] one = {1}> {
          last, y = Loop (n, go, x) <body = b (int64 i, bool c, float[0, 2] s)
            => (bool c2, float[0, 2] next, float[0] kept) {
              c2 = Identity (c)
              next = Add (s, s)
              kept = ReduceSum <keepdims = 0> (s, one)
          }>
        }""")
    loaded = aotc.compile(model, tmp_path / "b", target="c").load()
    x = np.zeros((0, 2), np.float32)
    assert [a.shape for a in loaded.run({"x": x, "n": np.int64(4)}).values()] == [(0, 2), (4, 0)]
    with pytest.raises(ShapeError, match="declared 4 rounds"):
        loaded.run({"x": x, "n": np.int64(3)})
