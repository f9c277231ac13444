"""Running a bundle: values, statuses, thread counts, callers' mistakes."""

import subprocess
import sys
import threading

import bundle_plans
import numpy as np
import pytest
from bundle_plans import feeds, number, reference

from aotc.errors import AotcError, FaultError
from aotc.runtime.loading import load
from aotc.runtime.status import IndexFault, RunError, ShapeError


def test_all_ways_to_call(lookup):
    ids, bias = feeds()
    want = reference(ids, bias)
    for got in (lookup.run({"bias": bias, "ids": ids}), lookup.run([ids, bias]),
                lookup(ids, bias), lookup(ids=ids, bias=bias), lookup({"ids": ids, "bias": bias}),
                lookup.bind([ids, bias])()):
        assert list(got) == ["out"] and np.array_equal(got["out"], want)
    assert str(lookup.inputs[0]) == "ids: int64[batch=1..64, seq=1..100]"
    assert lookup.outputs[0].shape[2] == 8


@pytest.mark.parametrize("batch, seq", [(1, 1), (64, 3), (2, 100), (1, 1), (40, 99)])
def test_extents_and_a_growing_arena(lookup, batch, seq):
    ids, bias = feeds(batch, seq)
    assert np.array_equal(lookup(ids, bias)["out"], reference(ids, bias))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_thread_counts_give_the_same_bits(lookup_folder, threads):
    model = load(lookup_folder, threads=threads)
    assert model.threads == threads
    for batch, seq in ((1, 1), (7, 31), (40, 100)):
        ids, bias = feeds(batch, seq)
        bound = model.bind([ids, bias])
        for _ in range(50):
            bound.outputs["out"][...] = np.nan
            assert np.array_equal(bound()["out"], reference(ids, bias))


def test_binding_reads_the_bound_memory(lookup):
    ids, bias = feeds()
    bound = lookup.bind([ids, bias])
    first = bound()
    ids[...] = 4 - ids
    bias += 1
    assert bound() is first and np.array_equal(first["out"], reference(ids, bias))
    assert bound.inputs["ids"] is ids


def test_views_and_unaligned_memory(lookup):
    ids, bias = feeds()
    wide = np.zeros((3, 14), np.int64)
    wide[:, ::2] = ids
    room = np.zeros(bias.nbytes + 1, np.uint8)
    odd = room[1:].view(np.float32)
    odd[:] = bias
    assert np.array_equal(lookup(wide[:, ::2], odd)["out"], reference(ids, bias))
    with pytest.raises(ValueError, match="ids is not contiguous"):
        lookup.bind([wide[:, ::2], bias])


def _with(**changes):
    ids, bias = feeds()
    return {"ids": ids, "bias": bias, **changes}


@pytest.mark.parametrize("bad, text", [
    ({"ids": feeds()[0]}, "missing: bias; it has: ids, bias"),
    (_with(x=1), "unknown: x"),
    ([feeds()[0]], "1 inputs given, it has 2"),
    (7, "expected a dict or a list of arrays, got int"),
    (_with(ids=feeds()[0].astype(np.int32)), "dtype is int32, expected int64; convert with"),
    (_with(bias=feeds()[1].astype(">f4")), "dtype is >f4, expected float32"),
    (_with(ids=np.zeros(3, np.int64)), "expected rank 2"),
    (_with(ids=np.zeros((65, 3), np.int64)), "dimension 0 of shape .* is 65, must be 1..64"),
    (_with(ids=np.zeros((3, 0), np.int64)), "is 0, must be 1..100"),
    (_with(bias=np.zeros(4, np.float32)), "is 4, but it is 3 in input ids")])
def test_mistakes_are_value_errors_and_nothing_runs(lookup, bad, text):
    with pytest.raises(ValueError, match=text):
        lookup.run(bad)


def test_position_and_name_do_not_mix(lookup):
    with pytest.raises(ValueError, match="not both"):
        lookup(feeds()[0], bias=feeds()[1])


