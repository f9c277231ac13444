"""Every status of the C interface, provoked; and what a fault leaves behind: a status, and outputs
that are untouched or all zero."""

import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest

from aotc.runtime.compile_bundle import build, read_manifest
from aotc.runtime.loading import load
from aotc.runtime.shared_library import Library


class Caller:
    """The C interface of a bundle by hand: one context, an arena of one's own, the largest
    dimensions, every tensor filled with ``fill``."""

    def __init__(self, folder):
        self.folder, self.manifest = folder, read_manifest(folder)
        self.library = Library(folder, self.manifest, build(folder))
        self.ffi, self.function = self.library.ffi, self.library.function
        self.syms = self.ffi.new("int64_t[]", [s["hi"] for s in self.manifest["symbols"]] or [0])
        self.need = self.function("arena_size_of")(self.syms, 2)
        self.room = self.ffi.new("char[]", self.need + 128)
        self.base = -(-int(self.ffi.cast("intptr_t", self.room)) // 64) * 64
        self.context = self.ffi.new("aotc_context *")
        self.weights = self.ffi.new("aotc_weights *")
        self.weights_path = str(folder / f"{self.manifest['name']}_weights.bin")
        self.arrays = {t["onnx"]: np.zeros([d if isinstance(d, int) else d["hi"]
                                            for d in t["shape"]],
                                           {"i64": np.int64, "f32": np.float32}[t["dtype"]])
                       for t in self.manifest["inputs"] + self.manifest["outputs"]}

    def open(self, path=None):
        return self.name_of(self.function("weights_open")(
            self.weights, str(path or self.weights_path).encode()))

    def init(self, offset=0, size=None, pool=None, variant=-1):
        return self.name_of(self.function("init_variant")(
            self.context, self.weights, self.ffi.cast("void *", self.base + offset),
            self.need if size is None else size, pool or self.ffi.NULL, variant))

    def ready(self, **options):
        assert (self.open(), self.init(**options)) == ("OK", "OK")
        return self

    def run(self, skip=None, syms=None):
        def pointers(which, ctype):
            names = [t["onnx"] for t in self.manifest[which]]
            return self.ffi.new(ctype, [self.ffi.NULL if n == skip else self.ffi.cast(
                "void *", self.arrays[n].ctypes.data) for n in names])
        return self.name_of(self.function("run_buffers")(
            self.context, self.syms if syms is None else self.ffi.new("int64_t[]", syms),
            pointers("inputs", "const void *[]"), pointers("outputs", "void *[]")))

    def name_of(self, status):
        return self.library.statuses[status].removeprefix("AOTC_")

    @property
    def detail(self):
        return self.library.detail(self.context)

    def output(self):
        return self.arrays[self.manifest["outputs"][0]["onnx"]]


@pytest.fixture
def call(bundle):
    """A Caller of the embedding bundle, fresh."""
    return Caller(bundle("embedding", "c"))


def _changed(call, tmp_path, change):
    """Status of opening the weights after ``change(bytearray)``."""
    with open(call.weights_path, "rb") as f:
        data = bytearray(f.read())
    path = tmp_path / "changed.bin"
    path.write_bytes(change(data) or data)
    return call.open(path)


def _set(at, value):
    def change(data):
        data[at] = value
    return change


def _index_fault(call, tmp_path):
    call.ready().arrays["ids"][:] = 30  # the table has 30 rows
    return call.run()


def _cpu(call, tmp_path):
    """A bundle that needs an extension of a CPU nobody has here (Knights Mill)."""
    folder = shutil.copytree(call.folder, tmp_path / "b")
    path = folder / "embedding.c"
    text = path.read_text()
    guard = "static int runs_here(void)\n{\n"
    assert guard in text
    path.write_text(text.replace(guard, guard + "    __builtin_cpu_init();\n"
                                 '    if (!__builtin_cpu_supports("avx5124fmaps"))\n'
                                 "        return 0;\n"))
    other = Caller(folder)
    assert other.open() == "OK"
    return other.init()


def _no_memory(call, tmp_path):
    """A weights file larger than the address space the process may use."""
    path = tmp_path / "huge.bin"
    with open(path, "wb") as f:
        f.truncate(1 << 36)
    code = ("import resource, sys; from test_faults import Caller; from pathlib import Path\n"
            "call = Caller(Path(sys.argv[1]))\n"
            "resource.setrlimit(resource.RLIMIT_AS, (1 << 33, 1 << 33))\n"
            "print(call.open(sys.argv[2]))\n")
    done = subprocess.run([sys.executable, "-c", code, str(call.folder), str(path)], check=True,
                          capture_output=True, text=True,
                          env={"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"})
    return done.stdout.strip()


def _both(*found):
    assert len(set(found)) == 1, found
    return found[0]


# status -> what provokes it: (call, tmp_path) -> name of the status
FAULTS = {
    "OK": lambda c, t: _both(c.open(), c.init(), c.run()),
    "NULL_POINTER": lambda c, t: _both(c.run(), c.init(), c.ready().run(skip="ids"),
                                       c.run(skip="y")),
    "BAD_DIMENSION": lambda c, t: _both(c.ready().run(syms=[0, 1]), c.run(syms=[1, 21])),
    "BAD_SHAPE": None,  # no rule between dimensions here: tests/runtime/test_run.py has one
    "ARENA_TOO_SMALL": lambda c, t: c.ready(size=c.function("arena_size_of")(c.syms, 1) - 1).run(),
    "ARENA_MISALIGNED": lambda c, t: _both(c.open(), "OK") and c.init(offset=8),
    "WEIGHTS_MISSING": lambda c, t: _both(c.open(t / "none"), c.open(t)),
    "WEIGHTS_TRUNCATED": lambda c, t: _both(_changed(c, t, lambda d: d[:-64]),
                                            _changed(c, t, lambda d: d[:10]),
                                            _changed(c, t, lambda d: d + d)),
    "WEIGHTS_MAGIC": lambda c, t: _changed(c, t, _set(3, 0)),
    "WEIGHTS_VERSION": lambda c, t: _changed(c, t, _set(8, 1)),
    "WEIGHTS_CHECKSUM": lambda c, t: _changed(c, t, _set(70, 1)),
    "WEIGHTS_WRONG_MODEL": None,  # test_swapped_weights
    "WEIGHTS_MISALIGNED": lambda c, t: c.name_of(c.function("weights_from_memory")(
        c.weights, c.ffi.cast("void *", c.base + 8), 100)),
    "INDEX_OUT_OF_RANGE": _index_fault,
    "POOL_REFUSED": lambda c, t: c.name_of(  # in a run: below
        c.function("pool_create")(c.ffi.new("aotc_pool *"), 5000)),
    "CPU_UNSUPPORTED": _cpu,
    "OUT_OF_MEMORY": _no_memory,
    "NOT_AVAILABLE": lambda c, t: _both(
        c.name_of(c.function("weights_embedded")(c.weights)),
        _both(c.open(), "OK") and c.init(variant=1)),
    "SHAPE_MISMATCH": None,  # nothing is declared of data here: tests/exec/test_declared.py
    "CUDA_ERROR": None,  # of bundles for GPUs: tests/cuda
    "TENSOR_MISALIGNED": None,  # likewise, as the four that follow
    "CONTEXT_BUSY": None,
    "WRONG_DEVICE": None,
    "CAPTURE_REFUSED": None,
    "GRAPH_MISMATCH": None,
    "ILLEGAL_ACCESS": None,  # of bundles for accelerators: tests/dsa
}


@pytest.mark.parametrize("status", [s for s, provoke in FAULTS.items() if provoke])
def test_provoked(call, tmp_path, status):
    assert FAULTS[status](call, tmp_path) == status


def test_every_status_has_its_row_and_a_text(call):
    assert set(FAULTS) == {n.removeprefix("AOTC_") for n in call.library.statuses.values()}
    texts = [call.ffi.string(call.function("strerror")(s)).decode()
             for s in call.library.statuses]
    assert len(set(texts)) == len(texts) and "unknown status" not in texts
    assert call.ffi.string(call.function("strerror")(99)) == b"unknown status"


def test_swapped_weights(bundle, call):
    other = bundle("dense", "c")
    assert call.open(other / "dense_weights.bin") == "WEIGHTS_WRONG_MODEL"


def test_refused_arguments_leave_outputs_untouched(call):
    call.ready()
    for arguments in ({"skip": "ids"}, {"syms": [0, 1]}, {"syms": [5, 5]}):
        call.output()[:] = 7
        assert call.run(**arguments) != "OK" and (call.output() == 7).all()
    call.ready(size=call.function("arena_size_of")(call.syms, 1) - 64)
    assert call.run() == "ARENA_TOO_SMALL" and (call.output() == 7).all()


@pytest.mark.parametrize("bad", [30, -31, 1 << 40, -(1 << 63)])
def test_an_index_outside_its_table_names_the_node_and_clears_the_output(call, bad):
    call.ready()
    call.output()[:] = 7
    call.arrays["ids"].reshape(-1)[-1] = bad
    assert call.run() == "INDEX_OUT_OF_RANGE"
    assert "lookup" in call.detail and not call.output().any()
    call.arrays["ids"][:], call.arrays["mask"][:] = 3, 1
    assert call.run() == "OK" and call.detail == "" and call.output().any()


def _refusing_after(call, jobs):
    """A pool that does so many jobs and then refuses."""
    left = [jobs]

    @call.ffi.callback("aotc_status(void *, aotc_task, void *, int64_t)")
    def parallel_for(_, task, frame, n):
        if left[0] == 0:
            return call.ffi.typeof("aotc_status").relements["AOTC_POOL_REFUSED"]
        left[0] -= 1
        task(frame, 0, n, 0)
        return 0
    call.keep = parallel_for
    return call.ffi.new("aotc_pool *", [2, parallel_for, call.ffi.NULL])


def test_a_pool_that_refuses_midway_clears_the_outputs(bundle):
    call, seen = Caller(bundle("wide", "c")), []
    for jobs in range(20):
        call.ready(pool=_refusing_after(call, jobs))
        for name in ("p", "y"):
            call.arrays[name][:] = 7
        seen.append(call.run())
        if seen[-1] == "OK":
            break
        assert seen[-1] == "POOL_REFUSED" and call.detail == "parallel_for"
        assert not call.arrays["p"].any() and not call.arrays["y"].any()
    assert len(seen) > 2 and seen[-1] == "OK" and call.arrays["p"].all()


def test_a_callers_own_pool_does_the_work_with_the_same_bits(bundle):
    """Two threads of Python's: every item once, the last ones first."""
    call = Caller(bundle("wide", "native"))
    rng = np.random.default_rng(5)
    call.arrays["x"][:] = rng.standard_normal(call.arrays["x"].shape)
    call.arrays["which"][:] = rng.integers(0, 96, call.arrays["which"].shape)
    assert call.ready().run() == "OK"
    alone = {n: call.arrays[n].copy() for n in ("p", "y")}
    seen = set()

    def work(task, frame, ranges, worker):
        for lo, hi in ranges:
            task(frame, lo, hi, worker)
            seen.add((worker, lo, hi))

    @call.ffi.callback("aotc_status(void *, aotc_task, void *, int64_t)")
    def parallel_for(_, task, frame, n):
        parts = [(i, i + 1) for i in reversed(range(n))]
        threads = [threading.Thread(target=work, args=(task, frame, parts[w::2], w))
                   for w in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return 0
    call.keep = parallel_for
    for n in alone:
        call.arrays[n][:] = 7
    pool = call.ffi.new("aotc_pool *", [2, parallel_for, call.ffi.NULL])
    assert call.init(pool=pool) == "OK" and call.run() == "OK"
    assert {w for w, _, _ in seen} == {0, 1}
    for n, want in alone.items():
        np.testing.assert_array_equal(call.arrays[n], want)


def test_a_late_index_fault_clears_what_earlier_kernels_wrote(bundle):
    call = Caller(bundle("wide", "native")).ready()
    call.arrays["which"][3] = 1000
    call.arrays["p"][:] = call.arrays["y"][:] = 7
    assert call.run() == "INDEX_OUT_OF_RANGE" and "n_row" in call.detail
    assert not call.arrays["p"].any() and not call.arrays["y"].any()


def test_a_random_image_never_gets_past_the_checks(call, tmp_path):
    """Single flipped bits anywhere in the file, and random files, all have a status."""
    rng = np.random.default_rng(0)
    with open(call.weights_path, "rb") as f:
        good = f.read()
    path = tmp_path / "w.bin"
    for _ in range(300):
        data = bytearray(good)
        data[rng.integers(len(data))] ^= 1 << rng.integers(8)
        path.write_bytes(data)
        assert call.open(path).startswith("WEIGHTS_")
    for _ in range(50):
        path.write_bytes(rng.bytes(int(rng.integers(0, 300))))
        assert call.open(path).startswith("WEIGHTS_")


def test_unaligned_tensors_are_fine(bundle):
    """Inputs and outputs at any address of their element type; the guard bytes stay."""
    for name in ("dense", "attention"):
        call = Caller(bundle(name, "native")).ready()
        model = load(call.folder)
        x = np.random.default_rng(0).standard_normal(call.arrays["x"].shape).astype(np.float32)
        want = model.run([x])["y"]
        for shift in (1, 3, 5):
            rooms = {n: np.full(a.size + 32, 9, np.float32) for n, a in call.arrays.items()}
            call.arrays = {n: rooms[n][shift:shift + a.size].reshape(a.shape)
                           for n, a in call.arrays.items()}
            call.arrays["x"][:] = x
            assert call.run() == "OK"
            assert call.arrays["y"].tobytes() == want.tobytes()
            room = rooms["y"]
            assert (room[:shift] == 9).all() and (room[shift + want.size:] == 9).all()
