"""The vector math of the runtime against numpy in f64, over all of f32, for every lane count."""

import ctypes
import math
import subprocess

import numpy as np
import pytest
from harness import DISTINCT, at_length
from math_values import BOUNDS, INF, LENGTH, NAN, UNARY, every_kind, exact

from aotc.installed import runtime_c
from aotc.runtime.compile_bundle import find_compiler

BINARY = ("vmax", "vmin", "max_c", "min_c", "vpow")
_LOOP = """
void {name}(const float *x, const float *y, float *z, int64_t n)
{{
    (void)y;
    for (int64_t i = 0; i < n; i += AOTC_LANES)
        aotc_store(z + i, {call});
}}
"""
_ACROSS = """
void across(const float *x, float *z)
{
    z[0] = aotc_hsum(aotc_load(x));
    z[1] = aotc_hmax(aotc_load(x));
    z[2] = aotc_hmin(aotc_load(x));
}

void part(const float *x, float *loaded, float *stored, float *kept, int64_t n)
{
    aotc_store(loaded, aotc_load_n(x, n, -7.0f));
    aotc_store_n(stored, aotc_load(x), n);
    aotc_store(kept, aotc_keep_n(aotc_load(x), n, 9.0f));
}

void columns(const float *x, int64_t step, int64_t n, int64_t depth, float *y, int64_t width)
{
    aotc_pack_columns(x, step, n, depth, y, width);
}

void swapped(const float *x, int64_t x_step, float *y, int64_t y_step, int64_t rows,
             int64_t columns)
{
    aotc_transposed(x, x_step, y, y_step, rows, columns);
}

void woven(const float *x, int64_t x_step, float *y, int rows, int64_t columns)
{
    if (rows == 2)
        aotc_woven(x, x_step, y, 2, columns);
    else if (rows == 3)
        aotc_woven(x, x_step, y, 3, columns);
    else
        aotc_woven(x, x_step, y, 4, columns);
}
"""
SCALES = (1 / 16, 0.70710678, 1.0, 1.4142135, 16.0)  # of erf and tanh


WIDTHS = [pytest.param(t, id=t.name, marks=at_length(t)) for t in DISTINCT]


@pytest.fixture(scope="module", params=WIDTHS)
def library(request, tmp_path_factory):
    """(the functions compiled for a target, its lanes)."""
    return built(request.param, tmp_path_factory.mktemp("math")), request.param.lanes


@pytest.fixture(scope="module", params=WIDTHS)
def exact_library(request, tmp_path_factory):
    """The functions compiled with AOTC_EXACT_MATH."""
    return built(request.param, tmp_path_factory.mktemp("exact"), "#define AOTC_EXACT_MATH\n")


def built(target, folder, define=""):
    text = f"{define}#define AOTC_LANES {target.lanes}\n#include \"aotc_vec.h\"\n"
    text += "".join(_LOOP.format(name=f"f_{f}", call=f"aotc_v{f}(aotc_load(x + i))")
                    for f in UNARY)
    text += "".join(_LOOP.format(name=f"f_{f}", call=f"aotc_{f}(aotc_load(x + i), "
                                 "aotc_load(y + i))") for f in BINARY) + _ACROSS
    if target.lanes > 1 and not define:  # no other kind has such forms
        text += _LOOP.format(name="f_sigmoid", call="aotc_vsigmoid(aotc_load(x + i))")
        text += "".join(_LOOP.format(name=f"f_{f}_{i}", call=f"aotc_v{f}_scaled(aotc_load(x + i), "
                                     f"{s!r})") for f in ("erf", "tanh")
                        for i, s in enumerate(SCALES))
    text += _LOOP.format(name="f_over", call="aotc_over(aotc_load(x + i), y[i])")
    (folder / "math.c").write_text(text)
    usual = [*find_compiler(), "-std=c11", "-Wall", "-Wextra", "-Werror", *target.cflags,
             f"-I{runtime_c()}", "math.c"]
    subprocess.run([*usual, "-O2", "-shared", "-fPIC", "-o", "math.so", "-lm"], cwd=folder,
                   check=True)
    if not define:  # without optimisation, what is inlined always must not call itself
        subprocess.run([*usual, "-O0", "-c", "-o", "math.o"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "math.so"))


def pointer(a):
    assert a.dtype == np.float32 and a.flags.c_contiguous
    return a.ctypes.data_as(ctypes.c_void_p)


def apply(lib, name, x, y=None):
    z = np.empty_like(x)
    y = x if y is None else y
    getattr(lib, f"f_{name}")(pointer(x), pointer(y), pointer(z), ctypes.c_int64(len(x)))
    return z


@pytest.mark.parametrize("name", UNARY)
def test_unary_functions(library, name):
    agree(apply(library[0], name, every_kind()), name, *BOUNDS[name])


@pytest.mark.parametrize("name", UNARY)
def test_exact_functions_are_those_of_libm(exact_library, name):
    """Two units in the last place, denormal results and far angles included."""
    agree(apply(exact_library, name, every_kind()), name, 2.4e-7, 1.5e-45)


