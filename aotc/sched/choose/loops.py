"""Of step ``kernels`` of ``decide``: layouts of stored tensors, lane axes, micro-kernel rows and
operand modes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from aotc.ir.access import is_unit, offset_of, stride
from aotc.ir.category import (
    PRODUCTS,
    Factors,
    dot_dtypes,
    is_endless,
    zero_filled,
)
from aotc.ir.expr import Axis, Binary, Const, Expr, Load, axes_of, loads
from aotc.ir.layout import Layout, Reorder
from aotc.ir.program import Program, static_shape
from aotc.ir.schedule import Group
from aotc.ir.stage_choice import UNSAID, StageChoice
from aotc.sched.accelerator.kernels import unit_choice
from aotc.sched.choose.divided import digit_choice
from aotc.sched.choose.dot_choice import dot_choice, serving_rows
from aotc.sched.choose.single_row import single_row_choice
from aotc.sched.choose.stream_choice import stream_choices
from aotc.sched.cost.accesses import match_conversion
from aotc.sched.cost.lane_score import lane_score
from aotc.sched.cost.product_rows import exact_dtypes, pick_row, reads_operands, wants_panels
from aotc.sched.cost.row_cost import row_waste
from aotc.sched.model.lane_nests import FOLDED, lane_nest, lanes_fold, nest_kind
from aotc.sched.model.size import MAX_TAPS, estimate, estimate_volume
from aotc.sched.model.stages import (
    Output,
    Stage,
    contraction_factors,
    stage_category,
)
from aotc.sched.model.stored_rows import columns_in_place, rows_in_place
from aotc.sched.rows.exchange import exchange_choice
from aotc.sched.rows.panels import panel_layout
from aotc.sched.rows.settled_choices import Settled, Wanted
from aotc.sched.rows.stream_stages import is_stream
from aotc.sched.rows.winograd_stages import transform_inputs
from aotc.target.base import Target
from aotc.target.kernel_rows import NestRow, ProductRow

PLAIN = StageChoice("loops")


def choose_loops(program: Program, target: Target, groups: Sequence[Group],
                 given: Mapping[str, Layout] | None = None
                ) -> tuple[tuple[Group, ...], dict[str, Layout]]:
    """(groups with the rows of their stages, layouts by buffer).  given: {buffer: Layout} that are
    settled already."""
    c = Settled(program, target, groups, given or {})
    c.wanted |= _contraction_inputs(c)
    for g in groups:
        for s in c.stages[g.name]:
            c.once("stored", s, partial(_stored, c, s))
    done = []
    for g in groups:
        if is_stream(g):
            done.append(replace(g, choices=stream_choices(program, target, g)))
            continue
        found, c.rows = {}, c.rows_of_items(g)
        for s in c.stages[g.name]:
            how, find = ("anchor", _anchor_choice) if g.anchor in s.computes else (
                "choice", _stage_choice)
            found[s.name] = c.once(f"{how} of {c.rows} rows", s, partial(find, c, s))
        done.append(replace(g, choices=found | {
            s: replace(found.get(s, UNSAID), split=old.split, reuse=old.reuse)
            for s, old in g.choices.items() if old.split or old.reuse}))
    layouts = {b: lay for b, lay in c.layouts.items() if not lay.is_identity}
    return tuple(done), layouts


def _stored(c: Settled, s: Stage) -> None:
    """Layouts of the constants that a stage reads along its lanes, and of what it makes."""
    lane = _lane_axis(c, s)
    _const_layouts(c, s, lane)
    for o in s.outputs:
        if c.program.buffers[o.buffer].role == "temp" and not (
                o.buffer in c.plain or o.buffer in c.given):
            c.layouts[o.buffer] = _layout(c, o, lane, c.wanted.get(o.buffer))


def _contraction_inputs(c: Settled) -> dict[str, Wanted]:
    """Buffer -> (load, dims, rows): the dims that a contraction's row operand indexes by reduction
    axes only (and by its group, of channels in groups), and those it indexes by a row axis, if it
    may step along the reduction with any stride."""
    known = c.program.known("contraction inputs")
    if None not in known:
        known[None] = {b: (n, (dim,), frozenset())
                       for b, (n, dim) in transform_inputs(c.program).items()}
    out = dict(known[None])
    for g in c.groups:
        for s in c.stages[g.name]:
            if s not in known:
                known[s] = () if s.name in c.lanes else _row_inputs(c, s)
            for buffer, how in known[s]:
                out.setdefault(buffer, how)
    for copy, source in _copies_of_halves(c):
        if copy in out:
            out.setdefault(source, out[copy])
    return out


def _copies_of_halves(c: Settled) -> list[tuple[str, str]]:
    """[(copy in f32, tensor of f16)] of the stages that only convert: what wants one in some order
    wants both in it."""
    found = []
    for s in (s for g in c.groups for s in c.stages[g.name] if len(s.outputs) == 1):
        o, source = s.outputs[0], match_conversion(s.outputs[0].value)
        if source is not None and source.index == o.index:
            found.append((o.buffer, source.buffer))
    return found


def _row_inputs(c: Settled, s: Stage) -> list[tuple[str, Wanted]]:
    """[(buffer, as in ``_contraction_inputs``)] of one stage."""
    f, out = contraction_factors(c.program, s), []
    if f is None:
        return []
    for n in loads(f.a):
        dims = tuple(d for d, i in enumerate(n.index) if axes_of(i) & set(f.k)
                     and axes_of(i) <= {*f.k, *f.batch})
        rows = {d for d, i in enumerate(n.index) if i in f.m} if _may_step(f) else ()
        if dims:
            out.append((n.buffer, (n, dims, frozenset(rows))))
    return out


def _may_step(f: Factors) -> bool:
    """True if the row operand is a plain f32 Load with one reduction axis: rows next to each other
    in memory may then be read at any stride along that axis."""
    if f.a.dtype != "f32":
        return False
    load, guard = zero_filled(f.a)
    return load is not None and guard is None and (
        len([r for r in f.k if r.extent != Const(1)]) == 1)


def _layout(c: Settled, output: Output, lane: Axis | None, wanted: Wanted | None) -> Layout:
    """Innermost come the dims a consuming contraction reduces over, else the lane axis's dims.  A
    stage that would have to store across its lanes for that keeps them innermost, if the
    contraction can have its rows side by side instead."""
    rank = len(output.index)
    own = {d for d, i in enumerate(output.index) if lane in axes_of(i)} if lane else set()
    if wanted is not None and not (own and own <= wanted[2]):
        load, dims = wanted[:2]
        inner = sorted(dims, key=lambda d: (_significance(load.index[d]), d))
    else:
        inner = sorted(own, key=lambda d: (_significance(output.index[d]), d))
    perm = [d for d in range(rank) if d not in inner] + inner
    return Layout(()) if perm == list(range(rank)) else Layout((Reorder(tuple(perm)),))


def _const_layouts(c: Settled, s: Stage, lane: Axis | None) -> None:
    """Constants a nest reads along the lane axis are stored with that dimension innermost."""
    if lane is None or stage_category(s) in PRODUCTS and s.name not in c.lanes:
        return
    for n in s.loads():
        if _relayoutable(c, n, lane):
            d = n.index.index(lane)
            perm = [i for i in range(len(n.index)) if i != d] + [d]
            if perm != list(range(len(n.index))):
                c.layouts.setdefault(n.buffer, Layout((Reorder(tuple(perm)),)))


def _relayoutable(c: Settled, load: Load, lane: Axis) -> bool:
    """A constant indexed by plain axes (or 0), ``lane`` among them, not laid out otherwise yet."""
    return (load.buffer in c.program.consts and load.buffer not in c.layouts
            and load.buffer not in c.plain
            and lane in load.index and c.program.buffers[load.buffer].role == "const"
            and all(isinstance(i, (Axis, Const)) for i in load.index))


def _significance(index: Expr) -> int:
    """Floor-div digits lie outside modulo digits of the same axis."""
    return 0 if isinstance(index, Binary) and index.op == "floordiv" else 1


def _lane_axis(c: Settled, s: Stage) -> Axis | None:
    """The axis that runs over lanes; None if no axis is worth it."""
    if s.name in c.lanes:
        return c.lanes[s.name]
    f = contraction_factors(c.program, s)
    if f is not None and dot_dtypes(s.body) is not None:
        if not _as_nest(c, s):
            return f.lane
    elif f is not None:
        return _nest_lane(c, s, f) or max(f.n, key=lambda a: (
            min(estimate(a.extent), c.target.tuning.lane_vectors * c.target.lanes),
            s.axes.index(a)))
    folded = lanes_fold(c.target.rows(nest_kind(s)), s) if _is_scalar(c, s) else s.fold in FOLDED
    candidates = list(s.axes) + [r for r in s.raxes if folded]
    scores = {a: lane_score(c, s, a, [n for n in s.loads() if not _relayoutable(c, n, a)])
              for a in reversed(candidates)}  # ties go to the innermost axis
    worth = [a for a in scores if scores[a] > 0]
    together = [a for a in worth if a in s.raxes] if _folds_alone(c, s) else []
    # of threads that fold alone some lie side by side, whatever they read
    last = s.axes[-1] if s.axes and s.fold != "none" and _is_scalar(c, s) else None
    return max(together or worth, key=scores.__getitem__, default=last)


def _folds_alone(c: Settled, s: Stage) -> bool:
    """True for a fold of many terms whose outputs are fewer than the threads of all workers: one
    thread for each would leave most of them idle."""
    machine = c.target.machine
    return estimate_volume(a.extent for a in s.axes) < machine.workers * machine.threads and (
        estimate_volume(r.extent for r in s.raxes) > machine.tuning.lane_alone)


def _as_nest(c: Settled, s: Stage) -> bool:
    """True for a product of narrow numbers that threads compute as any other fold, where the target
    has no row for it."""
    return _is_scalar(c, s) and not serving_rows(c, s)


def _is_scalar(c: Settled, s: Stage) -> bool:
    """True where lanes are threads, which compute whatever scalars do."""
    return any(isinstance(u, NestRow) and u.scalar for u in c.target.rows(nest_kind(s)))


def _nest_lane(c: Settled, s: Stage, f: Factors) -> Axis | None:
    """The row axis that a contraction with few lanes (groups of few channels, few outputs) had
    better run over lanes, as a window does: it fills vectors, and everything that moves along it
    lies side by side already.  None if there is none."""
    lanes = c.target.lanes
    if c.target.machine.threads or 2 * max(estimate(a.extent) for a in f.n) > lanes or any(
            c.program.buffers[o.buffer].role == "temp" and o.buffer not in c.given
            for o in s.outputs):
        return None
    for a in f.m:
        at = [c.offset(n) for n in s.loads() if a in axes_of(n)] + [
            offset_of(o.index, c.program.shape(o.buffer), c.layouts.get(o.buffer))
            for o in s.outputs]
        if estimate(a.extent) >= lanes and all(is_unit(x, a) for x in at):
            return a
    return None


def _anchor_choice(c: Settled, s: Stage) -> StageChoice:
    """The choice of a stage whose axes are those of the group's tile."""
    return digit_choice(c, s, _plain_choice(c, s))


