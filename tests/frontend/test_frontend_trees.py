"""Ensembles of decision trees, and dropout whose mode comes from data."""

import numpy as np
import pytest
from frontend_cases import by_onnxruntime, by_reference, model_of, one_node, program_of, run
from ml_nodes import MODES, lists
from onnx import helper, numpy_helper

import aotc
from aotc.errors import ModelError

ML = "ai.onnx.ml"


def forest(rng, trees, depth, features, targets, modes, dtype):
    """Attributes of random trees; some branches end early.  Numbers of nodes follow the order of
    creation, true branches first, as the reference evaluator reads sets of members."""
    nodes, leaves, roots, sets = [], [], [], []

    def leaf():
        leaves.append((int(rng.integers(targets)), rng.normal()))
        return len(leaves) - 1, 1

    def grow(left):
        at, mode = len(nodes), int(rng.choice(modes))
        nodes.append([int(rng.integers(features)), rng.normal(), mode, int(rng.integers(2))])
        if mode == 6:
            sets.extend([*rng.integers(1, 6, rng.integers(1, 4)), np.nan])
        for _ in range(2):
            child = leaf() if left == 1 or rng.random() < 0.2 else (grow(left - 1), 0)
            nodes[at] += child
        return at

    for _ in range(trees):
        roots.append(grow(depth))
    columns = list(zip(*nodes))
    attributes = dict(zip(("nodes_featureids", "nodes_splits", "nodes_modes",
                           "nodes_missing_value_tracks_true", "nodes_truenodeids",
                           "nodes_trueleafs", "nodes_falsenodeids", "nodes_falseleafs"), columns))
    attributes |= {"tree_roots": roots, "n_targets": targets,
                   "leaf_targetids": [t for t, _ in leaves]}
    tensors = {"nodes_splits": np.array(columns[1], dtype),
               "nodes_modes": np.array(columns[2], np.uint8),
               "leaf_weights": np.array([w for _, w in leaves], dtype)}
    if sets:
        tensors["membership_values"] = np.array(sets, dtype)
    return attributes | {n: numpy_helper.from_array(a, n) for n, a in tensors.items()}


def ensemble(attributes, x, rows=None):
    node = helper.make_node("TreeEnsemble", ["x"], ["y"], domain=ML, name="the_node",
                            **attributes)
    model = model_of([node], {"x": (x.dtype, (rows or x.shape[0], *x.shape[1:]))}, ["y"], {}, 20)
    model.opset_import.append(helper.make_opsetid(ML, 5))
    return model


def features(rng, rows, columns, dtype):
    x = rng.normal(size=(rows, columns)).astype(dtype)
    x[rng.random(x.shape) < 0.3] = rng.integers(1, 6)
    x[rng.random(x.shape) < 0.1] = np.nan
    return x


@pytest.mark.parametrize("aggregate", range(4))
@pytest.mark.parametrize("modes, dtype", [((0,), "f4"), (range(6), "f8"), ((0, 6), "f4")])
def test_trees_as_onnxruntime_walks_them(aggregate, modes, dtype):
    """A target that no leaf of a row speaks of is 0; the reference has the largest or the least
    number there."""
    rng = np.random.default_rng(aggregate)
    attributes = forest(rng, 5, 4, 3, 4, list(modes), dtype)
    x = features(rng, 23, 3, dtype)
    model = ensemble(attributes | {"aggregate_function": aggregate}, x)
    want, = by_onnxruntime(model, {"x": x})
    got, = run(program_of(model), {"x": x})
    assert aggregate < 2 or (want == 0).any()
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("mode", range(7))
def test_each_mode_by_itself(mode):
    """Features are as often a threshold, or a member, as not."""
    rng = np.random.default_rng(mode)
    attributes = forest(rng, 4, 3, 3, 2, [mode], "f4")
    splits = rng.integers(1, 6, len(attributes["nodes_featureids"])).astype("f4")
    attributes["nodes_splits"] = numpy_helper.from_array(splits)
    x = rng.integers(1, 6, (40, 3)).astype("f4")
    x[rng.random(x.shape) < 0.1] = np.nan
    model = ensemble(attributes, x)
    want, = by_reference(model, {"x": x})
    assert len(np.unique(want[:, 0])) > 2
    np.testing.assert_allclose(run(program_of(model), {"x": x})[0], want, rtol=1e-5)


