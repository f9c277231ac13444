"""Numbers that were fitted to machines: each with its unit and origin, and what a file may set."""

import json
from dataclasses import fields, replace

import pytest
from product_models import convnet
from small_models import conv_stack

from aotc.errors import ScheduleError
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.target import TARGETS, get_target
from aotc.target.machine_file import machine_json, with_machine
from aotc.target.tuning import Tuning

V3 = get_target("x86-64-v3")


def file_with(tuning):
    data = json.loads(machine_json(V3))
    data["machine"]["tuning"] = tuning
    return json.dumps(data)


def test_every_field_says_what_it_is_its_unit_and_its_origin():
    found = [f.metadata for f in fields(Tuning)]
    assert len(found) > 40
    assert all(len(m[k]) > 3 for m in found for k in ("about", "unit", "origin")), found
    assert all(t.tuning is t.machine.tuning for t in TARGETS.values())


def test_a_machine_file_sets_fields_and_leaves_the_others():
    assert json.loads(machine_json(V3))["machine"]["tuning"] == {}
    new = with_machine(V3, file_with({"wave": 1, "op_cost": {"exp": 3}, "fetch_rows": 0,
                                      "winograd_transform": {"4": 1}}))
    t = new.tuning
    assert t == replace(Tuning(), wave=1.0, fetch_rows=0,
                        op_cost={**Tuning().op_cost, "exp": 3},
                        winograd_transform={2: 13, 4: 1, 6: 67})
    assert isinstance(t.wave, float)
    assert with_machine(V3, machine_json(new)) == new and new != V3


@pytest.mark.parametrize("tuning, why", [
    ([], "tuning: expected an object, got list"),
    ({"waves": 1}, "tuning.waves; there are line, page, wave, other_flops"),
    ({"wave": "1"}, "tuning.wave: '1'; choose a number from 0 on"),
    ({"wave": True}, "tuning.wave: True"), ({"pressure": -1}, "tuning.pressure: -1; choose"),
    ({"page": 0}, "tuning.page: 0; choose an integer from 64 on"),
    ({"line": 64.5}, "tuning.line: 64.5; choose an integer from 16 on"),
    ({"op_cost": 3}, "tuning.op_cost: expected an object of exp, log"),
    ({"op_cost": {"add": 3}}, "tuning.op_cost.add; there are exp, log"),
    ({"op_cost": {"exp": []}}, r"tuning.op_cost.exp: \[\]"),
    ({"winograd_transform": {"3": 1}}, "tuning.winograd_transform.3; there are 2, 4, 6"),
    ({"slack": float("nan")}, "tuning.slack: nan"),
    ({"fetch_tiles": 65}, "tuning.fetch_tiles: 65; choose an integer from 0 to 64"),
    ({"lookup_lines": 1 << 20}, "lookup_lines: 1048576; choose an integer from 1 to 1024"),
    ({"columns_most": 17}, "from 2 to 16"), ({"narrow_rate": 0}, "a number from 0.01 on")])
def test_a_wrong_field_is_named_with_what_is_right(tuning, why):
    with pytest.raises(ScheduleError, match=why):
        with_machine(V3, file_with(tuning))


def test_what_a_file_does_not_say_stays():
    short = {"target": V3.name, "machine": {"tuning": {"wave": 0.25}, "workers": 3}}
    new = with_machine(V3, json.dumps(short))
    assert new == replace(V3, machine=replace(V3.machine, workers=3,
                                              tuning=replace(Tuning(), wave=0.25)))
    gpu = get_target("cuda:sm_90")
    again = with_machine(gpu, json.dumps({"target": gpu.name, "machine": {}}))
    assert again == gpu


def kernels(model, tmp_path, tuning):
    path = tmp_path / "machine.json"
    path.write_text(file_with(tuning))
    return run_pipeline(Options(model, target=V3.name, machine=path, stop_after="plan")).plan


def test_what_a_file_sets_decides(tmp_path):
    usual = kernels(convnet(), tmp_path, {})
    assert len(kernels(convnet(), tmp_path, {"merge_gain": 10.0, "slack": 0.0}).kernels) > len(
        usual.kernels)


def end(f, of):
    """The ``least`` or the ``most`` that a field may be; what it is where there is no most."""
    now = getattr(Tuning(), f.name)
    if isinstance(now, dict):
        return {str(k): 0 if of == "least" else n for k, n in now.items()}
    return now if f.metadata[of] == float("inf") else f.metadata[of]


@pytest.mark.parametrize("of", ["least", "most"])
@pytest.mark.parametrize("field", ["all", *(
    pytest.param(f.name, marks=pytest.mark.product) for f in fields(Tuning))])
def test_the_least_and_the_largest_values_compile(field, of, tmp_path):
    values = {f.name: end(f, of) for f in fields(Tuning) if field in ("all", f.name)}
    for model in (conv_stack(8), convnet()):
        assert kernels(model, tmp_path, values).kernels
