"""Which row a product gets, by the facts of the rows: their operands' types and their tiles.

Operands may be numbers of f16, bf16 or tf32 whatever they are stored as: a row whose operands are
those rounds nothing of them.
"""

from collections.abc import Callable, Collection, Sequence

from aotc.ir.category import Factors
from aotc.ir.expr import Expr, Load
from aotc.ir.program import Program
from aotc.sched.cost.row_cost import row_waste
from aotc.sched.cost.wave_cost import tiles_seconds
from aotc.sched.model.held_numbers import is_held
from aotc.sched.rows.placed_rows import may_place
from aotc.sched.rows.row_reads import rows_fit
from aotc.target.base import Target
from aotc.target.kernel_rows import ProductRow


def wants_panels(row: ProductRow) -> bool:
    """True for a row that pays where columns are constants in panels only."""
    return row.shared is not None and row.shared.panels


def reads_operands(program: Program, offset: Callable[[Load], Expr], f: Factors,
                   row: ProductRow) -> bool:
    """True for a row that pays with any columns, or where they are constants and it can read the
    rows where they lie, or has room for them.  offset: of an element that is loaded."""
    constant = isinstance(f.b, Load) and f.b.buffer in program.consts
    return not wants_panels(row) or constant and rows_fit(f, row, offset)


def pick_row(target: Target, m: int, n: int, narrow: Sequence[ProductRow] = (), k: int = 0,
             exact: Collection[str] = ("f32",), items: int = 0,
             fits: Callable[[ProductRow], bool] = lambda row: not wants_panels(row)) -> ProductRow:
    """The row with the least waste (M = 1 has its own rows), of those whose operands are one of
    ``exact``, dtypes that hold the elements of both, so that nothing is rounded; or one of
    ``narrow``, those for narrower numbers, if there are some.  k: terms that a row sums at a
    time; fits: of a row that can read the operands; items: rows of the work items of several
    stages, which whole tiles of rows that are read where they lie have (0: of one)."""
    own = [u for u in target.rows("contraction") if u.a in exact]
    placed = [u for u in own if items and may_place(u) and items % u.tile.mr == 0]
    legal = narrow or placed or [u for u in own if fits(u)]
    rows = [u for u in legal if u.serves(m)] or legal
    return min(rows, key=lambda u: waste_of(target, u, m, n, k))


def waste_of(target: Target, row: ProductRow, m: int, n: int, k: int) -> float:
    """``row_waste`` of an M x N product on a target; where a work item is one tile, also what its
    workers are idle and what pads the ``k`` terms that a row sums at a time; where threads share
    that tile, the seconds of all tiles."""
    if target.machine.item_tiles > 1:
        return row_waste(row, m, n, target.tuning)
    if row.shared is None:
        return row_waste(row, m, n, target.tuning, target.machine.workers, k) / (row.rate or 1.0)
    return tiles_seconds(target.machine, row, m, n, k)


def exact_dtypes(program: Program, target: Target, f: Factors) -> tuple[str, ...]:
    """Of the operands of a target's contraction rows those dtypes that surely hold the elements of
    both factors: f32, and what is narrower."""
    kinds = dict.fromkeys(u.a for u in target.rows("contraction"))
    return tuple(d for d in kinds if d == "f32" or all(
        is_held(program, e, d) for e in (f.a, f.b)))


__all__ = ["exact_dtypes", "pick_row", "reads_operands", "wants_panels",
           "waste_of"]