def agree(got, name, rel, absolute):
    x, want = every_kind(), exact(name)
    with np.errstate(all="ignore"):
        rounded = want.astype(np.float32)
        error = np.abs(got.astype(np.float64) - want)
        good = error <= rel * np.abs(want) + absolute
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    bad = ~(np.where(np.isfinite(rounded), good, same))
    assert not bad.any(), [(x[i], got[i], want[i]) for i in np.flatnonzero(bad)[:8]]


@pytest.mark.parametrize("divisor", [1.0, 3.0, 1.9999999, 137.25, 1e-30, 3e37, -7.0, 2e38, 1e-38,
                                     1e-42, 0.0, INF, NAN])
def test_one_divisor_of_all_lanes(library, divisor):
    """The quotients of a division; of those that underflow, all but the last bit."""
    lib, lanes = library
    x = every_kind()
    got = apply(lib, "over", x, np.full_like(x, divisor))
    with np.errstate(all="ignore"):
        want = x / np.float32(divisor)
        small = np.minimum(np.abs(want), np.abs(x)) < 1e-30
        last = np.where(small, 1.5 * np.spacing(np.abs(want)), 0)
        near = np.abs(got.astype(np.float64) - want) <= last
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    assert (same | near).all(), [(x[i], got[i], want[i]) for i in np.flatnonzero(~(same | near))]


def test_exp_overflows_and_vanishes(library):
    lib, lanes = library
    x = np.full(16, -105.0, np.float32)
    x[1], x[2], x[3], x[4] = 88.73, -INF, INF, 88.72
    got = apply(lib, "exp", x)
    assert got[0] == 0 and got[2] == 0 and np.isinf(got[1]) and np.isinf(got[3])
    assert np.isfinite(got[4])


def test_exp_next_to_its_bounds(library):
    """Every float around the last finite result and the first that is no denormal, and NaNs of
    any sign and payload: where bits of the exponent are added, these go wrong first."""
    highest, lowest = (np.float32(v).view(np.int32) for v in (88.722839, -87.33))
    near = np.arange(-2048, 2048, dtype=np.int32)
    x = np.concatenate([highest + near, lowest + near]).view(np.float32)
    lib, lanes = library
    got = apply(lib, "exp", x)
    with np.errstate(over="ignore"):
        want = np.exp(x.astype(np.float64))
        overflows = np.isinf(want.astype(np.float32))
    vanishes = (x < np.float32(-87.33)) & (lanes > 1)  # one lane is libm
    assert (np.isinf(got) == overflows).all() and ((got == 0) == vanishes).all()
    inside = ~overflows & ~vanishes
    assert (np.abs(got[inside] - want[inside]) <= 2e-7 * want[inside] + 1.5e-45).all()
    nans = np.array([0x7fc00000, -0x400000, 0x7fc12345, -1, 0x7fffffff, 0x7fc00001, 0x7fe00080,
                     -0x3ffedc] * 2, np.int32).view(np.float32)
    assert np.isnan(apply(lib, "exp", nans)).all()


def test_sigmoid(library):
    """Relative error in either tail; 0 where the exponential overflows, NaN for NaN."""
    lib, lanes = library
    if lanes == 1:
        pytest.skip("one lane computes a sigmoid from its parts")
    x = np.concatenate([every_kind(), np.linspace(-90, 90, LENGTH, dtype=np.float32)])
    got = apply(lib, "sigmoid", x)
    with np.errstate(all="ignore"):
        want = 1 / (1 + np.exp(-x.astype(np.float64)))
    good = np.abs(got - want) <= 3e-7 * want + 1.2e-38
    assert (good | np.isnan(got) & np.isnan(x)).all(), x[~good][:8]
    assert (got[x < -88.5] == 0).all() and (got[x > 20] == 1).all()
    nans = np.array([0x7fc00000, -0x400000, 0x7fc12345, -1, 0x7fffffff, 0x7fc00001, 0x7fe00080,
                     -0x3ffedc] * 2, np.int32).view(np.float32)
    assert np.isnan(apply(lib, "sigmoid", nans)).all()


@pytest.mark.parametrize("name", ["erf", "tanh"])
@pytest.mark.parametrize("i", range(len(SCALES)))
def test_functions_of_a_multiple(library, name, i):
    """f(s * x) within the bound of f, and of one rounding of the product beside it."""
    lib, lanes = library
    if lanes == 1:
        pytest.skip("one lane multiplies first")
    rng = np.random.default_rng(i)
    x = np.concatenate([every_kind(), rng.normal(0, 2 / SCALES[i], LENGTH).astype(np.float32)])
    got = apply(lib, f"{name}_{i}", x)
    with np.errstate(all="ignore"):
        want = np.vectorize(getattr(math, name))(x.astype(np.float64) * SCALES[i])
    good = np.abs(got - want) <= BOUNDS[name][1]
    assert (good | np.isnan(got) & np.isnan(x)).all(), x[~good][:8]
    far = np.abs(x) * SCALES[i] > (3.701 if name == "erf" else 7.901)
    assert (got[far] == np.sign(x[far])).all()  # what is left of 1 could meet a large factor


