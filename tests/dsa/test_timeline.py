"""The model of when everything happens: its events are those of the simulator, to the byte."""

import os
from xml.etree import ElementTree

import numpy as np
import pytest
from core_traces import expected_trace, read_trace
from harness import INFO
from small_models import conv_stack, dense, running_sum
from te_programs import random_feeds
from te_random import random_program

import aotc
from aotc.cli import main
from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.write import write_bundle
from aotc.errors import UnsupportedError
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.samples import random_inputs
from aotc.sched import decide, lower
from aotc.sched.accelerator.clock.cycles import timeline
from aotc.sched.accelerator.clock.item_events import COMPUTE
from aotc.target import get_target
from aotc.tools.engine_times import lines as lines_of
from aotc.tools.engine_times import picture

TARGET = get_target("dsa:stcp920")


def traced(model, folder, monkeypatch):
    """(Plan, lines of the simulator's trace without the kernels' names) of one call."""
    work = run_pipeline(Options(model.SerializeToString(), folder / "b", TARGET.name, "m"))
    loaded = aotc.load(folder / "b")
    monkeypatch.setenv("AOTC_DSA_TRACE", os.fspath(folder / "trace"))
    loaded.run(random_inputs(work.program, {}, 0))
    lines = (folder / "trace").read_text().splitlines()
    return work.plans.main.plan, [tuple(line.split()[1:]) for line in lines]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with pytest.MonkeyPatch.context() as monkeypatch:
        return traced(conv_stack(16), tmp_path_factory.mktemp("traced"), monkeypatch)


def test_events_are_those_of_the_simulator(run):
    plan, lines = run
    assert len(lines) > 20 and lines == expected_trace(plan, TARGET)
    stored = [int(x[5]) for x in lines if x[3] == COMPUTE]
    assert stored and min(stored) > 0
    assert timeline(plan, TARGET.machine, {}).moved(COMPUTE) == sum(stored)


@pytest.mark.product
@pytest.mark.parametrize("seed", [205, 212])
def test_events_of_random_programs_are_those_of_the_simulator(seed, tmp_path, monkeypatch):
    """212 has library calls, which no core runs."""
    program = random_program(seed)
    assert not program.syms
    s = decide(program, TARGET)
    plan = lower(program, s, TARGET)
    write_bundle(render_bundle(plan, s, INFO), tmp_path / "b")
    monkeypatch.setenv("AOTC_DSA_TRACE", os.fspath(tmp_path / "trace"))
    aotc.load(tmp_path / "b").run(random_feeds(program, np.random.default_rng(), {}))
    assert read_trace(tmp_path / "trace") == expected_trace(plan, TARGET)


def test_bytes_and_order_make_the_time(run):
    plan, lines = run
    found = timeline(plan, TARGET.machine, {})
    for engine in ("load", "store"):
        assert found.moved(engine) == sum(int(x[5]) for x in lines if x[3] == engine) > 0
    assert 0 < found.busy("load") <= 1 and list(found.ends) == sorted(found.ends)
    assert all(s.start <= s.end <= found.seconds + 1e-12 for s in found.spans)
    # nothing is faster than its bytes through the outermost memory
    assert found.seconds > (found.moved("load") + found.moved("store")) / (
        TARGET.machine.memory.bandwidth)


def test_an_engine_does_one_thing_at_a_time(run):
    plan, _ = run
    last = {}
    for s in timeline(plan, TARGET.machine, {}).spans:
        at = s.what, s.worker
        assert s.start >= last.get(at, 0.0) - 1e-12
        last[at] = s.end


def test_the_picture_and_the_text_say_the_same(run):
    plan, _ = run
    found = timeline(plan, TARGET.machine, {})
    text = "\n".join(lines_of(found, TARGET.machine))
    assert f"{found.moved('load')} bytes" in text and f"{len(found.ends)} kernels" in text
    root = ElementTree.fromstring(picture(found, TARGET.machine, "a <b> & c"))
    drawn = [r for r in root.iter() if r.tag.endswith("rect")]
    assert len(drawn) > 3 + len(found.ends)
    assert all(float(r.get("x", 0)) >= 0 and float(r.get("x", 0)) + float(r.get("width")) <= 1000.1
               for r in drawn)


def test_the_command_writes_a_picture(tmp_path, capsys):
    path = tmp_path / "m.onnx"
    path.write_bytes(dense(rows=40).SerializeToString())
    assert main(["show", str(path), "timeline", "--target", TARGET.name, "-o",
                 str(tmp_path / "t.svg")]) == 0
    assert "load DDR -> LB" in capsys.readouterr().out and (tmp_path / "t.svg").stat().st_size
    assert main(["show", str(path), "timeline", "--target", "c"]) != 0
    assert "no engines" in capsys.readouterr().err


def test_rounds_that_data_decides_have_no_timeline():
    work = run_pipeline(Options(running_sum().SerializeToString(), None, TARGET.name, "m",
                                stop_after="plan"))
    with pytest.raises(UnsupportedError, match="has regions"):
        timeline(work.plans.main.plan, TARGET.machine, {"t": 3})
