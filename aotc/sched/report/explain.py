"""What every group became and why, in words: the facts that the deciders looked at.

Nothing is decided here; the text repeats the deciders' own measures for a finished Schedule.
"""

from collections.abc import Iterable, Sequence

from aotc.ir.expr import Axis, Const, axes_of, show
from aotc.ir.numbers.narrow import is_lane_value
from aotc.ir.program import Branch, LibCall, Loop, Program
from aotc.ir.schedule import Group, Schedule
from aotc.ir.simplify import simplify
from aotc.ir.stage_choice import StageChoice
from aotc.ir.tile_statements import dot_step
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.cost.product_rows import waste_of
from aotc.sched.lowering.kernel_names import kernel_names
from aotc.sched.model.boxes import tile_anchor
from aotc.sched.model.flops_and_bytes import group_flops
from aotc.sched.model.size import estimate, estimate_volume
from aotc.sched.model.stages import Stage, factors_for, find_call, group_stages, stage_category
from aotc.sched.model.stored_rows import rows_in_place
from aotc.target.base import Target
from aotc.target.kernel_rows import ProductRow

_A_MODE = {"rows": "read in place through row pointers (unit stride along {k})",
           "packed": "packed tile by tile in the slab ({why})"}
_B_MODE = {"panel": "constant, packed in panels of {nr} columns at compile time",
           "direct": "read in place (unit stride along the lanes)",
           "packed": "packed panel by panel in the slab"}
_CATEGORY = {
    "map": "every element on its own", "move": "elements only change place",
    "reduction": "a fold over {r}", "window": "a fold over {r} that slides along output axes",
    "contraction": "a sum of products over {r}",
    "dot": "a sum of products of narrow numbers over {r}"}


def explain(program: Program, schedule: Schedule, target: Target) -> list[tuple[str, list[str]]]:
    """[(kernel name, [line, ...])] in call order: rows, shapes, tiles, operands, reasons; those of
    the bodies of loops and branches, too."""
    program = apply_rewrites(program, schedule.rewrites)
    rows: list[tuple[str, list[str]]] = []
    for g, name in zip(schedule.groups, kernel_names(program, schedule.groups)):
        step = find_call(program, g)
        if isinstance(step, (Loop, Branch)):
            rows += _region(step, schedule.regions[step.name], target, name)
        else:
            rows.append((name, _group(program, target, g)))
    return rows


def _region(step: Loop | Branch, schedules: Sequence[Schedule], target: Target,
            label: str) -> list[tuple[str, list[str]]]:
    rows = []
    for k, (body, schedule) in enumerate(zip(step.bodies, schedules)):
        tag, where = ("", f"loop of at most {show(step.trip)} rounds") if isinstance(
            step, Loop) else (("then_", "else_")[k], ("then", "else")[k])
        rows += [(f"{label}_{tag}{name[1:]}", [f"in the {where} of {step.name}", *lines])
                 for name, lines in explain(body, schedule, target)]
    return rows


def _group(program: Program, target: Target, g: Group) -> list[str]:
    stages = group_stages(program, g)
    nodes = dict.fromkeys(n for c in g.computes for n in program.producer[c].origin)
    lines = [f"{', '.join(g.outputs)} from {', '.join(nodes) or 'no node of the model'}"]
    call = find_call(program, g)
    if isinstance(call, LibCall):
        return lines + [f"library call: {call.kernel}, no tensor expression"]
    anchor = next(s for s in stages if g.anchor in s.computes)
    tile = tile_anchor(anchor, g)
    cut = ", ".join(f"{a}/{n}" for a, n in (g.tile | g.run).items()) or "whole"
    flops = estimate(simplify(group_flops(stages)))
    run = "".join(f" in steps of {a}/{g.tile[a]}" for a in g.run)
    run += "".join(f", less in steps of {a}/{n} where that is work for fewer than all workers"
                   for a, n in g.balance.items())
    lines.append(f"work items: {show(tile.count)} of {cut}{run}; about {flops / 1e6:.3g} Mflop")
    slide = [s for s, how in g.reuses.items() if how == "slide"]
    if slide:
        lines.append("slide, what the next step reads again stays: " + ", ".join(slide))
    inside = dict(g.connect.items())
    if inside:
        lines.append("connected: " + ", ".join(f"{b} at {level}" for b, level in inside.items()))
    for s in stages:
        lines += _stage(g, target, s)
    return lines + ([f"why: {g.why}"] if g.why else [])


