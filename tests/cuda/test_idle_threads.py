"""Whole models and every operator on blocks of threads: none of many operations leaves half of its
threads idle, none has a thread that folds alone."""

import warnings

import pytest
from idle_threads import idle
from large_operators import large_cases

from aotc.options import Options
from aotc.pipeline import run_pipeline

TARGET = "cuda:sm_80"
LARGE = large_cases()
# products of bytes and of weights of few bits, for which the target has no row
NARROW = ("ConvInteger", "MatMulInteger", "MatMulNBits", "QLinearConv", "QLinearMatMul")
DEFAULT = ("ArgMax_1", "Col2Im", "Conv_depthwise_large", "Einsum_trace", "Hardmax_1", "LRN",
           "MatMul_int64", "MaxPool_wide", "ReduceProd_columns", "Softmax_1")


def plan_of(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run_pipeline(Options(source=model, out=None, target=TARGET, stop_after="plan")).plan


def refused(plan):
    return "\n".join(idle(plan, TARGET))


@pytest.mark.parametrize("name", [n if n in DEFAULT else pytest.param(
    n, marks=pytest.mark.product) for n in LARGE if not n.startswith(NARROW)])
def test_operators_on_large_tensors(name):
    assert not refused(plan_of(LARGE[name].model()[0]))
