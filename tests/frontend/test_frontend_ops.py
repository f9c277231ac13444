"""Operators against the ONNX reference evaluator and onnxruntime, where the standard's own cases
(test_frontend_conformance.py) are thin: older opsets, groups, ranks, odd geometry."""

import numpy as np
import pytest
from frontend_cases import compare, one_node
from operator_tables import (
    CASES,
    NUMBERS,
    REFERENCE,
    RESIZES,
    RUNTIME,
    UNARY,
    case_of_table,
    resize_case,
)


@pytest.mark.parametrize("case", CASES)
def test_operator(case):
    row = case_of_table(case)
    compare(*row.model(), row.executors)


@pytest.mark.parametrize("mode,coord,nearest,size", RESIZES)
def test_resize(mode, coord, nearest, size):
    compare(*resize_case(mode, coord, nearest, size).model(), RUNTIME)


@pytest.mark.parametrize("op", UNARY)
def test_unary(op):
    model, feeds = one_node(op, [np.linspace(-0.99, 0.99, 41, dtype=np.float32)])
    compare(model, feeds)


@pytest.mark.parametrize("op", ("Sigmoid", "Softplus", "Mish", "Tanh", "Elu", "HardSwish"))
def test_activations_far_from_zero(op):
    x = np.array([-1e4, -200, -90, -30, 30, 90, 200, 1e4], np.float32)
    model, feeds = one_node(op, [x])
    compare(model, feeds, REFERENCE if op != "Mish" else RUNTIME)


@pytest.mark.parametrize("to", NUMBERS)
@pytest.mark.parametrize("source", NUMBERS)
def test_cast(source, to):
    from onnx import helper
    x = np.array([0, 1, 2, 3.7, 100]).astype(source)
    model, feeds = one_node("Cast", [x], dict(to=helper.np_dtype_to_tensor_dtype(np.dtype(to))))
    compare(model, feeds)
