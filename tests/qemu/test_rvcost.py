"""The emulator's plugin against instructions whose cost follows from the specification, and what
models cost by it."""

import json
import shutil
import subprocess
from dataclasses import replace

import pytest
from small_models import dense

import aotc
from aotc.target import get_target
from benchmarks import riscv
from benchmarks.riscv import Cost

if riscv.obstacle():
    pytest.skip(riscv.obstacle(), allow_module_level=True)

_CC = [next(filter(shutil.which, get_target("riscv64").cross.cc)), "--target=riscv64-linux-gnu",
       "-march=rv64gcv", "-static"]

# instructions -> Cost of a function that holds them; ret and li count as one scalar each.  VLEN is
# 256, vl as set: bytes and elements follow vl, micro-ops LMUL
M4 = "vsetivli x0, 16, e32, m4, ta, ma"
M1 = "vsetivli x0, 8, e32, m1, ta, ma"
HALF = "vsetivli x0, 4, e32, mf2, ta, ma"
INSTRUCTIONS = {
    "nothing": ([], Cost("", 1)),
    "scalar": (["lw t0, 0(a0)", "sd t0, 8(a0)", "fld fa0, 16(a0)", "fsw fa0, 0(a0)"],
               Cost("", 5, loaded=12, stored=12)),
    "compressed": (["c.lw a5, 0(a0)", "c.sd a5, 8(a0)", "c.fld fa5, 0(a0)", "c.mv t0, a0",
                    "c.addi t0, 1"], Cost("", 6, loaded=12, stored=8)),
    "set": ([M4, "li t0, 3", "vsetvli t1, t0, e8, mf8, ta, ma"], Cost("", 2, vset=2)),
    "add": ([M4, "vfadd.vv v8, v4, v0"], Cost("", 1, 1, 1, 4)),
    "add_half": ([HALF, "vadd.vi v8, v4, 1"], Cost("", 1, 1, 1, 1)),
    "mac": ([M4, "vfmacc.vf v8, fa0, v4", "vfmadd.vv v8, v4, v12", "vmacc.vx v8, t0, v4",
             "vfnmsac.vv v8, v12, v16"], Cost("", 1, 1, 4, 16, 16)),
    "widen": ([M1, "vfwmacc.vv v8, v4, v5", "vwadd.vv v8, v4, v5", "vfwcvt.f.f.v v8, v4",
               "vfncvt.f.f.w v8, v4", "vnsrl.wi v8, v4, 3"], Cost("", 1, 1, 5, 10, 2)),
    "sums": ([M4, "vfredusum.vs v8, v4, v0", "vfwredusum.vs v8, v4, v0", "vredmax.vs v8, v4, v0"],
             Cost("", 1, 1, 3, 12)),
    "to_scalar": ([M4, "vfmv.f.s fa0, v8", "vmv.x.s t0, v8", "vmv.s.x v8, t0", "vfmv.s.f v8, fa0",
                   "vcpop.m t0, v0", "vfirst.m t0, v0"], Cost("", 1, 1, 6, 6)),
    "masks": ([M4, "vmflt.vv v0, v4, v8", "vmand.mm v1, v0, v0", "vmsbf.m v2, v0", "viota.m v4, v0",
               "vid.v v8", "vmerge.vvm v4, v8, v12, v0"], Cost("", 1, 1, 6, 18)),
    "permute": ([M4, "vrgather.vv v16, v4, v8", "vrgather.vi v16, v4, 2", "vslidedown.vi v8, v4, 1",
                 "vcompress.vm v16, v4, v1"], Cost("", 1, 1, 4, 40)),
    "moves": ([M1, "vmv4r.v v8, v4", "vmv.v.i v4, 0", "vfmv.v.f v4, fa0"], Cost("", 1, 1, 3, 6)),
    "load": ([M4, "vle32.v v8, (a0)", "vse32.v v8, (a0)"],
             Cost("", 1, 1, 2, 8, loaded=64, stored=64)),
    "short": (["vsetivli x0, 3, e32, m4, ta, ma", "vle32.v v8, (a0)"],
              Cost("", 1, 1, 1, 4, loaded=12)),
    "narrow": ([M4, "vle8.v v8, (a0)", "vle16.v v8, (a0)", "vse8.v v8, (a0)"],
               Cost("", 1, 1, 3, 4, loaded=48, stored=16)),
    "masked": ([M1, "vmv.v.i v0, 5", "vle32.v v8, (a0), v0.t"], Cost("", 1, 1, 2, 2, loaded=8)),
    "mask_load": ([M4, "vlm.v v8, (a0)", "vsm.v v8, (a0)"],
                  Cost("", 1, 1, 2, 2, loaded=2, stored=2)),
    "segments": ([M1, "vlseg3e32.v v8, (a0)"], Cost("", 1, 1, 1, 3, loaded=96)),
    "strided": ([M4, "li t0, 8", "vlse32.v v8, (a0), t0", "vsse32.v v8, (a0), t0"],
                Cost("", 2, 1, 2, 0, elements=32, loaded=64, stored=64)),
    "indexed": ([M1, "vid.v v4", "vluxei32.v v8, (a0), v4", "vsuxei32.v v8, (a0), v4"],
                Cost("", 1, 1, 3, 1, elements=16, loaded=32, stored=32)),
    "whole": (["vl2re32.v v8, (a0)", "vs2r.v v8, (a0)", "vl1re8.v v8, (a0)"],
              Cost("", 1, 0, 3, 5, loaded=96, stored=64)),
    "spill": (["sd a0, -8(sp)", "addi t0, sp, -1024", "vs4r.v v8, (t0)", "vl4re8.v v8, (t0)",
               "vs1r.v v8, (a0)"], Cost("", 3, 0, 3, 9, loaded=128, stored=168, spills=8)),
}
MAIN = """
#define MARK(f) void f(void); __attribute__((noinline)) void f(void) { __asm__ volatile(""); }
MARK(cost_begin)
MARK(cost_end)
static char place[4096];
int main(void)
{
    DECLARED
    CALLED(0)
    cost_begin();
    CALLED(place)
    cost_end();
    CALLED(place)
    return 0;
}
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    """The plugin, without a warning."""
    folder = tmp_path_factory.mktemp("plugin")
    found = riscv.build_plugin(folder)
    done = subprocess.run([shutil.which("cc") or shutil.which("gcc"), "-std=c11", "-D_GNU_SOURCE",
                           "-O2", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-fsyntax-only",
                           str(riscv.SOURCES / "rvcost.c")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return found


def _counts(folder, plugin, vlen, source, cflags=()):
    """{function: Cost} of a C and assembly program between its marks."""
    (folder / "p.c").write_text(source)
    subprocess.run([*_CC, "-O1", *cflags, "p.c", *map(str, folder.glob("*.s")), "-o", "p"],
                   cwd=folder, check=True)
    cpu = f"rv64,v=true,vext_spec=v1.0,vlen={vlen},elen=64"
    subprocess.run(["qemu-riscv64", "-cpu", cpu, "-plugin",
                    f"{plugin},out=o,begin=cost_begin,end=cost_end", "./p"], cwd=folder, check=True)
    return {c["function"]: Cost(**c) for c in map(json.loads,
                                                  (folder / "o").read_text().splitlines())}


def test_every_instruction_costs_what_the_specification_tells(plugin, tmp_path):
    text = ".text\n" + "".join(
        f".globl f_{name}\n.type f_{name}, @function\n.option norvc\nf_{name}:\n"
        + "".join(f".option {'rvc' if i.startswith('c.') else 'norvc'}\n    {i}\n" for i in lines)
        + f"    ret\n.size f_{name}, .-f_{name}\n" for name, (lines, _) in INSTRUCTIONS.items())
    (tmp_path / "f.s").write_text(text)
    declared = "".join(f"void f_{n}(void *); " for n in INSTRUCTIONS)
    # once before counting begins and once after it has ended: neither may be seen
    calls = "".join(f"f_{n}(place); " for n in INSTRUCTIONS)
    source = MAIN.replace("DECLARED", declared)
    for call in ("CALLED(0)", "CALLED(place)"):
        source = source.replace(call, calls)
    got = _counts(tmp_path, plugin, 256, source)
    wrong = {n: (got.get(f"f_{n}"), want) for n, (_, want) in INSTRUCTIONS.items()
             if got.get(f"f_{n}") != replace(want, function=f"f_{n}")}
    assert not wrong, "\n".join(f"{n}: {g}, expected {w}" for n, (g, w) in wrong.items())


def test_spills_of_the_compiler_are_found(plugin, tmp_path):
    """Forty live vectors do not fit into 32 registers, eight do."""
    def body(count):
        names = range(count)
        return ("size_t n = __riscv_vsetvlmax_e32m1();\n"
                + "".join(f"vfloat32m1_t v{i} = __riscv_vle32_v_f32m1(p + {i} * n, n);\n"
                          for i in names)
                + '__asm__ volatile("" ::: "memory");\n'
                + "".join(f"__riscv_vse32_v_f32m1(p + {count - 1 - i} * n, v{i}, n);\n"
                          for i in names))

    source = "#include <riscv_vector.h>\n" + MAIN.replace("DECLARED", "").replace(
        "static char place[4096];", "static float place[4096];\n" + "".join(
            f"__attribute__((noinline)) static void {name}(float *p)\n{{\n{body(count)}}}\n"
            for name, count in (("many", 40), ("few", 8))))
    for call in ("CALLED(0)", "CALLED(place)"):
        source = source.replace(call, "many(place); few(place);")
    got = _counts(tmp_path, plugin, 128, source)
    assert got["few"].spills == 0 and got["few"].micro_ops == 16
    assert got["many"].spills >= 2 * (40 - 32)


def test_arguments_are_asked_for(plugin, tmp_path):
    (tmp_path / "p.c").write_text("int main(void) { return 0; }\n")
    subprocess.run([*_CC, "p.c", "-o", "p"], cwd=tmp_path, check=True)
    done = subprocess.run(["qemu-riscv64", "-plugin", f"{plugin},out=o", "./p"], cwd=tmp_path,
                          capture_output=True, text=True)
    assert done.returncode and "give out=FILE,begin=FUNCTION,end=FUNCTION" in done.stderr


def test_counts_are_the_same_on_every_run(plugin, tmp_path):
    aotc.compile(dense("n"), tmp_path / "b", target="riscv64", name="model")
    program = riscv.build_program(tmp_path / "b")
    first = riscv.count(program, plugin, 256, (7,))
    assert first == riscv.count(program, plugin, 256, (7,))
    assert riscv.total(first).scalar > 0 and riscv.total(first).micro_ops > 0
    other = riscv.total(riscv.count(program, plugin, 256, (8,)))
    assert other.scalar + other.micro_ops > riscv.total(first).scalar + riscv.total(first).micro_ops
