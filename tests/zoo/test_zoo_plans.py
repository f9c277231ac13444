"""The statements of whole models' Plans, executed: small images and short texts, all layers."""

import numpy as np
import onnx
import pytest
from te_programs import random_feeds
from zoo_plans import TARGET

from aotc.options import Options
from aotc.oracle.evaluate import evaluate
from aotc.oracle.run_plan import run_plan
from aotc.pipeline import run_pipeline

IMAGES = {"mobilenet_v2": 32, "squeezenet1_1": 48, "nafnet": 16, "unet": 16}
TEXTS = {"bert_small_dyn": {"batch": 2, "seq": 3}, "dense_dynamic": {"M": 5}, "bert_tiny": {},
         "dlrm": {}}


def _image(path, pixels):
    """The model for images of so many rows and columns."""
    model = onnx.load(path)
    for value in (*model.graph.input, *model.graph.output):
        dims = value.type.tensor_type.shape.dim
        if len(dims) == 4 and value in model.graph.input:
            dims[2].dim_value = dims[3].dim_value = pixels
        elif len(dims) == 4:
            dims[2].dim_param, dims[3].dim_param = "rows", "columns"
    del model.graph.value_info[:]
    return model


@pytest.mark.zoo
@pytest.mark.parametrize("name", [*IMAGES, *TEXTS])
def test_every_statement_means_what_the_model_says(zoo_model, name):
    path = zoo_model(name)
    model = _image(path, IMAGES[name]) if name in IMAGES else path
    work = run_pipeline(Options(model, target=TARGET, stop_after="plan"))
    syms = TEXTS.get(name, {})
    feeds = random_feeds(work.program, np.random.default_rng(), syms)
    want = evaluate(work.program, feeds, syms)
    for name, got in run_plan(work.plan, feeds, syms).items():
        scale = np.abs(want[name]).max()
        np.testing.assert_allclose(got, want[name], rtol=0, atol=1e-4 * scale, err_msg=name)
