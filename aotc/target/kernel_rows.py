"""Micro-kernel rows: what a target can compute a stage with, one record a row, validated when it is
built.

A row is a nest of loops (``NestRow``) or a register tile of sums of products (``ProductRow``).
Facts that hold for one instruction set stand in the row; facts fitted to a machine are its target's
``Tuning``.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from aotc.ir.category import Dtypes
from aotc.ir.dtypes import DTYPES, ELEMENTS, TF32, is_float, is_int
from aotc.ir.numbers.grouped import Grouping, staged_rows
from aotc.ir.tile_statements import is_narrow

NESTS = ("map", "move", "reduction", "window", "transform", "loops")  # categories that are nests
WAYS = ("copy", "value", "place")  # to a block's memory: without a register between, or through
# one; or not at all: rows that an earlier stage has left there are multiplied where they lie


def _require(holds: bool, row: str, wrong: str) -> None:
    """ValueError that says what is wrong with a row, unless all is well."""
    if not holds:
        raise ValueError(f"row {row or '(no name)'}: {wrong}")


@dataclass(frozen=True)
class KernelRow:
    """What every row has: the ``name`` that a Schedule says, and the ``category`` of the stages
    that it computes (``ir/category.py``).

    Every row has a slow twin (the ``loops`` row computes the same stage) and is tested against it.
    """

    name: str
    category: str

    @property
    def block(self) -> int:
        """Neighbours along a second axis that are computed together: 1, but for some nests."""
        return 1

    @property
    def exchanges(self) -> bool:
        """True for moves that transpose blocks: lanes run along another axis than stores do."""
        return self.category == "move" and self.block > 1

    @property
    def staging(self) -> "Staging | None":
        """How operands come to a block's memory: only products of blocks of threads say it."""
        return None

    @property
    def threads(self) -> int:
        """Threads that a work item must have; 0 where a row takes any number."""
        return 0


@dataclass(frozen=True)
class NestRow(KernelRow):
    """A nest of loops: with lanes along one axis, or the plain one, ``loops``, which is always
    legal.

    stored: dtypes that lanes load and store (they compute in f32); () for plain loops.  scalar:
    lanes are threads, which compute whatever a scalar does, in any dtype.  block: neighbours along
    a second axis that are computed together: outputs of a window, which share loads, or rows and
    columns of a block of a move that are transposed in registers.
    """

    stored: tuple[str, ...] = ()
    block: int = 1
    scalar: bool = False

    def __post_init__(self) -> None:
        _require(bool(self.name), self.name, "a row needs a name")
        _require(self.category in NESTS, self.name,
                 f"category {self.category!r} of a nest; it is one of {', '.join(NESTS)}")
        unknown = [d for d in self.stored if d not in DTYPES]
        _require(not unknown, self.name, f"stores {', '.join(unknown)}, which no buffer has")
        _require(bool(self.stored) == (self.category != "loops"), self.name,
                 "lanes store some dtypes, plain loops say none")
        _require(self.block == 1 or self.block > 1 and self.category in ("window", "move"),
                 self.name, f"block {self.block} of a {self.category}; windows and moves have some")


@dataclass(frozen=True)
class RegisterTile:
    """The sums that stand in registers: ``mr`` rows by ``nv`` vectors of ``lanes`` columns."""

    mr: int
    nv: int
    lanes: int

    def __post_init__(self) -> None:
        _require(min(self.mr, self.nv, self.lanes) >= 1, str(self),
                 "a tile has one row, one vector and one lane at least")

    @property
    def nr(self) -> int:
        """Columns, which is also how wide the panels are."""
        return self.nv * self.lanes

    def __str__(self) -> str:
        return f"{self.mr}x{self.nr}"


