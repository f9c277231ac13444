"""Products of two tensors of bytes that the caller gives, of any extents, also of the sum: exact to
the integer."""

import numpy as np
import pytest
from harness import DISTINCT, at_length
from onnx import TensorProto, helper
from quick_builds import LEVEL
from small_models import make_model

import aotc

TYPES = {"u8": (TensorProto.UINT8, np.uint8), "i8": (TensorProto.INT8, np.int8)}
ZEROS = {"a": 7, "b": 3}


def every_kind():
    """y_P_Q i32[2, m, n] = (a_P - 7) (b_Q - 3) for P and Q of u8 and i8, over k terms."""
    nodes, inputs, outputs, tensors = [], {}, {}, {}
    for t, (elements, dtype) in TYPES.items():
        inputs |= {f"a_{t}": (elements, [2, "m", "k"]), f"b_{t}": (elements, [2, "k", "n"])}
        tensors |= {f"{name}_zero_{t}": np.array(zero, dtype) for name, zero in ZEROS.items()}
    for p in TYPES:
        for q in TYPES:
            nodes.append(helper.make_node("MatMulInteger", [
                f"a_{p}", f"b_{q}", f"a_zero_{p}", f"b_zero_{q}"], [f"y_{p}_{q}"]))
            outputs[f"y_{p}_{q}"] = TensorProto.INT32, [2, "m", "n"]
    return make_model(nodes, inputs, outputs, tensors)


@pytest.mark.parametrize("target", [pytest.param(t, marks=at_length(t)) for t in DISTINCT],
                         ids=lambda t: t.name)
def test_products_of_bytes_are_exact(target, tmp_path, monkeypatch):
    monkeypatch.setenv("CFLAGS", LEVEL)
    made = aotc.compile(every_kind(), tmp_path / "b", target=target.name)
    rows = {r for k in made.manifest["kernels"] for r in k["rows"]}
    assert {r.split("_")[1] for r in rows if r.startswith("dot_")} == {"u8s8", "s8s8"}
    model, rng = made.load(), np.random.default_rng(0)
    for m, n, k in ((1, 1, 1), (5, 70, 36), (2, 3, 2), (37, 16, 7), (1, 5, 3), (9, 9, 33),
                    (3, 2, 128)):
        values = rng.integers(0, 256, 2 + k % 7) if k % 2 else np.array([0, 127, 128, 255])
        feeds = {f"{name}_{t}": rng.choice(values, shape).astype(np.uint8).view(dtype)
                 for t, (_, dtype) in TYPES.items()
                 for name, shape in (("a", (2, m, k)), ("b", (2, k, n)))}
        got = model.run(feeds)
        for p in TYPES:
            for q in TYPES:
                a, b = (feeds[f"{name}_{t}"].astype(np.int32) - ZEROS[name]
                        for name, t in (("a", p), ("b", q)))
                assert np.array_equal(got[f"y_{p}_{q}"], a @ b), (p, q, m, n, k)
