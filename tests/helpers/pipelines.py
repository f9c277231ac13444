"""Fitted models of scikit-learn, as skl2onnx writes them."""

import warnings

import numpy as np
from sklearn import (
    calibration,
    cluster,
    compose,
    cross_decomposition,
    decomposition,
    discriminant_analysis,
    ensemble,
    gaussian_process,
    impute,
    linear_model,
    mixture,
    multiclass,
    naive_bayes,
    neighbors,
    neural_network,
    preprocessing,
    svm,
)
from sklearn.pipeline import make_pipeline

FEATURES = 6


def data():
    """(features, three classes, numbers): what the models learn from."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((160, FEATURES)).astype(np.float32)
    classes = (x[:, 0] * x[:, 1] + x[:, 2] > 0).astype(int) + (x[:, 3] > 1)
    return x, classes, (x @ rng.standard_normal(FEATURES) + np.sin(3 * x[:, 0])).astype(np.float32)


def _prepared(x):
    """(with gaps, with small integers in the first column)."""
    rng = np.random.default_rng(1)
    gaps, kinds = x.copy(), x.copy()
    gaps[rng.random(x.shape) < 0.1] = np.nan
    kinds[:, 0] = rng.integers(0, 4, len(x))
    return gaps, kinds


def pipelines():
    """{name: (estimator, features, target)}, none of them fitted."""
    x, y, r = data()
    gaps, kinds = _prepared(x)
    two, linear = (y > 0).astype(int), linear_model.LogisticRegression
    columns = compose.ColumnTransformer([
        ("kinds", preprocessing.OneHotEncoder(handle_unknown="ignore"), [0]),
        ("numbers", preprocessing.StandardScaler(), list(range(1, FEATURES)))])
    out = {
        "logistic": (make_pipeline(preprocessing.StandardScaler(), linear()), x, y),
        "logistic_two": (linear(), x, two),
        "names": (linear(), x, np.array(["low", "mid", "high"])[y]),
        "ridge": (linear_model.Ridge(), x, r),
        "forest": (ensemble.RandomForestClassifier(8, max_depth=5, random_state=0), x, y),
        "extra_trees": (ensemble.ExtraTreesRegressor(8, max_depth=5, random_state=0), x, r),
        "boosting": (ensemble.GradientBoostingClassifier(n_estimators=6, random_state=0), x, y),
        "boosting_two": (ensemble.GradientBoostingClassifier(n_estimators=6, random_state=0), x,
                         two),
        "boosting_numbers": (ensemble.GradientBoostingRegressor(n_estimators=6), x, r),
        "neighbours": (neighbors.KNeighborsClassifier(3), x, y),
        "perceptron": (neural_network.MLPClassifier((8,), max_iter=60, random_state=0), x, y),
        "clusters": (make_pipeline(decomposition.PCA(3), cluster.KMeans(4, n_init=1,
                                                                      random_state=0)), x, None),
        "gaussian": (gaussian_process.GaussianProcessRegressor(gaussian_process.kernels.RBF()),
                     x[:40], r[:40]),
        "bayes": (naive_bayes.GaussianNB(), x, y),
        "columns": (make_pipeline(columns, linear()), kinds, y),
        "gaps": (make_pipeline(impute.SimpleImputer(), preprocessing.Normalizer(), linear()), gaps,
                 y),
        "voting": (ensemble.VotingClassifier(
            [("linear", linear()), ("trees", ensemble.RandomForestClassifier(
                4, max_depth=3, random_state=0))], voting="soft", flatten_transform=False), x, y),
        "calibrated": (calibration.CalibratedClassifierCV(svm.LinearSVC(), cv=2), x, y),
        "bagging": (ensemble.BaggingClassifier(n_estimators=3, random_state=0), x, y),
        "ada": (ensemble.AdaBoostClassifier(n_estimators=4, random_state=0), x, y),
        "stacking": (ensemble.StackingClassifier([("linear", linear()),
                                                  ("bayes", naive_bayes.GaussianNB())]), x, y),
        "outliers": (ensemble.IsolationForest(n_estimators=6, random_state=0), x, None)}
    out |= _others(x, y, r)
    for kernel in ("linear", "poly", "rbf", "sigmoid"):
        out[f"svc_{kernel}"] = (svm.SVC(kernel=kernel), x, y)
        out[f"svr_{kernel}"] = (svm.SVR(kernel=kernel), x, r)
    return out


def _others(x, y, r):
    """More of the same, by features, classes and numbers."""
    kernels = gaussian_process.kernels
    numbers, bins = linear_model.Ridge(), preprocessing.KBinsDiscretizer(4, encode="onehot-dense")
    return {
        "forest_two_targets": (ensemble.RandomForestRegressor(5, max_depth=4, random_state=0), x,
                               np.stack([r, -r], 1)),
        "polynomial": (make_pipeline(preprocessing.PolynomialFeatures(2), numbers), x, r),
        "bins": (make_pipeline(bins, linear_model.LogisticRegression()), x, y),
        "power": (make_pipeline(preprocessing.PowerTransformer(), numbers), x, r),
        "kernel_components": (make_pipeline(decomposition.KernelPCA(3, kernel="rbf"), numbers), x,
                              r),
        "discriminant": (discriminant_analysis.QuadraticDiscriminantAnalysis(), x, y),
        "mixture": (mixture.GaussianMixture(3, random_state=0), x, None),
        "one_against_one": (multiclass.OneVsOneClassifier(linear_model.LogisticRegression()), x, y),
        "squares": (cross_decomposition.PLSRegression(2), x, r),
        "matern": (gaussian_process.GaussianProcessRegressor(kernels.Matern(nu=1.5)), x[:40],
                   r[:40]),
        "gaussian_two": (gaussian_process.GaussianProcessClassifier(), x[:40], (y > 0)[:40]),
        "likely": (svm.SVC(probability=True, random_state=0), x, y),
        "strange": (svm.OneClassSVM(), x, None)}


def converted(estimator, x, target):
    """(fitted estimator, ModelProto with the inputs ``X`` [any, 6])."""
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import FloatTensorType
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(x) if target is None else estimator.fit(x, target)
        options = {"zipmap": False} if hasattr(estimator, "classes_") else None
        return estimator, convert_sklearn(
            estimator, initial_types=[("X", FloatTensorType([None, FEATURES]))],
            options=options and {id(estimator): options}, target_opset={"": 18, "ai.onnx.ml": 3})
