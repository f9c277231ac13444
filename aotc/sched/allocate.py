"""Last decider: where stored temps live in the arena, by liveness over the kernel order.

Static shapes: greedy by size, lowest offset that no live neighbour occupies, in one slot.
Symbolic shapes: slots (colouring); a slot's size is the maximum of its tenants'.  A buffer that is
a known multiple of another at every extent may take as many neighbouring slots of that one's size.
"""

from aotc.ir.access import layout_from_json, linearise, offset_of, volume
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Const, loads, maximum
from aotc.ir.program import static_shape
from aotc.ir.region import proves_le
from aotc.ir.schedule import Slot
from aotc.ir.simplify import same, simplify
from aotc.sched.size import estimate
from aotc.sched.stages import group_stages

ALIGN = 64
MAX_SPAN = 8  # slots that one buffer may take
ATTEMPTS = 24  # to place what sticks out earlier, per order


def physical_elements(program, schedule, name):
    layout = layout_from_json(schedule.layouts.get(name))
    shape = program.shape(name)
    return volume(layout.shape(shape) if not layout.is_identity else shape)


def buffer_bytes(program, schedule, name):
    """Bytes of a stored buffer, rounded up to 64, as an expression."""
    size = physical_elements(program, schedule, name) * DTYPES[program.dtype(name)].size
    return simplify((size + (ALIGN - 1)) // ALIGN * ALIGN)


def liveness(program, groups):
    """{temp: (first, last)}: indices of the groups that write and last read it."""
    live = {}
    for i, g in enumerate(groups):
        for c in g.computes:
            for b in program.producer[c].inputs:
                if b in live:
                    live[b] = (live[b][0], i)
        for b in g.outputs:
            if program.buffers[b].role == "temp":
                live[b] = (i, i)
    return live


def in_place(program, schedule, group, live, index):
    """{output: input that dies here and is read only at the very element that is written}.  A
    stage of several may write over what no other stage reads: every stored element is computed by
    one work item, once."""
    stages = group_stages(program, group)
    readers = {}
    for s in stages:
        for b in dict.fromkeys(n.buffer for n in s.loads()):
            readers[b] = readers.get(b, 0) + 1
    dying = {b for b, n in readers.items() if n == 1 and live.get(b, (0, -1))[1] == index
             and b not in group.outputs}
    pairs = {}
    for s in stages:
        pairs |= _overwritten(program, schedule, s, dying - set(pairs.values()), live)
    return pairs


def _overwritten(program, schedule, s, dying, live):
    """{output of a stage: input of it among ``dying`` that it may overwrite}."""
    def place(buffer):
        layout = layout_from_json(schedule.layouts.get(buffer))
        return lambda idx: offset_of(idx, program.shape(buffer), layout)

    pairs, in_fold = {}, {n.buffer for n in loads(s.body)} if s.fold != "none" else set()
    for i, o in enumerate(s.outputs):
        if o.buffer not in live:
            continue
        at = place(o.buffer)(o.index)
        # outputs are stored one after the other: a later one must not read what is gone by then
        later = {n.buffer for x in s.outputs[i + 1:] for n in loads(x.value)}
        for b in dict.fromkeys(n.buffer for n in s.loads()):
            if b not in dying or b in later or b in in_fold or b in pairs.values():
                continue
            if program.dtype(b) != program.dtype(o.buffer) or not same(
                    buffer_bytes(program, schedule, b), buffer_bytes(program, schedule, o.buffer)):
                continue
            uses = [linearise(n, place).index[0] for x in s.outputs for n in loads(x.value)
                    if n.buffer == b]
            if all(same(u, at) for u in uses):
                pairs[o.buffer] = b
                break
    return pairs


def allocate(program, schedule):
    """{temp: Slot} for every stored temp; deterministic."""
    live = liveness(program, schedule.groups)
    owner = {b: b for b in live}
    for i, g in enumerate(schedule.groups):
        for out, src in in_place(program, schedule, g, live, i).items():
            owner[out] = owner[src]
    classes = {}
    for b, root in owner.items():
        first, last = classes.get(root, live[b])
        classes[root] = (min(first, live[b][0]), max(last, live[b][1]))
    if all(static_shape(program.shape(b)) is not None for b in live):
        places = _best_fit(program, schedule, classes)
    else:
        places = _colour(program, schedule, classes)
    return {b: places[owner[b]] for b in live}


def _best_fit(program, schedule, classes):
    """Offsets in one slot.  Which order of placing is best differs from model to model: several are
    tried, then those that stick out at the top are placed earlier, as long as that helps."""
    size = {b: buffer_bytes(program, schedule, b).value for b in classes}
    orders = [sorted(classes, key=key) for key in (
        lambda b: (-size[b], classes[b], b), lambda b: (classes[b], b),
        lambda b: (classes[b][0] - classes[b][1], -size[b], b),
        lambda b: (-size[b] * (classes[b][1] - classes[b][0] + 1), b))]
    peak = max((sum(size[b] for b, (first, last) in classes.items() if first <= i <= last)
                for i, _ in classes.values()), default=0)
    best, end = None, 0
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
    return {b: Slot(0, at) for b, at in best.items()}


def _place(order, size, classes):
    """{buffer: offset}: each in the smallest gap between those placed before that live with it."""
    placed = {}
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


def _colour(program, schedule, classes):
    """Slots, each for buffers that never live together: of several assignments the one that takes
    least for typical dimensions."""
    size = {b: buffer_bytes(program, schedule, b) for b in classes}
    need = {b: estimate(size[b]) for b in classes}
    spans = _spans(size, need)

    def bytes_of(places):
        slots = {}
        for b, p in places.items():
            for i in range(p.slot, p.slot + p.span):
                slots[i] = max(slots.get(i, 0), -(-need[b] // p.span))
        return sum(slots.values())

    orders = (lambda b: (-need[b], classes[b], b), lambda b: (classes[b], b),
              lambda b: (-len(spans[b]), classes[b], b))
    return min((_by_time(classes, need), _by_size(classes, need), *(
        _side_by_side(sorted(classes, key=order), classes, need, spans) for order in orders)),
        key=bytes_of)


def _spans(size, need):
    """{buffer: ways to cut it into equal parts}: 1, and those whose parts are the size of another
    buffer at every extent."""
    kinds = {}
    for b, e in size.items():
        kinds.setdefault(e, need[b])
    ways = {}
    for large, n in kinds.items():
        ways[large] = (1, *sorted({n // m for small, m in kinds.items() if 1 < n / m <= MAX_SPAN
                                   and n % m == 0 and same(simplify(small * (n // m)), large)}))
    return {b: ways[e] for b, e in size.items()}


def _side_by_side(order, classes, need, spans):
    """Each where the slots that are free while it lives grow least, in one of its ``spans``; if
    they grow alike, in most parts: those can serve others one by one."""
    slots, places = [], {}  # slot: [bytes, (first, last), ...]
    for b in order:
        first, last = classes[b]
        best = None
        for span in spans[b]:
            part = -(-need[b] // span)
            for i in range(len(slots) + 1):
                taken = slots[i:i + span]
                if any(lo <= last and first <= hi for s in taken for lo, hi in s[1:]):
                    continue
                growth = sum(max(0, part - s[0]) for s in taken) + part * (span - len(taken))
                if best is None or (growth, -span, i) < best[0]:
                    best = (growth, -span, i), part
        (_, span, i), part = best
        span = -span
        slots += [[0] for _ in range(i + span - len(slots))]
        for s in slots[i:i + span]:
            s[0] = max(s[0], part)
            s.append((first, last))
        places[b] = Slot(i, 0, span)
    return places


def _by_time(classes, need):
    """In order of time, each into the free slot of the nearest size."""
    slots, places = [], {}  # slot: [free from group, typical bytes]
    for b in sorted(classes, key=lambda b: (classes[b], b)):
        first, last = classes[b]
        free = [i for i, s in enumerate(slots) if s[0] < first]
        if free:
            i = min(free, key=lambda i: (abs(slots[i][1] - need[b]), i))
            slots[i] = [last, max(slots[i][1], need[b])]
        else:
            i = len(slots)
            slots.append([last, need[b]])
        places[b] = Slot(i)
    return places


def _by_size(classes, need):
    """Largest first, each into the first slot that is free while it lives."""
    slots, places = [], {}  # slot: [(first, last), ...]
    for b in sorted(classes, key=lambda b: (-need[b], classes[b], b)):
        first, last = classes[b]
        i = next((i for i, taken in enumerate(slots) if all(
            last < lo or hi < first for lo, hi in taken)), len(slots))
        if i == len(slots):
            slots.append([])
        slots[i].append((first, last))
        places[b] = Slot(i)
    return places


def slot_sizes(program, schedule):
    """Bytes of each arena slot, as expressions (Const for static models)."""
    ends = {}
    for b, s in schedule.buffers.items():
        end = simplify(buffer_bytes(program, schedule, b) + s.offset)
        if s.span > 1:
            part = ALIGN * s.span
            end = simplify((end + (part - 1)) // part * ALIGN)
        for i in range(s.slot, s.slot + s.span):
            ends.setdefault(i, {})[end] = None  # equal sizes once, in order
    return tuple(_largest(ends.get(i, (Const(0),))) for i in range(max(ends, default=-1) + 1))


def _largest(sizes):
    """The maximum as an expression; those that another is proved to cover are left out."""
    kept = []
    for size in sizes:
        if any(proves_le(size, other) for other in kept):
            continue
        kept = [k for k in kept if not proves_le(k, size)] + [size]
    out = kept[0]
    for size in kept[1:]:
        out = maximum(out, size)
    return simplify(out)
