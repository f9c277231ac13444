"""Heads that count what they find, with random weights, as both exporters of PyTorch write them:
RetinaNet and SSD, Mask R-CNN with regions of two levels, SuperPoint, experts that a router picks,
sums over the edges that a mask keeps, updates under masks, elements chosen, joined and padded.
Against ONNX Runtime, of no finds, one, some and all."""

import gzip
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import aotc

FOLDER = Path(__file__).parent / "detectors"
QUICK = ("masked_dyn", "superpoint_dyn")
# scores above which something is found: all, many, some, one or few, none
LEAST = (0, 0.33, 0.4, 0.6, 0.99)
EXTENTS = ({"b": 1, "t": 1, "n": 1, "e": 1, "h": 32, "w": 32},
           {"b": 2, "t": 5, "n": 6, "e": 9, "h": 32, "w": 48},
           {"b": 1, "t": 9, "n": 4, "e": 30, "h": 48, "w": 40})


def feeds_of(session, k, rng):
    """Inputs of call ``k``: a threshold where there is one, else masks that keep none to all."""
    extents, feeds = EXTENTS[k % len(EXTENTS)], {}
    for i in session.get_inputs():
        shape = [extents[d] if isinstance(d, str) else d for d in i.shape]
        if not shape:
            feeds[i.name] = np.array(LEAST[k], np.float32)
        elif "bool" in i.type:
            feeds[i.name] = rng.random(shape) < k / 4
        elif "int" in i.type:
            feeds[i.name] = rng.integers(0, extents["n"], shape)
        else:
            feeds[i.name] = rng.standard_normal(shape).astype(np.float32) * 2
    return feeds


@pytest.mark.parametrize("name", [
    n if n in QUICK else pytest.param(n, marks=pytest.mark.product)
    for n in sorted(p.name.split(".")[0] for p in FOLDER.glob("*.onnx.gz"))])
def test_what_is_found(name, tmp_path, monkeypatch):
    monkeypatch.setenv("CFLAGS", "-O1")
    data = gzip.decompress((FOLDER / f"{name}.onnx.gz").read_bytes())
    (tmp_path / "m.onnx").write_bytes(data)
    ours = aotc.compile(tmp_path / "m.onnx", tmp_path / "b", name="m", target="c").load(threads=2)
    theirs, rng = onnxruntime.InferenceSession(data), np.random.default_rng(4)
    for k in range(len(LEAST)):
        feeds = feeds_of(theirs, k, rng)
        got = ours.run(feeds)
        for out, w in zip(theirs.get_outputs(), theirs.run(None, feeds), strict=True):
            assert got[out.name].shape == w.shape, (out.name, k)
            np.testing.assert_allclose(got[out.name], w, rtol=1e-3, atol=1e-3, err_msg=str(k))
