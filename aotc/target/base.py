"""What a target is: facts only.  One file per target fills these in."""

from dataclasses import dataclass, field
from typing import Any

from aotc.target.tuning import Tuning

Words = tuple[str, ...]  # of a command line, or flags


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
class Ukernel:
    """One micro-kernel row: its category, element types, register tile and template.

    Every row has a slow twin (the ``loops`` row computes the same stage), is tested against it,
    and is what a Schedule names.  template: "" for an instruction of a unit beside the vectors.
    """

    name: str
    category: str
    dtypes: tuple[str, ...]
    template: str
    tile: dict[str, Any] = field(default_factory=dict, hash=False)


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
    first few; what lies otherwise is reached one by one."""

    fixed: bool = True
    groups: tuple[int, ...] = (1,)
    usual: int = 0
    prefetches: bool = True
    registers: int = 0
    tiles: bool = True
    runs: bool = False


@dataclass(frozen=True)
class Target:
    """A target by name: ``lanes`` f32 values per vector, C compiler flags (the bundle's Makefile
    repeats them), the template folder, machine model and micro-kernel rows.  ``requires`` is the
    preprocessor condition under which the sources are valid, ``cpu_flags`` what the CPU must
    report, ``arch`` the machine they are for ("" = any), ``cross`` what other machines need for it.
    ``makers``: of CPUs on which its instructions are known to pay, () for all: a bundle for several
    runs its next set of kernels on others.  ``variants``: a target that stands for several, the
    widest first.  ``emitter``: which of the emitters writes its kernels and bundle: "c", "dsa"
    (cores with memory of their own), or "simt" (threads in blocks).  ``lane_steps``: strides
    between lanes at which a load costs little more than one of neighbours.  ``part_loads``: a load
    may take any run of lanes: a window over lanes stays in vectors at the padding.  ``halves``:
    instructions convert f16, so that products can read it.  ``vectors``: facts of its vectors."""

    name: str
    description: str
    lanes: int
    cflags: Words
    folder: str
    machine: Machine
    ukernels: tuple[Ukernel, ...]
    requires: str = ""
    cpu_flags: Words = ()
    arch: str = ""
    variants: tuple["Target", ...] = ()
    cross: Cross | None = None
    emitter: str = "c"
    lane_steps: tuple[int, ...] = (1,)
    part_loads: bool = False
    halves: bool = False
    vectors: VectorFacts = VectorFacts()
    makers: Words = ()

    @property
    def tuning(self) -> Tuning:
        """What was fitted to the target's machine."""
        return self.machine.tuning

    @property
    def library(self) -> bool:
        """True if it has the library kernels, which are C."""
        return self.emitter != "simt"

    @property
    def units(self) -> tuple[Ukernel, ...]:
        """Rows of products on units beside the vectors."""
        return tuple(u for u in self.rows("contraction") if "unit" in u.tile)

    def row(self, name: str) -> Ukernel:
        """The row of that name; KeyError if the target has none."""
        for u in self.ukernels:
            if u.name == name:
                return u
        raise KeyError(name)

    def rows(self, category: str) -> tuple[Ukernel, ...]:
        return tuple(u for u in self.ukernels if u.category == category)


F32 = ("f32", "f32", "f32")
WINDOW_BLOCK = 4  # neighbouring outputs of a sliding window computed together, sharing loads


def contraction(suffix: str, lanes: int, mr: int, nv: int, **more: float) -> Ukernel:
    """Contraction row: an MR x (NV*lanes) register tile over full K.  more: of its ``tile``."""
    nr = nv * lanes
    return Ukernel(f"contraction_f32_{mr}x{nr}__{suffix}", "contraction", F32,
                   "contraction.c.j2", {"mr": mr, "nv": nv, "nr": nr, **more})


def unit_product(suffix: str, lanes: int, rows: int, columns: int, rate: float,
                 near: str) -> Ukernel:
    """Contraction row of the unit SUFFIX, which multiplies tiles of ROWS x COLUMNS, of f32 or f16,
    by itself.  rate: its flops, in those of the vectors beside it; near: the memory that its
    operands have to be in."""
    return Ukernel(f"contraction_f32_{rows}x{columns}__{suffix}", "contraction", F32, "",
                   {"mr": rows, "nv": columns // lanes, "nr": columns, "rate": rate,
                    "near": near, "unit": suffix})


MOVED = "dot_moved.c.j2"  # the template of 8-bit rows whose instruction takes the other rows


def operands(dtypes: tuple[str, str, str]) -> str:
    """What names say of the operands of narrow products: ``u8s8``, ``s8s8``, ``bf16``."""
    a, b = (d if d == "bf16" else d.replace("i", "s") for d in dtypes[:2])
    return a if a == b == "bf16" else a + b


def dot(suffix: str, lanes: int, mr: int, nv: int, template: str = "dot.c.j2",
        rows: str = "u8", rate: float = 1.0) -> Ukernel:
    """Row of 8-bit products, of ``rows`` u8 or i8: an MR x (NV*lanes) tile of i32 sums over full
    K.  rate: products in the time of one in f32."""
    nr, dtypes = nv * lanes, (rows, "i8", "i32")
    return Ukernel(f"dot_{operands(dtypes)}_{mr}x{nr}__{suffix}", "dot", dtypes, template,
                   {"mr": mr, "nv": nv, "nr": nr, "rate": rate})