@pytest.mark.parametrize("op, kind", [("TreeEnsembleRegressor", "target"),
                                      ("TreeEnsembleClassifier", "class")])
@pytest.mark.parametrize("mode", MODES)
def test_each_mode_of_trees_in_lists(mode, op, kind):
    rng = np.random.default_rng(len(mode))
    x = rng.integers(0, 3, (40, 3)).astype("f4")
    attributes = lists(rng, kind, modes=[mode], votes=3)
    attributes |= {"n_targets": 3} if kind == "target" else {"classlabels_int64s": [7, 3, 11]}
    model, feeds = one_node(op, [x], {**attributes, "domain": ML}, outputs=1 + (kind == "class"))
    wanted = by_reference(model, feeds)
    assert len(np.unique(wanted[-1][:, 0])) > 2
    for got, want in zip(run(program_of(model), feeds), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("target", ("c", "native"))
def test_trees_compiled_with_any_number_of_rows(target, tmp_path):
    rng = np.random.default_rng(7)
    x = features(rng, 37, 5, "f4")
    attributes = forest(rng, 20, 6, 5, 3, [0, 1], "f4")
    model = aotc.compile(ensemble(attributes, x, "rows"), tmp_path / "b", target=target).load()
    for n in (1, 7, 37):
        want, = by_reference(ensemble(attributes, x[:n]), {"x": x[:n]})
        np.testing.assert_allclose(model.run({"x": x[:n]})["y"], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("change, words", [
    ({"tree_roots": [99]}, "root outside 0..6"),
    ({"nodes_featureids": [0] * 3}, "differ in length"),
    ({"nodes_featureids": [9] * 7}, "feature outside 0..1"),
    ({"leaf_targetids": [3] * 8}, "target outside 0..2"),
    ({"nodes_truenodeids": [0] * 7, "nodes_trueleafs": [0] * 7}, "never ends"),
    ({"nodes_modes": numpy_helper.from_array(np.full(7, 6, np.uint8))}, "0 sets of members for 7"),
])
def test_trees_that_are_none(change, words):
    full = dict(nodes_featureids=[0, 1] * 3 + [0], nodes_truenodeids=[1, 3, 5, 0, 2, 4, 6],
                nodes_falsenodeids=[2, 4, 6, 1, 3, 5, 7], nodes_trueleafs=[0] * 3 + [1] * 4,
                nodes_falseleafs=[0] * 3 + [1] * 4, leaf_targetids=[0, 1, 2, 0, 1, 2, 0, 1],
                n_targets=3, tree_roots=[0],
                nodes_modes=numpy_helper.from_array(np.zeros(7, np.uint8)),
                nodes_splits=numpy_helper.from_array(np.arange(7, dtype="f4")),
                leaf_weights=numpy_helper.from_array(np.arange(8, dtype="f4")))
    x = np.zeros((2, 2), "f4")
    assert run(program_of(ensemble(full, x)), {"x": x})[0].shape == (2, 3)
    with pytest.raises(ModelError, match=words):
        program_of(ensemble(full | change, x))
    with pytest.raises(ModelError, match="post_transform '9' is none of NONE"):
        program_of(ensemble(full | {"post_transform": 9}, x))


@pytest.mark.parametrize("shape", [(), (3, 5)])
def test_dropout_whose_mode_is_data(shape, tmp_path):
    """Inference, and training at a ratio of 0, are the identity; else something is drawn."""
    x = np.ones(shape, "f4")
    model, _ = one_node("Dropout", [x, np.float32(0), np.bool_(True)], outputs=2)
    model.graph.output[1].type.tensor_type.elem_type = 9
    compiled = aotc.compile(model, tmp_path / "b", target="c", name="net").load()
    for ratio, training in ((0, True), (0.5, False), (0, False)):
        got = compiled.run([x, np.float32(ratio), np.bool_(training)])
        assert np.array_equal(got["out0"], x) and got["out1"].all() and got["out1"].shape == shape
    got = compiled.run([x, np.float32(1), np.bool_(True)])
    assert not got["out0"].any() and not got["out1"].any()
