"""Building a bundle's library: once per content, anywhere, by many at once, with clear errors."""

import subprocess
import sys

import pytest
from bundle_plans import feeds, lookup_bundle, reference

from aotc.emit.bundle.write import write_bundle
from aotc.errors import AotcError, ToolchainError
from aotc.runtime import compile_bundle as module
from aotc.runtime.compile_bundle import build
from aotc.runtime.loading import load


@pytest.fixture
def fresh(tmp_path):
    return write_bundle(lookup_bundle(), tmp_path / "lookup")


def test_built_once_per_content(fresh, monkeypatch):
    seen = []
    first = build(fresh, progress=lambda *a: seen.append(a))
    assert [a[:2] for a in seen] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert {a[2] for a in seen} == {"lookup.c", "lookup_pool.c", "lookup_weights.c",
                                    "lookup_kernels_0.c"}
    stamp = first.stat().st_mtime_ns
    assert build(fresh) == first and first.stat().st_mtime_ns == stamp
    with open(fresh / "lookup.c", "a") as f:
        f.write("/* changed */\n")
    assert build(fresh) != first
    monkeypatch.setenv("CFLAGS", "-O0")
    assert build(fresh) != first


def test_elsewhere_if_the_folder_cannot_be_written(fresh, tmp_path, monkeypatch):
    (fresh / ".build").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    library = build(fresh)
    assert library.parent == tmp_path / "cache" / "aotc" and build(fresh) == library
    ids, bias = feeds()
    assert (load(fresh)(ids, bias)["out"] == reference(ids, bias)).all()
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(module, "_places", lambda f: (f / ".build", tmp_path / "file" / "x"))
    with pytest.raises(AotcError, match="no folder to build in"):
        build(fresh)


def test_a_compiler_error_is_told(fresh):
    with open(fresh / "lookup_kernels_0.c", "a") as f:
        f.write("int broken(\n")
    with pytest.raises(ToolchainError, match=r"failed on lookup_kernels_0.c(.|\n)*error"):
        build(fresh)
    assert not list((fresh / ".build").iterdir())


def test_no_compiler(fresh, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler -x")
    with pytest.raises(ToolchainError, match="no-such-compiler.*install gcc or clang"):
        build(fresh)
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ToolchainError, match="tried cc, gcc, clang"):
        build(fresh)


def test_many_processes_build_at_once(fresh):
    code = ("import sys; from aotc.runtime.compile_bundle import build\n"
            "print(build(sys.argv[1], jobs=1))")
    running = [subprocess.Popen([sys.executable, "-c", code, str(fresh)], text=True,
                                stdout=subprocess.PIPE) for _ in range(3)]
    paths = {p.communicate(timeout=120)[0] for p in running}
    assert [p.returncode for p in running] == [0, 0, 0] and len(paths) == 1
    assert [p.name for p in (fresh / ".build").iterdir()] == [paths.pop().strip().split("/")[-1]]


def test_no_bundle(tmp_path, fresh):
    with pytest.raises(AotcError, match="no bundle of aotc here"):
        build(tmp_path)
    (fresh / "lookup.c").unlink()
    with pytest.raises(AotcError, match="lookup.c is missing"):
        build(fresh)
    (fresh / "manifest.json").write_text('{"aotc_bundle": 99}')
    with pytest.raises(AotcError, match="bundle format 99"):
        build(fresh)
