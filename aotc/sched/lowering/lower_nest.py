"""Lowering of every stage that is a loop nest: map, move, reduction, window, loops."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from aotc.ir.access import affine_parts, linearise, stride
from aotc.ir.conditions import bounds, bounds_among, conjuncts, guard_in, guard_of
from aotc.ir.expr import (
    Axis,
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Unary,
    Where,
    as_expr,
    axes_of,
    children,
    depends_on_data,
    loads,
    maximum,
    minimum,
    substitute,
    with_children,
)
from aotc.ir.kernel.plan_stages import Bindings, Nest
from aotc.ir.program import neutral_value
from aotc.ir.read_boxes import Ranges
from aotc.ir.simplify import are_equal, simplify, split_linear, upper
from aotc.ir.stage_choice import StageChoice
from aotc.ir.statements import OWN, Put, Range
from aotc.passes.digits import static_extent
from aotc.sched.items.context import Context, scratch_order
from aotc.sched.lowering.partial_sums import split_into_parts
from aotc.sched.lowering.window_parts import Piece, Pieces, window_parts
from aotc.sched.model.boxes import Box
from aotc.sched.model.digit_stage import loop_box, loop_stage
from aotc.sched.model.slide import Kept
from aotc.sched.model.stages import Output, Stage
from aotc.target.kernel_rows import NestRow

MAX_PIECES = 64
Reduced = tuple[Expr, tuple[Range, ...], list[Expr]]  # body, loops, conditions that are left
OnRow = tuple[NestRow, Expr, tuple[Range, ...]]  # row, body, loops of the fold
LanePart = tuple[NestRow, Pieces, Expr, tuple[Range, ...]]


def lower_nest(ctx: Context, stage: Stage, row: NestRow, box: Box) -> list[Nest]:
    """Nests of one stage over its box: several where a guard splits the box into pieces."""
    choice = ctx.group.choice(stage.name)
    stage, box = loop_stage(stage, choice), loop_box(stage, box, choice)
    lanes = choice.lanes
    ranges = {a: (lo, simplify(last + 1)) for a, (lo, last) in box.items()}
    parts = [(p, *q) for part in _pieces(stage, ranges)
             for p in _lane_parts(ctx, stage, row, part, lanes)
             for q in window_parts(ctx, stage, p[0], p[1], p[3])]
    nests = []
    kept = {lanes, choice.block}
    if not isinstance(stage.fold, str):
        kept |= {a.name for e in stage.fold.update for a in axes_of(e)}
    for (row, _, body, _), sub, taps, red in parts:
        moved = {a: p.axis + p.base for a, p in sub.items() if p.axis != a}
        # an axis of one value is that value: what it alone tells apart is the same then
        single = {a: Const(p.base) for a, p in sub.items() if a.name not in kept and
                  is_zero_alone(p)}
        moved |= single
        sub = {a: p for a, p in sub.items() if a not in single}

        def here(e: Expr, moved: Mapping[Axis, Expr] = moved) -> Expr:
            return simplify(substitute(e, moved)) if moved else e

        ends, red = _ends_from_data(ctx, [Range(r.axis, here(r.lo), here(r.hi)) for r in red])
        puts = tuple(Put(o.buffer, ctx.place(o.buffer)(tuple(map(here, o.index))),
                         _rounded(linearise(here(_taken(o.value, here)), ctx.place),
                                  ctx.program.dtype(o.buffer))) for o in stage.outputs)
        body_here = (puts[0].value if stage.fold == "none" else
                     linearise(here(body), ctx.place))
        nest = _nest(ctx, stage, row, sub, red, ends, body_here, puts, lanes)
        nest = replace(nest, writing=choice.text)
        nests.append(split_into_parts(_blocked(ctx, stage, row, nest, taps)))
    return nests


def _ends_from_data(ctx: Context, ranges: Iterable[Range]) -> tuple[Bindings, tuple[Range, ...]]:
    """(names, ranges): what data says of the ends of a fold's loops as names, which lie inside of
    the loops' axes."""
    names: dict[Axis, Expr] = {}

    def named(axis: Axis, end: Expr, which: str) -> Expr:
        if not depends_on_data(end):
            return end
        name = Axis(f"{OWN}{axis.name}_{which}", simplify(axis.extent + 1))
        names[name] = linearise(end, ctx.place)
        return name

    out = tuple(Range(r.axis, named(r.axis, r.lo, "first"), named(r.axis, r.hi, "end"))
                for r in ranges)
    return tuple(names.items()), out


