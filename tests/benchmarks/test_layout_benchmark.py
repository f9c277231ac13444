"""The benchmark of layouts: its fixed configurations, what is chosen for them, and its output."""

import json

import onnx
import pytest

from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.target import TARGETS
from benchmarks import layouts
from benchmarks.alt_operators import CHANNELS, KINDS, configurations, fits

TABLE = json.loads(layouts.FILE.read_text())


def test_the_file_is_what_the_seed_gives():
    assert configurations() == TABLE
    assert tuple(TABLE) == KINDS and all(len(v) == 10 for v in TABLE.values())


def test_configurations_are_in_the_published_ranges():
    for kind, found in TABLE.items():
        for c in found:
            assert fits(kind, c)
            assert kind == "GMM" or 1 <= c["batch"] <= 16 and c["ic"] in CHANNELS


def chosen(kind, c, tmp_path):
    """Name of the fixed layout that is aotc's choice."""
    target = TARGETS["x86-64-v4"]
    path = tmp_path / "op.onnx"
    onnx.save(layouts.operator(kind, c)[0], path)
    program = run_pipeline(Options(path, target=target.name, stop_after="inline")).program
    found = layouts.variants(program, target)
    return next(n for n in layouts.FIXED if found[n] == found["aotc"])


@pytest.mark.parametrize("kind,number,name", [
    ("C2D", 0, "nhwc"), ("C2D", 8, "nhwc"), ("GRP", 0, "nchw16c"), ("GRP", 2, "nchw"),
    ("GRP", 5, "nhwc"), ("DEP", 0, "nchw16c"), ("DEP", 4, "nhwc"), ("C3D", 2, "nhwc"),
    ("C1D", 0, "nhwc"), ("GMM", 0, "nhwc"), ("T2D", 0, "nhwc"), ("T3D", 0, "nhwc")])
def test_choices_follow_the_structure(kind, number, name, tmp_path):
    assert chosen(kind, TABLE[kind][number], tmp_path) == name


def test_an_operator_is_measured_and_written(tmp_path, capsys):
    path = tmp_path / "r.json"
    assert layouts.main(["GMM", "--count", "1", "--seconds", "0.01", "--json", str(path)]) == 0
    row, = json.loads(path.read_text())["results"]
    assert set(row["ms"]) == {*layouts.FIXED, "aotc"} and row["choice"] in layouts.FIXED
    assert all(t > 0 for t in row["ms"].values())
    assert "GMM: to the best of each" in capsys.readouterr().out


def test_summary_counts_what_is_slower():
    rows = [{"operator": "C2D", "ms": {"aotc": a, "nchw": 2.0, "nhwc": 1.0, "nchw16c": 4.0}}
            for a in (1.0, 1.1)]
    lines = list(layouts.summary(rows))
    assert "worst 1.10, above 1.05: 1 of 2" in lines[0] and "to nchw 0.524" in lines[1]
