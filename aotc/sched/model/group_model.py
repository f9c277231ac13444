"""A group as arithmetic on integers: how wide every box is, for a tile of given size.

``stage_boxes`` answers for every position of a tile, as expressions; a search asks for the sizes of
thousands of tiles and wants numbers.  ``group_model`` compiles the index expressions of a group's
stages once, into a ``GroupModel`` (group_numbers.py).
Widths are those of a tile in the interior: no clamping at borders, alignment to the tile assumed
for floor-div and mod, symbols at their typical value, data-dependent dimensions whole.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, prod

from aotc.errors import ScheduleError
from aotc.ir.category import dot_dtypes, factor_pairs
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import (
    Axis,
    Binary,
    Const,
    Expr,
    Load,
    Shape,
    Unary,
    Var,
    axes_of,
    depends_on_data,
    substitute,
    walk,
)
from aotc.ir.indices.polynomial import ONE, Poly
from aotc.ir.indices.remap import invert_map
from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.ir.simplify import to_poly
from aotc.sched.model.flat_numbers import flat_numbers
from aotc.sched.model.group_numbers import Access, Extra, GroupModel, StageModel, Width
from aotc.sched.model.size import estimate
from aotc.sched.model.stages import Stage, group_stages
from aotc.sched.model.tile_starts import first_axes, first_value
from aotc.target.tuning import Tuning

Orders = Mapping[str, tuple[int, ...] | None]  # {buffer: its dims, outermost in memory first}
Form = tuple[tuple[tuple[str, int], ...], ...]  # of an index: its terms but the constant
USUAL = Tuning()
WHOLE = 1 << 60  # width of an index nothing is known about; the dimension's extent cuts it
PRODUCT = 2  # operations of a term of a sum of products


# ---------------------------------------------------------------- compiling a group

def group_model(program: Program, group: Group, orders: Orders | None = None,
                extra: Mapping[str, Extra] | None = None,
                tuning: Tuning | None = None) -> GroupModel:
    """The GroupModel of a group.  orders: {buffer: its dims from outermost to innermost in memory}
    of those that are not row-major; extra: {stage: Extra}, what its accesses cost, and its
    arithmetic where no vectors compute it; tuning: what operations take (None: usually).
    ScheduleError where its stages cannot be formed."""
    stages = group_stages(program, group.by_axes)
    anchor = next((i for i, s in enumerate(stages) if group.anchor in s.computes), None)
    if anchor is None:
        raise ScheduleError(f"group {group.name}: anchor {group.anchor!r} is no stage of it")
    read = {n.buffer for s in stages for n in s.loads()}
    made = {o.buffer for s in stages for o in s.outputs}
    first: dict[str, tuple[int, ...]] = {}
    found: list[StageModel] = []
    orders, extra = orders or {}, extra or {}
    op_cost = (tuning or USUAL).op_cost
    known = program.known("stage models", *op_cost.items())
    for i, s in reversed(list(enumerate(stages))):
        lows = {} if i == anchor else first_axes(s, first)
        more = extra.get(s.name, Extra())
        key = s, tuple([orders.get(b) for b in s.buffers]), more, tuple(lows.items())
        if key not in known:
            known[key] = _stage_model(program, s, orders, more, lows, op_cost)
        found.append(known[key] if not group.flat or i != anchor else flat_numbers(
            known[key], group.flat, group.flat_axis))
        for a in found[-1].reads:
            if a.buffer in made:
                at = tuple(map(min, *a.lows)) if len(a.lows) > 1 else a.lows[0]
                first[a.buffer] = tuple(map(min, first.get(a.buffer, at), at))
    models = tuple(reversed(found))
    names = list(models[anchor].axes[:models[anchor].rank])
    extents = list(models[anchor].extents[:models[anchor].rank])
    cut = []
    for i, m in enumerate(models):
        for r in m.split:
            place = m.axes.index(r)
            names.append(f"{m.name}.{r}")
            extents.append(m.extents[place])
            cut.append((i, place))
    return GroupModel(group.name, models, anchor, tuple(names), tuple(extents),
                      models[anchor].rank, frozenset(read & made), group.outputs, tuple(cut))


def _stage_model(program: Program, s: Stage, orders: Orders, more: Extra, lows: Mapping[Axis, int],
                 op_cost: Mapping[str, int]) -> StageModel:
    axes = s.axes + s.raxes
    places = {a: i for i, a in enumerate(axes)}
    extents = tuple(estimate(a.extent) for a in axes)
    written = {o.buffer: o.index for o in s.outputs}
    grouped: dict[str, list[Load]] = {}
    for n in s.loads():
        grouped.setdefault(n.buffer, []).append(n)
    in_fold = {n.buffer for n in walk(s.body) if isinstance(n, Load)} if s.raxes else set()
    reads = tuple(_access(program, b, [n.index for n in loads], places, len(s.axes),
                          lows, orders.get(b), b not in in_fold and _same_place(s, loads, written))
                  for b, loads in grouped.items())
    writes = tuple(_access(program, b, [index], places, len(s.axes), lows, orders.get(b))
                   for b, index in written.items())
    per_point = _per_term(s, op_cost) * more.scale + more.per_point if s.raxes else 0
    per_output = sum(_operations(o.value, op_cost) for o in s.outputs)
    per_output = max(more.scale > 1, per_output) * more.scale + more.per_output
    contraction = more.scale == 1 and bool(factor_pairs(s.axes, s.raxes, s.fold, s.body))
    return StageModel(s.name, tuple(a.name for a in axes), extents, len(s.axes), reads, writes,
                      tuple(_preimage(s, index) for index in written.values()),
                      per_point, per_output, contraction,
                      tuple((n, tuple(p for p, a in enumerate(axes) if a.name not in common))
                            for n, common in more.packs),
                      tuple(a.name for a in s.raxes if isinstance(s.fold, str)
                            and estimate(a.extent) > 1))


def _same_place(s: Stage, loads: Iterable[Load], written: Mapping[str, Shape]) -> bool:
    return all(n.index in written.values() for n in loads)


def _per_term(s: Stage, op_cost: Mapping[str, int]) -> int:
    """Operations of a term of a stage's fold.  Those that make operands of narrow products are the
    row's, which says what they take."""
    return PRODUCT if dot_dtypes(s.body) is not None else _operations(s.body, op_cost) + 1


