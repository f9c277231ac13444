"""Stages of a lowered kernel: what each computes over which loops, before it is statements.

    stage   = Nest | HeldRows | Contract | Stream | Unrolled | Call
    range   = Range(axis, lo, hi)       axis runs lo <= axis < hi
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aotc.ir.block_statements import Wide
from aotc.ir.expr import Axis, Binary, Const, Expr, Load, Shape, Var, maximum, show
from aotc.ir.kernel.operands import Operand, Slices, Turned
from aotc.ir.program import Fold
from aotc.ir.simplify import simplify, upper
from aotc.ir.stage_choice import UNSAID, StageChoice
from aotc.ir.statements import Box, Let, Put, Range, Stmt
from aotc.ir.tile_statements import MicroKernel

Bindings = tuple[tuple[Axis, Expr], ...]  # (name, what it stands for), in order


def points(ranges: Iterable[Range]) -> int | None:
    """Upper bound of the number of points of loops; None if there is none."""
    total = 1
    for r in ranges:
        n = _longest(r.lo, r.hi)
        if n is None:
            return None
        total *= max(n, 1)
    return total


def _longest(lo: Expr, hi: Expr) -> int | None:
    """Upper bound of hi - lo; a tile's end is the smaller of two."""
    if isinstance(hi, Binary) and hi.op == "min":
        both = [n for n in (_longest(lo, hi.a), _longest(lo, hi.b)) if n is not None]
        return min(both, default=None)
    return upper(simplify(hi - lo))


def _loops(ranges: Sequence[Range]) -> str:
    return ", ".join(map(str, ranges)) or "one point"


@dataclass(frozen=True)
class Nest:
    """Loops over ``ranges``; if there is a fold, inner loops over ``reduce`` fold ``body`` into
    ``acc`` (a Var that ``puts`` use).  ``vector`` names the axis whose loop runs over lanes
    ("" = scalar, the ``loops`` row): an axis of ``ranges`` or of ``reduce``.
    ``lanes`` is the vector length in elements.  ``block`` > 1 computes that many neighbouring
    steps of ``block_axis`` together, with the reduction axis ``taps`` unrolled.  ``team``: warps
    (threads, where no lanes lie along the fold) that fold a row together, where threads share a
    work item.  ``parts``: the first so many of ``reduce`` run over parts of the sum, each summed by
    itself (0: it runs whole).  ``ends``: those of ``reduce`` that data says, at a point of
    ``ranges``.  ``wide``: neighbours, of the last range or the lanes of a fold, that one thread of
    several has.  ``writing``: the Schedule's choices."""

    row: str
    ranges: tuple[Range, ...]
    reduce: tuple[Range, ...]
    fold: str | Fold
    acc: tuple[Var, ...]
    body: Expr
    puts: tuple[Put, ...]
    vector: str = ""
    lanes: int = 1
    block: int = 1
    block_axis: str = ""
    taps: str = ""
    team: int = 1
    parts: int = 0
    ends: Bindings = ()
    wide: Wide | None = None
    writing: StageChoice = UNSAID

    @property
    def fold_name(self) -> str:
        """The name of a fold that is no formula."""
        assert isinstance(self.fold, str), self.fold
        return self.fold

    @property
    def folds_lanes(self) -> bool:
        """True for a fold whose lanes lie along the reduced axis."""
        return bool(self.vector) and any(r.axis.name == self.vector for r in self.reduce)

    def lines(self) -> list[str]:
        lanes = f", {self.lanes} lanes along {self.vector}" if self.vector else ""
        fold = f"{self.fold} over {_loops(self.reduce)} of " if self.acc else ""
        accs = f"{', '.join(a.name for a in self.acc)} = " if self.acc else ""
        value = [f"  {accs}{fold}{show(self.body)}"] if self.acc else []
        return [f"nest {self.row} over {_loops(self.ranges)}{lanes}", *value,
                *(f"  {p}" for p in self.puts)]


