"""Arena slots for buffers whose sizes depend on dynamic dimensions.

A slot serves buffers that never live together; its size is the maximum of its tenants'.  A buffer
may take several neighbouring slots, an equal part in each.  Which assignment is best differs from
extent to extent: several are made for each of a few samples of the dimensions, and the one counts
whose arena is nearest to the most that lives at one time, where it is farthest from it.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import isqrt

from aotc.ir.expr import Const, Expr, Sym, substitute, walk
from aotc.ir.schedule import Slot
from aotc.ir.simplify import simplify, upper
from aotc.sched.model.size import typical_extent

Lifetime = tuple[int, int]  # the first and the last group that a buffer lives in
Classes = Mapping[str, Lifetime]  # of buffers
Need = Mapping[str, int]  # bytes of buffers
Assignment = dict[str, Slot]  # of buffers
MAX_SPAN = 8  # slots that one buffer may take


def colour(classes: Mapping[str, Lifetime], size: Mapping[str, Expr]) -> dict[str, Slot]:
    """{buffer: Slot}.  classes: {buffer: (first, last)}, the groups between which it lives; size:
    {buffer: bytes, as an expression}."""
    needs = [{b: _value(e, point) for b, e in size.items()} for point in _samples(size)]
    bounds = [_most_alive(classes, need) for need in needs]

    def cost(places: Assignment) -> tuple[float, float]:
        ratios = [_arena(places, need) / max(1, most) for need, most in zip(needs, bounds)]
        return max(ratios), sum(ratios)

    return min((p for need in needs for p in _assignments(classes, need)), key=cost)


def _samples(size: Mapping[str, Expr]) -> list[dict[Sym, int]]:
    """[{symbol: value}]: all dimensions small, usual, large and between, and each one small or
    large beside usual others; the usual ones first."""
    syms = sorted({n for e in set(size.values()) for n in walk(e) if isinstance(n, Sym)},
                  key=lambda s: s.name)
    usual = {s: typical_extent(s) for s in syms}
    points = [usual, {s: s.lo for s in syms}, {s: s.reach for s in syms},
              {s: max(s.lo, isqrt(s.lo * usual[s])) for s in syms},
              {s: isqrt(usual[s] * s.reach) for s in syms}]
    points += [usual | {s: end} for s in syms for end in (s.lo, s.reach)]
    return [dict(p) for p in dict.fromkeys(tuple(p.items()) for p in points)]


def _value(expr: Expr, point: Mapping[Sym, int]) -> int:
    value = simplify(substitute(expr, {s: Const(n) for s, n in point.items()}))
    return max(1, value.value if isinstance(value, Const) else upper(value) or 1)


def _most_alive(classes: Classes, need: Need) -> int:
    """The most bytes that live at one time: when some buffer is written."""
    return max((sum(need[b] for b, (first, last) in classes.items() if first <= i <= last)
                for i in {first for first, _ in classes.values()}), default=0)


def _arena(places: Assignment, need: Need) -> int:
    slots: dict[int, int] = {}
    for b, p in places.items():
        for i in range(p.slot, p.slot + p.span):
            slots[i] = max(slots.get(i, 0), -(-need[b] // p.span))
    return sum(slots.values())


def _assignments(classes: Classes, need: Need) -> Iterator[Assignment]:
    """Assignments that suit one sample of the dimensions, whose bytes are ``need``."""
    spans = _spans(need)
    long = max((last for _, last in classes.values()), default=0) // 4
    yield _by_time(classes, need)
    yield _by_size(classes, need)
    for order in (lambda b: (-need[b], classes[b], b), lambda b: (classes[b], b),
                  lambda b: (-len(spans[b]), classes[b], b),
                  lambda b: (classes[b][1] - classes[b][0] < long, classes[b], b)):
        for parts in (-1, 1):
            yield _side_by_side(sorted(classes, key=order), classes, need, spans, parts)


def _spans(need: Need) -> dict[str, tuple[int, ...]]:
    """{buffer: ways to cut it into equal parts}: 1, and those whose parts are as large as another
    buffer."""
    sizes = set(need.values())
    ways = {n: (1, *sorted({n // m for m in sizes if n % m == 0 and 1 < n // m <= MAX_SPAN}))
            for n in sizes}
    return {b: ways[n] for b, n in need.items()}


def _side_by_side(order: Sequence[str], classes: Classes, need: Need,
                  spans: Mapping[str, Sequence[int]], parts: int) -> Assignment:
    """Each where the slots that are free while it lives grow least, in one of its ``spans``; if
    they grow alike, in most parts (-1), which can serve others one by one, or fewest (1)."""
    sizes: list[int] = []  # of slots
    tenants: list[list[Lifetime]] = []  # of slots
    places = {}
    for b in order:
        first, last = classes[b]
        best: tuple[tuple[int, int, int], int, int] | None = None
        for span in spans[b]:
            part = -(-need[b] // span)
            for i in range(len(sizes) + 1):
                taken = sizes[i:i + span]
                if any(lo <= last and first <= hi for s in tenants[i:i + span] for lo, hi in s):
                    continue
                growth = sum(max(0, part - n) for n in taken) + part * (span - len(taken))
                key = growth, parts * span, i
                if best is None or key < best[0]:
                    best = key, span, part
        assert best is not None, b  # behind all slots there is room
        (_, _, at), span, part = best
        for i in range(at, at + span):
            if i == len(sizes):
                sizes.append(0)
                tenants.append([])
            sizes[i] = max(sizes[i], part)
            tenants[i].append((first, last))
        places[b] = Slot(at, 0, span)
    return places


def _by_time(classes: Classes, need: Need) -> Assignment:
    """In order of time, each into the free slot of the nearest size."""
    slots: list[tuple[int, int]] = []  # (last group that it is taken in, bytes)
    places = {}
    for b in sorted(classes, key=lambda b: (classes[b], b)):
        first, last = classes[b]
        free = [i for i, s in enumerate(slots) if s[0] < first]
        if free:
            i = min(free, key=lambda i: (abs(slots[i][1] - need[b]), i))
            slots[i] = last, max(slots[i][1], need[b])
        else:
            i = len(slots)
            slots.append((last, need[b]))
        places[b] = Slot(i)
    return places


def _by_size(classes: Classes, need: Need) -> Assignment:
    """Largest first, each into the first slot that is free while it lives."""
    slots: list[list[Lifetime]] = []
    places = {}
    for b in sorted(classes, key=lambda b: (-need[b], classes[b], b)):
        first, last = classes[b]
        i = next((i for i, taken in enumerate(slots) if all(
            last < lo or hi < first for lo, hi in taken)), len(slots))
        if i == len(slots):
            slots.append([])
        slots[i].append((first, last))
        places[b] = Slot(i)
    return places
