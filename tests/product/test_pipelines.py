"""Fitted pipelines of scikit-learn, converted, compiled once and run on batches of any size."""

import numpy as np
import pytest

pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
from pipelines import converted, data, pipelines
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import StringTensorType
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from small_models import together

import aotc

QUICK = ("logistic", "names", "forest", "boosting_two", "gaps")  # of each kind of operator one


def check(names, folder):
    """Labels and numbers as scikit-learn has them, probabilities too."""
    table = pipelines()
    fitted = {n: converted(*table[n]) for n in names}
    model = aotc.compile(together([m for _, m in fitted.values()]), folder / "b", name="net").load()
    for batch in (1, 7, 64):
        feeds = {f"q{k}_X": table[n][1][:batch] for k, n in enumerate(names)}
        got = model.run(feeds)
        for k, (name, (estimator, proto)) in enumerate(fitted.items()):
            x = feeds[f"q{k}_X"]
            if len(x) < batch:
                continue
            own = [got[f"q{k}_{o.name}"] for o in proto.graph.output]
            wanted = np.asarray(estimator.predict(x))
            if wanted.dtype.kind == "U":
                assert own[0].tolist() == wanted.tolist(), name
            else:
                np.testing.assert_allclose(own[0].reshape(wanted.shape), wanted, rtol=1e-3,
                                           atol=1e-3, err_msg=name)
            if hasattr(estimator, "predict_proba"):
                np.testing.assert_allclose(own[1], estimator.predict_proba(x), atol=1e-4,
                                           err_msg=name)


def test_a_few_pipelines(tmp_path):
    check(QUICK, tmp_path)


def test_words(tmp_path):
    """Columns of strings, some that were not learnt from."""
    words = np.random.default_rng(0).choice(["red", "green", "blue"], (160, 1)).astype(object)
    estimator = make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression())
    estimator.fit(words, data()[1])
    proto = convert_sklearn(estimator, initial_types=[("c", StringTensorType([None, 1]))],
                            options={id(estimator): {"zipmap": False}},
                            target_opset={"": 18, "ai.onnx.ml": 3})
    model = aotc.compile(proto, tmp_path / "b", target="c").load()
    for batch in (1, 50):
        x = np.vstack([words[:batch], [["purple"]]])
        label, scores = model.run({"c": x}).values()
        assert label.tolist() == estimator.predict(x).tolist()
        np.testing.assert_allclose(scores, estimator.predict_proba(x), atol=1e-6)


@pytest.mark.product
@pytest.mark.parametrize("name", sorted(set(pipelines()) - set(QUICK)))
def test_pipelines(name, tmp_path):
    check([name], tmp_path)