@dataclass(frozen=True)
class Unrolled:
    """Loops over ``ranges``, the last one over vector lanes (its axis is named ``vector``), around
    the straight-line statements ``body`` (Let | Put, in order).  ``flags``: (Var, condition) pairs,
    the same for all lanes."""

    row: str
    ranges: tuple[Range, ...]
    flags: tuple[tuple[Var, Expr], ...]
    body: tuple[Let | Put, ...]
    vector: str
    lanes: int

    @property
    def puts(self) -> tuple[Put, ...]:
        return tuple(s for s in self.body if isinstance(s, Put))

    def lines(self) -> list[str]:
        return [f"unrolled {self.row} over {_loops(self.ranges)}, {self.lanes} lanes along "
                f"{self.vector}", *(f"  {v.name} = {show(e)}" for v, e in self.flags),
                *(f"  {line}" for s in self.body
                  for line in ([str(s)] if isinstance(s, Put) else s.lines()))]


@dataclass(frozen=True)
class Contract:
    """C[m, n] = sum over taps and k of A[m, tap, k] * B[tap, k, n], in register tiles of ``micro``.

    outer: loops around everything; m: the axes flattened into rows; n: the lane axis; taps: outer
    reduction axes; k: the innermost reduction axis. ``puts`` use Var ``acc``. turned: None where
    results are stored as they come; slices: None where sums run whole. whole: which of "rows" and
    "columns" fill every register tile; tiles of the others may be cut at their end. grain: the
    first column, and the end of the last, are multiples of it. rounds: operands that are f32 in
    memory are rounded to what the row multiplies. With mode "expanded" a panel of grouped weights
    is expanded to f32 in the scratch ``b.pad`` for all rows. writing: the Schedule's choices.
    again: threads that share it wait behind each tile: what comes next uses its steps' memory.
    part: the rows that a work item has, of all that ``m`` counts (None: all). wide: neighbouring
    columns of the results that one thread has. placed: (elements from row to row, terms that are
    read of each) of rows that are multiplied where they lie.
    """

    micro: MicroKernel
    outer: tuple[Range, ...]
    m: tuple[Range, ...]
    n: Range
    taps: tuple[Range, ...]
    k: Range
    a: Operand
    b: Operand
    acc: Var
    puts: tuple[Put, ...]
    turned: Turned | None = None
    slices: Slices | None = None
    whole: tuple[str, ...] = ()
    grain: int = 1
    rounds: bool = False
    writing: StageChoice = UNSAID
    again: bool = False
    part: Range | None = None
    wide: Wide | None = None
    placed: tuple[int, int] | None = None

    @property
    def row(self) -> str:
        return self.micro.row

    @property
    def sums(self) -> tuple[Range, ...]:
        """All axes of its sums, the innermost last, those of slices among them."""
        return (*(self.slices.taps if self.slices else ()), *self.taps, self.k)

    @property
    def has_row_table(self) -> bool:
        """True if a table in a block's memory says where the rows of a tile start.  Threads that
        copy rows of one tap know that by themselves."""
        staged = self.a.mode == "rows" and bool(self.writing.stages)
        return staged and (bool(self.taps) or self.writing.a_fetch not in ("copy", "place"))

    @property
    def row_count(self) -> Expr:
        """Rows, as an expression: none where an axis ends before it begins."""
        n: Expr = Const(1)
        for r in self.m:  # a single axis needs no bound: its loop ends at once
            n = n * (maximum(r.hi - r.lo, Const(0)) if len(self.m) > 1 else r.hi - r.lo)
        return simplify(n)

    @property
    def own_rows(self) -> tuple[Range, ...]:
        """Ranges of the rows that a work item has."""
        return self.m if self.part is None else (self.part,)

    @property
    def first_row(self) -> Expr:
        """Number of the first row that a work item has."""
        return Const(0) if self.part is None else self.part.lo

    @property
    def end_row(self) -> Expr:
        """Number behind that of the last one."""
        return self.row_count if self.part is None else self.part.hi

    def lines(self) -> list[str]:
        slices = f", {self.slices.steps} steps at a time" if self.slices else ""
        turned = f", stored from {self.turned.scratch}" if self.turned else ""
        outer = f" for {_loops(self.outer)}" if self.outer else ""
        of = f"{self.part} of " if self.part is not None else ""
        return [f"contract {self.row}{outer}: rows {of}{_loops(self.m)}, columns {self.n}{turned}",
                f"  {self.acc.name} = sum over {_loops(self.sums)}{slices} of a * b",
                f"  a: {self.a}", f"  b: {self.b}", *(f"  {p}" for p in self.puts)]


