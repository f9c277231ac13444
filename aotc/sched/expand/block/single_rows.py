"""A product of single rows: the columns of a tile side by side, and a column's sum shared by as
many threads as there are slices of it."""

from aotc.ir.block_statements import BlockArray
from aotc.ir.category import zero_outside
from aotc.ir.contents import names_in
from aotc.ir.expr import Axis, Const, Expr, Load, Var, compare
from aotc.ir.kernel.operands import Operand
from aotc.ir.kernel.plan_stages import Contract
from aotc.ir.numbers.narrow import widen_half
from aotc.ir.simplify import simplify
from aotc.ir.statements import (
    OWN,
    Accumulate,
    Barrier,
    Body,
    For,
    If,
    Let,
    Put,
    Range,
    Spread,
    Start,
    Store,
)
from aotc.sched.expand.block.block_steps import BlockSteps
from aotc.sched.expand.nests import loops
from aotc.sched.expand.tile_loops import flat_index

PARTS = f"{OWN}parts"


def single_rows(at: BlockSteps, order: str) -> Body:
    """The statements of the Contract, without the loops around it."""
    c, lane, nr, slices = at.c, at.c.n.axis, at.nr, at.teams
    part, slice_, column = (Var(f"{OWN}part_sum", "f32"), *(
        Axis(OWN + n, Const(k)) for n, k in (("slice", slices), ("column", nr))))
    a, b = element(c, c.a, c.micro.dtypes.a), element(c, c.b, c.micro.dtypes.b)
    here = Let(lane, simplify(at.n0 + column))

    def existing(body: Body) -> Body:
        return body if at.whole("columns") else (If(compare("lt", lane, c.n.hi), body),)

    term = Accumulate("sum", ((part, a * b),))
    sums = loops(c.taps, _each_term(at, slice_, term))
    place = simplify(slice_ * nr + column)
    own = (Range(slice_, Const(0), Const(slices)), Range(column, Const(0), Const(nr)))
    s = Axis(f"{OWN}s", Const(slices))
    total = Accumulate("sum", ((c.acc, Load(PARTS, (simplify(s * nr + column),), "f32")),))
    body: Body = (
        *at.digits(c.m, at.number, names_in((a, b, c.puts))),
        Spread(own, "threads", at.threads, (
            here, Start(part, "sum"), *existing(sums), Store((Put(PARTS, place, part),)))),
        Barrier(),
        Spread(own[1:], "threads", at.threads, (here, *existing((
            Start(c.acc, "sum"), For(s, Const(0), Const(slices), (total,)), Store(c.puts))))),
        *((Barrier(),) if c.again or at.mr > 1 else ()))

    def rows(inner: Body) -> For:
        return For(at.number, Const(0), at.rows, inner)

    around = (rows, at.columns) if order == "rows" else (at.columns, rows)
    for loop in reversed(around):
        body = (loop(body),)
    return (BlockArray(PARTS, "f32", (slices, nr), at.base, "a column's sums"), *at.lets(), *body)


def _each_term(at: BlockSteps, slice_: Expr, term: Accumulate) -> Body:
    """Every so-many-th term of the sum, from the number of a slice on: of a known sum, first those
    that all slices have."""
    k, slices = at.c.k.axis, at.teams
    if not isinstance(k.extent, Const):
        return (For(k, slice_, k.extent, (term,), step=slices),)
    turns, rest = divmod(k.extent.value, slices)
    turn = Axis(f"{OWN}turn", Const(max(turns, 1)))
    all_: Body = (For(turn, Const(0), Const(turns), (
        Let(k, simplify(turn * slices + slice_)), term)),) if turns else ()
    some: Body = (If(compare("lt", slice_, rest), (
        Let(k, simplify(slice_ + turns * slices)), term)),) if rest else ()
    return (*all_, *some)


def element(c: Contract, o: Operand, dtype: str) -> Expr:
    """The value, f32, of an operand's element of ``dtype`` at the loops' axes."""
    if o.mode == "packed":
        return o.packed
    load = Load(o.buffer, (simplify(_offset(c, o)),), dtype)
    return zero_outside(load if dtype == "f32" else widen_half(load), o.guard)


def _offset(c: Contract, o: Operand) -> Expr:
    """Element offset of a row operand, a panel or direct columns at the loops' axes."""
    if o.mode == "rows":
        return o.offset + c.k.axis * o.stride
    if o.mode == "direct":
        return o.offset + c.k.axis * o.stride + c.n.axis
    nr = c.micro.nr
    return o.offset + flat_index((*c.taps, c.k)) * nr + c.n.axis % nr


__all__ = ["PARTS", "element", "single_rows"]
