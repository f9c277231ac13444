"""The bundle's C, seen by a C user: strict compilers, make, two bundles in one C++ program."""

import json
import re
import shutil
import struct
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from bundle_plans import INFO, feeds, lookup_bundle, lookup_plan, reference, sample

from aotc.emit.bundle.render import render_bundle
from aotc.emit.bundle.write import write_bundle
from aotc.errors import AotcError
from aotc.ir.expr import Const, Sym
from aotc.ir.kernel.plan_kernels import About, Kernel, LoweredKernel
from aotc.ir.plan import Place, Plan
from aotc.ir.schedule import Schedule

STRICT = ("-std=c11 -O1 -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow -Wcast-align "
          "-Wcast-qual -Wstrict-prototypes -Wmissing-prototypes -Wdouble-promotion -Wundef -Wvla "
          "-pedantic -Werror").split()
COMPILERS = [c for c in ("gcc", "clang", "clang-19", "clang-16") if shutil.which(c)]
HOSTILE = ['in "put" */ ??/', "b\\ias\nint x;", "/* 输出 %s"]


def _static_plan():
    """x f32[4] -> y bool[4]: no symbols, no weights, no arena."""
    four = Const(4)
    places = (Place("x", "f32", (four,), "input", four, onnx="x"),
              Place("y", "bool", (four,), "output", four, onnx="y"))
    return Plan("flat", "c", (), (), places, (),
                (Kernel(LoweredKernel("k00", About("positive", ("n",)), four, (), (), (), ("x",),
                                      ("y",)), ()),))


FLAT = """#include "flat_internal.h"
#include <string.h>

void flat_k00(void *frame, int64_t begin, int64_t end, int worker)
{
    flat_frame *f = frame;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        float x;
        memcpy(&x, (const uint8_t *)f->in[0] + 4 * i, sizeof x);
        ((uint8_t *)f->out[0])[i] = x > 0;
    }
}
"""


def _flat_bundle(samples=()):
    return render_bundle(_static_plan(), Schedule("c", ()), INFO, samples,
                         {"flat_kernels_0.c": FLAT})


def _hostile_bundle():
    batch, seq = Sym("ba tch*/", 1, 64), Sym("a" * 90, 1, 100)
    ids, bias, out = HOSTILE
    record = sample(ids, bias, out, syms=(batch.name, seq.name))
    return lookup_bundle((record,), name='9 */ "evil"\n??/', ids=ids, bias=bias, out=out,
                         node='*/ no"de\\ ??/\n', batch=batch, seq=seq, checks=())


@pytest.mark.parametrize("make_bundle, compiler", [
    pytest.param(m, c, marks=() if m is _hostile_bundle or c is COMPILERS[0] and m is _flat_bundle
                 else pytest.mark.product)
    for m in (lookup_bundle, _flat_bundle, _hostile_bundle) for c in COMPILERS])
def test_strict_compilers_have_no_complaint(make_bundle, compiler, tmp_path):
    folder = write_bundle(make_bundle(), tmp_path / "b")
    for source in sorted(folder.glob("*.c")):
        variants = [[]]
        if source.name.endswith("_pool.c"):
            variants.append(["-DAOTC_NO_THREADS"])
        if source.name.endswith("_weights.c"):
            variants += [["-DAOTC_NO_FILES"], ["-U__unix__"]]
        for extra in variants:
            subprocess.run([compiler, *STRICT, *extra, "-c", source.name, "-o", "x.o"],
                           cwd=folder, check=True)


@pytest.mark.parametrize("make_bundle", [lookup_bundle, _flat_bundle, _hostile_bundle])
def test_make_test_passes(make_bundle, tmp_path):
    folder = write_bundle(make_bundle(), tmp_path / "b")
    out = subprocess.run(["make", "test"], cwd=folder, capture_output=True, text=True, check=True)
    assert out.stdout.endswith("passed\n")
    assert ("max error 0" in out.stdout) == (make_bundle is not _flat_bundle)
    subprocess.run(["make", "clean"], cwd=folder, capture_output=True, check=True)
    assert not (folder / "build").exists() and not list(folder.glob("*.a"))


