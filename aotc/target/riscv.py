"""RISC-V targets: 64-bit with the vector extension 1.0, any vector length from 128 bits on."""

from dataclasses import replace

from aotc.target.base import Cross, Machine, Memory, Target, VectorFacts
from aotc.target.kernel_rows import KernelRow
from aotc.target.micro_kernels import contraction, dot, nests, transform

_KIB, _MIB = 1 << 10, 1 << 20

_CROSS = Cross(
    ("clang-19", "clang-20", "clang-21", "clang"), ("-static",),
    ("qemu-riscv64", "-cpu", "rv64,v=true,vext_spec=v1.0,vlen={vlen},elen=64,"
     "rvv_ta_all_1s=true,rvv_ma_all_1s=true"),
    ("clang-19", "gcc-riscv64-linux-gnu", "libc6-dev-riscv64-cross", "qemu-user"),
    ("--target=riscv64-linux-gnu",), (128, 256, 512, 1024),
    # qemu 7 stops at a conversion with rounding to zero (vfcvt.rtz) that no other float operation
    # of its block precedes (gitlab.com/qemu-project/qemu, issue 1441; mended in 8); our kernels
    # have none, clang makes them of casts in scalar loops
    ("-fno-vectorize", "-fno-slp-vectorize"))

_LANES = 16  # nominal: what deciders count with; kernels take what the CPU has
# launch, step and fork_join are estimates of a small core, three times those of x86-64
_MACHINE = Machine((Memory("DRAM", 1 << 62, 10e9, "host"),
                    Memory("L3", 4 * _MIB, 20e9, "device", 0.5),
                    Memory("L2", 512 * _KIB, 40e9, "core", 0.75),
                    Memory("L1", 32 * _KIB, 80e9, "core", 0.75),
                    Memory("register", 4096, 1e12, "thread", kind="managed")),
                   workers=2, flops=16e9, grain_flops=2_000_000, launch=1e-6, step=6e-8,
                   fork_join=4e-6,
                   scratch="L2")

_STORED = ("f32", "f16", "bf16", "u8", "i8", "u16", "i16", "i32")


def _rows(nv: int) -> tuple[KernelRow, ...]:
    """Rows of products with panels of NV times the nominal lanes, and of nests.

    Sums are as wide as leaves registers for a second value of B, so that the next load overlaps the
    multiply-adds: 13 rows of 2 registers, 6 of 4.  Of 14 rows, or 7, clang 19 copies sums or
    spills."""
    products = [contraction("rvv", _LANES, m, nv) for m in (13, 12, 6, 5)]
    dots = [dot("rvv", _LANES, m, n, rows=rows) for rows in ("u8", "i8")
            for m, n in ((12, nv), (6, nv), (1, 4))]
    return (*products, contraction("rvv", _LANES, 1, 4), *dots, *nests("rvv", _STORED),
            transform("rvv"))


RISCV64 = Target(
    "riscv64", "64-bit RISC-V with the vector extension 1.0, vectors of any length", _LANES,
    ("-march=rv64gcv",), "riscv64", _MACHINE, _rows(2), "defined(__riscv_v)", ("v",), "riscv64",
    cross=_CROSS, vectors=VectorFacts(False, (4, 2, 1), 8, prefetches=False, tiles=False, held=29),
    lane_steps=(1, 2))

# one instruction converts f16 each way
RISCV64_ZVFH = replace(
    RISCV64, name="riscv64-zvfh", description=f"{RISCV64.description}, and of f16",
    cflags=("-march=rv64gcv_zvfh",), requires="defined(__riscv_v) && defined(__riscv_zvfh)",
    cpu_flags=("v", "zvfh"), halves=True)

# panels of 64 columns, which 2 registers hold: half of the loads of rows
RISCV64_LONG = replace(
    RISCV64, name="riscv64-zvl1024b", description="the same for vectors of 1024 bits and more",
    ukernels=_rows(4), cpu_flags=("v", "zvl1024b"), cross=replace(_CROSS, vlens=(1024,)),
    vectors=replace(RISCV64.vectors, usual=32))

# the length of the CPU's vectors decides when a bundle starts
RISCV64_VLENS = replace(
    RISCV64, name="riscv64-vlens", description="64-bit RISC-V with vectors of 1024 bits and of "
    "any length in one bundle, chosen at run time", variants=(RISCV64_LONG, RISCV64))

RISCV = (RISCV64, RISCV64_ZVFH, RISCV64_LONG, RISCV64_VLENS)
