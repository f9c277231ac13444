"""Bundles without an operating system: what they call, and what a microcontroller computes."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper
from small_models import make_model
from strict_flags import STRICT

import aotc
from aotc.tools.verify import compare

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "freestanding" / "freestanding.py"
M7 = f"-O2 {STRICT} -mcpu=cortex-m7 -mthumb -mfloat-abi=hard -mfpu=fpv5-sp-d16"
# C leaves these to the implementation of the language, not to a library; compilers call the
# first four on their own account
LANGUAGE = {"memcpy", "memset", "memcmp", "memmove"}


def _example():
    """The example's own module."""
    spec = importlib.util.spec_from_file_location("freestanding", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tools():
    """Skips where the cross compiler, its headers or the emulator are missing."""
    missing = _example().missing_tools()
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (Debian: gcc-arm-none-eabi, "
                    "libnewlib-arm-none-eabi, qemu-system-arm)")


def _calls(library, nm):
    """Symbols that a static library uses and does not define."""
    lines = subprocess.run([nm, library], capture_output=True, text=True,
                           check=True).stdout.splitlines()
    rows = [line.split()[-2:] for line in lines if len(line.split()) > 1]
    return {s for kind, s in rows if kind == "U"} - {s for kind, s in rows if kind != "U"}


def _functions_model():
    """y = every function of x that kernels may call, stacked: f32[n, 4] -> f32[count, n, 4]."""
    ops = ("Exp", "Erf", "Tanh", "Sigmoid", "Sin", "Cos", "Sqrt", "Floor", "Ceil", "Round", "Log",
           "Tan", "Atan", "Sinh", "Cosh", "Asinh", "Softmax", "Softplus", "Abs", "Sign")
    node = helper.make_node
    nodes = [node("Abs", ["x"], ["positive"]), node("Add", ["positive", "half"], ["p"])]
    nodes += [node(op, ["p" if op in ("Log", "Sqrt") else "x"], [f"y_{op}"]) for op in ops]
    nodes += [node("Pow", ["p", "x"], ["y_Pow"]), node("Mod", ["x", "p"], ["y_Mod"], fmod=1)]
    names = [n.output[0] for n in nodes[2:]]
    f32 = TensorProto.FLOAT
    return make_model(nodes, {"x": (f32, ["n", 4])}, {n: (f32, ["n", 4]) for n in names},
                      {"half": np.float32(0.5)}, opset=18)


def test_the_library_calls_nothing_but_the_language(tools, tmp_path):
    """Also the kernels of a model full of transcendental functions link without libm."""
    bundle = aotc.compile(_functions_model(), tmp_path / "b", target="c", name="functions",
                          weights="embed")
    subprocess.run(["make", "-s", "static", "FREESTANDING=1", "CC=arm-none-eabi-gcc",
                    "AR=arm-none-eabi-ar", f"CFLAGS={M7}"], cwd=bundle.path, check=True)
    calls = _calls(bundle.path / "libfunctions.a", "arm-none-eabi-nm")
    # __aeabi_*: arithmetic the CPU has no instruction for, from the compiler's own library
    assert {c for c in calls if not c.startswith("__aeabi_")} <= LANGUAGE


def test_own_functions_agree_with_those_of_libm(tmp_path, monkeypatch):
    model = _functions_model()
    x = np.random.default_rng(0).normal(0, 3, (50, 4)).astype(np.float32)
    want = aotc.compile(model, tmp_path / "b", target="c", name="functions").load().run([x])
    want = {n: a.copy() for n, a in want.items()}
    monkeypatch.setenv("CFLAGS", "-DAOTC_NO_LIBM")
    got = aotc.load(tmp_path / "b").run([x])
    wrong = [m for m in (compare(n, got[n], want[n]) for n in want) if m.share > 1e-6]
    assert not wrong, wrong
    # rounding to whole numbers, halves to even, is exact
    for name in ("y_Floor", "y_Ceil", "y_Round", "y_Sign", "y_Abs"):
        assert np.array_equal(got[name], want[name])


@pytest.mark.product
def test_digits_on_an_emulated_cortex_m7(tools, tmp_path):
    env = dict(os.environ, PYTHONPATH=str(ROOT))
    done = subprocess.run([sys.executable, str(SCRIPT), "--out", str(tmp_path / "demo")],
                          capture_output=True, text=True, env=env, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "same as scikit-learn: True" in done.stdout
    left = subprocess.run(["arm-none-eabi-nm", "-u", str(tmp_path / "demo" / "classify.elf")],
                          capture_output=True, text=True, check=True).stdout
    assert left == ""
