"""Networks that see, of any height and width, from both exporters of PyTorch: against ONNX
Runtime."""

import numpy as np
import onnxruntime
import pytest
from frontend_cases import program_of, run
from vision_graphs import GRAPHS, graph, weightless

import aotc

F = np.float32
QUICK = ("detr_dyn", "dinov2_dyn")
FEW = [(64, 96), (96, 64), (60, 92)]
ANY = [(75, 101), (96, 65), (130, 160)]
# by name or network: whole patches, and what an exporter wrote for such sizes only (the newer one
# writes MobileViT for the size of its example alone: it is not here)
SIZES = {"dinov2": [(70, 84), (56, 98), (84, 70)], "yolos": [(64, 96), (96, 64), (128, 160)],
         "swin": [(256, 384), (384, 256), (128, 128)],
         "maskformer": [(256, 384), (384, 256), (128, 128)],
         "mobilevit": [(64, 96), (96, 64), (128, 160)], "vit": [(64, 96), (96, 64), (128, 160)]}
SIZES |= {"rtdetr": SIZES["vit"], "yolo": SIZES["vit"],
          "deformable_dyn": FEW, "rtdetr_dyn": FEW, "dpt": SIZES["dinov2"],
          "depthanything": SIZES["dinov2"], "upernet": [(64, 96), (128, 160), (75, 101)]}


def sizes(name):
    return SIZES.get(name) or SIZES.get(name.rpartition("_")[0], ANY)


def close(got, wanted):
    for g, w in zip(got, wanted, strict=True):
        assert g.shape == w.shape
        np.testing.assert_allclose(g, w, rtol=2e-3, atol=2e-3 * max(1e-3, np.abs(w).max()))


def images(name):
    """(session, name of the input, an image of each size)."""
    session = onnxruntime.InferenceSession(graph(name).SerializeToString())
    rng = np.random.default_rng(3)
    return session, session.get_inputs()[0].name, [
        rng.standard_normal((1, 3, *s)).astype(F) for s in sizes(name)]


@pytest.mark.parametrize("name", [
    n if n in QUICK else pytest.param(n, marks=pytest.mark.product) for n in GRAPHS])
def test_sizes(name):
    session, x, feeds = images(name)
    program = program_of(graph(name))
    for image in feeds:
        wanted = session.run(None, {x: image})
        assert all(np.ptp(w) > 0 for w in wanted)
        close(run(program, {x: image}), wanted)


@pytest.mark.product
@pytest.mark.parametrize("name", [*QUICK, "swin_ts"])
def test_a_bundle_of_all_sizes(name, tmp_path, monkeypatch):
    monkeypatch.setenv("CFLAGS", "-O1")
    session, x, feeds = images(name)
    model = aotc.compile(graph(name), tmp_path / "b", name="net").load(threads=1)
    for image in feeds:
        close(model.run({x: image}).values(), session.run(None, {x: image}))


def test_stored_graphs_have_no_weights():
    for name in GRAPHS[:2]:
        assert len(weightless(graph(name))) < 20_000
