"""The statements of register tiles: rows and columns of operands, the sums of one tile, and what
follows them vector by vector."""

from dataclasses import dataclass
from typing import ClassVar

from aotc.ir.category import Dtypes
from aotc.ir.dtypes import ELEMENTS, HALF, is_int
from aotc.ir.expr import Axis, Expr, show
from aotc.ir.numbers.byte_panels import LANE
from aotc.ir.numbers.grouped import Grouping
from aotc.ir.simplify import simplify
from aotc.ir.statements import OWN, Body, Box, Range, Stmt, text_of


def slice_start(k: Axis) -> Axis:
    """The name of where a slice of a sum along ``k`` begins."""
    return Axis(f"{OWN}k_lo", k.extent)


def dot_step(dtype: str) -> int:
    """Neighbours along the sum that a product with rows of ``dtype`` takes at a time; f16 is
    converted element by element, or multiplied by a unit of its own."""
    return 1 if dtype == HALF else max(1, 8 * LANE // ELEMENTS[dtype].bits)


def whole_steps(depth: Expr, dtype: str) -> Expr:
    """The terms of a sum of ``depth`` that a product with rows of ``dtype`` takes: up to a whole
    ``dot_step``."""
    step = dot_step(dtype)
    return simplify((depth + (step - 1)) // step * step)


def is_narrow(dtypes: Dtypes) -> bool:
    """True for a product whose panels hold narrower numbers than it sums, which its micro-kernel
    takes one run of memory of: of several neighbours of the sum, or of integers that f32 meets."""
    return dot_step(dtypes.a) > 1 or is_int(dtypes.b)


@dataclass(frozen=True)
class MicroKernel:
    """What computes register tiles of a product: a ``row`` of the target and its ``template``, for
    tiles of MR rows by ``nv`` vectors of ``lanes`` columns.  part: steps of the sum that are summed
    by themselves before they join the rest (0: it runs whole).  grouping: how bytes of B hold
    weights (None: they are elements).  unit: of the machine, which multiplies instead of a
    micro-kernel ("": none does).  in_steps: neighbours along the sum lie side by side, as many as
    a product takes at a time."""

    row: str
    template: str
    mr: int
    nv: int
    lanes: int
    dtypes: Dtypes = Dtypes("f32", "f32", "f32")
    part: int = 0
    grouping: Grouping | None = None
    unit: str = ""
    in_steps: bool = True

    @property
    def nr(self) -> int:
        """Columns of a tile."""
        return self.nv * self.lanes

    @property
    def step(self) -> int:
        """Neighbours along the sum that lie side by side in a column."""
        return dot_step(self.dtypes.a) if self.in_steps else 1

    @property
    def narrow(self) -> bool:
        """``is_narrow``."""
        return is_narrow(self.dtypes)


@dataclass(frozen=True)
class Pack(Stmt):
    """``columns`` columns of ``depth`` elements, ``step`` apart in memory, to ``width`` columns
    side by side, zeros in those that do not exist.  dtype: of an element; of narrow ones so many
    neighbours of the sum stay side by side as a product takes at a time (``dot_step``), zeros
    behind the last; across: columns are side by side, and elements of one ``step`` apart."""

    BUFFERS = ("to", "source")
    to: str
    source: str
    offset: Expr
    step: Expr
    columns: Expr
    depth: Expr
    width: int
    dtype: str = "f32"
    across: bool = False

    @property
    def group(self) -> int:
        """Neighbours of the sum that stay side by side."""
        return dot_step(self.dtype)

    def lines(self) -> list[str]:
        how = "" if self.group == 1 else f" in groups of {self.group}" + " across" * self.across
        return [f"pack {show(self.columns)} columns of {show(self.depth)}: {self.to} by "
                f"{self.width} = {self.source}[{show(self.offset)}] by {show(self.step)}{how}"]


@dataclass(frozen=True)
class Expand(Stmt):
    """A panel of ``depth`` steps of the sum by ``width`` columns of grouped weights, bytes from
    ``offset`` of ``source`` on, to f32.  dtype: of the rows that meet them; for integers the
    numbers stay integers, group by group as ``ir/numbers/byte_panels.py`` says."""

    BUFFERS = ("to", "source")
    to: str
    source: str
    offset: Expr
    depth: Expr
    width: int
    grouping: Grouping
    dtype: str = "f32"

    def lines(self) -> list[str]:
        return [f"expand {show(self.depth)} steps of {self.width} columns of {self.grouping}"
                f" for rows of {self.dtype}: {self.to} = {self.source}[{show(self.offset)}]"]


@dataclass(frozen=True)
class Point(Stmt):
    """The name of a place: of an element of a buffer or behind another such name, of the first of
    ``ways`` (condition, place) whose condition holds; the last one has none."""

    BUFFERS = ("name",)
    name: str
    dtype: str
    ways: tuple[tuple[Expr | None, Box], ...]

    def lines(self) -> list[str]:
        ways = [f"{at}" + (f" if {show(c)}" if c is not None else "") for c, at in self.ways]
        return [f"{self.name} = the place " + " else ".join(ways)]


@dataclass(frozen=True)
class RowCounters(Stmt):
    """The values of row axes, counted like an odometer by the ``RowTable`` behind it."""

    rows: tuple[Range, ...]

    def lines(self) -> list[str]:
        return [f"count rows {', '.join(map(str, self.rows))}"]


@dataclass(frozen=True)
class RowTable(Stmt):
    """The rows from ``~m0`` on of one register tile of ``mr`` rows, those from ``count`` on as the
    last one: the values of the axes ``values`` (the arrays ``~AXIS_at``), and for every tap and row
    the place of its first element (the array ``~a_row``): of ``buffer`` at ``offset``, or where
    ``guard`` is false of ``outside`` ("" = a row of ``reach`` zeros).  ``body`` is done first for
    every row, whose number in the tile is ``~i``."""

    BUFFERS = ("buffer", "outside")
    rows: tuple[Range, ...]
    count: Expr
    mr: int
    dtype: str
    taps: tuple[Range, ...]
    buffer: str
    offset: Expr
    guard: Expr | None = None
    outside: str = ""
    reach: Expr | None = None
    body: Body = ()
    values: tuple[Axis, ...] = ()

    def lines(self) -> list[str]:
        taps = f" and taps {', '.join(map(str, self.taps))}" if self.taps else ""
        guard = f" if {show(self.guard)} else {self.outside or 'zeros'}" if self.guard else ""
        return [f"table of {self.mr} rows {', '.join(r.axis.name for r in self.rows)}{taps}: "
                f"{self.buffer}[{show(self.offset)}]{guard}", *text_of(self.body)]


@dataclass(frozen=True)
class TileRows:
    """A of a register tile: the place of each row, or none for those of the table ``~a_row``; rows
    begin ``first`` elements on, and k steps ``step`` elements.  many_taps: a table of all taps."""

    places: tuple[Box, ...]
    first: Expr
    step: Expr
    many_taps: bool = False


@dataclass(frozen=True)
class TileColumns:
    """B of a register tile: from the Point ``point`` on, k-steps ``step`` elements and taps
    ``tap_step`` elements apart.  left: columns from the tile's first on; masked: no more than those
    exist."""

    BUFFERS: ClassVar[tuple[str, ...]] = ("point",)
    point: str
    step: Expr
    tap_step: Expr
    left: Expr
    masked: bool = False


@dataclass(frozen=True)
class Tile(Stmt):
    """The sums of one register tile of a MicroKernel:

        sum[i, j] = sum over taps and k of A[i, tap, k] * B[tap, k, j]

    live: only so many rows, the first, have sums (0: all).  ahead: (a Point and elements from it
    on that this tile fetches, elements per step), start: the place of what every row's sums start
    from.  in_place: the sums stay in registers (the array ``~sum``); else they are in the array
    ``~acc_tile``.  reread: vectors of B, the last ones, that every multiply-add reads again;
    unroll: steps of the sum that are written out."""

    micro: MicroKernel
    a: TileRows
    b: TileColumns
    taps: Expr
    kc: Expr
    ahead: tuple[Box, Expr] | None = None
    start: Box | None = None
    in_place: bool = False
    live: int = 0
    reread: int = 0
    unroll: int = 1

    @property
    def summed(self) -> int:
        """How many rows have sums."""
        return self.live or self.micro.mr

    def lines(self) -> list[str]:
        m = self.micro
        marks = ["masked"] * self.b.masked + [f"in parts of {m.part}"] * (m.part > 0)
        marks += [str(m.grouping)] * (m.grouping is not None)
        marks += ["in place"] * self.in_place + [f"first {self.live} rows"] * (self.live > 0)
        marks += [f"by {m.unit}"] * bool(m.unit)
        return [f"tile {m.row} {m.mr}x{m.nr} "
                f"taps {show(self.taps)} k {show(self.kc)}{''.join(', ' + x for x in marks)}"]


@dataclass(frozen=True)
class Vector(Stmt):
    """``body`` for one vector of ``lanes``: values of ``axis`` from ``first`` on, at most ``live``
    of them (None: all)."""

    axis: Axis
    first: Expr
    lanes: int
    live: Expr | None
    body: Body

    def lines(self) -> list[str]:
        live = f", {show(self.live)} of them" if self.live is not None else ""
        return [f"vector {self.axis} from {show(self.first)}{live}", *text_of(self.body)]
