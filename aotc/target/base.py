"""What a target is: facts only.  One file per target fills these in."""

from dataclasses import dataclass, field
from typing import Literal, overload

from aotc.ir.library import HOSTED
from aotc.target.kernel_rows import KernelRow, NestRow, ProductRow
from aotc.target.tuning import Tuning

Words = tuple[str, ...]  # of a command line, or flags


TIMED = ("clock", "events", "")  # see ``Target.timed``
SCOPES = ("thread", "core", "cluster", "device", "host")  # who shares a memory, ever more
KINDS = ("cache", "managed")  # hardware fills it, or the program


@dataclass(frozen=True)
class Memory:
    """One memory of a machine: capacity in bytes, bandwidth in bytes/s of one worker (of all of
    them together where ``shared``).

    scope: one of ``SCOPES``, registers are a thread's; usable: the part of the capacity that tiles
    may fill; latency: seconds until the first byte; transaction: bytes that always move together;
    banks: words served at once (0 = no banks); kind: one of ``KINDS``.
    """

    name: str
    capacity: int
    bandwidth: float
    scope: str = "core"
    usable: float = 1.0
    latency: float = 0.0
    transaction: int = 1
    banks: int = 0
    kind: str = "cache"

    @property
    def shared(self) -> bool:
        """True if several workers share it."""
        return self.scope not in ("thread", "core")


@dataclass(frozen=True)
class Engine:
    """What moves data between two memories of a machine while its workers compute: ``bandwidth``
    in bytes/s, ``latency`` in seconds until the first byte."""

    name: str
    source: str
    target: str
    bandwidth: float
    latency: float = 0.0


@dataclass(frozen=True)
class Unit:
    """What computes beside the vectors of each worker, ``rows`` by ``columns`` sums at once: its
    operands lie in ``memory``; ``flops`` a second of tiles that are full."""

    name: str
    memory: str
    flops: float
    rows: int
    columns: int


@dataclass(frozen=True)
class Machine:
    """Memories, outermost first, worker count assumed for splitting, flops of one worker, the
    smallest work item (in flops) worth handing to another worker, and ``launch``, the seconds that
    starting one kernel takes, ``step`` those of one stage of one work item, ``fork_join`` those
    until other workers have taken and ended their work items, beside the items' own.
    overlap: how much of the shorter ones of a kernel's arithmetic and data movement hides behind
    the longest (1 = all).

    scratch: the memory that holds a work item's scratch.  items: work items wanted of a kernel with
    work enough.  item_points: points of one work item of a memory-bound nest.  row_points: points
    of one buffer in a work item of rows, all of whose buffers shall stay beside the registers.
    item_tiles: fewest register tiles of rows in one work item; 1 where a work item is one tile of a
    micro-kernel.  in_order: a worker runs neighbouring work items one after the other.
    threads: of one work item, where they share its scratch (threads_max: at most); 0 where a worker
    is one thread.  tuning: what was fitted to it.  engines: that copy between memories; a work item
    of a machine with some has what it touches copied into its scratch, and back from there.
    clusters: of as many workers each; stores: memories that every cluster has one of, in which
    tensors may be stored beside the outermost; units: of each worker, which waits for them."""

    memories: tuple[Memory, ...]
    workers: int
    flops: float
    grain_flops: int
    launch: float = 0.0
    step: float = 0.0
    fork_join: float = 0.0
    overlap: float = 1.0
    items: int = 8
    item_points: int = 1 << 15
    row_points: int = 1 << 11
    item_tiles: int = 4
    in_order: bool = True
    threads: int = 0
    threads_max: int = 0
    tuning: Tuning = field(default=Tuning(), hash=False)
    engines: tuple[Engine, ...] = ()
    clusters: int = 1
    stores: tuple[Memory, ...] = ()
    units: tuple[Unit, ...] = ()
    scratch: str = field(kw_only=True)

    def engine(self, source: Memory, target: Memory) -> Engine | None:
        """The engine that copies from one memory to another, if there is one."""
        return next((e for e in self.engines if (e.source, e.target) == (
            source.name, target.name)), None)

    @property
    def on_copies(self) -> bool:
        """True if work items compute on copies: engines bring what they touch into scratch, and
        take it back from there."""
        return bool(self.engines)

    @property
    def cores(self) -> int:
        """Workers of a cluster."""
        return self.workers // self.clusters

    def position(self, name: str) -> int:
        """How many memories are further out than the one of that name.  KeyError if there is
        none."""
        for i, x in enumerate(self.memories):
            if x.name == name:
                return i
        raise KeyError(name)

    def store(self, name: str) -> Memory:
        """The memory of that name that tensors may be stored in, "" for the outermost.  KeyError
        if there is none."""
        for x in (self.memory, *self.stores):
            if name in (x.name, "" if x is self.memory else x.name):
                return x
        raise KeyError(name)

    @property
    def memory(self) -> Memory:
        """The memory that holds everything."""
        return self.memories[0]

    @property
    def registers(self) -> Memory:
        """The memory that arithmetic works on: a thread's own, the innermost if several are."""
        return next(x for x in reversed(self.memories) if x.scope == "thread")

    @property
    def near(self) -> Memory:
        """The memory that holds a work item's scratch."""
        return self.memories[self.depth]

    @property
    def depth(self) -> int:
        """Memories that get a tile where a work item's is chosen: all but the one that holds
        everything, down to that of scratch."""
        return self.position(self.scratch)

    def outside(self, memory: Memory) -> Memory:
        """The memory that fills another; what holds everything has none and is its own."""
        return self.memories[max(0, self.position(memory.name) - 1)]

    @property
    def homes(self) -> tuple[Memory, ...]:
        """Memories that scratch may be in, smallest first: that of scratch and those between it and
        the registers, all of which a worker fills with it."""
        last = max(self.position(self.registers.name), self.depth + 1)
        return self.memories[self.depth:last][::-1]

    @property
    def managed(self) -> bool:
        """True if scratch is no cache: what does not fit there has no other place."""
        return self.near.kind == "managed"

    def room(self, memory: Memory) -> float:
        """Bytes of a memory that tiles may fill: of scratch that workers share, a worker's part."""
        parts = self.workers if memory.shared and memory == self.near else 1
        return memory.capacity * memory.usable / parts