def _taken(value: Expr, here: Callable[[Expr], Expr]) -> Expr:
    """The branch of a map's value that a piece takes, ``here(e)`` being an expression over the
    piece: the branches of all other pieces are not to be rewritten for each of them."""
    while isinstance(value, Where) and isinstance(cond := here(value.cond), Const):
        value = value.a if cond.value else value.b
    return value


def is_zero_alone(part: Piece | Range) -> bool:
    """True if a range is 0 alone: never empty, as the range of an axis of extent 1 may be where no
    later stage of a work item reads it."""
    return (simplify(part.lo), simplify(part.hi)) == (Const(0), Const(1))


def _rounded(value: Expr, dtype: str) -> Expr:
    """The value in the dtype it is stored in: an accumulator may be wider."""
    return value if value.dtype == dtype else Cast(dtype, value)


def _blocked(ctx: Context, stage: Stage, row: NestRow, nest: Nest, taps: Axis | None) -> Nest:
    """The interior of a sliding window with its register block; edges stay as they are."""
    if taps is None:
        return nest
    axis = ctx.group.choices[stage.name].block
    return replace(nest, block=row.block, block_axis=axis, taps=taps.name)


def _lane_parts(ctx: Context, stage: Stage, row: NestRow, part: Pieces,
                lanes: str) -> list[LanePart]:
    """Split the lane axis where a guard over it starts to hold for every tap: vectors without the
    guard inside; at both edges loads of a part of the lanes, or scalar loops that skip the padding.
    Lanes that are threads keep the guard: at an edge, of few outputs, most had nothing to do.
    Yields (row, pieces, body, reduction ranges)."""
    vector = row.category != "loops"
    body, reduce, left = _reduction_ranges(stage, lanes if vector else "", bool(ctx.group.threads))
    axis = next((a for a in part if a.name == lanes), None)
    if left and vector and axis is not None and ctx.target.part_loads and all(
            bounds(c, axis) for c in left):
        return _part_load_parts(ctx, stage, row, part, axis, (body, reduce, left))
    inside = None
    if left and vector and axis is not None and not ctx.group.threads:
        inside = _where_all_hold(left, axis)
    if inside is None or axis is None:
        if left:
            assert isinstance(stage.fold, str), stage.name  # the guard is of one
            body = Where(_all(left), body, neutral_value(stage.fold, body.dtype))
        return [(row, part, body, reduce)]
    edge_body, edge_reduce, _ = _reduction_ranges(stage, "")
    edge = (ctx.target.rows("loops")[0], edge_body, edge_reduce)
    return _cut_lanes(part, axis, inside, edge, (row, body, reduce))


