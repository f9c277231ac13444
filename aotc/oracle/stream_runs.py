"""The statements of streams executed in numpy: numbers of rows are arrays that stay from block to
block."""

from collections.abc import Callable

import numpy as np

from aotc.ir.dtypes import BF16, HALF, TF32, Array, from_bf16, to_bf16, to_tf32
from aotc.ir.kernel.stream_statements import Assign, CarryRows, HeldTile, JoinRows, RowNumbers
from aotc.oracle.block_runs import BlockRuns


class StreamRuns(BlockRuns):
    """The statements of ``stream_statements.py``."""

    def row_numbers(self, s: RowNumbers) -> None:
        self.names[s.var.name] = np.full(s.sums.mr, self.now(s.value), np.float32)

    def assign(self, s: Assign) -> None:
        there = self.names[s.var.name]  # what the sums are, seen by columns
        new = self.full(self.now(s.value))
        there[...] = new if self.mask is None else np.where(self.mask, new, there)

    def carry_rows(self, s: CarryRows) -> None:
        scores, sums = self.block_sums[s.scores.name][0], self.block_sums[s.into.name][0]
        greatest, total = self.names[s.greatest.name], self.names[s.total.name]
        scores *= np.float32(s.scale)
        with np.errstate(invalid="ignore", over="ignore"):
            new = np.maximum(greatest, scores.max(axis=1))
            base = np.where(new == -np.inf, np.float32(0), new)
            change = np.exp(greatest - base)
            scores[...] = np.exp(scores - base[:, None])
            total[...] = total * change + scores.sum(axis=1)
            sums *= change[:, None]
            greatest[...] = new

    def join_rows(self, s: JoinRows) -> None:
        pass  # which thread has a share is nobody's affair here

    def held_tile(self, s: HeldTile) -> None:
        shape = (s.sums.nr, s.held.nr) if s.by_columns else (s.held.nr, s.sums.nr)
        b = self.operand(s.b, *shape, s.swizzle, "f32")
        b = _ROUNDED[s.rounded](b) if s.rounds else b
        held = _ROUNDED[s.rounded](self.block_sums[s.held.name][0])
        with np.errstate(invalid="ignore", over="ignore"):
            self.block_sums[s.sums.name][0] += held @ (b.T if s.by_columns else b)


# f32 rounded to a dtype
_ROUNDED: dict[str, Callable[[Array], Array]] = {
    HALF: lambda x: x.astype(np.float16).astype(np.float32), TF32: to_tf32,
    BF16: lambda x: from_bf16(to_bf16(x))}


__all__ = ["StreamRuns"]
