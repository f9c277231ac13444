"""What loads and stores of a stage cost beside its arithmetic, from how its lanes move in memory.

A vector of neighbours is one instruction; lanes that lie apart are loaded and stored one by one,
and a sum over lanes ends in a fold across the vector.  In units of an addition, as
``Tuning.op_cost``; fitted where the kernels' traffic was counted as well: a part of what was
measured is left to that.
"""

from collections.abc import Collection, Iterable, Mapping
from math import prod

from aotc.ir.access import offset_of, stride
from aotc.ir.category import PRODUCTS, category, factor_pairs, row_source
from aotc.ir.dtypes import DTYPES, HALF
from aotc.ir.expr import (
    Axis,
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Shape,
    Unary,
    axes_of,
    depends_on_data,
    loads,
    walk,
)
from aotc.ir.layout import Layout
from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.ir.stage_choice import StageChoice
from aotc.ir.tile_statements import dot_step
from aotc.passes.winograd import stages_of
from aotc.sched.cost.thread_accesses import thread_cost
from aotc.sched.model.digit_stage import loop_stage
from aotc.sched.model.group_numbers import Extra
from aotc.sched.model.size import estimate, estimate_volume
from aotc.sched.model.stages import Stage, find_factors, group_stages, target_memo
from aotc.target.base import Target
from aotc.target.kernel_rows import KernelRow, ProductRow

COPY = 2  # operations of a machine without vectors that copy an element: a load and a store


def access_costs(program: Program, target: Target, group: Group,
                 layouts: Mapping[str, Layout]) -> dict[str, Extra]:
    """{stage: Extra} of a group with rows and loops.  layouts: {buffer: Layout}, row-major where
    there is none.  Stages without vectors neither use lanes nor hide latencies (1.2 ns an operation
    were measured beside 0.0035 with 16 lanes)."""
    out, known = {}, target_memo(program, target)
    for s in group_stages(program, group):
        choice = group.choices[s.name]
        row = target.row(choice.row)
        key = "access", s, row.name, tuple(choice.said.items()), tuple(
            [layouts.get(b) for b in s.buffers])
        if key in known:
            out[s.name] = known[key]
        elif row.category == "loops":
            out[s.name] = Extra(target.lanes ** 2)
        elif row.category == "transform":
            out[s.name] = known[key] = transform_cost(program, target, s, choice, layouts)
        elif target.machine.threads and row.category not in PRODUCTS:
            out[s.name] = known[key] = thread_cost(program, target, loop_stage(
                s, choice), choice, layouts)
        elif target.lanes == 1 and row.category in PRODUCTS:
            out[s.name] = known[key] = Extra(packs=_packs(s, choice, COPY, COPY))
        elif target.lanes > 1 and not target.machine.threads:
            out[s.name] = known[key] = vector_cost(program, target, loop_stage(
                s, choice), row, choice, layouts)
    return out


def stage_kind(s: Stage) -> str:
    """The category of a map: ``move`` or ``map``."""
    return category(s.axes, s.raxes, s.fold, s.body, tuple(o.value for o in s.outputs))


