"""CPU targets: portable C11, SSE2, AVX2 and AVX-512 (x86-64-v1, -v3, -v4), NEON (aarch64)."""

from dataclasses import replace
from typing import Any

from aotc.ir.category import BF16_PRODUCT, BYTES, SIGNED_BYTES
from aotc.target.base import Cross, Machine, Memory, Target, VectorFacts, Words
from aotc.target.kernel_rows import KernelRow, ProductRow
from aotc.target.micro_kernels import (
    MOVED,
    contraction,
    dot,
    dot_blocks,
    dot_byte_blocks,
    dot_digits,
    dot_expanded,
    dot_grouped,
    dot_integers,
    dot_pairs,
    dot_tiles,
    exchange,
    nests,
    transform,
)
from aotc.target.tuning import Tuning

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


# loads of aotc_vec.h that take every second element, or any run of lanes
_LOADS: dict[str, Any] = {"lane_steps": (1, 2), "part_loads": True}
_HALVES: dict[str, Any] = {**_LOADS, "halves": True}


def lane_nests(suffix: str) -> tuple[KernelRow, ...]:
    """Rows of loop nests, small constant matrices written out (Winograd forms), transposes."""
    return nests(suffix, ("f32", "f16", "bf16", "u8", "i8", "u16", "i16", "i32")) + (
        transform(suffix, ("f32", "bf16")), exchange(suffix))


# products of bytes in the time of one in f32, of u8 and of s8 by s8, where they are more.  AMD EPYC
# of 2022, 252 rows of 1024 terms by 576 columns: of halves (sse2, avx2, avx512) so many; vnni 0.9
# of the four that its instruction takes, 0.75 with columns' own sums, as is assumed of Arm's.
_BYTE_RATES = {"sse2": (1.8, 1.8), "simd128": (1.8, 1.8),
               "avx2": (1.1, 1.1), "avx512": (1.4, 1.4), "vnni": (3.6, 3.0),
               "amx": (3.6, 3.0), "sdot": (3.0, 3.6), "usdot": (3.6, 3.6)}


def byte_dots(suffix: str, lanes: int, *tiles: tuple[int, int], unsigned: str = "dot.c.j2",
          signed: str = "dot.c.j2") -> tuple[ProductRow, ...]:
    """Rows of 8-bit products, of u8 and of s8 by s8; the templates of both."""
    kinds = zip(("u8", "i8"), (unsigned, signed), _BYTE_RATES.get(suffix, (1.0, 1.0)))
    return tuple(dot(suffix, lanes, m, n, template, rows, rate)
                 for rows, template, rate in kinds for m, n in tiles)


def _pairs(suffix: str, lanes: int, *tiles: tuple[int, int]) -> tuple[ProductRow, ...]:
    """Rows of bf16 products."""
    return tuple(dot_pairs(suffix, lanes, m, n) for m, n in tiles)


def widened_groups(suffix: str, lanes: int, *tiles: tuple[int, int]) -> tuple[ProductRow, ...]:
    """Rows of f32 by grouped weights, expanded in registers, and of the first tile in scratch; of
    integers by those."""
    return (*(dot_grouped(suffix, lanes, m, n) for m, n in tiles),
            dot_expanded(suffix, lanes, *tiles[0]), *_integers(suffix, lanes, (4, 2), (1, 4)))


def _integers(suffix: str, lanes: int, *tiles: tuple[int, int],
              rates: tuple[float, float] = (1.0, 1.0)) -> tuple[ProductRow, ...]:
    """Rows of integers of 8 and of 16 bits by grouped weights."""
    return tuple(dot_integers(suffix, lanes, m, n, rows, rate)
                 for rows, rate in zip(("u8", "i16"), rates) for m, n in tiles)


def _with_dots(target: Target, name: str, words: str, dots: tuple[ProductRow, ...], cflags: Words,
               requires: str, flags: Words) -> Target:
    """A target with other rows of narrow products of the same types: CPUs that have an instruction
    for them."""
    kinds = {u.products for u in dots}
    rows = tuple(u for u in target.ukernels
                 if not isinstance(u, ProductRow) or u.products not in kinds)
    return replace(target, name=name, description=f"{target.description} {words}",
                   cflags=cflags, ukernels=rows + dots,
                   requires=f"{target.requires} && defined({requires})",
                   cpu_flags=(*target.cpu_flags, *flags))


