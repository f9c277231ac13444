"""Nodes of ai.onnx.ml: attributes of random models, and rows for the tables of operators."""

import numpy as np

ML = "ai.onnx.ml"
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")
KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def floats(rng, *shape):
    return rng.standard_normal(shape).ravel().tolist()


def rows(rng, count, features, dtype="f4"):
    """Features that repeat themselves, some of them NaN."""
    x = rng.standard_normal((count, features))
    x[rng.random(x.shape) < 0.3] = 1
    x[rng.random(x.shape) < 0.1] = np.nan
    return x.astype(dtype)


def lists(rng, kind, trees=4, depth=3, features=3, targets=3, votes=1, modes=MODES[:1],
          one_each=False):
    """Attributes of a forest in lists.  ``votes`` of each leaf; ``one_each``: a tree is about one
    target; some branches end early, and NaN takes either way."""
    nodes, said, starts = [], [], []

    def grow(tree, left):
        at = len(nodes)
        here = at - starts[tree]
        nodes.append(())
        if left == 0 or here and rng.random() < 0.2:
            nodes[at] = (tree, here, 0, 0.0, "LEAF", 0, 0, 0)
            about = [tree % targets] if one_each else rng.choice(targets, votes, replace=False)
            said.extend((tree, here, int(t), float(rng.standard_normal())) for t in about)
            return here
        children = grow(tree, left - 1), grow(tree, left - 1)
        split = float(np.float32(rng.choice([1.0, rng.standard_normal()])))
        nodes[at] = (tree, here, int(rng.integers(features)), split, str(rng.choice(modes)),
                     *children, int(rng.integers(2)))
        return here

    for tree in range(trees):
        starts.append(len(nodes))
        grow(tree, depth)
    names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids",
             "missing_value_tracks_true")
    out = {f"nodes_{n}": list(c) for n, c in zip(names, zip(*nodes))}
    names = "treeids", "nodeids", "ids", "weights"
    return out | {f"{kind}_{n}": list(c) for n, c in zip(names, zip(*said))}


def classifier(rng, classes, likely=False, kernel="RBF", features=3):
    """Attributes of an SVMClassifier; ``likely``: it gives probabilities."""
    counts = rng.integers(1, 4, classes).tolist()
    pairs, supports = classes * (classes - 1) // 2, sum(counts)
    out = dict(kernel_type=kernel, kernel_params=[0.3, 0.5, 3.0], vectors_per_class=counts,
               coefficients=floats(rng, classes - 1, supports), rho=floats(rng, pairs),
               support_vectors=floats(rng, supports, features),
               classlabels_ints=[7, 3, 11, -2][:classes])
    return out | (dict(prob_a=[-0.7] * pairs, prob_b=floats(rng, pairs)) if likely else {})


def regressor(rng, kernel, supports=5, features=3):
    """Attributes of an SVMRegressor."""
    return dict(kernel_type=kernel, kernel_params=[0.3, 0.5, 3.0], rho=[0.25],
                coefficients=floats(rng, supports), n_supports=supports,
                support_vectors=floats(rng, supports, features))


def ml_rows():
    """(name, operator, arrays, attributes, outputs, positions of constants)."""
    rng = np.random.default_rng(5)
    x, clean = rows(rng, 7, 3), rng.standard_normal((7, 3)).astype("f4")
    labels = dict(classlabels_int64s=[7, 3, 11])
    table = [
        ("binarizer", "Binarizer", [clean], dict(threshold=0.25), 1, ()),
        ("scaler", "Scaler", [clean], dict(offset=[1.0, 2.0, 3.0], scale=[0.5, 0.1, 7.0]), 1, ()),
        ("imputer", "Imputer", [x], dict(imputed_value_floats=[1.0, 2.0, 3.0],
                                         replaced_value_float=float("nan")), 1, ()),
        *((f"normalizer_{n.lower()}", "Normalizer", [clean], dict(norm=n), 1, ())
          for n in ("MAX", "L1", "L2")),
        ("one_hot", "OneHotEncoder", [np.array([[2, 5], [9, -1]])],
         dict(cats_int64s=[5, 2, -1, 4]), 1, ()),
        ("label_encoder", "LabelEncoder", [np.array([[2, 5], [9, -1]])],
         dict(keys_int64s=[5, 2, 8], values_floats=[0.5, 0.25, 7.0], default_float=-3.0), 1, ()),
        ("feature_vectorizer", "FeatureVectorizer", [clean, clean[:, :2]],
         dict(inputdimensions=[3, 2]), 1, ()),
        ("feature_extractor", "ArrayFeatureExtractor", [clean, np.array([2, 0])], {}, 1, (1,)),
        ("linear_regressor", "LinearRegressor", [clean],
         dict(coefficients=floats(rng, 6), intercepts=[0.5, -1.0], targets=2), 1, ()),
        ("linear_classifier", "LinearClassifier", [clean], dict(
            coefficients=floats(rng, 9), intercepts=[0.5, -1.0, 0.0], post_transform="SOFTMAX",
            classlabels_ints=[7, 3, 11]), 2, ()),
        ("svm_regressor", "SVMRegressor", [clean], regressor(rng, "POLY"), 1, ()),
        ("svm_classifier", "SVMClassifier", [clean], classifier(rng, 3), 2, ()),
        ("svm_probabilities", "SVMClassifier", [clean], classifier(rng, 3, True), 2, ()),
        ("trees_regressor", "TreeEnsembleRegressor", [x], dict(
            lists(rng, "target", modes=MODES, votes=3), n_targets=3,
            base_values=[1.0, 2.0, 3.0]), 1, ()),
        ("trees_classifier", "TreeEnsembleClassifier", [x], dict(
            lists(rng, "class", trees=6, one_each=True), post_transform="LOGISTIC", **labels),
         2, ()),
        ("trees_votes", "TreeEnsembleClassifier", [x],
         dict(lists(rng, "class", votes=3), **labels), 2, ())]
    return [(name, op, arrays, dict(attrs, domain=ML), outputs, consts)
            for name, op, arrays, attrs, outputs, consts in table]
