"""A Nest as statements: scalar loops, loops over lanes, register blocks, and lanes along a sum."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from aotc.ir.access import affine_stride, is_woven, stride
from aotc.ir.contents import substitute_axes
from aotc.ir.dtypes import HALVES
from aotc.ir.expr import Axis, Binary, Cast, Const, Expr, Load, Var, substitute
from aotc.ir.kernel.plan_stages import Contract, Nest, Unrolled
from aotc.ir.numbers.narrow import FLOAT_LANES
from aotc.ir.program import Fold
from aotc.ir.simplify import simplify, upper
from aotc.ir.statements import (
    Accumulate,
    Body,
    Box,
    Copy,
    Declare,
    For,
    If,
    Let,
    Put,
    Range,
    Start,
    Stmt,
    Store,
    Total,
    Update,
)
from aotc.sched.expand.aligned import divide_by_vectors
from aotc.sched.expand.digit_loops import is_run, split_innermost_loop
from aotc.sched.expand.expansion import Expansion
from aotc.sched.expand.prefetch_lookups import name_places, prefetch_rows_ahead
from aotc.sched.expand.prefetch_window import prefetch_ahead_of_block


def loops(ranges: Sequence[Range], body: Sequence[Stmt]) -> Body:
    """``body`` in serial loops over ``ranges``, the first one outermost."""
    inner = tuple(body)
    for r in reversed(ranges):
        inner = (For(r.axis, r.lo, r.hi, inner),)
    return inner


def expand_nest(nest: Nest, expansion: Expansion) -> Body:
    """The statements of a Nest."""
    if not nest.vector:
        parts = split_innermost_loop(nest, expansion)
        if parts is not nest and expansion.how(nest, "quotients"):
            nest = parts
        if is_run(nest):
            return loops(nest.ranges[:-1], (_run(nest),))
        return loops(nest.ranges, (*scalar_fold(nest, expansion), Store(nest.puts)))
    lane = next((r for r in nest.ranges if r.axis.name == nest.vector), None)
    if lane is None:
        return loops(nest.ranges, _across(nest, expansion))
    if nest.block > 1:
        return (_exchanged if nest.fold == "none" else _blocked)(nest, lane, expansion)
    outer = [r for r in nest.ranges if r is not lane]
    group = registers_of(nest, lane.hi - lane.lo, expansion)
    looked, places = name_places(nest, lane, expansion)
    first: list[Stmt] = [*places, *prefetch_rows_ahead(nest, lane, outer, expansion)]
    nest = looked
    beside = stands_beside(nest, lane, expansion)
    wide, rest = _columns(nest, lane, expansion) if beside else (0, lane)
    out = [*first, *_side_by_side(nest, lane, wide, expansion)] if wide else first
    if rest is not None:
        whole = divide_by_vectors(nest, lane, expansion)
        fold = fold_in_loops(whole, whole.acc, expansion, lambda accs: (Accumulate(
            whole.fold_name, ((accs[0], whole.body),)),))
        out.append(lanes(rest, (*fold, Store(whole.puts)), group))
    return loops(outer, out)


def expand_unrolled(stage: Unrolled, expansion: Expansion) -> Body:
    """Loops over points, the flags of a point, then its statements for every step of the lanes."""
    *outer, lane = stage.ranges
    body: list[Stmt] = []
    for s in stage.body:
        if isinstance(s, Let):
            body.append(s)
        else:
            store = Store((Put(s.buffer, s.offset, s.value),))
            body.append(store if s.guard is None else If(s.guard, (store,)))
    # many values live at once: one register each
    lanes = For(lane.axis, lane.lo, lane.hi, tuple(body), "lanes",
                group=expansion.vectors.groups[-1])
    return loops(outer, (*(Let(v, cond) for v, cond in stage.flags), lanes))


def lanes(r: Range, body: Sequence[Stmt], group: int = 1, narrow: bool = False) -> For:
    """``body`` for the values of a range side by side in lanes."""
    return For(r.axis, r.lo, r.hi, tuple(body), "lanes", group=group, narrow=narrow)


def registers_of(stage: Contract | Nest, extent: Expr, expansion: Expansion,
                 key: str = "registers") -> int:
    """The registers of one vector value of a stage: up to its choice ``key``, as many as ``extent``
    lanes fill at a usual vector length; 1 where vectors have a fixed length."""
    facts, lanes = expansion.vectors, upper(simplify(extent))
    if facts.fixed:
        return 1
    most = expansion.how(stage, key)
    return next((g for g in facts.groups if g <= most and (
        lanes is None or g * facts.usual <= lanes)), facts.groups[-1])


def is_blocked(nest: Nest) -> bool:
    """True for a window of which a block of outputs is computed at once."""
    return nest.block > 1 and nest.fold != "none" and not nest.folds_lanes


# ---------------------------------------------------------------- folds

def fold_in_loops(nest: Nest, accs: Sequence[Var], expansion: Expansion,
                  step: Callable[[Sequence[Var]], Sequence[Stmt]],
                  around: Callable[[tuple[Range, ...], Sequence[Stmt]], Body] = loops) -> Body:
    """Loops over a Nest's reduction around ``step(accumulators)``, which begin before them.  Each
    part of a sum has accumulators of its own, which then join the whole.  ``around`` makes the
    loops of one part."""
    if nest.fold == "none":
        return ()
    nest, ends = bind_ends(nest, expansion)
    first: Body = (*(Start(a, nest.fold_name) for a in accs), *ends)
    if not nest.parts:
        return (*first, *around(nest.reduce, step(accs)))
    own = [Var(expansion.fresh("piece"), a.dtype) for a in accs]
    part = (*(Start(p, nest.fold_name) for p in own),
            *around(nest.reduce[nest.parts:], step(own)),
            *(Accumulate("sum", ((a, p),)) for a, p in zip(accs, own)))
    return (*first, *loops(nest.reduce[:nest.parts], part))


def bind_ends(nest: Nest, expansion: Expansion) -> tuple[Nest, Body]:
    """(the Nest with names of its own for the ends of its reduction that data says, the statements
    that bind them)."""
    if not nest.ends:
        return nest, ()
    own = [Axis(expansion.fresh("bound"), v.extent) for v, _ in nest.ends]
    names: dict[Expr, Expr] = {v: new for (v, _), new in zip(nest.ends, own)}
    return (replace(nest, reduce=substitute_axes(nest.reduce, names), ends=()),
            tuple(Let(new, e) for (_, e), new in zip(nest.ends, own)))


def scalar_fold(nest: Nest, expansion: Expansion) -> Body:
    """The fold of scalars; nothing without one."""
    if isinstance(nest.fold, Fold):
        return _states(nest, nest.fold, expansion)
    return fold_in_loops(nest, nest.acc, expansion, lambda accs: (
        Accumulate(nest.fold_name, ((accs[0], nest.body),)),))


def _states(nest: Nest, fold: Fold, expansion: Expansion) -> Body:
    """A fold with several states."""
    x = Var(expansion.fresh("element"), nest.body.dtype)
    new = tuple(substitute(e, {Var("x", x.dtype): x}) for e in fold.update)
    return (*(Declare(v, e) for v, e in zip(nest.acc, fold.init)),
            *loops(nest.reduce, (Let(x, nest.body), Update(nest.acc, new))))


def _across(nest: Nest, expansion: Expansion) -> Body:
    """Lanes along the reduced axis: each folds its share."""
    nest, ends = bind_ends(nest, expansion)
    lane, acc = nest.reduce[-1], nest.acc[0]
    total = Var(expansion.fresh("total"), acc.dtype)
    group = registers_of(nest, lane.hi - lane.lo, expansion)
    share = (Start(total, nest.fold_name, across=group), *loops(nest.reduce[nest.parts:-1], (
        lanes(lane, (Accumulate(nest.fold_name, ((total, nest.body),)),), group),)))
    if not nest.parts:
        return (*ends, *share, Total(acc, nest.fold_name, total), Store(nest.puts))
    parts = (*share, Total(acc, nest.fold_name, total, joins=True))
    return (*ends, Start(acc, nest.fold_name), *loops(nest.reduce[:nest.parts], parts),
            Store(nest.puts))


# ---------------------------------------------------------------- copies

def _run(nest: Nest) -> Copy:
    """The innermost loop of a Nest that copies elements which lie side by side."""
    (put,), r = nest.puts, nest.ranges[-1]
    assert isinstance(put.value, Load), put  # so ``is_run`` says
    to, source = (Box(b, simplify(substitute(at, {r.axis: r.lo})), (Const(1),)) for b, at in (
        (put.buffer, put.offset), (put.value.buffer, put.value.index[0])))
    return Copy(to, source, (simplify(r.hi - r.lo),), put.value.dtype)


def _exchanged(nest: Nest, lane: Range, expansion: Expansion) -> Body:
    """A move that reads neighbours along the lane axis and writes them along the block axis."""
    block = next(r for r in nest.ranges if r.axis.name == nest.block_axis)
    (put,) = nest.puts
    assert isinstance(put.value, Load), put  # a move
    first = {r.axis: r.lo for r in (lane, block)}
    source, to = (Box(b, simplify(substitute(at, first)),
                      tuple(affine_stride(at, r.axis) for r in (block, lane)))
                  for b, at in ((put.value.buffer, put.value.index[0]), (put.buffer, put.offset)))
    counts = tuple(simplify(r.hi - r.lo) for r in (block, lane))
    outer = [r for r in nest.ranges if r not in (lane, block)]
    woven = is_woven(put.offset, lane.axis, block.axis) and (block.lo, block.hi) == (
        Const(0), block.axis.extent)
    form = "woven" if woven else "transposed"
    return loops(outer, (Copy(to, source, counts, put.value.dtype, form),))


# ---------------------------------------------------------------- several vectors at once

def _columns(nest: Nest, lane: Range, expansion: Expansion) -> tuple[int, Range | None]:
    """(vectors side by side, Range of the lanes behind them, None for an empty one) of a Nest that
    ``stands_beside`` is true of; (0, the whole Range) for one vector after the other."""
    vectors, extent = whole_vectors(nest, lane), simplify(lane.hi - lane.lo)
    wide = min(expansion.how(nest, "columns"), vectors)
    if wide < 2 or not is_long(nest, expansion.how(nest, "columns_from")):
        return 0, lane
    done = vectors // wide * wide * nest.lanes
    return wide, None if extent == Const(done) else Range(
        lane.axis, simplify(lane.lo + done), lane.hi)


def stands_beside(nest: Nest, lane: Range, expansion: Expansion) -> bool:
    """True for a fold whose steps lie outside the lanes in memory, several vectors of which may
    stand side by side.

    One vector after another would come back to every row's cache lines, and each step waits for
    the one before it.  Side by side they share the lines and their chains overlap; every lane
    folds its values in the same order either way."""
    if nest.fold == "none" or not expansion.vectors.fixed or nest.lanes == 1:
        return False
    return whole_vectors(nest, lane) > 1 and _beside(nest.body, lane.axis)


def is_long(nest: Nest, least: int) -> bool:
    """True for a fold of at least so many steps, or of a number that is not known."""
    steps = simplify(prod((r.hi - r.lo for r in nest.reduce), start=Const(1)))
    return not isinstance(steps, Const) or steps.value >= least


def whole_vectors(nest: Nest, lane: Range) -> int:
    """Whole vectors of a Nest's lanes, of Range ``lane``; 0 where their number is not known."""
    extent = simplify(lane.hi - lane.lo)
    return extent.value // nest.lanes if isinstance(extent, Const) else 0