def _machine(flops: float, l1: int = 32 * _KIB, l2: int = 1 * _MIB, l3: int = 32 * _MIB,
             rates: tuple[float, float, float, float] = (25e9, 80e9, 100e9, 210e9)) -> Machine:
    """Of a server's core; memory and the last cache serve two.  rates: bytes/s of memory, L3, L2
    and L1.  The default was measured with AVX-512 kernels of the model zoo, one core: 35 to 50 GB/s
    from L3, 75 to 105 from L2; reading runs of 32 bytes takes 7 times as long as reading all, so
    that a run counts as 512 bytes; 0.3 us from one kernel to the next, 1.3 until a second worker
    has taken and ended its part of one.  It is a preset: the 128 MiB
    of AVX-512 are those of a server where a tensor of 42 MiB that was just written is read as fast
    as one of 10; ``aotc targets --probe`` and ``--machine`` are for others."""
    dram, third, second, first = rates
    return Machine((Memory("DRAM", 1 << 62, dram, "host", transaction=512),
                    Memory("L3", l3, third, "device", 0.5, transaction=512),
                    Memory("L2", l2, second, "core", 0.75), Memory("L1", l1, first, "core", 0.75),
                    Memory("register", 2048, 1e12, "thread", kind="managed")),
                   workers=2, flops=flops, grain_flops=2_000_000, launch=3e-7, step=2e-8,
                   fork_join=1.3e-6,
                   overlap=0.7, scratch="L2")


# Its tiles go through an array: compilers see vectors in what is stored there, and none where each
# sum is used by itself (gcc 12 -O2: bert_tiny took 1.66 of its time so, squeezenet1_1 1.62).
C = Target(
    "c", "portable C11, no SIMD assumed", 1, (), "c", _machine(4e9),
    (contraction("c", 1, 4, 4), contraction("c", 1, 1, 8)) + byte_dots("c", 1, (2, 4), (1, 4))
    + _pairs("c", 1, (2, 4), (1, 4)) + widened_groups("c", 1, (2, 4), (1, 4))
    + lane_nests("c"), vectors=VectorFacts(tiles=False))

X86_V1 = Target(
    "x86-64-v1", "any x86-64 (SSE2)", 4, (), "c", _machine(32e9),
    tuple(contraction("sse2", 4, m, n) for m, n in ((4, 2), (1, 4), (1, 1)))
    + byte_dots("sse2", 4, (3, 2), (1, 2)) + _pairs("sse2", 4, (4, 2), (1, 4))
    + widened_groups("sse2", 4, (4, 2), (1, 4)) + lane_nests("sse2"),
    "defined(__SSE2__)", (), "x86_64", cross=_X86_CROSS, **_LOADS)

# an AMD EPYC of 2022: what its products reach (94 % of the peak), and --probe of the rest
_AVX2_MACHINE = _machine(86e9, rates=(23e9, 44e9, 91e9, 122e9))
X86_V3 = Target(
    "x86-64-v3", "x86-64 with AVX2 and FMA", 8, ("-march=x86-64-v3",), "c", _AVX2_MACHINE,
    tuple(contraction("avx2", 8, m, n) for m, n in ((4, 3), (6, 2), (1, 4), (1, 1)))
    + (contraction("avx2", 8, 12, 1, load_cost=0.6),)  # 62 GFLOP/s where 4x24 reaches 87
    + byte_dots("avx2", 8, (4, 2), (1, 2)) + _pairs("avx2", 8, (4, 2), (1, 4))
    + widened_groups("avx2", 8, (4, 2), (1, 4)) + lane_nests("avx2"),
    "defined(__AVX2__) && defined(__FMA__)", _V3_FLAGS, "x86_64", cross=_X86_CROSS,
    **_HALVES)

