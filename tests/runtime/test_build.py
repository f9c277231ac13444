"""Building a bundle's library: once per content, anywhere, by many at once, with clear errors."""

import subprocess
import sys

import numpy as np
import pytest
from bundle_plans import feeds, lookup_bundle, reference
from onnx import save
from small_models import dense

import aotc
from aotc.emit.bundle.write import write_bundle
from aotc.errors import AotcError, ToolchainError
from aotc.runtime import compile_bundle as module
from aotc.runtime.compile_bundle import build
from aotc.runtime.loading import load
from aotc.tools.peers import open_reference


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    monkeypatch.delenv("AOTC_OBJECTS", raising=False)
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


def test_bundles_share_objects(tmp_path, monkeypatch):
    (tmp_path / "objects").mkdir()
    monkeypatch.setenv("AOTC_OBJECTS", str(tmp_path / "objects"))
    compiled = []
    for name in ("first", "second"):
        folder = write_bundle(lookup_bundle(), tmp_path / name)
        build(folder, progress=lambda done, of, file: compiled.append(file))
        ids, bias = feeds()
        assert (load(folder)(ids, bias)["out"] == reference(ids, bias)).all()
    assert len(compiled) == 4 == len(list((tmp_path / "objects").iterdir()))
    with open(folder / "lookup.h", "a") as f:
        f.write("/* changed */\n")
    build(folder, progress=lambda done, of, file: compiled.append(file))
    assert set(compiled[4:]) == {"lookup.c", "lookup_kernels_0.c"}  # what includes it


def test_shared_objects_hold_their_own_weights(tmp_path, monkeypatch):
    (tmp_path / "objects").mkdir()
    monkeypatch.setenv("AOTC_OBJECTS", str(tmp_path / "objects"))
    x, got = np.ones((2, 8), np.float32), []
    for seed in (0, 1):
        path = tmp_path / f"{seed}" / "m.onnx"
        path.parent.mkdir()
        save(dense(rows=2, seed=seed), path)
        got.append(aotc.compile(path, path.parent / "b", target="c", weights="embed").load()(x))
        want = open_reference(path)[1]({"x": x})
        np.testing.assert_allclose(got[-1]["y"], want["y"], rtol=1e-5, atol=1e-6)
    assert (got[0]["y"] != got[1]["y"]).any()


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
