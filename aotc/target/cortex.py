"""Microcontrollers: Cortex-M cores, rows of a table.

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


_SHIFT = 6  # the emulator's instructions take 2^6 ns each


def _cross(board: Board, cflags: Words) -> Cross:
    places = {f"{name}_{what}": value for name in ("code", "data", "heap")
              for what, value in zip(("origin", "bytes"), getattr(board, name))}
    symbols = {**places, "board_hz": board.hertz, "board_shift": _SHIFT}
    return Cross(
        ("arm-none-eabi-gcc",), tuple(f"-Wl,--defsym={n}={v:#x}" for n, v in symbols.items()),
        ("qemu-system-arm", "-M", board.machine, "-icount", f"shift={_SHIFT}", "-display", "none",
         "-serial", "none", "-monitor", "none", "-semihosting-config", "enable=on,target=native",
         "-kernel"),
        ("gcc-arm-none-eabi", "qemu-system-arm"), ("-mthumb", *cflags))


def _mps2(machine: str, heap: int = 0x21000000) -> Board:
    return Board(machine, 25_000_000, (0, 4 * _MIB), (0x20000000, 4 * _MIB), (heap, 16 * _MIB))


# Assumed: one worker, which waits for its loads: what lies near it is memory of one kind.  Flops
# are those of a core at 100 MHz with one multiply-add in three cycles.
_MACHINE = Machine((Memory("DRAM", 1 << 62, 100e6, "host"),
                    Memory("L2", 64 * _KIB, 200e6, "core", 0.75),
                    Memory("L1", 16 * _KIB, 400e6, "core", 0.75),
                    Memory("register", 64, 1e12, "thread", kind="managed")),
                   workers=1, flops=66e6, grain_flops=1 << 40, launch=1e-6, step=3e-7,
                   fork_join=0.0, scratch="L2")


def _rows(suffix: str, dots: tuple[tuple[int, int], ...]) -> tuple[KernelRow, ...]:
    return (contraction(suffix, 1, 4, 4), contraction(suffix, 1, 1, 8),
            *(dot(suffix, 1, m, n, rows=a) for a in ("u8", "i8") for m, n in dots),
            *(replace(u, scalar=True) if isinstance(u, NestRow) and u.category in LANE_NESTS else u
              for u in nests(suffix, tuple(DTYPES))), transform(suffix, ("f32", "bf16")))


def _cortex(name: str, words: str, board: Board, cflags: Words, rows: tuple[KernelRow, ...],
            requires: str) -> Target:
    return Target(f"cortex-{name}", words, 1, (), "c", _MACHINE, rows, requires, (), "arm-m",
                  cross=_cross(board, cflags), vectors=VectorFacts(tiles=False),
                  board="cortex_m", fixed_point=True, index_bits=32)


CORTEX_M4 = _cortex(
    "m4", "Cortex-M4 with FPU: products of two pairs of 16 bits by an instruction",
    _mps2("mps2-an386"), ("-mcpu=cortex-m4", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"),
    _rows("dsp", ((2, 4), (1, 4))), "defined(__ARM_FEATURE_DSP)")

CORTEX = (CORTEX_M4,)
