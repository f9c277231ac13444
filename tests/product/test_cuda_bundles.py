"""CUDA bundles as their users have them: hostile names, dynamic models, refused arguments."""

import shutil
import subprocess

import numpy as np
import pytest
from hostile_names import HOSTILE, hostile_feeds, hostile_model
from onnx import save
from product_models import attention, convnet, embedding

import aotc
from aotc.errors import FaultError
from aotc.runtime.loading import load

TARGET = "cuda:sm_80"


def _strict_make(folder):
    """Build a bundle with nvcc, all warnings being errors; nothing where there is no nvcc."""
    if shutil.which("nvcc"):
        flags = "-O1 -Werror all-warnings -Xcompiler -Wall,-Wextra,-Werror"
        done = subprocess.run(["make", "-j2", f"NVCCFLAGS={flags}", "static"], cwd=folder,
                              capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


@pytest.mark.product
def test_hostile_names(tmp_path):
    path = tmp_path / "model.onnx"
    save(hostile_model(), path)
    bundle = aotc.compile(path, tmp_path / "out", target=TARGET,
                          dims=dict.fromkeys(HOSTILE[:6], (1, 4)))
    model = load(bundle.path, simulate=True)
    assert [t.name for t in model.inputs] == HOSTILE
    feeds = hostile_feeds(3)
    for k, (name, got) in enumerate(model.run(feeds).items()):
        assert np.array_equal(got, np.maximum(feeds[HOSTILE[k]] * (k + 1), 0)), name
    assert not list(tmp_path.rglob("pwned"))
    _strict_make(bundle.path)


@pytest.mark.product
@pytest.mark.parametrize("make, feeds", [
    (attention, lambda rng: [{"x": rng.standard_normal((b, s, 24)).astype(np.float32)}
                             for b, s in ((1, 1), (2, 17), (3, 40))]),
    (convnet, lambda rng: [{"image": rng.standard_normal((1, 3, 14, 13)).astype(np.float32)}])])
def test_the_results_of_the_portable_bundle(make, feeds, tmp_path):
    cpu = aotc.compile(make(), tmp_path / "c", target="c", name="model").load()
    bundle = aotc.compile(make(), tmp_path / "cuda", target=TARGET, name="model")
    gpu = load(bundle.path, simulate=True)
    for f in feeds(np.random.default_rng(3)):
        want, got = cpu.run(f), gpu.run(f)
        for name in want:
            np.testing.assert_allclose(got[name], want[name], rtol=2e-5, atol=2e-5)
    _strict_make(bundle.path)


def test_faults_have_words_and_pass(tmp_path):
    """An index outside its table names its node, in the call that had it and in no later one."""
    bundle = aotc.compile(embedding(), tmp_path / "e", target=TARGET, name="emb",
                          dims={"batch": (1, 4), "seq": (1, 20)})
    model = load(bundle.path, simulate=True)
    good = {"ids": np.array([[0, 29, 3], [-1, 7, 7]]), "mask": np.ones((2, 3), np.int64)}
    first = model.run(good)["y"]
    for wrong in (30, -31, 1 << 40):
        with pytest.raises(FaultError, match="index.*: .*lookup"):
            model.run({**good, "ids": np.array([[0, 1, 2], [wrong, 4, 5]])})
        assert np.array_equal(first, model.run(good)["y"])


def test_refused_arguments(tmp_path):
    bundle = aotc.compile(attention(), tmp_path / "a", target=TARGET, name="att")
    model = load(bundle.path, simulate=True)
    ffi, library = model._ffi, model._library
    model.run({"x": np.zeros((1, 2, 24), np.float32)})
    run, null = library.function("run_buffers"), ffi.NULL
    context = model._context

    def status(value):
        return ffi.string(library.function("strerror")(value)).decode(), library.detail(context)

    one = ffi.new("void *[1]", [model._device_arena.pointer])
    syms = ffi.new("int64_t[]", [1, 2])
    assert "null" in status(run(context, null, one, one, null))[0]
    assert "null" in status(run(context, syms, null, one, null))[0]
    words, detail = status(run(context, ffi.new("int64_t[]", [0, 2]), one, one, null))
    assert "outside its range" in words and "must be" in detail
    context.arena_bytes = 64
    words, detail = status(run(context, syms, one, one, null))
    assert "too small" in words and "att_arena_size" in detail
