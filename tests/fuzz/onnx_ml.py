"""Rows of the random graph generator for ai.onnx.ml: forests, support vectors, linear models,
features made ready.  What branches on its input is given inputs that no rounding precedes."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))

from ml_nodes import KERNELS, ML, MODES, TRANSFORMS, classifier, floats, lists, regressor
from onnx_graphs import FLOATS
from onnx_nodes import row


def _rows(g, *dtypes):
    """Rows of features: a tensor of the graph, or a new input, often of values that repeat."""
    x = g.pick(lambda v: v.exact and v.array.ndim == 2 and v.array.size
               and v.array.dtype in (dtypes or FLOATS[:1]))
    if x is None or g.rng.random() < 0.5:
        x = g.input((g.rng.choice((1, 2, 15, 16, 33, 40)), g.rng.randint(1, 6)), np.float32)
        if g.rng.random() < 0.5:
            x.array[...] = np.round(x.array)
    return x


@row(3)
def forest(g):
    x = _rows(g)
    scored = g.rng.random() < 0.4
    targets = g.rng.randint(2 if scored else 1, 3)
    modes = g.rng.choice((MODES[:1], MODES[1:2], MODES[:4], MODES))
    kind = "class" if scored else "target"
    asked = lists(g.np, kind, trees=g.rng.choice((1, 3, 16, 21)), depth=g.rng.randint(0, 5),
                  features=x.array.shape[1], targets=targets, votes=g.rng.randint(1, targets),
                  modes=list(modes), one_each=g.rng.random() < 0.4)
    if scored:
        # of classes that no leaf speaks of the standard does not say what base values mean; the
        # reference evaluator knows no missing values, ONNX Runtime not two base values of two
        known = targets > 2 or not np.isnan(x.array).any()
        if len(set(asked["class_ids"])) == targets and known:
            g.add("TreeEnsembleClassifier", [x], 2, domain=ML, post_transform="NONE",
                  classlabels_int64s=[5, 2, 7][:targets], base_values=floats(g.np, targets),
                  **asked)
    else:
        g.add("TreeEnsembleRegressor", [x], domain=ML, n_targets=targets, **asked)


@row()
def vectors(g):
    x = _rows(g)
    kernel, count = g.rng.choice(KERNELS), x.array.shape[1]
    if not np.isfinite(x.array).all() or np.abs(x.array).max() > 4:
        return
    if g.rng.random() < 0.5:
        g.add("SVMRegressor", [x], domain=ML, **regressor(g.np, kernel, 4, count))
    else:
        g.add("SVMClassifier", [x], 2, domain=ML, **classifier(g.np, 3, False, kernel, count))


@row()
def linear(g):
    x = _rows(g)
    count, targets = x.array.shape[1], g.rng.randint(1, 3)
    if not np.isfinite(x.array).all():
        return
    asked = dict(coefficients=floats(g.np, targets * count), intercepts=floats(g.np, targets))
    if g.rng.random() < 0.5:
        g.add("LinearRegressor", [x], domain=ML, targets=targets, **asked)
    elif targets > 2:
        g.add("LinearClassifier", [x], 2, domain=ML, classlabels_ints=[4, 1, 9],
              post_transform=g.rng.choice(TRANSFORMS[:3]), **asked)


@row(2)
def ready(g):
    x = _rows(g)
    count = x.array.shape[1]
    match g.rng.randrange(5):
        case 0:
            g.add("Scaler", [x], domain=ML, offset=floats(g.np, count), scale=floats(g.np, count))
        case 1:
            if np.isfinite(x.array).all():
                g.add("Normalizer", [x], domain=ML, norm=g.rng.choice(("L1", "L2")))
        case 2:
            g.add("Binarizer", [x], exact=True, domain=ML, threshold=0.5)
        case 3:
            g.add("Imputer", [x], exact=True, domain=ML, imputed_value_floats=floats(g.np, count),
                  replaced_value_float=float("nan"))
        case 4:
            places = g.const(g.np.integers(0, count, g.rng.randint(1, 4)))
            g.add("ArrayFeatureExtractor", [x, places], exact=True, domain=ML)


@row()
def category(g):
    x = g.pick(lambda v: v.array.dtype == np.int64 and v.array.ndim in (1, 2) and v.array.size)
    if x is None:
        return
    if g.rng.random() < 0.5:
        g.add("OneHotEncoder", [x], exact=True, domain=ML, cats_int64s=[2, 0, -3, 7])
    else:
        g.add("LabelEncoder", [x], exact=True, domain=ML, keys_int64s=[2, 0, -3],
              values_int64s=[8, 9, -9], default_int64=4)
