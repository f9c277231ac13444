"""GPUs that a user decides for by name."""

from dataclasses import replace

import pytest
from small_models import dense

from aotc.api import compile as compile_model
from aotc.cli import main
from aotc.errors import ScheduleError, UnsupportedError
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.target import TARGETS, get_target
from aotc.target.gpus import GPUS, block_bytes
from aotc.target.named_machines import choose_machine, runs_on

KIB = 1 << 10


@pytest.mark.parametrize("name", GPUS)
def test_a_gpu_has_its_own_figures_and_blocks_that_its_code_may_have(name):
    gpu, own = GPUS[name], TARGETS.get(f"cuda:sm_{GPUS[name].capability}")
    assert choose_machine(own or get_target("cuda"), name).machine.workers == gpu.machine.workers
    if own is not None:
        assert choose_machine(own, name).machine == gpu.machine
        assert own.machine.near == gpu.machine.near
    anywhere = choose_machine(get_target("cuda"), name)
    assert anywhere.machine.near.capacity == 99 * KIB
    assert replace(anywhere, machine=get_target("cuda").machine) == get_target("cuda")
    near, tuning = gpu.machine.near, gpu.machine.tuning
    assert near.capacity == block_bytes(f"sm_{gpu.capability}")
    assert near.capacity + tuning.block_reserved <= tuning.worker_shared


def test_figures_that_were_measured():
    rates = {n: GPUS[n].machine.memory.bandwidth for n in ("h100", "h200")}
    assert rates == {"h100": 3.0e12, "h200": 4.3e12}
    assert get_target("cuda:sm_90").machine == GPUS["h100"].machine


@pytest.mark.parametrize("target, capabilities", [
    ("cuda", (80, 86, 87, 89, 90, 120)), ("cuda:sm_80", (80, 86, 87, 89)),
    ("cuda:sm_86", (86, 87, 89)), ("cuda:sm_87", (87, 89)), ("cuda:sm_89", (89,)),
    ("cuda:sm_90", (90,)), ("cuda:sm_120", (120,)), ("c", ())])
def test_code_runs_on_later_gpus_of_its_major_version_and_ptx_on_all(target, capabilities):
    assert tuple(n for n in (80, 86, 87, 89, 90, 120)
                 if runs_on(get_target(target), n)) == capabilities


@pytest.mark.parametrize("target, name", [
    ("cuda:sm_90", "a100"), ("cuda:sm_80", "h100"), ("x86-64-v3", "h100"), ("dsa:stcp920", "l4")])
def test_a_gpu_that_does_not_run_the_code_is_refused(target, name, tmp_path):
    with pytest.raises(UnsupportedError, match=f"machine {name} .*code of target {target} does not "
                                               f"run there; choose --target cuda:sm_"):
        compile_model(dense(), tmp_path / "out", target=target, machine=name)
    assert not (tmp_path / "out").exists()


def test_a_name_that_is_none_is_a_file_that_is_missing():
    with pytest.raises(ScheduleError, match="file h101: cannot be read.*GPUs by name: a100"):
        choose_machine(get_target("cuda"), "h101")


def test_a_file_may_have_the_name_of_a_gpu(tmp_path, monkeypatch):
    (tmp_path / "h100").write_text('{"target": "cuda", "machine": {"workers": 7}}')
    monkeypatch.chdir(tmp_path)
    assert choose_machine(get_target("cuda"), "./h100").machine.workers == 7
    assert choose_machine(get_target("cuda"), "h100").machine.workers == 132


def test_the_plan_is_for_the_named_gpu():
    works = [run_pipeline(Options(dense(), target="cuda", machine=name, stop_after="plan"))
             for name in ("h100", "orin")]
    assert [w.target.machine.workers for w in works] == [132, 16]
    assert all(w.plan.kernels for w in works)


def test_targets_lists_them(capsys):
    assert main(["targets"]) == 0
    text = capsys.readouterr().out
    assert all(f"--machine {n} " in text and g.about in text for n, g in GPUS.items())
