"""How many kernels a call of zoo models starts on GPUs, and how many distinct ones there are: equal
layers share theirs.  Counts, never times."""

import pytest

from aotc.emit.bundle.call_tree import round_fields
from aotc.emit.text.functions import shared_functions
from aotc.options import Options
from aotc.pipeline import run_pipeline

# model -> (launches of a call on sm_90 and on sm_80, distinct kernels), at most
MOST = {"bert_tiny": (31, 31, 13), "bert_base": (111, 111, 13), "vit_base_16": (111, 111, 13),
        "gpt2": (110, 110, 12), "resnet50": (72, 75, 37), "nerf_mlp": (8, 14, 13)}
QUICK, TARGETS = "bert_tiny", ("cuda:sm_90", "cuda:sm_80")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n == QUICK else pytest.mark.zoo)
                                  for n in MOST])
def test_launches_and_distinct_kernels(name, target, zoo_model):
    plan = run_pipeline(Options(zoo_model(name), target=target, stop_after="plan")).plan
    *launches, distinct = MOST[name]
    assert len(plan.kernels) <= launches[TARGETS.index(target)]
    assert len(shared_functions([plan])) <= distinct
    assert not round_fields([plan])["uncaptured"]  # a CUDA graph takes the call


@pytest.mark.zoo
@pytest.mark.parametrize("target, most", [(TARGETS[0], 1), (TARGETS[1], 4)])
def test_layers_that_a_block_holds_are_one_kernel(target, most, zoo_model):
    """A work item has 64 rows of all of them, of which sm_80 has memory for some."""
    plan = run_pipeline(Options(zoo_model("nerf_mlp"), target=target, precision="f16",
                                stop_after="plan")).plan
    assert len(plan.kernels) <= most


@pytest.mark.zoo
@pytest.mark.parametrize("name, most", [("bert_base", 86), ("vit_base_16", 88)])
def test_a_layer_of_halves_starts_seven_kernels(name, most, zoo_model):
    """One of queries, keys and values, one of attention, three products and two norms."""
    plan = run_pipeline(Options(zoo_model(name), target=TARGETS[0], precision="f16",
                                stop_after="plan")).plan
    assert len(plan.kernels) <= most
