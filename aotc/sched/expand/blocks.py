"""A Nest as statements of a block of threads that share a work item."""

from dataclasses import replace

from aotc.ir.block_statements import BlockArray, Neighbours
from aotc.ir.contents import substitute_axes
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import (
    Axis,
    Binary,
    Const,
    Expr,
    Load,
    Var,
    compare,
    minimum,
    substitute,
)
from aotc.ir.kernel.plan_stages import Nest, points
from aotc.ir.simplify import are_equal, simplify
from aotc.ir.statements import (
    OWN,
    Accumulate,
    Barrier,
    Body,
    Declare,
    First,
    For,
    If,
    Let,
    Put,
    Range,
    Spread,
    Start,
    Store,
    Total,
    Update,
)
from aotc.sched.expand.expansion import Expansion
from aotc.sched.expand.nests import bind_ends, fold_in_loops, scalar_fold


def shared_nest(nest: Nest, expansion: Expansion, lanes: int, base: int,
                followed: bool = True) -> Body:
    """The statements of a Nest whose points threads share; a row whose lanes lie along the reduced
    axis is folded by ``nest.team`` times ``lanes`` threads, any other by ``nest.team``.  base: byte
    of the block's memory from which on a fold may use it; if ``followed`` by others that may, too,
    those of a team wait behind it."""
    behind: Body = (Barrier(),) if nest.team > 1 and followed else ()
    if not nest.folds_lanes:
        if nest.team > 1:
            return (*_columns_together(nest, expansion, base), *behind)
        point = (*scalar_fold(nest, expansion), Store(nest.puts))
        return _spread_wide(nest, nest.ranges, "threads", 1, point, expansion)
    size, acc, fold = lanes * nest.team, nest.acc[0], nest.fold_name
    share = fold_in_loops(nest, nest.acc, expansion, lambda accs: (
        Accumulate(fold, ((accs[0], nest.body),)),),
        lambda ranges, body: _spread_wide(nest, ranges, "group", size, tuple(body), expansion))
    row = (*share, Total(acc, fold, acc, threads=size), First(size, (Store(nest.puts),)))
    return (_spread(nest.ranges, "groups", size, row), *behind)


def _columns_together(nest: Nest, expansion: Expansion, base: int) -> Body:
    """Points side by side, as their elements lie, and of each point as many threads as there are
    slices of its terms; one of them folds what they have."""
    most = points(nest.ranges)
    assert most is not None, nest.row  # ``check_team`` asks for it
    nest, ends = bind_ends(nest, expansion)
    slice_, s = (Axis(OWN + n, Const(nest.team)) for n in ("slice", "s"))
    at = simplify(_number(nest.ranges))
    several = len(nest.acc) > 1
    names = {v: expansion.fresh(f"parts_{v.name}" if several else "parts") for v in nest.acc}
    arrays, end = list[BlockArray](), base
    for v in sorted(nest.acc, key=lambda v: -DTYPES[v.dtype].size):  # so that all are aligned
        arrays.append(BlockArray(names[v], v.dtype, (nest.team, most), end, "what threads have"))
        end += arrays[-1].elements * DTYPES[v.dtype].size
    share = (_sliced if isinstance(nest.fold, str) else _in_order)(nest, slice_)
    places = tuple(Put(names[v], simplify(slice_ * most + at), v) for v in nest.acc)
    parts = tuple(Load(names[v], (simplify(s * most + at),), v.dtype) for v in nest.acc)
    return (
        *arrays,
        _spread((Range(slice_, Const(0), Const(nest.team)), *nest.ranges), "threads", 1,
                (*ends, *scalar_fold(share, expansion), Store(places))),
        Barrier(),
        _spread(nest.ranges, "threads", 1, (
            *_joined(nest, s, parts, expansion), Store(nest.puts))))


def _joined(nest: Nest, s: Axis, parts: tuple[Load, ...], expansion: Expansion) -> Body:
    """The fold of what the slices ``s`` have.  A slice behind the first that has picked no element
    says the place 0, where none of its elements stands."""
    if isinstance(nest.fold, str):
        total = Accumulate(nest.fold, ((nest.acc[0], parts[0]),))
        return Start(nest.acc[0], nest.fold), For(s, Const(0), Const(nest.team), (total,))
    (axis,) = (r.axis for r in nest.reduce)
    x = Var(expansion.fresh("element"), parts[0].dtype)
    found = Binary("or", compare("eq", s, Const(0)), compare("ne", axis, Const(0)))
    update = Update(nest.acc, tuple(
        substitute(e, {Var("x", x.dtype): x}) for e in nest.fold.update))
    return (*(Declare(v, e) for v, e in zip(nest.acc, nest.fold.init)),
            For(s, Const(0), Const(nest.team), (
                Let(x, parts[0]), Let(axis, parts[1]), If(found, (update,)))))


def _in_order(nest: Nest, slice_: Axis) -> Nest:
    """The Nest with the steps of one slice of its loop: of neighbours, in their order."""
    (loop,) = nest.reduce
    each = simplify((loop.hi - loop.lo + (nest.team - 1)) // nest.team)
    first = simplify(loop.lo + slice_ * each)
    return replace(nest, reduce=(Range(loop.axis, first, simplify(
        minimum(loop.hi, first + each))),))


def _sliced(nest: Nest, slice_: Axis) -> Nest:
    """The Nest with every so-many-th step, from the number of a slice on, of the loop that has most
    of them; where a sum has parts, of the first loop over those."""
    loop = nest.reduce[0] if nest.parts else max(nest.reduce, key=lambda r: points((r,)) or 1 << 62)
    team, n = nest.team, simplify(loop.hi - loop.lo)
    turns = (n + (team - 1) - slice_) // team
    if isinstance(n, Const) and n.value % team == 0:
        turns = Const(n.value // team)
    turn = Axis(f"{OWN}turn", simplify((loop.axis.extent + (team - 1)) // team))
    new: dict[Expr, Expr] = {loop.axis: simplify(loop.lo + turn * team + slice_)}
    reduce = tuple(Range(turn, Const(0), simplify(turns)) if r is loop else
                   substitute_axes((r,), new)[0] for r in nest.reduce)
    return replace(nest, reduce=reduce, body=substitute_axes(nest.body, new))


def _number(ranges: tuple[Range, ...]) -> Expr:
    """The number of a point among all that there may be, the last range counting fastest."""
    number: Expr = Const(0)
    for r in ranges:
        number = number * (points((r,)) or 1) + (r.axis - r.lo)
    return number


def _spread_wide(nest: Nest, ranges: tuple[Range, ...], over: str, size: int, body: Body,
                 expansion: Expansion) -> Body:
    """``body`` for the points of ``ranges``, of the last of which a thread has as many neighbours
    as ``nest.wide`` says, and one of what is left behind them."""
    if nest.wide is None:
        return (_spread(ranges, over, size, body),)
    *outer, r = ranges
    width, length = nest.wide.width, simplify(r.hi - r.lo)
    count = simplify(length // width)
    part = Axis(expansion.fresh("part"), simplify((r.axis.extent + (width - 1)) // width))
    first = simplify(r.lo + part * width)
    wide = _spread((*outer, Range(part, Const(0), count)), over, size, (
        Neighbours(r.axis, first, nest.wide, body),))
    if are_equal(count * width, length):
        return (wide,)
    rest = _spread((*outer, Range(r.axis, simplify(r.lo + count * width), r.hi)), over, size, body)
    return (wide, rest)


def _spread(ranges: tuple[Range, ...], over: str, size: int, body: Body) -> Spread:
    return Spread(ranges, over, size, body)


__all__ = ["shared_nest"]
