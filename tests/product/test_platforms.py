"""Bundles on macOS and Windows: compiled here by zig, which has their headers and libraries, run
under wine."""

import os
import shutil
import subprocess

import pytest
from small_models import dense
from strict_flags import STRICT
from zig import needs_zig, objects, program

import aotc
from aotc.installed import runtime_c

SYSTEMS = ["aarch64-macos", "x86_64-windows-gnu"]
MORE = ["x86_64-macos", "aarch64-windows-gnu"]
WINE = shutil.which("wine") or shutil.which("wine64")
pytestmark = needs_zig


@pytest.mark.parametrize("system", [*SYSTEMS, *(pytest.param(s, marks=pytest.mark.product)
                                                for s in MORE)])
def test_strict_compilers_of_other_systems_have_no_complaint(bundle, system, tmp_path):
    objects(bundle("dense", "c", "embed"), system, tmp_path, STRICT.split())


@pytest.mark.product
@pytest.mark.parametrize("weights", ["file", "embed"])
@pytest.mark.parametrize("system", ["aarch64-macos", "x86_64-macos"])
def test_programs_for_macos_link(bundle, system, weights, tmp_path):
    """More than 1 MiB of weights, several sets of kernels."""
    target = "x86-64" if system.startswith("x86") else "aarch64"
    with open(program(bundle("wide", target, weights), system, tmp_path), "rb") as f:
        assert f.read(4) == b"\xcf\xfa\xed\xfe"  # Mach-O of 64 bits


def wine(program, *arguments, cwd, home):
    """Run a program for Windows; the finished process."""
    return subprocess.run([WINE, program, *arguments], cwd=cwd, capture_output=True, text=True,
                          env={**os.environ, "HOME": str(home), "WINEDEBUG": "-all",
                               "LC_ALL": "C.UTF-8"}, timeout=300)


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """Where wine keeps its settings."""
    if WINE is None:
        pytest.skip("not installed: wine64 (Debian)")
    return tmp_path_factory.mktemp("wine")


@pytest.mark.product
@pytest.mark.parametrize("weights", ["file", "embed"])
def test_windows_runs_the_recorded_inputs(bundle_copy, weights, home, tmp_path):
    """With 1, 2 and 5 threads, several sets of kernels, more than 1 MiB of weights."""
    folder = bundle_copy("wide", "x86-64", weights)
    image = "-" if weights == "embed" else "wide_weights.bin"
    done = wine(program(folder, "x86_64-windows-gnu", tmp_path), image, "test_wide.bin",
                cwd=folder, home=home)
    assert done.returncode == 0 and "passed" in done.stdout, done.stdout + done.stderr


# as many workers as asked for take part in every job, all items are done once, faults have codes
POOL = r"""
#include "dense.h"
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <windows.h>
enum { ITEMS = 4000, WORKERS = 7 };
static atomic_int done[ITEMS], seen[WORKERS], entered;
static void work(void *frame, int64_t begin, int64_t end, int worker)
{
    (void)frame;
    if (atomic_exchange(&seen[worker], 1) == 0) atomic_fetch_add(&entered, 1);
    for (int64_t i = begin; i < end; i++) atomic_fetch_add(&done[i], 1);
    Sleep(1);
}
int main(void)
{
    aotc_pool pool;
    aotc_weights w;
    FILE *f = fopen("empty.bin", "wb");
    fclose(f);
    if (dense_pool_create(&pool, WORKERS) != AOTC_OK || pool.workers != WORKERS) return 1;
    for (int round = 0; round < 20; round++) {
        if (pool.parallel_for(pool.self, work, NULL, ITEMS) != AOTC_OK) return 2;
        for (int i = 0; i < ITEMS; i++) if (atomic_load(&done[i]) != round + 1) return 3;
    }
    printf("%d workers\n", atomic_load(&entered));
    dense_pool_destroy(&pool);
    if (dense_pool_create(&pool, 0) != AOTC_OK || pool.workers < 1) return 4;
    dense_pool_destroy(&pool);
    if (dense_weights_open(&w, "none.bin") != AOTC_WEIGHTS_MISSING) return 5;
    if (dense_weights_open(&w, ".") != AOTC_WEIGHTS_MISSING) return 6;
    if (dense_weights_open(&w, "\xff") != AOTC_WEIGHTS_MISSING) return 7;
    if (dense_weights_open(&w, "empty.bin") != AOTC_WEIGHTS_TRUNCATED) return 8;
    if (dense_weights_open(&w, "dense.h") == AOTC_OK) return 9;
    if (dense_weights_open(&w, "dense_weights.bin") != AOTC_OK) return 10;
    dense_weights_close(&w);
    remove("empty.bin");
    if (!MoveFileW(L"dense_weights.bin", L"gew\u00e4chs \u91cd.bin")) return 11;
    if (dense_weights_open(&w, "gew\xc3\xa4" "chs \xe9\x87\x8d.bin") != AOTC_OK) return 12;
    dense_weights_close(&w); /* then nothing holds it any more */
    return DeleteFileW(L"gew\u00e4chs \u91cd.bin") ? 0 : 13;
}
"""


@pytest.mark.product
def test_the_pool_of_windows_has_the_workers_asked_for(bundle_copy, home, tmp_path):
    folder = bundle_copy("dense", "c", "file")
    (folder / "test_dense.c").write_text(POOL)
    done = wine(program(folder, "x86_64-windows-gnu", tmp_path), cwd=folder, home=home)
    assert (done.returncode, done.stdout.split()) == (0, ["7", "workers"]), done


def test_profiles_have_a_clock_on_every_system(tmp_path):
    folder = aotc.compile(dense(), tmp_path / "b", name="dense", target="c",
                         profile=True).path
    for system in SYSTEMS:
        objects(folder, system, tmp_path, STRICT.split())


@pytest.mark.parametrize("file", ["dense.c", "dense_pool.c", "dense_weights.c",
                                  "dense_kernels_1.c"])
def test_cl_is_told_which_compiler_to_take(bundle, file):
    """cl.exe, as far as the preprocessor knows it: one error, which names clang-cl."""
    done = subprocess.run(["gcc", "-E", "-D_MSC_VER=1940", "-std=c11", file],
                          cwd=bundle("dense", "c"), capture_output=True, text=True)
    errors = [line for line in done.stderr.splitlines() if ": error:" in line]
    assert len(errors) == 1 and "clang-cl" in errors[0]


def test_headers_of_the_runtime_ask_for_no_other_system(tmp_path):
    """The word for a system stands in the headers that are about it alone."""
    about = {"aotc_os.h", "aotc_files.h", "aotc_threads.h", "aotc_clock.h"}
    asking = {h.name for h in runtime_c().glob("*.[ch]") if "_WIN32" in h.read_text()}
    assert asking == about
