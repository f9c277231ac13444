"""Bundles without an operating system: what they call, and what a microcontroller computes."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ml_nodes import lists
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


FOREST = """#include "forest.h"
static unsigned char arena[FOREST_ARENA_BYTES_MAX(1)] __attribute__((aligned(64)));
static forest_weights weights;
static forest_context context;
static float x[5], y[1];
void *memcpy(void *to, const void *from, unsigned n)
{
    for (unsigned i = 0; i < n; i++) ((char *)to)[i] = ((const char *)from)[i];
    return to;
}
void *memset(void *to, int value, unsigned n)
{
    for (unsigned i = 0; i < n; i++) ((char *)to)[i] = (char)value;
    return to;
}
int memcmp(const void *a, const void *b, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (((const char *)a)[i] != ((const char *)b)[i]) return 1;
    return 0;
}
int reset(void)
{
    if (forest_weights_embedded(&weights) != AOTC_OK) return 1;
    if (forest_weights_embedded_trusted(&weights) != AOTC_OK) return 1;
    if (forest_init(&context, &weights, arena, sizeof arena, 0) != AOTC_OK) return 2;
    return (int)forest_run(&context, x, y);
}
"""
M4 = ("-Os", "-flto", "-ffunction-sections", "-fdata-sections", "-mcpu=cortex-m4", "-mthumb",
      "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")


def test_a_forest_takes_its_nodes_and_two_kilobytes_of_flash(tools, tmp_path):
    """Code and constants, with the program around it: two words a node, the rest in 2 KB."""
    attributes = lists(np.random.default_rng(0), "target", trees=30, depth=5, features=5,
                       targets=1)
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml",
                            n_targets=1, **attributes)
    model = make_model([node], {"x": (TensorProto.FLOAT, [1, 5])},
                       {"y": (TensorProto.FLOAT, [1, 1])})
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    bundle = aotc.compile(model, tmp_path / "b", target="c", name="forest", weights="embed")
    subprocess.run(["make", "-s", "static", "FREESTANDING=1", "CC=arm-none-eabi-gcc",
                    "AR=arm-none-eabi-gcc-ar", f"CFLAGS={' '.join(M4)}"], cwd=bundle.path,
                   check=True)
    (tmp_path / "main.c").write_text(FOREST)
    subprocess.run(["arm-none-eabi-gcc", *M4, "-std=c11", "-ffreestanding", "-nostdlib",
                    "-fno-tree-loop-distribute-patterns", f"-I{bundle.path}", "main.c",
                    str(bundle.path / "libforest.a"), "-lgcc", "-Wl,--gc-sections",
                    "-Wl,-e,reset", "-o", "forest.elf"], cwd=tmp_path, check=True)
    sizes = subprocess.run(["arm-none-eabi-size", "forest.elf"], capture_output=True, text=True,
                           check=True, cwd=tmp_path).stdout.splitlines()[1].split()
    nodes = len(attributes["nodes_modes"])
    assert nodes > 500
    assert int(sizes[0]) + int(sizes[1]) <= 8 * nodes + 2048


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
