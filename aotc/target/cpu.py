"""CPU targets: portable C11, SSE2, AVX2 and AVX-512 (x86-64-v1, -v3, -v4), NEON (aarch64)."""

from dataclasses import replace

from aotc.target.base import Cross, Level, Machine, Target, Ukernel, contraction, nests

_KIB, _MIB = 1 << 10, 1 << 20
# what -march=x86-64-v3 and -v4 let the compiler use, as far as CPUs differ in it
_V3_FLAGS = ("avx2", "fma", "bmi2")
_V4_FLAGS = (*_V3_FLAGS, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")

# the emulator's widest CPU: it knows AVX2, but not AVX-512, so that x86-64-v4 can only be built
_X86_CROSS = Cross(("x86_64-linux-gnu-gcc",), ("-static",), ("qemu-x86_64", "-cpu", "max"),
                   ("gcc-x86-64-linux-gnu", "qemu-user"))
_AARCH64_CROSS = Cross(("aarch64-linux-gnu-gcc", "aarch64-none-linux-gnu-gcc"), ("-static",),
                       ("qemu-aarch64",),
                       ("gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user"))


def _nests(suffix):
    """Rows of loop nests, and small constant matrices written out (Winograd forms)."""
    return nests(suffix) + (Ukernel(f"transform_f32__{suffix}", "transform", ("f32",), "nest"),)


def _machine(flops, l1=32 * _KIB, l2=1 * _MIB):
    return Machine((Level("DRAM", 1 << 62, 25e9, True), Level("L3", 32 * _MIB, 80e9, True, 0.5),
                    Level("L2", l2, 115e9, False, 0.75), Level("L1", l1, 210e9, False, 0.75),
                    Level("register", 2048, 1e12)),
                   workers=2, flops=flops, grain_flops=2_000_000, launch=1e-6, step=1e-7,
                   overlap=0.7)


C = Target(
    "c", "portable C11, no SIMD assumed", 1, (), "c", _machine(4e9),
    (contraction("c", 1, 4, 4), contraction("c", 1, 1, 8)) + _nests("c"))

X86_V1 = Target(
    "x86-64-v1", "any x86-64 (SSE2)", 4, (), "c", _machine(16e9),
    tuple(contraction("sse2", 4, m, n) for m, n in ((4, 2), (1, 4), (1, 1))) + _nests("sse2"),
    "defined(__SSE2__)", (), "x86_64", cross=_X86_CROSS)

X86_V3 = Target(
    "x86-64-v3", "x86-64 with AVX2 and FMA", 8, ("-march=x86-64-v3",), "c", _machine(58e9),
    tuple(contraction("avx2", 8, m, n) for m, n in ((6, 2), (12, 1), (1, 4), (1, 1)))
    + _nests("avx2"),
    "defined(__AVX2__) && defined(__FMA__)", _V3_FLAGS, "x86_64", cross=_X86_CROSS)

X86_V4 = Target(
    "x86-64-v4", "x86-64 with AVX-512 (F, BW, CD, DQ, VL)", 16, ("-march=x86-64-v4",), "c",
    _machine(116e9),
    tuple(contraction("avx512", 16, m, n)
          for m, n in ((6, 4), (8, 3), (12, 2), (24, 1), (1, 4), (1, 1)))
    + _nests("avx512"),
    "defined(__AVX512F__) && defined(__AVX512DQ__)", _V4_FLAGS, "x86_64",
    cross=replace(_X86_CROSS, emulator=()))

# every CPU runs the widest it can; decisions that are not taken per variant are those of the widest
X86 = replace(X86_V4, name="x86-64", description="AVX-512, AVX2 and SSE2 in one bundle, chosen at "
              "run time", variants=(X86_V4, X86_V3, X86_V1), cross=_X86_CROSS)

AARCH64 = Target(
    "aarch64", "64-bit Arm with NEON", 4, (), "c", _machine(32e9),
    tuple(contraction("neon", 4, m, n) for m, n in ((8, 2), (5, 4), (4, 4), (1, 4), (1, 1)))
    + _nests("neon"), "defined(__aarch64__)", (), "aarch64",
    cross=_AARCH64_CROSS)
