"""Bundles for Android: compiled by clang for it, as far as that goes without the NDK."""

import shlex
import shutil
import subprocess

import pytest
from small_models import conv_stack, dense
from strict_flags import STRICT

import aotc

HEADERS = "/usr/aarch64-linux-gnu/include"  # of another C library, in place of the NDK's
CLANG = "clang-19"
LINKER = "aarch64-linux-gnu-gcc"
PAGE = 16384


@pytest.fixture(scope="module", params=[
    (conv_stack, "file"), pytest.param((dense, "embed"), marks=pytest.mark.product)],
    ids=lambda p: p[1])
def bundle(request, tmp_path_factory):
    make, weights = request.param
    for tool in (CLANG, LINKER):
        if shutil.which(tool) is None:
            pytest.skip(f"not installed: {tool} (Debian: clang-19, gcc-aarch64-linux-gnu)")
    return aotc.compile(make(), tmp_path_factory.mktemp("android") / "b", weights=weights,
                        target="aarch64-android", name="app")


def _dry_run(bundle, goal):
    """The commands of the bundle's Makefile, by the kind of file that they make."""
    command = f"CC={CLANG} --target=aarch64-linux-android28 -isystem {HEADERS}"
    text = subprocess.run(["make", "-n", goal, command, f"CFLAGS=-O1 {STRICT}"], check=True,
                          cwd=bundle.path, capture_output=True, text=True).stdout
    lines = [shlex.split(line) for line in text.splitlines() if line.startswith(CLANG)]
    return [c for c in lines if "-c" in c], next(c for c in lines if "-shared" in c)


def test_every_file_compiles_and_the_library_is_for_large_pages(bundle, tmp_path):
    from elftools.elf.elffile import ELFFile
    compiles, link = _dry_run(bundle, "libapp.so")
    assert all("-fPIC" in c for c in compiles) and len(compiles) > 3
    (bundle.path / "build").mkdir(exist_ok=True)
    for command in compiles:
        done = subprocess.run(command, cwd=bundle.path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    flags = [f for f in link if f.startswith("-Wl,")]
    objects = [f for f in link if f.endswith(".o")]
    library = tmp_path / "libapp.so"
    # no relocation in code: what is position-independent has none
    done = subprocess.run([LINKER, "-shared", "-nostdlib", "-Wl,-z,text", *flags, *objects, "-o",
                           str(library)], cwd=bundle.path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with open(library, "rb") as file:
        elf = ELFFile(file)
        parts = [s["p_align"] for s in elf.iter_segments() if s["p_type"] == "PT_LOAD"]
        assert elf["e_machine"] == "EM_AARCH64" and parts and {*parts} == {PAGE}


def test_its_manifest_names_the_compiler_and_the_flags(bundle):
    build = bundle.manifest["build"]
    assert build["arch"] == "aarch64" and build["link"] == [f"-Wl,-z,max-page-size={PAGE}"]
    assert build["cross"]["cc"][0] == "aarch64-linux-android28-clang"
    text = (bundle.path / "toolchain.cmake").read_text()
    assert "--target=aarch64-linux-android28" in text and "apt-get" not in text
    assert f"max-page-size={PAGE}" in (bundle.path / "CMakeLists.txt").read_text()