def _beside(e: Expr, lane: Axis) -> bool:
    """True for elements, and sums, differences and products of some, whose lanes lie side by side
    in memory or are all the same."""
    if isinstance(e, Binary):
        return e.op in ("add", "sub", "mul") and all(_beside(x, lane) for x in (e.a, e.b))
    if isinstance(e, Cast) and e.x.dtype in HALVES:
        e = e.x
    return isinstance(e, Const) or isinstance(e, Load) and e.dtype in FLOAT_LANES and (
        stride(e.index[0], lane) in (Const(0), Const(1)))


def _side_by_side(nest: Nest, lane: Range, wide: int, expansion: Expansion) -> Body:
    """The vectors of lanes that stand side by side, ``wide`` at a time."""
    step = wide * nest.lanes
    at: list[dict[Expr, Expr]] = [{lane.axis: simplify(lane.axis + u * nest.lanes)}
                                  for u in range(wide)]
    accs = [Var(expansion.fresh("acc"), nest.acc[0].dtype) for _ in range(wide)]
    body = fold_in_loops(nest, accs, expansion, lambda accs: [Accumulate(nest.fold_name, (
        (a, simplify(substitute(nest.body, e))),)) for a, e in zip(accs, at)])
    storing = [_moved(nest, {**e, nest.acc[0]: a}) for a, e in zip(accs, at)]
    count = upper(simplify(lane.hi - lane.lo)) or 0
    end = simplify(lane.lo + count // step * step)
    return (For(lane.axis, lane.lo, end, (*body, *storing), "lanes", step=step,
                width=nest.lanes),)


def _moved(nest: Nest, new: dict[Expr, Expr]) -> Store:
    """The stores of a Nest with expressions in place of axes."""
    return Store(tuple(Put(p.buffer, *(simplify(substitute(e, new)) for e in (p.offset, p.value)))
                       for p in nest.puts))


def _blocked(nest: Nest, lane: Range, expansion: Expansion) -> Body:
    """Loops in which the block axis advances by ``block`` outputs at once, then one by one."""
    at = next(i for i, r in enumerate(nest.ranges) if r.axis.name == nest.block_axis)
    r, after = nest.ranges[at], [x for x in nest.ranges[at + 1:] if x is not lane]
    group = registers_of(nest, lane.hi - lane.lo, expansion, "block_registers")
    body, rest = (
        loops(after, (lanes(lane, _outputs(nest, lane.axis, r.axis, n, expansion), group),))
        for n in (nest.block, 1))
    return loops(nest.ranges[:at], (For(r.axis, r.lo, r.hi, body, step=nest.block, rest=rest),))


def _outputs(nest: Nest, lane: Axis, axis: Axis, count: int, expansion: Expansion) -> Body:
    """``count`` neighbouring outputs: taps written out, equal loads shared."""
    taps = next(r for r in nest.reduce if r.axis.name == nest.taps)
    extent = upper(taps.axis.extent)
    assert extent is not None, taps  # a window's block has constant taps
    accs = [Var(expansion.fresh("acc"), nest.acc[0].dtype) for _ in range(count)]
    bodies = [(u, simplify(substitute(nest.body, {axis: axis + u, taps.axis: Const(t)})))
              for t in range(extent) for u in range(count)]
    outer = _without(nest, taps)
    out = [*fold_in_loops(outer, accs, expansion, lambda accs: (Accumulate(
        nest.fold_name, tuple((accs[u], b) for u, b in bodies)),))]
    if count == nest.block:
        out += prefetch_ahead_of_block(nest, lane, axis, expansion)
    return (*out, *(_moved(nest, {axis: axis + u, nest.acc[0]: a}) for u, a in enumerate(accs)))


def _without(nest: Nest, taps: Range) -> Nest:
    return replace(nest, reduce=tuple(r for r in nest.reduce if r is not taps))
