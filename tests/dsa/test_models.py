"""Models from ONNX to the simulated accelerator."""

from pathlib import Path

import pytest
from small_models import conv_stack, dense, embedding, fire_stack, running_sum, together, u_net

from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.tools.verify import verify

MODELS = {
    "images": lambda: conv_stack(16),
    "images, smaller and larger": lambda: u_net(8),
    "rows": lambda: together([dense(), embedding()]),
    "rounds": running_sum,
    "work items that have nothing of one of two parts": fire_stack,
}


@pytest.mark.parametrize("name", [
    pytest.param(n, marks=pytest.mark.product if "," in n else ()) for n in MODELS])
def test_a_model_is_right_on_the_accelerator(name, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(MODELS[name]().SerializeToString())
    matches = verify(path, "dsa:stcp920", report=lambda line: None)
    assert matches and all(m.ok for _, m in matches), matches


def test_tiles_for_what_stays_with_workers_part_what_other_stages_store():
    """A product is stored beside what reads it at places that data says, all of it in every tile:
    a tensor behind these must not have their axis cut.  (A random graph.)"""
    model = Path(__file__).with_name("held_tiles.onnx")
    work = run_pipeline(Options(model, target="dsa:stcp920", stop_after="plan"))
    assert work.refused is None and len(work.plan.kernels) > 1