def _operations(e: Expr, op_cost: Mapping[str, int]) -> int:
    return sum(op_cost.get(n.op, 1) for n in walk(e) if isinstance(n, (Unary, Binary))
               and DTYPES[n.dtype].kind == "f")


def _access(program: Program, buffer: str, indices: Sequence[Shape], places: Mapping[Axis, int],
            rank: int, lows: Mapping[Axis, int], order: Sequence[int] | None = None,
            elementwise: bool = False) -> Access:
    extents = tuple(estimate(d) for d in program.shape(buffer))
    order = order or range(len(extents))
    forms: dict[Form, tuple[list[Poly], list[int], list[int], list[int]]] = {}
    for index in indices:
        polys = [to_poly(i) for i in index]
        key = tuple(tuple(sorted((str(m), c) for m, c in p.items() if m != ONE)) for p in polys)
        at = [first_value(i, lows) for i in index]
        constants = [p.pop(ONE, 0) for p in polys]
        old = forms.setdefault(key, (polys, constants, list(constants), at))
        old[1][:] = map(min, old[1], constants)
        old[2][:] = map(max, old[2], constants)
        old[3][:] = map(min, old[3], at)
    boxes, counts = (tuple(tuple(_width(p, places, hi - lo, found) for p, lo, hi in zip(*form[:3]))
                           for form in forms.values()) for found in (False, True))
    counts = tuple(tuple(form[d] for d in order) for form in counts)
    moved = {a for index in indices for i in index for a in axes_of(i)}
    return Access(buffer, extents, DTYPES[program.dtype(buffer)].size, boxes,
                  tuple(p for a, p in places.items() if p >= rank and a in moved), elementwise,
                  counts, tuple(extents[d] for d in order),
                  tuple(tuple(form[3]) for form in forms.values()))


