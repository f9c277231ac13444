"""The products of blocks of threads executed in numpy: what all threads have in registers is one
array, and what they share is memory in which a barrier stands between a store and other touches."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from aotc.ir.block_statements import (
    Arrived,
    BlockArray,
    BlockTile,
    Commit,
    Digits,
    Fetch,
    FewRowSums,
    Hold,
    JoinSums,
    Neighbours,
    Owned,
    Product,
    Recall,
    Registers,
    Rounded,
    Shares,
    StepGroups,
    Sums,
    Swizzle,
    TeamSums,
    TurnSums,
    access_bytes,
)
from aotc.ir.dtypes import BF16, DTYPES, TF32, Array, from_bf16, to_bf16, to_tf32
from aotc.ir.expr import Expr
from aotc.ir.numbers.group_bytes import numbers_at, weights_at
from aotc.ir.statements import Barrier, Box, Range, Store, walk_body
from aotc.oracle.tile_runs import TileRuns


class BlockRuns(TileRuns):
    """The statements of ``block_statements.py``.  ``block_sums``: teams by rows by columns, by the
    name of the sums; ``held``: values in registers, neighbours first."""

    def __init__(self, *args: object, **fields: object) -> None:
        super().__init__(*args, **fields)
        self.block_sums: dict[str, Array] = {}
        self.held: dict[str, Array] = {}
        self.summed: tuple[str, Array] | None = None  # the name of neighbours' sums, and those

    def product(self, s: Product) -> None:
        self.names |= {a.name: np.asarray(n, np.int64) for a, n in s.constants}
        self.body(s.body)

    def block_array(self, s: BlockArray) -> None:
        self.memory.block_array(s.name, s.dtype, s.elements, s.offset)

    def barrier(self, s: Barrier) -> None:
        self.memory.barrier()

    def digits(self, s: Digits) -> None:
        number = self.now(s.at)
        for r in reversed(s.ranges):
            lo, hi = self.now(r.lo), self.now(r.hi)
            size = np.maximum(hi - lo, 1)
            self.names[r.axis.name] = lo + (number if r is s.ranges[0] else number % size)
            number = number // size

    def neighbours(self, s: Neighbours) -> None:
        """All values of the axis, as a loop has them; accesses of several are aligned."""
        wide, first = s.wide, self.now(s.first)
        puts = [p for x in walk_body(s.body) if isinstance(x, Store) for p in x.puts]
        found = [(x.buffer, x.index[0], x.dtype) for x in wide.reads] + [
            (p.buffer, p.offset, p.value.dtype) for p in puts if p.buffer in wide.writes]
        before = self.names.get(s.axis.name)
        self.names[s.axis.name] = first
        for buffer, offset, dtype in found:
            step = access_bytes(wide.width, dtype)
            at = self.full(self.now(offset)) * DTYPES[dtype].size
            if np.any((at % step != 0) & (True if self.mask is None else self.mask)):
                raise self.memory.fault(f"{step} bytes of {buffer} are not aligned to as many")
        for e in range(wide.width):
            self.names[s.axis.name] = first + e
            if self.summed is not None:  # neighbours of a product
                name, sums = self.summed
                self.names[name] = sums[:, e]
            self.body(s.body)
        self.names.pop(s.axis.name)
        if before is not None:
            self.names[s.axis.name] = before

    # ------------------------------------------------------------ operands

    def _neighbours(self, width: int) -> Array:
        return np.arange(width).reshape(-1, *[1] * len(self.shape))

    def _found(self, source: Box, width: int, valid: Expr, dtype: str = "f32",
               fill: int = 0) -> Array:
        """Neighbours at a place, ``fill`` where they are not valid."""
        there = np.asarray(self.full(self.now(valid)), bool)
        found = np.full((width, *self.shape), fill, DTYPES[dtype].numpy)

        def take() -> None:
            at = self.full(self.now(source.offset)) + self._neighbours(width)
            found[...] = np.where(there, self.memory.read(source.buffer, at, self.mask), fill)
        self.inside((), there, take)
        return found

    def fetch(self, s: Fetch) -> None:
        at = self.full(self.now(s.to.offset)) + self._neighbours(s.width)
        found = self._found(s.source, s.width, s.valid, s.dtype, s.fill)
        self.memory.fetch(s.to.buffer, at, found, self.mask)

    def commit(self, s: Commit) -> None:
        self.memory.commit()

    def arrived(self, s: Arrived) -> None:
        self.memory.arrived(s.but)

    def registers(self, s: Registers) -> None:
        self.held.pop(s.name, None)

    def shares(self, s: Shares) -> None:
        self._side_by_side(s.ranges, lambda: self.body(s.body))

    def _side_by_side(self, ranges: tuple[Range, ...], run: Callable[[], None]) -> None:
        """``run`` for all points of ranges at once."""
        if not ranges:
            run()
            return
        r, count = ranges[-1], int(self.now(ranges[-1].hi - ranges[-1].lo))
        at = self.now(r.lo) + np.arange(count).reshape(-1, *[1] * len(self.shape))
        self.names[r.axis.name] = at
        self.inside((count,), None, lambda: self._side_by_side(ranges[:-1], run))

    def hold(self, s: Hold) -> None:
        if s.source is not None:
            self.held[s.name] = self._found(s.source, s.width, s.valid)
        else:
            assert s.value is not None, s
            self.held[s.name] = np.array(self.full(self.now(s.value)))[None]

    def recall(self, s: Recall) -> None:
        if s.name not in self.held:
            raise self.memory.fault(f"{s.name} holds nothing yet")
        self.names[s.axis.name] = self.held[s.name][0]

    def rounded(self, s: Rounded) -> None:
        if s.value is None and s.name not in self.held:
            raise self.memory.fault(f"{s.name} holds nothing yet")
        at = self.full(self.now(s.to.offset)) + self._neighbours(s.width)
        found = self.held[s.name] if s.value is None else self.full(self.now(s.value))[None]
        values = found.astype(np.float32)
        self.memory.write(s.to.buffer, at, to_bf16(values) if s.dtype == BF16 else
                          values.astype(np.float16), self.mask)

    # ------------------------------------------------------------ sums

    def sums_start(self, s: Sums) -> None:
        self.block_sums[s.name] = np.zeros((s.teams, s.mr, s.nr), DTYPES[s.dtype].numpy)

    def block_tile(self, s: BlockTile) -> None:
        sums, kind = self.block_sums[s.sums.name], s.sums.dtype
        a = self.operand(s.a, s.sums.mr, s.depth, s.swizzle[0], kind)
        if s.groups is not None:
            self._step_groups(s, s.groups, a)
            return
        shape = (s.sums.nr, s.depth) if s.by_columns else (s.depth, s.sums.nr)
        b = self.operand(s.b, *shape, s.swizzle[1], kind)
        b = b.T if s.by_columns else b
        a, b = (to_tf32(x) for x in (a, b)) if s.rounded == TF32 else (a, b)
        share = s.depth // s.sums.teams
        for team in range(s.sums.teams):
            first = team * share
            if s.count is None or int(self.now(s.first)) + first < int(self.now(s.count)):
                sums[team] += a[:, first:first + share] @ b[first:first + share]

    def _step_groups(self, s: BlockTile, groups: StepGroups, a: Array) -> None:
        """A step of weights in groups: of codes first, times scales where a group ends."""
        span = groups.span
        g = replace(groups.grouping, size=max(groups.grouping.size, span))
        sums, totals = (self.block_sums[x.name][0] for x in (s.sums, groups.totals))
        nr, extra = s.sums.nr, g.zeros + g.planes
        all_codes, own = s.depth * g.bits // 8, span * g.bits // 8  # rows
        codes, beside = (self.operand(s.b, all_codes + s.depth // span * extra, nr, turned, "u8")
                         for turned in (s.swizzle[1], None))
        for n in range(s.depth // span):
            part = np.zeros((g.rows, nr), np.uint8)
            part[:own] = codes[n * own:][:own]
            part[g.codes:] = beside[all_codes + n * extra:][:extra]
            number, scale = numbers_at(g, np.arange(span)[:, None], _by_row(part))
            with np.errstate(invalid="ignore", over="ignore"):
                sums += a[:, n * span:][:, :span] @ number.astype(np.float32)
            if groups.ends is None or bool(self.now(groups.ends)):
                totals += sums * scale
                sums[...] = 0

    def operand(self, box: Box, rows: int, columns: int, swizzle: Swizzle | None,
                 dtype: str) -> Array:
        """A step of an operand in the block's memory, in the dtype of sums."""
        step = int(self.now(box.strides[0]))
        i, j = np.ogrid[:rows, :columns]
        if swizzle is not None:
            turned = j // swizzle.chunk ^ i // swizzle.rows % swizzle.chunks
            j = turned * swizzle.chunk + j % swizzle.chunk
        found = self.memory.read(box.buffer, self.now(box.offset) + i * step + j, None)
        return from_bf16(found) if found.dtype == np.uint16 else found.astype(DTYPES[dtype].numpy)

    def join_sums(self, s: JoinSums) -> None:
        self.block_sums[s.into.name] += self.block_sums[s.sums.name]
        self.block_sums[s.sums.name][...] = 0

    def team_sums(self, s: TeamSums) -> None:
        sums = self.block_sums[s.sums.name]
        at = np.arange(sums[1:].size)
        if s.what == "keep":
            self.memory.write(s.at, at, sums[1:].reshape(-1), None)
            return
        for other in self.memory.read(s.at, at, None).reshape(sums[1:].shape):
            sums[0] += other

    def turn_sums(self, s: TurnSums) -> None:
        pass  # which thread has a sum is nobody's affair here

    def few_row_sums(self, s: FewRowSums) -> None:
        terms = int(self.now(s.terms))
        i, j, k = np.arange(s.mr), np.arange(s.nr), np.arange(terms)[:, None]
        live = i[:, None] < (s.mr if s.rows is None else int(self.now(s.rows)))
        at = int(self.now(s.a.offset)) + i[:, None] * int(self.now(s.a.strides[0])) + k[:, 0]
        a = np.where(live, self.memory.read(s.a.buffer, at, np.broadcast_to(live, at.shape)), 0)
        b = self._few_columns(s, k, j)
        kind = DTYPES[s.dtypes.sums].numpy
        with np.errstate(invalid="ignore", over="ignore"):
            sums = (from_bf16(a) if s.dtypes.a == BF16 else a).astype(kind) @ b.astype(kind)
        size = s.mr * s.nr
        every = self.memory.region(s.parts).values.size
        found = np.zeros(every, kind)
        found[:size] = sums.reshape(-1)  # the first team makes all terms
        self.memory.write(s.parts, np.arange(every), found, None)

    def _few_columns(self, s: FewRowSums, k: Array, j: Array) -> Array:
        """B of a tile of few rows: (terms, columns)."""
        first, by = int(self.now(s.b.offset)), int(self.now(s.b.strides[0]))
        if s.grouping is not None:
            g = s.grouping
            return weights_at(g, k, lambda row: self.memory.read(
                s.b.buffer, first + (k // g.size * g.rows + row) * s.nr + j, None))
        step = s.step
        live = None if s.columns is None else np.broadcast_to(
            j < int(self.now(s.columns)), (len(k), len(j)))
        at = first + k // step * by + j * step + k % step
        found = self.memory.read(s.b.buffer, at, live)
        found = from_bf16(found) if s.dtypes.b == BF16 else found
        return found if live is None else np.where(live, found, 0)

    def owned(self, s: Owned) -> None:
        rows = s.what == "rows"
        count = (s.sums.mr if rows else s.sums.nr) // s.width
        number = s.width * np.arange(count).reshape(-1, *[1] * len(self.shape))
        self.names[s.axis.name] = self.now(s.first) + number
        if s.sum is not None:  # columns inside of rows
            sums = self.block_sums[s.sums.name][0].T
            self.names[s.sum.name] = sums
            if s.width > 1:
                self.summed = s.sum.name, sums.reshape(count, s.width, *sums.shape[1:])
        self.inside((count,), None, lambda: self.body(s.body))
        self.summed = None


def _by_row(rows: Array) -> Callable[[Array | int], Array]:
    """The bytes of all columns in a row of a number, or in those of a column of numbers."""
    return lambda number: rows[number, np.arange(rows.shape[1])]


__all__ = ["BlockRuns"]
