"""The simulator's matrix instructions are those of the PTX ISA: each register of each lane, numbers
that are rounded, NaN and infinity, and products whose operands come by cp.async and ldmatrix."""

import shutil
import subprocess

import numpy as np
import pytest
from cusim_build import HERE, ORDERS, build_device, needs_cxx

from aotc.ir.dtypes import from_bf16, to_bf16
from aotc.runtime.simulate import cuda_folder

F32 = np.float32
LANE, GROUP, T = np.arange(32), np.arange(32) // 4, np.arange(32) % 4


@pytest.fixture(scope="module")
def device(tmp_path_factory):
    return build_device(tmp_path_factory.mktemp("mma"), "mma_kernels.cu")


@pytest.fixture
def rng():
    return np.random.default_rng()


def to_tf32(x):
    """f32: the nearest floats with a mantissa of 10 bits, halves away from zero."""
    x = np.asarray(x, np.float64)
    unit = np.ldexp(1.0, np.maximum(np.frexp(x)[1], -125) - 11)  # of subnormals the least's
    with np.errstate(over="ignore"):
        return np.copysign(np.trunc(np.abs(x) / unit + 0.5) * unit, x).astype(F32)


def registers(matrix, rows, columns):
    """u32[32, registers]: what each lane holds of the elements (rows, columns), [32, registers,
    neighbours in a register] each."""
    return np.ascontiguousarray(matrix[rows, columns]).view(np.uint32)[..., 0]


def fragments(a, b):
    """Registers of A [16, K] and B [K, 8] of a lane, by the tables of the PTX ISA ("Matrix
    Fragments for mma.m16n8kK"): an element i of a fragment lies in register i / E, and so on."""
    each = 4 // a.itemsize
    i = np.arange(4 * each)
    upper = i % (2 * each) >= each  # a1 and a3: the rows from 8 on
    rows = GROUP[:, None] + 8 * upper
    columns = T[:, None] * each + i % each + 4 * each * (i >= 2 * each)
    j = np.arange(2 * each)
    depth = T[:, None] * each + j % each + 4 * each * (j >= each)
    shape = (32, -1, each)
    return (registers(a, rows.reshape(shape), columns.reshape(shape)),
            registers(b, depth.reshape(shape),
                      np.broadcast_to(GROUP[:, None], depth.shape).reshape(shape)))


def sums(c, back=False):
    """The four sums of each lane, [32, 4], of C [16, 8], or C of those."""
    i = np.arange(4)
    at = GROUP[:, None] + 8 * (i >= 2), T[:, None] * 2 + i % 2
    if not back:
        return np.ascontiguousarray(c[at])
    whole = np.empty((16, 8), c.dtype)
    whole[at] = c
    return whole


def wide(x, name):
    """The numbers that operands of a kind are, in double precision."""
    return (from_bf16(x) if name == "bf16" else x).astype("f8")


def operands(rng, name, *shape):
    """Random operands of a kind: f16, u16 (the bits of bf16), f32 that are tf32, or bytes."""
    if name in ("s8", "u8"):
        kind = np.int8 if name == "s8" else np.uint8
        info = np.iinfo(kind)
        return rng.integers(info.min, info.max + 1, shape, kind)
    x = rng.standard_normal(shape).astype(F32)
    return {"f16": lambda: x.astype(np.float16), "bf16": lambda: to_bf16(x),
            "tf32": lambda: to_tf32(x)}[name]()


def one(device, mma, a, b, c):
    fa, fb = fragments(a, b)
    got = device.call(f"run_one_{mma}", fa, fb, sums(c), out=2)
    return sums(got, back=True)


FLOATS = {"f16": ("m16n8k16_f16f32", 16), "bf16": ("m16n8k16_bf16f32", 16),
          "tf32": ("m16n8k8_tf32f32", 8)}


@needs_cxx
@pytest.mark.parametrize("name", FLOATS)
def test_registers_of_floats_are_those_of_the_isa(device, rng, name):
    mma, k = FLOATS[name]
    a, b = operands(rng, name, 16, k), operands(rng, name, k, 8)
    c = rng.standard_normal((16, 8)).astype(F32)
    want = wide(a, name) @ wide(b, name) + c
    np.testing.assert_allclose(one(device, mma, a, b, c), want, rtol=1e-5, atol=1e-5)


@needs_cxx
@pytest.mark.parametrize("name", FLOATS)
def test_nan_and_infinity_reach_their_row_and_column(device, rng, name):
    mma, k = FLOATS[name]
    a, b = (rng.standard_normal(s).astype(F32) for s in ((16, k), (k, 8)))
    a[3, 5], a[9, 2], b[2, :4], b[7, 6] = np.nan, np.inf, 0, -np.inf
    if name != "tf32":
        a, b = ((to_bf16 if name == "bf16" else np.float16)(x) for x in (a, b))
    else:
        a, b = to_tf32_of(device, a), to_tf32_of(device, b)
    with np.errstate(invalid="ignore"):
        want = np.array([[np.sum(wide(a, name)[i] * wide(b, name)[:, j]) for j in range(8)]
                         for i in range(16)])
    got = one(device, mma, a, b, np.zeros((16, 8), F32))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    assert np.isnan(got[3]).all() and np.isnan(got[9, :4]).all()  # infinity times zero
    infinite = np.isinf(want)
    assert infinite.any()
    np.testing.assert_array_equal(got[infinite], want[infinite])


