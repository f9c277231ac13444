"""The float functions of builds without libm (aotc_math.h) against numpy, over all of f32 and
f64."""

import ctypes
import math
import subprocess

import numpy as np
import pytest

from aotc.emit.c.scalars import _FLOAT_CALLS, _LIBM, _LIBM_NAME
from aotc.installed import runtime_c
from aotc.runtime.compile_bundle import find_compiler

UNARY = {"exp": np.exp, "log": np.log, "sin": np.sin, "cos": np.cos, "tan": np.tan,
         "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh,
         "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
         "atanh": np.arctanh, "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil,
         "nearbyint": np.rint, "fabs": np.abs,
         "erf": lambda x: np.array([math.erf(v) for v in x])}
BINARY = ("pow", "fmod")
EXACT = {"floor", "ceil", "nearbyint", "fabs"}
PERIODIC = {"sin", "cos", "tan"}
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan]


@pytest.fixture(scope="module")
def functions(tmp_path_factory):
    """``functions(name, *arrays) -> array``, in the arrays' dtype."""
    folder = tmp_path_factory.mktemp("math")
    lines = ["#include <stdint.h>", "#define AOTC_LANES 1", '#include "aotc_vec.h"']
    for name in [*UNARY, *BINARY]:
        call = "x[i], y[i]" if name in BINARY else "x[i]"
        for c, suffix in (("float", "f"), ("double", "")):
            lines += [f"void run_{name}_{c}(const {c} *x, const {c} *y, {c} *z, int64_t n);",
                      f"void run_{name}_{c}(const {c} *x, const {c} *y, {c} *z, int64_t n)",
                      "{", "    (void)y;", "    for (int64_t i = 0; i < n; i++)",
                      f"        z[i] = {name}{suffix}({call});", "}"]
    (folder / "math.c").write_text("\n".join(lines) + "\n")
    subprocess.run([*find_compiler(), "-std=c11", "-O2", "-Wall", "-Wextra", "-Wconversion",
                    "-Wdouble-promotion", "-Werror", "-DAOTC_NO_LIBM", "-fno-builtin", "-shared",
                    "-fPIC", "-nostdlib", f"-I{runtime_c()}", "math.c", "-o", "math.so"],
                   cwd=folder, check=True)
    lib = ctypes.CDLL(str(folder / "math.so"))

    def run(name, *arrays):
        c = {"float32": "float", "float64": "double"}[str(arrays[0].dtype)]
        out = np.empty_like(arrays[0])
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (arrays[0], arrays[-1], out)]
        getattr(lib, f"run_{name}_{c}")(*pointers, ctypes.c_int64(out.size))
        return out
    return run


def _points(dtype, name):
    """Values of every magnitude and the special ones."""
    rng = np.random.default_rng(3)
    bits = {"float32": np.uint32, "float64": np.uint64}[dtype]
    every = rng.integers(0, np.iinfo(bits).max, 4000, bits, endpoint=True).view(dtype)
    near = np.concatenate([rng.normal(0, s, 2000) for s in (1e-3, 0.3, 3, 30)]).astype(dtype)
    ends = [1e5, 99999.99, -1e15, 2.0**62, float(np.finfo(dtype).max), 6381956970095103 * 2.0**797]
    far = np.array(ends if name in PERIODIC else [], np.float64)
    with np.errstate(over="ignore"):  # the double nearest to a multiple of pi/2 is no float
        return np.concatenate([every, near, np.array(SPECIAL, dtype), far.astype(dtype)])


def _wrong(got, want, relative, absolute):
    """Indices where got is not want: NaN, infinities and zeros' signs aside, within the bounds."""
    with np.errstate(all="ignore"):
        near = np.abs(got - want) <= relative * np.abs(want) + absolute
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    return np.flatnonzero(~(same | (np.isfinite(want) & near)))


