"""The last rows of a product whose number is a symbol: tiles of fewer rows, right for all."""

import numpy as np
import onnxruntime
import pytest

from aotc import compile as compile_model
from aotc import load
from aotc.ir.statements import walk_body
from aotc.ir.tile_statements import Tile
from aotc.options import Options
from aotc.pipeline import run_pipeline
from benchmarks.exported.build import Writer

LONG, SHORT = 300, 20  # sums left in memory by a micro-kernel, and written out where they are used


def products():
    """A product of long sums, one of short sums, a window of several taps."""
    g = Writer("products", 3)
    x = g.input("x", ["n", LONG])
    y = g.op("Relu", g.op("Gemm", x, g.weight(LONG, SHORT), g.weight(SHORT)))
    y = g.op("Gemm", y, g.weight(SHORT, 70), g.weight(70))
    image = g.input("image", [1, 8, "n", 3])
    return g.model(y, g.op("Conv", image, g.weight(33, 8, 3, 3), pads=[1] * 4))


def tiles(dims, target="x86-64-v3"):
    work = run_pipeline(Options(products(), target=target, dims=dims, winograd="off",
                                stop_after="plan"))
    return [s for k in work.plan.kernels for s in walk_body(k.body) if isinstance(s, Tile)]


@pytest.mark.parametrize("target", ["c", "x86-64-v3", "native"])
def test_every_number_of_rows(target, tmp_path):
    model = products()
    compile_model(model, tmp_path / "b", target=target, dims={"n": (1, 40)}, winograd="off")
    ours = load(tmp_path / "b")
    theirs = onnxruntime.InferenceSession(model.SerializeToString())
    rng = np.random.default_rng()
    for n in (*range(1, 18), 25, 27, 28, 40):
        feeds = {"x": rng.standard_normal((n, LONG)), "image": rng.standard_normal((1, 8, n, 3))}
        feeds = {k: v.astype(np.float32) for k, v in feeds.items()}
        for mine, right in zip(ours.run(feeds).values(), theirs.run(None, feeds)):
            np.testing.assert_allclose(mine, right, rtol=1e-4, atol=1e-4, err_msg=str(n))


def test_tails_are_for_numbers_that_are_not_known():
    free = tiles({"n": (1, 40)})
    assert {t.live for t in free if t.in_place} >= {0, 3}
    assert {t.live for t in free if not t.in_place} >= {0, 1, 2}
    assert not any(t.live for t in tiles({"n": 13}))


def test_one_row_alone():
    for least, wanted in ((1, True), (2, False)):
        found = {t.live for t in tiles({"n": (least, 40)}, "x86-64-v4") if t.in_place}
        assert found > {0} and (1 in found) == wanted