@dataclass(frozen=True)
class Cross:
    """How another machine builds and runs code for a target, as the bundle's manifest repeats it.

    cc: C compilers, the first that is installed counts.  ldflags: for a program that the emulator
    can run.  emulator: the command in front of a program, () if there is none that can run it.
    packages: what to install (Debian).  cflags: what makes such a compiler one for this machine.
    vlens: bits of a vector register of the CPUs to emulate, where the emulator's command has a
    place for them, ``{vlen}``.  emulated: flags that code for the emulator needs besides.
    """

    cc: Words
    ldflags: Words
    emulator: Words
    packages: Words
    cflags: Words = ()
    vlens: tuple[int, ...] = ()
    emulated: Words = ()


@dataclass(frozen=True)
class VectorFacts:
    """What the vectors of a target are like.

    fixed: so many lanes as the target says; else the CPU has them, in vector values of a number of
    registers out of ``groups``, widest first, each of ``usual`` lanes on a usual CPU.
    prefetches: there is an instruction for them, and micro-kernels fetch what comes next; else
    their sums start from given values.  registers: of vectors, where a multiply-add can read a
    factor from memory itself (else 0).  tiles: sums of a contraction may be written in place, in
    named vectors.  runs: loads and stores of lanes take runs of neighbours alone, whole or the
    first few; what lies otherwise is reached one by one.  held: registers that the sums of a
    micro-kernel and a value beside them may take, where those are groups."""

    fixed: bool = True
    groups: tuple[int, ...] = (1,)
    usual: int = 0
    prefetches: bool = True
    registers: int = 0
    tiles: bool = True
    runs: bool = False
    held: int = 0

    def sum_groups(self, rows: int) -> tuple[int, ...]:
        """Groups of registers, widest first, that the sums of a micro-kernel of so many rows may
        be: beside all of them there is room for one more."""
        return tuple(g for g in self.groups if g * (rows + 1) <= self.held)


