"""Legality of one group: its edges, its boxes, and of each of its stages the row, how operands are
read, and what is said of its loops."""

from collections import Counter
from collections.abc import Callable, Sequence

from aotc.errors import ScheduleError
from aotc.ir.access import is_unit, layout_from_json, offset_of, stride, volume
from aotc.ir.category import Axes, is_endless
from aotc.ir.expr import Axis, Const, Expr, Load, Shape, axes_of
from aotc.ir.numbers.narrow import FLOAT_LANES
from aotc.ir.program import LibCall, Program
from aotc.ir.schedule import APART, ITEM_FIELDS, SCRATCH, SHARED, Group, Schedule
from aotc.ir.simplify import are_equal, simplify, upper
from aotc.ir.stage_choice import REUSE, StageChoice
from aotc.sched.accelerator.kernels import copy_faults, unit_faults
from aotc.sched.check.choices import choices_of, value_faults
from aotc.sched.check.dot_faults import dot_faults
from aotc.sched.check.item_faults import flat_faults, item_faults
from aotc.sched.check.slice_faults import slice_faults
from aotc.sched.check.stream_faults import stream_faults
from aotc.sched.items.new_entries import find_new_entries, stored_entries
from aotc.sched.memory.scratch import elements
from aotc.sched.model.boxes import AnchorTile, Box, Places, starts_at_multiple, tile_anchor
from aotc.sched.model.digit_stage import digit_axes, loop_box, loop_stage
from aotc.sched.model.lane_nests import FOLDED, lane_nest, lanes_fold
from aotc.sched.model.slide import step_boxes
from aotc.sched.model.stages import (
    Stage,
    find_call,
    find_factors,
    group_stages,
    stage_category,
    target_memo,
)
from aotc.sched.model.stored_rows import columns_in_place, rows_in_place
from aotc.sched.model.stored_sizes import physical_elements
from aotc.sched.model.tilegraph import connect_levels
from aotc.sched.rows.panels import panel_base
from aotc.sched.rows.stream_stages import is_stream
from aotc.sched.rows.transforms import find_transform
from aotc.target.base import Target
from aotc.target.kernel_rows import NestRow, ProductRow


def check_group(program: Program, schedule: Schedule, target: Target, g: Group) -> list[str]:
    """Faults of one group by itself: its edges, stages, boxes, rows and loops."""
    levels = connect_levels(target.machine)
    faults = [f"group {g.name}: connect level {lv!r} of {b}; choose from {', '.join(levels)}"
              for b, lv in g.connect.items() if lv not in levels]
    faults += _edges(program, levels, g)
    if faults:
        return faults
    try:
        stages = group_stages(program, g)
    except ScheduleError as err:
        return err.faults
    if not stages:
        return _call(program, target, g)
    faults += _stage_names(g, [s.name for s in stages]) + _threads(target, g)
    faults += copy_faults(program, target.machine, g) + flat_faults(program, target, g)
    anchor = next((s for s in stages if g.anchor in s.computes), None)
    if anchor is None:
        return [f"group {g.name}: anchor {g.anchor} is inlined; choose from "
                + ", ".join(s.name for s in stages)]
    names = {a.name: a for a in anchor.axes}
    for a, t in g.tile.items():
        if a not in names:
            faults.append(f"group {g.name}: tile of {a!r}; the anchor's axes are "
                          + ", ".join(names))
        elif not isinstance(t, int) or t < 1:
            faults.append(f"group {g.name}: tile {a}/{t}; a tile is an integer >= 1"
                          + (f", at most {upper(names[a].extent)}" if upper(names[a].extent)
                             else ""))
    faults += [f"group {g.name}: parallel {a!r} has no tile; tiled axes: "
               + (", ".join(g.tile) or "none") for a in g.parallel if a not in g.tile]
    faults += [f"group {g.name}: parallel names {a!r} {n} times; name an axis once"
               for a, n in Counter(g.parallel).items() if n > 1]
    faults += [] if faults else item_faults(target.machine, anchor, g)
    if faults:
        return faults
    try:
        tile = tile_anchor(anchor, g)
        step = step_boxes(program, g, stages, tile)
    except ScheduleError as err:
        return err.faults
    boxes, faults = step.boxes, faults + _scratch(g, step.places)
    if is_stream(g):
        faults += stream_faults(program, target, g)
    for s in stages:
        if is_stream(g):
            continue
        if s is not anchor and any(o.buffer in g.outputs for o in s.outputs):
            faults += _stored(g, s, boxes[s.name], tile)
        faults += _checked(program, schedule, target, g, s, boxes[s.name])
    return faults