@needs_cxx
@pytest.mark.parametrize("left", ["s8", "u8"])
@pytest.mark.parametrize("right", ["s8", "u8"])
def test_registers_of_bytes_are_those_of_the_isa(device, rng, left, right):
    a, b = operands(rng, left, 16, 32), operands(rng, right, 32, 8)
    c = rng.integers(-2**31, 2**31, (16, 8), np.int32)
    c[:2], c[2:4] = 2**31 - 1, -2**31  # sums wrap around
    exact = a.astype(np.int64) @ b.astype(np.int64) + c
    got = one(device, f"m16n8k32_{left}{right}", a, b, c)
    np.testing.assert_array_equal(got, exact.astype(np.int32))
    assert (exact != got).any()


def to_tf32_of(device, x):
    bits = device.call("run_through_tf32", x.size, x, np.empty(x.shape, np.uint32), out=2)
    return bits.view(F32)


@needs_cxx
def test_tf32_is_rounded_to_the_nearest_and_halves_away_from_zero(device, rng):
    tie = np.array([1, 1 + 2**-11, 1 + 2**-10 + 2**-11, -1 - 2**-11, 2**-126, 2**-127, 2**-149,
                    2**-137, 0, -0.0, 3.4e38, -np.finfo(F32).max, np.inf, -np.inf], F32)
    bits = rng.integers(0, 2**32, 20000, np.uint32).view(F32)
    with np.errstate(over="ignore"):
        beside = [np.nextafter(tie, F32(end)) for end in (np.inf, -np.inf)]
    x = np.concatenate([tie, *beside, bits])
    x = x[~np.isnan(x)]
    got = to_tf32_of(device, x)
    finite = np.isfinite(x)
    np.testing.assert_array_equal(got[finite], to_tf32(x[finite]))
    np.testing.assert_array_equal(got[~finite], x[~finite])
    assert got[1] == F32(1 + 2**-10) and got[3] == F32(-1 - 2**-10) and np.isinf(got[11])
    np.testing.assert_array_equal(np.signbit(got), np.signbit(x))
    np.testing.assert_array_equal(to_tf32_of(device, got), got)
    assert np.isnan(to_tf32_of(device, np.array([np.nan, -np.nan], F32))).all()


@needs_cxx
def test_operands_that_are_no_tf32_are_refused(device, rng):
    """PTX leaves open what their last bits do."""
    a, b = rng.standard_normal((16, 8)).astype(F32), operands(rng, "tf32", 8, 8)
    with pytest.raises(RuntimeError, match=r"mma of tf32 has the bits 0x[0-9a-f]{8}: an aotc_to"):
        one(device, "m16n8k8_tf32f32", a, b, np.zeros((16, 8), F32))


@needs_cxx
@pytest.mark.parametrize("size", [8, 16, 32])
def test_ldmatrix_gives_four_bytes_of_a_row_to_a_lane(device, rng, size):
    kind = {8: np.uint8, 16: np.uint16, 32: F32}[size]
    words = rng.integers(0, 2**32, (4, 8, 4), np.uint32)  # tile, row, 4 bytes
    got = device.call(f"run_matrices_{size}", words.view(kind).copy(),
                      np.empty((32, 4), np.uint32), out=1)
    np.testing.assert_array_equal(got, words[:, GROUP, T].T)


@needs_cxx
def test_ldmatrix_trans_gives_two_neighbours_of_a_column(device, rng):
    tiles = rng.integers(0, 2**16, (4, 8, 8), np.uint16)
    got = device.call("run_transposed_16", tiles, np.empty((32, 4), np.uint32), out=1)
    want = np.stack([tiles[:, 2 * T, GROUP], tiles[:, 2 * T + 1, GROUP]], -1)
    np.testing.assert_array_equal(got, np.ascontiguousarray(want).view(np.uint32)[..., 0].T)


@needs_cxx
@pytest.mark.parametrize("name, k", [("f16", 200), ("bf16", 32), ("tf32", 100), ("s8", 272)])
@pytest.mark.parametrize("order", [ORDERS[0], *(pytest.param(o, marks=pytest.mark.product)
                                                for o in ORDERS[1:])])
def test_products_through_swizzled_stages(device, rng, name, k, order):
    m, n = 64, 48
    a, b = operands(rng, name, m, k), operands(rng, name, n, k)
    if name == "tf32":  # the kernel rounds
        a, b = (rng.standard_normal(x.shape).astype(F32) for x in (a, b))
    kind = np.int32 if name == "s8" else F32
    device.order(order)
    got = device.call(f"run_product_{name}", m, n, k, a, b, np.empty((m, n), kind), out=5)
    device.order(ORDERS[0])
    if name == "tf32":
        a, b = to_tf32(a), to_tf32(b)
    want = wide(a, name) @ wide(b, name).T
    np.testing.assert_allclose(got, want, rtol=0 if name == "s8" else 1e-4, atol=1e-4)


@needs_cxx
def test_copies_of_8_bytes(device, rng):
    x = rng.integers(0, 2**16, 100, np.uint16)
    got = device.call("run_copied_by_8", 96, x, np.empty(128, np.uint16), out=2)
    np.testing.assert_array_equal(got, np.concatenate([x[:96], np.zeros(32, np.uint16)]))


@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc: install the CUDA toolkit")
@pytest.mark.parametrize("arch", ["80", pytest.param("90", marks=pytest.mark.product)])
def test_nvcc_compiles_the_same_text(tmp_path, arch):
    subprocess.run(["nvcc", "-std=c++17", "-O3", "-Werror", "all-warnings", "-Xcompiler",
                    "-Wall,-Wextra,-Werror", f"-I{cuda_folder()}", f"-arch=sm_{arch}", "-cubin",
                    "-o", str(tmp_path / "mma.cubin"), str(HERE / "mma_kernels.cu")], check=True,
                   timeout=300)