X86_V4 = Target(
    "x86-64-v4", "x86-64 with AVX-512 (F, BW, CD, DQ, VL)", 16, ("-march=x86-64-v4",), "c",
    _machine(210e9, l3=128 * _MIB),
    tuple(contraction("avx512", 16, m, n)  # 7 and 14: images of 7x7 and 14x14
          for m, n in ((6, 4), (7, 4), (7, 3), (8, 3), (9, 3), (12, 2), (13, 2), (14, 2), (24, 1),
                       (1, 4), (1, 1)))
    # for two to four rows: of more, tiles with fewer loads per multiply-add are faster
    + tuple(contraction("avx512", 16, m, 4, load_cost=0.6) for m in (2, 4))
    + byte_dots("avx512", 16, (4, 4), (1, 4)) + _pairs("avx512", 16, (7, 3), (12, 2), (1, 4))
    + widened_groups("avx512", 16, (8, 3), (4, 4), (1, 4)) + lane_nests("avx512"),
    "defined(__AVX512F__) && defined(__AVX512DQ__)", _V4_FLAGS, "x86_64",
    cross=replace(_X86_CROSS, emulator=()), vectors=VectorFacts(registers=32),
    **_HALVES)

# 64 rows by 4096 x 4096 weights of 4 bits: 6.8 ms where f32 takes 20.4
_INTEGERS_VNNI = _integers("vnni", 16, (6, 2), (1, 4), rates=(3.0, 1.7))

# one instruction for four products of u8 and s8: CPUs from 2019 (Ice Lake) and 2022 (Zen 4) on
X86_V4_VNNI = _with_dots(
    replace(X86_V4, description="x86-64 with AVX-512"), "x86-64-v4-vnni",
    "and VNNI (8-bit dot products)",
    byte_dots("vnni", 16, (7, 4), (6, 4), (13, 2), (12, 2), (1, 4), signed=MOVED) + _INTEGERS_VNNI,
    ("-march=x86-64-v4", "-mavx512vnni"), "__AVX512VNNI__", ("avx512vnni",))
X86_V4_VNNI = replace(X86_V4_VNNI, ukernels=(*X86_V4_VNNI.ukernels, dot_digits("vnni", 8)))

# one instruction for two products of bf16: CPUs of 2020 (Cooper Lake) and 2022 (Zen 4), all of
# which have the one for bytes
X86_V4_BF16 = _with_dots(
    replace(X86_V4_VNNI, machine=replace(X86_V4.machine, tuning=Tuning(narrow_rate=2.0))),
    "x86-64-v4-bf16", "and products of bf16",
    _pairs("avx512bf16", 16, (6, 4), (7, 4), (8, 3), (12, 2), (13, 2), (14, 2), (1, 4)),
    (*X86_V4_VNNI.cflags, "-mavx512bf16"), "__AVX512BF16__", ("avx512bf16",))

# on Zen 4 at twice the rate of f32; on Xeons at half of it, although they have the flag
X86_V4_BF16 = replace(X86_V4_BF16, makers=("AuthenticAMD",))

# tiles of 16 rows of 64 bytes, multiplied by an instruction: Xeons of 2023 (Sapphire Rapids) and
# later.  One core does 240 GFLOP/s of f32, of bf16 on tiles 3700 at most, these rows
# 1100 to 1300, of bytes assumed twice as many; two products a lane (vdpbf16ps) are half as fast as
# f32 there, so that M = 1 has its rows in f32 lanes.
_ON_TILES = (*(dot_tiles("amx", m, BF16_PRODUCT) for m in (64, 32, 16)),
             *(dot_tiles("amx", m, d, rate=10.0) for d in (BYTES, SIGNED_BYTES)
               for m in (64, 32, 16)))
X86_V4_AMX = _with_dots(
    replace(X86_V4, machine=replace(_machine(210e9, l2=2 * _MIB, l3=64 * _MIB),
                                    tuning=Tuning(narrow_rate=5.0))),
    "x86-64-v4-amx", "and matrix tiles of bf16 and bytes",
    (*_ON_TILES, dot_pairs("amx", 16, 1, 4, rate=1.0), *byte_dots("amx", 16, (1, 4), signed=MOVED),
     *_INTEGERS_VNNI),
    (*X86_V4_BF16.cflags, "-mamx-tile", "-mamx-bf16", "-mamx-int8"),
    "__AVX512BF16__", ("avx512vnni", "avx512bf16", "amx_tile", "amx_bf16", "amx_int8"))
