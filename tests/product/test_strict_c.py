"""The C of compiled models: strict compilers, sanitizers, valgrind, headers, stack."""

import re
import shutil
import subprocess
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np
import pytest
from group_cases import group_cases
from harness import INFO, RUNNABLE, Case, merged
from product_models import MODELS, sources
from row_cases import CASES
from te_programs import random_feeds
from te_random import random_program, random_schedule

import aotc
from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.write import write_bundle
from aotc.ir.bundle import Sample
from aotc.oracle.evaluate import evaluate
from aotc.runtime.compile_bundle import read_manifest
from aotc.sched import lower

STRICT = ("-std=c11 -O1 -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow -Wcast-align "
          "-Wcast-qual -Wstrict-prototypes -Wmissing-prototypes -Wdouble-promotion -Wundef -Wvla "
          "-pedantic -Werror").split()
CLANG = shutil.which("clang-19")
COMPILERS = [c for c in ("gcc", "clang", "clang-19", "clang-16") if shutil.which(c)][:2]
# which compilers see the sources of several variants in every run
SEVERAL = [*zip(("wide", "dense"), COMPILERS)]


@pytest.mark.parametrize("name, target, compiler", [
    pytest.param(n, t, c, marks=() if t == "c" or (n, c) in SEVERAL else pytest.mark.product)
    for n in MODELS for t in ("c", "x86-64") for c in COMPILERS])