@dataclass(frozen=True)
class Target:
    """A target by name: ``lanes`` f32 values per vector, C compiler flags (the bundle's Makefile
    repeats them), the template folder, machine model and micro-kernel rows.  ``requires`` is when
    the sources are valid (the preprocessor's condition), ``cpu_flags`` what CPUs must report,
    ``arch`` the machine they are for ("" = any), ``cross`` what other machines need for it.
    ``makers``: of CPUs on which its instructions are known to pay, () for all: on others a bundle
    for several runs its next kernels.  ``variants``: a target that stands for several, the widest
    first.  ``emitter``: the emitter of its kernels and bundle: "c", "dsa" (cores with memory of
    their own), or "simt" (threads in blocks).  ``lane_steps``: strides between lanes at which a
    load costs little more than one of neighbours.  ``part_loads``: a load may take any run of
    lanes: windows stay in vectors at the padding.  ``halves``: instructions convert f16 for
    products.  ``aligned``: callers give tensors that begin at a multiple of 16 bytes.  ``vectors``:
    facts of its vectors.  ``library``: kernels of ``ir/library.py`` with a source for it.
    ``timed``: what times a kernel: the "clock" of the calling thread, a device's "events" or "".
    ``dependent_launches``: kernels may start while the one in front runs, and wait for its end.
    ``board``: there is no operating system; the folder of what starts programs on a board with such
    a core.  ``fixed_point``: sums of 8-bit products stay integers, rounded to 8 bits by a
    multiplier and a shift.  ``index_bits``: of indices in kernels whose extents allow it.
    ``link``: flags that shared libraries are linked with.
    ``module``: a bundle is an ES module; its system has no files to map and one thread."""

    name: str
    description: str
    lanes: int
    cflags: Words
    folder: str
    machine: Machine
    ukernels: tuple[KernelRow, ...]
    requires: str = ""
    cpu_flags: Words = ()
    arch: str = ""
    variants: tuple["Target", ...] = ()
    cross: Cross | None = None
    emitter: str = "c"
    lane_steps: tuple[int, ...] = (1,)
    part_loads: bool = False
    halves: bool = False
    aligned: bool = False
    vectors: VectorFacts = VectorFacts()
    makers: Words = ()
    library: Words = HOSTED
    timed: str = TIMED[0]
    dependent_launches: bool = False
    board: str = ""
    fixed_point: bool = False
    index_bits: int = 64
    link: Words = ()
    module: bool = False

    def __post_init__(self) -> None:
        if self.timed not in TIMED:
            raise ValueError(f"target {self.name}: timed {self.timed!r}; one of {TIMED}")
        names = [u.name for u in self.ukernels]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise ValueError(f"target {self.name}: several rows named {', '.join(twice)}")
        for u in (u for u in self.ukernels if isinstance(u, ProductRow)):
            if self.lanes % u.tile.lanes or not u.per_thread and u.tile.lanes != self.lanes:
                raise ValueError(f"target {self.name}: row {u.name} has vectors of {u.tile.lanes} "
                                 f"lanes, the target of {self.lanes}")
            if (u.shared is None) == (self.machine.threads > 0):
                raise ValueError(f"target {self.name}: row {u.name}; threads share a tile "
                                 "(``shared``) where they share work items, and only there")

    @property
    def tuning(self) -> Tuning:
        """What was fitted to the target's machine."""
        return self.machine.tuning

    @property
    def units(self) -> tuple[ProductRow, ...]:
        """Rows of products on units beside the vectors."""
        return tuple(u for u in self.rows("contraction") if u.unit)

    def row(self, name: str) -> KernelRow:
        """The row of that name; KeyError if the target has none."""
        for u in self.ukernels:
            if u.name == name:
                return u
        raise KeyError(name)

    def product_row(self, name: str) -> ProductRow:
        """The row of that name; KeyError if the target has none, or it is one of nests."""
        row = self.row(name)
        if not isinstance(row, ProductRow):
            raise KeyError(name)
        return row

    @overload
    def rows(self, category: Literal["contraction", "dot"]) -> tuple[ProductRow, ...]: ...

    @overload
    def rows(self, category: Literal["map", "move", "reduction", "window", "transform",
                                     "loops"]) -> tuple[NestRow, ...]: ...

    @overload
    def rows(self, category: str) -> tuple[KernelRow, ...]: ...

    def rows(self, category: str) -> tuple[KernelRow, ...]:
        """The rows of a category, in the order of the target's table."""
        return tuple(u for u in self.ukernels if u.category == category)
