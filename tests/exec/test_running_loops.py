"""Loops whose rounds read tensors around them, compiled as one model, against ONNX Runtime."""

import numpy as np
import pytest
from frontend_cases import by_onnxruntime, same
from harness import RUNNABLE
from loop_cases import CASES, greedy
from small_models import together

import aotc


@pytest.mark.parametrize("target", [
    pytest.param(t.name, marks=() if t is RUNNABLE[-1] else pytest.mark.product)
    for t in RUNNABLE])
def test_loops_that_read_rows(target, tmp_path):
    models = [c.model for c in CASES] + [greedy(20)]
    bundle = aotc.compile(together(models), tmp_path / "b", target=target, name="loops")
    built = bundle.load(threads=2)
    for call in ({"t": 5, "u": 5, "r": 5, "c": 1}, {"t": 3, "u": 4, "r": 2, "c": 0}):
        feeds = [c.feeds(call, k) for k, c in enumerate(CASES)]
        feeds.append({"x": np.full((1, call["t"]), 2),
                      "h0": np.ones((1, call["t"], 2), np.float32)})
        got = built.run({f"q{k}_{n}": v for k, f in enumerate(feeds) for n, v in f.items()})
        for k, (model, f) in enumerate(zip(models, feeds)):
            same([got[f"q{k}_{o.name}"] for o in model.graph.output], by_onnxruntime(model, f))
    feeds[:-1] = [c.feeds({**call, "r": 1 << 40}) for c in CASES]
    beyond = {f"q{k}_{n}": v for k, f in enumerate(feeds) for n, v in f.items()}
    with pytest.raises(aotc.AotcError, match="index must lie inside"):
        built.run(beyond)
    assert all(np.isfinite(v).all() for v in got.values())