X86_V4_AMX = replace(X86_V4_AMX, ukernels=(*X86_V4_AMX.ukernels, dot_digits("vnni", 8)),
                     requires=f"{X86_V4_AMX.requires} && (defined(__AMX_TILE__) || "
                     "defined(AOTC_TILES_IN_C))")

# every CPU runs the widest it can; decisions that are not taken per variant are those of the widest
X86 = replace(X86_V4, name="x86-64", description="AVX-512, AVX2 and SSE2 in one bundle, chosen at "
              "run time; VNNI and AMX too for 8-bit models", cross=_X86_CROSS,
              variants=(X86_V4_AMX, X86_V4_BF16, X86_V4_VNNI, X86_V4, X86_V3, X86_V1))

AARCH64 = Target(
    "aarch64", "64-bit Arm with NEON", 4, (), "c", _machine(32e9),
    tuple(contraction("neon", 4, m, n) for m, n in ((8, 2), (5, 4), (4, 4), (1, 4), (1, 1)))
    + byte_dots("neon", 4, (6, 2), (1, 2)) + _pairs("neon", 4, (8, 2), (5, 3), (1, 4))
    + widened_groups("neon", 4, (4, 2), (1, 4)) + lane_nests("neon"),
    "defined(__aarch64__)", (), "aarch64",
    cross=_AARCH64_CROSS, **_HALVES)

# Android's libraries are position-independent, as all of ours; on devices with pages of 16 KB (from
# version 15 on) they load only if their parts lie at multiples of that.  From version 9 on, the
# first with aligned_alloc.
AARCH64_ANDROID = replace(
    AARCH64, name="aarch64-android", description="64-bit Arm with NEON under Android, by the NDK",
    cross=Cross(("aarch64-linux-android28-clang", "clang"), (), (), (),
                ("--target=aarch64-linux-android28",)),
    link=("-Wl,-z,max-page-size=16384",))

# one instruction for four products of s8: Armv8.2 and later, as Cortex-A55 and -A76, Apple A11.
# 16 registers of sums, 4 of the columns' own sums, 4 of columns.
AARCH64_DOT = _with_dots(
    AARCH64, "aarch64-dotprod", "and 8-bit dot products",
    byte_dots("sdot", 4, (4, 4), (1, 4), unsigned=MOVED), ("-march=armv8.2-a+dotprod",),
    "__ARM_FEATURE_DOTPROD", ("asimddp",))

# of u8 and s8 one instruction for blocks of 2x2 sums of eight products, and for a single row one
# for four: Armv8.6, as Neoverse V1 and N2, Cortex-A510 and -A710.  Cores start as many of the first
# as of the second, which has half the products; less is assumed, since columns are interleaved.
_ON_BLOCKS = tuple(dot_byte_blocks("mmla", 4, m, n, rows, 6.0)
                   for rows in ("u8", "i8") for m, n in ((8, 2), (4, 4)))
AARCH64_I8MM = _with_dots(
    AARCH64, "aarch64-i8mm", "and 8-bit dot products of u8 and s8",
    (*_ON_BLOCKS, *byte_dots("usdot", 4, (1, 4))), ("-march=armv8.2-a+i8mm+dotprod",),
    "__ARM_FEATURE_MATMUL_INT8", ("asimddp", "i8mm"))

# one instruction for blocks of 2x2 sums of four products of bf16, one for two products a lane (a
# single row), and that one: Armv8.6, the same cores
AARCH64_BF16 = _with_dots(
    replace(AARCH64_I8MM, machine=replace(AARCH64.machine, tuning=Tuning(narrow_rate=2.0))),
    "aarch64-bf16", "and of bf16", (dot_blocks("bfmmla", 4, 8, 2), dot_blocks("bfmmla", 4, 4, 4),
                       *_pairs("bfdot", 4, (1, 4))),
    ("-march=armv8.2-a+i8mm+dotprod+bf16",), "__ARM_FEATURE_BF16_VECTOR_ARITHMETIC", ("bf16",))
