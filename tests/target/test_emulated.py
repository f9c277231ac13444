"""Targets of other machines: cross-compiled with what the target names, run under its emulator,
equal to the evaluator and the reference.  Nothing here asks which machine it is."""

import os
import re
import shutil
import subprocess
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from contraction_cases import written_out_cases
from group_cases import GROUPS, schedule
from harness import INFO, Built, Case, merged
from math_values import BOUNDS, UNARY, every_kind, exact
from row_cases import CASES
from small_models import dense, embedding
from strict_flags import STRICT

import aotc
from aotc.cli import main
from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.write import write_bundle
from aotc.errors import AotcError, ToolchainError
from aotc.installed import runtime_c
from aotc.ir.bundle import emulators
from aotc.runtime.compile_bundle import build, read_manifest
from aotc.runtime.emulate import EmulatedModel, emulated_models
from aotc.runtime.feeds import machine
from aotc.sched import lower
from aotc.target import TARGETS, flags_of
from aotc.tools.verify import verify

FOREIGN = [t for t in TARGETS.values()
           if t.cross and t.cross.emulator and t.arch != machine() and not t.variants
           and not t.board]
# a few rows of their own beside those of another: these by default, all else at length
DERIVED = [t for t in FOREIGN if any(o.arch == t.arch and o.lanes == t.lanes and set(
    o.cpu_flags) < set(t.cpu_flags) for o in FOREIGN)]
OTHERS = ("dense_dynamic", "squeezenet1_1", "mobilenet_v2", "dlrm")


@pytest.fixture(scope="module", ids=lambda t: t.name, params=[
    pytest.param(t, marks=pytest.mark.product if t in DERIVED else ()) for t in FOREIGN])
def target(request):
    """Every target that this machine can only emulate; skips where its tools are missing."""
    return _with_tools(request.param)


def _with_tools(target):
    cross = target.cross
    missing = [name for name, there in (
        (cross.cc[0], any(map(shutil.which, cross.cc))),
        (cross.emulator[0], shutil.which(cross.emulator[0]))) if not there]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (Debian: {', '.join(cross.packages)})")
    return target


def _compiler(target):
    return [next(filter(shutil.which, target.cross.cc)), *target.cross.cflags]


def _emulators(target):
    """The commands by vector length; what runs programs may be a file of every bundle's."""
    own = runtime_c() / "wasm"
    return {v: [str(own / w) if (own / w).is_file() else w for w in command]
            for v, command in emulators(asdict(target.cross)).items()}


@pytest.mark.parametrize("flags, share", [
    ("-Og", 16), pytest.param("-O2", 1, marks=pytest.mark.product)])
def test_every_row_equals_the_evaluator(target, flags, share, tmp_path, monkeypatch):
    """One bundle that holds every case of every row, or a share of each row's cases."""
    monkeypatch.setenv("CFLAGS", f"{flags} {STRICT}")
    cases = [pair.fast for i, u in enumerate(target.ukernels)
             for pair in list(CASES[u.category](u, target))[i % share::share]]
    # a target may do without dot products of bytes, which are plain loops there, and streams
    assert {u.category for u in target.ukernels} >= set(CASES) - {"dot", "stream"}
    _equal_the_evaluator(cases, target, tmp_path)


def _own_rows(target):
    """Rows that no target of the same machine with fewer of its features has."""
    others = {u for t in FOREIGN if t.arch == target.arch and set(t.cpu_flags) < set(
        target.cpu_flags) for u in t.ukernels}
    return [u for u in target.ukernels if u not in others]


@pytest.mark.parametrize("target", list(filter(_own_rows, DERIVED)),
                         ids=lambda t: t.name)
def test_rows_of_its_own_equal_the_evaluator(target, tmp_path, monkeypatch):
    """A sixth of each row's cases."""
    monkeypatch.setenv("CFLAGS", f"-Og {STRICT}")
    rows = _own_rows(target)
    _equal_the_evaluator([pair.fast for i, u in enumerate(rows)
                          for pair in list(CASES[u.category](u, target))[i % 6::6]],
                         _with_tools(target), tmp_path)


@pytest.mark.product
@pytest.mark.parametrize("target", [t for t in FOREIGN if not t.vectors.fixed],
                         ids=lambda t: t.name)
def test_steps_of_a_sum_that_are_written_out_equal_the_evaluator(target, tmp_path, monkeypatch):
    monkeypatch.setenv("CFLAGS", f"-Og {STRICT}")
    first, *_, last = target.rows("contraction")
    cases = [case for row in (first, last) for case in written_out_cases(row, target)]
    _equal_the_evaluator(cases, _with_tools(target), tmp_path)
    text = "".join(p.read_text() for p in (tmp_path / "rows").glob("*_kernels_0.c"))
    assert re.search(r"k \+ 8 <= kc.*?\[7 \* ak\]", text, re.DOTALL)


