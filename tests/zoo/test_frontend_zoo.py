"""Real models become well-formed Programs, quickly."""

import json

import pytest
from frontend_cases import program_of
from zoo_files import zoo_folder

from aotc.frontend import load_model

QUICK = ("bert_tiny", "squeezenet1_1", "mobilenet_v2", "dlrm", "dense_dynamic")
NAMES = sorted(p.name.split(".")[0] for p in zoo_folder().glob("*.json"))


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.zoo)
                                  for n in NAMES])
def test_model_becomes_a_program(zoo_model, name):
    path = zoo_model(name)
    model = load_model(path)
    program = program_of(model)
    meta = json.loads((zoo_folder() / f"{name}.json").read_text())
    assert len(program.inputs) == len(meta["inputs"])
    assert len(program.outputs) == len(meta["outputs"])
