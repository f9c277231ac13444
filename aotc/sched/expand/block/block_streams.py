"""A Stream of a block of threads as statements: rows of queries once, then block by block the keys
and values, whose scores and weights stay in registers.

    rows of A of the scores -> memory
    for every block of keys, steps ahead:
        columns of both products -> memory
        scores = A * B;  scores <- element;  carried: greatest, total, sums;  sums += scores * B
    epilogue from sums and total
"""

from dataclasses import replace
from math import inf

from aotc.ir.block_statements import (
    Arrived,
    BlockArray,
    BlockTile,
    Commit,
    Owned,
    Product,
    Sums,
    TurnSums,
)
from aotc.ir.contents import names_in
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import (
    Axis,
    Binary,
    Const,
    Expr,
    compare,
    loads,
    maximum,
    minimum,
    substitute,
)
from aotc.ir.kernel.plan_stages import Bindings, Stream
from aotc.ir.kernel.stream_statements import Assign, CarryRows, HeldTile, JoinRows, RowNumbers
from aotc.ir.simplify import lower, simplify
from aotc.ir.statements import Barrier, Body, For, If, Let, Scope, Stmt
from aotc.sched.expand.block.block_operands import Operands
from aotc.sched.expand.block.block_products import tile_epilogue
from aotc.sched.expand.block.block_steps import BlockSteps
from aotc.sched.expand.block.few_rows import plain_contract
from aotc.sched.expand.nests import loops
from aotc.target.kernel_rows import ProductRow

NONE = Const(-inf, "f32")


def stream_arrays(scores: BlockSteps, values: BlockSteps) -> tuple[BlockArray, ...]:
    """The arrays in the block's memory: one step of the scores' rows, and the stages of the columns
    of both products."""
    a, keys, *table = scores.arrays()
    size = DTYPES[a.dtype].size
    rows = replace(a, shape=(1, *a.shape[1:]), note="rows of the scores' A, BK of each, AK apart")
    keys = replace(keys, offset=rows.offset + size * rows.elements)
    mine = values.arrays()[1]
    mine = replace(mine, offset=keys.offset + size * keys.elements, note=mine.note.replace(
        "NR", "V_NR").replace("BK", "V_BK").replace("BN", "V_BN"))
    end = mine.offset + size * mine.elements
    return (rows, keys, mine, *(replace(t, offset=end) for t in table))


def plain_stream(s: Stream) -> Stream:
    """The Stream with its ranges of a single value put in."""
    values: Bindings = tuple((r.axis, r.lo) for r in (*s.values.outer, *s.values.m)
                             if isinstance(r.lo, (Axis, Const)) and simplify(
                                 r.hi - r.lo) == Const(1))
    return replace(s, scores=plain_contract(s.scores), values=plain_contract(s.values),
                   element=simplify(substitute(s.element, dict(values))))


def stream_steps(stream: Stream, rows: tuple[ProductRow, ProductRow], threads: int,
                 base: int) -> tuple[BlockSteps, BlockSteps]:
    """The steps of the scores, and of the values."""
    return (BlockSteps(stream.scores, rows[0], threads, base),
            BlockSteps(stream.values, rows[1], threads, base, "v"))


def stream_product(stream: Stream, rows: tuple[ProductRow, ProductRow], threads: int,
                   base: int) -> Body:
    """The statements of a Stream that the threads of a block share."""
    stream = plain_stream(stream)
    scores, values = stream_steps(stream, rows, threads, base)
    c = stream.values
    sums = Sums("acc", values.mr, values.nr)
    numbers = (RowNumbers(stream.greatest, sums, NONE),
               RowNumbers(stream.total, sums, Const(0.0, "f32")))
    operands = Operands(scores)
    steps, named = _steps(stream, values)
    rows_of_a: Stmt = _rows(scores, operands)
    if not _surely_has_keys(stream):
        rows_of_a = If(compare("gt", steps, 0), (rows_of_a,))
    tile: Body = (*operands.row_table(), *named, rows_of_a, sums, *numbers,
                  _blocks(stream, scores, values, sums, steps), JoinRows(stream.total),
                  Let(values.n0, Const(0)),
                  *((TurnSums(sums, c.wide.width),) if c.wide else ()),
                  tile_epilogue(values, sums, stream.states),
                  *((Barrier(),) if c.again else ()))
    body = (*stream_arrays(scores, values), *values.lets(), values.rows_loop(tile))
    return loops(c.outer, (Product(stream.row, (*scores.constants, *values.constants),
                                   (*values.counters, values.named("blocks")), body),))


