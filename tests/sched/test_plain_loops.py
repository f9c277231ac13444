"""Networks as exporters write them leave little to plain loops, by the estimate profiles use."""

import pytest

from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.sched.model.size import estimate
from benchmarks.exported import images, sequences

SMALL = {"convnext": lambda: images.convnext(14, 32), "conv3d": lambda: images.conv3d(4, 8),
         "regnet": lambda: images.regnet(8, 48), "style_transfer": lambda: images.style_transfer(
             16, 16), "gru_forecaster": lambda: sequences.gru_forecaster(4, 16),
         "recommender": sequences.recommender, "shufflenet": lambda: images.shufflenet(8, 48),
         "shufflenet_v1": lambda: images.shufflenet_v1(8, 240),
         "pixel_mixer": lambda: images.pixel_mixer(12, 16),
         "super_resolution": lambda: images.super_resolution(16, 16),
         "optical_flow": lambda: images.optical_flow(12, 16)}


@pytest.mark.parametrize("name", [
    n if n in ("conv3d", "pixel_mixer", "shufflenet_v1") else
    pytest.param(n, marks=pytest.mark.product) for n in SMALL])
def test_plain_loops_take_little(name):
    plan = run_pipeline(Options(SMALL[name](), target="x86-64-v3", stop_after="plan")).plan
    work = [float(estimate(k.work.flops)) for k in plan.kernels]
    worst = max(w * k.work.plain for w, k in zip(work, plan.kernels))
    assert worst <= 0.05 * sum(work)
