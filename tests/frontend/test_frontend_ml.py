"""The operators of ai.onnx.ml as ONNX Runtime has them, on the numpy evaluator."""

import itertools

import numpy as np
import onnx
import pytest
from frontend_cases import compare, helper, model_of, one_node, program_of, run
from ml_nodes import (
    KERNELS,
    ML,
    MODES,
    TRANSFORMS,
    classifier,
    floats,
    lists,
    ml_rows,
    regressor,
    rows,
)

from aotc.errors import ModelError, UnsupportedError

RUNTIME = ("onnxruntime",)
MODEL_TYPES = ("f4", "f8", "i8", "i4")  # what most of them take


def check(op, arrays, outputs=1, consts=(), **attrs):
    model, feeds = one_node(op, arrays, dict(attrs, domain=ML), consts, outputs)
    compare(model, feeds, RUNTIME, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("row", ml_rows(), ids=lambda row: row[0])
def test_rows_of_the_table(row):
    _, op, arrays, attrs, outputs, consts = row
    check(op, arrays, outputs, consts, **attrs)


@pytest.mark.parametrize("how", TRANSFORMS)
@pytest.mark.parametrize("classes", (2, 3))
def test_linear_classifiers(how, classes):
    rng = np.random.default_rng(classes)
    x = rng.standard_normal((5, 3)) / 8
    for dtype in MODEL_TYPES:
        check("LinearClassifier", [(x * 8).astype(dtype) if dtype[0] == "i" else x.astype(dtype)],
              2, coefficients=floats(rng, 3 * classes), intercepts=floats(rng, classes),
              classlabels_ints=[4, 9, 1][:classes], post_transform=how)
    if how != "PROBIT":
        check("LinearClassifier", [x.astype("f4")], 2, coefficients=floats(rng, 3),
              intercepts=[0.1], classlabels_ints=[4, 9], post_transform=how)


@pytest.mark.parametrize("how, targets", [*itertools.product(TRANSFORMS, (1, 2))])
def test_linear_regressors(how, targets):
    x = np.random.default_rng(0).random((5, 3)).astype("f4")
    check("LinearRegressor", [x], coefficients=[0.1, 0.2, 0.3, 0.2, 0.1, 0.4][:3 * targets],
          targets=targets, intercepts=[0.1, 0.2][:targets], post_transform=how)


@pytest.mark.parametrize("kernel", KERNELS)
def test_support_vector_machines(kernel):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((6, 3)).astype("f4")
    check("SVMRegressor", [x], **regressor(rng, kernel))
    check("SVMRegressor", [x], one_class=1, **regressor(rng, kernel))
    for classes, likely in itertools.product((2, 3, 4), (False, True)):
        check("SVMClassifier", [x], 2, **classifier(rng, classes, likely, kernel))


@pytest.mark.parametrize("how", TRANSFORMS[:4])
def test_scores_of_support_vectors_transformed(how):
    rng = np.random.default_rng(4)
    x = rng.standard_normal((6, 3)).astype("f4")
    for classes, likely in itertools.product((2, 3), (False, True)):
        check("SVMClassifier", [x], 2, post_transform=how, **classifier(rng, classes, likely))


def test_machines_without_support_vectors():
    rng = np.random.default_rng(5)
    x = rng.standard_normal((6, 3)).astype("f4")
    check("SVMClassifier", [x], 2, coefficients=floats(rng, 9), rho=[0.1],
          classlabels_ints=[4, 9, 1], kernel_params=[0.0] * 3)
    check("SVMRegressor", [x], coefficients=[0.1, 0.2, -0.3], rho=[0.1], kernel_params=[0.0] * 3)


@pytest.mark.parametrize("dtype", MODEL_TYPES[:2])
@pytest.mark.parametrize("fold", ("SUM", "AVERAGE", "MIN", "MAX"))
def test_forests_of_regressions(dtype, fold):
    rng = np.random.default_rng(6)
    x = rows(rng, 9, 3, dtype)
    for targets, one_each in ((1, False), (3, True)):
        check("TreeEnsembleRegressor", [x], n_targets=targets, aggregate_function=fold,
              base_values=floats(rng, targets),
              **lists(rng, "target", trees=3, targets=targets, one_each=one_each, modes=MODES))


def silent(attrs, kind, seed):
    """The forest with a third of the votes, so that rows have targets that no leaf speaks of."""
    names = [f"{kind}_{n}" for n in ("treeids", "nodeids", "ids", "weights")]
    kept = np.random.default_rng(seed).permutation(len(attrs[names[0]]))
    kept = sorted(kept[:max(len(kept) // 3, 1)])
    return attrs | {n: [attrs[n][k] for k in kept] for n in names}


@pytest.mark.parametrize("fold", ("SUM", "AVERAGE", "MIN", "MAX"))
def test_targets_that_no_leaf_speaks_of(fold):
    """Of several: 0, without a base value; of one: leaves that do not speak of it say 0."""
    rng = np.random.default_rng(12)
    x = rows(rng, 17, 3)
    for targets, seed in itertools.product((1, 2, 4), range(3)):
        attrs = silent(lists(rng, "target", trees=3, targets=targets), "target", seed)
        attrs |= dict(n_targets=targets, aggregate_function=fold)
        check("TreeEnsembleRegressor", [x], **attrs)
        check("TreeEnsembleRegressor", [x], base_values=floats(rng, targets), **attrs)


@pytest.mark.parametrize("how", TRANSFORMS[:4])
def test_two_classes_that_no_leaf_speaks_of(how):
    rng = np.random.default_rng(13)
    x = rows(rng, 17, 3)
    for seed in range(3):
        attrs = silent(lists(rng, "class", trees=3, targets=2), "class", seed)
        attrs |= dict(classlabels_int64s=[0, 1], post_transform=how)
        check("TreeEnsembleClassifier", [x], 2, **attrs)
        attrs |= dict(class_ids=[1] * len(attrs["class_ids"]))  # of the second alone
        check("TreeEnsembleClassifier", [x], 2, **attrs)


@pytest.mark.parametrize("how", TRANSFORMS)
def test_forests_of_classes(how):
    """A class that no leaf is about, trees about one class each (not as many for each), and leaves
    about all classes."""
    rng = np.random.default_rng(7)
    x = rows(rng, 9, 3)
    labels = dict(classlabels_int64s=[7, 3, 11], post_transform=how)
    for options in (dict(targets=2), dict(one_each=True), dict(votes=3), dict(votes=2)):
        attrs = lists(rng, "class", **options)
        check("TreeEnsembleClassifier", [x], 2, **attrs, **labels)
        check("TreeEnsembleClassifier", [x], 2, base_values=[0.5, -0.5, 0.25], **attrs, **labels)


@pytest.mark.parametrize("positive", (False, True))
@pytest.mark.parametrize("how", TRANSFORMS[:4])
def test_forests_of_two_classes(how, positive):
    """Leaves that are about the first, the second, either or both."""
    rng = np.random.default_rng(8)
    x = rows(rng, 9, 3)
    for targets, votes, shift in ((1, 1, 0), (1, 1, 1), (2, 1, 0), (2, 2, 0)):
        attrs = lists(rng, "class", targets=targets, votes=votes)
        attrs["class_ids"] = [i + shift for i in attrs["class_ids"]]
        if positive:
            attrs["class_weights"] = [abs(w) / 4 for w in attrs["class_weights"]]
        attrs |= dict(classlabels_int64s=[0, 1], post_transform=how)
        check("TreeEnsembleClassifier", [x], 2, **attrs)
        if targets == 1 and not shift:
            check("TreeEnsembleClassifier", [x], 2, base_values=[0.25], **attrs)


def test_a_class_alone():
    rng = np.random.default_rng(9)
    check("TreeEnsembleClassifier", [rows(rng, 9, 3)], 2, classlabels_int64s=[1],
          **lists(rng, "class", targets=1))


def test_thresholds_in_double_precision():
    rng = np.random.default_rng(10)
    attrs = lists(rng, "target", targets=1)
    for name in ("nodes_values", "target_weights"):
        attrs[f"{name}_as_tensor"] = onnx.numpy_helper.from_array(np.array(attrs.pop(name), "f8"))
    check("TreeEnsembleRegressor", [rows(rng, 9, 3, "f8")], n_targets=1, **attrs)


def test_features_of_integers_and_vectors():
    x = np.array([[1, -2, 0], [0, 0, 0]])
    for dtype in MODEL_TYPES:
        check("Scaler", [x.astype(dtype)], offset=[1.0], scale=[0.5])
        check("Normalizer", [x.astype(dtype)], norm="L2")
    check("Normalizer", [np.float32([1, -2, 0.5])], norm="MAX")
    check("Imputer", [x], imputed_value_int64s=[7, 8, 9], replaced_value_int64=0)
    check("OneHotEncoder", [x.astype("f4")], cats_int64s=[0, 1, -2])
    check("OneHotEncoder", [x], cats_int64s=[0, 1, -2], zeros=0)


def test_labels_of_nan_and_of_tensors():
    """Of equal keys the last counts, and NaN is a key, as the standard has it."""
    x = np.float32([[np.nan, 2], [1, -0.0]])
    model, feeds = one_node("LabelEncoder", [x], dict(
        keys_floats=[1.0, np.nan, 0.0, 1.0], values_int64s=[1, 2, 3, 4], domain=ML))
    assert run(program_of(model), feeds)[0].tolist() == [[2, -1], [4, 3]]
    tensors = {n: onnx.numpy_helper.from_array(np.array(a), n) for n, a in {
        "keys_tensor": [1.0, 2.0], "values_tensor": [0.25, 0.5], "default_tensor": [7.0]}.items()}
    model, feeds = one_node("LabelEncoder", [x.astype("f8")], dict(tensors, domain=ML))
    model.opset_import[1].version = 4
    compare(model, feeds, RUNTIME)


def test_columns_by_any_number_of_indices():
    node = helper.make_node("ArrayFeatureExtractor", ["x", "i"], ["y"], domain=ML)
    for shape in (["k"], ["k", 1], [1, "k"], [2, "k"]):
        model = model_of([node], {"x": ("f4", ["n", 4]), "i": ("i8", shape)}, ["y"], {}, 18, [ML])
        feeds = {"x": np.arange(12, dtype="f4").reshape(3, 4),
                 "i": np.array([2, 0, 3, 1, 1, 2]).reshape(
                     [6 // (2 if 2 in shape else 1) if d == "k" else d for d in shape])}
        compare(model, feeds, RUNTIME)


def test_a_map_of_scores_is_their_matrix():
    nodes = [helper.make_node("Normalizer", ["x"], ["p"], norm="L1", domain=ML),
             helper.make_node("ZipMap", ["p"], ["y"], classlabels_int64s=[4, 9], domain=ML)]
    model = model_of(nodes, {"x": ("f4", (3, 2))}, ["y"], {}, 18, [ML])
    model.graph.output[0].type.ClearField("tensor_type")
    kind = model.graph.output[0].type.sequence_type.elem_type.map_type
    kind.key_type, kind.value_type.tensor_type.elem_type = 7, 1
    x = np.arange(1, 7, dtype="f4").reshape(3, 2)
    got, = run(program_of(model), {"x": x})
    np.testing.assert_allclose(got, x / x.sum(1, keepdims=True), rtol=1e-6)


STUMP = dict(nodes_treeids=[0] * 3, nodes_nodeids=[0, 1, 2], nodes_featureids=[0] * 3,
             nodes_values=[0.0] * 3, nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
             nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0], target_treeids=[0, 0],
             target_nodeids=[1, 2], target_ids=[0, 0], target_weights=[1.0, 2.0], n_targets=1)


@pytest.mark.parametrize("change, words", [
    (dict(nodes_values=[0.0]), "differ in length"),
    (dict(nodes_modes=["BRANCH_MEMBER", "LEAF", "LEAF"]), "'BRANCH_MEMBER' of a node"),
    (dict(nodes_falsenodeids=[9, 0, 0]), "tree 0 has no node 9"),
    (dict(target_nodeids=[1, 5]), "tree 0 has no node 5"),
    (dict(nodes_nodeids=[0, 1, 1]), "listed twice"),
    (dict(nodes_truenodeids=[0, 0, 0]), "never ends"),
    (dict(nodes_featureids=[3, 0, 0]), "feature outside 0..2"),
    (dict(target_ids=[0, 1]), "target outside 0..0"),
    (dict(target_weights=[1.0]), "2 weights differ"),
    (dict(base_values=[1.0, 2.0]), "2 base values for 1"),
    (dict(post_transform="SQUARE"), "'SQUARE' is none of"),
    (dict(aggregate_function="PRODUCT"), "'PRODUCT' is none of")])
def test_forests_that_are_none(change, words):
    model, _ = one_node("TreeEnsembleRegressor", [np.zeros((2, 3), "f4")],
                        {**STUMP, **change, "domain": ML})
    with pytest.raises(ModelError, match=words):
        program_of(model)


@pytest.mark.parametrize("op, change, words", [
    ("SVMClassifier", dict(coefficients=[1.0]), "1 coefficients for"),
    ("SVMClassifier", dict(rho=[1.0]), "1 numbers rho for 3 pairs"),
    ("SVMClassifier", dict(vectors_per_class=[3]), "of 1 classes for 3 class labels"),
    ("SVMClassifier", dict(kernel_type="COSINE"), "'COSINE' is none of"),
    ("LinearClassifier", dict(coefficients=[1.0] * 4), "4 coefficients and"),
    ("LinearClassifier", dict(intercepts=[1.0] * 4), "4 intercepts for"),
    ("Normalizer", dict(norm="L3"), "'L3' is none of"),
    ("Scaler", dict(offset=[1.0, 2.0]), "value .offset. for every feature"),
    ("Imputer", dict(), "imputed_value_floats are missing")])
def test_attributes_that_contradict_each_other(op, change, words):
    rng = np.random.default_rng(1)
    attrs = {"SVMClassifier": classifier(rng, 3), "LinearClassifier": dict(
        coefficients=[1.0] * 9, classlabels_ints=[1, 2, 3])}.get(op, {})
    model, _ = one_node(op, [np.zeros((2, 3), "f4")], {**attrs, **change, "domain": ML},
                        outputs=2 if op.endswith("Classifier") else 1)
    with pytest.raises(ModelError, match=words):
        program_of(model)


def test_one_probit_for_two_classes_is_refused():
    model, _ = one_node("LinearClassifier", [np.zeros((2, 3), "f4")], dict(
        coefficients=[1.0] * 3, intercepts=[0.0], classlabels_ints=[4, 9], post_transform="PROBIT",
        domain=ML), outputs=2)
    with pytest.raises(UnsupportedError, match="PROBIT of one score"):
        program_of(model)
