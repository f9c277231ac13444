"""The statements of products that the threads of a block compute together: sums in the registers of
all threads, steps of both operands in the block's memory, and how they come there; and of elements
that one of its threads reads and stores several of at once.

    stmt = Product | Neighbours                                         with a body
         | BlockArray | Digits                                          names
         | Fetch | Commit | Arrived                                     copies that go on meanwhile
         | Registers | Shares | Hold | Recall | Rounded                 by way of registers
         | Sums | BlockTile | JoinSums | TeamSums | TurnSums | Owned | FewRowSums  sums

A statement means what it says of the whole block.  Which thread has which sum, and which point of a
``Spread``, is the row's affair; a ``Barrier`` stands between those that store an element of a
``BlockArray`` and others that touch it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod

from aotc.ir.category import Dtypes
from aotc.ir.dtypes import DTYPES, is_int
from aotc.ir.expr import Axis, Binary, Expr, Load, Var, show
from aotc.ir.numbers.grouped import Grouping
from aotc.ir.statements import Barrier, Body, Box, Range, Stmt, text_of
from aotc.ir.tile_statements import dot_step

Constants = tuple[tuple[Axis, int], ...]
ACCESS = 16  # bytes that one access of a thread reads or stores, at most
LEAST_COPY = 4  # bytes that a Fetch copies, at least


@dataclass(frozen=True)
class Product(Stmt):
    """``body`` computes a product on a row.  ``constants``: names of numbers; ``counters``: names
    of what fits into 32 bits."""

    row: str
    constants: Constants
    counters: tuple[Axis, ...]
    body: Body

    def lines(self) -> list[str]:
        named = ", ".join(f"{a} = {n}" for a, n in self.constants)
        return [f"product on {self.row}, {named}", *text_of(self.body)]


@dataclass(frozen=True)
class Wide:
    """What a thread reads and stores of ``width`` neighbours at once: the values of ``reads``, and
    what goes into the buffers ``writes``, each by accesses of ``access_bytes``, to a multiple of
    which they are aligned."""

    BUFFERS = ("writes",)
    width: int
    reads: tuple[Load, ...]
    writes: tuple[str, ...]

    def __str__(self) -> str:
        told = [f"reads {', '.join(dict.fromkeys(x.buffer for x in self.reads))}"] * bool(
            self.reads) + [f"stores {', '.join(self.writes)}"] * bool(self.writes)
        return f"{self.width} neighbours a thread, which {' and '.join(told)} at once"


@dataclass(frozen=True)
class Neighbours(Stmt):
    """``body`` for the values of ``axis`` from ``first`` on, as many as ``wide`` says, by one
    thread: it reads what that names before, and stores behind."""

    axis: Axis
    first: Expr
    wide: Wide
    body: Body

    def lines(self) -> list[str]:
        return [f"for {self.axis} from {show(self.first)} on: {self.wide}", *text_of(self.body)]


def access_bytes(width: int, dtype: str) -> int:
    """Bytes of one access of a thread that has so many neighbours of a dtype, the most being 16."""
    return min(ACCESS, width * DTYPES[dtype].size)


@dataclass(frozen=True)
class BlockArray(Stmt):
    """A row-major array in the block's memory, from byte ``offset`` on."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    note: str = field(default="", compare=False)

    @property
    def elements(self) -> int:
        return prod(self.shape)

    def lines(self) -> list[str]:
        note = f": {self.note}" if self.note else ""
        return [f"array {self.name} of {self.dtype}{[*self.shape]} at byte {self.offset}{note}"]


