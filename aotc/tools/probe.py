"""``aotc targets --probe``: this machine's parameters, measured in a few seconds.

Peak arithmetic and the read bandwidth of every level come from a small C program
(``runtime_c/aotc_peak.c``), sizes of caches from the operating system; the rest stays as the
target's preset has it.  What workers share is read by all of them at once.
"""

import ctypes
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

from aotc.errors import ToolchainError
from aotc.installed import runtime_c
from aotc.ir.category import BF16_PRODUCT
from aotc.runtime.compile_bundle import find_compiler
from aotc.runtime.processors import stay_on, usable_processors
from aotc.target.base import Memory, Target
from aotc.target.micro_kernels import TILES

CACHES = "/sys/devices/system/cpu/cpu0/cache"
MEMORY_BYTES = 256 << 20  # more than any cache: what is read comes from memory
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def probe(target: Target) -> Target:
    """The target with its machine measured.  ToolchainError if the C program does not compile."""
    machine, cpus = target.machine, usable_processors()
    sizes = cache_sizes(CACHES)
    memories = [replace(x, capacity=sizes.get(x.name, x.capacity)) for x in machine.memories]
    with tempfile.TemporaryDirectory() as folder:
        read, flops, pairs = peak_functions(target, folder)
        for i, x in enumerate(memories[:machine.position(machine.registers.name)]):
            readers = cpus if x.shared else cpus[:1]
            rate = measure_together(read, block_bytes(memories, i, len(readers)), readers)
            memories[i] = replace(x, bandwidth=rate if rate > 0 else x.bandwidth)
        peak = flops()
        tuning = machine.tuning if pairs is None else replace(
            machine.tuning, narrow_rate=round(pairs() / peak, 2))
    return replace(target, machine=replace(machine, memories=tuple(memories), flops=peak,
                                           workers=len(cpus), tuning=tuning))


def block_bytes(memories: Sequence[Memory], i: int, readers: int) -> int:
    """Bytes that each of ``readers`` reads to measure ``memories[i]``: together half of its
    capacity (outermost: MEMORY_BYTES), but more than the next memory of each holds."""
    total = MEMORY_BYTES if i == 0 else memories[i].capacity // 2
    nearer = memories[i + 1]
    held = nearer.capacity // readers if nearer.shared else nearer.capacity
    return max(total // readers, 2 * held)


def measure_together(read: Callable[[int], float], block: int, cpus: Sequence[int]) -> float:
    """Bytes per second of one thread on each of ``cpus``, all reading a block of their own at the
    same time; 0 if one of them found no memory."""
    start = Barrier(len(cpus), timeout=60)

    def one(cpu: int) -> float:
        stay_on([cpu])  # of this thread alone
        start.wait()
        return read(block)

    with ThreadPoolExecutor(len(cpus)) as pool:
        rates = list(pool.map(one, cpus))
    return sum(rates) if all(rates) else 0.0


def cache_sizes(folder: str | Path) -> dict[str, int]:
    """{"L1": bytes, ...} of the first CPU's data caches, as far as the system tells."""
    out = {}
    for index in sorted(Path(folder).glob("index*")):
        try:
            kind, level, size = ((index / n).read_text().strip()
                                 for n in ("type", "level", "size"))
        except OSError:
            continue  # an entry without these files is no cache
        if kind in ("Data", "Unified") and size[:-1].isdigit() and size[-1] in UNITS:
            out[f"L{level}"] = int(size[:-1]) * UNITS[size[-1]]
    return out


def peak_functions(target: Target, folder: str | Path) -> tuple[
        Callable[[int], float], Callable[[], float], Callable[[], float] | None]:
    """(bytes -> bytes per second read, () -> flops per second, the same of pairs of bf16 where the
    target's rows multiply those in lanes), from a small C program with the instructions of
    ``target``, compiled into ``folder``.  ToolchainError if that fails."""
    rows = [u for u in target.rows("dot") if u.takes(BF16_PRODUCT)]
    pairs = bool(rows) and all(u.template != TILES for u in rows)
    library = Path(folder) / "peak.so"
    command = [*find_compiler(), "-std=c11", "-O2", "-fPIC", "-shared", *target.cflags,
               f"-DAOTC_LANES={target.lanes}", *["-DAOTC_PEAK_PAIRS"] * pairs,
               f"-I{runtime_c() / 'bf16'}", str(runtime_c() / "aotc_peak.c"), "-o", str(library),
               "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise ToolchainError(f"aotc_peak.c does not compile: {done.stderr[:500]}")
    loaded = ctypes.CDLL(str(library))
    loaded.aotc_peak_flops.restype = loaded.aotc_peak_read.restype = ctypes.c_double
    if pairs:
        loaded.aotc_peak_pairs.restype = ctypes.c_double
    loaded.aotc_peak_read.argtypes = [ctypes.c_size_t]
    return (loaded.aotc_peak_read, loaded.aotc_peak_flops,
            loaded.aotc_peak_pairs if pairs else None)


__all__ = ["block_bytes", "cache_sizes", "peak_functions", "probe", "measure_together"]
