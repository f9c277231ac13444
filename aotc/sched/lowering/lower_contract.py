"""Lowering of a contraction stage onto a register-tiled micro-kernel."""

from dataclasses import replace
from math import prod

from aotc.ir.access import affine_parts, affine_stride, flat_index, is_multiple, linearise
from aotc.ir.category import Axes, Dtypes, Factors
from aotc.ir.expr import Axis, Const, Expr, Load, Where, substitute
from aotc.ir.kernel.operands import Operand, Slices
from aotc.ir.kernel.plan_kernels import Size, largest_size
from aotc.ir.kernel.plan_stages import Contract
from aotc.ir.numbers.grouped import Grouping
from aotc.ir.numbers.narrow import widen_half
from aotc.ir.simplify import are_equal, simplify, upper
from aotc.ir.statements import Put, Range
from aotc.ir.tile_statements import MicroKernel
from aotc.sched.accelerator.kernels import sum_elements, tap_step, unit_rows
from aotc.sched.items.context import Context
from aotc.sched.lowering.lower_nest import collapse
from aotc.sched.lowering.partial_sums import part_of
from aotc.sched.model.boxes import Box
from aotc.sched.model.held_numbers import is_held
from aotc.sched.model.stages import Stage, factors_for
from aotc.sched.model.stored_rows import rows_in_place
from aotc.sched.rows.panels import panel_base
from aotc.target.kernel_rows import ProductRow

_GRAINS = (16, 8, 4, 2, 1)  # elements of 1 to 16 bytes in 16 bytes


def lower_contract(ctx: Context, stage: Stage, row: ProductRow, box: Box,
                   factors: Factors | None = None, part: Range | None = None,
                   codes: tuple[Operand, Grouping] | None = None,
                   apart: bool = False) -> Contract:
    """One Contract over the stage's box, as ``ctx.group.choices`` say.  factors: if not as read;
    part: its rows, if they are no box; codes: B, if it is bytes of weights in groups; apart: axes
    of rows are not counted through as one."""
    choice = ctx.group.choices[stage.name]
    f = factors or factors_for(stage, choice.lanes)
    lane = next(a for a in f.n if a.name == choice.lanes)
    k = next(r for r in f.k if r.name == choice.k)
    taps = tuple(r for r in f.k if r != k)
    rng = {a: Range(a, lo, simplify(last + 1)) for a, (lo, last) in box.items()}
    outer = tuple(rng[a] for a in stage.axes if a != lane and a not in f.m)
    m = [rng[a] for a in stage.axes if a in f.m]
    b = codes[0] if codes is not None else _lane_operand(ctx, f, lane, k, taps, row, choice.b)
    puts = tuple(Put(o.buffer, ctx.place(o.buffer)(o.index), linearise(o.value, ctx.place))
                 for o in stage.outputs)
    a = _row_operand(ctx, f, k, row, choice.a)
    m, a, puts = (m, a, puts) if apart else collapse_rows(m, a, puts)
    micro = MicroKernel(row.name, row.template, row.tile.mr, row.tile.nv, row.tile.lanes,
                        _stored_dtypes(f, a, b, row), 0 if codes else part_of(row, f.k),
                        codes[1] if codes else None, unit=row.unit, in_steps=row.shared is None)
    return slice_contract(ctx, stage, k, mark_whole_tiles(ctx, drop_single_axes(Contract(
        micro, outer, tuple(m), rng[lane], tuple(Range(t, Const(0), t.extent) for t in taps),
        Range(k, Const(0), k.extent), a, b, stage.acc[0], puts, writing=choice.text,
        part=part, rounds=row.a != row.stored and not all(
            is_held(ctx.program, e, row.a) for e in (f.a, f.b))))), f.m)


def _stored_dtypes(f: Factors, a: Operand, b: Operand, row: ProductRow) -> Dtypes:
    """Of A and B as a row's micro-kernel reads them, and of the sums: panels may be f16; a unit and
    threads that share what they fetch read f16 wherever it lies."""
    if row.unit:
        rows = f.a if a.mode == "packed" else unit_rows(f)[0]
        assert rows is not None, f
        return Dtypes("f32" if a.mode == "packed" else rows.dtype,
                      "f32" if b.mode == "packed" else f.b.dtype, "f32")
    load, _ = rows_in_place(f, row.shared is not None)
    return Dtypes("f32" if a.mode == "packed" or load is None else load.dtype,
                  "f32" if b.mode == "packed" else f.b.dtype, "f32")


def mark_whole_tiles(ctx: Context, c: Contract) -> Contract:
    """The Contract that knows which of its rows and columns fill every register tile: those whose
    number in one work item, not in the tensor, is a multiple of the tile's; and where its columns
    may begin and end."""
    counts = {"rows": (simplify(c.end_row - c.first_row), c.micro.mr),
              "columns": (c.n.hi - c.n.lo, c.micro.nr)}
    grain = next(n for n in _GRAINS if all(
        is_multiple(e, n, ctx.values) for e in (c.n.lo, c.n.hi)))
    return replace(c, grain=grain, whole=tuple(
        what for what, (n, d) in counts.items() if is_multiple(n, d, ctx.values)))


def has_one_value(r: Range) -> bool:
    """True if a range is of one value wherever it begins, so that it is never empty."""
    return are_equal(r.hi, r.lo + 1)