def test_index_out_of_its_table_names_the_node(lookup_folder):
    for threads in (1, 3):
        model = load(lookup_folder, threads)
        ids, bias = feeds()
        for wrong in (5, -1, 1 << 40):
            ids[2, 3] = wrong
            with pytest.raises(IndexFault, match="index out of range: gather_0") as found:
                model(ids, bias)
            assert isinstance(found.value, (AotcError, FaultError, IndexError))
        ids[2, 3] = 0
        assert np.array_equal(model(ids, bias)["out"], reference(ids, bias))


def test_a_broken_rule_is_a_shape_error(lookup):
    with pytest.raises(ShapeError, match="batch . seq must stay small"):
        lookup(*feeds(64, 100))


def test_many_python_threads_share_a_model(lookup_folder):
    model = load(lookup_folder, threads=2)
    wrong = []

    def work(k):
        ids, bias = feeds(k + 1, 5 * k + 1)
        for _ in range(50):
            if not np.array_equal(model(ids, bias)["out"], reference(ids, bias)):
                wrong.append(k)
    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


class Caller:
    """The C interface by hand: one context over one's own arena."""

    def __init__(self, model):
        self.ffi, self.lib = model._ffi, model._library
        self.weights = model._weights
        self.context = self.ffi.new("aotc_context *")
        self.room = np.zeros(1 << 16, np.uint8)
        self.base = -(-self.room.__array_interface__["data"][0] // 64) * 64
        self.ids, self.bias = feeds()
        self.out = np.zeros((3, 7, 8), np.float32)

    def at(self, array, offset=0):
        return self.ffi.cast("void *", array.__array_interface__["data"][0] + offset)

    def init(self, offset=0, size=1 << 15, pool=None, weights=None, context=None):
        return self.lib.function("init")(
            context or self.context, weights or self.weights,
            self.ffi.cast("void *", self.base + offset), size, pool or self.ffi.NULL)

    def run(self, batch=3, seq=7, **changes):
        ids, bias, out = (changes.get(n, self.at(getattr(self, n))) for n in ("ids", "bias", "out"))
        return self.lib.function("run")(self.context, batch, seq, self.ffi.cast("int64_t *", ids),
                                        self.ffi.cast("float *", bias),
                                        self.ffi.cast("float *", out))

    def fails(self, got, status, detail):
        assert got == number(self.lib, f"AOTC_{status}")
        assert detail in self.lib.detail(self.context)


def test_statuses_of_init_and_run(lookup):
    c = Caller(lookup)
    null = c.ffi.NULL
    c.fails(c.run(), "NULL_POINTER", "call lookup_init first")
    c.fails(c.init(offset=8), "ARENA_MISALIGNED", "arena")
    c.fails(c.init(weights=c.ffi.new("aotc_weights *")), "NULL_POINTER", "weights")
    c.fails(c.lib.function("init")(c.context, c.weights, null, 0, null), "NULL_POINTER", "arena")
    c.fails(c.init(pool=c.ffi.new("aotc_pool *")), "POOL_REFUSED", "parallel_for")
    need = c.lib.function("arena_size")(3, 7, 1)
    assert c.init(size=need - 1) == 0
    c.fails(c.run(), "ARENA_TOO_SMALL", "arena_size")
    assert c.init(size=need) == 0
    c.fails(c.run(ids=null), "NULL_POINTER", "ids")
    c.fails(c.run(out=null), "NULL_POINTER", "out")
    c.fails(c.run(batch=0), "BAD_DIMENSION", "batch must be 1..64")
    c.fails(c.run(seq=101), "BAD_DIMENSION", "seq must be 1..100")
    c.fails(c.run(batch=64, seq=90), "BAD_SHAPE", "must stay small")
    assert c.run() == 0 and c.lib.detail(c.context) == ""
    assert np.array_equal(c.out, reference(c.ids, c.bias))


def test_statuses_without_a_context(lookup):
    c, null = Caller(lookup), lookup._ffi.NULL
    bad = number(c.lib, "AOTC_NULL_POINTER")
    assert c.lib.function("run_buffers")(null, null, null, null) == bad
    assert c.lib.function("init")(null, c.weights, null, 0, null) == bad
    assert c.lib.function("pool_create")(null, 1) == bad
    assert c.lib.function("weights_open")(null, b"x") == bad
    c.lib.function("pool_destroy")(null)
    c.lib.function("weights_close")(null)
    syms, shape = c.ffi.new("int64_t[]", [3, 7]), c.ffi.new("int64_t[]", 3)
    assert c.lib.function("arena_size_of")(null, 1) == 0
    assert c.lib.function("arena_size_of")(syms, 0) == 0
    assert c.lib.function("output_shape")(0, null, shape) == bad
    assert c.lib.function("output_shape")(0, syms, null) == bad
    assert c.lib.function("output_shape")(1, syms, shape) == number(c.lib, "AOTC_BAD_DIMENSION")
    assert c.lib.function("output_shape")(0, syms, shape) == 0 and list(shape) == [3, 7, 8]


def test_a_pool_of_ones_own(lookup):
    c = Caller(lookup)
    seen = []

    @c.ffi.callback("aotc_status(void *, aotc_task, void *, int64_t)")
    def backwards(_, task, frame, n):
        seen.append(n)
        for i in reversed(range(n)):
            task(frame, i, i + 1, i % 3)
        return 0

    @c.ffi.callback("aotc_status(void *, aotc_task, void *, int64_t)")
    def refuse(_, task, frame, n):
        return number(c.lib, "AOTC_POOL_REFUSED")

    pool = c.ffi.new("aotc_pool *", [3, backwards, c.ffi.NULL])
    assert c.init(pool=pool) == 0 and c.run() == 0 and seen == [21, 21]
    assert np.array_equal(c.out, reference(c.ids, c.bias))
    pool = c.ffi.new("aotc_pool *", [3, refuse, c.ffi.NULL])
    assert c.init(pool=pool) == 0
    c.fails(c.run(), "POOL_REFUSED", "parallel_for")


def test_too_many_threads(lookup_folder):
    with pytest.raises(RunError, match="pool refused: threads=100000"):
        load(lookup_folder, threads=100000)


def test_a_forked_process_runs_and_ends(lookup_folder):
    code = ("import os, sys; sys.path.insert(0, sys.argv[2])\n"
            "from bundle_plans import feeds, reference\nfrom aotc.runtime.loading import load\n"
            "m = load(sys.argv[1], threads=3); i, b = feeds(); m(i, b)\n"
            "pid = os.fork()\nok = (m(i, b)['out'] == reference(i, b)).all()\n"
            "if pid: ok = ok and os.waitpid(pid, 0)[1] == 0\n"
            "sys.exit(0 if ok else 1)\n")
    subprocess.run([sys.executable, "-c", code, str(lookup_folder),
                    bundle_plans.__file__.rpartition("/")[0]], check=True, timeout=60)


def test_shapes_that_were_seen_are_checked_as_new_ones(lookup_folder):
    """What a shape decides is kept for later calls: other dtypes, shapes that disagree and more
    of them than are kept."""
    model = load(lookup_folder)
    ids, bias = feeds(2, 3)
    assert np.array_equal(model(ids, bias)["out"], reference(ids, bias))
    with pytest.raises(ValueError, match="dtype is int32"):
        model(ids.astype(np.int32), bias)
    with pytest.raises(ValueError, match="is 4, but it is 2"):
        model(ids, np.zeros(4, np.float32))
    with pytest.raises(ValueError, match="no input's shape tells"):
        model.run([ids, bias], dims={"seq": 3})
    for _ in range(2):
        for seq in range(1, 90):
            ids, bias = feeds(1, seq)
            got = model(ids, bias)["out"]
            assert got.shape[1] == seq and np.array_equal(got, reference(ids, bias))
    with pytest.raises(ValueError, match="must be 1..64"):
        model(np.zeros((65, 3), np.int64), feeds(1, 3)[1])