def test_infinite_angles_are_nan(library):
    lib, _ = library
    x = np.array([INF, -INF, NAN] + [1e30] * 13, np.float32)
    for name, fn in (("sin", np.sin), ("cos", np.cos)):
        got = apply(lib, name, x)
        assert np.isnan(got[:3]).all()
        assert np.allclose(got[3:], fn(np.float64(x[3:])), atol=1e-6)


@pytest.mark.parametrize("name", ["vmax", "vmin"])
def test_either_nan_wins(library, name):
    lib, _ = library
    x, y = every_kind(1), every_kind(2)
    x[100:200], y[150:250] = NAN, NAN
    want = (np.maximum if name == "vmax" else np.minimum)(x, y)
    np.testing.assert_array_equal(apply(lib, name, x, y), want)


@pytest.mark.parametrize("name", ["max_c", "min_c"])
def test_nan_of_the_variable_operand_passes(library, name):
    lib, _ = library
    c, x = np.full(LENGTH, 0.5, np.float32), every_kind(3)
    want = (np.maximum if name == "max_c" else np.minimum)(c, x)
    np.testing.assert_array_equal(apply(lib, name, c, x), want)


def test_power(library):
    lib, _ = library
    rng = np.random.default_rng(4)
    x = np.abs(rng.normal(0, 3, LENGTH)).astype(np.float32)
    y = rng.normal(0, 3, LENGTH).astype(np.float32)
    x[:4], y[:4] = (0, 0, 1, INF), (0, 2, NAN, -1)
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.float64), y)
    np.testing.assert_allclose(apply(lib, "vpow", x, y), want.astype(np.float32), rtol=2e-6)


def test_across_lanes(library):
    lib, lanes = library
    rng = np.random.default_rng(5)
    for n in range(40):
        x = rng.standard_normal(lanes).astype(np.float32)
        if n % 4 == 1:
            x[n % lanes] = NAN
        if n % 4 == 2:
            x[n % lanes] = -INF if n % 8 == 2 else INF
        z = np.empty(3, np.float32)
        lib.across(pointer(x), pointer(z))
        np.testing.assert_allclose(z[0], x.sum(dtype=np.float64), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(z[1:], [x.max(), x.min()])


def test_partial_vectors_touch_nothing_else(library):
    lib, lanes = library
    x = np.arange(lanes, dtype=np.float32)
    for n in range(1, lanes + 3):
        live = min(n, lanes)
        loaded, kept = np.empty(lanes, np.float32), np.empty(lanes, np.float32)
        stored = np.full(lanes + 2, -1, np.float32)
        lib.part(pointer(x), pointer(loaded), pointer(stored), pointer(kept), ctypes.c_int64(n))
        tail = lanes - live
        np.testing.assert_array_equal(loaded, [*x[:live], *[-7] * tail])
        np.testing.assert_array_equal(kept, [*x[:live], *[9] * tail])
        np.testing.assert_array_equal(stored, [*x[:live], *[-1] * (tail + 2)])


def test_packed_columns_are_a_padded_transpose(library):
    lib, lanes = library
    for depth in (1, 3, 16, 21):
        for n, width in ((1, 16), (5, 16), (16, 16), (19, 32), (33, 48)):
            step = depth + 2
            x = np.random.default_rng(n).standard_normal((n, step)).astype(np.float32)
            y = np.full((depth + 1, width), 5, np.float32)
            c = ctypes.c_int64
            lib.columns(pointer(x), c(step), c(n), c(depth), pointer(y), c(width))
            np.testing.assert_array_equal(y[:depth, :n], x[:, :depth].T)
            assert not y[:depth, n:].any(), "the padding is zero"
            assert (y[depth] == 5).all(), "wrote past the packed columns"


def test_transposed_blocks_of_any_size(library):
    lib, _ = library
    for rows in (1, 4, 15, 16, 17, 33):
        for columns in (1, 3, 8, 16, 29):
            x = np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)
            x[0, 0], x[-1, -1] = NAN, INF
            y = np.full((columns + 1, rows + 2), 5, np.float32)
            c = ctypes.c_int64
            lib.swapped(pointer(x), c(columns), pointer(y), c(rows + 2), c(rows), c(columns))
            np.testing.assert_array_equal(y[:columns, :rows], x.T)
            assert (y[columns] == 5).all() and (y[:, rows:] == 5).all(), "wrote beside the block"


def test_rows_are_woven_into_each_other(library):
    lib, lanes = library
    rng = np.random.default_rng(5)
    for rows in (2, 3, 4):
        for columns in (1, lanes - 1, lanes, lanes + 1, 3 * lanes + 2):
            x = rng.standard_normal((rows, columns + 3)).astype(np.float32)
            x[0, 0] = NAN
            y = np.full(rows * columns + 4, 5, np.float32)
            c = ctypes.c_int64
            lib.woven(pointer(x), c(columns + 3), pointer(y), ctypes.c_int(rows), c(columns))
            np.testing.assert_array_equal(y[:-4], x[:, :columns].T.reshape(-1))
            assert (y[-4:] == 5).all(), "wrote behind the block"
