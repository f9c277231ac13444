"""Lowering of a contraction of narrow numbers onto a micro-kernel that takes several at a time."""

from dataclasses import replace
from math import prod

from aotc.ir.access import affine_parts, flat_index, linearise
from aotc.ir.category import Factors, dot_dtypes, row_source
from aotc.ir.expr import Axis, Binary, Const, Expr, Load
from aotc.ir.kernel.operands import Operand
from aotc.ir.kernel.plan_stages import Contract
from aotc.ir.numbers.byte_panels import panel_room
from aotc.ir.numbers.grouped import Grouping, grouped_weights
from aotc.ir.simplify import simplify
from aotc.ir.statements import Put, Range
from aotc.ir.tile_statements import MicroKernel, dot_step
from aotc.passes.digits import static_extent
from aotc.sched.items.context import Context
from aotc.sched.lowering.lower_contract import (
    collapse_rows,
    drop_single_axes,
    lower_contract,
    mark_whole_tiles,
    packed_room,
    slice_contract,
)
from aotc.sched.model.boxes import Box
from aotc.sched.model.stages import Stage
from aotc.sched.rows.dots import (
    axes_beside,
    column_grain,
    dot_factors,
    padded_depth,
    stage_weights,
)
from aotc.target.kernel_rows import ProductRow


def lower_dot(ctx: Context, stage: Stage, row: ProductRow, box: Box,
              part: Range | None = None) -> Contract:
    """One Contract over the stage's box, as ``ctx.group.choices`` say.  part: its rows, if they are
    no box."""
    choice = ctx.group.choices[stage.name]
    found, kinds = dot_factors(stage), dot_dtypes(stage.body)
    assert found is not None and kinds is not None, stage.name  # ``check_schedule`` refuses others
    f, weights = found
    if row.in_codes:
        return lower_contract(ctx, stage, row, box, f, part, _codes(ctx, stage, f, weights, row))
    if row.staging is not None and not row.by_columns:  # weights become factors on their way
        body = stage.body
        assert isinstance(body, Binary), stage.name  # a product, so ``dot_factors`` says
        whole = body.b if grouped_weights(body.b) is not None else body.a
        return lower_contract(ctx, stage, row, box, replace(f, b=whole), part)
    lane, nr = f.lane, row.tile.nr
    k = next(r for r in f.k if r.name == choice.k)
    taps = tuple(r for r in f.k if r != k)
    rng = {a: Range(a, lo, simplify(last + 1)) for a, (lo, last) in box.items()}
    outer = tuple(rng[a] for a in stage.axes if a != lane and a not in f.m)
    depth, grouped = padded_depth(f), stage_weights(stage)
    column = depth if grouped is None else Const(
        prod(ctx.program.consts[weights.buffer].shape[:2]))
    matrix: Expr = Const(0)
    for beside in axes_beside(f, weights):
        matrix = matrix * beside.extent + beside
    panel = matrix * ((lane.extent + (nr - 1)) // nr) + lane // nr
    b = Operand("panel", weights.buffer, simplify(panel * (column * nr)), Const(nr))
    if row.by_columns:
        b = _columns(ctx, f, weights, row, choice.b, matrix)
    elif choice.b == "packed":
        name = ctx.add_scratch("b_packed", kinds.b, packed_room(nr, depth))
        b = Operand("packed", name, Const(0), Const(nr), None, linearise(weights, ctx.place))
    if grouped is not None:  # panels hold bytes, of which some rows make factors first
        kinds = replace(kinds, b="f32" if row.in_floats else weights.dtype)
    if row.expands_panels:
        b = replace(b, mode="expanded")
    puts = tuple(Put(o.buffer, ctx.place(o.buffer)(o.index), linearise(o.value, ctx.place))
                 for o in stage.outputs)
    m, a, puts = collapse_rows([rng[a] for a in stage.axes if a in f.m],
                               _rows(ctx, f, k, row, choice.a, depth), puts)
    micro = MicroKernel(row.name, row.template, row.tile.mr, row.tile.nv, ctx.target.lanes,
                        kinds, grouping=None if grouped is None else grouped.grouping)
    return _expanded(ctx, stage, k, mark_whole_tiles(ctx, drop_single_axes(Contract(
        micro, outer, tuple(m), rng[lane], tuple(Range(t, Const(0), t.extent) for t in taps),
        Range(k, Const(0), k.extent), a, b, stage.acc[0], puts, writing=choice.text,
        part=part))))


def _codes(ctx: Context, stage: Stage, f: Factors, weights: Load,
           row: ProductRow) -> tuple[Operand, Grouping]:
    """Bytes of weights in groups as threads bring them to their block's memory: the panel of a
    column."""
    found = stage_weights(stage)
    assert found is not None, stage.name
    rows = prod(ctx.program.consts[weights.buffer].shape[:2])
    panel = f.lane // row.panel * (rows * row.panel)
    return Operand("panel", weights.buffer, simplify(panel), Const(row.panel)), found.grouping


def _columns(ctx: Context, f: Factors, weights: Load, row: ProductRow, mode: str,
             matrix: Expr) -> Operand:
    """Columns of which threads bring what they need: constants that lie one behind the other, in
    the matrix of a number, or computed ones."""
    if mode == "packed":
        return Operand("packed", "", Const(0), Const(1), None, linearise(weights, ctx.place))
    grain, terms = column_grain(row), prod((r.extent for r in f.k), start=Const(1))
    apart = simplify((terms + (grain - 1)) // grain * grain)
    return Operand("columns", weights.buffer, simplify(matrix * f.lane.extent * apart), apart)


def _expanded(ctx: Context, stage: Stage, k: Axis, contract: Contract) -> Contract:
    """The Contract with scratch for a panel that is expanded, as much as is summed at a time."""
    if contract.b.mode != "expanded":
        return contract
    micro = contract.micro
    dtype, g = micro.dtypes.b, micro.grouping
    assert g is not None, contract.row
    if dtype == "f32":
        contract = slice_contract(ctx, stage, k, contract)
    steps = contract.slices.steps if contract.slices else static_extent(k)
    room = panel_room(g, steps, dot_step(micro.dtypes.a)) if dtype == "u8" else steps
    name = ctx.add_scratch("b_expanded", dtype, micro.nr * room)
    return replace(contract, b=replace(contract.b, pad=name))


def _rows(ctx: Context, f: Factors, k: Axis, row: ProductRow, mode: str, depth: Expr) -> Operand:
    """The row operand: read in place, with a row of the padding's value in scratch; or packed."""
    if mode == "packed" and row.shared is not None:  # threads bring what they need
        return Operand("packed", "", Const(0), Const(1), None, linearise(f.a, ctx.place))
    if mode == "packed":
        name = ctx.add_scratch("a_packed", row.a, packed_room(row.tile.mr, depth))
        return Operand("packed", name, Const(0), Const(1), None, linearise(f.a, ctx.place))
    load, guard, fill = row_source(f.a)
    assert load is not None, f  # ``check_schedule`` refuses others
    pad = ctx.add_scratch("pad_row", row.a, packed_room(1, k.extent)) if (
        guard is not None and row.shared is None) else ""
    first = affine_parts(flat_index(load, ctx.place), k)[1]
    inside = None if guard is None else linearise(guard, ctx.place)
    return Operand("rows", load.buffer, first, Const(1), inside,
                   Const(fill, row.a), pad=pad)


__all__ = ["lower_dot"]
