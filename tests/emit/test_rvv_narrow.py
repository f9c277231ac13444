"""The integer lanes of aotc_rvv_narrow.h under the emulator: every register group, with tail and
masked-off lanes set to ones; the text that makes use of them."""

import shutil
import subprocess

import numpy as np
import pytest

from aotc.installed import runtime_c
from aotc.ir.expr import Cast, Const, Load, Unary, maximum, minimum
from aotc.ir.numbers.narrow import rounded_between
from aotc.target import get_target

TARGET = get_target("riscv64")
COUNT, STEP = 203, 3
SHORT = {"u8": np.uint8, "i8": np.int8, "u16": np.uint16, "i16": np.int16, "i32": np.int32}
# (zero, low, high) of numbers that are rounded
BOUNDS = ((0, 0, 255), (7, 0, 255), (-3, -128, 127), (0, -128, 127), (0, 5, 9))

_LOOP = """    for (int64_t i = 0; i < {n};) {{
        const size_t vl = __riscv_vsetvl_e32m{g}((size_t)({n} - i));
        {body}
        i += (int64_t)vl;
    }}
    if (fwrite({out}, sizeof {out}, 1, stdout) != 1)
        return 1;
"""


def _program():
    """C text that reads floats and bytes and writes the results of every function, by group."""
    parts = []

    def loop(group, out, body):
        parts.append(_LOOP.format(n="N", g=group, out=out, body=body))

    for g in (1, 2, 4):
        m = f"m{g}"
        value = f"__riscv_vle32_v_f32{m}(x + i, vl)"
        for name in SHORT:
            loop(g, "whole", f"aotc_store_32_{m}(whole + i, aotc_to_{name}_{m}({value}, vl), vl);")
        for zero, low, high in BOUNDS:
            loop(g, "whole", f"aotc_store_32_{m}(whole + i, aotc_rounded_{m}({value}, {zero}, "
                 f"{low}, {high}, vl), vl);")
        for name, dtype in SHORT.items():
            bits = 8 * np.dtype(dtype).itemsize
            source = f"(const {np.dtype(dtype).name}_t *)(const void *)bytes"
            loop(g, "whole", f"aotc_store_32_{m}(whole + i, aotc_load_{name}_{m}({source} + i, vl),"
                 " vl);")
            loop(g, "whole", f"aotc_store_32_apart_{m}(whole + i, 1, aotc_load_{name}_apart_{m}("
                 f"{source} + i * STEP, STEP, vl), vl);")
            at = f"(uint{bits}_t *)(void *)back"
            lanes = f"__riscv_vle32_v_i32{m}((const int32_t *)(const void *)bytes + i, vl)"
            loop(g, "back", f"aotc_store_{bits}_{m}({at} + i, {lanes}, vl);")
            loop(g, "back", f"aotc_store_{bits}_apart_{m}({at} + i * STEP, STEP, {lanes}, vl);")
    return f"""#define AOTC_LANES 1
#include "aotc_rvv.h"
#include "aotc_rvv_narrow.h"
#include <stdio.h>
#define N {COUNT}
#define STEP {STEP}
static float x[N];
static _Alignas(8) uint8_t bytes[4 * N * STEP], back[4 * N * STEP];
static int32_t whole[N];
int main(void)
{{
    if (fread(x, sizeof x, 1, stdin) != 1 || fread(bytes, sizeof bytes, 1, stdin) != 1)
        return 1;
{"".join(parts)}    return 0;
}}
"""


def _inputs():
    rng = np.random.default_rng(4)
    x = np.concatenate([
        [np.nan, np.inf, -np.inf, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 254.5, 255.5, 127.5, -128.5,
         2147483520.0, 2147483648.0, -2147483648.0, -2147483904.0, 1e30, -1e30, 65535.7],
        rng.normal(0, 100, 100), rng.normal(0, 1e5, COUNT - 120)]).astype(np.float32)
    return x, rng.integers(0, 256, 4 * COUNT * STEP).astype(np.uint8)


def _wanted(x, data):
    """What the program writes, by the definitions of ``aotc_num.h``."""
    fits = np.abs(x.astype(np.float64)) < 2.0 ** 31
    fits |= x == -2.0 ** 31
    whole = np.where(fits, np.where(fits, x, 0).astype(np.int64), -2 ** 31)
    back = np.zeros_like(data)
    for _ in range(3):
        for dtype in SHORT.values():
            yield whole.astype(dtype).astype(np.int32)
        for zero, low, high in BOUNDS:
            r = np.clip(np.rint(x.astype(np.float64)) + zero, low, high)
            yield np.where(np.isnan(x), 0, r).astype(np.int32)
        for dtype in SHORT.values():
            source = data.view(dtype)
            yield source[:COUNT].astype(np.int32)
            yield source[:COUNT * STEP:STEP].astype(np.int32)
            lanes = data.view(np.int32)[:COUNT].astype(dtype)
            for step in (1, STEP):
                back.view(dtype)[:COUNT * step:step] = lanes
                yield back.copy()


@pytest.mark.parametrize("vlen", [v if v == TARGET.cross.vlens[0] else pytest.param(
    v, marks=pytest.mark.product) for v in TARGET.cross.vlens])
def test_every_function_at_every_length(vlen, tmp_path):
    cross = TARGET.cross
    compiler = next(filter(shutil.which, cross.cc), None)
    if compiler is None or not shutil.which(cross.emulator[0]):
        pytest.skip(f"needs {', '.join(cross.packages)} (Debian)")
    (tmp_path / "narrow.c").write_text(_program())
    subprocess.run([compiler, *cross.cflags, *TARGET.cflags, "-std=c11", "-O1", "-Wall", "-Wextra",
                    "-Wconversion", "-Werror", f"-I{runtime_c()}", f"-I{runtime_c() / 'riscv64'}",
                    "narrow.c", "-o", "narrow", *cross.ldflags, "-lm"], cwd=tmp_path, check=True)
    x, data = _inputs()
    command = [part.format(vlen=vlen) for part in cross.emulator]
    got = subprocess.run([*command, "./narrow"], cwd=tmp_path, check=True, capture_output=True,
                         input=x.tobytes() + data.tobytes()).stdout
    at = 0
    for i, want in enumerate(_wanted(x, data)):
        piece = np.frombuffer(got, want.dtype, want.size, at)
        assert (piece == want).all(), (i, np.flatnonzero(piece != want)[:5])
        at += want.nbytes
    assert at == len(got)


def test_what_is_rounded_between_bounds_is_told_by_its_form():
    x = Load("x", (Const(0),), "f32")
    rounded = Unary("round", x)

    def between(e, low, high):
        return minimum(maximum(e, Const(low, "f32")), Const(high, "f32"))

    assert rounded_between(between(rounded, 0.0, 255.0)) == (x, 0, 0, 255)
    assert rounded_between(between(rounded + Const(3.0, "f32"), 0.0, 255.0)) == (x, 3, 0, 255)
    for other in (between(x, 0.0, 255.0), between(rounded, 0.5, 255.0), rounded,
                  between(rounded, 9.0, 3.0), Cast("f32", between(rounded, 0.0, 255.0))):
        assert rounded_between(other) is None
