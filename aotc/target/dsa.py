"""The scratchpad accelerator: clusters of cores with a local buffer each, DDR behind DMA engines.

Every figure of a device is a parameter here.  Those of ``dsa:stcp920`` that GraphTurbo's paper does
not publish are assumed and marked so (docs/dsa.md).
"""

from dataclasses import dataclass

from aotc.target.base import Engine, Machine, Memory, Target, Unit, VectorFacts
from aotc.target.micro_kernels import nests, unit_product

_KIB, _MIB, _GB = 1 << 10, 1 << 20, 1e9
MATRIX = "matrix"  # the unit that multiplies tiles


@dataclass(frozen=True)
class Device:
    """One accelerator: ``clusters`` of ``cores``; bytes of a core's local buffer (LB) and of a
    cluster's global buffer (GB); bytes/s of DDR for all clusters; what follows is assumed: of the
    buffers for one core, seconds until a copy's first byte arrives, flop/s of a core's vectors, the
    share of LB that tiles may fill (the stack has the rest), seconds from one kernel to the next,
    the part of a copy's latency that one from or to GB has, f32 lanes of a vector, rows and columns
    of the matrix engine's tile, its flop/s in those of the vectors."""

    clusters: int
    cores: int
    local: int
    cluster: int
    ddr: float
    cluster_rate: float
    local_rate: float
    latency: float
    flops: float
    usable: float = 0.9375
    launch: float = 2e-6
    near_latency: float = 0.1
    lanes: int = 4
    tile: tuple[int, int] = (16, 16)
    matrix_rate: float = 8.0


def _machine(of: Device) -> Machine:
    """The machine of a device.  A core's DMA engines copy between DDR or the GB of its cluster and
    its LB, one of each cluster from DDR to its GB."""
    workers = of.clusters * of.cores
    near = of.latency * of.near_latency
    return Machine(
        (Memory("DDR", 1 << 62, of.ddr, "device", latency=of.latency, transaction=64),
         Memory("LB", of.local, of.local_rate, "core", of.usable, kind="managed"),
         Memory("register", 4 * _KIB, 1e12, "thread", kind="managed")),
        scratch="LB", workers=workers, flops=of.flops, grain_flops=1, items=8 * workers,
        item_points=4096, row_points=1024, item_tiles=1, in_order=False, launch=of.launch,
        engines=(Engine("load", "DDR", "LB", of.ddr / workers, of.latency),
                 Engine("store", "LB", "DDR", of.ddr / workers, of.latency),
                 Engine("fetch", "GB", "LB", of.cluster_rate, near),
                 Engine("keep", "LB", "GB", of.cluster_rate, near),
                 Engine("bring", "DDR", "GB", of.ddr / of.clusters, of.latency)),
        clusters=of.clusters,
        stores=(Memory("GB", of.cluster, of.cluster_rate * of.cores, "cluster", latency=near,
                       kind="managed"),),
        units=(Unit(MATRIX, "LB", of.matrix_rate * of.flops, *of.tile),))


# published: 4 clusters of 8 cores, LB 64 KB, GB 8 MB, DDR 136 GB/s; assumed: GB 64 GB/s and LB 128
# GB/s for each core, 1 us until a copy begins, vectors of 4 lanes and 64 GFLOP/s of a core, a
# matrix engine of 16 x 16 sums and 8 times their rate
STCP920_DEVICE = Device(4, 8, 64 * _KIB, 8 * _MIB, 136 * _GB, cluster_rate=64 * _GB,
                        local_rate=128 * _GB, latency=1e-6, flops=64e9)


def _target(name: str, description: str, of: Device) -> Target:
    """The target of a device: its matrix engine, vector loop nests, and plain loops of a core."""
    machine = _machine(of)
    rows = (unit_product(MATRIX, of.lanes, *of.tile, of.matrix_rate, machine.scratch),
            *nests("vector", ("f32", "f16")))
    return Target(name, description, of.lanes, (), "c", machine, rows, emitter="dsa",
                  vectors=VectorFacts(prefetches=False, tiles=False, runs=True), halves=True,
                  timed="")


STCP920 = _target("dsa:stcp920", "scratchpad accelerator of 4 clusters x 8 cores, simulated",
                  STCP920_DEVICE)

DEVICES = {STCP920.name: STCP920_DEVICE}

__all__ = ["DEVICES", "MATRIX", "STCP920", "Device"]
