"""Models from ONNX to the simulated accelerator."""

import pytest
from small_models import conv_stack, dense, embedding, fire_stack, running_sum, together, u_net

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
