"""JSON that is damaged, as users' files are: an answer or one clear error (``run_json``)."""

import argparse
import json

import pytest
import run_json

from aotc.cli_values import fixed_of, list_of
from aotc.errors import AotcError, ScheduleError
from aotc.ir.schedule import Schedule
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.runtime.compile_bundle import read_manifest
from aotc.runtime.manifest_form import manifest_fault
from aotc.target import TARGETS
from aotc.target.machine_file import with_machine


def test_damaged_json_is_an_answer_or_one_error():
    found = list(run_json.findings(seed=7, seconds=60, most=100))
    assert not found, found


def test_brackets_without_end_are_one_error(tmp_path):
    deep = "[" * run_json.DEEP
    for read in (fixed_of, list_of):
        with pytest.raises(argparse.ArgumentTypeError) as err:
            read(f"x={deep}")
        assert len(str(err.value)) < 300
    (tmp_path / "manifest.json").write_text(f'{{"aotc_bundle":{deep}')
    with pytest.raises(AotcError, match="nested too deep"):
        read_manifest(tmp_path)
    with pytest.raises(ScheduleError, match="nested too deep"):
        Schedule.from_json(deep)
    with pytest.raises(ScheduleError, match="nested too deep"):
        with_machine(TARGETS["c"], deep)


@pytest.mark.parametrize("text,said", [
    ('{"target": "x86-64-v3", "machine": {"memories": [7]}}', r"memories\[0\]: 7 is no object"),
    ('{"target": "x86-64-v3", "machine": 7}', "machine: 7 is no object"),
    ('{"target": "x86-64-v3", "machine": {"memories": 7}}', "memories: 7 is no list"),
    ('{"target": "x86-64-v3", "machine": {"clusters": 4, "workers": 8}}', "of another kind"),
    ('{"target": "dsa:stcp920", "machine": {"workers": 2}}', "no multiple of 4 clusters"),
    ('{"target": "dsa:stcp920", "machine": {"units": []}}', "units: a machine of another kind"),
])
def test_machine_files_of_another_shape_or_kind_are_refused(text, said):
    name = text.split('"')[3]
    with pytest.raises(ScheduleError, match=said):
        with_machine(TARGETS[name], text)


def test_schedules_that_say_a_thing_twice_or_in_another_form_are_refused():
    decided = run_pipeline(Options(run_json.MODEL, target="x86-64-v1", stop_after="schedule"))
    value = json.loads(decided.schedule.to_json())
    group = next(g for g in value["groups"] if g.get("parallel"))
    axis = group["parallel"][0]
    group["parallel"] = [axis, axis]
    with pytest.raises(ScheduleError, match=f"parallel names '{axis}' 2 times; name an axis once"):
        run_pipeline(Options(run_json.MODEL, target="x86-64-v1", stop_after="plan",
                             schedule=Schedule.from_json(json.dumps(value))))
    del group["parallel"]
    for item in ([{"a": 1}, "c", {}], ["layout", ["c"], {}], ["layout", "c", True]):
        value["rewrites"] = [item]
        with pytest.raises(ScheduleError, match="an item is .rule, compute, parameters"):
            run_pipeline(Options(run_json.MODEL, target="x86-64-v1", stop_after="plan",
                                 schedule=Schedule.from_json(json.dumps(value))))


def test_a_manifest_says_what_of_it_is_damaged(tmp_path):
    run_pipeline(Options(run_json.MODEL, tmp_path / "b", target="c", name="net"))
    good = read_manifest(tmp_path / "b")
    assert manifest_fault(good) == ""
    for key, value, said in (("files", {"x": 7}, "files.x: '7'"), ("inputs", {}, "is no list"),
                             ("name", "../x", "no bundle is called"), ("variants", [], "no bundle"),
                             ("weights", "none", "weights: 'none'")):
        assert said in manifest_fault({**good, key: value})
    assert manifest_fault({k: v for k, v in good.items() if k != "build"}).endswith("no 'build'")