def _scratch(g: Group, places: Places) -> list[str]:
    """Places of scratch: shared where all of it has bounds."""
    if g.scratch not in ("", *SCRATCH):
        return [f"group {g.name}: scratch {g.scratch!r}; choose {' or '.join(SCRATCH)}"]
    endless = [b for b, dims in places.items() if not isinstance(elements(dims), int)]
    return [f"group {g.name}: scratch {g.scratch!r}; {', '.join(endless)} has no constant bound, "
            f"choose {APART!r}"] if endless and g.scratch == SHARED else []


def _checked(program: Program, schedule: Schedule, target: Target, g: Group, s: Stage,
             box: Box) -> list[str]:
    """``_stage``, done once for stages without faults that are computed alike."""
    known = target_memo(program, target)
    key = "legal", s, g.choice(s.name), str([
        g.tile, [schedule.layouts.get(b) for b in s.buffers]]), tuple(box.items())
    if key not in known:
        faults = _stage(program, schedule, target, g, s, box)
        if faults:
            return faults
        known[key] = ()
    return []


def _call(program: Program, target: Target, g: Group) -> list[str]:
    """A library call or a region: it stores all it makes, and there is nothing to choose."""
    call = find_call(program, g)
    if call is None:
        return [f"group {g.name}: it stores nothing; list as outputs what is read outside it"]
    what = f"library call {call.kernel}" if isinstance(call, LibCall) else f"region {call.name}"
    outs = call.outs
    if len(g.computes) > 1:
        if not target.machine.threads:
            return [f"group {g.name}: the {what} has a group of its own where a work item is one "
                    "thread's; take the others out"]
        try:
            outs = stored_entries(find_new_entries(program, g))
        except ScheduleError as err:
            return err.faults
    faults = [f"group {g.name}: the {what} stores {', '.join(outs)}; "
              "list them all as outputs"] if g.outputs != outs else []
    said = [field for field in ITEM_FIELDS if getattr(g, field)]
    said += dict.fromkeys(table for c in g.choices.values() for table, _ in c.tables())
    return faults + [f"group {g.name}: {field} of the {what}; remove it" for field in said]


def _threads(target: Target, g: Group) -> list[str]:
    """Threads of a work item: as many as have lanes or times that, enough for every micro-kernel; 0
    on a machine whose work items are one thread's."""
    most, lanes = target.machine.threads_max, target.lanes
    if most == 0:
        return [f"group {g.name}: threads {g.threads}; a work item of {target.name} is one "
                "thread's, remove it"] if g.threads else []
    rows = [u for u in target.ukernels if u.name in g.rows.values()]
    least = max((u.threads or lanes for u in rows), default=lanes)
    if least <= g.threads <= most and g.threads % lanes == 0:
        return []
    return [f"group {g.name}: threads {g.threads}; choose a multiple of {lanes} in {least}..{most}"]


def _edges(program: Program, levels: Sequence[str], g: Group) -> list[str]:
    """Every buffer that flows inside the group has a level, and no other."""
    made = {o for c in g.computes for o in program.producer[c].outs}
    read = {b: c for c in g.computes for b in program.producer[c].inputs if b in made}
    faults = [f"group {g.name}: {c} reads {b}, which connect gives no level; choose from "
              + ", ".join(levels) for b, c in read.items() if b not in g.connect]
    return faults + [f"group {g.name}: connect names {b!r}, which does not flow inside it; edges: "
                     + (", ".join(read) or "none") for b in g.connect if b not in read]


def _stage_names(g: Group, stages: Sequence[str]) -> list[str]:
    """Fields that are keyed by stage name a stage; what is not lowered is refused."""
    faults = [f"group {g.name}: {table} of {s!r}, which is no stage; stages: {', '.join(stages)}"
              for s, c in g.choices.items() if s not in stages
              for table in dict(c.tables()) or ("loops",)]
    return faults + [f"group {g.name}: reuse {how!r} of {s}; choose {' or '.join(REUSE)}"
                     for s, how in g.reuses.items() if how not in REUSE]