@dataclass(frozen=True)
class GroupedWeights:
    """How a row reads weights that have a scale for every group (``ir/numbers/grouped.py``).

    expand: multiply-adds of f32 that it takes as long as to make a factor of a stored weight.
    once: the weights of a panel become factors in scratch, for all rows of a work item; else each
    register tile expands them again.  steps: what the size of groups is a multiple of.  panel:
    columns of a panel, whose bytes threads bring to their block's memory as they lie (0: panels
    are as wide as the register tile).
    """

    expand: float = 0.0
    once: bool = False
    steps: int = 1
    panel: int = 0

    def __post_init__(self) -> None:
        _require(self.expand >= 0 and self.steps >= 1 and self.panel >= 0, "of grouped weights",
                 f"expand {self.expand}, steps {self.steps}, panel {self.panel}; at least 0, 1 and "
                 "0")


@dataclass(frozen=True)
class Staging:
    """How the threads of a block bring operands to its memory, in steps of the sum.

    usual: how many steps are there at a time, the one that is multiplied among them, unless a
    Schedule says another number in ``least`` .. ``most``.  ways: of ``WAYS``, the usual one first.
    pitch: words of 4 bytes from one row of a step of A to the next, and of a step of B.  swizzled:
    the 16 bytes of a row change places, so that the same ones of neighbouring rows lie in other
    banks; rows are then no longer than what is in them.
    """

    usual: int
    least: int
    most: int
    ways: tuple[str, ...]
    pitch: tuple[int, int]
    swizzled: bool = False

    def __post_init__(self) -> None:
        _require(2 <= self.least <= self.usual <= self.most, "with staging",
                 f"{self.usual} steps, out of {self.least} to {self.most}")
        _require(bool(self.ways) and not set(self.ways) - set(WAYS), "with staging",
                 f"ways {self.ways}; some of {', '.join(WAYS)}")
        _require(min(self.pitch) >= 1, "with staging", f"pitch {self.pitch}; at least one word")
        _require(not self.swizzled or all(p >= 4 and p & p - 1 == 0 for p in self.pitch),
                 "with staging", f"pitch {self.pitch}; swizzled rows are powers of two of 16 bytes")


@dataclass(frozen=True)
class SharedTile:
    """How the threads of a block share a register tile.

    steps: of the sum that are multiplied at a time.  threads: that do so.  teams: of threads, which
    share the steps out, each with sums of its own.  thread: rows and columns of the tile in the
    registers of each thread, (0, 0) where a warp holds them together; warp: those of a warp then.
    sum_bytes: of the block's memory in which sums of several threads meet in the end, in the place
    of operands.  staging: None where threads read both operands where they lie.  registers: that a
    thread takes at most (0: as many as leave a worker one block), as the target's compiler counts
    them.  most: rows of the products that it is for (0: any number).  row_bytes: of the block's
    memory for rows of A that lie otherwise.  panels: it pays for constants in panels only.
    """

    steps: int
    threads: int
    teams: int = 1
    thread: tuple[int, int] = (0, 0)
    sum_bytes: int = 0
    staging: Staging | None = None
    warp: tuple[int, int] = (0, 0)
    registers: int = 0
    most: int = 0
    row_bytes: int = 0
    panels: bool = False

    def __post_init__(self) -> None:
        _require(self.registers >= 0, "of a block of threads", f"{self.registers} registers")
        _require(self.steps >= 1 and self.teams >= 1 and self.threads >= self.teams,
                 "of a block of threads", f"{self.steps} steps of the sum by {self.threads} threads"
                 f" in {self.teams} teams")
        _require(self.steps % self.teams == 0, "of a block of threads",
                 f"{self.teams} teams cannot share {self.steps} steps")
        _require(min(self.thread) >= 0 and all(self.thread) == any(self.thread) and (
            self.sum_bytes >= 0), "of a block of threads", f"{self.thread} sums of a thread")
        _require(self.staging is None or any(self.thread) != any(self.warp), "of a block of "
                 "threads", f"{self.thread} sums of a thread, {self.warp} of a warp; one of both")


