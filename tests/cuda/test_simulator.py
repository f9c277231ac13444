"""The simulator runs right kernels right, in any order of their threads."""

import os
import subprocess
import sys

import numpy as np
import pytest
from cusim_build import ORDERS, build_device, needs_cxx

F32 = np.float32
pytestmark = needs_cxx


@pytest.fixture(scope="module")
def device(tmp_path_factory):
    return build_device(tmp_path_factory.mktemp("right"), "right_kernels.cu")


@pytest.fixture
def rng():
    return np.random.default_rng()


@pytest.fixture(params=ORDERS)
def ordered(request, device):
    device.order(request.param)
    yield device
    device.order("forward")


@pytest.mark.parametrize("m, n, k", [(150, 192, 128), (1, 64, 16), (65, 64, 40)])
def test_sgemm_through_shared_memory(ordered, rng, m, n, k):
    a, b = rng.standard_normal((m, k), F32), rng.standard_normal((k, n), F32)
    got = ordered.call("run_sgemm", m, n, k, a, b, np.empty((m, n), F32), out=5)
    np.testing.assert_allclose(got, a.astype(float) @ b, rtol=1e-4, atol=1e-4)


def test_nan_and_infinity_stay_in_their_row_and_column(device, rng):
    a, b = rng.standard_normal((64, 16), F32), rng.standard_normal((16, 64), F32)
    a[3, 5], b[2, 7] = np.nan, np.inf
    got = device.call("run_sgemm", 64, 64, 16, a, b, np.empty((64, 64), F32), out=5)
    finite = np.isfinite(got)
    assert not finite[3].any() and not finite[:, 7].any()
    assert np.delete(np.delete(finite, 3, 0), 7, 1).all()


def test_tensor_cores(ordered, rng):
    m, n, k = 128, 64, 96
    a, b = rng.standard_normal((m, k), F32), rng.standard_normal((k, n), F32)
    got = ordered.call("run_hgemm", m, n, k, a, b, np.empty((m, n), F32), out=5)
    halves = a.astype(np.float16).astype(float) @ b.astype(np.float16).astype(float)
    np.testing.assert_allclose(got, halves, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n", [1, 31, 128, 1000])
def test_softmax_by_shuffles(ordered, rng, n):
    x = rng.standard_normal((7, n), F32) * 5
    want = np.exp(x - x.max(1, keepdims=True).astype(float))
    got = ordered.call("run_softmax", 7, n, x, np.empty_like(x), out=3)
    np.testing.assert_allclose(got, want / want.sum(1, keepdims=True), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("n", [32, 96, 1024])
def test_ballots_warp_barriers_and_dynamic_memory(ordered, rng, n):
    x, count = rng.standard_normal(n, F32), np.zeros(1, np.int32)
    got = ordered.call("run_reverse", n, x, np.empty_like(x), count, out=2)
    np.testing.assert_array_equal(got, x.reshape(-1, 2)[:, ::-1].ravel()[::-1])
    counted = ordered.call("run_reverse", n, x, np.empty_like(x), count, out=3)
    assert counted[0] == (x > 0).sum()


def test_half_precision_rounds_like_numpy(device, rng):
    bits = rng.integers(0, 2**32, 20000, np.uint32).view(F32)
    near = rng.standard_normal(20000).astype(F32) * 10.0 ** rng.integers(-9, 6, 20000)
    ties = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(F32)
    ties = ties[np.isfinite(ties)]
    between = np.nextafter(ties, F32(np.inf))
    edges = np.array([65504, 65519.996, 65520, 2**-14, 2**-24, 2**-25, 1.5 * 2**-24, 0, -0.0,
                      np.inf, -np.inf, np.nan], F32)
    x = np.concatenate([bits, near.astype(F32), ties, between, edges])
    got = device.call("run_through_half", len(x), x, np.empty_like(x), out=2)
    with np.errstate(over="ignore"):
        want = x.astype(np.float16).astype(F32)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


def test_indices_in_three_dimensions(ordered):
    got = ordered.call("run_indices", np.full(24 * 64, -1, np.int32), out=0)
    np.testing.assert_array_equal(got, np.arange(24 * 64))


def test_order_of_blocks_warps_and_lanes(device):
    def turns(order):
        device.order(order)
        return device.call("run_turns", np.zeros(1, np.int32), np.empty(384, np.int32), out=1)
    np.testing.assert_array_equal(turns("forward"), np.arange(384))
    np.testing.assert_array_equal(turns("reverse"), np.arange(384)[::-1])
    one, other = turns("random:1"), turns("random:2")
    device.order("forward")
    for order in (one, other):
        assert sorted(order) == list(range(384)) and (np.diff(order) != 1).mean() > 0.5
        # a block begins when the one before it has ended, a warp runs as far as it can
        assert np.array_equal(np.unique(order.reshape(6, 64).min(1)), np.arange(6) * 64)
        assert (np.ptp(order.reshape(12, 32), axis=1) == 31).all()
    assert (one != other).any()


@pytest.mark.parametrize("order, first", [("forward", 0), ("reverse", 383)])
def test_the_environment_tells_the_order(device, order, first):
    code = ("import sys, numpy as np; from cusim_build import Device;"
            "print(Device(sys.argv[1]).call('run_turns', np.zeros(1, np.int32),"
            " np.empty(384, np.int32), out=1)[0])")
    env = dict(os.environ, AOTC_CUSIM_ORDER=order, PYTHONPATH=os.pathsep.join(sys.path))
    done = subprocess.run([sys.executable, "-c", code, device.path], env=env, check=True,
                          capture_output=True, text=True, timeout=120)
    assert int(done.stdout) == first