def _stage_choice(c: Settled, s: Stage) -> StageChoice:
    """The choice of another stage.  Digits are for moves that would have no lanes: their axis
    must be whole in every work item."""
    plain = _plain_choice(c, s)
    return digit_choice(c, s, plain) if plain == PLAIN and stage_category(s) == "move" else plain


def _plain_choice(c: Settled, s: Stage) -> StageChoice:
    kind = stage_category(s)
    lane = _lane_axis(c, s)
    if s.name in c.lanes:
        rows = c.target.rows("transform")
        whole = bool(rows) and all(o.value.dtype in rows[0].stored for o in s.outputs)
        return StageChoice(rows[0].name, c.lanes[s.name].name) if whole else PLAIN
    if kind == "contraction":
        f = contraction_factors(c.program, s)
        found = unit_choice(c, s, f, lane)
        if found is not None:
            return found
        if f is not None and lane in f.n and _f32_rows(c.target):
            choice = _contraction_choice(c, f, lane)
            alone = single_row_choice(c, s, f) if choice.b == "packed" else None
            return alone or choice
    if kind == "dot" and not _as_nest(c, s):
        choice = dot_choice(c, s)
        if choice != PLAIN or not _is_scalar(c, s):
            return choice
    kind = nest_kind(s)
    if lane is None or not lane_nest(c.target.rows(kind), s):
        return PLAIN
    exchanged = exchange_choice(c, s) if kind == "move" else None
    if exchanged is not None:
        return exchanged
    if kind == "window":
        block = window_block(s, lane, c.target.tuning.window_taps)
        if block is not None and c.target.rows(kind)[0].block > 1:
            return StageChoice(c.target.rows(kind)[0].name, lane.name, block=block[0].name)
        return StageChoice(c.target.rows(kind)[-1].name, lane.name)
    return StageChoice(c.target.rows(kind)[0].name, lane.name)


