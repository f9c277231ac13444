"""The float functions for cores that compute doubles in software (aotc_math_f32.h), built here."""

import ctypes
import math
import subprocess

import numpy as np
import pytest

from aotc.installed import runtime_c
from aotc.runtime.compile_bundle import find_compiler

# relative and absolute error
FUNCTIONS = {"exp": (np.exp, 4e-7, 1e-44), "log": (np.log, 4e-7, 1e-7),
             "tanh": (np.tanh, 4e-7, 0), "erf": (np.vectorize(math.erf), 0, 6e-7)}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("f32")
    lines = ["#define AOTC_DOUBLES_IN_SOFTWARE", '#include "aotc_math.h"']
    for name in FUNCTIONS:
        lines += [f"void run_{name}(const float *x, float *z, int64_t n);",
                  f"void run_{name}(const float *x, float *z, int64_t n)",
                  "{", f"    for (int64_t i = 0; i < n; i++) z[i] = {name}f(x[i]);", "}"]
    (folder / "math.c").write_text("\n".join(lines) + "\n")
    subprocess.run([*find_compiler(), "-std=c11", "-O2", "-Wall", "-Wextra", "-Wconversion",
                    "-Wdouble-promotion", "-Werror", "-fno-builtin", "-shared", "-fPIC",
                    f"-I{runtime_c()}", "math.c", "-o", "math.so"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "math.so"))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_without_doubles_keep_their_bounds(library, name):
    exact, relative, absolute = FUNCTIONS[name]
    rng = np.random.default_rng(6)
    every = rng.integers(0, 1 << 32, 20000, np.uint64).astype(np.uint32).view(np.float32)
    near = np.concatenate([rng.normal(0, s, 5000) for s in (1e-3, 0.3, 3, 60)]).astype(np.float32)
    ends = np.array([0, -0.0, 1, -1, 88.72, 88.73, -87.4, -103.9, -104.1, 0.625, 9.1, 3.7, np.inf,
                     -np.inf, np.nan, 1e-45, 1.17549435e-38], np.float32)
    x = np.concatenate([every, near, ends])
    z = np.empty_like(x)
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (x, z)]
    getattr(library, f"run_{name}")(*pointers, ctypes.c_int64(x.size))
    with np.errstate(all="ignore"):
        want = exact(x.astype(np.float64))
        rounded = want.astype(np.float32)
        close = np.abs(z - want) <= relative * np.abs(want) + absolute
    same = (z == rounded) | (np.isnan(z) & np.isnan(rounded))
    bad = np.flatnonzero(~(same | np.isfinite(rounded) & close))
    assert not bad.size, [(x[i], z[i], rounded[i]) for i in bad[:5]]