def _preimage(s: Stage, index: Shape) -> tuple[Width, ...]:
    """Per axis of the stage, its width from the widths of the dims of a written buffer."""
    if index == s.axes:
        return tuple((lambda w, d=d: w[d]) for d in range(len(s.axes)))
    dims = tuple(Axis(f"dim{d}", Const(_extent(i))) for d, i in enumerate(index))
    static = {a: Axis(a.name, Const(estimate(a.extent))) for a in s.axes}
    back = invert_map(tuple(substitute(i, static) for i in index), tuple(static.values()), dims)
    places = {a: d for d, a in enumerate(dims)}
    if back is None:
        return tuple((lambda w: WHOLE) for _ in s.axes)
    return tuple(_width(to_poly(back[static[a]]), places) for a in s.axes)


def _extent(index: Expr) -> int:
    """Extent of what an index expression runs over, every axis whole."""
    axes = {a: i for i, a in enumerate(sorted(axes_of(index), key=lambda a: a.name))}
    return _width(to_poly(index), axes)([estimate(a.extent) for a in axes])


def _width(poly: Poly, places: Mapping[Axis, int], spread: int = 0, found: bool = False) -> Width:
    """Function from widths to the number of values a polynomial spans (``spread`` more for
    neighbouring accesses of the same form); ``found``: of an index that is data, how many are
    looked up at most, instead of WHOLE."""
    affine, parts = [], []
    for mono, c in poly.items():
        moving = [a for a in mono if axes_of(a) or isinstance(a, (Load, Var))]
        if not moving:
            continue
        scale = abs(c) * prod(estimate(a) for a in mono if a not in moving)
        if len(moving) == 1 and isinstance(moving[0], Axis):
            affine.append((scale, places[moving[0]]))
        else:
            parts.append((scale, _atom(moving[0], places, found) if len(moving) == 1
                          else lambda w: WHOLE))
    if not parts and len(affine) == 1 and affine[0][0] == 1 and not spread:
        place = affine[0][1]
        return lambda w: w[place]
    if not parts:
        base = 1 + spread - sum(c for c, _ in affine)
        return lambda w: base + sum([c * w[k] for c, k in affine])
    return lambda w: 1 + spread + sum(c * (w[k] - 1) for c, k in affine) + sum(
        c * (f(w) - 1) for c, f in parts)


def _atom(atom: Expr, places: Mapping[Axis, int], found: bool) -> Width:
    """Width of a floor-div, mod, min or max; anything else (data) is WHOLE."""
    if found and depends_on_data(atom):
        looked = [places[a] for a in axes_of(atom)]
        return lambda w: prod([w[k] for k in looked])
    if not isinstance(atom, Binary) or atom.op not in ("floordiv", "mod", "min", "max", "checked"):
        return lambda w: WHOLE
    x = _width(to_poly(atom.a), places)
    if depends_on_data(atom.a):
        return lambda w: WHOLE
    if atom.op == "checked":
        return x
    if atom.op in ("min", "max"):
        y = _width(to_poly(atom.b), places)
        return lambda w: max(x(w), y(w))
    d = estimate(atom.b)
    if atom.op == "mod":
        return lambda w: x(w) if x(w) < d and d % x(w) == 0 else d
    return lambda w: ceil(x(w) / d) if x(w) % d == 0 or d % x(w) == 0 else (x(w) + d - 2) // d + 1


__all__ = ["Access", "GroupModel", "StageModel", "group_model"]
