"""Step ``buffers`` of ``decide``: where stored temps live in the arena, by liveness over the
kernel order.

Static shapes: greedy by size, lowest offset that no live neighbour occupies, in one slot.
Symbolic shapes: slots (``slots.py``).
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import repeat

from aotc.ir.access import layout_from_json, offset_of
from aotc.ir.expr import Axis, Const, Expr, Shape, loads, maximum
from aotc.ir.program import Program, static_shape
from aotc.ir.read_boxes import proves_le
from aotc.ir.schedule import Group, Schedule, Slot
from aotc.ir.simplify import are_equal, simplify
from aotc.sched.memory.slots import Classes, Lifetime, colour
from aotc.sched.model.boxes import Box, Ends, stage_boxes, tile_anchor
from aotc.sched.model.stages import Stage, group_stages
from aotc.sched.model.stored_sizes import ALIGN, buffer_bytes, store_strides

ATTEMPTS = 24  # to place what sticks out earlier, per order
# boxes of the stages in one work item, and the anchor's ends of the axes that are cut
ItemBoxes = tuple[dict[str, Box], list[Ends]]


def liveness(program: Program, groups: Sequence[Group]) -> dict[str, Lifetime]:
    """{temp: (first, last)}: indices of the groups that write and last read it."""
    live: dict[str, Lifetime] = {}
    for i, g in enumerate(groups):
        for c in g.computes:
            for b in program.producer[c].inputs:
                if b in live:
                    live[b] = (live[b][0], i)
        for b in g.outputs:
            if program.buffers[b].role == "temp":
                live[b] = (i, i)
    return live


def lives(program: Program, schedule: Schedule) -> dict[str, Lifetime]:
    """{temp, or constant that has a place: (first, last)}: numbers of the turns from the first that
    writes it, or since which it is copied, to the last that reads it; of groups without turns."""
    turns: dict[str, list[int]] = {}
    for n, name in enumerate([t[0] for t in schedule.order]
                             or [g.name for g in schedule.groups]):
        turns.setdefault(name, []).append(n)
    at = [(min(t), max(t)) for t in (turns.get(g.name, [0]) for g in schedule.groups)]
    number = {g.name: i for i, g in enumerate(schedule.groups)}
    out = {b: (at[first][0], at[last][1])
           for b, (first, last) in liveness(program, schedule.groups).items()}
    readers = {b: [i for i, g in enumerate(schedule.groups) if any(
        b in program.producer[c].inputs for c in g.computes)]
        for b in schedule.buffers if b in program.consts}
    for i, g in enumerate(schedule.groups):  # what other groups made may be read in later turns
        for b in {b for c in g.computes for b in program.producer[c].inputs} & set(out):
            out[b] = (out[b][0], max(out[b][1], at[i][1]))
    for b, found in readers.items():
        if found:
            since = number.get(schedule.buffers[b].since, found[0])
            out[b] = (min(at[i][0] for i in (since, *found)), max(at[i][1] for i in found))
    return out


def find_in_place(program: Program, schedule: Schedule, group: Group, live: Mapping[str, Lifetime],
                  index: int) -> dict[str, str]:
    """{output: input that dies here and is read only at the very element that is written}.  A
    stage of several may write over what no other stage reads: every stored element is computed by
    one work item, once; over what earlier stages read too, if they read it in work items of the
    same rows; and over what only earlier stages read, if it is the same part (a softmax over its
    scores).  Of a group that runs along an axis only the first holds: a stage of the next step may
    read again what the step before has written over."""
    stages = group_stages(program, group)
    readers: dict[str, list[int]] = {}
    for i, s in enumerate(stages):
        for b in dict.fromkeys(n.buffer for n in s.loads()):
            readers.setdefault(b, []).append(i)
    dying = {b for b in readers if live.get(b, (0, -1))[1] == index and b not in group.outputs}
    items = len(stages) > 1 and dying and not group.run
    boxes = _item_boxes(program, group, stages) if items else None
    pairs: dict[str, str] = {}
    for i, s in enumerate(stages):
        free = {b for b in dying if readers[b] == [i] or boxes and readers[b][-1] == i
                and _own_rows(stages, boxes, b)}
        pairs |= _overwritten(program, schedule, s, free - set(pairs.values()), live)
        if boxes:
            earlier = {b for b in dying if readers[b][-1] < i} - set(pairs.values())
            pairs |= _of_the_same_part(program, schedule, (s, stages[:i]), earlier, boxes[0], live)
    return pairs


def _item_boxes(program: Program, group: Group, stages: Sequence[Stage]) -> ItemBoxes:
    """(boxes of the stages in one work item, the anchor's ends of the axes that are cut)."""
    anchor = next(s for s in stages if group.anchor in s.computes)
    tile = tile_anchor(anchor, group)
    cut = [tile.box[a] for a in anchor.axes if not are_equal(tile.box[a][0], Const(0))]
    return stage_boxes(program, group, stages, tile)[0], cut


def _own_rows(stages: Sequence[Stage], boxes: ItemBoxes, buffer: str) -> bool:
    """True if every axis that is cut into work items cuts a dimension of ``buffer`` into the same
    parts for all stages that read it: then no work item reads what another writes."""
    inside, cut = boxes
    loads = [(n, inside[s.name]) for s in stages for n in s.loads() if n.buffer == buffer]
    rank = len(loads[0][0].index)
    return all(any(all(_same_part(n.index[d], box, ends) for n, box in loads)
                   for d in range(rank)) for ends in cut)


def _same_part(index: Expr, box: Box, ends: Ends) -> bool:
    return isinstance(index, Axis) and index in box and all(
        are_equal(x, y) for x, y in zip(box[index], ends))


def _of_the_same_part(program: Program, schedule: Schedule, stage: tuple[Stage, Sequence[Stage]],
                      dying: Set[str], boxes: Mapping[str, Box], live: Classes) -> dict[str, str]:
    """{output of a stage: one of ``dying``, of which the stages before it read in every work item
    just what it writes in this one}.  stage: (stage, those before it)."""
    s, before = stage
    pairs: dict[str, str] = {}
    for o in s.outputs if dying else ():
        part = [boxes[s.name][i] for i in o.index if isinstance(i, Axis) and i in boxes[s.name]]
        if o.buffer not in live or len(part) < len(o.index):
            continue
        for b in sorted(dying - set(pairs.values())):
            loads = [(n, boxes[r.name]) for r in before for n in r.loads() if n.buffer == b]
            if _same_place(program, schedule, b, o.buffer) and all(
                    len(n.index) == len(part) and all(map(_same_part, n.index, repeat(box), part))
                    for n, box in loads):
                pairs[o.buffer] = b
                break
    return pairs


def _same_place(program: Program, schedule: Schedule, a: str, b: str) -> bool:
    """True if the elements of both buffers, of one type, lie at the same offsets."""
    return (program.dtype(a) == program.dtype(b) and program.shape(a) == program.shape(b)
            and schedule.layouts.get(a) == schedule.layouts.get(b))


def _overwritten(program: Program, schedule: Schedule, s: Stage, dying: Set[str],
                 live: Classes) -> dict[str, str]:
    """{output of a stage: input of it among ``dying`` that it may overwrite}."""
    def place(buffer: str, index: Shape) -> Expr:
        return offset_of(index, program.shape(buffer), layout_from_json(
            schedule.layouts.get(buffer)))

    pairs: dict[str, str] = {}
    in_fold = {n.buffer for n in loads(s.body)} if s.fold != "none" else set()
    for i, o in enumerate(s.outputs):
        if o.buffer not in live:
            continue
        at = place(o.buffer, o.index)
        # outputs are stored one after the other: a later one must not read what is gone by then
        later = {n.buffer for x in s.outputs[i + 1:] for n in loads(x.value)}
        for b in dict.fromkeys(n.buffer for n in s.loads()):
            if b not in dying or b in later or b in in_fold or b in pairs.values():
                continue
            if program.dtype(b) != program.dtype(o.buffer) or not are_equal(
                    buffer_bytes(program, schedule, b), buffer_bytes(program, schedule, o.buffer)):
                continue
            uses = [place(b, n.index) for x in s.outputs for n in loads(x.value) if n.buffer == b]
            if all(are_equal(u, at) for u in uses):
                pairs[o.buffer] = b
                break
    return pairs


def allocate(program: Program, schedule: Schedule) -> dict[str, Slot]:
    """{temp: Slot} for every stored temp, those that have a place in a cluster's memory there;
    deterministic."""
    live = lives(program, schedule)
    settled = {b: s for b, s in schedule.buffers.items() if s.memory and b in live}
    live = {b: at for b, at in live.items() if b not in settled}
    owner = {b: b for b in live}
    for i, g in enumerate(() if schedule.order else schedule.groups):
        for out, src in find_in_place(program, schedule, g, live, i).items():
            owner[out] = owner[src]
    classes: dict[str, Lifetime] = {}
    for b, root in owner.items():
        first, last = classes.get(root, live[b])
        classes[root] = (min(first, live[b][0]), max(last, live[b][1]))
    if all(static_shape(program.shape(b)) is not None for b in live):
        places = _best_fit(program, schedule, classes)
    else:
        places = colour(classes, {b: buffer_bytes(program, schedule, b) for b in classes})
    # neighbouring slots may stand for one temp: those of other memories come behind them all
    end = max((x.slot + x.span for x in places.values()), default=0)
    more = max(0, end - min((x.slot for x in settled.values()), default=end))
    return {b: places[owner[b]] for b in live} | {
        b: replace(x, slot=x.slot + more) for b, x in settled.items()}


def _best_fit(program: Program, schedule: Schedule, classes: Classes) -> dict[str, Slot]:
    """Offsets in one slot.  Which order of placing is best differs from model to model: several are
    tried, then those that stick out at the top are placed earlier, as long as that helps."""
    size = {}
    for b in classes:
        n = buffer_bytes(program, schedule, b)
        assert isinstance(n, Const), n  # of buffers of fixed shapes
        size[b] = int(n.value)
    orders = [sorted(classes, key=key) for key in (
        lambda b: (-size[b], classes[b], b), lambda b: (classes[b], b),
        lambda b: (classes[b][0] - classes[b][1], -size[b], b),
        lambda b: (-size[b] * (classes[b][1] - classes[b][0] + 1), b))]
    peak = max((sum(size[b] for b, (first, last) in classes.items() if first <= i <= last)
                for i, _ in classes.values()), default=0)
    best: dict[str, int] | None = None
    end = 0
    for order in orders:
        for _ in range(ATTEMPTS):
            placed = _place(order, size, classes)
            top = max((placed[b] + size[b] for b in order), default=0)
            if best is None or top < end:
                best, end = placed, top
            if end <= peak:
                return {b: Slot(0, at) for b, at in best.items()}
            high = [b for b in order if placed[b] + size[b] == top]
            if order[:len(high)] == high:
                break
            order = high + [b for b in order if b not in high]
    assert best is not None  # there are orders
    return {b: Slot(0, at) for b, at in best.items()}


def _place(order: Sequence[str], size: Mapping[str, int], classes: Classes) -> dict[str, int]:
    """{buffer: offset}: each in the smallest gap between those placed before that live with it."""
    placed: dict[str, int] = {}
    for b in order:
        first, last = classes[b]
        busy = sorted((placed[o], placed[o] + size[o]) for o in placed
                      if classes[o][0] <= last and first <= classes[o][1])
        best, best_gap, at = None, None, 0
        for lo, hi in busy:
            gap = lo - at
            if gap >= size[b] and (best_gap is None or gap < best_gap):
                best, best_gap = at, gap
            at = max(at, hi)
        placed[b] = at if best is None else best
    return placed


def slot_sizes(program: Program, schedule: Schedule) -> tuple[Expr, ...]:
    """Bytes of each arena slot, as expressions (Const for static models)."""
    ends: dict[int, dict[Expr, None]] = {}
    for slot, stride in store_strides(program, schedule).items():
        holders = max(s.holders for s in schedule.buffers.values() if s.slot == slot)
        ends[slot] = {Const(holders * stride): None}
    for b, s in schedule.buffers.items():
        if s.memory:
            continue
        end = simplify(buffer_bytes(program, schedule, b) + s.offset)
        if s.span > 1:
            part = ALIGN * s.span
            end = simplify((end + (part - 1)) // part * ALIGN)
        for i in range(s.slot, s.slot + s.span):
            ends.setdefault(i, {})[end] = None  # equal sizes once, in order
    return tuple(_largest(ends.get(i, (Const(0),))) for i in range(max(ends, default=-1) + 1))


def _largest(sizes: Iterable[Expr]) -> Expr:
    """The maximum as an expression; those that another is proved to cover are left out."""
    kept: list[Expr] = []
    for size in sizes:
        if any(proves_le(size, other) for other in kept):
            continue
        kept = [k for k in kept if not proves_le(k, size)] + [size]
    out = kept[0]
    for size in kept[1:]:
        out = maximum(out, size)
    return simplify(out)