@pytest.mark.parametrize("options", ["-DAOTC_NO_THREADS", "-U__unix__", "-O0 -g"])
def test_make_test_passes_with_build_options(options, lookup_folder, tmp_path):
    """No threads; weights read instead of mapped; no optimisation."""
    folder = shutil.copytree(lookup_folder, tmp_path / "b")
    subprocess.run(["make", "test", f"CFLAGS=-Wall -Wextra -Werror {options}"], cwd=folder,
                   capture_output=True, check=True)


def test_make_test_fails_on_a_wrong_output(tmp_path):
    bundle = lookup_bundle()
    name = "test_lookup.bin"
    body = bytearray(bundle.files[name])
    body[-4:] = struct.pack("<f", struct.unpack("<f", body[-4:])[0] * 1.1 + 0.1)
    bundle.files[name] = bytes(body)
    folder = write_bundle(bundle, tmp_path / "b")
    out = subprocess.run(["make", "test"], cwd=folder, capture_output=True, text=True)
    assert out.returncode and "1 of 168 elements wrong" in out.stdout and "FAILED" in out.stdout


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_sanitizers(sanitizer, lookup_folder, tmp_path):
    sources = sorted(map(str, lookup_folder.glob("*.c")))
    subprocess.run(["cc", "-std=c11", "-g", "-O1", f"-fsanitize={sanitizer}", "-pthread",
                    "-fno-sanitize-recover", *sources, "-o", str(tmp_path / "t"), "-lm"],
                   check=True)
    subprocess.run([str(tmp_path / "t"), "lookup_weights.bin", "test_lookup.bin"], check=True,
                   cwd=lookup_folder, capture_output=True)


def test_run_path_neither_allocates_nor_prints(lookup_folder, tmp_path):
    """What lookup.c needs from outside: its kernels and memory functions, nothing else."""
    out = tmp_path / "x.o"
    subprocess.run(["cc", "-std=c11", "-O2", "-c", "lookup.c", "-o", str(out)],
                   cwd=lookup_folder, check=True)
    text = subprocess.run(["nm", "-u", str(out)], capture_output=True, text=True, check=True)
    needs = set(re.findall(r"U (\w+)", text.stdout)) - {"_GLOBAL_OFFSET_TABLE_"}
    assert needs <= {"lookup_k00", "lookup_k01", "memset", "memcpy", "__stack_chk_fail"}


def test_exported_names_carry_the_prefix(lookup_folder, tmp_path):
    for source in lookup_folder.glob("lookup*.c"):
        subprocess.run(["cc", "-std=c11", "-c", source.name, "-o", str(tmp_path / "x.o")],
                       cwd=lookup_folder, check=True)
        text = subprocess.run(["nm", "--defined-only", "-g", str(tmp_path / "x.o")],
                              capture_output=True, text=True, check=True)
        names = [line.split()[-1] for line in text.stdout.splitlines()]
        assert names and all(n.startswith("lookup_") for n in names)


