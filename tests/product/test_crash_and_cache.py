"""Killed compilers, parallel compilers, concurrent loads: nobody ever sees half of anything."""

import errno
import fcntl
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from onnx import save
from small_models import dense

import aotc
from aotc.emit.bundle import write
from aotc.options import Options
from aotc.pipeline import run_pipeline

COMPILE = [sys.executable, "-m", "aotc", "compile"]


def whole(folder):
    """The manifest of a bundle in which every file is there and has the bytes it should have."""
    manifest = json.loads((folder / "manifest.json").read_text())
    found = {p.name for p in folder.iterdir()} - {"manifest.json"}
    assert found == set(manifest["files"])
    for name, digest in manifest["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name
    return manifest


@pytest.fixture(autouse=True)
def no_objects(monkeypatch):
    """What is built here is compiled here."""
    monkeypatch.delenv("AOTC_OBJECTS", raising=False)


@pytest.fixture
def two_models(tmp_path):
    """Paths of two versions of a model."""
    paths = [tmp_path / "one" / "m.onnx", tmp_path / "two" / "m.onnx"]
    for seed, path in enumerate(paths):
        path.parent.mkdir()
        save(dense(seed=seed), path)
    return paths


def _start(model, out, **env):
    return subprocess.Popen([*COMPILE, str(model), "-o", str(out), "--target", "c"],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                            env=dict(os.environ, **env))


def _write_and_die(bundle, out, steps):
    """In a child process: write the bundle, with SIGKILL before file operation number ``steps``.
    Returns the child's status as ``os.waitpid`` tells it."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    left = [steps]

    def counted(real):
        def call(*args, **options):
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **options)
        return call
    for owner, names in ((os, ("rename", "chmod")), (Path, ("write_bytes", "mkdir")),
                         (write.shutil, ("rmtree",)), (write, ("_exchange", "_place"))):
        for name in names:
            setattr(owner, name, counted(getattr(owner, name)))
    try:
        write.write_bundle(bundle, out)
        os._exit(0)
    finally:
        os._exit(1)


@pytest.mark.product  # tests/emit/test_write.py breaks off at one step
@pytest.mark.parametrize("earlier", [False, True])
def test_killed_at_every_step_of_writing(two_models, tmp_path, earlier):
    """SIGKILL before each file operation in turn, until a run survives."""
    out = tmp_path / "out" / "bundle"
    out.parent.mkdir()
    old, new = (run_pipeline(Options(m, target="c", name="m", stop_after="bundle")).bundle
                for m in two_models)
    if earlier:
        write.write_bundle(old, out)
    for step in range(200):
        status = _write_and_die(new, out, step)
        assert status in (0, signal.SIGKILL)
        if out.exists():
            text = (out / "manifest.json").read_bytes()
            assert text in (new.files["manifest.json"], old.files["manifest.json"] * earlier)
            whole(out)
        else:
            assert not earlier
        if status == 0:
            break
    assert status == 0 and step > len(new.files)
    assert text == new.files["manifest.json"]
    assert [p.name for p in out.parent.iterdir()] == ["bundle"]  # what was left is gone


@pytest.mark.parametrize("locks", [True, False])
def test_empty_work_folders(two_models, tmp_path, monkeypatch, locks):
    """Left by a run that was killed before it made its lock.  Where folders can be locked nobody
    else can be about to make one; else a new one is left alone."""
    out = tmp_path / "out" / "bundle"
    bundle = run_pipeline(Options(two_models[0], target="c", stop_after="bundle")).bundle
    write.write_bundle(bundle, out)
    mark = hashlib.sha256(b"bundle").hexdigest()[:12]
    old, new = (out.parent / f".aotc-{mark}-{n}" for n in ("old", "new"))
    for folder in (old, new):
        folder.mkdir()
    os.utime(old, (1, 1))
    if not locks:
        real = fcntl.flock

        def refusing(file, how):
            if isinstance(file, int):
                raise OSError(errno.EBADF, "no locks on folders here")
            real(file, how)
        monkeypatch.setattr(fcntl, "flock", refusing)
    write.write_bundle(bundle, out)
    assert not old.exists() and new.exists() == (not locks)


@pytest.mark.product
def test_killed_at_random_moments(two_models, tmp_path):
    out = tmp_path / "out" / "bundle"
    aotc.compile(two_models[0], out, target="c", name="m")
    rng, killed = random.Random(0), 0
    start = time.monotonic()
    _start(two_models[0], out).wait()
    usual = time.monotonic() - start
    for k in range(100):
        process = _start(two_models[k % 2], out)
        time.sleep(rng.uniform(0.3, 1.1) * usual)
        process.kill()
        died = process.wait() == -signal.SIGKILL
        whole(out)
        killed += died
        if killed == 15:
            break
        if not died:  # it was done: the machine is less busy than it was
            usual *= 0.95
    assert killed == 15
    aotc.compile(two_models[0], out, target="c", name="m")
    assert [p.name for p in out.parent.iterdir()] == ["bundle"]


@pytest.mark.product
def test_compilers_side_by_side(two_models, tmp_path):
    """Into folders of their own and, all together, into one."""
    folders = [tmp_path / "a", tmp_path / "same", tmp_path / "same"]
    running = [_start(two_models[k % 2], f) for k, f in enumerate(folders)]
    assert [p.wait() for p in running] == [0] * 3
    a, same, _ = (whole(f)["weights_hash"] for f in folders)
    b = aotc.compile(two_models[1], tmp_path / "b", target="c").manifest["weights_hash"]
    assert a != b and same in (a, b)
    assert not list(tmp_path.glob(".aotc-*"))


def test_writers_of_one_folder(two_models, tmp_path):
    """Many processes that start to write the same bundle at the same moment, all succeed."""
    bundles = [run_pipeline(Options(m, target="c", name="m", stop_after="bundle")).bundle
               for m in two_models]
    for attempt in range(3):
        out = tmp_path / f"out{attempt}"
        children = []
        for k in range(8):
            child = os.fork()
            if not child:
                try:
                    write.write_bundle(bundles[k % 2], out)
                    os._exit(0)
                finally:
                    os._exit(1)
            children.append(child)
        assert [os.waitpid(c, 0)[1] for c in children] == [0] * 8
        whole(out)


LOAD = """
import sys, numpy as np, aotc
x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)
print(aotc.load(sys.argv[1])(x)["y"].tobytes().hex())
"""


@pytest.mark.parametrize("read_only", [pytest.param(False, marks=pytest.mark.product), True])
def test_concurrent_loads_of_one_bundle(two_models, tmp_path, read_only):
    """Also of one in a read-only folder: the objects go to the cache (a file in the way of the
    bundle's own build folder stands for a folder that cannot be written, also for root)."""
    bundle = aotc.compile(two_models[0], tmp_path / "bundle", target="c")
    cache = tmp_path / "cache"
    if read_only:
        (bundle.path / ".build").write_text("")
        (bundle.path / ".build").chmod(0o444)
        bundle.path.chmod(0o555)
    env = dict(os.environ, XDG_CACHE_HOME=str(cache))
    running = [subprocess.Popen([sys.executable, "-c", LOAD, str(bundle.path)], env=env, text=True,
                                stdout=subprocess.PIPE) for _ in range(3)]
    texts = {p.communicate(timeout=300)[0] for p in running}
    bundle.path.chmod(0o755)
    assert [p.returncode for p in running] == [0] * 3 and len(texts) == 1
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)
    got = np.frombuffer(bytes.fromhex(texts.pop()), np.float32)
    assert np.isfinite(got).all() and x.size == 24 and got.size == 12
    assert bool(list(cache.rglob("*.so"))) == read_only
    places = [cache / "aotc"] if read_only else [bundle.path / ".build"]
    assert [len(list(p.iterdir())) for p in places] == [1]  # no temporary folder stays behind


def test_what_a_killed_build_left_is_removed(two_models, tmp_path):
    bundle = aotc.compile(two_models[0], tmp_path / "bundle", target="c")
    old, new = (bundle.path / ".build" / f".build-{n}" for n in ("old", "new"))
    for folder in (old, new):
        folder.mkdir(parents=True)
        (folder / "x.o").write_text("half")
    os.utime(old, (1, 1))
    bundle.load()
    assert new.exists() and not old.exists()