def window_block(s: Stage, lane: Axis | None, most: int) -> tuple[Axis, Axis] | None:
    """(output axis, reduction axis) of the innermost sliding window with at most ``most`` static
    taps: its neighbouring outputs share loads.  None if there is none (or the window slides along
    lanes)."""
    if lane in s.raxes:
        return None
    for r in reversed(s.raxes):
        if not isinstance(r.extent, Const) or r.extent.value > most:
            continue
        for n in s.loads():
            for i in n.index:
                outs = axes_of(i) & set(s.axes)
                if r in axes_of(i) and len(outs) == 1:
                    axis = next(iter(outs))
                    if axis != lane:
                        return axis, r
    return None


# ---------------------------------------------------------------- contractions

def _contraction_choice(c: Settled, f: Factors, lane: Axis) -> StageChoice:
    m = 1
    for a in f.m:
        m *= estimate(a.extent)
    load, guard = rows_in_place(f, bool(c.target.machine.threads))
    k, a_mode = _row_mode(c, f, load, guard)
    terms = estimate(k.extent) if a_mode == "rows" else estimate_volume(r.extent for r in f.k)
    pick = partial(pick_row, c.target, m, estimate(lane.extent), k=terms, items=c.rows,
                   exact=exact_dtypes(c.program, c.target, f))
    row = pick(fits=partial(reads_operands, c.program, c.offset, f))
    if is_endless(guard, k) and row.shared is None:
        a_mode = "packed"
    b_mode = _lane_mode(c, f, lane, k, row, a_mode)
    if b_mode != "panel" and wants_panels(row):
        b_mode = _lane_mode(c, f, lane, k, row := pick(), a_mode)
    if b_mode == "packed":  # maybe because another stage has other panels of the same weight
        fitting = [u for u in _f32_rows(c.target) if _panel_weight(c, f, lane, k, u, a_mode)]
        if fitting:
            n = estimate(lane.extent)
            several = [u for u in fitting if u.tile.mr > 1]
            fitting = fitting if m == 1 or not several else several
            row = min(fitting, key=lambda u: row_waste(u, m, n, c.target.tuning))
            b_mode = "panel"
    return StageChoice(row.name, lane.name, k.name, a_mode, b_mode)