def _part_load_parts(ctx: Context, stage: Stage, row: NestRow, part: Pieces, axis: Axis,
                     whole: Reduced) -> list[LanePart]:
    """Like ``_lane_parts`` where a load may take any run of lanes: whole vectors without the guard
    where there are some, the guard at the load everywhere else.  whole: (body, reduction ranges,
    conditions) without the conditions in the body."""
    body, reduce, left = whole
    edge = (row, _with_guard(stage, _all(left)), reduce)
    lanes = ctx.target.lanes
    first, end = _where_all_hold(left, axis) or (0, 0)
    first = -(-first // lanes) * lanes
    end = end // lanes * lanes
    if end - first < 2 * lanes:  # not worth code of its own
        return [(row, part, *edge[1:])]
    return _cut_lanes(part, axis, (first, end), edge, (row, body, reduce))


def _cut_lanes(part: Pieces, axis: Axis, inside: tuple[int, int], edge: OnRow,
               middle: OnRow) -> list[LanePart]:
    """(row, pieces, body, reduction ranges) of the lanes before, in and behind ``inside``."""
    p = part[axis]
    out: list[LanePart] = []
    for lo, hi, (used, value, ranges) in ((0, inside[0], edge), (*inside, middle),
                                          (inside[1], static_extent(axis), edge)):
        if lo < hi:
            cut = replace(p, lo=simplify(maximum(p.lo, Const(lo))),
                          hi=simplify(minimum(p.hi, Const(hi))))
            out.append((used, {**part, axis: cut}, value, ranges))
    return out


def _with_guard(stage: Stage, cond: Expr) -> Expr:
    """A fold's body whose guard is ``cond``."""
    old = guard_in(stage.body, stage.fold)
    assert old is not None, stage.name  # the condition is of one
    new = Where(cond, old.a, old.b)
    if old is stage.body:
        return new
    assert isinstance(stage.body, Binary), stage.name  # a product with a guard
    return Binary("mul", *(new if x is old else x for x in (stage.body.a, stage.body.b)))


def _where_all_hold(conds: Iterable[Expr], axis: Axis) -> tuple[int, int] | None:
    """(first, end) of the values of a static axis for which all conditions hold, whatever the other
    axes are; None if there are none, or the conditions could not become loop bounds."""
    if not isinstance(axis.extent, Const) or any(axis not in axes_of(c) for c in conds):
        return None
    good = [v for v in range(axis.extent.value) if all(
        simplify(substitute(c, {axis: Const(v)})) == Const(True, "bool") for c in conds)]
    if not good or good[-1] - good[0] + 1 != len(good):
        return None
    return good[0], good[-1] + 1


def _nest(ctx: Context, stage: Stage, row: NestRow, part: Pieces, reduce: Iterable[Range],
          ends: Bindings, body: Expr, puts: tuple[Put, ...], lanes: str) -> Nest:
    ranges = [Range(p.axis, p.lo, p.hi) for p in part.values()]
    lane = next((p.axis for a, p in part.items() if a.name == lanes), None)
    blocked = [p.axis for a, p in part.items()
               if a.name == ctx.group.choice(stage.name).block]
    exchanged = blocked[0] if row.exchanges else None
    ranges = _by_stride(ranges, puts, lane, exchanged)
    counted = () if isinstance(stage.fold, str) else stage.fold.update  # of axes by themselves
    fixed = [*(e for r in reduce for e in (r.lo, r.hi)), *(e for _, e in ends), *blocked, *counted]
    ranges, lane, body, puts = collapse(ranges, lane, body, puts, fixed)
    reduce = list(reduce)
    red_lane = next((r.axis for r in reduce if r.axis.name == lanes), None)
    if red_lane is not None:
        reduce = [r for r in reduce if r.axis != red_lane] + [
            r for r in reduce if r.axis == red_lane]
    if not blocked:
        reduce, red_lane, body, _ = collapse(reduce, red_lane, body, (), counted)
    lane = lane or red_lane
    if stage.fold == "none":
        body = puts[0].value
    vector = lane.name if lane is not None and row.category != "loops" else ""
    nest = Nest(row.name, tuple(ranges), tuple(reduce), stage.fold, stage.acc, body, tuple(puts),
                vector, ctx.target.lanes if vector else 1, ends=ends)
    if exchanged is None:
        return nest
    assert lane is not None, stage.name  # ``check_schedule`` refuses others
    return _exchanged(nest, lane, exchanged, row)


def _exchanged(nest: Nest, lane: Axis, block: Axis, row: NestRow) -> Nest:
    """A move by transposed blocks.  A piece that reads nothing (padding), or that does not exchange
    neighbours, has its lanes along the stored ones."""
    if len(nest.puts) == 1 and _exchanges(nest.puts[0], lane, block):
        return replace(nest, block=row.block, block_axis=block.name)
    inner = [r for r in nest.ranges if r.axis == block]
    return replace(nest, vector=block.name,
                   ranges=tuple(r for r in nest.ranges if r.axis != block) + tuple(inner))


def _exchanges(put: Put, lane: Axis, block: Axis) -> bool:
    """True if a put stores, along ``block``, what lies side by side along ``lane``."""
    if not isinstance(put.value, Load) or put.value.dtype != "f32":
        return False
    source = put.value.index[0]
    found = [stride(at, a) for at in (source, put.offset) for a in (lane, block)]
    steps = [n for n in found if n is not None]
    return not loads(source) and len(steps) == 4 and (
        are_equal(steps[0], Const(1)) and are_equal(steps[3], Const(1)))


def _by_stride(ranges: Iterable[Range], puts: Sequence[Put], lane: Axis | None,
               first: Axis | None = None) -> list[Range]:
    """Loops in the order of the first output's memory, the lane axis innermost, ``first``
    outermost."""
    def key(r: Range) -> tuple[bool, bool, int]:
        step = stride(puts[0].offset, r.axis)
        n = 1 << 60 if step is None else upper(step)
        return (r.axis == lane, r.axis != first, -(n if n is not None else 1 << 40))

    return sorted(ranges, key=key)


# ---------------------------------------------------------------- collapsing loops

def collapse(ranges: Iterable[Range], lane: Axis | None, body: Expr, puts: tuple[Put, ...],
             bounds: Iterable[Expr] = ()) -> tuple[list[Range], Axis | None, Expr, tuple[Put, ...]]:
    """Merge neighbouring loops whose every use is ``outer*extent + inner``: one longer loop.
    Axes that occur in ``bounds`` (of inner loops) stay as they are."""
    ranges = list(ranges)
    fixed = {a for e in bounds for a in axes_of(e)}
    i = len(ranges) - 2
    while i >= 0:
        outer, inner = ranges[i], ranges[i + 1]
        n = simplify(inner.hi)
        if inner.lo == Const(0) and are_equal(n, inner.axis.extent) and not (
                fixed & {outer.axis, inner.axis}):
            axis = Axis(f"{outer.axis.name}_{inner.axis.name}",
                        simplify(outer.axis.extent * n))
            merged = _merge(axis, outer.axis, inner.axis, n, body, puts)
            if merged is not None:
                body, puts = merged
                ranges[i:i + 2] = [Range(axis, simplify(outer.lo * n), simplify(outer.hi * n))]
                lane = axis if lane in (outer.axis, inner.axis) else lane
        i -= 1
    return ranges, lane, body, puts


def _merge(axis: Axis, outer: Axis, inner: Axis, n: Expr, body: Expr,
           puts: Sequence[Put]) -> tuple[Expr, tuple[Put, ...]] | None:
    """Body and puts over the merged axis; None if some use is not outer*n + inner."""
    exprs = [body] + [e for p in puts for e in (p.offset, p.value)]
    out = []
    for e in exprs:
        new = _merge_expr(e, axis, outer, inner, n)
        if new is None:
            return None
        out.append(new)
    body, rest = out[0], out[1:]
    puts = tuple(type(p)(p.buffer, rest[2 * i], rest[2 * i + 1]) for i, p in enumerate(puts))
    return body, puts


def _merge_expr(e: Expr, axis: Axis, outer: Axis, inner: Axis, n: Expr) -> Expr | None:
    """Rewrite every maximal index expression of ``e``; None if one does not merge."""
    if e.dtype == "i64" and not (axes_of(e) & {outer, inner}):
        return e
    if e.dtype == "i64":
        a, b = split_linear(e, outer), split_linear(e, inner)
        if a is None or b is None or axes_of(a[0]) & {inner} or not are_equal(a[0], b[0] * n):
            return None
        return simplify(affine_parts(a[1], inner)[1] + b[0] * axis)
    kids = []
    for k in children(e):
        new = _merge_expr(k, axis, outer, inner, n)
        if new is None:
            return None
        kids.append(new)
    return with_children(e, kids)


# ---------------------------------------------------------------- guards

def _reduction_ranges(stage: Stage, lanes: str = "", threads: bool = False) -> Reduced:
    """(body, ranges, conditions): a guard whose outside is the fold's neutral value narrows the
    reduction loops, so padding taps are skipped and never read, nor are the rows outside of a run
    that data says.  What cannot be narrowed is returned as conditions; so is a guard over the axis
    ``lanes``: the lanes of one vector share their loops.  threads: they are threads, each of which
    may go from one end that data says to the other."""
    full: dict[Axis, tuple[Expr, Expr]] = {r: (Const(0), r.extent) for r in stage.raxes}
    left: list[Expr] = []
    body = stage.body
    if isinstance(stage.fold, str) and stage.fold != "none":
        found = guard_of(body, stage.fold)
        if found is not None:
            cond, body = found
            for c in conjuncts(cond):
                narrowed = bounds_among(c, stage.raxes)
                across = any(a.name == lanes for a in axes_of(c) if a in stage.axes)
                if narrowed is None or across and not (threads and depends_on_data(c)):
                    left.append(c)
                    continue
                r, lo, hi = narrowed
                a, b = full[r]
                full[r] = (simplify(maximum(a, lo)) if lo is not None else a,
                           simplify(minimum(b, hi)) if hi is not None else b)
    ranges = tuple(Range(r, simplify(lo), simplify(hi)) for r, (lo, hi) in full.items())
    return body, ranges, left


def _all(conds: Sequence[Expr]) -> Expr:
    out = conds[0]
    for c in conds[1:]:
        out = Binary("and", out, c)
    return out


# ---------------------------------------------------------------- pieces

def _pieces(stage: Stage, ranges: Ranges) -> list[dict[Axis, Piece]]:
    """Split the box where top-level guards of a map change: one {axis: Piece} per non-empty piece.
    Guards on one axis and constants only; others stay conditions."""
    whole = {a: Piece(a, 0, lo, hi) for a, (lo, hi) in ranges.items()}
    if stage.fold != "none" or len(stage.outputs) != 1:
        return [whole]
    cuts: dict[Axis, set[int]] = {}
    for cond in _top_conditions(stage.outputs[0].value):
        for c in conjuncts(cond):
            hit = _cut(c, ranges)
            if hit is not None:
                cuts.setdefault(hit[0], set()).add(hit[1])
    count = 1
    for points in cuts.values():
        count *= len(points) + 1
    if not cuts or count > MAX_PIECES:
        return [whole]
    parts = [whole]
    for axis, points in cuts.items():
        starts = [0, *sorted(points)]
        ends = [*map(Const, starts[1:]), axis.extent]
        parts = [p | {axis: _piece(axis, a, b, ranges[axis])}
                 for p in parts for a, b in zip(starts, ends)]
    return [p for p in parts if not any(_empty(x) for x in p.values())]


def _piece(axis: Axis, start: int, end: Expr, box: tuple[Expr, Expr]) -> Piece:
    """The piece start..end of an axis, clipped to the box, on an axis of its own extent."""
    new = Axis(f"{axis.name}_{start}", simplify(end - start))
    return Piece(new, start, simplify(maximum(box[0] - start, Const(0))),
                 simplify(minimum(box[1] - start, new.extent)))


def _empty(piece: Piece) -> bool:
    top = upper(simplify(piece.hi - piece.lo))
    return top is not None and top <= 0


def _top_conditions(value: Expr) -> list[Expr]:
    """Conditions of Wheres that pieces can decide, outermost first, each once: values that share
    their parts are walked as often as there are parts, not as there are paths."""
    found, seen, todo = [], set(), [value]
    while todo:
        e = todo.pop()
        if e in seen or not isinstance(e, (Where, Binary, Unary, Cast)):
            continue
        seen.add(e)
        if isinstance(e, Where):
            found.append(e.cond)
        todo += (e.x,) if isinstance(e, (Unary, Cast)) else (e.b, e.a)
    return found


def _cut(cond: Expr, ranges: Collection[Axis]) -> tuple[Axis, int] | None:
    """(axis, integer point where the condition flips) of a one-axis comparison, else None."""
    if not isinstance(cond, Binary) or cond.op not in ("lt", "le", "gt", "ge"):
        return None
    if cond.a.dtype != "i64":
        return None
    diff = simplify(cond.a - cond.b)
    found = axes_of(diff)
    if len(found) != 1:
        return None
    axis = next(iter(found))
    parts = split_linear(diff, axis)
    if axis not in ranges or parts is None:
        return None
    slope, rest = parts
    if not isinstance(slope, Const) or not isinstance(rest, Const) or abs(slope.value) != 1:
        return None
    c = slope.value
    root = -rest.value * c  # diff == 0 at axis == root
    point = root + (1 if (cond.op in ("le", "gt")) == (c > 0) else 0)
    return (axis, point) if 0 < point < (upper(axis.extent) or 1 << 62) else None


def lower_kept(ctx: Context, kept: Iterable[Kept]) -> list[Nest]:
    """The nests that move what a stage keeps to the front of its scratch, rows in order."""
    nests = []
    for k in kept:
        dims = ctx.local[k.buffer]
        axes = tuple(Axis(f"r{d}", as_expr(n)) for d, (_, n) in enumerate(dims))
        here = tuple(simplify(lo + a) for a, (lo, _) in zip(axes, dims))
        there = here[:k.dim] + (simplify(here[k.dim] + k.shift),) + here[k.dim + 1:]
        value = Load(k.buffer, there, ctx.program.dtype(k.buffer))
        stage = Stage(f"{k.buffer}_kept", axes, (), "none", value, (),
                      (Output(k.buffer, here, value),), ())
        lane = axes[scratch_order(ctx.schedule.layouts.get(k.buffer), len(dims))[-1]]
        rows = tuple(u for u in ctx.target.rows("move") if value.dtype in u.stored)
        row = (rows or ctx.target.rows("loops"))[0]
        # whole rows are simpler, where nobody asks what else lies there
        exact = ctx.target.machine.on_copies
        box: Box = {a: (Const(0), last if exact else simplify(a.extent - 1))
                    for a, last in zip(axes, k.last)}
        box[axes[k.dim]] = (Const(0), simplify(k.count - 1))
        choices = ctx.group.choices | ({stage.name: StageChoice(lanes=lane.name)} if rows else {})
        nests += lower_nest(replace(ctx, group=replace(ctx.group, choices=choices)), stage, row,
                            box)
    return nests
