"""A Contract of a block of threads as statements: loops over tiles of its rows and columns, steps
of the sum that come to the block's memory while others are multiplied, and the epilogue of each
tile from the registers of its threads.
"""

from collections.abc import Collection, Mapping

from aotc.errors import ScheduleError, UnsupportedError
from aotc.ir.block_statements import (
    Arrived,
    BlockTile,
    Commit,
    JoinSums,
    Neighbours,
    Owned,
    Product,
    Sums,
    TeamSums,
    TurnSums,
)
from aotc.ir.contents import names_in
from aotc.ir.expr import Axis, Binary, Const, Expr, as_expr, compare
from aotc.ir.kernel.plan_kernels import Size
from aotc.ir.simplify import simplify, upper
from aotc.ir.statements import OWN, Barrier, Body, For, If, Let, Put, Stmt, Store
from aotc.sched.expand.block.block_codes import BlockCodes
from aotc.sched.expand.block.block_operands import Operands
from aotc.sched.expand.block.block_steps import OTHERS, BlockSteps
from aotc.sched.expand.block.few_rows import FewRows, few_rows, find_places
from aotc.sched.expand.block.single_rows import single_rows
from aotc.sched.expand.expansion import Expansion
from aotc.sched.expand.nests import loops

FIRST = f"{OWN}first_column"  # the first of neighbouring columns


def block_product(expansion: Expansion, at: BlockSteps, sizes: Mapping[str, Size],
                  lined: Collection[str], followed: bool) -> Body:
    """The statements of a Contract that the threads of a block share.  sizes: elements of buffers;
    lined: those that begin at a multiple of 16 bytes outside the block's memory; followed: by other
    stages.  UnsupportedError for what 32 bits do not count."""
    c = at.c
    # what is computed lies nowhere
    elements = as_expr(sizes[c.a.buffer] if c.a.mode == "rows" else 0)
    if _beyond(at.kc_value):
        raise UnsupportedError(f"{c.row}: a sum over {at.kc_value} terms; at most 2^31 fit")
    if c.a.mode == "rows" and at.row.staging is not None and _beyond(elements):
        raise UnsupportedError(f"{c.row}: {c.a.buffer} may have 2^31 elements or more; use a "
                               "packed")
    if at.row.staging is None:
        body = _few_rows(at, lined, followed, expansion.how(c, "order"))
        return loops(c.outer, (Product(c.row, at.constants, at.counters, body),))
    operands = Operands(at)
    sums = Sums("acc", at.mr, at.nr, at.teams, dtype=at.row.sums)
    of = f"parts of {at.part} steps" if at.grouping is None else "groups, times their scales"
    totals = Sums("total", at.mr, at.nr, at.teams, f"of {of}")
    parts = at.part or at.grouping is not None
    own = totals if parts else sums
    tile: Body = (*operands.row_table(), *operands.zeros_behind(), sums,
                  *((totals,) if parts else ()),
                  _steps_ahead(at, operands, sums, totals),
                  *_teams(at, own), *((Barrier(),) if c.again else ()),
                  *((TurnSums(own, c.wide.width),) if c.wide and at.row.turns else ()),
                  tile_epilogue(at, own))
    order = (at.columns, at.rows_loop)
    if expansion.how(c, "order") == "rows":
        order = (at.rows_loop, at.columns)
    for loop in reversed(order):
        tile = (loop(tile),)
    body = (*at.arrays(), *at.lets(), *tile)
    return loops(c.outer, (Product(c.row, at.constants, at.counters, body),))


def _few_rows(at: BlockSteps, lined: Collection[str], followed: bool, order: str) -> Body:
    """Rows whose operands threads read where they lie: 16 bytes of columns at a time, or else one
    by one."""
    places = find_places(at, lined)
    if places is not None:
        return few_rows(FewRows(at, lined), places, followed, order)
    if at.row.category != "contraction":
        raise ScheduleError([f"{at.c.row}: rows of {at.c.k.axis.extent} terms neither lie evenly "
                             "apart nor fit into a block's memory; use loops"])
    return single_rows(at, order)


def _beyond(count: Expr) -> bool:
    """True for what may be 2^31 or more; where there is no bound each call is checked."""
    return (upper(count) or 0) >= 1 << 31


# ---------------------------------------------------------------- steps of the sum

def _steps_ahead(at: BlockSteps, operands: Operands, sums: Sums, totals: Sums) -> For:
    """Steps that come to the block's memory, ``stages`` - 1 of them ahead of the one that is
    multiplied: what is copied while others are."""
    ahead, copies = at.stages - 1, any(map(at.is_copied, "ab"))
    begun = compare("ge", at.next, ahead)
    wait: Body = (If(begun, ((Arrived(at.stages - 2),) * copies + (Barrier(),))),)
    fetch: Body = (If(compare("lt", at.next, at.steps), (
        *at.place_of(at.next), *(() if at.c.placed else operands.fetched("a")),
        *operands.fetched("b"))),
        *(Commit(),) * copies)
    return For(at.next, Const(0), simplify(at.steps + ahead), (
        *wait, *fetch, If(begun, (Let(at.step, simplify(at.next - ahead)),
                                  _tile(at, sums, totals), *_joined(at, sums, totals)))))


def _tile(at: BlockSteps, sums: Sums, totals: Sums) -> BlockTile:
    a, b = at.step_places(at.step)
    k = at.step if at.one_tap else simplify(at.step % at.k_steps)
    return BlockTile(at.c.row, at.c.micro.template, sums, a, b, at.bk, simplify(k * at.bk),
                     None if at.whole("sum") else at.kc, at.swizzle, at.by_columns,
                     at.row.a if at.c.rounds else "",
                     None if at.grouping is None else BlockCodes(at).groups(totals))


def _joined(at: BlockSteps, sums: Sums, totals: Sums) -> Body:
    """Behind the last step of a part, what has been summed joins the totals."""
    if not at.part:
        return ()
    ends = compare("eq", simplify(at.step % at.part), at.part - 1)
    last = compare("eq", simplify(at.step + 1), at.steps)
    return (If(Binary("or", ends, last), (JoinSums(totals, sums),)),)


def _teams(at: BlockSteps, sums: Sums) -> Body:
    """The sums of the other teams join those of the first, by way of the memory of the steps."""
    if at.teams == 1:
        return ()
    return (Barrier(), TeamSums("keep", sums, OTHERS), Barrier(), TeamSums("join", sums, OTHERS))


# ---------------------------------------------------------------- results

def tile_epilogue(at: BlockSteps, sums: Sums, of_rows: tuple[Put, ...] = ()) -> Stmt:
    """What becomes of the sums of a tile.  of_rows: stored of each row, by who has its first
    column."""
    c, column = at.c, at.c.n.axis
    store: Body = (Store(c.puts),)
    if c.wide is not None:  # a thread's neighbours end where the columns do
        first = Axis(FIRST, column.extent)
        column, store = first, (Neighbours(column, first, c.wide, store),)
    if of_rows:
        store += (If(compare("eq", column, c.n.lo), (Store(of_rows),)),)
    if not at.whole("columns"):
        store = (If(compare("lt", column, c.n.hi), store),)
    columns = Owned("columns", sums, column, at.n0, store, c.acc, c.wide.width if c.wide else 1)
    digits = at.digits(c.m, at.number, names_in((*c.puts, *of_rows)))
    body: Body = (*digits, columns)
    if not at.whole("rows"):
        body = (If(compare("lt", at.number, at.rows), body),)
    return Owned("rows", sums, at.number, at.m0, body)


__all__ = ["block_product", "tile_epilogue"]
