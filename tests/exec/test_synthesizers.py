"""Synthesizers of speech as both exporters of PyTorch write them: text becomes frames by durations
that are data, frames become samples by transposed convolutions.  ``synthesizers/write.py`` wrote
the models, with random weights, and PyTorch's own answers."""

import gzip
from pathlib import Path

import numpy as np
import onnx
import pytest

import aotc
from aotc.errors import UnsupportedError
from aotc.runtime.status import ShapeError

FOLDER = Path(__file__).parent / "synthesizers"
LENGTHS = (1, 5, 9, 12)  # of texts; the last has as many frames as the bound
# the node that frames come from, of either exporter; samples of a frame
FRAMES = {"vits": ("/Range_1", "node_arange_1", 8), "fastspeech": ("/Loop", "node_Range_17", 1),
          "kokoro": ("/Loop", "node_Range_23", 16), "jets": ("/Range", "node_arange", 8)}
NAMES = [pytest.param(f"{name}_{writer}", marks=() if (name, writer) in (
    ("jets", "dynamo"), ("fastspeech", "legacy")) else pytest.mark.product)
    for name in FRAMES for writer in ("legacy", "dynamo")]


def model_of(title):
    return onnx.load_model_from_string(gzip.decompress(
        (FOLDER / f"{title}.onnx.gz").read_bytes()))


@pytest.mark.parametrize("title", NAMES)
def test_as_pytorch_has_it(tmp_path, title):
    """At any length, up to as many frames as the bound says; one more is a fault."""
    name, writer = title.split("_")
    *nodes, samples = FRAMES[name]
    node = nodes[writer == "dynamo"]
    with np.load(FOLDER / "answers.npz") as answers:
        want = {n: answers[f"{title} {n} y"] for n in LENGTHS}
        feeds = {n: {k: answers[f"{name} {n} {k}"] for k in ("ids", "lengths", "noise", "style")
                     if f"{name} {n} {k}" in answers} for n in LENGTHS}
    axis = 1 if name == "fastspeech" else 2
    most = max(y.shape[axis] for y in want.values()) // samples
    bound = {node: most}
    ours = aotc.compile(model_of(title), tmp_path / "b", name="m", target="c",
                        bound=bound).load(threads=1)
    for n in LENGTHS:
        (got,) = ours.run(feeds[n]).values()
        assert got.shape == want[n].shape, n
        np.testing.assert_allclose(got, want[n], atol=2e-6 * max(1, np.ptp(want[n])),
                                   err_msg=str(n))
    long = {**feeds[12], "ids": np.tile(feeds[12]["ids"], 2)}
    if "lengths" in long:
        long["lengths"] = np.array([24])
    with pytest.raises(ShapeError, match="at most"):
        ours.run(long)


def test_a_bound_is_asked_for(tmp_path):
    with pytest.raises(UnsupportedError, match="--bound '/Range_1'=1000"):
        aotc.compile(model_of("vits_legacy"), tmp_path / "b", target="c")
    assert not (tmp_path / "b").exists()
