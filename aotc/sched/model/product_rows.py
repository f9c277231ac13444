"""Which row a product gets, by the facts of the rows: their operands' types and their tiles.

Operands may be numbers of f16 whatever they are stored as: a row whose operands are f16 rounds
nothing of those.
"""

from collections.abc import Sequence

from aotc.ir.category import Factors
from aotc.ir.dtypes import Array
from aotc.ir.expr import Cast, Const, Expr, Load, Where
from aotc.ir.program import Compute, Program
from aotc.passes.precision.half_weights import is_exact
from aotc.sched.cost.row_cost import row_waste
from aotc.target.base import Target
from aotc.target.kernel_rows import ProductRow

Operands = tuple[str, str]  # dtypes that hold the elements of A and of B
F32_OPERANDS: Operands = ("f32", "f32")


def pick_row(target: Target, m: int, n: int, narrow: Sequence[ProductRow] = (), k: int = 0,
             operands: Operands = F32_OPERANDS) -> ProductRow:
    """The row with the least waste (M = 1 has its own rows) for operands of f32, or one of
    ``narrow``, those for narrower numbers, if there are some.  k: terms that a row sums at a time;
    operands: what holds the elements of both, so that a row of these dtypes rounds nothing."""
    exact = narrow or [u for u in target.rows("contraction") if any(
        u.takes((*both, "f32")) for both in (F32_OPERANDS, operands))]
    rows = [u for u in exact if u.serves(m)] or exact
    return min(rows, key=lambda u: waste_of(target, u, m, n, k))


def waste_of(target: Target, row: ProductRow, m: int, n: int, k: int) -> float:
    """``row_waste`` of an M x N product on a target; where a work item is one tile, also what its
    workers are idle and what pads the ``k`` terms that a row sums at a time."""
    if target.machine.item_tiles > 1:
        return row_waste(row, m, n, target.tuning)
    return row_waste(row, m, n, target.tuning, target.machine.workers, k)


def operand_dtypes(program: Program, f: Factors) -> Operands:
    """("f16", "f16") for factors that surely are numbers of f16 both, else ``F32_OPERANDS``."""
    halves = is_half(program, f.a) and is_half(program, f.b)
    return ("f16", "f16") if halves else F32_OPERANDS


def is_half(program: Program, e: Expr) -> bool:
    """True if every value of an expression surely is a number of f16."""
    if e.dtype == "f16":
        return True
    if isinstance(e, Cast):
        return e.x.dtype == "f16"
    if isinstance(e, Where):
        return is_half(program, e.a) and is_half(program, e.b)
    if isinstance(e, Const):
        return e.value == 0
    return isinstance(e, Load) and e.dtype == "f32" and _is_half_buffer(program, e.buffer)


def _is_half_buffer(program: Program, buffer: str) -> bool:
    known: dict[str, bool] = program.known("half values")
    if buffer not in known:
        array: Array | None = program.consts.get(buffer)
        step = program.producer.get(buffer)
        known[buffer] = is_exact(array) if array is not None else (
            isinstance(step, Compute) and step.fold == "none" and len(step.outs) == 1
            and is_half(program, step.body))
    return known[buffer]


__all__ = ["F32_OPERANDS", "Operands", "is_half", "operand_dtypes", "pick_row",
           "waste_of"]