def test_strict_compilers_have_no_complaint(bundle, name, target, compiler, tmp_path):
    folder = bundle(name, target, "embed")
    for file, flags in sources(folder):
        done = subprocess.run([compiler, *STRICT, *flags, "-c", file, "-o", str(tmp_path / "x.o")],
                              cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[:2000]


@pytest.mark.skipif(CLANG is None, reason="not installed: clang-19")
@pytest.mark.parametrize("name, target", [
    pytest.param(n, t, marks=() if (n, t) == ("dense", "x86-64") else pytest.mark.product)
    for n in MODELS for t in ("c", "x86-64", "aarch64", "wasm32")])
def test_everything_that_clang_warns_of_has_a_reason(bundle, name, target, tmp_path):
    """But for what docs/platforms.md lists, each with its reason."""
    folder = bundle(name, target, "embed")
    page = (Path(__file__).parents[2] / "docs/platforms.md").read_text()
    reasons = re.findall(r"^\| `-W([a-z0-9-]+)` \| \w", page, re.M)
    cross = read_manifest(folder)["build"]["cross"] or {}
    system = {"aarch64": ["--target=aarch64-linux-gnu"], "wasm32": cross.get("cflags", [])}
    # wasi-libc's own stderr is a macro of that name, which clang warns of
    test = [] if target == "wasm32" else [(f"test_{name}.c", [])]
    for file, flags in [*sources(folder), *test]:
        done = subprocess.run([CLANG, *system.get(target, []), "-std=c11", "-O1", "-Weverything",
                               "-Werror", *(f"-Wno-{w}" for w in reasons), *flags, "-c", file,
                               "-o", str(tmp_path / "x.o")], cwd=folder, capture_output=True,
                              text=True)
        assert done.returncode == 0, done.stderr[:2000]


@pytest.mark.product
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("target", [RUNNABLE[0], RUNNABLE[-1]], ids=lambda t: t.name)
def test_no_level_of_optimisation_has_a_complaint(target, compiler, tmp_path):
    """Products on every row, every way that operands are read, and groups: what a compiler knows
    of a variable, and so what it warns of, differs from level to level."""
    cases = [p.fast for u in target.ukernels if u.category in ("contraction", "dot", "reduction")
             for p in [*CASES[u.category](u, target)][::8]] + [*group_cases(target, loops=9)][::8]
    program, schedule = merged(cases, target)
    folder = write_bundle(render_bundle(lower(program, schedule, target), schedule, INFO),
                          tmp_path / "b")
    for level in ("-O0", "-O1", "-O2", "-O3"):
        for file, flags in sources(folder):
            done = subprocess.run([compiler, "-std=c11", level, "-Wall", "-Wextra", "-Werror",
                                   *flags, "-c", file, "-o", str(tmp_path / "x.o")], cwd=folder,
                                  capture_output=True, text=True)
            assert done.returncode == 0, f"{level}: {done.stderr[:2000]}"


@pytest.mark.parametrize("name", MODELS)
def test_headers_are_cpp17(bundle, name, tmp_path):
    folder = bundle(name, "c")
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-pedantic", "-Werror"]
    (tmp_path / "all.cpp").write_text("".join(
        f'#include "{h.name}"\n' for h in (folder / f"{name}.hpp", folder / f"{name}.h")))
    subprocess.run(["g++", *flags, f"-I{folder}", "-fsyntax-only", str(tmp_path / "all.cpp")],
                   check=True)


def _test_program(folder, out, flags, compiler="cc"):
    """Compile all of a bundle with its own test into ``out``."""
    objects = []
    name = read_manifest(folder)["name"]
    for file, cflags in [*sources(folder), (f"test_{name}.c", [])]:
        objects.append(str(out.parent / f"{out.name}-{file}.o"))
        subprocess.run([compiler, "-std=c11", "-g", "-O1", "-pthread", *flags, *cflags, "-c", file,
                        "-o", objects[-1]], cwd=folder, check=True)
    subprocess.run([compiler, "-pthread", *flags, *objects, "-lm", "-o", str(out)], check=True)
    return [str(out), f"{name}_weights.bin", f"test_{name}.bin"]


@pytest.mark.product
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
@pytest.mark.parametrize("target", ["c", "native"])
@pytest.mark.parametrize("name", MODELS)
def test_sanitizers(bundle, name, target, sanitizer, tmp_path):
    """Recorded runs with 1, 2 and 5 threads, everything instrumented."""
    folder = bundle(name, target)
    command = _test_program(folder, tmp_path / "t", [f"-fsanitize={sanitizer}",
                                                     "-fno-sanitize-recover=all"])
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


@pytest.mark.product
@pytest.mark.parametrize("first", [0, 25])
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
@pytest.mark.parametrize("target", RUNNABLE, ids=lambda t: t.name)
def test_random_programs_under_sanitizers(target, sanitizer, first, tmp_path):
    """25 random programs with random schedules in one bundle, on recorded random inputs."""
    cases = []
    for seed in range(first, first + 25):
        program = random_program(seed)
        cases.append(Case(f"p{seed}", program, random_schedule(program, target, seed)))
    program, schedule = merged(cases, target, "random")
    rng = np.random.default_rng(first)
    syms = {s.name: int(rng.integers(s.lo, s.hi + 1)) for s in program.syms}
    feeds = random_feeds(program, rng, syms)
    sample = Sample(syms, feeds, evaluate(program, feeds, syms))
    plan = lower(program, schedule, target)
    folder = write_bundle(render_bundle(plan, schedule, INFO, (sample,)), tmp_path / "b")
    command = _test_program(folder, tmp_path / "t", [f"-fsanitize={sanitizer}",
                                                     "-fno-sanitize-recover=all"])
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


@pytest.mark.zoo
@pytest.mark.parametrize("name", ["dense_dynamic", "bert_tiny", "nerf_mlp", "dlrm",
                                  "squeezenet1_1"])
def test_small_zoo_models_under_sanitizers(zoo_model, name, tmp_path):
    bundle = aotc.compile(zoo_model(name), tmp_path / "b", name=name)
    command = _test_program(bundle.path, tmp_path / "t", ["-fsanitize=address,undefined",
                                                          "-fno-sanitize-recover=all"])
    subprocess.run(command, cwd=bundle.path, check=True, capture_output=True)


@pytest.mark.product
@pytest.mark.parametrize("name", MODELS)
def test_valgrind_is_clean(bundle, name, tmp_path):
    if shutil.which("valgrind") is None:
        pytest.skip("not installed: valgrind")
    folder = bundle(name, "x86-64-v3")  # it does not know AVX-512
    command = _test_program(folder, tmp_path / "t", [])
    done = subprocess.run(["valgrind", "-q", "--error-exitcode=9", "--leak-check=full",
                           "--show-leak-kinds=all", *command], cwd=folder, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.product
@pytest.mark.parametrize("name", MODELS)
def test_static_analysis_finds_nothing(bundle, name, tmp_path):
    folder = bundle(name, "c")
    for file, _ in sources(folder):
        subprocess.run(["gcc", "-std=c11", "-O1", "-fanalyzer", "-Werror", "-c", file, "-o",
                        str(tmp_path / "x.o")], cwd=folder, check=True)


@pytest.mark.parametrize("name", MODELS)
def test_the_stack_is_bounded_and_small(bundle_copy, name):
    """Every frame is static (no alloca, no variable arrays) and `make stack` adds them up."""
    done = subprocess.run(["make", "-s", "stack"], cwd=bundle_copy(name, "native"),
                          capture_output=True, text=True, check=True)
    most = int(re.fullmatch(r"stack of a run: at most (\d+) bytes\n", done.stdout).group(1))
    assert 100 < most < 16384


@pytest.mark.parametrize("name", [
    pytest.param("attention", marks=pytest.mark.product), "wide"])
def test_nothing_calls_itself_and_nothing_is_mutable(bundle, name, tmp_path):
    """The call graph, as the compiler saw it, has no cycle; objects have no writable data."""
    folder, edges = bundle(name, "native", "embed"), {}
    for file, flags in sources(folder):
        subprocess.run(["gcc", "-std=c11", "-O2", "-fno-pie", *flags, "-fcallgraph-info", "-c",
                        file, "-o", str(tmp_path / "x.o")], cwd=folder, check=True)
        graph = (tmp_path / "x.ci").read_text()
        for a, b in re.findall(r'edge: \{ sourcename: "([^"]*)" targetname: "([^"]*)"', graph):
            edges.setdefault(a, set()).add(b)
        symbols = subprocess.run(["nm", str(tmp_path / "x.o")], capture_output=True, text=True,
                                 check=True).stdout
        assert not re.findall(r" [bBdDC] (\w+)", symbols), file
    # what is called through a pointer: kernels and the pool's loop, from run; the pool's threads
    assert f"{name}_run_buffers" in edges and any(f"{name}_k" in a for a in edges)
    order = TopologicalSorter({a: {b for b in bs if b in edges} for a, bs in edges.items()})
    assert set(order.static_order()) == set(edges)  # CycleError otherwise


def test_an_unbounded_frame_is_noticed(bundle_copy):
    """`make stack` fails where a frame's size is not known."""
    folder = bundle_copy("dense", "c")
    with open(folder / "dense_kernels_1.c", "a") as f:
        f.write("int dense_k999(int n);\nint dense_k999(int n)\n{\n    volatile char x[n];\n"
                "    x[0] = 1;\n    return x[0];\n}\n")
    done = subprocess.run(["make", "-s", "stack", "CFLAGS=-O1"], cwd=folder, capture_output=True,
                          text=True)
    assert done.returncode and "unbounded" in done.stdout
