"""The names and the memory of a product that a block of threads computes: ``~n0`` and ``~m0``, the
first column and row of a tile, ``~next``, the step of the sum that comes to the block's memory,
``~step``, the one that is multiplied, and the arrays in that memory.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from aotc.ir.block_statements import BlockArray, Constants, Digits, Swizzle
from aotc.ir.dtypes import DTYPES, HALVES
from aotc.ir.expr import Axis, Const, Expr, as_expr
from aotc.ir.kernel.plan_stages import Contract
from aotc.ir.numbers.grouped import Grouping, staged_rows
from aotc.ir.simplify import simplify, upper
from aotc.ir.statements import OWN, Body, Box, For, Let, Range
from aotc.ir.tile_statements import dot_step
from aotc.sched.rows.placed_rows import first_place
from aotc.target.kernel_rows import ProductRow, SharedTile

A_STEPS, B_STEPS, OTHERS, ROW_STARTS = (
    OWN + n for n in ("a_steps", "b_steps", "others", "row_starts"))


def _own(name: str) -> Axis:
    """A number of 32 bits that is not negative."""
    return Axis(OWN + name, Const(1 << 31))


@dataclass(frozen=True)
class BlockSteps:
    """One Contract on ``row``, by ``threads``; ``base``: byte offset of the memory of its steps in
    that of the block; ``kind``: what names of its sizes and arrays begin with, beside another
    product's."""

    c: Contract
    row: ProductRow
    threads: int
    base: int
    kind: str = ""

    m0, next, step, k0, tap, number, start = map(_own, (
        "m0", "next", "step", "k0", "tap", "row", "start"))
    m, n, k, quarter = map(_own, ("m", "n", "k", "e4"))  # in a step; of what is fetched in fours

    def named(self, name: str) -> Axis:
        """A number that is the product's own."""
        kind = self.kind if name.islower() else self.kind.upper()
        return _own(f"{kind}_{name}" if kind else name)

    def array(self, name: str) -> str:
        """An array that is its own."""
        return self.named(name.removeprefix(OWN)).name

    @property
    def shared(self) -> SharedTile:
        assert self.row.shared is not None, self.row.name
        return self.row.shared

    @property
    def mr(self) -> int:
        return self.row.tile.mr

    @property
    def nr(self) -> int:
        return self.row.tile.nr

    @property
    def bk(self) -> int:
        return self.row.steps

    @property
    def teams(self) -> int:
        return self.shared.teams

    @property
    def stages(self) -> int:
        return self.c.writing.stages or 1

    @property
    def part(self) -> int:
        """Steps of a part of the sum (0: it runs whole)."""
        return self.c.micro.part // self.bk

    def way(self, which: str) -> tuple[str, int, str]:
        """(how an operand is fetched, how many neighbours at once, along what threads do)."""
        fetch, width, along = (self.c.writing.said[f"{which}_{what}"]
                               for what in ("fetch", "width", "along"))
        assert isinstance(fetch, str) and isinstance(width, int) and isinstance(along, str), which
        return fetch, width, along

    def is_copied(self, which: str) -> bool:
        """True if an operand comes to the block's memory while others are multiplied."""
        return self.way(which)[0] == "copy"

    def is_rounded(self, which: str) -> bool:
        """True if an operand's elements are f32 that the row multiplies as narrower ones."""
        return self.way(which)[0] == "value" and self.dtype(which) in HALVES

    @property
    def by_columns(self) -> bool:
        """True if a step of B lies by its columns, neighbours of the sum side by side."""
        fetch, width, along = self.way("b")
        return self.row.by_columns or fetch == "copy" and width > 1 and along == "sum"

    @property
    def keeps_starts(self) -> bool:
        """True if each thread knows in registers where the rows start that it copies from: the same
        ones in every step."""
        return self.c.a.mode == "rows" and not (self.c.has_row_table or self.c.placed)

    # ------------------------------------------------------------ sizes

    @property
    def flat(self) -> bool:
        """True if taps and k are counted through as one."""
        return self.c.a.mode == "packed"

    @property
    def joins_taps(self) -> bool:
        """True if steps run on from tap to tap: where the terms of one fill no whole steps, and are
        copied by accesses that end where it does.  Weights lie so."""
        c = self.c
        if not (c.taps and self.row.joins_taps and c.a.mode == "rows"
                and c.b.mode in ("columns", "panel")):
            return False
        fetch, _, along = self.way("a")
        return (fetch, along) == ("copy", "sum") and all(
            isinstance(r.axis.extent, Const) for r in (*c.taps, c.k)) and (
            simplify(c.k.axis.extent % self.bk) != Const(0))

    @property
    def as_one(self) -> bool:
        """True if the terms of all taps are counted through."""
        return self.flat or self.joins_taps

    @property
    def taps(self) -> Expr:
        """Taps whose terms begin with a step."""
        return as_expr(1) if self.as_one else self.all_taps

    @property
    def all_taps(self) -> Expr:
        out = as_expr(1)
        for t in () if self.flat else self.c.taps:
            out = out * t.axis.extent
        return simplify(out)

    @property
    def one_tap(self) -> bool:
        return self.taps == Const(1)

    @property
    def kc_value(self) -> Expr:
        """Terms of the sum, of one tap, or of those that are counted through."""
        out = self.c.k.hi
        for t in self.c.taps if self.as_one else ():
            out = t.axis.extent * out
        return simplify(out)

    @property
    def rows(self) -> Expr:
        """The number behind that of the last row."""
        return _named(self.c.end_row, "rows")

    @property
    def kc(self) -> Expr:
        return _named(self.kc_value, "kc")

    @property
    def k_steps_value(self) -> Expr:
        return simplify((self.kc + (self.bk - 1)) // self.bk)

    @property
    def k_steps(self) -> Expr:
        return _named(self.k_steps_value, "k_steps")

    @property
    def steps(self) -> Expr:
        return _named(simplify(self.taps * self.k_steps), "steps")

    def whole(self, what: str) -> bool:
        """True if the "rows" or "columns" of all tiles, or the terms of all steps of the "sum",
        are there."""
        if what == "sum":
            return simplify(self.kc_value % self.bk) == Const(0)
        return what in self.c.whole

    def lets(self) -> Body:
        """The names of the sizes that are no numbers."""
        found = (("rows", self.c.end_row), ("kc", self.kc_value),
                 ("k_steps", self.k_steps_value), ("steps", simplify(self.taps * self.k_steps)))
        return tuple(Let(_own(a), e) for a, e in found if not isinstance(e, Const))

    # ------------------------------------------------------------ loops

    @property
    def n0(self) -> Axis:
        return Axis(f"{OWN}n0", self.c.n.axis.extent)

    def columns(self, body: Body) -> For:
        return For(self.n0, self.c.n.lo, self.c.n.hi, body, step=self.nr)

    def rows_loop(self, body: Body) -> For:
        return For(self.m0, self.c.first_row, self.rows, body, step=self.mr)

    @property
    def counters(self) -> tuple[Axis, ...]:
        """The names of numbers of 32 bits."""
        return tuple(map(_own, (
            "m0", "next", "step", "k0", "tap", "row", "rows", "kc", "k_steps", "steps", "m", "n",
            "k", "e4", "start", "column", "slice", "s", "turn")))

    def place_of(self, step: Expr) -> Body:
        """The first term of a step, and its tap."""
        if self.one_tap:
            return (Let(self.k0, step * self.named("BK")),)
        return (Let(self.k0, simplify(step % self.k_steps) * self.named("BK")),
                Let(self.tap, simplify(step // self.k_steps)))

    def digits(self, ranges: Sequence[Range], at: Expr, used: Collection[str]) -> Body:
        """The axes of ``ranges`` among the names ``used`` at a point number."""
        own = tuple(r.axis for r in ranges if r.axis.name in used)
        return (Digits(tuple(ranges), at, own),) if own else ()

    # ------------------------------------------------------------ memory

    def dtype(self, which: str) -> str:
        """Of an operand in the block's memory."""
        return self.row.stored if which == "a" else self.row.stored_b

    def size(self, which: str) -> int:
        """Bytes of an element of an operand there."""
        return DTYPES[self.dtype(which)].size

    @property
    def grouping(self) -> Grouping | None:
        """How B holds weights there, if it has them in groups as they are stored."""
        return self.c.micro.grouping if self.row.in_codes else None

    @property
    def pitches(self) -> tuple[int, int]:
        """Elements from one row of a step of A, or of B, to the next."""
        a, b = self._words
        by, _ = self.c.placed or (4 * a // self.size("a"), 0)
        return by, 4 * b // self.size("b")

    @property
    def _words(self) -> tuple[int, int]:
        """The same in words of 4 bytes; columns of B lie as rows of A do."""
        assert self.row.staging is not None, self.row.name
        a, b = self.row.staging.pitch
        return a, a if self.by_columns else b

    @property
    def swizzle(self) -> tuple[Swizzle | None, Swizzle | None]:
        """How the rows of A's and of B's steps are turned: 8 of them next to each other, which are
        read at once, by 16 bytes each, lie in different banks."""
        assert self.row.staging is not None, self.row.name
        if not self.row.staging.swizzled:
            return None, None
        a, b = (_swizzle(words, 16 // self.size(which))
                for words, which in zip(self._words, "ab"))
        a = None if self.c.placed else a
        return a, b if self.grouping is None else _codes_swizzle(self.grouping, self.nr)

    @property
    def constants(self) -> Constants:
        if self.row.staging is None:
            b = self.c.micro.dtypes.b  # 16 bytes of it
            tn = 16 // (DTYPES[b].size * dot_step(self.row.a))
            return tuple((self.named(n), x) for n, x in (
                ("MR", self.mr), ("NR", self.nr), ("TN", tn), ("TEAMS", self.teams),
                ("SLICES", self.row.threads * tn // self.nr)))
        ak, bn = self.pitches
        return tuple((self.named(n), x) for n, x in (
            ("MR", self.mr), ("NR", self.nr), ("BK", self.bk), ("AK", ak), ("BN", bn),
            ("A_STEP", self.mr * ak), ("B_STEP", self.b_rows * bn)))

    @property
    def b_rows(self) -> int:
        """Rows of a step of B in the block's memory."""
        if self.grouping is not None:
            return staged_rows(self.grouping, self.bk)
        return self.nr if self.by_columns else self.bk

    def step_places(self, step: Expr) -> tuple[Box, Box]:
        """Where a step of A, and of B, lies in the block's memory."""
        slot = simplify(step % self.stages)
        a, b = (Box(self.array(x), slot * self.named(each), (self.named(by), Const(1)))
                for x, each, by in ((A_STEPS, "A_STEP", "AK"), (B_STEPS, "B_STEP", "BN")))
        if self.c.placed:  # where an earlier stage has left them
            first = first_place(self.c) + self.m0 * self.named("AK")
            return replace(a, buffer=self.c.a.buffer,
                           offset=simplify(first + step * self.named("BK"))), b
        return a, b

    def arrays(self) -> tuple[BlockArray, ...]:
        """The arrays in the block's memory: stages of steps, over which the teams' sums lie in the
        end, and where the rows of all taps start."""
        (of_a, of_b), (ak, bn) = map(self.size, "ab"), self.pitches
        a = BlockArray(self.array(A_STEPS), self.dtype("a"), (self.stages, self.mr, ak), self.base,
                       "steps of A, MR rows of BK, AK apart")
        held = () if self.c.placed else (a,)
        b = BlockArray(self.array(B_STEPS), self.dtype("b"), (self.stages, self.b_rows, bn),
                       a.offset + (of_a * a.elements if held else 0),
                       f"steps of B, {self.grouping}: codes, then what groups have" if (
                           self.grouping is not None) else
                       "steps of B, NR columns of BK, BN apart" if self.by_columns else
                       "steps of B, BK rows of NR, BN apart")
        others = BlockArray(OTHERS, "f32", (self.teams - 1, self.mr, self.nr), self.base,
                            "teams' sums, in the end")
        starts = BlockArray(ROW_STARTS, "i32", (self.tap_count, self.mr),
                            b.offset + of_b * b.elements,
                            "where rows start in memory; -1: a row of zeros")
        return (*held, b, *((others,) if self.teams > 1 else ()),
                *((starts,) if self.c.has_row_table else ()))

    @property
    def tap_count(self) -> int:
        most = upper(self.all_taps)
        assert most is not None, self.c.row  # ``share_by_threads`` refuses those
        return most


def _swizzle(words: int, chunk: int) -> Swizzle | None:
    """Of rows of so many words of 4 bytes."""
    chunks = min(words // 4, 8)
    return Swizzle(chunk, chunks, 8 // chunks) if chunks > 1 else None


def _codes_swizzle(g: Grouping, columns: int) -> Swizzle | None:
    """Of rows of bytes: a lane of a warp reads those of 4 columns, eight of them 32 side by side,
    of each of 4 rows of neighbours of the sum, which lie two apart where a code has a byte."""
    chunks = min(columns // 32, 4)
    return Swizzle(32, chunks, 2 if g.bits == 8 else max(1, 128 // columns)) if chunks > 1 else None


def _named(value: Expr, name: str) -> Expr:
    """A number, or else the name of a value."""
    return value if isinstance(value, Const) else _own(name)


__all__ = ["A_STEPS", "B_STEPS", "OTHERS", "ROW_STARTS", "BlockSteps"]
