"""Fitted models of LightGBM, XGBoost and scikit-learn's histogram boosting as ONNX, and their own
answers.  ``python tests/helpers/boosters.py`` stores small ones for tests that have none of these
packages."""

import contextlib
import warnings
from pathlib import Path

import numpy as np
import onnx

STORED = Path(__file__).resolve().parents[1] / "exec" / "boosters"
FEATURES = 6
SMALL = dict(n_estimators=4, max_depth=3, n_jobs=1)


def data():
    """(rows with gaps, three classes, numbers)."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((160, FEATURES)).astype(np.float32)
    classes = (x[:, 0] * x[:, 1] + x[:, 2] > 0).astype(int) + (x[:, 3] > 1)
    numbers = (x @ rng.standard_normal(FEATURES) + np.sin(3 * x[:, 0])).astype(np.float32)
    x[rng.random(x.shape) < 0.1] = np.nan
    return x, classes, numbers


def lightgbm_models():
    """{name: (estimator, target)}."""
    import lightgbm as lgb
    _, y, r = data()
    asked = SMALL | dict(verbose=-1, min_child_samples=4)
    return {"lightgbm_classes": (lgb.LGBMClassifier(**asked), y),
            "lightgbm_two": (lgb.LGBMClassifier(**asked), (y > 0).astype(int)),
            "lightgbm_numbers": (lgb.LGBMRegressor(**asked), r),
            "lightgbm_dart": (lgb.LGBMRegressor(boosting_type="dart", **asked), r),
            "lightgbm_counts": (lgb.LGBMRegressor(objective="poisson", **asked), np.abs(r))}


def xgboost_models():
    """{name: (estimator, target)}."""
    import xgboost as xgb
    _, y, r = data()
    return {"xgboost_classes": (xgb.XGBClassifier(**SMALL), y),
            "xgboost_two": (xgb.XGBClassifier(**SMALL), (y > 0).astype(int)),
            "xgboost_numbers": (xgb.XGBRegressor(**SMALL), r),
            "xgboost_counts": (xgb.XGBRegressor(objective="count:poisson", **SMALL), np.abs(r)),
            "xgboost_forest": (xgb.XGBRFClassifier(n_estimators=4, max_depth=3),
                               (y > 0).astype(int))}


def histogram_models():
    """{name: (estimator, target)}."""
    from sklearn import ensemble
    _, y, r = data()
    few = dict(max_iter=4, max_depth=3)
    return {"histogram_classes": (ensemble.HistGradientBoostingClassifier(**few), y),
            "histogram_two": (ensemble.HistGradientBoostingClassifier(**few),
                              (y > 0).astype(int)),
            "histogram_numbers": (ensemble.HistGradientBoostingRegressor(**few), r)}


@contextlib.contextmanager
def _flags_as_integers():
    """skl2onnx gives lists of flags and numbers mixed, which newer versions of onnx refuse."""
    given = onnx.helper.make_attribute

    def make(key, value, *args, **kwargs):
        if isinstance(value, list) and any(isinstance(v, bool) for v in value):
            value = list(map(int, value))
        return given(key, value, *args, **kwargs)
    onnx.helper.make_attribute = make
    try:
        yield
    finally:
        onnx.helper.make_attribute = given


def converted(name, estimator, target):
    """(fitted estimator, ModelProto with the input ``X`` [any, 6])."""
    x = data()[0]
    with warnings.catch_warnings(), _flags_as_integers():
        warnings.simplefilter("ignore")
        estimator.fit(x, target)
        plain = {"zipmap": False}
        if name.startswith("histogram"):
            from skl2onnx import convert_sklearn
            from skl2onnx.common.data_types import FloatTensorType
            options = {id(estimator): plain} if hasattr(estimator, "classes_") else None
            return estimator, convert_sklearn(
                estimator, initial_types=[("X", FloatTensorType([None, FEATURES]))],
                options=options, target_opset={"": 18, "ai.onnx.ml": 3})
        from onnxmltools import convert_lightgbm, convert_xgboost
        from onnxmltools.convert.common.data_types import FloatTensorType
        own = name.startswith("lightgbm")
        return estimator, (convert_lightgbm if own else convert_xgboost)(
            estimator, initial_types=[("X", FloatTensorType([None, FEATURES]))], target_opset=15,
            **(plain if own else {}))


def answers(estimator):
    """What the estimator itself says of all rows: its predictions, and probabilities if any."""
    x = data()[0]
    found = [np.asarray(estimator.predict(x))]
    return found + ([estimator.predict_proba(x)] if hasattr(estimator, "predict_proba") else [])


def check_answers(got, wanted, name):
    """Outputs of the compiled model for the first rows, as the estimator has them."""
    for a, b in zip(got, wanted, strict=True):
        b = b[:len(a)]
        if b.dtype.kind in "iub":
            assert np.array_equal(a.reshape(b.shape), b), name
        else:
            np.testing.assert_allclose(a.reshape(b.shape), b, rtol=1e-4, atol=1e-5, err_msg=name)


def store():
    """The small models and their answers as files."""
    found = {}
    for name, (estimator, target) in (lightgbm_models() | xgboost_models()
                                      | histogram_models()).items():
        fitted, proto = converted(name, estimator, target)
        (STORED / f"{name}.onnx").write_bytes(proto.SerializeToString())
        for k, a in enumerate(answers(fitted)):
            found[f"{name}.{k}"] = a if a.dtype.kind != "f" else a.astype(np.float32)
    np.savez_compressed(STORED / "answers.npz", **found)


if __name__ == "__main__":
    store()
