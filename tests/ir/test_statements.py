"""Statements as text, on every kind of target."""

import pytest

from aotc.options import Options
from aotc.pipeline import run_pipeline
from benchmarks.exported.build import Writer


@pytest.mark.parametrize("target", ["c", "x86-64-v4", "riscv64", "cuda"])
def test_every_statement_has_its_text(target):
    """A convolution, a window, a product and a softmax: whatever a target writes for them."""
    g = Writer("net", 1)
    x = g.op("Relu", g.conv(g.input("x", ["b", 3, 16, 16]), 3, 8))
    x = g.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    y = g.op("Softmax", g.op("Gemm", g.op("Flatten", x), g.weight(512, 40), g.weight(40)), axis=1)
    work = run_pipeline(Options(g.model(y), target=target, dims={"b": (1, 4)}, stop_after="plan"))
    text = str(work.plans)
    for k in work.plans.main.plan.kernels:
        assert k.name in text
    assert "for " in text or "spread " in text
