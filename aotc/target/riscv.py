"""RISC-V targets: 64-bit with the vector extension 1.0, any vector length from 128 bits on."""

from aotc.target.base import Cross, Machine, Memory, Target, VectorFacts
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
# Sums are as wide as leaves registers for a second value of B, so that the next load overlaps the
# multiply-adds: 13 rows of 2 registers, 6 of 4.  Of 14 rows, or 7, clang 19 copies sums or spills.
RISCV64 = Target(
    "riscv64", "64-bit RISC-V with the vector extension 1.0, vectors of any length", _LANES,
    ("-march=rv64gcv",), "riscv64", _MACHINE,
    tuple(contraction("rvv", _LANES, m, n) for m, n in ((13, 2), (12, 2), (6, 2), (5, 2), (1, 4)))
    + tuple(dot("rvv", _LANES, m, n, rows=rows) for rows in ("u8", "i8")
            for m, n in ((12, 2), (6, 2), (1, 4)))
    + (*nests("rvv", _STORED), transform("rvv")),
    "defined(__riscv_v)", ("v",), "riscv64", cross=_CROSS,
    vectors=VectorFacts(False, (4, 2, 1), 8, prefetches=False, tiles=False, held=29),
    lane_steps=(1, 2))