def _rows(scores: BlockSteps, operands: Operands) -> Stmt:
    """The rows of the scores' A, all their terms."""
    return Scope((Let(scores.k0, Const(0)), *operands.fetched("a", Const(0))))


def _surely_has_keys(stream: Stream) -> bool:
    """True if each tile of rows has a key: parts of keys, and rows in front of all, may have
    none."""
    ends = (stream.values.k.hi, *(() if stream.bound is None else (stream.bound,)))
    return all((lower(e) or 0) >= 1 for e in ends)


def _blocks(stream: Stream, scores: BlockSteps, values: BlockSteps, sums: Sums,
            steps: Expr) -> For:
    """Blocks of columns that come to the block's memory, ``stages`` - 1 of them ahead of the one
    that is multiplied."""
    ahead = scores.stages - 1
    copies = any((scores.is_copied("a"), scores.is_copied("b"), values.is_copied("b")))
    begun = compare("ge", scores.next, ahead)
    fetch: Body = (Scope((Let(scores.n0, scores.next * scores.nr), Let(scores.k0, Const(0)),
                          *Operands(scores).fetched("b"))),
                   Scope((Let(values.n0, Const(0)), *values.place_of(values.next),
                          *Operands(values).fetched("b"))))
    wait: Body = (*(Arrived(scores.stages - 2),) * copies, Barrier())
    return For(scores.next, Const(0), simplify(steps + ahead), (
        If(begun, wait), If(compare("lt", scores.next, steps), fetch),
        *(Commit(),) * copies,
        If(begun, (Let(scores.step, simplify(scores.next - ahead)),
                   *_block(stream, scores, values, sums)))))


def _steps(stream: Stream, values: BlockSteps) -> tuple[Expr, Body]:
    """(blocks of columns that the rows of a tile have, names that they are said with)."""
    if stream.bound is None:
        return values.steps, ()
    ranges = stream.values.m
    last = {r.axis: r.hi - 1 for r in ranges}
    if len(ranges) == 1:
        (rows,) = ranges
        last = {rows.axis: rows.lo + (minimum(values.m0 + values.mr, values.rows) - 1)}
    end = maximum(substitute(stream.bound, last), Const(0))
    blocks = minimum((end + (values.bk - 1)) // values.bk, values.steps)
    return values.named("blocks"), (Let(values.named("blocks"), simplify(blocks)),)


def _block(stream: Stream, scores: BlockSteps, values: BlockSteps, sums: Sums) -> Body:
    """What becomes of one block of columns."""
    own = Sums("scores", scores.mr, scores.nr)
    a, _ = scores.step_places(Const(0))
    _, b = scores.step_places(scores.step)
    c = stream.scores
    tile = BlockTile(c.row, c.micro.template, own, a, b, scores.bk, Const(0), None,
                     scores.swizzle, scores.by_columns, scores.row.a if c.rounds else "")
    _, v = values.step_places(values.step)
    held = HeldTile(stream.values.row, stream.values.micro.template, sums, own, v,
                    values.row.a, values.swizzle[1], values.by_columns, stream.values.rounds)
    scale = _scale(stream)
    carry = CarryRows(own, sums, stream.greatest, stream.total, scale or 1.0)
    element = stream.score if scale else stream.element
    return (own, tile, *_elements(replace(stream, element=element), scores, own), carry, held)


def _scale(stream: Stream) -> float | None:
    """The positive number that scores are multiplied by, if that is all that is done to them."""
    e = stream.element
    if isinstance(e, Binary) and e.op == "mul" and e.a == stream.score and isinstance(
            e.b, Const) and 0 < e.b.value < inf:
        return float(e.b.value)
    return None


def _elements(stream: Stream, scores: BlockSteps, own: Sums) -> Body:
    """The scores as the maximum is taken of them: -inf of columns that do not exist."""
    score, element, whole = stream.score, stream.element, scores.whole("columns")
    if element == score and whole:
        return ()
    known: Body = (Assign(score, element),) if element != score else ()
    if not whole:
        there = compare("lt", stream.values.k.axis, stream.scores.n.hi)
        known = (If(there, known, (Assign(score, NONE),)),) if known else (
            If(compare("ge", stream.values.k.axis, stream.scores.n.hi), (Assign(score, NONE),)),)
    body: Body = (*scores.digits(stream.scores.m, scores.number, names_in(element)),
                  Owned("columns", own, stream.values.k.axis, scores.n0, known, score))
    if loads(element) and not scores.whole("rows"):
        body = (If(compare("lt", scores.number, scores.rows), body),)
    return (Let(scores.n0, scores.step * scores.nr),
            Owned("rows", own, scores.number, scores.m0, body))


__all__ = ["stream_arrays", "stream_product", "stream_steps"]
