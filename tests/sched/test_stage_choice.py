"""The record of what is chosen of a stage: its fields say all that others know of a choice."""

import ast
import json
from dataclasses import replace
from pathlib import Path

import pytest
from schedule_cases import GOOD

from aotc.errors import ScheduleError
from aotc.ir.schedule import Group, Schedule
from aotc.ir.stage_choice import (
    ALL,
    ANY,
    FIELDS,
    LOOPS,
    TABLES,
    TEXTS,
    UNSAID,
    StageChoice,
    show_legal,
)
from aotc.sched.check.choices import FACTS
from aotc.target import TARGETS
from aotc.tuner.space.knobs import TRIES, WHERE

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/add-a-choice.md"
HEAD = "| choice | values | rows | what it chooses |\n|---|---|---|---|\n"


def table():
    lines = []
    for name, f in FIELDS.items():
        n = f.metadata
        legal = n["legal"] if isinstance(n["legal"], str) else show_legal(n["legal"])
        rows, shared = ({ALL: "all but `loops`", ANY: "all"}.get(x, ", ".join(x))
                        for x in (n["rows"], n["shared"]))
        rows = rows if rows == shared or not shared else f"{rows} / {shared}".lstrip()
        label = f"`{name}`" if n["table"] == "loops" else f"`{name}` (of `{n['table']}`)"
        lines.append(f"| {label} | {legal} | {rows} | {n['about']} |\n")
    return HEAD + "".join(lines)


def test_the_page_has_every_choice(request):
    text = PAGE.read_text()
    begin = text.find(HEAD) if HEAD in text else len(text)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(text[:begin] + table())
        return
    assert text[begin:] == table(), "pytest tests/sched/test_stage_choice.py --update-golden"


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_says_what_is_known_of_its_choice(name):
    notes = FIELDS[name].metadata
    categories = {u.category for t in TARGETS.values() for u in t.ukernels}
    assert notes["about"] and notes["table"] in TABLES
    assert {*notes["rows"], *notes["shared"]} <= categories and (notes["rows"] or notes["shared"])
    assert notes["needs"] in FACTS and notes["where"] in WHERE
    assert notes["tries"] in {"", *TRIES} and (name not in TEXTS or notes["tries"])
    assert (name in TEXTS) == (getattr(UNSAID, name) is None)


def test_what_is_left_out_is_not_said():
    choice = StageChoice("row", "n", order="rows", apart=0)
    assert choice.said == {"lanes": "n", "order": "rows", "apart": 0}
    assert choice.text == StageChoice(order="rows", apart=0)
    assert choice.bare == StageChoice("row", "n") and not UNSAID.said
    assert repr(choice) == "StageChoice('row', lanes='n', order='rows', apart=0)"


def test_json_has_tables_of_stages():
    """As they were before there was a record: files of earlier versions are read."""
    group = Group("g", ("a", "b"), ("b",), "b", {"a": "L1"}, choices={
        "a": StageChoice("loops", reuse="slide"),
        "b": StageChoice("row", "n", "k", "rows", "panel", order="rows", split={"k": 8})})
    text = Schedule("c", (group,)).to_json()
    data, = json.loads(text)["groups"]
    assert {k: data[k] for k in TABLES} == {
        "ukernel": {"a": "loops", "b": "row"}, "split": {"b": {"k": 8}}, "reuse": {"a": "slide"},
        "loops": {"a": {}, "b": {"lanes": "n", "k": "k", "a": "rows", "b": "panel",
                                 "order": "rows"}}}
    again = Schedule.from_json(text)
    assert again.groups == (group,) and again.to_json() == text


@pytest.mark.parametrize("edit, fault", [
    ({"lane": "j"}, "loops[a]: no choice is named 'lane'; there are lanes, k, a, b, block"),
    ({"order": 2.5}, "loops[a].order: expected a name or an integer, got float"),
    ({"order": None}, "loops[a].order: expected a name or an integer, got NoneType")])
def test_json_of_other_choices_is_refused(edit, fault):
    data = json.loads(GOOD.to_json())
    data["groups"][0]["loops"]["a"] |= edit
    with pytest.raises(ScheduleError) as err:
        Schedule.from_json(json.dumps(data))
    assert any(fault in f for f in err.value.faults), err.value.faults


def test_groups_tell_and_change_what_stages_say():
    group = Group("g", ("a", "b"), ("b",), "b", choices={"a": StageChoice("r", split={"k": 2}),
                                                         "b": StageChoice("s", reuse="slide")})
    assert group.rows == {"a": "r", "b": "s"} and group.choice("c") is UNSAID
    assert group.with_splits({"b": {"k": 4}}).splits == {"b": {"k": 4}}
    assert group.with_reuses({}).reuses == {} and group.with_splits(group.splits) is group
    wide = group.saying(lambda c: replace(c, columns=2))
    assert all(c.columns == 2 for c in wide.choices.values()) and wide.bare == group
    assert set(LOOPS) > set(TEXTS)


def test_expanding_decides_nothing():
    """What is worth writing out or fetching is said in the Schedule: of all that was fitted to a
    machine, expanding stages needs the size of a line."""
    read = {(p.name, n.attr) for p in (ROOT / "aotc/sched/expand").glob("*.py")
            for n in ast.walk(ast.parse(p.read_text())) if isinstance(n, ast.Attribute)
            and getattr(n.value, "id", getattr(n.value, "attr", "")) == "tuning"}
    assert read == {("expand_stages.py", "line_floats")}