@dataclass(frozen=True)
class Swizzle:
    """Where the ``chunk`` elements of 16 bytes of a row of an array lie: those of number c of row r
    at number c xor (r / ``rows`` mod ``chunks``), so that the same ones of neighbouring rows lie in
    other banks."""

    chunk: int
    chunks: int
    rows: int

    def column(self, row: Expr, column: Expr) -> Expr:
        """Where an element of a row lies in it."""
        turned = Binary("xor", column // self.chunk, row // self.rows % self.chunks)
        return turned * self.chunk + column % self.chunk

    def __str__(self) -> str:
        return f"{self.chunk} elements at number xor row / {self.rows} mod {self.chunks}"


@dataclass(frozen=True)
class Digits(Stmt):
    """The axes ``used`` of ``ranges`` at the point number ``at``, the last range counting
    fastest."""

    ranges: tuple[Range, ...]
    at: Expr
    used: tuple[Axis, ...]

    def lines(self) -> list[str]:
        return [f"{', '.join(map(str, self.used))} at point {show(self.at)} of "
                f"{', '.join(map(str, self.ranges))}"]


@dataclass(frozen=True)
class Fetch(Stmt):
    """Begin to copy ``width`` neighbours of ``dtype`` from outside the block's memory into it, or
    as many times ``fill`` where not ``valid``: the place they come from means nothing there.  They
    are there, for the thread that began, once their group has ``Arrived``."""

    to: Box
    source: Box
    width: int
    valid: Expr
    dtype: str
    fill: int = 0

    def lines(self) -> list[str]:
        other = f"all {self.fill}" if self.fill else "zeros"
        return [f"fetch {self.width}: {self.to} = {self.source} if {show(self.valid)} else {other}"]


@dataclass(frozen=True)
class Commit(Stmt):
    """What has been fetched since the last one is a group."""

    def lines(self) -> list[str]:
        return ["the fetches so far are a group"]


@dataclass(frozen=True)
class Arrived(Stmt):
    """Wait until all groups but the last ``but`` ones have arrived."""

    but: int

    def lines(self) -> list[str]:
        return [f"wait for all groups but {self.but}"]


@dataclass(frozen=True)
class Registers(Stmt):
    """An array of ``points`` times ``width`` values of ``dtype``, shared out among the registers of
    ``threads``."""

    name: str
    points: int
    width: int
    threads: int
    dtype: str = "f32"

    @property
    def share(self) -> int:
        """Points of a thread."""
        return -(-self.points // self.threads)

    def lines(self) -> list[str]:
        return [f"registers {self.name} of {self.points} x {self.width} {self.dtype}"]


@dataclass(frozen=True)
class Shares(Stmt):
    """``body`` for the points of ``ranges``, each by the thread that has its values in registers
    ``of``; threads that have none do nothing that others see."""

    of: Registers
    ranges: tuple[Range, ...]
    body: Body

    def lines(self) -> list[str]:
        return [f"shares of {self.of.name} over {', '.join(map(str, self.ranges))}",
                *text_of(self.body)]


@dataclass(frozen=True)
class Hold(Stmt):
    """The registers ``name`` get what is at ``source``, or zeros where not ``valid``, or else the
    value of a name."""

    name: str
    width: int
    source: Box | None
    valid: Expr
    value: Var | None = None

    def lines(self) -> list[str]:
        if self.value is not None:
            return [f"hold {self.name} = {self.value.name}"]
        return [f"hold {self.name} = {self.width} at {self.source} if {show(self.valid)} else "
                "zeros"]


@dataclass(frozen=True)
class Recall(Stmt):
    """``axis`` is the number that the registers ``name`` hold."""

    axis: Axis
    name: str

    def lines(self) -> list[str]:
        return [f"{self.axis} = held {self.name}"]


@dataclass(frozen=True)
class Rounded(Stmt):
    """The values in the registers ``name``, or else the value of a name, rounded to ``dtype``, are
    stored."""

    to: Box
    name: str
    width: int
    dtype: str
    value: Var | None = None

    def lines(self) -> list[str]:
        if self.value is not None:
            return [f"{self.to} = {self.value.name} as {self.dtype}"]
        return [f"{self.to} = {self.width} of {self.name} as {self.dtype}"]


@dataclass(frozen=True)
class Sums(Stmt, method="sums_start"):
    """``name`` is MR x NR sums of ``dtype`` in the registers of the block's threads, of each of
    ``teams`` of them: zeros."""

    name: str
    mr: int
    nr: int
    teams: int = 1
    note: str = field(default="", compare=False)
    dtype: str = "f32"

    def lines(self) -> list[str]:
        teams = f" of {self.teams} teams each" if self.teams > 1 else ""
        kind = "" if self.dtype == "f32" else f" {self.dtype}"
        return [f"sums {self.name}: {self.mr} x {self.nr}{kind}{teams}"]


@dataclass(frozen=True)
class BlockTile(Stmt):
    """The products of one step of the sum join ``sums``:

        sums[i, j] += sum over k of a[i, k] * b[k, j]

    a, b: where the step begins, with the elements from one row to the next; swizzle: how the rows
    of both are turned (None: they are not); by_columns: those of b are its columns.  rounded: dtype
    that both are rounded to ("": they are as they lie).  depth: terms of the sum; ``teams``
    share them out in order.  first: the number of the first of them, of ``count``: a team whose
    share begins behind the last, which are zeros, rests.  groups: b holds the bytes of weights in
    groups (None: elements)."""

    row: str
    template: str
    sums: Sums
    a: Box
    b: Box
    depth: int
    first: Expr
    count: Expr | None
    swizzle: tuple[Swizzle | None, Swizzle | None] = (None, None)
    by_columns: bool = False
    rounded: str = ""
    groups: "StepGroups | None" = None

    def lines(self) -> list[str]:
        of = "" if self.count is None else f", {show(self.first)} on of {show(self.count)}"
        groups = "" if self.groups is None else f", {self.groups}"
        return [f"{self.sums.name} += {self.sums.mr} x {self.depth} at {self.a} times {self.depth}"
                f" x {self.sums.nr} at {self.b}{of}{groups}"]


@dataclass(frozen=True)
class StepGroups:
    """How a step of B in a block's memory holds weights in groups, whole ones or a part of one:
    rows of codes, then, not turned, of each group its zero points, if there are any, and the bytes
    of its scales.  Sums are of codes less zero points; where a group ``ends`` (None: in every step,
    behind each that it has) they join ``totals``, times the group's scales, and begin again at
    zero.  span: terms of a group in a step."""

    grouping: Grouping
    totals: Sums
    span: int
    ends: Expr | None = None

    def __str__(self) -> str:
        when = "" if self.ends is None else f" if {show(self.ends)}"
        return f"{self.grouping}, times scales to {self.totals.name}{when}"


@dataclass(frozen=True)
class JoinSums(Stmt):
    """``into`` += ``sums``, which begin again at zero."""

    into: Sums
    sums: Sums

    def lines(self) -> list[str]:
        return [f"{self.sums.name} join {self.into.name}"]


@dataclass(frozen=True)
class TeamSums(Stmt):
    """The sums of all teams but the first: "keep" stores them in the array ``at``, "join" adds what
    is there to those of the first."""

    BUFFERS = ("at",)
    what: str
    sums: Sums
    at: str

    def lines(self) -> list[str]:
        return [f"{self.what} the sums {self.sums.name} of teams at {self.at}"]


@dataclass(frozen=True)
class TurnSums(Stmt):
    """The threads of a warp exchange sums, so that each has ``width`` neighbours of a row."""

    sums: Sums
    width: int

    def lines(self) -> list[str]:
        return [f"threads exchange {self.sums.name}: {self.width} neighbours each"]


@dataclass(frozen=True)
class Owned(Stmt):
    """``body`` for each of the "rows" or "columns" of ``sums``, numbered from ``first`` on, by the
    threads that have sums there; inside of both ``sum`` is the one there.  width: neighbouring
    columns that a thread has at once, of which ``axis`` is the first; ``sum`` is that of each of
    them in the ``Neighbours`` of the body."""

    what: str
    sums: Sums
    axis: Axis
    first: Expr
    body: Body
    sum: Var | None = None
    width: int = 1

    def lines(self) -> list[str]:
        named = f", {self.sum.name} the sum there" if self.sum is not None else ""
        named += f", the first of {self.width} neighbours each" if self.width > 1 else ""
        return [f"for {self.axis} of the {self.what} of {self.sums.name} from {show(self.first)}"
                f"{named}", *text_of(self.body)]


@dataclass(frozen=True)
class FewRowSums(Stmt):
    """Sums of a tile of few rows, of which each of the block's teams makes some terms:

        parts[t, i, j], added up over the teams t, = sum over k < terms of a[i, k] * b[k, j]

    in an array of the block, teams by ``mr`` rows by ``nr`` columns.  a: the place of the first
    row's first term, with the elements from one row to the next; rows: so many exist from there on,
    and those behind are zeros (None: all do).  b: the place of the first column's
    first term, with the elements from a term to the next; grouping: how bytes of a panel hold
    weights (None: they are elements).  columns: so many exist from there on (None: all).  dtypes:
    of both where they lie, and of the sums.  wide: four terms of a row lie at a multiple of their
    size."""

    BUFFERS = ("parts",)
    row: str
    template: str
    parts: str
    mr: int
    nr: int
    a: Box
    b: Box
    terms: Expr
    dtypes: Dtypes
    wide: bool
    rows: Expr | None = None
    columns: Expr | None = None
    grouping: Grouping | None = None

    @property
    def step(self) -> int:
        """Neighbours of the sum that lie side by side in B: integers that one instruction
        multiplies."""
        return dot_step(self.dtypes.a) if is_int(self.dtypes.sums) else 1

    @property
    def accesses(self) -> tuple[tuple[str, int], ...]:
        """(buffer, elements) of what a thread reads at once of A, and of B: at most 16 bytes."""
        of_a = 4 * self.step if self.wide else 1
        return (self.a.buffer, of_a), (self.b.buffer, ACCESS)

    def lines(self) -> list[str]:
        marks = [f"{what} of {show(n)}" for what, n in (("rows", self.rows),
                                                        ("columns", self.columns)) if n is not None]
        marks += [str(self.grouping)] * (self.grouping is not None) + ["wide"] * self.wide
        return [f"{self.parts} of teams = {self.mr} x {show(self.terms)} at {self.a} times "
                f"{show(self.terms)} x {self.nr} at {self.b}, {'*'.join(self.dtypes)}"
                + "".join(f", {m}" for m in marks)]


_IN_ORDER = (Barrier, Product, BlockArray, Commit, Arrived, Registers, Shares, Sums, BlockTile,
             FewRowSums)


def needs_order(body: Iterable[Stmt]) -> bool:
    """True if statements, those inside of others among them, have to be done one turn of the loop
    around them after the other."""
    return any(isinstance(s, _IN_ORDER) for s in body)


__all__ = ["ACCESS", "LEAST_COPY", "Arrived", "BlockArray", "BlockTile", "Commit", "Digits",
           "Fetch", "FewRowSums", "Hold", "JoinSums", "Neighbours", "Owned", "Product", "Recall",
           "Registers", "Rounded", "Shares", "StepGroups", "Sums", "Swizzle", "TeamSums",
           "TurnSums", "Wide", "access_bytes", "needs_order"]
