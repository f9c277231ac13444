"""Microcontrollers: Cortex-M and 32-bit RISC-V cores, rows of a table.

Bundles for them are built without an operating system and run on boards that an emulator has.  A
core smaller than the board's runs what is compiled for it there all the same: its instructions are
the same ones, and what it lacks is a fault.
"""

from dataclasses import dataclass, replace

from aotc.ir.dtypes import DTYPES
from aotc.target.base import Cross, Machine, Memory, Target, VectorFacts, Words
from aotc.target.kernel_rows import KernelRow, NestRow
from aotc.target.micro_kernels import LANE_NESTS, contraction, dot, nests, transform

_KIB, _MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Board:
    """A machine of the emulator: hertz of its system timer; (origin, bytes) of code, of data and of
    what a test allocates."""

    machine: str
    hertz: int
    code: tuple[int, int]
    data: tuple[int, int]
    heap: tuple[int, int]
    options: Words = ()


_SHIFT = 6  # the emulator's instructions take 2^6 ns each


def _cross(board: Board, emulator: str, cc: str, packages: Words, cflags: Words) -> Cross:
    places = {f"{name}_{what}": value for name in ("code", "data", "heap")
              for what, value in zip(("origin", "bytes"), getattr(board, name))}
    symbols = {**places, "board_hz": board.hertz, "board_shift": _SHIFT}
    return Cross(
        (cc,), tuple(f"-Wl,--defsym={n}={v:#x}" for n, v in symbols.items()),
        (emulator, "-M", board.machine, *board.options, "-icount", f"shift={_SHIFT}", "-display",
         "none", "-serial", "none", "-monitor", "none", "-semihosting-config",
         "enable=on,target=native", "-kernel"), packages, cflags)


def _mps2(machine: str, hertz: int = 25_000_000, heap: int = 0x21000000) -> Board:
    return Board(machine, hertz, (0, 4 * _MIB), (0x20000000, 4 * _MIB), (heap, 16 * _MIB))


# Assumed: one worker, which waits for its loads: what lies near it is memory of one kind.  Flops
# are those of a core at 100 MHz with one multiply-add in three cycles.
_MACHINE = Machine((Memory("DRAM", 1 << 62, 100e6, "host"),
                    Memory("L2", 64 * _KIB, 200e6, "core", 0.75),
                    Memory("L1", 16 * _KIB, 400e6, "core", 0.75),
                    Memory("register", 64, 1e12, "thread", kind="managed")),
                   workers=1, flops=66e6, grain_flops=1 << 40, launch=1e-6, step=3e-7,
                   fork_join=0.0, scratch="L2")


def _rows(suffix: str, dots: tuple[tuple[int, int], ...],
          template: str = "dot.c.j2") -> tuple[KernelRow, ...]:
    return (contraction(suffix, 1, 4, 4), contraction(suffix, 1, 1, 8),
            *(dot(suffix, 1, m, n, template, a) for a in ("u8", "i8") for m, n in dots),
            *(replace(u, scalar=True) if isinstance(u, NestRow) and u.category in LANE_NESTS else u
              for u in nests(suffix, tuple(DTYPES))), transform(suffix, ("f32", "bf16")))


_BY_BYTES = "dot_by_bytes.c.j2"
_FEW = _rows("c", ((2, 1), (1, 2)), _BY_BYTES)  # with eight registers for arithmetic
_PLAIN = _rows("c", ((2, 4), (1, 4)), _BY_BYTES)
_DSP = _rows("dsp", ((2, 4), (1, 4)))  # two products of 16 bits and their sum by an instruction
_SOFT = ("-mfloat-abi=soft",)
_FUSED = "-ffp-contract=fast"  # -std=c11 has gcc multiply and add apart
_M33_BOARD = Board("mps2-an505", 20_000_000, (0x10000000, 4 * _MIB), (0x38000000, 4 * _MIB),
                   (0x80000000, 16 * _MIB))