def _stage(g: Group, target: Target, s: Stage) -> list[str]:
    kind, row, choice = stage_category(s), g.choices[s.name].row, g.choice(s.name)
    sums = ", ".join(f"{r.name}={show(r.extent)}" for r in s.raxes)
    lines = [f"stage {s.name}: {row}, {kind}: {_CATEGORY[kind].format(r=sums)}"]
    if target.row(row).category == "contraction":
        return lines + _contraction(target, s, target.product_row(row), choice)
    if target.row(row).category == "dot":
        step = dot_step(target.product_row(row).a)
        return lines + ["  rows " + _A_MODE[choice.a].format(
            k=choice.k, why=f"no run of a multiple of {step} along K"),
            f"  lanes over {choice.lanes}, {_dot_columns(target.product_row(row), choice)}"]
    if target.row(row).category == "transform":
        return lines + [f"  small constant matrices written out, lanes over {choice.lanes}"]
    if row == "loops":
        return lines + [f"  scalar loops: {_why_scalar(s)}"]
    if choice.digits:
        lines.append(f"  loops over the digits of {choice.digits}, which its loads take apart")
    if choice.block:
        step = target.row(row).block
        lines.append(f"  {step} neighbours along {choice.block} share their loads")
    return lines + [f"  lanes over {choice.lanes or '-'}: most unit-stride accesses"]


def _dot_columns(row: ProductRow, choice: StageChoice) -> str:
    """How a row of narrow products reads its columns."""
    if row.by_columns:
        return "step by step, neighbours of the sum side by side" + (
            ", packed so at compile time" if choice.b == "panel" else "")
    when = "by every work item" if choice.b == "packed" else "at compile time"
    return f"packed in panels of {row.tile.nr} columns x {dot_step(row.a)} {when}"


def _why_scalar(s: Stage) -> str:
    if s.body.dtype != "f32" and s.fold != "none" or not all(
            is_lane_value(o.value) for o in s.outputs):
        return "it computes with other types than f32"
    if not isinstance(s.fold, str) or s.fold == "prod":
        return "the fold has no vector form"
    return "no axis is worth lanes, or the schedule says so"


def _contraction(target: Target, s: Stage, row: ProductRow, choice: StageChoice) -> list[str]:
    f = factors_for(s, choice.lanes)
    lane = next(a for a in f.n if a.name == choice.lanes)
    m, n = estimate_volume(a.extent for a in f.m), estimate(lane.extent)
    others = [u for u in target.rows("contraction") if u.serves(m)
              and u.a in ("f32", row.a)]
    long = [r for r in f.k if r.name == choice.k or choice.a != "rows"]
    terms = estimate_volume(r.extent for r in long)
    waste = {u: waste_of(target, u, m, n, terms) / (m * n) for u in (row, *others)}
    runner = sorted((u for u in others if u is not row), key=lambda u: waste[u])[:1]
    idle_too = " and idle workers" if target.machine.item_tiles == 1 else ""
    least = f"{waste[row]:.2f} of the work, loads{idle_too} weighed in"
    if runner:
        least += f"; next {runner[0].name} {waste[runner[0]]:.2f}"
    reduction = estimate_volume(a.extent for a in f.k)
    lines = [f"  M {m} ({_names(f.m)}) x N {n} ({lane.name}) x K {reduction} ({_names(f.k)}): "
             f"{least}"]
    load, guard = rows_in_place(f, row.shared is not None)
    why = "its elements are computed" if load is None else "no long unit-stride run along K"
    lines.append("  rows " + _A_MODE[choice.a].format(k=choice.k, why=why)
                 + ("; rows in the padding read zeros" if guard is not None else ""))
    lines.append("  lanes " + _B_MODE[choice.b].format(nr=row.tile.nr))
    idle = [a for a in s.axes if a not in f.m and a != lane and a.extent != Const(1)]
    return lines + ([f"  once per {_names(idle)}" + (
        ": batched" if any(a in axes_of(f.a) and a in axes_of(f.b) for a in idle) else "")]
        if idle else [])


def _names(axes: Iterable[Axis]) -> str:
    return ", ".join(a.name for a in axes) or "-"
