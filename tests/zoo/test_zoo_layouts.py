"""No tensor of a residual network or a transformer changes its order between two kernels."""

import pytest
from zoo_plans import TARGET, planned

from aotc.sched.report.layout_report import layout_report
from aotc.target import TARGETS

SMALL = ("bert_tiny", "squeezenet1_1")
OTHERS = ("bert_small", "bert_base", "bert_small_dyn", "gpt2", "gpt2_dyn", "vit_base_16",
          "resnet18", "resnet50", "resnet3d18", "mobilenet_v2", "vgg16", "unet", "densenet121",
          "swin_tiny")


@pytest.mark.parametrize("name", [
    *SMALL, *(pytest.param(n, marks=pytest.mark.zoo) for n in OTHERS)])
def test_conversions_only_at_inputs_and_outputs(zoo_model, name):
    work = planned(zoo_model(name))
    found = layout_report(work.program, work.schedule, TARGETS[TARGET])
    assert found.between() == ()
    ends = [c for c in found.conversions if c.kind in ("move", "inside")]
    assert len(ends) <= 1 and all(c.at == "input" for c in ends)
