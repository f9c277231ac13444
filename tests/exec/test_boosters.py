"""Boosted trees of LightGBM, XGBoost and scikit-learn's histograms, with missing values, on batches
of any size: stored graphs with the answers that the packages gave, and the packages where there are
any."""

import importlib.util

import numpy as np
import onnx
import pytest
from boosters import (
    STORED,
    answers,
    check_answers,
    converted,
    data,
    histogram_models,
    lightgbm_models,
    xgboost_models,
)
from small_models import together

import aotc

KINDS = {"lightgbm": lightgbm_models, "xgboost": xgboost_models, "histogram": histogram_models}

QUICK = "*_two.onnx"  # of each package one


def check(protos, wanted, folder):
    """protos, wanted: {name: model}, {name: answers of all rows}."""
    outputs = {n: [o.name for o in p.graph.output] for n, p in protos.items()}
    fed = {n: p.graph.input[0].name for n, p in protos.items()}
    model = aotc.compile(together(list(protos.values())), folder / "b", target="c",
                         name="net").load()
    for rows in (1, 17, 160):
        got = model.run({f"q{k}_{fed[n]}": data()[0][:rows] for k, n in enumerate(protos)})
        for k, n in enumerate(protos):
            check_answers([got[f"q{k}_{o}"] for o in outputs[n]], wanted[n], n)


@pytest.mark.parametrize("names", (QUICK, pytest.param("*.onnx", marks=pytest.mark.product)))
def test_stored_graphs(names, tmp_path):
    said = np.load(STORED / "answers.npz")
    protos = {f.stem: onnx.load(f) for f in sorted(STORED.glob(names))}
    assert len(protos) >= 3
    for p in protos.values():  # one model has one version of each operator set
        del p.opset_import[:]
        p.opset_import.extend([onnx.helper.make_opsetid("", 15),
                               onnx.helper.make_opsetid("ai.onnx.ml", 3)])
        p.ir_version = 8
    check(protos, {n: [said[f"{n}.{k}"] for k in range(2) if f"{n}.{k}" in said] for n in protos},
          tmp_path)


@pytest.mark.product
@pytest.mark.parametrize("kind", KINDS)
def test_fitted_models(kind, tmp_path):
    for package in ("skl2onnx",) if kind == "histogram" else (kind, "onnxmltools"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    for name, (estimator, target) in KINDS[kind]().items():
        fitted, proto = converted(name, estimator, target)
        check({name: proto}, {name: answers(fitted)}, tmp_path / name)
