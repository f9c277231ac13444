"""What one cluster of cores offers to the deciders of instances, read off a Machine."""

from dataclasses import dataclass

from aotc.target.base import Memory


@dataclass(frozen=True)
class ComputeUnit:
    """One kind of compute unit, of which every core has one: ``flops`` per second, for computes of
    the categories ``kinds`` (none: for all that no other engine is for)."""

    name: str
    flops: float
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cluster:
    """near: a core's own memory.  outer: the memories further out, the next one first.  cores: of
    one cluster.  clusters: that share what no cluster has alone.  movers: engines that move data
    from one memory to the next one in, the outermost first.  reserve: bytes of a core's memory
    that are held back for slots of weights and a stack.  slots: weights of how many layers have
    a place in each memory at once.  launch: seconds that starting an instance takes."""

    near: Memory
    outer: tuple[Memory, ...]
    cores: int
    clusters: int
    units: tuple[ComputeUnit, ...]
    movers: tuple[str, ...]
    reserve: int = 0
    slots: int = 2
    launch: float = 0.0

    @property
    def budget(self) -> int:
        """Bytes of the cores' memories together that tensors may fill."""
        return self.cores * (int(self.near.capacity * self.near.usable) - self.reserve)

    @property
    def memories(self) -> tuple[Memory, ...]:
        """All of them, the cores' own first."""
        return (self.near, *self.outer)

    def capacity(self, level: int) -> int:
        """Bytes that one cluster may fill of memory ``level`` (0: the cores' own)."""
        if level == 0:
            return self.budget
        memory = self.outer[level - 1]
        shared = self.clusters if memory.scope in ("device", "host") else 1
        return int(memory.capacity * memory.usable) // shared

    def bandwidth(self, level: int) -> float:
        """Bytes per second that one cluster gets of memory ``level``, all clusters at work."""
        memory = self.memories[level]
        if level == 0:
            return memory.bandwidth * self.cores
        return memory.bandwidth / (self.clusters if memory.scope in ("device", "host") else 1)

    def moving(self, level: int, size: float) -> float:
        """Seconds that moving ``size`` bytes between memory ``level`` and the next one in takes, in
        tiles of which two fill the cores' own memories."""
        tiles = max(1, -(-int(size) // (self.budget // 2)))
        return self.memories[level].latency * tiles + self.busy(level, size)

    def busy(self, level: int, size: float) -> float:
        """Seconds of them that the engine is busy, where others wait for the first bytes."""
        return size / self.bandwidth(level)

    def unit(self, kind: str) -> ComputeUnit:
        """The engine for computes of a category."""
        for e in self.units:
            if kind in e.kinds:
                return e
        return next(e for e in self.units if not e.kinds)

    def computing(self, kind: str, flops: float, size: float, cores: int | None = None) -> float:
        """Seconds that ``flops`` operations that touch ``size`` bytes of the cores' own memories
        take on so many of the cores (None: all)."""
        n = self.cores if cores is None else cores
        return max(flops / self.unit(kind).flops, size / self.near.bandwidth) / n
