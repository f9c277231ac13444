"""Boxes of a group's stages: Welder's Propagate, on the one analysis of reads.

The anchor's box comes from the tile; every other stage's box is what later stages read of it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from aotc.errors import ScheduleError
from aotc.ir.expr import (
    Axis,
    Binary,
    Const,
    Expr,
    axes_of,
    depends_on_data,
    maximum,
    minimum,
    substitute,
    walk,
)
from aotc.ir.indices.remap import invert_map
from aotc.ir.kernel.plan_kernels import Size
from aotc.ir.kernel.plan_stages import Bindings
from aotc.ir.program import Program
from aotc.ir.read_boxes import extent_bound, interval
from aotc.ir.schedule import STREAM, Group
from aotc.ir.simplify import are_equal, lower, simplify, upper
from aotc.ir.statements import STEP, TILE, WORKERS
from aotc.sched.model.patches import patch_places
from aotc.sched.model.size import estimate
from aotc.sched.model.stages import Stage

Ends = tuple[Expr, Expr]  # the first value and the last
Box = dict[Axis, Ends]
Part = tuple[Ends, ...]  # of a buffer, per dimension
Dims = tuple[tuple[Expr, Size], ...]  # (first, size) per dimension
Places = dict[str, Dims]  # of buffers in scratch
Lets = list[tuple[Axis, Expr]]  # names, with what they stand for


@dataclass(frozen=True)
class AnchorTile:
    """Tiling of the anchor's axes: ``let`` binds the work item's origin, ``count`` is the number
    of work items, ``box`` maps axis -> (lo, last), ``size`` maps axis -> largest extent, ``grains``
    axis -> what its tiles begin at multiples of, where that is not their size.
    A work item that runs along ``axis`` does so in ``steps`` steps; ``step_let`` binds the ends of
    the axis from the number of the step, which is ``STEP``.  It goes on where the item before it
    has ended unless ``start``, where its run begins, is 0 (None: no item goes on)."""

    let: Bindings
    count: Expr
    box: Box
    size: dict[Axis, int | None]
    axis: Axis | None = None
    steps: Expr | None = None
    step_let: Bindings = ()
    start: Axis | None = None
    grains: dict[Axis, int] = field(default_factory=dict)


def tile_anchor(anchor: Stage, group: Group) -> AnchorTile:
    """Decode the work item number into the anchor's box.  Axes in ``group.parallel`` order,
    outermost first."""
    order = _cut_axes(anchor, group)
    counts, let = _counts(order, group)
    names = dict(let)
    box: Box = {}
    size: dict[Axis, int | None] = {}
    walked: dict[str, Any] = {}
    left: Expr = TILE
    patched = patch_places(order, counts, group.patch, let)
    for i in range(len(order) - 1, -1, -1):
        a, t = order[i], group.tile[order[i].name]
        at = patched.get(a) or (left if i == 0 else left % counts[i])
        if a.name in group.run:
            (lo, hi), walked = _walked(group, a, at, counts[i], let, i == len(order) - 1)
        else:
            lo, hi = _ends(group, a, at, counts[i], let)
        box[a], size[a] = (lo, simplify(hi - 1)), t
        if i and counts[i] != Const(1):
            left = left // counts[i]
            if i > 1:  # the outermost axis uses it once
                rest = Axis(f"tile_{i}", Const(1 << 40))
                let.append((rest, left))
                left = rest
    for a in anchor.axes:
        if a not in box:
            box[a], size[a] = (Const(0), simplify(a.extent - 1)), upper(a.extent)
    count = substitute(prod(counts, start=Const(1)), names)
    grains = {a: unit_of(group, a.name) for a in order if a.name not in group.run}
    return AnchorTile(tuple(let), simplify(count), box, size, grains=grains, **walked)


def _cut_axes(anchor: Stage, group: Group) -> list[Axis]:
    """The axes that work items may have a part of, outermost first."""
    axis = {a.name: a for a in anchor.axes}
    cut = [n for n in group.tile if (upper(axis[n].extent) or 1 << 62) > unit_of(group, n)]
    return [axis[n] for n in group.parallel if n in cut] + [
        axis[n] for n in cut if n not in group.parallel]


def patch_counts(anchor: Stage, group: Group) -> dict[str, int]:
    """{axis: tiles} of the two innermost axes that are cut; {} if there are no two of known
    extents."""
    order = _cut_axes(anchor, group)[-2:]
    counts = {a.name: upper(n) for a, n in zip(order, _counts(order, group)[0])
              if isinstance(n, Const)}
    return {a: n for a, n in counts.items() if n} if len(counts) == 2 else {}


def unit_of(group: Group, axis: str) -> int:
    """What the places where tiles of a group begin are multiples of."""
    return group.balance.get(axis, group.tile[axis])


def _counts(order: Sequence[Axis], group: Group) -> tuple[list[Expr], Lets]:
    """(number of work items along each axis, [(name, what it stands for)] of names in them)."""
    part = [group.run.get(a.name, group.tile[a.name]) for a in order]
    counts = [simplify((a.extent + (n - 1)) // n) for a, n in zip(order, part)]
    let: Lets = []
    for i, a in enumerate(order):
        if a.name in group.balance:
            others = simplify(prod(counts[:i] + counts[i + 1:], start=Const(1)))
            steps = _steps_of(group, a)
            last = Axis(f"{a.name}_last", steps)
            let.append((last, simplify(_balanced(counts[i], others, steps) - 1)))
            counts[i] = last + 1
    return counts, let


def _steps_of(group: Group, axis: Axis) -> Expr:
    """Steps of a balanced axis that there are in a call."""
    step = group.balance[axis.name]
    return simplify((axis.extent + (step - 1)) // step)


def _balanced(count: Expr, others: Expr, steps: Expr) -> Expr:
    """Number of work items along a balanced axis: ``count`` of the largest, made a multiple of the
    workers that each of the others then has.  At most one for each step."""
    low = lower(others)
    others = others if low is not None and low > 0 else maximum(others, Const(1))
    unit = (WORKERS - 1) // others + 1
    return minimum(count - 1 - (count - 1) % unit + unit, steps)


def _share(group: Group, axis: Axis, at: Expr, count: Expr) -> Ends:
    """(first step, end) of a work item of a balanced axis, which has as many as any other or one
    more."""
    steps = _steps_of(group, axis)
    return at * steps // count, (at + 1) * steps // count


def _ends(group: Group, axis: Axis, at: Expr, count: Expr, let: Lets) -> Ends:
    """(start, end) of a work item along an axis; ``let`` gets the names in them."""
    t, step = group.tile[axis.name], group.balance.get(axis.name)
    even = step is None and simplify(axis.extent % t) == Const(0)
    if step is not None and step > 1 and simplify(axis.extent % step) == Const(0):
        # in steps: so it is known of what the ends are multiples
        first, end = (Axis(f"{axis.name}_{n}", axis.extent // step + i)
                      for i, n in enumerate(("first", "end")))
        let += zip((first, end), _share(group, axis, at, count))
        return first * step, end * step
    lo = Axis(f"{axis.name}_lo", simplify(axis.extent - (t - 1)) if even else axis.extent)
    hi = Axis(f"{axis.name}_hi", simplify(axis.extent + 1))
    if step is not None:
        start, behind = _share(group, axis, at, count)
        let += [(lo, start * step), (hi, simplify(minimum(behind * step, axis.extent)))]
        return lo, hi
    let.append((lo, at * t if t != 1 else at))
    if even:  # no border cuts a tile: it ends as far behind its start as every other
        return lo, lo + t
    let.append((hi, simplify(minimum(lo + t, axis.extent))))
    return lo, hi


def _walked(group: Group, axis: Axis, at: Expr, count: Expr, let: Lets,
            innermost: bool) -> tuple[Ends, dict[str, Any]]:
    """((start, end) of a step, fields of a Tile) of work items that run along ``axis``, each its
    part of it, in steps of the tile; where their part begins and ends is bound in ``let``."""
    part, tile, step = group.run[axis.name], group.tile[axis.name], group.balance.get(axis.name)
    first = Axis(f"{axis.name}_first", axis.extent)
    end = Axis(f"{axis.name}_end", simplify(axis.extent + 1))
    lo, last = Axis(f"{axis.name}_lo", axis.extent), Axis(f"{axis.name}_hi", end.extent)
    start, behind = at * part, first + part
    if step is not None:
        first_step, end_step = _share(group, axis, at, count)
        start, behind = first_step * step, end_step * step
    let += [(first, start), (end, simplify(minimum(behind, axis.extent)))]
    return (lo, last), {
        "axis": axis, "start": first if innermost else None,
        "steps": simplify((end - first + (tile - 1)) // tile),
        "step_let": ((lo, first + STEP * tile if tile != 1 else first + STEP),
                     (last, lo + 1 if tile == 1 else simplify(minimum(lo + tile, end))))}


def settle_items(anchor: Stage, group: Group, workers: int) -> Group:
    """A group of a call whose extents are known, with the work items that it has with so many
    workers, the largest of them; what data decides counts as usual."""
    items = {}
    order = _cut_axes(anchor, group) if group.balance else []
    counts, let = _counts(order, group)
    known = {name: substitute(e, {WORKERS: Const(workers)}) for name, e in let}
    for a, n in zip(order, counts):
        if a.name in group.balance:
            count = estimate(substitute(n, known))
            items[a.name] = -(-estimate(_steps_of(group, a)) // count) * group.balance[a.name]
    return replace(group, balance={}, run={a: items.get(a, n) for a, n in group.run.items()},
                   tile={a: n if a in group.run else items.get(a, n)
                         for a, n in group.tile.items()})


def stage_boxes(program: Program, group: Group, stages: Sequence[Stage],
                tile: AnchorTile) -> tuple[dict[str, Box], Places]:
    """({stage name: {axis: (lo, last)}}, {scratch buffer: ((lo, size) per dim)}): the size an int,
    or an expression over symbols where an extent has no bound or a box has all of it, so that its
    rows lie as close as in a stored tensor.

    A buffer that is connected and also an output has no scratch: later stages read it in place.

    ScheduleError if a stage is asked for nothing.
    """
    scratch = scratch_of(group)
    real, asked = boxes_of_tile(program, group, stages, tile)
    _, wanted = whole_tiles(program, group, stages, tile)
    places = {}
    passing = {b for b, level in group.connect.items() if level == STREAM}  # in registers
    for b in sorted((scratch - set(group.outputs)) & set(wanted) - passing):
        dims = []
        for (lo, last), there, extent in zip(wanted[b], asked[b], program.shape(b)):
            bound = extent_bound(lo, last)
            if bound is not None:
                bound = max(bound, _whole_parts(there, tile))
            known = [n for n in (bound, upper(extent)) if n is not None]
            size = min(known) if known else _open_size(lo, last, extent)
            whole = there[0] == Const(0) and size == upper(extent)
            free = not isinstance(extent, Const) and not depends_on_data(extent)
            dims.append((there[0], simplify(extent) if whole and free else size))
        places[b] = tuple(dims)
    return real, places


def _whole_parts(there: Ends, tile: AnchorTile) -> int:
    """Values from the first to the last that are really there, where floor divisions of the tile's
    place are between them; 0 where none are or nobody knows how many.  A tile that begins at a
    multiple of its size may ask for a piece of a part (of ``i % n``) of which a box has all."""
    if not any(isinstance(n, Binary) and n.op == "floordiv" and axes_of(n)
               for e in there for n in walk(e)):
        return 0
    starts: dict[Expr, Expr] = {}
    for a, (lo, last) in tile.box.items():
        size = tile.size[a]
        if size is None:
            continue
        for name in axes_of(lo):
            unit = 1 if isinstance(lo, Axis) else tile.grains[a]  # of what it is a number
            starts[name] = Axis(f"{name.name}_tile", name.extent) * (
                tile.grains.get(a, size) // unit)
            # where a border or the end of a run may cut it, none does
            for end in axes_of(last) - {name}:
                starts[end] = simplify(starts[name] + size // unit)
    first, last = (simplify(substitute(e, starts)) for e in there)
    return extent_bound(first, last) or 0


def _open_size(lo: Expr, last: Expr, extent: Expr) -> Expr:
    """Room for lo..last inside an extent without a bound, as an expression over symbols."""
    width = simplify(minimum(last - lo + 1, extent))
    return width if not axes_of(width) else simplify(extent)


def scratch_of(group: Group) -> set[str]:
    """Buffers that flow between stages of a group."""
    return {b for b, level in group.connect.items() if level != "register"}


def boxes_of_tile(program: Program, group: Group, stages: Sequence[Stage], tile: AnchorTile,
                  cut: Callable[[Stage, Box], Box] | None = None
                 ) -> tuple[dict[str, Box], dict[str, Part]]:
    """({stage name: box}, {scratch buffer: (first, last) per dimension that is read}) of a tile,
    inside the tensors.  cut: as for ``_boxes_from``."""
    anchor = next(s for s in stages if group.anchor in s.computes)
    return _boxes_from(program, group, stages, anchor, tile.box, scratch_of(group), True, cut)


def whole_tiles(program: Program, group: Group, stages: Sequence[Stage],
                tile: AnchorTile) -> tuple[dict[str, Box], dict[str, Part]]:
    """Like ``boxes_of_tile`` for a tile that no border cuts, which starts at a multiple of its
    size: floor divisions of it come out exact."""
    shifted = {}
    for a, (lo, last) in tile.box.items():
        size = tile.size[a]
        for first in () if size is None else axes_of(lo):
            lo = Axis(f"{first.name}_tile", first.extent) * tile.grains.get(a, size or 0)
        shifted[a] = (lo, last if size is None else simplify(lo + (size - 1)))
    anchor = next(s for s in stages if group.anchor in s.computes)
    return _boxes_from(program, group, stages, anchor, shifted, scratch_of(group), False)


def starts_at_multiple(group: Group, origin: Expr, n: int) -> bool:
    """True if ``origin``, where a box of the group starts, is a multiple of ``n`` in every tile."""
    first = {}
    for a in axes_of(origin):
        t = next((unit_of(group, n) for n in group.tile if a.name == f"{n}_lo"), None)
        if t is not None:  # tile number times tile; only number 0 where one tile is everything
            whole = upper(a.extent)
            first[a] = Const(0) if whole is not None and t >= whole else Axis(
                f"{a.name}_tile", a.extent) * t
    return are_equal(simplify(substitute(origin, first) % n), Const(0))


def _boxes_from(program: Program, group: Group, stages: Sequence[Stage], anchor: Stage,
                anchor_box: Box, scratch: Set[str], clamp: bool,
                cut: Callable[[Stage, Box], Box] | None = None
               ) -> tuple[dict[str, Box], dict[str, Part]]:
    """({stage name: box}, {scratch buffer: what is read of it}).  cut: function from a Stage and
    the box it is asked for to the part of it that it computes."""
    boxes: dict[str, Box] = {}
    demand: dict[str, Part] = {}
    known = program.known("boxes")
    for s in reversed(stages):
        wanted = s, tuple([demand.get(o.buffer) for o in s.outputs])
        box: Box | None = anchor_box if s is anchor else known.get(wanted)
        if STREAM in group.connect.values() and not any(wanted[1]) and anchor_box.keys() >= {
                *s.axes}:  # totals of rows, which are stored
            box = {a: anchor_box[a] for a in s.axes}
        if box is None:
            box = known[wanted] = _box_of(group, s, demand)
        whole = "made", s, tuple(box.items())
        if whole not in known:
            known[whole] = _made(s, box)
        # before the cut: scratch holds what steps before have computed, too
        demand |= {b: part for b, part in known[whole].items() if b in demand}
        boxes[s.name] = box = cut(s, box) if cut else box
        inner = s.reads & scratch
        asked = s, tuple(box.items()), inner, clamp
        if asked not in known:
            known[asked] = _asked(program, s, box, inner, clamp)
        for b, need in known[asked]:
            demand[b] = _union(demand.get(b), need)
    return boxes, demand


def _made(s: Stage, box: Box) -> dict[str, Part]:
    """{output: what a box of the stage makes of it, where that may be more than anybody asked for:
    whole points of the loops at the edges, or because another output of theirs is read further}."""
    return {o.buffer: tuple(_span(i, box) for i in o.index)
            for o in s.outputs if o.index != s.axes or len(s.outputs) > 1}


def _asked(program: Program, s: Stage, box: Box, inner: Collection[str],
           clamp: bool) -> list[tuple[str, Part]]:
    """[(buffer, part)]: what a box of the stage reads of the buffers ``inner``."""
    needs = []
    for n in s.loads():
        if n.buffer not in inner:
            continue
        need = []
        for i, extent in zip(n.index, program.shape(n.buffer)):
            lo, last = interval(i, box)
            end = simplify(extent - 1)
            if lo is None or last is None:
                lo, last = Const(0), end
            if clamp:
                lo, last = simplify(maximum(lo, Const(0))), simplify(minimum(last, end))
            need.append((lo, last))
        needs.append((n.buffer, tuple(need)))
    return needs


def _union(have: Part | None, need: Part) -> Part:
    if have is None:
        return need
    return tuple((simplify(minimum(a, c)), simplify(maximum(b, d)))
                 for (a, b), (c, d) in zip(have, need))


def _box_of(group: Group, s: Stage, demand: Mapping[str, Part]) -> Box:
    """The box of a stage before the anchor: the preimage of what is asked of it."""
    box: Box = {}
    for o in s.outputs:
        if o.buffer not in demand:
            continue
        wanted = demand[o.buffer]
        dims = tuple(Axis(f"dim{d}", a.extent) if isinstance(a, Axis) else
                     Axis(f"dim{d}", Const(1)) for d, a in enumerate(o.index))
        back: Mapping[Axis, Expr] | None
        if o.index == s.axes:
            back = dict(zip(s.axes, dims))
        else:
            dims = tuple(Axis(f"dim{d}", _extent(i, s)) for d, i in enumerate(o.index))
            back = invert_map(o.index, s.axes, dims)
        ranges = dict(zip(dims, wanted))
        for a in s.axes:
            part = (Const(0), simplify(a.extent - 1)) if back is None else _span(back[a], ranges)
            old = box.get(a)
            box[a] = part if old is None else _union((old,), (part,))[0]
    if not any(o.buffer in demand for o in s.outputs):
        raise ScheduleError(f"group {group.name}: nothing after {s.name} reads it; make it a group "
                            "of its own or the anchor")
    return box


def _extent(index: Expr, stage: Stage) -> Expr:
    return simplify(_span(index, {})[1] + 1) if not isinstance(index, Axis) else index.extent


def _span(index: Expr, ranges: Box) -> Ends:
    """``interval`` of where a stage stores, which no data decides."""
    lo, last = interval(index, ranges)
    assert lo is not None and last is not None, index
    return lo, last
