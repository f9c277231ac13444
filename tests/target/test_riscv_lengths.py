"""Kernels for vectors of several lengths in one bundle: the CPU's length decides at run time."""

import shutil
import subprocess

import pytest
from small_models import dense

import aotc
from aotc.runtime.compile_bundle import read_manifest
from aotc.target import flags_of, get_target

TARGET = get_target("riscv64-vlens")
# prints the status of each set of kernels by itself, and of the one that is chosen, with results
MAIN = """#include <stdio.h>
#include "dense.h"
static _Alignas(AOTC_ALIGNMENT) uint8_t arena[DENSE_ARENA_BYTES_MAX(1)];
int main(void)
{
    dense_weights weights;
    dense_context context;
    static float x[3 * 8], y[3 * 4];
    for (int i = 0; i < 3 * 8; i++)
        x[i] = (float)(i % 5) - 2.0f;
    if (dense_weights_embedded(&weights) != AOTC_OK)
        return 1;
    for (int variant = -1; variant < DENSE_VARIANTS; variant++) {
        const aotc_status status = dense_init_variant(&context, &weights, arena, sizeof arena,
                                                      NULL, variant);
        printf("%d\\n", status == AOTC_OK);
        if (status == AOTC_OK && dense_run(&context, x, y) != AOTC_OK)
            return 1;
        for (int i = 0; i < 3 * 4 && status == AOTC_OK; i++)
            printf("%a\\n", (double)y[i]);
    }
    return 0;
}
"""


def test_the_length_of_vectors_decides(tmp_path):
    cross = TARGET.cross
    compiler = next(filter(shutil.which, cross.cc), None)
    if compiler is None or not shutil.which(cross.emulator[0]):
        pytest.skip(f"needs {', '.join(cross.packages)} (Debian)")
    bundle = aotc.compile(dense(3), tmp_path / "b", target=TARGET.name, name="dense",
                          weights="embed").path
    names = [v["target"] for v in read_manifest(bundle)["variants"]]
    assert names == [t.name for t in TARGET.variants]
    cc = [compiler, *cross.cflags]
    subprocess.run(["make", "-s", "static", "CC=" + " ".join(cc)], cwd=bundle, check=True)
    (bundle / "main.c").write_text(MAIN)
    subprocess.run([*cc, "-std=c11", "-O1", *cross.ldflags, "main.c", "libdense.a", "-lm",
                    "-pthread", "-o", "main"], cwd=bundle, check=True)
    seen = set()
    for vlen in cross.vlens:
        command = [part.format(vlen=vlen) for part in cross.emulator]
        words = subprocess.run([*command, "./main"], cwd=bundle, check=True, capture_output=True,
                               text=True).stdout.split()
        long = vlen >= 1024
        assert len(words) == 3 + 12 * (2 + long)
        assert words[0] == "1" and words[13] == ("1" if long else "0")
        seen |= {tuple(words[1:13]), tuple(words[-12:])}
    assert len(seen) == 1  # each sum has its terms in the same order


def test_extensions_of_several_letters_are_read():
    isa = "isa\t\t: rv64imafdcv_zicsr_zvfh_zvl128b\n"
    assert {"v", "c", "zvfh", "zvl128b"} <= flags_of(isa)
    assert flags_of("isa : rv64imafdc\n") == set("imafdc")