def _stored(g: Group, s: Stage, box: Box, tile: AnchorTile) -> list[str]:
    """A stage before the anchor that stores: its boxes must part its points, each in one tile."""
    left = {t: b for t, b in tile.box.items() if b[0] != Const(0)}
    for a in s.axes:
        lo, last = box[a]
        # an anchor of fewer points than the stage has, such as a piece of it, leaves some out
        mine = next((t for t, (x, y) in left.items() if are_equal(lo, x) and are_equal(last, y)
                     and are_equal(t.extent, a.extent)), None)
        whole = are_equal(lo, Const(0)) and are_equal(last, simplify(a.extent - 1))
        if mine is not None:
            del left[mine]
        elif not whole:
            break
    else:
        if not left:
            return []
    names = ", ".join(o.buffer for o in s.outputs if o.buffer in g.outputs)
    return [f"group {g.name}: tiles of {g.anchor} overlap or leave gaps in {names}, which is "
            "stored; tile only axes that both have, compute it in a group of its own, or leave "
            "those axes whole"]


def _stage(program: Program, schedule: Schedule, target: Target, g: Group, s: Stage,
           box: Box) -> list[str]:
    where = f"group {g.name}, stage {s.name}"
    rows = {u.name: u for u in target.ukernels}
    kind = stage_category(s)
    legal = [u.name for u in target.ukernels if u.category in (kind, "loops")
             or kind in ("move", "reduction", "window") and u.category == "map"
             and s.fold == "none" or kind == "contraction" and u.category == "window"
             or kind == "dot" and isinstance(u, NestRow) and u.scalar
             and u.category == "reduction"]
    transform = find_transform(program, s)
    legal += [] if transform is None else [u.name for u in target.rows("transform")]
    choice = g.choice(s.name)
    if choice.row not in rows or choice.row not in legal:
        return [f"{where}: ukernel {choice.row or None!r}; legal here: {', '.join(legal)}"]
    row = rows[choice.row]
    choices = choices_of(target, g, s.name)
    faults = [f"{where}: loops has {x!r}; {row.name} takes {', '.join(choices) or 'nothing'}"
              for x in choice.said if x not in choices]
    faults += [f"{where}: {f}" for f in value_faults(row, choice)]
    faults += slice_faults(target, g, s, find_factors(s, choice.lanes), row)
    if row.category == "loops":
        return faults
    if isinstance(row, ProductRow) and row.category == "contraction":
        return faults + _contraction(program, schedule, g, s, box, row, choice, where)
    if isinstance(row, ProductRow):
        faults += dot_faults(program, schedule, s, row, choice, where)
        lane = next((a for a in s.axes if a.name == choice.lanes), None)
        return faults + ([] if lane is None else _whole_panels(g, box, lane, row, where))
    if row.category == "transform" and transform is not None and choice.lanes not in (free := [
            a.name for a in s.axes if a.name not in transform.blocks]):
        return faults + [f"{where}: lanes {choice.lanes or None!r}; choose from {', '.join(free)}"]
    assert isinstance(row, NestRow), row.name  # all others are of products
    wrong = _digits(s, box, choice, where)
    return faults + (wrong or _nest(loop_stage(s, choice), choice, row, where))


def _digits(s: Stage, box: Box, choice: StageChoice, where: str) -> list[str]:
    """Faults of an axis whose digits the loops of a map run over."""
    known = digit_axes(s)
    if choice.digits and choice.digits not in known:
        return [f"{where}: digits {choice.digits!r}; its loads take apart "
                + (", ".join(known) or "no axis")]
    try:
        loop_box(s, box, choice)
    except ScheduleError as err:
        return [f"{where}: {f}" for f in err.faults]
    return []


def _nest(s: Stage, choice: StageChoice, row: NestRow, where: str) -> list[str]:
    """A vector loop nest: computed in f32, a lane axis, perhaps another axis to block."""
    name = row.name
    names = [a.name for a in s.axes + s.raxes]
    if choice.lanes not in names:
        return [f"{where}: lanes {choice.lanes or None!r}; choose from {', '.join(names)}"]
    if not row.scalar and s.fold not in ("none", *FOLDED):
        return [f"{where}: {name} folds sum, max or min; use loops"]
    if not lane_nest((row,), s):
        return [f"{where}: {name} computes in f32 and stores {', '.join(row.stored)}; use loops"]
    if choice.lanes not in {a.name for a in s.axes} and not lanes_fold((row,), s):
        return [f"{where}: {name} has no lanes along {choice.lanes}, which it folds into several "
                f"numbers or halves; choose from {', '.join(a.name for a in s.axes) or 'loops'}"]
    blocks = [a.name for a in s.axes if a.name != choice.lanes]
    if row.exchanges and not choice.block:
        return [f"{where}: {name} needs block, the axis whose neighbours it writes; choose from "
                f"{', '.join(blocks) or 'another row'}"]
    if choice.block not in (*blocks, ""):
        return [f"{where}: block {choice.block!r}; choose from {', '.join(blocks) or 'none'}"]
    return []


