"""Machine files: what `targets --probe` measures, and what a compile accepts."""

import json
import os
from dataclasses import asdict, replace
from threading import Barrier

import numpy as np
import onnx
import pytest
from frontend_cases import helper, model_of
from small_models import dense

from aotc.cli import main
from aotc.errors import ScheduleError
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.target import get_target
from aotc.target.base import Level
from aotc.target.machine_file import machine_json, with_machine
from aotc.tools.probe import block_bytes, cache_sizes, together

V3 = get_target("x86-64-v3")


def edited(**changes):
    data = json.loads(machine_json(V3))
    data["machine"] |= changes
    return json.dumps(data)


def levels(*names, keep=None):
    """V3's file with other names of its levels, those at ``keep`` only; scratch in the middle."""
    rows = [asdict(x) | {"name": n} for x, n in zip(V3.machine.levels, names)]
    rows = [rows[i] for i in keep or range(5)]
    return edited(levels=rows, scratch=rows[len(rows) // 2]["name"])


@pytest.mark.parametrize("keep", [None, (0, 2, 4), (0, 1, 4), (0, 3, 4), (0, 1, 3, 4)])
@pytest.mark.parametrize("names", [("memory", "shared", "own", "near", "file"),
                                   ("L1", "L2", "L3", "DRAM", "top")], ids="-".join)
def test_levels_may_have_any_names_and_number(names, keep, tmp_path):
    """Of products, sums and convolutions with and without a Winograd form."""
    w = np.random.default_rng(0).standard_normal((64, 64, 3, 3)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "one"], ["a"]),
             helper.make_node("Conv", ["a", "w"], ["b"], pads=[1] * 4),
             helper.make_node("GlobalAveragePool", ["b"], ["c"]),
             helper.make_node("Reshape", ["c", "flat"], ["d"]),
             helper.make_node("MatMul", ["d", "m"], ["y"])]
    model = model_of(nodes, {"x": ("f4", (1, 64, 28, 28))}, ["y"], {
        "w": w, "one": w[:, :, :1, :1], "m": w.reshape(64, -1), "flat": np.array([1, 64])})
    path = tmp_path / "machine.json"
    path.write_text(levels(*names, keep=keep))
    plan = run_pipeline(Options(model, target=V3.name, machine=path, stop_after="plan")).plan
    assert plan.kernels


def test_round_trip():
    assert with_machine(V3, machine_json(V3)) == V3
    faster = replace(V3, machine=replace(V3.machine, flops=9e11, workers=7))
    assert with_machine(V3, machine_json(faster)).machine == faster.machine


def test_of_a_target_with_variants_one_takes_it():
    whole = get_target("x86-64")
    faster = replace(V3, machine=replace(V3.machine, workers=7))
    workers = {v.name: v.machine.workers for v in with_machine(
        whole, machine_json(faster)).variants}
    assert workers.pop("x86-64-v3") == 7 and 7 not in workers.values()


@pytest.mark.parametrize("text, why", [
    ("{", "JSONDecodeError"), ("[]", "TypeError"), ("{}", "target"),
    (edited(workers=0), "must be positive"), (edited(flops="fast"), "Machine.flops: 'fast'"),
    (edited(colour=1), "Machine.colour"), (edited(workers=True), "Machine.workers: True"),
    (edited(levels=[]), "at least memory"), (edited(scratch="L9"), "is none of the levels"),
    (edited(scratch="DRAM"), "between memory and registers: L3, L2, L1"),
    (levels("a", "b", "c", "b", "e"), "levels: 'b' is there twice"),
    (edited(levels=[{"name": "x", "capacity": "1"}]), "Level.capacity: '1'"),
    (machine_json(get_target("c")), "is for target c, compiling for x86-64-v3")],
    ids=range(13))
def test_a_wrong_file_is_named(text, why):
    """Every fault of a file is a ScheduleError that says what is wrong."""
    with pytest.raises(ScheduleError, match=why):
        with_machine(V3, text)


def test_cache_sizes_of_the_system(tmp_path):
    rows = [("Data", 1, "48K"), ("Instruction", 1, "32K"), ("Unified", 2, "2M"),
            ("Unified", 3, "odd")]
    for i, (kind, level, size) in enumerate(rows):
        folder = tmp_path / f"index{i}"
        folder.mkdir()
        for name, text in (("type", kind), ("level", level), ("size", size)):
            (folder / name).write_text(f"{text}\n")
    (tmp_path / "index9").mkdir()
    assert cache_sizes(tmp_path) == {"L1": 48 << 10, "L2": 2 << 20}
    assert cache_sizes(tmp_path / "nothing") == {}


def test_what_is_shared_is_read_by_all_at_once():
    """Each thread reads on a CPU of its own while the others do; their rates add up."""
    cpus, seen = sorted(os.sched_getaffinity(0)), []
    reading = Barrier(len(cpus), timeout=60)  # broken if one ends before another begins

    def read(block):
        reading.wait()
        seen.append((block, os.sched_getaffinity(0)))
        return 5.0
    assert together(read, 640, cpus) == 5.0 * len(cpus)
    assert sorted(seen, key=str) == sorted([(640, {c}) for c in cpus], key=str)
    assert sorted(os.sched_getaffinity(0)) == cpus
    assert together(lambda block: 0.0, 640, cpus) == 0.0


def test_blocks_that_measure_a_level_fit_no_nearer_one():
    levels = (Level("DRAM", 1 << 62, 2e10, True), Level("L3", 32 << 20, 6e10, True),
              Level("L2", 1 << 20, 9e10), Level("L1", 32 << 10, 1e11))
    assert [block_bytes(levels, 1, n) for n in (1, 2, 64)] == [16 << 20, 8 << 20, 2 << 20]
    assert block_bytes(levels, 2, 1) == 512 << 10
    assert [block_bytes(levels, 0, n) for n in (1, 2)] == [256 << 20, 128 << 20]
    assert block_bytes(levels, 0, 2) * 2 > levels[1].capacity


def test_probe_writes_what_compile_reads(tmp_path, capsys):
    path, machine = tmp_path / "tiny.onnx", tmp_path / "m.json"
    onnx.save(dense(), path)
    assert main(["targets", "--probe", str(machine)]) == 0
    assert "GFLOP/s each" in capsys.readouterr().out
    found = json.loads(machine.read_text())
    assert found["target"] == get_target("native").name
    assert all(x["bandwidth"] > 0 for x in found["machine"]["levels"])
    work = run_pipeline(Options(path, stop_after="schedule", machine=machine))
    assert work.target.machine.flops == found["machine"]["flops"]
    assert main(["show", str(path), "schedule", "--machine", str(tmp_path / "none.json")]) == 1
    assert "cannot be read" in capsys.readouterr().err