def _f32_rows(target: Target) -> list[ProductRow]:
    return [u for u in target.rows("contraction") if u.a == "f32" and not u.unit]


def _row_mode(c: Settled, f: Factors, load: Load | None, guard: Expr | None) -> tuple[Axis, str]:
    """Innermost reduction axis and whether rows are read in place (unit stride, guard and data
    indices free of it, few enough taps)."""
    best = max(f.k, key=lambda r: estimate(r.extent))
    if load is None:
        return best, "packed"
    offset = c.offset(load)
    free = [r for r in f.k if guard is None or r not in axes_of(guard)]
    unit = [r for r in free if is_unit(offset, r)]
    for r in unit:
        taps = 1
        for other in f.k:
            if other is not r:
                taps *= estimate(other.extent)
        static = all(static_shape((o.extent,)) for o in f.k if o is not r)
        if estimate(r.extent) >= 8 and taps <= MAX_TAPS["contraction"] and static:
            return r, "rows"
        if taps == 1 and static:
            return r, "rows"
    if _may_step(f) and stride(offset, best) is not None and any(
            is_unit(offset, a) and estimate(a.extent) >= 4 for a in f.m):
        return best, "rows"  # neighbouring rows share cache lines at every step
    return best, "packed"


def _lane_mode(c: Settled, f: Factors, lane: Axis, k: Axis, row: ProductRow, a_mode: str) -> str:
    """How the lane operand is read; decides the weight's layout when it is packed offline."""
    name = _panel_weight(c, f, lane, k, row, a_mode)
    if name is not None:
        return "panel"
    load = columns_in_place(f, row.shared is not None)
    if load is not None and a_mode == "rows":
        offset = c.offset(load)
        if is_unit(offset, lane) and stride(offset, k) is not None and len(f.k) == 1:
            return "direct"
    return "packed"


def _panel_weight(c: Settled, f: Factors, lane: Axis, k: Axis, row: ProductRow,
                  a_mode: str) -> str | None:
    """Layout N/NR taps K N%NR for a constant indexed by plain axes, used by this stage only."""
    b = f.b
    if not isinstance(b, Load) or b.buffer not in c.program.consts or b.buffer in c.plain:
        return None
    if not all(isinstance(i, Axis) or i == Const(0) for i in b.index):
        return None
    axes = [i for i in b.index if isinstance(i, Axis)]
    shape = c.program.consts[b.buffer].shape
    if len(set(axes)) != len(axes) or any(
            isinstance(i, Axis) and i.extent != Const(d) for i, d in zip(b.index, shape)):
        return None
    layout = panel_layout(b.index, lane, f.k, k, row.tile.nr, shape)
    if c.layouts.setdefault(b.buffer, layout) != layout:
        return None  # another stage packs it differently: read it through that layout
    return b.buffer
