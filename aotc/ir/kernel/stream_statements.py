"""The statements of a product whose rows are the weights that another product's sums give, made and
used block by block (``sched/rows/stream_stages.py``): all stays in the registers of a block's
threads.

    stmt = RowNumbers | Assign | CarryRows | JoinRows | HeldTile
"""

from dataclasses import dataclass

from aotc.ir.block_statements import Sums, Swizzle
from aotc.ir.expr import Expr, Var, show
from aotc.ir.statements import Box, Stmt


@dataclass(frozen=True)
class RowNumbers(Stmt):
    """``var`` is an f32 for each row of ``sums``, in the registers of the threads that have sums
    there: ``value`` at first.  Inside of ``Owned`` rows it is that of the row."""

    var: Var
    sums: Sums
    value: Expr

    def lines(self) -> list[str]:
        return [f"{self.var.name} of the rows of {self.sums.name} = {show(self.value)}"]


@dataclass(frozen=True)
class Assign(Stmt):
    """The sum at work, whose name is ``var``, becomes ``value``."""

    var: Var
    value: Expr

    def lines(self) -> list[str]:
        return [f"{self.var.name} <- {show(self.value)}"]


@dataclass(frozen=True)
class CarryRows(Stmt):
    """A block of scores joins what is carried of every row (online softmax):

        new      = max(greatest, max over j of scores[j] * scale)
        change   = exp(greatest - new)
        scores[j] = exp(scores[j] * scale - new)
        total    = total * change + sum over j of scores[j]
        into[n]  = into[n] * change
        greatest = new

    A row of which all is -inf so far has no difference: its exps are 0.  ``total`` is what each
    thread has of it until ``JoinRows``."""

    scores: Sums
    into: Sums
    greatest: Var
    total: Var
    scale: float = 1.0

    def lines(self) -> list[str]:
        scores, scale = self.scores.name, f" * {self.scale}" if self.scale != 1 else ""
        return [f"{scores} <- exp({scores}{scale} - {self.greatest.name}), carried with "
                f"{self.total.name} and {self.into.name}"]


@dataclass(frozen=True)
class JoinRows(Stmt):
    """``total`` of a row is the sum of what its threads have."""

    total: Var

    def lines(self) -> list[str]:
        return [f"threads join {self.total.name}"]


@dataclass(frozen=True)
class HeldTile(Stmt):
    """The products of rows that are sums join others:

        sums[i, j] += sum over k of held[i, k] * b[k, j]

    held: rounded to the dtype ``rounded``, which B's are of, or are rounded to if ``rounds``.  b:
    where they begin in the block's memory, with the elements from one row to the next; swizzle: how
    those rows are turned; by_columns: they are columns."""

    row: str
    template: str
    sums: Sums
    held: Sums
    b: Box
    rounded: str
    swizzle: Swizzle | None = None
    by_columns: bool = False
    rounds: bool = False

    def lines(self) -> list[str]:
        return [f"{self.sums.name} += {self.held.mr} x {self.held.nr} of {self.held.name} times "
                f"{self.held.nr} x {self.sums.nr} at {self.b}"]


__all__ = ["Assign", "CarryRows", "HeldTile", "JoinRows", "RowNumbers"]
