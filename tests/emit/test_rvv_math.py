"""The functions of aotc_rvv_math.h under the emulator: every register group, at every vector
length, with tail and masked-off lanes set to ones."""

import shutil
import subprocess

import numpy as np
import pytest
from math_values import BOUNDS, UNARY, every_kind, exact

from aotc.installed import runtime_c
from aotc.target import get_target

TARGET = get_target("riscv64")
INTRINSIC = {"sqrt": "__riscv_vfsqrt", "abs": "__riscv_vfabs"}
EXACT = dict.fromkeys(UNARY, (2.4e-7, 1.5e-45))  # two units in the last place
NAN, INF = np.float32(np.nan), np.float32(np.inf)
BINARY = ("max", "min", "pow")
COUNT = every_kind().size - 3  # the last step of every loop is ragged

_HEAD = f"""#define AOTC_LANES 1
#include "aotc_rvv.h"
#include <stdio.h>
#define N {COUNT}
static float x[N], y[N], z[N + 1];
"""
_LOOP = """static void {name}(void)
{{
    for (int64_t i = 0; i < N;) {{
        const size_t vl = __riscv_vsetvl_e32m{group}((size_t)(N - i));
        const vfloat32m{group}_t a = __riscv_vle32_v_f32m{group}(x + i, vl);
        const vfloat32m{group}_t b = __riscv_vle32_v_f32m{group}(y + i, vl);
        (void)b;
        __riscv_vse32(z + i, {call}, vl);
        i += (int64_t)vl;
    }}
    if (z[N] != 7.0f || fwrite(z, sizeof(float), N, stdout) != N)
        z[N] = 0.0f;
}}
"""
# one value per length of a row: sum, maximum, minimum over lanes of a reduction loop
_ACROSS = """static void across{group}(void)
{{
    for (int64_t n = 1; n < 80; ++n) {{
        const vfloat32m{group}_t zero = __riscv_vfmv_v_f_f32m{group}(0.0f,
            __riscv_vsetvlmax_e32m{group}());
        vfloat32m{group}_t s = zero, h = __riscv_vfmv_v_f_f32m{group}(-INFINITY,
            __riscv_vsetvlmax_e32m{group}()), l = __riscv_vfneg(h, __riscv_vsetvlmax_e32m{group}());
        for (int64_t i = 0; i < n;) {{
            const size_t vl = __riscv_vsetvl_e32m{group}((size_t)(n - i));
            const vfloat32m{group}_t a = __riscv_vle32_v_f32m{group}(y + n + i, vl);
            s = __riscv_vfadd_tu(s, s, a, vl);
            h = aotc_max_tu_m{group}(h, a, vl);
            l = aotc_min_tu_m{group}(l, a, vl);
            i += (int64_t)vl;
        }}
        const float r[3] = {{aotc_hsum_m{group}(s), aotc_hmax_m{group}(h), aotc_hmin_m{group}(l)}};
        if (fwrite(r, sizeof r, 1, stdout) != 1)
            z[N] = 0.0f;
    }}
}}
"""


@pytest.fixture(scope="module")
def program(request, tmp_path_factory):
    """(the functions in a program, their bounds); the parameter: lines above it."""
    cross = TARGET.cross
    compiler = next(filter(shutil.which, cross.cc), None)
    if compiler is None or not shutil.which(cross.emulator[0]):
        pytest.skip(f"needs {', '.join(cross.packages)} (Debian)")
    folder = tmp_path_factory.mktemp("rvv")
    text, calls = request.param + _HEAD, []
    for group in (1, 2, 4):
        for f in UNARY + BINARY:
            args = "a, b, vl" if f in BINARY else "a, vl"
            call = INTRINSIC.get(f, f"aotc_{f}_m{group}")
            text += _LOOP.format(name=f"run_{f}{group}", group=group, call=f"{call}({args})")
            calls.append(f"run_{f}{group}")
        text += _ACROSS.format(group=group)
        calls.append(f"across{group}")
    body = "".join(f"    {c}();\n" for c in calls)
    text += ("int main(void)\n{\n    z[N] = 7.0f;\n    if (fread(x, sizeof x, 1, stdin) != 1 || "
             f"fread(y, sizeof y, 1, stdin) != 1)\n        return 1;\n{body}"
             "    return z[N] != 7.0f;\n}\n")
    (folder / "math.c").write_text(text)
    subprocess.run([compiler, *cross.cflags, *TARGET.cflags, "-std=c11", "-O2", "-Wall", "-Wextra",
                    "-Werror", f"-I{runtime_c()}", f"-I{runtime_c() / 'riscv64'}", "math.c", "-o",
                    "math", *cross.ldflags, "-lm"], cwd=folder, check=True)
    return folder / "math", EXACT if request.param else BOUNDS


def inputs():
    """x of every kind; y ordinary with NaN and infinities strewn in."""
    y = np.random.default_rng(8).normal(0, 3, COUNT).astype(np.float32)
    y[[40, 200, 333]] = NAN
    y[[60, 201]] = INF, -INF
    return every_kind()[:COUNT], y


FAST, EXACTLY = "", "#define AOTC_EXACT_MATH\n"  # which differ in how much is computed


@pytest.mark.parametrize("program, vlen", [
    pytest.param(how, vlen, id=f"{'exact' if how else 'fast'}-{vlen}",
                 marks=() if vlen == TARGET.cross.vlens[0 if how else -1] else pytest.mark.product)
    for how in (FAST, EXACTLY) for vlen in TARGET.cross.vlens], indirect=["program"])
def test_functions_at_every_length(program, vlen):
    program, bounds = program
    x, y = inputs()
    command = [a.format(vlen=vlen) for a in TARGET.cross.emulator]
    done = subprocess.run([*command, str(program)], input=x.tobytes() + y.tobytes(),
                          capture_output=True, check=True)
    data = np.frombuffer(done.stdout, np.float32)
    size = (len(UNARY) + len(BINARY)) * COUNT + 79 * 3
    assert data.size == 3 * size
    for group, part in zip((1, 2, 4), data.reshape(3, size), strict=True):
        values, folds = part[:-79 * 3].reshape(-1, COUNT), part[-79 * 3:].reshape(79, 3)
        for name, got in zip(UNARY, values):
            _unary(f"{name}_m{group}", name, got, *bounds[name])
        _binary(group, x, y, dict(zip(BINARY, values[len(UNARY):])))
        for n, (total, high, low) in enumerate(folds, 1):
            row = y[n:2 * n]
            with np.errstate(all="ignore"):
                np.testing.assert_allclose(total, row.sum(dtype=np.float64), rtol=1e-5, atol=1e-5)
            np.testing.assert_array_equal((high, low), (row.max(), row.min()))


def _unary(title, name, got, rel, absolute):
    want = exact(name)[:COUNT]
    with np.errstate(all="ignore"):
        rounded = want.astype(np.float32)
        near = np.abs(got.astype(np.float64) - want) <= rel * np.abs(want) + absolute
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    bad = np.flatnonzero(~np.where(np.isfinite(rounded), near, same))
    assert not bad.size, (title, [(inputs()[0][i], got[i], want[i]) for i in bad[:5]])


def _binary(group, x, y, got):
    np.testing.assert_array_equal(got["max"], np.maximum(x, y), f"max_m{group}")
    np.testing.assert_array_equal(got["min"], np.minimum(x, y), f"min_m{group}")
    with np.errstate(all="ignore"):
        power = np.power(x.astype(np.float64), y).astype(np.float32)
    np.testing.assert_allclose(got["pow"], power, rtol=2e-6, err_msg=f"pow_m{group}")
