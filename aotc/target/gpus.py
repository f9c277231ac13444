"""GPUs by name: what one of them has beyond its instruction set.

Figures of compute capabilities are those of NVIDIA's tables (CUDA programming guide, "compute
capabilities"; blocks of a multiprocessor also ``cuda_occupancy.h``); of products those of data
sheets: multiprocessors, f32 flop/s at boost, L2, dense rates of tensor cores.
"""

from dataclasses import dataclass

from aotc.target.base import Machine, Memory
from aotc.target.tuning import Tuning

_KIB, _MIB, _TERA = 1 << 10, 1 << 20, 1e12
_LAUNCH = 3.5e-6  # seconds of a stream's smallest kernel and to the next: measured on an H100
_THREADS = 256  # of a block, unless a row or a Schedule says otherwise
_COPIED = 0.9  # of the DRAM's rate in data sheets that copies reach: measured on H100 and H200


@dataclass(frozen=True)
class _Capability:
    """What GPUs of one compute capability have alike: KiB of shared memory of one block, and of a
    multiprocessor; threads and blocks that a multiprocessor holds."""

    block_kib: int
    shared_kib: int
    threads: int
    blocks: int


_CAPABILITIES = {80: _Capability(163, 164, 2048, 32), 86: _Capability(99, 100, 1536, 16),
                 87: _Capability(163, 164, 1536, 16), 89: _Capability(99, 100, 1536, 24),
                 90: _Capability(227, 228, 2048, 32), 120: _Capability(99, 100, 1536, 24)}


@dataclass(frozen=True)
class Gpu:
    """One kind of GPU: what it is ``about``, its compute ``capability`` (90: 9.0), its Machine."""

    about: str
    capability: int
    machine: Machine


def make_machine(capability: int, workers: int, flops: float, copied: float, l2: int,
                 f16: float, i8: float) -> Machine:
    """Machine of a GPU of a capability: multiprocessors, f32 flop/s of all of them, bytes/s that
    copies in DRAM reach, bytes of L2; products of f16 with sums in f32, and of bytes, in the time
    of one in f32."""
    has = _CAPABILITIES[capability]
    memories = (Memory("DRAM", 1 << 62, copied, "device", transaction=32),
                Memory("L2", l2, 3 * copied, "device", transaction=32),
                Memory("shared", has.block_kib * _KIB, 120e9, "core", kind="managed"),
                Memory("register", 256 * _KIB, 1e12, "thread", kind="managed"))
    tuning = Tuning(
        walk_states=1000, worker_threads=has.threads, worker_blocks=has.blocks,
        worker_shared=has.shared_kib * _KIB,
        unit_rate={"f16": f16, "bf16": f16, "tf32": f16 / 2, "u8": i8, "i8": i8})
    return Machine(memories, scratch="shared", workers=workers, flops=flops / workers,
                   grain_flops=1, items=1 << 20, item_points=4096, row_points=1024, item_tiles=1,
                   in_order=False, threads=_THREADS, threads_max=1024, launch=_LAUNCH,
                   tuning=tuning)


# GeForce: half of the rate where sums are f32.  Hopper by mma.sync: assumed, 0.62 of what it does
# by instructions that only its own code has
GPUS = {
    "a100": Gpu("A100 80 GB (SXM)", 80, make_machine(
        80, 108, 19.5 * _TERA, _COPIED * 2.04 * _TERA, 40 * _MIB, 16.0, 32.0)),
    "a10": Gpu("A10", 86, make_machine(
        86, 72, 31.2 * _TERA, _COPIED * 0.60 * _TERA, 6 * _MIB, 4.0, 8.0)),
    "orin": Gpu("Jetson AGX Orin 64 GB", 87, make_machine(
        87, 16, 5.3 * _TERA, _COPIED * 0.205 * _TERA, 4 * _MIB, 8.0, 16.0)),
    "l4": Gpu("L4", 89, make_machine(
        89, 58, 30.3 * _TERA, _COPIED * 0.30 * _TERA, 48 * _MIB, 4.0, 8.0)),
    "rtx4090": Gpu("GeForce RTX 4090", 89, make_machine(
        89, 128, 82.6 * _TERA, _COPIED * 1.01 * _TERA, 72 * _MIB, 2.0, 8.0)),
    "h100": Gpu("H100 80 GB (SXM)", 90, make_machine(
        90, 132, 60 * _TERA, 3.0 * _TERA, 50 * _MIB, 9.0, 18.0)),
    "h200": Gpu("H200 (SXM)", 90, make_machine(
        90, 132, 60 * _TERA, 4.3 * _TERA, 50 * _MIB, 9.0, 18.0)),
    "rtx5090": Gpu("GeForce RTX 5090", 120, make_machine(
        120, 170, 104.8 * _TERA, _COPIED * 1.79 * _TERA, 96 * _MIB, 2.0, 8.0)),
}


def block_bytes(arch: str) -> int:
    """Bytes of shared memory that one block may have on a GPU of architecture ``arch`` ("sm_90"),
    or on the one that has most, if it is none of these."""
    most = {f"sm_{c}": has.block_kib * _KIB for c, has in _CAPABILITIES.items()}
    return most.get(arch, max(most.values()))


__all__ = ["GPUS", "Gpu", "block_bytes", "make_machine"]