def dot_pairs(suffix: str, lanes: int, mr: int, nv: int, **more: float) -> Ukernel:
    """Row of bf16 products, two per lane and step: an MR x (NV*lanes) tile of f32 sums over full
    K.  more: of its ``tile``, as its ``rate`` where that is not ``Tuning.narrow_rate``."""
    nr = nv * lanes
    return Ukernel(f"dot_bf16_{mr}x{nr}__{suffix}", "dot", ("bf16", "bf16", "f32"),
                   "dot_pairs.c.j2", {"mr": mr, "nv": nv, "nr": nr, **more})


def dot_blocks(suffix: str, lanes: int, mr: int, nv: int) -> Ukernel:
    """The same by an instruction for blocks of two rows by two columns, of which a vector of sums
    holds one; MR is even."""
    nr = nv * lanes
    return Ukernel(f"dot_bf16_{mr}x{nr}__{suffix}", "dot", ("bf16", "bf16", "f32"),
                   "dot_blocks.c.j2", {"mr": mr, "nv": nv, "nr": nr})


TILE = 16  # rows of a matrix tile, and columns of one of sums
TILE_STEPS = 8  # steps of 64 bytes of a sum whose part of a panel, 16 KB, stays in the first cache
TILES = "dot_tiles.c.j2"  # the template of rows on matrix tiles


def dot_tiles(suffix: str, mr: int, dtypes: tuple[str, str, str], **more: float) -> Ukernel:
    """Row of products on matrix tiles: MR (one tile, two, or four in slices of the sum) by two
    tiles of sums over full K.  even: so many rows that lie evenly apart need no copy; more: of its
    ``tile``."""
    nr = 2 * TILE
    return Ukernel(f"dot_{operands(dtypes)}_{mr}x{nr}__{suffix}", "dot", dtypes, TILES,
                   {"mr": mr, "nv": nr // TILE, "nr": nr, "load_cost": 4.0 * TILE / mr,
                    "even": TILE, **more})


def dot_grouped(suffix: str, lanes: int, mr: int, nv: int) -> Ukernel:
    """Row of f32 by weights of 8 or 4 bits with a scale per group: an MR x (NV*lanes) tile of f32
    sums over full K, the weights expanded in registers.  expand: multiply-adds that expanding a
    weight takes as long as."""
    nr = nv * lanes
    return Ukernel(f"dot_grouped_{mr}x{nr}__{suffix}", "dot", ("f32", "u8", "f32"),
                   "dot_grouped.c.j2", {"mr": mr, "nv": nv, "nr": nr, "expand": 1.4})


def dot_expanded(suffix: str, lanes: int, mr: int, nv: int) -> Ukernel:
    """The same with the weights of a panel expanded to f32 in scratch, once for all rows of a work
    item, where the micro-kernels of f32 read them."""
    nr = nv * lanes
    return Ukernel(f"dot_expanded_{mr}x{nr}__{suffix}", "dot", ("f32", "u8", "f32"),
                   "contraction.c.j2", {"mr": mr, "nv": nv, "nr": nr, "expand": 3.0,
                                        "expanded": True})


# by the dtype of rows: what the names of their rows say, and multiply-adds that expanding a weight
# for them takes as long as
_INTEGERS = {"u8": ("bytes", 1.0), "i16": ("words", 1.2)}


def dot_integers(suffix: str, lanes: int, mr: int, nv: int, rows: str, rate: float) -> Ukernel:
    """Row of rows of integers, u8 or i16, by grouped weights, summed group by group in integers:
    the weights of a panel are expanded to as many bits in scratch, once for all rows of a work
    item.  rate: products in the time of one in f32."""
    nr, (name, expand) = nv * lanes, _INTEGERS[rows]
    return Ukernel(f"dot_{name}_{mr}x{nr}__{suffix}", "dot", (rows, "u8", "f32"), "dot_bytes.c.j2",
                   {"mr": mr, "nv": nv, "nr": nr, "expand": expand, "expanded": True,
                    "rate": rate})


DIGITS = "dot_digits.c.j2"  # the template of rows that multiply codes by digits of the other factor


def dot_digits(suffix: str, nv: int) -> Ukernel:
    """Row of f32 by grouped weights of 4 bits, for a single row, whose elements become integers of
    three signed bytes group by group: NV vectors of 16 columns.  bits, steps: of weights that it
    takes, and what their groups have to be a multiple of.  An instruction takes four products of
    one of the three bytes."""
    return Ukernel(f"dot_grouped_1x{16 * nv}__{suffix}", "dot", ("f32", "u8", "f32"), DIGITS,
                   {"mr": 1, "nv": nv, "nr": 16 * nv, "bits": 4, "steps": 8, "rate": 4 / 3})


EXCHANGE = 16  # rows and columns of a block that is transposed in registers: a cache line each


def exchange(suffix: str) -> Ukernel:
    """Row of moves that exchange the innermost axis: blocks are transposed in registers."""
    return Ukernel(f"move_f32_exchange__{suffix}", "move", ("f32",), "nest",
                   {"block": EXCHANGE, "exchange": True})


def nests(suffix: str, stored: tuple[str, ...] = ("f32",)) -> tuple[Ukernel, ...]:
    """Rows of the categories that are vector loop nests, and the plain nest that is always
    legal.  stored: dtypes that the vector nests load and store (they compute in f32)."""
    rows = [Ukernel(f"{c}_f32__{suffix}", c, stored, "nest")
            for c in ("map", "move", "reduction", "window")]
    rows.insert(3, Ukernel(f"window_f32_{WINDOW_BLOCK}x__{suffix}", "window", stored, "nest",
                           {"block": WINDOW_BLOCK}))
    return tuple(rows) + (Ukernel("loops", "loops", (), "nest"),)