def drop_single_axes(c: Contract) -> Contract:
    """The Contract without row axes and taps of one value (one row axis stays): what a batch of
    one, a tile with one of its elements, or a kernel of 1x1 would count, per row and tile."""
    m = tuple(r for r in c.m if not has_one_value(r)) or c.m[-1:]
    taps = tuple(r for r in c.taps if not has_one_value(r))
    gone = {r.axis: r.lo for r in c.m + c.taps if r not in m + taps}
    if not gone:
        return c

    def known(e: Expr) -> Expr:
        return simplify(substitute(e, gone))

    def maybe(e: Expr | None) -> Expr | None:
        return None if e is None else known(e)

    def operand(o: Operand) -> Operand:
        return replace(o, offset=known(o.offset), stride=known(o.stride), guard=maybe(o.guard),
                       value=maybe(o.value), tap=maybe(o.tap))

    puts = tuple(replace(p, offset=known(p.offset), value=known(p.value), guard=maybe(p.guard))
                 for p in c.puts)
    return replace(c, m=m, taps=taps, a=operand(c.a), b=operand(c.b), puts=puts)


def slice_contract(ctx: Context, stage: Stage, k: Axis, contract: Contract,
                   axes: Axes = ()) -> Contract:
    """The Contract with scratch for the sums so far, one register tile behind the other.  axes: of
    its rows, as the stage has them."""
    split = ctx.group.choice(stage.name).split
    depth = upper(k.extent) or split.get(k.name, 0) + 1  # without a bound deeper than any slice
    micro = contract.micro
    if not split or (micro.unit or not contract.taps) and split[k.name] >= depth:
        return contract
    rows: Size = 1
    for r in contract.m:
        rows = rows * _longest(ctx, stage, r)
    columns = _longest(ctx, stage, contract.n)
    tiles = (rows + (micro.mr - 1)) // micro.mr * ((columns + (micro.nr - 1)) // micro.nr)
    size = largest_size([tiles * micro.mr * micro.nr])
    if micro.unit:  # what the tile holds: bounds of its ends say less
        size = sum_elements(ctx.group, axes, contract.n.axis, ctx.target.product_row(contract.row))
    name = ctx.add_scratch("sums", "f32", size)
    taps = () if micro.unit else contract.taps
    return replace(contract, micro=replace(micro, part=0), taps=contract.taps if micro.unit else (),
                   slices=Slices(name, min(split[k.name], depth), taps))


def _longest(ctx: Context, stage: Stage, r: Range) -> Size:
    """The most values of a range of a stage: an int, or an expression over symbols."""
    n = upper(simplify(r.hi - r.lo))
    if n is None and ctx.group.anchor in stage.computes:
        n = ctx.group.tile.get(r.axis.name)
    return simplify(r.axis.extent) if n is None else n


def collapse_rows(m: list[Range], a: Operand,
                  puts: tuple[Put, ...]) -> tuple[list[Range], Operand, tuple[Put, ...]]:
    """Merge row axes that every access walks contiguously."""
    if len(m) < 2:
        return m, a, puts
    if a.mode == "packed" and a.value is not None:
        m, _, body, puts = collapse(m, None, a.value, puts)
        return m, replace(a, value=body), puts
    if a.guard is None:
        m, _, body, puts = collapse(m, None, a.offset, puts)
        return m, replace(a, offset=body), puts
    m, _, body, puts = collapse(m, None, Where(a.guard, a.offset, Const(0)), puts)
    assert isinstance(body, Where)
    return m, replace(a, offset=body.a, guard=body.cond), puts


def packed_room(runs: int, depth: Expr) -> Size:
    """Elements of so many packed runs of ``depth``: of as many as the longest sum has, where that
    has a bound."""
    most = upper(depth)
    return runs * (depth if most is None else most)


def _packed(ctx: Context, name: str, row: ProductRow, rows: int, value: Expr, stride: Expr,
            total: Expr) -> Operand:
    """An operand that is evaluated into scratch first; a row whose tile threads share does so
    step by step, in memory of its own."""
    if row.shared is not None:
        return Operand("packed", "", Const(0), stride, None, linearise(value, ctx.place))
    name = ctx.add_scratch(name, "f32", packed_room(rows, total))
    return Operand("packed", name, Const(0), stride, None, linearise(value, ctx.place))


def _row_operand(ctx: Context, f: Factors, k: Axis, row: ProductRow, mode: str) -> Operand:
    total = _count(f.k)
    if mode == "rows":
        load, guard = unit_rows(f) if row.unit else rows_in_place(f, row.shared is not None)
        assert load is not None, f  # ``check_schedule`` refuses others
        # its index may look up rows in another tensor
        step, rest = affine_parts(flat_index(load, ctx.place), k)
        inside = None if guard is None else linearise(guard, ctx.place)
        return Operand("rows", load.buffer, rest, step, inside)
    return _packed(ctx, "a_packed", row, row.tile.mr, f.a, Const(1), total)


def _count(axes: Axes) -> Expr:
    return simplify(prod((a.extent for a in axes), start=Const(1)))


def _lane_operand(ctx: Context, f: Factors, lane: Axis, k: Axis, taps: Axes, row: ProductRow,
                  mode: str) -> Operand:
    nr = row.tile.nr
    if mode == "packed":
        value = f.b if f.b.dtype == "f32" else widen_half(f.b)
        return _packed(ctx, "b_packed", row, nr, value, Const(nr), _count(f.k))
    load = f.b
    assert isinstance(load, Load), f  # ``check_schedule`` refuses others
    offset = ctx.place(load.buffer)
    zero = {r: Const(0) for r in taps + (k,)}
    if mode == "direct":
        at = flat_index(load, ctx.place)
        return Operand("direct", load.buffer, simplify(substitute(
            affine_parts(at, lane)[1], zero)), affine_stride(at, k),
            tap=tap_step(at, taps) if taps else None)
    base = panel_base(offset, load.index, lane, k, taps, nr)
    assert base is not None, load  # ``check_schedule`` refuses others
    return Operand("panel", load.buffer, base, Const(nr))
