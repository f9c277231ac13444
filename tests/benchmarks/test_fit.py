"""Fitting works and writes a machine file that a compile takes; no number is asserted."""

import os

import pytest
from small_models import conv_stack

from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.target import get_target
from aotc.target.machine_file import with_machine
from aotc.target.tuning import Tuning
from benchmarks import fit


@pytest.fixture
def own_cpus():
    """The script binds the process to a CPU; others run on."""
    before = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, before)


def test_what_is_measured_goes_into_a_machine_file(own_cpus, tmp_path, capsys):
    out = tmp_path / "m.json"
    assert fit.main(["-o", str(out), "--seconds", "0.05"]) == 0
    assert "op_cost.exp" in capsys.readouterr().out
    native = get_target("native")
    t = with_machine(native, out.read_text()).tuning
    assert t.other_flops > 0 and set(t.op_cost) == set(Tuning().op_cost)
    assert all(n >= 1 for n in t.op_cost.values())
    work = run_pipeline(Options(conv_stack(8), target=native.name, machine=out,
                                stop_after="schedule"))
    assert work.target.tuning == t
    assert fit.main(["--machine", str(out), "--seconds", "0.01"]) == 0


def test_costs_are_beside_an_addition_and_noise_changes_nothing():
    per = fit.POINTS * fit.STEPS
    found = {"base": 1e-6, "sums": 1e-6 + 2 * per * 2e-12, "exp": 1e-6 + per * 50e-12, "log": 5e-7}
    t = fit.fitted(Tuning(), 1e11, found)
    assert t.other_flops == 0.2 and t.op_cost == Tuning().op_cost | {"exp": 25}
    assert fit.fitted(Tuning(), 1e11, found | {"sums": 5e-7}) == Tuning()
