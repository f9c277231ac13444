"""Machine files: what `targets --probe` measures, and what a compile accepts."""

import json
import os
from dataclasses import asdict, replace
from threading import Barrier

import onnx
import pytest
from small_models import dense

from aotc.cli import main
from aotc.errors import ScheduleError
from aotc.options import Options
from aotc.pipeline import run_pipeline
from aotc.target import get_target
from aotc.target.base import Memory
from aotc.target.machine_file import machine_json, with_machine
from aotc.target.micro_kernels import TILES
from aotc.tools.probe import block_bytes, cache_sizes, measure_together, peak_functions

V3 = get_target("x86-64-v3")


def edited(**changes):
    data = json.loads(machine_json(V3))
    data["machine"] |= changes
    return json.dumps(data)


def memories(*names, **changes):
    """V3's file with other names of its memories; changes: of one of them, {place: {field}}."""
    rows = [asdict(x) | {"name": n} for x, n in zip(V3.machine.memories, names)]
    for place, change in changes.items():
        rows[int(place[1:])] |= change
    return edited(memories=rows, scratch=rows[2]["name"])


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
    (edited(workers=0), "must be positive"), (edited(flops=float("inf")), "Machine.flops: inf"),
    (edited(workers=float("inf")), "Machine.workers: inf"), (edited(step=-1), "step: -1 must be 0"),
    (edited(flops="fast"), "Machine.flops: 'fast'"), (edited(grain_flops=0), "0 must be positive"),
    (memories(*"abcde", _1={"transaction": 0}), "Memory.transaction: 0 must be positive"),
    (edited(colour=1), "Machine.colour; there are memories, workers, flops"),
    (edited(workers=True), "Machine.workers: True"), (edited(memories=[]), "at least one that"),
    (edited(scratch="L9"), "is none of the memories"),
    (edited(scratch="DRAM"), "between the first and the registers: L3, L2, L1"),
    (memories("a", "b", "c", "b", "e"), "memories: 'b' is there twice"),
    (memories("a", "b", "c", "register", "e"), "'register' is what a Schedule calls the last one"),
    (memories(*"abcde", _1={"scope": "all"}), "memory b: scope 'all'; choose from thread, core, "),
    (memories(*"abcde", _2={"kind": "fast"}), "memory c: kind 'fast'; choose from cache, managed"),
    (memories(*"abcde", _1={"scope": "core"}, _2={"scope": "device"}), "outermost first"),
    (memories(*"abcde", _4={"scope": "core"}), "the last one alone, the registers"),
    (memories(*"abcde", _3={"scope": "thread"}), "the last one alone, the registers"),
    (memories(*"abcde", _1={"size": 1}), "Memory.size; there are name, capacity, bandwidth"),
    (edited(memories=[{"name": "x", "capacity": "1"}]), "Memory.capacity: '1'"),
    (machine_json(get_target("c")), "is for target c, compiling for x86-64-v3")],
    ids=range(25))
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
    assert measure_together(read, 640, cpus) == 5.0 * len(cpus)
    assert sorted(seen, key=str) == sorted([(640, {c}) for c in cpus], key=str)
    assert sorted(os.sched_getaffinity(0)) == cpus
    assert measure_together(lambda block: 0.0, 640, cpus) == 0.0


def test_blocks_that_measure_a_level_fit_no_nearer_one():
    levels = (Memory("DRAM", 1 << 62, 2e10, "host"), Memory("L3", 32 << 20, 6e10, "device"),
              Memory("L2", 1 << 20, 9e10), Memory("L1", 32 << 10, 1e11))
    assert [block_bytes(levels, 1, n) for n in (1, 2, 64)] == [16 << 20, 8 << 20, 2 << 20]
    assert block_bytes(levels, 2, 1) == 512 << 10
    assert [block_bytes(levels, 0, n) for n in (1, 2)] == [256 << 20, 128 << 20]
    assert block_bytes(levels, 0, 2) * 2 > levels[1].capacity


@pytest.mark.parametrize("name", ["c", get_target("native", "bf16").name])
def test_rates_of_pairs_are_measured_where_rows_multiply_them(name, tmp_path):
    target = get_target(name)
    _, flops, pairs = peak_functions(target, tmp_path)
    on_tiles = any(u.template == TILES for u in target.rows("dot"))
    assert flops() > 0 and (pairs is None if on_tiles else pairs is not None and pairs() > 0)


def test_probe_writes_what_compile_reads(tmp_path, capsys):
    path, machine = tmp_path / "tiny.onnx", tmp_path / "m.json"
    onnx.save(dense(), path)
    assert main(["targets", "--probe", str(machine)]) == 0
    assert "GFLOP/s each" in capsys.readouterr().out
    found = json.loads(machine.read_text())
    assert found["target"] == get_target("native").name
    assert all(x["bandwidth"] > 0 for x in found["machine"]["memories"])
    work = run_pipeline(Options(path, stop_after="schedule", machine=machine))
    assert work.target.machine.flops == found["machine"]["flops"]
    assert main(["show", str(path), "schedule", "--machine", str(tmp_path / "none.json")]) == 1
    assert "cannot be read" in capsys.readouterr().err
