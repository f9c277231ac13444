"""CUDA bundles compiled by nvcc: no warnings, no spilled registers, with Make and CMake."""

import os
import re
import shutil
import subprocess
from dataclasses import replace

import pytest
from harness import INFO, Case, merged
from kernel_programs import dense, pool, rows
from large_operators import large_cases
from row_cases import CASES

import aotc
from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.write import write_bundle
from aotc.sched import decide, lower
from aotc.target import TARGETS
from aotc.tuner.measure.rigs import GpuRig

GPUS = [t for t in TARGETS.values() if t.emitter == "simt"]
EARLY, USUAL = TARGETS["cuda:sm_80"], TARGETS["cuda:sm_90"]
# of a thread in blocks of 512, the largest; and bytes that those may spill whose results lie apart
# by quotients (outputs whose columns are an inner dimension)
REGISTERS, SPILLED = 128, 128
# and those of all registers: 8 rows of 4 sums beside 16 codes, their zero points and scales
FULL, FULL_SPILLED = {"dot_grouped_8x32__simt"}, 52
# of streams whose operands lie one by one, so that a step of them is on its way in registers; of
# those that are copied ``test_gpu_streams`` asks that nothing is spilled
STREAM_SPILLED = 600
FLAGS = "-O3 -Werror all-warnings -Xcompiler -Wall,-Wextra,-Werror -Xptxas -v"

pytestmark = pytest.mark.skipif(not shutil.which("nvcc"),
                                reason="no nvcc: install the CUDA toolkit (Debian: "
                                       "nvidia-cuda-toolkit)")


def _make(folder, *goals):
    """Output of make in a bundle's folder, which must succeed."""
    done = subprocess.run(["make", "-j2", f"NVCCFLAGS={FLAGS}", *goals], cwd=folder, timeout=900,
                          capture_output=True, text=True)
    text = done.stdout + done.stderr
    assert done.returncode == 0, text[-4000:]
    return text


def _no_spills(text, kernels, row=""):
    found = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads\n.*Used (\d+) registers",
                       text)
    assert len(found) >= kernels, text[-4000:]
    for *spilled, registers in found:
        most = {REGISTERS: SPILLED, 255: FULL_SPILLED * (row in FULL)}.get(int(registers), 0)
        most = STREAM_SPILLED if row.startswith("stream_") else most
        assert max(map(int, spilled)) <= most, text[-4000:]


def _write(program, target, folder, schedule=None, **fields):
    schedule = schedule or decide(program, target)
    plan = lower(program, schedule, target)
    write_bundle(render_bundle(plan, schedule, INFO, **fields), folder)
    return len({k.function or k.name for k in plan.kernels})


@pytest.mark.parametrize("target", [
    pytest.param(t, id=t.name, marks=() if t is USUAL else pytest.mark.product)
    for t in GPUS])
def test_small_models_build_without_warning_or_spill(target, tmp_path):
    cases = [Case(p.name, p) for p in (dense(), rows(), pool())]
    program, schedule = merged(cases, target)
    kernels = _write(program, target, tmp_path / "small", schedule, profile=target is EARLY)
    _no_spills(_make(tmp_path / "small", "libcases.a"), kernels)


@pytest.mark.product
def test_what_tuning_builds_has_no_warning_and_is_compiled_once(tmp_path):
    """The kernels of two candidates that differ in one: files over numbered tensors."""
    program, schedule = merged([Case(p.name, p) for p in (dense(), rows())], EARLY)
    (tmp_path / "objects").mkdir()
    last = schedule.groups[-1]
    other = replace(schedule, groups=tuple(replace(g, threads=g.threads // 2) if g is last else g
                                           for g in schedule.groups))
    made = []
    for n, s in enumerate((schedule, other)):
        folder = tmp_path / f"b{n}"
        write_bundle(GpuRig(EARLY).render(lower(program, s, EARLY), s, INFO), folder)
        _make(folder, "static")
        GpuRig(EARLY).build(folder, 2, tmp_path / "objects")
        made.append({p.name for p in (tmp_path / "objects").iterdir()})
    # beside the changed kernel the bundle's own two files
    assert len(made[1] - made[0]) == 3 and len(made[0]) > 4


@pytest.mark.product
@pytest.mark.parametrize("target, row", [
    pytest.param(t, u, id=f"{t.name}-{u.name}") for t in (EARLY, USUAL) for u in t.ukernels])
def test_every_row_builds_without_warning_or_spill(target, row, tmp_path):
    program, schedule = merged([p.fast for p in CASES[row.category](row, target)], target)
    kernels = _write(program, target, tmp_path / "row", schedule)
    _no_spills(_make(tmp_path / "row", "static"), kernels, row.name)


@pytest.mark.product
@pytest.mark.parametrize("name", ("Compress", "NonMaxSuppression", "ScatterElements_add",
                                  "ScatterND", "TopK_300"))
def test_library_kernels_build_without_warning_or_spill(name, tmp_path):
    aotc.compile(large_cases()[name].model()[0], tmp_path / "b", target=GPUS[0].name)
    _no_spills(_make(tmp_path / "b", "static"), 2)


@pytest.mark.product
def test_weights_linked_in(tmp_path):
    _write(dense(), EARLY, tmp_path / "dense", weights="embed")
    _make(tmp_path / "dense", "all", "build/test_dense")
    assert (tmp_path / "dense" / "libdense.so").exists()


@pytest.mark.product
def test_cmake(tmp_path):
    if not shutil.which("cmake"):
        pytest.skip("no cmake: install it (Debian: cmake)")
    _write(dense(), EARLY, tmp_path / "dense")
    for command in (["cmake", "-S", "dense", "-B", "out"], ["cmake", "--build", "out"]):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600,
                              env=os.environ)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert list((tmp_path / "out").glob("libdense.*"))


def test_the_header_is_c_and_cxx(tmp_path):
    _write(rows(), EARLY, tmp_path / "rows")
    for name, compiler, flags in (("c.c", "cc", ["-std=c11", "-pedantic"]),
                                  ("x.cpp", "c++", ["-std=c++17", "-pedantic"])):
        file = tmp_path / name
        file.write_text('#include "rows.h"\nint main(void) { return rows_info()->symbol_count; }\n')
        subprocess.run([compiler, *flags, "-Wall", "-Wextra", "-Werror", f"-I{tmp_path / 'rows'}",
                        "-c", str(file), "-o", str(tmp_path / "x.o")], check=True)