@dataclass(frozen=True)
class Stream:
    """Rows of weights times ``values``, block by block along the sum of that, and what is carried:

        C[m, n] = sum over k of exp(x[m, k] - max over k of x[m, k]) * B[k, n]
        x[m, k] = element(score, m, k),  score = sums of ``scores``

    with rows m of both products, whose axes have the same names.  ``puts`` of the values use
    ``total``, a row's sum of exp.  owner: the stage whose choices are those of the scores.  bound:
    of k, behind which all x of a row are -inf; it grows with the row.  states: what is stored of
    each row, of ``total`` and ``greatest``, the maximum."""

    scores: Contract
    element: Expr
    values: Contract
    score: Var
    total: Var
    owner: str
    bound: Expr | None
    greatest: Var
    states: tuple[Put, ...] = ()

    @property
    def row(self) -> str:
        return self.scores.row

    @property
    def puts(self) -> tuple[Put, ...]:
        return *self.values.puts, *self.states

    @property
    def products(self) -> tuple[Contract, Contract]:
        return self.scores, self.values

    def lines(self) -> list[str]:
        bound = f"  x = {show(self.element)}, up to {self.bound}"
        return [f"stream along {self.values.k}", *self.scores.lines(), bound, *self.values.lines(),
                *(f"  {p}" for p in self.states)]


@dataclass(frozen=True)
class HeldRows:
    """``nests`` over the same ``rows`` and the same elements of each, ``lane``: ``size`` threads
    have a row from the first nest to the last, each of them ``width`` neighbours at a time in all.
    ``loads``: elements that they read once, into registers; ``made``: (buffer, dtype) of those that
    a nest makes and a later one uses; ``own``: (buffer, dtype, elements) of all that nests make for
    each other only, which is in registers alone."""

    nests: tuple[Nest, ...]
    rows: tuple[Range, ...]
    lane: Range
    loads: tuple[Load, ...]
    made: tuple[tuple[str, str], ...]
    own: tuple[tuple[str, str, int], ...]
    size: int = 0
    width: int = 1

    @property
    def row(self) -> str:
        return self.nests[0].row

    @property
    def puts(self) -> tuple[Put, ...]:
        own = {b for b, *_ in self.own}
        return tuple(p for n in self.nests for p in n.puts if p.buffer not in own)

    @property
    def team(self) -> int:
        return self.nests[0].team

    def lines(self) -> list[str]:
        held = [str(x) for x in self.loads] + [b for b, _ in self.made]
        return [f"rows in registers of {self.size} threads each, which hold {', '.join(held)}",
                *(f"  {line}" for n in self.nests for line in n.lines())]


@dataclass(frozen=True)
class Call(Stmt):
    """One item of a library kernel (``ir/library.py``).  dtype: of its first tensor; ``operands``:
    where the item lies in every buffer, in the order of its C arguments; ``numbers``: extents and
    attributes, which follow."""

    kernel: str
    dtype: str
    operands: tuple[Box, ...]
    numbers: Shape
    puts: tuple[Put, ...] = ()

    @property
    def row(self) -> str:
        return f"library {self.kernel}"

    def lines(self) -> list[str]:
        parts = [f"{x.buffer} + {show(x.offset)}" for x in self.operands]
        parts += [show(e) for e in self.numbers]
        return [f"call {self.kernel}_{self.dtype}({', '.join(parts)})"]


Stage = Nest | HeldRows | Contract | Stream | Unrolled | Call
