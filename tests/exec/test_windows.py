"""Attention in windows of an image of free height and width, padded to whole windows and rolled:
against ONNX Runtime."""

import numpy as np
import onnxruntime
import pytest
from frontend_cases import program_of, run

import aotc
from aotc.ir.expr import Binary, Const, Load, walk
from benchmarks.overlooked import windows

# (h, w): the least, below a window, whole ones, ragged
SIZES = [(1, 1), (5, 2), (7, 14), (13, 20), (22, 8)]


def cases():
    """(model, (feeds, results) of every size)."""
    model, _ = windows(width=12)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    rng, found = np.random.default_rng(5), []
    for h, w in SIZES:
        feeds = {"x": rng.standard_normal((1, h, w, 12)).astype(np.float32)}
        found.append((feeds, session.run(None, feeds)))
    return model, found


def test_windows_of_any_image():
    model, found = cases()
    program = program_of(model)
    assert not program.checks  # whole windows are known to be whole
    for feeds, wanted in found:
        np.testing.assert_allclose(run(program, feeds)[0], wanted[0], rtol=1e-4, atol=1e-4)


def test_an_image_is_cut_by_constants():
    """Only the number of a window is divided by how many there are side by side."""
    model, _ = windows(width=12)
    for step in program_of(model).steps:
        reads = [i for n in walk(step.body) if isinstance(n, Load) for i in n.index]
        divisors = [n for n in walk(*reads) if isinstance(n, Binary) and n.op in (
            "floordiv", "mod") and not isinstance(n.b, Const)]
        assert all(n.a == step.axes[0] for n in divisors), step.outs


@pytest.mark.product
def test_a_bundle_of_all_images(tmp_path, monkeypatch):
    monkeypatch.setenv("CFLAGS", "-O1")
    model, found = cases()
    loaded = aotc.compile(model, tmp_path / "b", name="net").load(threads=2)
    for feeds, wanted in found:
        np.testing.assert_allclose(*loaded.run(feeds).values(), wanted[0], rtol=1e-4, atol=1e-4)