@pytest.mark.parametrize("share", [4, pytest.param(1, marks=pytest.mark.product)])
def test_groups_equal_the_evaluator(target, share, tmp_path, monkeypatch):
    """Groups of several stages, among them those whose work items make steps: all of them, or a
    share that differs from one target to the next."""
    if target in DERIVED and share == 1:
        pytest.skip("groups have the rows of another target, which runs all of them")
    monkeypatch.setenv("CFLAGS", f"-Og {STRICT}")
    _equal_the_evaluator([
        Case(name, p, schedule(target, p, connect, tiles[0], anchor, **(run[0] if run else {})),
             tol=2e-5) for name, ((p, connect, anchor, *run), tiles, _) in list(
                 GROUPS.items())[FOREIGN.index(target) % share::share]],
        target, tmp_path)


def _equal_the_evaluator(cases, target, tmp_path):
    program, schedule = merged(cases, target)
    plan = lower(program, schedule, target)
    write_bundle(render_bundle(plan, schedule, INFO), tmp_path / "rows")
    models = emulated_models(tmp_path / "rows")
    for number, model in enumerate(models.values()):
        built = Built(tuple(cases), target, program, schedule, model, tmp_path / "rows")
        for seed in range(3 if len(models) == 1 else 1):
            built.check(10 * number + seed)
        built.check(10 * number + 3, syms=lambda s, r: s.lo)


def test_micro_kernels_keep_their_accumulators_in_registers(target, tmp_path):
    """A spilled accumulator costs a load and a store per multiply-add: the row's tile is too
    large for the register file."""
    spill = {"aarch64": r"q\d+, \[sp|\[sp.*\bq\d+", "x86_64": r"ymm\d+.*\(%rsp|\(%rsp.*ymm\d+",
             "riscv64": r"\bv[ls]\d+re?\d*\.v\b"}
    if target.arch not in spill:
        pytest.skip(f"{target.name}: the engine gives out registers")
    tuning = replace(target.tuning, inline_sum=0)  # each as a function of its own
    target = replace(target, machine=replace(target.machine, tuning=tuning))
    rows = target.rows("contraction")
    cases = [next(iter(CASES["contraction"](u, target))).fast for u in rows]
    program, schedule = merged(cases, target)
    plan = lower(program, schedule, target)
    folder = write_bundle(render_bundle(plan, schedule, INFO), tmp_path / "rows")
    text = subprocess.run([*_compiler(target), "-std=c11", "-O2", *target.cflags, "-S",
                           "cases_kernels_0.c", "-o", "-"], cwd=folder, check=True,
                          capture_output=True, text=True).stdout
    assert all(u.name.replace("__", "_") in text for u in rows)
    found = [line for line in text.splitlines() if re.search(spill[target.arch], line)]
    assert not found, found[:5]


def test_vector_functions_are_as_exact_as_everywhere(target, tmp_path):
    if target.folder != "c":
        pytest.skip("it has vector functions of its own: tests/emit/test_rvv_math.py")
    calls = "\n".join(f"    RUN(aotc_v{name})" for name in UNARY)
    (tmp_path / "math.c").write_text(f"""
#define AOTC_LANES {target.lanes}
#include "aotc_vec.h"
#include <stdio.h>
static float x[{every_kind().size}], z[{every_kind().size}];
#define RUN(f) for (int i = 0; i < {every_kind().size}; i += AOTC_LANES) \\
        aotc_store(z + i, f(aotc_load(x + i))); \\
    if (fwrite(z, sizeof z, 1, stdout) != 1) return 1;
int main(void)
{{
    if (fread(x, sizeof x, 1, stdin) != 1) return 1;
{calls}
    return 0;
}}
""")
    subprocess.run([*_compiler(target), "-std=c11", "-O2", *target.cflags, f"-I{runtime_c()}",
                    "math.c", "-o", "math", *target.cross.ldflags, "-lm"], cwd=tmp_path, check=True)
    for command in _emulators(target).values():
        done = subprocess.run([*command, "./math"], cwd=tmp_path, check=True,
                              input=every_kind().tobytes(), capture_output=True)
        _as_exact_as_everywhere(done)


def _as_exact_as_everywhere(done):
    results = np.frombuffer(done.stdout, np.float32).reshape(len(UNARY), -1)
    for name, got in zip(UNARY, results, strict=True):
        want = exact(name)
        with np.errstate(all="ignore"):
            rounded = want.astype(np.float32)
            rel, absolute = BOUNDS[name]
            near = np.abs(got.astype(np.float64) - want) <= rel * np.abs(want) + absolute
        same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
        bad = np.flatnonzero(~np.where(np.isfinite(rounded), near, same))
        assert not bad.size, (name, [(every_kind()[i], got[i], want[i]) for i in bad[:5]])