MAIN = """
#include "one.h"
#include "two.h"
#include <cstdio>
#include <cstdlib>

int main()
{
    aotc_pool pool;
    one_weights w1;
    two_weights w2;
    one_context c1;
    two_context c2;
    if (one_pool_create(&pool, 2) != AOTC_OK) return 1;
    if (one_weights_open(&w1, "one/one_weights.bin") != AOTC_OK) return 2;
    if (two_weights_open(&w2, "two/two_weights.bin") != AOTC_OK) return 3;
    if (one_weights_open(&w1, "two/two_weights.bin") != AOTC_WEIGHTS_WRONG_MODEL) return 4;
    if (one_weights_open(&w1, "one/one_weights.bin") != AOTC_OK) return 5;
    alignas(64) static unsigned char a1[ONE_ARENA_BYTES_MAX(2)], a2[TWO_ARENA_BYTES_MAX(2)];
    if (one_arena_size(ONE_BATCH_MAX, ONE_SEQ_MAX, 2) > sizeof a1) return 6;
    if (one_arena_size(ONE_BATCH_MAX + 1, 1, 2) != 0) return 7;
    if (one_init(&c1, &w1, a1, sizeof a1, &pool) != AOTC_OK) return 8;
    if (two_init(&c2, &w2, a2, sizeof a2, &pool) != AOTC_OK) return 9;
    const int64_t ids[] = {0, 1, 2, 3};
    const float bias[] = {1, 2};
    float x[32], y[32];
    if (one_run(&c1, 2, 2, ids, bias, x) != AOTC_OK) return 10;
    if (two_run(&c2, 2, 2, ids, bias, y) != AOTC_OK) return 11;
    for (int i = 0; i < 32; i++) std::printf("%.9g %.9g ", double(x[i]), double(y[i]));
    std::printf("%s %s\\n", one_inputs()[0].name, two_outputs()[0].dims[2].text);
    one_pool_destroy(&pool);
    one_weights_close(&w1);
    two_weights_close(&w2);
    return 0;
}
"""


def test_two_bundles_in_one_cpp_program(tmp_path):
    objects = []
    for name in ("one", "two"):
        folder = write_bundle(lookup_bundle(name=name, model_hash=name), tmp_path / name)
        subprocess.run(["make", "-s", f"lib{name}.a"], cwd=folder, check=True)
        objects.append(str(folder / f"lib{name}.a"))
    (tmp_path / "main.cpp").write_text(MAIN)
    subprocess.run(["g++", "-std=c++17", "-Wall", "-Wextra", "-pedantic", "-Werror", "-Ione",
                    "-Itwo", "main.cpp", *objects, "-pthread", "-lm", "-o", "main"],
                   cwd=tmp_path, check=True)
    out = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, check=True)
    *numbers, name, text = out.stdout.split()
    want = reference(np.array([[0, 1], [2, 3]]), np.array([1, 2], np.float32)).ravel()
    assert np.allclose(np.array(numbers, float).reshape(-1, 2), want[:, None], rtol=1e-6)
    assert (name, text) == ("ids", "8")


def test_bundle_is_deterministic_and_says_nothing_about_its_machine(tmp_path):
    first, second = lookup_bundle(), lookup_bundle()
    assert first.files == second.files and list(first.files) == sorted(first.files)
    for data in first.files.values():
        assert str(tmp_path).encode() not in data and b"/tmp" not in data


def test_manifest(lookup_folder):
    m = json.loads((lookup_folder / "manifest.json").read_text())
    assert m["inputs"][0]["shape"][0] == {"text": "batch", "symbol": "batch", "lo": 1, "hi": 64}
    assert m["outputs"][0]["shape"][2] == 8 and m["arena_bytes_max"] == 64 * 100 * 32
    assert set(m["files"]) == {p.name for p in lookup_folder.iterdir()
                               if p.is_file()} - {"manifest.json"}


def test_wrong_samples_and_plans_are_refused():
    ids, bias = feeds()
    with pytest.raises(AotcError, match="sample: bias is float64"):
        bad = sample()
        bad.inputs["bias"] = bias.astype("float64")
        lookup_bundle((bad,))
    with pytest.raises(AotcError, match="sample: ids is missing"):
        bad = sample()
        del bad.inputs["ids"]
        lookup_bundle((bad,))
    plan = lookup_plan()
    places = tuple(p for p in plan.places if p.name != "p_ids")
    with pytest.raises(AotcError, match="inputs are numbered"):
        render_bundle(replace(plan, places=places), Schedule("c", ()), INFO, (), {})