@dataclass(frozen=True)
class ProductRow(KernelRow):
    """A register tile of sums of products, over the whole sum or a slice of it.

    a, b, sums: element types as they are multiplied and summed; b: those that columns may have,
    i4 and i8 of ``grouped`` weights, whatever bytes hold them.  Operands of a dot lie in memory so;
    those of a contraction are values of f32, and a row of f16 or bf16 rounds them.  template: a
    file of the target's folder, "" for an instruction of a unit, and for plain statements where
    threads read both operands where they lie.  rate: products in the time of one
    of f32 (None: ``Tuning.narrow_rate``).  load_cost: of an element of an operand, in multiply-adds
    (None: ``Tuning.load_cost``).  even_rows: so many rows that lie evenly apart are read where they
    lie, others are copied (0: rows may lie anywhere).  unit, near: the machine's unit that
    multiplies tiles, and the memory that its operands have to be in.  shared: the threads of a
    block have the tile (None: one thread has it).
    """

    a: str
    b: tuple[str, ...]
    sums: str
    tile: RegisterTile
    template: str = ""
    rate: float | None = 1.0
    load_cost: float | None = None
    grouped: GroupedWeights | None = None
    even_rows: int = 0
    unit: str = ""
    near: str = ""
    shared: SharedTile | None = None

    def __post_init__(self) -> None:
        _require(bool(self.name), self.name, "a row needs a name")
        _require(bool(self.b) and all(d in ELEMENTS for d in (self.a, *self.b, self.sums)),
                 self.name, f"multiplies {self.a} by {self.b} to {self.sums}; element types are "
                 f"{', '.join(ELEMENTS)}")
        floats = all(map(is_float, (self.a, *self.b)))
        _require(self.category in ("contraction", "stream") and floats and self.sums == "f32" or (
            self.category == "dot" and all(map(is_narrow, self.products))), self.name,
            f"category {self.category!r}; contractions and streams are of floats summed in f32, "
            "dots of narrower numbers, as they lie in memory")
        _require((self.grouped is None) == (self.sums != "f32" or not any(map(is_int, self.b))),
                 self.name, "integers that are summed in f32 are grouped weights, and only they")
        plain = self.shared is not None and self.shared.staging is None
        _require((bool(self.unit) != bool(self.template) or plain and not self.unit)
                 and bool(self.unit) == bool(self.near), self.name,
                 "it has a template, or a unit and the memory of its operands, or threads that "
                 "read them where they lie")
        _require((self.rate is None or self.rate > 0) and (
            self.load_cost is None or self.load_cost >= 0), self.name,
            f"rate {self.rate}, load_cost {self.load_cost}; neither is negative")
        _require(self.even_rows >= 0, self.name, f"even_rows {self.even_rows}; 0 or more")

    @property
    def products(self) -> tuple[Dtypes, ...]:
        """The types of A, of B and of the sums that it takes together."""
        return tuple(Dtypes(self.a, b, self.sums) for b in self.b)

    def takes(self, dtypes: Dtypes | None, held: Collection[str] = ()) -> bool:
        """True if a product of these types (None: no such product) is one of the row's; held: other
        dtypes that surely hold all elements of A."""
        return dtypes in self.products or dtypes is not None and self.a in held and (
            replace(dtypes, a=self.a) in self.products)

    def serves(self, rows: int) -> bool:
        """True if the row is for products of so many rows: those of one row have rows of their
        own, with a tile of one row."""
        most = 0 if self.shared is None else self.shared.most
        return (self.tile.mr == 1) == (rows == 1) and (not most or rows <= most)

    @property
    def stored(self) -> str:
        """Dtype of the elements of A in memory: a tf32 is stored as f32."""
        return "f32" if self.a == TF32 else self.a

    @property
    def stored_b(self) -> str:
        """The same of B, where threads have brought it to their block's memory."""
        return "u8" if self.in_codes else self.b[0] if is_int(self.sums) else self.stored

    @property
    def in_codes(self) -> bool:
        """True if weights in groups lie in a block's memory as they are stored: whoever multiplies
        them makes factors of them in its registers."""
        return self.grouped is not None and self.grouped.panel > 0

    @property
    def panel(self) -> int:
        """Columns of a panel of constants."""
        return self.grouped.panel if self.grouped is not None and self.in_codes else self.tile.nr

    @property
    def shares_layout(self) -> bool:
        """True if weights lie for it as for all rows of its types, whatever their tiles."""
        return self.by_columns or self.in_codes

    def reads_groups_of(self, size: int, depth: int) -> bool:
        """True if the row reads weights in groups of so many steps of a sum of ``depth``: a step in
        a block's memory has whole groups, or is a part of one."""
        assert self.grouped is not None, self.name
        return not size % self.grouped.steps and not (self.in_codes and depth > size and (
            size % self.steps and self.steps % size))

    @property
    def by_columns(self) -> bool:
        """True if threads read neighbours of the sum of one column of B at a time, from a block's
        memory: a step of B lies by its columns there, and so do weights that are packed while
        compiling, each column's terms side by side."""
        return self.staging is not None and is_int(self.sums)

    @property
    def expands_panels(self) -> bool:
        """True if stored weights become factors once for all rows of a work item, in scratch."""
        return self.grouped is not None and self.grouped.once

    @property
    def in_floats(self) -> bool:
        """True if its register tiles multiply f32 by f32, whatever B is stored as: a contraction,
        or a product of weights that are expanded in scratch, or while they are staged."""
        return self.category == "contraction" or self.a == "f32" and (
            self.expands_panels or self.staging is not None)

    @property
    def steps(self) -> int:
        """Terms of the sum that are multiplied at a time, which the last ones are padded to."""
        return 1 if self.shared is None else self.shared.steps

    @property
    def staging(self) -> Staging | None:
        return None if self.shared is None else self.shared.staging

    @property
    def threads(self) -> int:
        return 0 if self.shared is None else self.shared.threads

    @property
    def step_bytes(self) -> int:
        """Bytes of a block's memory for both operands of one step of ``staging``; 0 without."""
        if self.staging is None:
            return 0
        return self.bytes_of_step(None)

    def bytes_of_step(self, grouping: Grouping | None) -> int:
        """The same of weights in groups, which the row has there as they are stored (None: of a
        byte each, in groups as long as a step)."""
        assert self.staging is not None, self.name
        rows, columns = self.staging.pitch
        steps = self.steps
        if self.in_codes:
            steps = staged_rows(grouping or Grouping(8, steps, 2), steps)
        return 4 * (self.tile.mr * rows + steps * columns)

    @property
    def rows_bytes(self) -> int:
        """Bytes of those that are A's."""
        return 0 if self.staging is None else 4 * self.tile.mr * self.staging.pitch[0]

    @property
    def tap_bytes(self) -> int:
        """Bytes of a block's memory for where the rows of one tap start: 4 of each."""
        return 0 if self.staging is None else 4 * self.tile.mr

    @property
    def per_thread(self) -> bool:
        """True if each of a block's threads has sums of its own in its registers."""
        return self.shared is not None and any(self.shared.thread)

    @property
    def joins_taps(self) -> bool:
        """True if steps of a sum run on from tap to tap, where whole accesses copy rows: of tiles
        for units that warps share, whose steps are long."""
        return self.shared is not None and any(self.shared.warp)

    @property
    def exchanged(self) -> int:
        """Neighbouring columns that a thread may have of the sums of a warp, at most; 0 where each
        has its own."""
        return 0 if self.shared is None else min(8, self.shared.warp[1] // 4)

    @property
    def turns(self) -> bool:
        """True if it has those after the exchange only: a warp's columns of weights in groups are
        shared out so that each thread has neighbours anyway."""
        return self.exchanged > 0 and not self.in_codes

    @property
    def loads(self) -> float:
        """Elements, or vectors of them, that are loaded per multiply-add of whoever has sums."""
        rows, columns = self.tile.mr, self.tile.nv
        if self.shared is not None and self.per_thread:
            rows, columns = self.shared.thread
        return (rows + columns) / (rows * columns)


__all__ = ["GroupedWeights", "KernelRow", "NestRow", "ProductRow", "RegisterTile", "SharedTile",
           "Staging"]
