"""``aotc targets --probe``: this machine's parameters, measured in a few seconds.

Peak arithmetic and the read bandwidth of every level come from a small C program
(``runtime_c/aotc_peak.c``), sizes of caches from the operating system; the rest stays as the
target's preset has it.
"""

import ctypes
import os
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from aotc.emit.bundle import runtime_c
from aotc.errors import ToolchainError
from aotc.runtime.build import find_compiler

CACHES = "/sys/devices/system/cpu/cpu0/cache"
MEMORY_BYTES = 256 << 20  # more than any cache: what is read comes from memory
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def probe(target):
    """The target with its machine measured.  ToolchainError if the C program does not compile."""
    machine = target.machine
    sizes = cache_sizes(CACHES)
    with tempfile.TemporaryDirectory() as folder:
        read, flops = peak_functions(target, folder)
        levels = [replace(x, capacity=sizes.get(x.name, x.capacity)) for x in machine.levels]
        for i, x in enumerate(levels[:-1]):
            block = MEMORY_BYTES if i == 0 else x.capacity // 2
            rate = read(block)
            levels[i] = replace(x, bandwidth=rate if rate > 0 else x.bandwidth)
        peak = flops()
    return replace(target, machine=replace(machine, levels=tuple(levels), flops=peak,
                                           workers=len(os.sched_getaffinity(0))))


def cache_sizes(folder):
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


def peak_functions(target, folder):
    """(bytes -> bytes per second read, () -> flops per second), from a small C program with the
    instructions of ``target``, compiled into ``folder``.  ToolchainError if that fails."""
    library = Path(folder) / "peak.so"
    command = [*find_compiler(), "-std=c11", "-O2", "-fPIC", "-shared", *target.cflags,
               f"-DAOTC_LANES={target.lanes}", str(runtime_c() / "aotc_peak.c"), "-o",
               str(library), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise ToolchainError(f"aotc_peak.c does not compile: {done.stderr[:500]}")
    loaded = ctypes.CDLL(str(library))
    loaded.aotc_peak_flops.restype = loaded.aotc_peak_read.restype = ctypes.c_double
    loaded.aotc_peak_read.argtypes = [ctypes.c_size_t]
    return loaded.aotc_peak_read, loaded.aotc_peak_flops


__all__ = ["cache_sizes", "peak_functions", "probe"]