def nest_cost(program: Program, target: Target, s: Stage, choice: StageChoice,
              layouts: Mapping[str, Layout]) -> int:
    """Additions that an element of a map takes on a row, in plain loops for what is loaded and
    stored."""
    tuning = target.tuning
    if target.row(choice.row).category == "loops":
        accesses = len(s.loads()) + len(s.outputs)
        return tuning.moved if stage_kind(s) == "move" else tuning.apart * accesses
    cost = vector_cost(program, target, s, target.row(choice.row), choice, layouts).per_output
    lane = next(a for a in s.axes if a.name == choice.lanes)
    for o in s.outputs if not choice.block else ():
        step = stride(offset_of(o.index, program.shape(o.buffer), layouts.get(o.buffer)), lane)
        if isinstance(step, Const) and step.value and step.value % (tuning.page // 4) == 0:
            cost += tuning.page_conflict
    return cost


def transform_cost(program: Program, target: Target, s: Stage, choice: StageChoice,
                   layouts: Mapping[str, Layout]) -> Extra:
    """The Extra of a transform of a Winograd form, which is written out in full: so many additions
    for each element that a tile has transformed, whole vectors of them along its lanes, and what
    is loaded or stored one by one."""
    of, tile = next((c, dict(t)) for rule, c, t in program.rewrites if rule == "winograd"
                    and s.name in (x.out for x in stages_of(program, c)))
    lane = next(a for a in s.axes if a.name == choice.lanes)
    each = target.tuning.winograd_transform[max(tile.values())]
    if s.name == of:  # its points are fewer than what is transformed, and the last tiles' are less
        blocks = prod(-(-estimate(a.extent) // tile[a.name]) for a in s.axes if a.name in tile)
        each = each * blocks * estimate_volume(r.extent for r in s.raxes) / estimate_volume(
            a.extent for a in s.axes if a.name in tile)
    n = estimate(lane.extent)
    places = [*((x.buffer, x.index) for x in dict.fromkeys(s.loads())),
              *((o.buffer, o.index) for o in s.outputs)]
    apart = sum(_apart(program, layouts, lane, b, i, (1,)) for b, i in places)
    return Extra(0, 0, round(each * (-(-n // target.lanes) * target.lanes) / n
                             + target.tuning.apart * apart))


def _apart(program: Program, layouts: Mapping[str, Layout], lane: Axis, buffer: str, index: Shape,
           steps: Collection[int]) -> bool:
    """True if lanes along an axis move through a buffer in none of ``steps``."""
    if not any(lane in axes_of(i) for i in index):
        return False
    step = stride(offset_of(index, program.shape(buffer), layouts.get(buffer)), lane)
    return not (isinstance(step, Const) and step.value in steps)


def vector_cost(program: Program, target: Target, s: Stage, row: KernelRow, choice: StageChoice,
                layouts: Mapping[str, Layout]) -> Extra:
    """The Extra of a stage whose ``row`` has its lanes along the axis that ``loops`` say."""
    lane = next(a for a in s.axes + s.raxes if a.name == choice.lanes)

    def apart(buffer: str, index: Shape,
              steps: Collection[int] = target.lane_steps) -> bool:
        return _apart(program, layouts, lane, buffer, index, steps)

    tuning = target.tuning
    per_point = per_output = 0
    if s.fold != "none" and row.category not in PRODUCTS:
        each = tuning.window_load if row.category == "window" else tuning.fold_load
        per_point = sum(tuning.apart if apart(n.buffer, n.index) else each
                        for n in dict.fromkeys(loads(s.body)))
        per_point += tuning.converted * _conversions(s.body)
    if not row.exchanges:
        found = dict.fromkeys(n for o in s.outputs for n in loads(o.value))
        per_output = tuning.apart * (sum(apart(n.buffer, n.index) for n in found) + sum(
            apart(o.buffer, o.index, (1,)) for o in s.outputs) + _placed(found, lane))
    stored = sum(match_conversion(o.value) is None for o in s.outputs)
    per_output += tuning.across if lane in s.raxes else tuning.vector_store * stored
    per_output += tuning.converted * _conversions(*(o.value for o in s.outputs))
    rows, columns = tuning.moved, tuning.packed
    if isinstance(row, ProductRow) and row.category == "dot":  # lanes hold several
        if choice.a == "packed":
            rows = -(-rows // _side_by_side(program, s, choice, layouts))
        columns = -(-columns // dot_step(row.a))
    return Extra(1, per_point, per_output, _packs(s, choice, rows, columns))


def _side_by_side(program: Program, s: Stage, choice: StageChoice,
                  layouts: Mapping[str, Layout]) -> int:
    """Elements of a row of narrow numbers that are packed by one copy; 1 where each is computed."""
    f = find_factors(s, choice.lanes)
    load = None if f is None else row_source(f.a)[0]
    if f is None or load is None:
        return 1
    place = offset_of(load.index, program.shape(load.buffer), layouts.get(load.buffer))
    k = next(r for r in f.k if r.name == choice.k)
    run = 1
    for r in (k, *reversed([r for r in f.k if r != k])):
        if stride(place, r) != Const(run):
            break
        run *= estimate(r.extent)
    return run


def match_conversion(e: Expr) -> Load | None:
    """The f16 that is loaded as f32, and nothing more; None for other expressions."""
    return e.x if isinstance(e, Cast) and e.dtype == "f32" and isinstance(e.x, Load) and (
        e.x.dtype == HALF) else None


def _conversions(*values: Expr) -> int:
    """How many numbers become f16 in expressions, or f32 again."""
    return sum(isinstance(n, Cast) and HALF in (n.dtype, n.x.dtype) for n in walk(*values))


def _placed(found: Iterable[Load], lane: Axis) -> int:
    """Operations on floats that say where elements lie which lanes along an axis load: they are
    done for one element at a time."""
    places = [i for n in found for i in n.index if depends_on_data(i) and lane in axes_of(i)]
    return sum(isinstance(n, (Unary, Binary)) and DTYPES[n.dtype].kind == "f"
               for n in walk(*places))


def _packs(s: Stage, choice: StageChoice, rows: int,
           columns: int) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """``Extra.packs`` of a contraction, of so many additions an element: rows are packed for all
    columns of a work item, one element after the other, and columns for all its rows, vector by
    vector where they lie so."""
    packed = [k for k, how in (("a", choice.a), ("b", choice.b)) if how == "packed"]
    if not packed:
        return ()
    f = next(f for f in factor_pairs(s.axes, s.raxes, s.fold, s.body)
             if choice.lanes in [a.name for a in f.n])
    how = {"a": (rows, f.n), "b": (columns, f.m)}
    return tuple((how[k][0], tuple(a.name for a in how[k][1])) for k in packed)


__all__ = ["access_costs", "match_conversion", "nest_cost", "stage_kind", "transform_cost",
           "vector_cost"]
