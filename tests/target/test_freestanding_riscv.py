"""A bundle with vectors on an emulated RISC-V machine without firmware or operating system."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_models import dense

import aotc

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "freestanding_riscv" / "freestanding_riscv.py"
# one call of y = dense(x), the bits of whose results are printed
MAIN = """#include "board.h"
#include "dense.h"
static _Alignas(AOTC_ALIGNMENT) uint8_t arena[DENSE_ARENA_BYTES_MAX(1)];
int main(void)
{
    dense_weights weights;
    dense_context context;
    static const float x[COUNT] = {VALUES};
    static float y[RESULTS];
    if (dense_weights_embedded(&weights) != AOTC_OK
        || dense_init(&context, &weights, arena, sizeof arena, NULL) != AOTC_OK
        || dense_run(&context, x, y) != AOTC_OK)
        return 1;
    for (int i = 0; i < RESULTS; i++) {
        const union { float f; uint32_t bits; } one = {y[i]};
        for (int digit = 28; digit >= 0; digit -= 4) {
            const char text[2] = {"0123456789abcdef"[one.bits >> digit & 15], 0};
            board_print(text);
        }
        board_print("\\n");
    }
    return FAILS;
}
"""


@pytest.fixture(scope="module")
def example():
    """The example's own module; skips where its tools are missing."""
    spec = importlib.util.spec_from_file_location("freestanding_riscv", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if module.missing_tools():
        pytest.skip(f"not installed: {', '.join(module.missing_tools())} (Debian: "
                    f"{', '.join(module.PACKAGES)})")
    return module


@pytest.mark.parametrize("fails", [0, pytest.param(1, marks=pytest.mark.product)])
def test_a_call_without_an_operating_system(example, fails, tmp_path):
    """Its results are those of the portable bundle; what it returns is the emulator's exit
    status."""
    x = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)
    bundle = aotc.compile(dense(3), tmp_path / "b", target="riscv64", name="dense",
                          weights="embed")
    main = tmp_path / "main.c"
    main.write_text(MAIN.replace("COUNT", str(x.size)).replace("RESULTS", "12").replace(
        "VALUES", ", ".join(f"{v!r}f" for v in x.ravel().tolist())).replace("FAILS", str(fails)))
    program = example.link(bundle.path, tmp_path, main)
    if fails:
        with pytest.raises(SystemExit, match="failed .exit status 1.:"):
            example.emulate(program, 128, str)
        return
    bits = example.emulate(program, 512, str)
    got = np.array([int(b, 16) for b in bits], np.uint32).view(np.float32).reshape(3, 4)
    want = aotc.compile(dense(3), tmp_path / "c", target="c").load().run({"x": x})["y"]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.product
def test_digits_without_an_operating_system(example, tmp_path):
    done = subprocess.run([sys.executable, str(SCRIPT), "--out", str(tmp_path / "demo")],
                          capture_output=True, text=True, cwd=tmp_path, timeout=300,
                          env=dict(os.environ, PYTHONPATH=str(ROOT)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("same as scikit-learn: True") == len(example.VLENS)
