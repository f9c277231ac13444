"""Libraries for macOS and Windows, which Python builds by their own names."""

import ctypes
import os
import sys

import pytest
from small_models import dense
from zig import needs_zig

import aotc
from aotc.emit.bundle import write
from aotc.runtime import processors
from aotc.runtime.compile_bundle import build
from aotc.runtime.platforms import (
    ELF,
    EMSCRIPTEN,
    MACOS,
    WEBASSEMBLY,
    WINDOWS,
    platform_named,
    platform_of,
)

MACHINES = {"x86_64-linux-gnu": ELF, "aarch64-unknown-freebsd14": ELF,
            "arm64-apple-darwin23.1.0": MACOS, "x86_64-unknown-macos": MACOS,
            "x86_64-w64-mingw32": WINDOWS, "x86_64-pc-windows-msvc": WINDOWS,
            "wasm32-unknown-emscripten": EMSCRIPTEN, "wasm32-unknown-wasi": WEBASSEMBLY}


@pytest.mark.parametrize("machine", MACHINES)
def test_compilers_say_which_system_they_compile_for(machine):
    assert platform_named(machine) is MACHINES[machine]


def test_this_system_is_one_of_them():
    assert platform_of(["cc"]).suffix == {"darwin": ".dylib", "win32": ".dll"}.get(
        sys.platform, ".so")


@needs_zig
@pytest.mark.product
@pytest.mark.parametrize("target, suffix, magic", [
    ("aarch64-macos", ".dylib", b"\xcf\xfa\xed\xfe"), ("x86_64-windows-gnu", ".dll", b"MZ")])
def test_libraries_are_called_as_their_system_does(target, suffix, magic, tmp_path, monkeypatch):
    """The name, the format, and of names what the header declares alone."""
    folder = aotc.compile(dense(), tmp_path / "b", name="dense", target="c").path
    monkeypatch.setenv("CC", f"{sys.executable} -m ziglang cc -target {target}")
    library = build(folder)
    assert library.suffix == suffix and library.read_bytes().startswith(magic)
    assert b"dense_run_buffers" in library.read_bytes()
    assert suffix != ".dll" or b"dense_k0" not in library.read_bytes()


def test_a_bundle_is_written_where_a_system_has_no_locks(tmp_path, monkeypatch):
    """As on Windows: no flock, no folders that can be opened, no two paths that change places."""
    monkeypatch.setattr(write, "fcntl", None)
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(ctypes, "CDLL", None)
    for _ in range(2):
        aotc.compile(dense(), tmp_path / "b", name="dense", target="c")
    assert (tmp_path / "b" / "dense.h").exists() and os.listdir(tmp_path) == ["b"]


def test_processors_are_counted_where_none_can_be_chosen(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.delattr(os, "sched_setaffinity")
    processors.stay_on([0])
    assert processors.usable_processors() == list(range(os.cpu_count()))