def _whole_panels(g: Group, box: Box, lane: Axis, row: ProductRow, where: str) -> list[str]:
    nr = row.tile.nr
    if starts_at_multiple(g, box[lane][0], nr):
        return []
    return [f"{where}: tile {lane.name}/{g.tile.get(lane.name, '?')} must be a multiple of {nr} "
            f"(or whole) for the panels of {row.name}"]


def _whole_weights(program: Program, schedule: Schedule, weights: Load, k: Axes, base: Expr,
                   nr: int) -> bool:
    """True if the last panel that begins at ``base`` (see ``panel_base``) is stored whole: an axis
    of one column looks like a panel of any width.  k: axes of the sum."""
    end = upper(base + volume([r.extent for r in k]) * nr)
    size = simplify(physical_elements(program, schedule, weights.buffer))
    return end is not None and isinstance(size, Const) and end <= size.value


def _contraction(program: Program, schedule: Schedule, g: Group, s: Stage, box: Box,
                 row: ProductRow, choice: StageChoice, where: str) -> list[str]:
    f = find_factors(s, choice.lanes)
    if f is None:
        return [f"{where}: lanes {choice.lanes or None!r} belongs to one factor only in no "
                "orientation; choose another axis or the row loops"]
    if any(o.value.dtype not in FLOAT_LANES for o in s.outputs):
        return [f"{where}: {row.name} stores f32 and f16; end the group before "
                + ", ".join(o.buffer for o in s.outputs if o.value.dtype not in FLOAT_LANES)]
    lane, faults = next(a for a in f.n if a.name == choice.lanes), []
    k = next((r for r in f.k if r.name == choice.k), None)
    if k is None:
        return [f"{where}: k {choice.k or None!r}; choose from {', '.join(r.name for r in f.k)}"]

    def place(buffer: str) -> Callable[[Shape], Expr]:
        layout = layout_from_json(schedule.layouts.get(buffer))
        return lambda index: offset_of(index, program.shape(buffer), layout)

    if row.unit:
        return [f"{where}: {x}" for x in unit_faults(f, choice, row, lane, k, place, g)]
    if choice.a == "rows":
        load, guard = rows_in_place(f, row.shared is not None)
        step = None if load is None else stride(place(load.buffer)(load.index), k)
        if step is None or guard is not None and (k in axes_of(guard) or step != Const(1)):
            faults.append(f"{where}: a 'rows' needs a plain load with one stride along {k.name}, "
                          "of one element where there is padding; use 'packed'")
        elif is_endless(guard, k) and row.shared is None:
            faults.append(f"{where}: a 'rows' with padding needs an upper bound of {k.name}, for "
                          "so many zeros are read; give its dimension one, or use 'packed'")
    elif choice.a != "packed":
        faults.append(f"{where}: a {choice.a or None!r}; choose rows or packed")
    nr, taps = row.tile.nr, tuple(r for r in f.k if r != k)
    if choice.b == "panel":
        b = f.b if isinstance(f.b, Load) and f.b.buffer in program.consts else None
        base = None if b is None else panel_base(place(b.buffer), b.index, lane, k, taps, nr)
        if b is None or base is None or not _whole_weights(program, schedule, b, f.k, base, nr):
            faults.append(f"{where}: b 'panel' needs a constant laid out in panels of {nr}; "
                          "use direct or packed")
        faults += _whole_panels(g, box, lane, row, where)
    elif choice.b == "direct":
        source = columns_in_place(f, row.shared is not None)
        at = None if source is None else place(source.buffer)(source.index)
        if at is None or len(f.k) != 1 or not is_unit(at, lane) or (
                stride(at, k) is None):
            faults.append(f"{where}: b 'direct' needs unit stride along {lane.name} and one stride "
                          "along the only reduction axis, of f32; use 'packed'")
    elif choice.b != "packed":
        faults.append(f"{where}: b {choice.b or None!r}; choose panel, direct or packed")
    return faults
