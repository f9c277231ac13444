"""docs/pipeline.md: the spine that a newcomer reads stays short, and what it prints is printed."""

import re
from pathlib import Path

import pytest

from aotc.cli import main

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/pipeline.md").read_text()
MODULES, LINES = 40, 9000


def section(title):
    return PAGE.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def spine():
    """(modules of the spine, modules beside the way), by the table's columns."""
    rows = [line.split("|") for line in section("The spine").splitlines() if line[:1] == "|"][2:]
    return tuple([m for row in rows for m in re.findall(r"`([\w/]+\.py)`", row[column])]
                 for column in (2, 3))


def test_the_spine_is_short():
    modules, _ = spine()
    lines = sum(len((ROOT / "aotc" / m).read_text().splitlines()) for m in modules)
    assert len(modules) == len({*modules}) and 30 <= len(modules) <= MODULES, len(modules)
    assert lines <= LINES, f"{lines} lines"


def test_all_its_modules_are_there():
    modules, beside = spine()
    assert not {*modules} & {*beside}
    assert [m for m in (*modules, *beside) if not (ROOT / "aotc" / m).is_file()] == []


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    """The page's model."""
    folder = tmp_path_factory.mktemp("dense")
    code = re.search(r"```python\n(.*?)```", section("One product, five forms"), re.S).group(1)
    exec(code.replace('"dense.onnx"', f'"{folder}/dense.onnx"'), {})
    return folder / "dense.onnx"


@pytest.mark.parametrize("stage", ["graph", "program", "schedule", "plan", "source"])
def test_a_form_is_printed_as_the_page_has_it(dense, stage, capsys):
    text = section("One product, five forms").split(f" (`{stage}`; ", 1)[1]
    shown = re.search(r"```c?\n(.*?)```", text, re.S).group(1).splitlines()
    assert main(["show", str(dense), stage, "--target", "x86-64-v3"]) == 0
    left = iter(capsys.readouterr().out.splitlines())
    missing = [line for line in shown if line.strip() != ".." and line not in left]
    assert not missing, f"aotc show {stage} prints no more, in this order: {missing}"