def test_a_bundle_runs_its_own_test(target, tmp_path):
    """The recorded outputs, on 1, 2 and 5 threads, by the bundle's Makefile alone; the weights in
    a file or linked in, by turns."""
    weights = "embed" if target.module else ("file", "embed")[FOREIGN.index(target) % 2]
    bundle = aotc.compile(dense("n"), tmp_path / "b", target=target.name, name="dense",
                          weights=weights)
    for command in _emulators(target).values():
        done = subprocess.run(["make", "-s", "test", "CC=" + " ".join(_compiler(target)),
                               "TEST_RUNNER=" + " ".join(command),
                               "LDFLAGS=" + " ".join(target.cross.ldflags)], cwd=bundle.path,
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "passed" in done.stdout and "elements wrong" in done.stdout


@pytest.mark.product
def test_the_toolchain_file_builds_and_tests_with_cmake(target, tmp_path):
    """In the bundle's folder nothing but what its README says is needed."""
    if not shutil.which("cmake") or not shutil.which("ctest"):
        pytest.skip("not installed: cmake")
    if target.module:
        pytest.skip(f"{target.name}: its compilers bring toolchain files of their own")
    bundle = aotc.compile(dense("n"), tmp_path / "b", target=target.name, name="dense").path
    readme = (bundle / "README.md").read_text()
    command = re.search(r"^    (cmake .*toolchain\.cmake)$", readme, re.MULTILINE)[1]
    build_folder = bundle / f"build-{target.arch}"
    for words in (command.split(), ["cmake", "--build", build_folder, "-j2"],
                  ["ctest", "--test-dir", build_folder, "--output-on-failure"]):
        done = subprocess.run(words, cwd=bundle, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "100% tests passed" in done.stdout
    assert (build_folder / "test_dense").read_bytes()[18:20] == _machine_code_of(target)
    assert (build_folder / "libdense.a").stat().st_size


def _machine_code_of(target):
    """The field e_machine of an ELF file for the target; of a module the version."""
    if target.module:
        return b""
    codes = {"aarch64": 183, "riscv64": 243, "x86_64": 62}
    return codes[target.arch].to_bytes(2, "little")


def test_a_cpu_that_lacks_the_instructions_is_refused(target, tmp_path):
    """A status, not a crash; where the target asks for nothing, nothing is refused."""
    if not target.cpu_flags:
        pytest.skip(f"{target.name} asks the CPU for nothing")
    bundle = aotc.compile(dense("n"), tmp_path / "b", target=target.name, name="dense").path
    EmulatedModel(bundle)
    emulator = target.cross.emulator[0]
    lesser = {"riscv64": "rv64,v=false", "x86_64": "Nehalem",
              "aarch64": "cortex-a53"}[target.arch]
    done = subprocess.run([emulator, "-cpu", lesser, "build/test_dense", "dense_weights.bin",
                           "test_dense.bin"], cwd=bundle, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert f"the CPU lacks instructions this bundle was compiled for: needs {target.cpu_flags[0]}" \
        in done.stdout


def test_vector_lengths_are_those_that_the_target_lists(target, tmp_path):
    bundle = aotc.compile(dense("n"), tmp_path / "b", target=target.name, name="dense").path
    assert tuple(emulated_models(bundle)) == (target.cross.vlens or (None,))
    some = target.cross.vlens[-1:]
    assert tuple(emulated_models(bundle, *some)) == (some or (None,))
    with pytest.raises(AotcError, match=f"vlen 96: {target.name} can be emulated with"):
        EmulatedModel(bundle, vlen=96)


@pytest.mark.product
def test_verify_emulates_every_length_or_the_one_it_is_told(target, tmp_path, capsys):
    model = str(tmp_path / "dense.onnx")
    onnx.save(dense("n"), model)
    command = ["verify", model, "--target", target.name]
    assert main(command) == 0
    head = capsys.readouterr().out.splitlines()[0]
    lengths = [f"{target.name} vlen {v}" for v in target.cross.vlens] or [target.name]
    assert head.startswith(f"dense.onnx: target {', '.join(lengths)}, reference")
    for vlen in target.cross.vlens[1:2]:
        assert main([*command, "--vlen", str(vlen)]) == 0
        head = capsys.readouterr().out.splitlines()[0]
        assert head.startswith(f"dense.onnx: target {target.name} vlen {vlen}, reference")
    assert main([*command, "--vlen", "96"]) == 1
    assert "vlen 96" in capsys.readouterr().err


def test_a_model_with_symbols_and_faults(target, tmp_path):
    """Feeds are checked as for any model, and a fault's status comes back as an error."""
    aotc.compile(embedding(), tmp_path / "b", target=target.name, name="embedding")
    model = EmulatedModel(tmp_path / "b")
    ids = np.array([[3, 29, 0], [1, 1, 2]])
    here = aotc.compile(embedding(), tmp_path / "here", target="c", name="embedding").load()
    feeds = {"ids": ids, "mask": np.ones_like(ids)}
    np.testing.assert_allclose(model.run(feeds)["y"], here.run(feeds)["y"], rtol=1e-6)
    with pytest.raises(ValueError, match="expected rank 2"):
        model.run({"ids": ids[0], "mask": ids})
    with pytest.raises(AotcError, match="outside its table"):
        model.run({"ids": ids + 27, "mask": np.ones_like(ids)})


def test_build_takes_the_cross_compiler(target, tmp_path, monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    made = aotc.compile(dense("n"), tmp_path / "b", target=target.name, name="dense")
    header = build(made.path).read_bytes()[:20]
    assert header[:4] == (b"\0asm" if target.module else b"\x7fELF")
    own = Path(os.path.realpath("/proc/self/exe")).read_bytes()[:20]
    assert header[18:20] != own[18:20]
    with pytest.raises(AotcError, match=f"compiled for {target.arch}, this machine is"):
        made.load()


def test_digits_match_the_reference(target, digits_model):
    _matches(digits_model[0], target)


@pytest.mark.product
def test_small_model_matches_the_reference(target, zoo_model):
    _matches(zoo_model("bert_tiny"), target, vlen=target.cross.vlens[0] if target.cross.vlens
             else None)


@pytest.mark.product
def test_small_model_matches_at_every_other_length_of_vectors(target, zoo_model):
    for vlen in target.cross.vlens[1:]:
        _matches(zoo_model("bert_tiny"), target, vlen=vlen)


@pytest.mark.product
@pytest.mark.parametrize("name", OTHERS)
def test_model_matches_the_reference(target, zoo_model, name):
    if target in DERIVED and name != "squeezenet1_1":
        pytest.skip("f32 layers have the rows of another target, which runs all models")
    _matches(zoo_model(name), target)


def _matches(path, target, vlen=None):
    wrong = [f"{title}: {m}" for title, m in verify(path, target=target.name, vlen=vlen)
             if not m.ok]
    assert not wrong, "\n".join(wrong)


# ---------------------------------------------------------------- without the tools

def test_vlen_is_refused_where_nothing_is_emulated(tmp_path, capsys):
    onnx.save(dense("n"), tmp_path / "dense.onnx")
    assert main(["verify", str(tmp_path / "dense.onnx"), "--target", "c", "--vlen", "128"]) == 1
    assert "c runs on this machine as it is" in capsys.readouterr().err


@pytest.fixture
def foreign_bundle(tmp_path):
    """A bundle for some other machine; compiling takes none of its tools."""
    return aotc.compile(dense("n"), tmp_path / "b", target=FOREIGN[0].name, name="dense").path


def test_missing_tools_are_named_with_what_to_install(foreign_bundle, monkeypatch):
    monkeypatch.setenv("PATH", str(foreign_bundle))
    monkeypatch.delenv("CC", raising=False)
    cross = FOREIGN[0].cross
    for use in (EmulatedModel, build):
        with pytest.raises(ToolchainError, match=f"{cross.cc[0]} is not found.*"
                           f"{cross.packages[0]}"):
            use(foreign_bundle)
    for tool in ("make", cross.cc[0]):
        (foreign_bundle / tool).write_text("#!/bin/sh\n")
        (foreign_bundle / tool).chmod(0o755)
    with pytest.raises(ToolchainError, match=f"{cross.emulator[0]} is not found"):
        EmulatedModel(foreign_bundle)


def test_extensions_of_a_riscv_cpu_are_read_from_its_cpuinfo():
    text = "processor\t: 0\nhart\t\t: 1\nisa\t\t: rv64imafdc{}_zicsr_zvfh\nmmu\t\t: sv39\n"
    needs = set(TARGETS["riscv64"].cpu_flags)
    assert flags_of(text.format("v")) >= needs and not flags_of(text.format("")) >= needs


def test_features_of_an_arm_cpu_are_read_from_its_cpuinfo():
    text = "processor\t: 0\nFeatures\t: fp asimd {} crc32\n"
    needs = set(TARGETS["aarch64-dotprod"].cpu_flags)
    assert flags_of(text.format("asimddp")) >= needs and not flags_of(text.format("")) >= needs


def test_manifest_repeats_the_facts(foreign_bundle):
    target, facts = FOREIGN[0], read_manifest(foreign_bundle)["build"]
    assert facts["arch"] == target.arch
    assert type(target.cross)(**{k: tuple(v) for k, v in facts["cross"].items()}) == target.cross