@pytest.mark.parametrize("name", UNARY)
def test_float_functions_are_good_to_one_unit_in_the_last_place(functions, name):
    x = _points("float32", name)
    with np.errstate(all="ignore"):
        want = UNARY[name](x.astype(np.float64)).astype(np.float32)
    got = functions(name, x)
    units = 0.0 if name in EXACT else 2.0 ** -23
    bad = _wrong(got, want, units, 0.0 if name in EXACT else 1.5e-45)
    assert not bad.size, [(x[i], got[i], want[i]) for i in bad[:5]]


@pytest.mark.parametrize("name", UNARY)
def test_double_functions_are_good_to_fourteen_digits(functions, name):
    x = _points("float64", name)
    with np.errstate(all="ignore"):
        want = UNARY[name](x)
    got = functions(name, x)
    bad = _wrong(got, want, 0.0 if name in EXACT else 2e-14, 0.0 if name in EXACT else 1e-300)
    assert not bad.size, [(x[i], got[i], want[i]) for i in bad[:5]]


@pytest.mark.parametrize("dtype, relative", [("float32", 2.0 ** -23), ("float64", 2e-12)])
def test_power(functions, dtype, relative):
    rng = np.random.default_rng(4)
    whole = np.array([0, 1, 2, 3, -1, -2, -3, 7, 8], dtype)
    special = np.array(SPECIAL, dtype)
    grid = np.meshgrid(np.concatenate([special, whole]), np.concatenate([special, whole]))
    x = np.concatenate([rng.normal(0, 5, 3000).astype(dtype), grid[0].ravel()])
    y = np.concatenate([rng.normal(0, 5, 1500).astype(dtype),
                        rng.integers(-9, 10, 1500).astype(dtype), grid[1].ravel()])
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.float64), y.astype(np.float64)).astype(dtype)
    got = functions("pow", x, y)
    bad = _wrong(got, want, relative, 1.5e-45 if dtype == "float32" else 1e-300)
    assert not bad.size, [(x[i], y[i], got[i], want[i]) for i in bad[:9]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_remainder_is_exact(functions, dtype):
    every = _points(dtype, "fmod")
    rng = np.random.default_rng(5)
    grid = np.meshgrid(np.array(SPECIAL, dtype), np.array(SPECIAL, dtype))
    tiny = np.finfo(dtype).smallest_subnormal
    x = np.concatenate([every, every, grid[0].ravel(), np.array([7 * tiny, 1, 1e30], dtype)])
    y = np.concatenate([rng.permutation(every), rng.normal(0, 3, every.size).astype(dtype),
                        grid[1].ravel(), np.array([3 * tiny, tiny, 3 * tiny], dtype)])
    with np.errstate(all="ignore"):
        want = np.fmod(x, y)
    got = functions("fmod", x, y)
    bad = _wrong(got, want, 0.0, 0.0)
    assert not bad.size, [(x[i], y[i], got[i], want[i]) for i in bad[:9]]
    finite = np.isfinite(want)
    assert np.array_equal(np.signbit(got[finite]), np.signbit(want[finite]))


def test_every_function_that_kernels_call_has_its_own_version():
    text = (runtime_c() / "aotc_math.h").read_text()
    names = {*_LIBM, *_LIBM_NAME.values(), *_FLOAT_CALLS.values()}
    assert names == {*UNARY, *BINARY}, "a function without a test here"
    assert not [n for n in names for f in (n, n + "f") if f"\n#define {f} " not in text]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_signs_of_zero(functions, dtype):
    zeros = np.array([0.0, -0.0], dtype)
    for name in ("sin", "tan", "asin", "atan", "sinh", "tanh", "asinh", "atanh", "erf", "sqrt",
                 "floor", "ceil", "nearbyint"):
        got = functions(name, zeros)
        assert not got.any() and np.array_equal(np.signbit(got), [False, True]), (name, got)
    assert not np.signbit(functions("fabs", zeros)).any()