_M55_BOARD = Board("mps3-an547", 32_000_000, (0, 512 * _KIB), (0x01000000, 2 * _MIB),
                   (0x60000000, 16 * _MIB))

# core, words, board, flags, rows, what the preprocessor says of it
_CORES: tuple[tuple[str, str, Board, Words, tuple[KernelRow, ...], str], ...] = (
    ("m0", "Cortex-M0 and M0+: no FPU, products of 32 bits", _mps2("mps2-an385"), _SOFT, _FEW,
     "defined(__ARM_ARCH_6M__)"),
    ("m3", "Cortex-M3: no FPU", _mps2("mps2-an385"), _SOFT, _PLAIN, "defined(__ARM_ARCH_7M__)"),
    ("m4", "Cortex-M4 with FPU: two products of 16 bits by an instruction", _mps2("mps2-an386"),
     ("-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", _FUSED), _DSP, "defined(__ARM_FEATURE_DSP)"),
    ("m7", "Cortex-M7 with an FPU of doubles, too", _mps2("mps2-an500", heap=0x60000000),
     ("-mfloat-abi=hard", "-mfpu=fpv5-d16", _FUSED), _DSP, "defined(__ARM_FEATURE_DSP)"),
    ("m33", "Cortex-M33 with FPU and DSP instructions", _M33_BOARD,
     ("-mfloat-abi=hard", "-mfpu=fpv5-sp-d16", _FUSED), _DSP, "defined(__ARM_FEATURE_DSP)"),
    ("m55", "Cortex-M55 with FPU and DSP instructions", _M55_BOARD,
     ("-mfloat-abi=hard", _FUSED), _DSP,
     "defined(__ARM_FEATURE_MVE)"))


# name, words, ABI, preprocessor
_HARTS = (
    ("rv32imc", "32-bit RISC-V with products and short instructions, no FPU", "ilp32",
     "__riscv_xlen == 32 && defined(__riscv_mul)"),
    ("rv32imafc", "32-bit RISC-V with an FPU of floats", "ilp32f",
     "__riscv_xlen == 32 && defined(__riscv_flen)"))
_VIRT = Board("virt", 10_000_000, (0x80000000, 4 * _MIB), (0x80400000, 4 * _MIB),
              (0x80800000, 16 * _MIB), ("-bios", "none"))


def _target(name: str, words: str, rows: tuple[KernelRow, ...], requires: str, arch: str,
            cross: Cross, board: str) -> Target:
    return Target(name, words, 1, (), "c", _MACHINE, rows, requires, (), arch, cross=cross,
                  vectors=VectorFacts(tiles=False), board=board, fixed_point=True, index_bits=32)


def _cortex(core: str, words: str, board: Board, cflags: Words, rows: tuple[KernelRow, ...],
            requires: str) -> Target:
    cross = _cross(board, "qemu-system-arm", "arm-none-eabi-gcc",
                   ("gcc-arm-none-eabi", "qemu-system-arm"),
                   ("-mthumb", f"-mcpu=cortex-{core}", *cflags))
    return _target(f"cortex-{core}", words, rows, requires, "arm-m", cross, "cortex_m")


def _hart(name: str, words: str, abi: str, requires: str) -> Target:
    cross = _cross(_VIRT, "qemu-system-riscv32", "riscv64-unknown-elf-gcc",
                   ("gcc-riscv64-unknown-elf", "picolibc-riscv64-unknown-elf",
                    "qemu-system-misc"),
                   ("--specs=picolibc.specs", f"-march={name}", f"-mabi={abi}",
                    *[_FUSED] * (abi != "ilp32")))
    return _target(name, words, _PLAIN, requires, "riscv32", cross, "riscv32")


MICROCONTROLLERS = (*(_cortex(*core) for core in _CORES), *(_hart(*hart) for hart in _HARTS))
