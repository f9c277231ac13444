"""A group as arithmetic on integers: how wide every box is, for a tile of given size.

``region`` answers for every position of a tile, as expressions; a search asks for the sizes of
thousands of tiles and wants numbers.  ``group_model`` compiles the index expressions of a group's
stages once; ``GroupModel.boxes`` then follows a tile from the anchor back to what the group reads.
Widths are those of a tile in the interior: no clamping at borders, alignment to the tile assumed
for floor-div and mod, symbols at their typical value, data-dependent dimensions whole.
"""

from dataclasses import dataclass
from math import ceil, prod

from aotc.errors import ScheduleError
from aotc.ir.category import factor_pairs
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import (
    Axis,
    Binary,
    Const,
    Load,
    Unary,
    Var,
    axes_of,
    depends_on_data,
    substitute,
    walk,
)
from aotc.ir.remap import invert_map
from aotc.ir.simplify import ONE, to_poly
from aotc.sched.accesses import Extra
from aotc.sched.size import estimate
from aotc.sched.starts import first_axes, first_value, hull
from aotc.sched.stages import group_stages

RAGGED = 3  # axes of a tile whose ends are looked at
WHOLE = 1 << 60  # width of an index nothing is known about; the dimension's extent cuts it
# operations in units of a multiply or an add; what is not named costs 1.  Fitted to the nests of
# eight models on AVX-512, 3.5 ps an addition: exp 0.11 ns an element, erf 0.18, division 0.07
OP_COST = {"exp": 30, "log": 30, "tanh": 40, "erf": 50, "sin": 30, "cos": 30, "pow": 60,
           "div": 16, "sqrt": 16}


@dataclass(frozen=True)
class Access:
    """The boxes one stage reads of a buffer, or writes.

    extents: the buffer's, ints; size: bytes of an element; boxes: per distinct access one tuple
    of widths, each a function of the stage's widths; reduces: positions (in the stage's widths) of
    the reduction axes it moves along; elementwise: read exactly where the stage writes.
    counts: like boxes, but of a dimension indexed by data only the entries looked up, and in the
    order of memory, outermost first; stored: the extents in that order.
    lows: per box where it starts in every dimension, in the first tile.
    """

    buffer: str
    extents: tuple
    size: int
    boxes: tuple
    reduces: tuple = ()
    elementwise: bool = False
    counts: tuple = ()
    stored: tuple = ()
    lows: tuple = ()

    def shape(self, widths):
        """Extents of the hull of the boxes."""
        return tuple([hi - lo for lo, hi in self.ends(widths)])

    def ends(self, widths):
        """(first, end) of the hull of the boxes in every dimension, in the first tile."""
        if len(self.boxes) == 1:
            return tuple([(lo, lo + min(f(widths), n)) for f, lo, n in zip(
                self.boxes[0], self.lows[0], self.extents)])
        out = None
        for box, lows in zip(self.boxes, self.lows):
            out = hull(out, tuple((lo, lo + f(widths)) for f, lo in zip(box, lows)))
        return tuple((lo, min(hi, lo + n)) for (lo, hi), n in zip(out, self.extents))

    def bytes(self, widths, unit=1):
        """Bytes of the boxes together, at most the whole buffer's; with ``unit``, every contiguous
        run in memory counts as whole units."""
        if unit > 1:
            return self._runs(widths, unit)
        total = 0
        for box in self.counts:
            n = self.size
            for f, extent in zip(box, self.stored):
                w = f(widths)
                n *= w if w < extent else extent
            total += n
        return total if len(self.boxes) == 1 else min(total, prod(self.extents) * self.size)

    def _runs(self, widths, unit):
        total = 0
        for box in self.counts:
            shape = [min(f(widths), n) for f, n in zip(box, self.stored)]
            run, inner = self.size, len(shape)
            while inner and (inner == len(shape) or shape[inner] == self.stored[inner]):
                inner -= 1
                run *= shape[inner]
            total += prod(shape[:inner]) * -(-run // unit) * unit
        return total


@dataclass(frozen=True)
class StageModel:
    """One stage: names and extents of its axes and reduction axes, in that order (``rank`` of them
    are axes); accesses; arithmetic per point of the fold and per output point."""

    name: str
    axes: tuple
    extents: tuple
    rank: int
    reads: tuple
    writes: tuple
    preimage: tuple  # per written buffer: per axis a function of the widths of its dims
    per_point: int
    per_output: int
    contraction: bool
    per_packed: int  # per point of what follows
    packed: tuple  # positions in a stage's widths of what a work item packs for all of its rows
    split: tuple  # names of the reduction axes that may be cut


@dataclass(frozen=True)
class GroupModel:
    """A group's stages in execution order.

    axes, extents: the tile's variables: the anchor's axes, then ``stage.raxis`` for every
    reduction that may be cut; scratch: buffers that flow between stages; outputs: stored.
    """

    name: str
    stages: tuple
    anchor: int
    axes: tuple
    extents: tuple
    rank: int  # how many of the axes are the anchor's
    scratch: frozenset
    outputs: tuple
    cut: tuple  # per variable beyond rank: (stage number, position in its widths)

    def variables(self, tile, split=None):
        """Tuple of widths for ``axes`` from {axis: extent} and {stage: {raxis: extent}}."""
        named = {f"{s}.{r}": n for s, part in (split or {}).items() for r, n in part.items()}
        unknown = [n for n in [*tile, *named] if n not in self.axes]
        if unknown:
            raise ScheduleError(f"group {self.name}: no axis {', '.join(unknown)} to cut; choose "
                                f"from {', '.join(self.axes)}")
        return tuple(min(n, named.get(a, tile.get(a, n))) for a, n in zip(self.axes, self.extents))

    def boxes(self, tile):
        """Widths of every stage for a tile (a tuple along ``axes``): list of (whole, sliced) per
        stage: reduction axes whole, and cut to the tile's reduction split."""
        demand, out = {}, [None] * len(self.stages)
        for i in range(len(self.stages) - 1, -1, -1):
            s = self.stages[i]
            wide = list(tile[:self.rank]) if i == self.anchor else _asked(s, demand)
            whole = wide + list(s.extents[s.rank:])
            sliced = whole
            for v, (stage, place) in enumerate(self.cut, self.rank):
                if stage == i and tile[v] < whole[place]:
                    sliced = list(whole) if sliced is whole else sliced
                    sliced[place] = tile[v]
            out[i] = whole, sliced
            for a in s.reads:
                if a.buffer in self.scratch:
                    demand[a.buffer] = hull(demand.get(a.buffer), a.ends(whole))
        return out

    def tiles(self, tile):
        """Number of tiles of the whole output."""
        n = 1
        for w, e in zip(tile[:self.rank], self.extents):
            n *= -(-e // w)
        return n

    def parts(self, tile):
        """[(number, widths)] of the tiles that the output is cut into, whole ones first: those at
        its far ends are what is left (along ``RAGGED`` axes at most; the others count as whole)."""
        out, cut = [(1, ())], 0
        for w, e in zip(tile[:self.rank], self.extents):
            whole, left = divmod(e, w)
            if left and cut == RAGGED:
                whole, left = whole + 1, 0
            cut += left > 0
            out = [(n * c, t + (x,)) for n, t in out
                   for c, x in ((whole, w), (1, left)) if c and x]
        return [(n, t + tuple(tile[self.rank:])) for n, t in out]

    def traffic(self, tile, free=frozenset(), boxes=None, unit=1, fetch=False, streamed=False):
        """Bytes the group moves in and out of the level that holds ``tile``, for its whole output;
        buffers named in ``free`` cost nothing; ``unit``: bytes that always move together;
        ``fetch``: what is stored is fetched first, free or not; ``streamed``: slices of a reduction
        follow each other, so that together they move what the reduction would in one go."""
        return sum(n * self._moved(boxes if boxes and part == tile else self.boxes(part), free,
                                   unit, fetch, streamed) for n, part in self.parts(tile))

    def moved(self, tile):
        """Bytes in and out for one tile."""
        return self._moved(self.boxes(tile), frozenset(), 1, False, False)

    def _moved(self, boxes, free, unit, fetch, streamed):
        """Bytes in and out for one tile."""
        total, best = 0, {}
        for s, (whole, sliced) in zip(self.stages, boxes):
            for a in s.reads:
                if a.buffer in self.scratch or a.buffer in free:
                    continue
                n = a.bytes(sliced, unit)
                if sliced is not whole:
                    n = _all_slices(a, n, whole, sliced, unit, streamed)
                    if not s.contraction and any(sliced[r] < whole[r] for r in a.reduces):
                        total += n  # a fold's slices are gone when a later stage reads them again
                        continue
                best[a.buffer] = max(best.get(a.buffer, 0), n)
            for a in s.writes:
                if a.buffer in self.outputs and (fetch or a.buffer not in free):
                    total += a.bytes(whole, unit)
        return total + sum(best.values())

    def measure(self, tile, free=frozenset(), unit=1, fetch=False, streamed=False):
        """(traffic, peak) of a tile; what searches ask thousands of times."""
        if len(self.stages) > 1:
            boxes = self.boxes(tile)
            return self.traffic(tile, free, boxes, unit, fetch, streamed), self.peak(tile, boxes)
        moved, live = 0, 0
        for n, part in self.parts(tile):
            more, size = self._alone(part, free, unit, fetch, streamed)
            moved, live = moved + n * more, live or size
        return moved, live

    def _alone(self, tile, free, unit, fetch, streamed):
        """(bytes in and out, bytes live) for one tile of a single stage."""
        s, (whole, sliced) = self.stages[0], self.boxes(tile)[0]
        moved = peak = 0
        for number, a in enumerate(s.reads + s.writes):
            if len(a.boxes) > 1:
                live = a.bytes(sliced)
                n = a.bytes(sliced, unit)
            else:
                live, run, inner = a.size, a.size, True
                for f, extent in zip(reversed(a.counts[0]), reversed(a.stored)):
                    w = f(sliced)
                    if w < extent:
                        live *= w
                        run = live if inner else run
                        inner = False
                    else:
                        live *= extent
                        run = live if inner else run
                n = live // run * -(-run // unit) * unit
            peak += live
            if a.buffer not in free or fetch and number >= len(s.reads):
                moved += _all_slices(a, n, whole, sliced, unit, streamed)
        return moved, peak

    def lifetimes(self, tile, boxes=None, align=1):
        """[(buffer, bytes, first stage, last stage)] of every tile that is live while one tile of
        the output is computed; an elementwise stage writes over an input that dies in it."""
        boxes = boxes or self.boxes(tile)
        size, first, last = {}, {}, {}
        for i, (s, (whole, sliced)) in enumerate(zip(self.stages, boxes)):
            for a, n in [(a, a.bytes(whole if a.buffer in self.scratch else sliced))
                         for a in s.reads] + [(a, a.bytes(whole)) for a in s.writes]:
                size[a.buffer] = max(size.get(a.buffer, 0), n)
                first.setdefault(a.buffer, i)
                last[a.buffer] = i
        for i, s in enumerate(self.stages):
            dying = [a.buffer for a in s.reads if a.elementwise and last.get(a.buffer) == i
                     and first[a.buffer] < i]
            for w in s.writes:
                hosts = [b for b in dying if size[b] >= size[w.buffer]]
                if hosts:  # the same bytes go on living under the new name
                    dying.remove(hosts[0])
                    first[w.buffer] = first.pop(hosts[0])
                    size[w.buffer] = max(size[w.buffer], size.pop(hosts[0]))
                    last.pop(hosts[0])
        return [(b, -(-n // align) * align, first[b], last[b]) for b, n in size.items()]

    def peak(self, tile, boxes=None):
        """Bytes live at once: what no allocation can be below."""
        live = self.lifetimes(tile, boxes)
        if len(self.stages) == 1:
            return sum(n for _, n, _, _ in live)
        return max(sum(n for _, n, lo, hi in live if lo <= i <= hi)
                   for i in range(len(self.stages)))

    def inner(self, tile, boxes=None):
        """(bytes moved through scratch for the whole output, bytes live at once between stages):
        what stages hand each other, and what a later one reads again."""
        boxes = boxes or self.boxes(tile)
        moved, seen, again = 0, set(), set(self.scratch)
        for s, (whole, _) in zip(self.stages, boxes):
            again |= {a.buffer for a in s.reads if a.buffer in seen}
            moved += sum(a.bytes(whole) for a in s.reads + s.writes if a.buffer in again)
            seen |= {a.buffer for a in s.reads}
        live = [x for x in self.lifetimes(tile, boxes) if x[0] in again]
        peak = max((sum(n for _, n, lo, hi in live if lo <= i <= hi)
                    for i in range(len(self.stages))), default=0)
        return moved * self.tiles(tile), peak

    def touched(self, buffers):
        """Bytes of those buffers that the stages read, by the first stage that does."""
        total, seen = 0, set(self.scratch)
        for s in self.stages:
            total += sum(a.bytes(s.extents) for a in s.reads
                         if a.buffer in buffers and a.buffer not in seen)
            seen |= {a.buffer for a in s.reads}
        return total

    def work(self, tile, boxes=None):
        """(operations of contractions, other operations) of one tile, recomputation included."""
        fast = slow = 0
        for s, (whole, _) in zip(self.stages, boxes or self.boxes(tile)):
            points = prod(whole[:s.rank])
            inner = points * prod(whole[s.rank:]) * s.per_point
            fast, slow = (fast + inner, slow) if s.contraction else (fast, slow + inner)
            slow += points * s.per_output
            slow += s.per_packed and s.per_packed * prod(whole[p] for p in s.packed)
        return fast, slow


def _all_slices(access, moved, whole, sliced, unit, streamed):
    """Bytes of all slices of the reductions an access moves along, of which one moves ``moved``."""
    count = 1
    for r in access.reduces:
        count *= -(-whole[r] // sliced[r])
    return min(moved * count, access.bytes(whole, unit)) if streamed and count > 1 else \
        moved * count


def _asked(stage, demand):
    """Widths of a stage's axes that cover what later stages read of it."""
    box = [0] * stage.rank
    for a, back in zip(stage.writes, stage.preimage):
        if a.buffer in demand:
            need = [min(hi - lo, n) for (lo, hi), n in zip(demand[a.buffer], a.extents)]
            box = [max(b, min(f(need), n)) for b, f, n in zip(box, back, stage.extents)]
    return [max(1, b) for b in box]


# ---------------------------------------------------------------- compiling a group

def group_model(program, group, orders=None, extra=None):
    """The GroupModel of a group.  orders: {buffer: its dims from outermost to innermost in memory}
    of those that are not row-major; extra: {stage: Extra}, what its accesses cost, and its
    arithmetic where no vectors compute it.  ScheduleError where its stages cannot be formed."""
    stages = group_stages(program, group)
    anchor = next((i for i, s in enumerate(stages) if group.anchor in s.computes), None)
    if anchor is None:
        raise ScheduleError(f"group {group.name}: anchor {group.anchor!r} is no stage of it")
    read = {n.buffer for s in stages for n in s.loads()}
    made = {o.buffer for s in stages for o in s.outputs}
    first, models = {}, []
    for i in reversed(range(len(stages))):
        models.append(_stage_model(program, stages[i], orders or {}, extra or {},
                                   {} if i == anchor else first_axes(stages[i], first)))
        for a in models[-1].reads:
            if a.buffer in made:
                lows = tuple(map(min, *a.lows)) if len(a.lows) > 1 else a.lows[0]
                first[a.buffer] = tuple(map(min, first.get(a.buffer, lows), lows))
    models = tuple(reversed(models))
    names, extents, cut = list(models[anchor].axes[:models[anchor].rank]), [], []
    extents += models[anchor].extents[:models[anchor].rank]
    for i, s in enumerate(models):
        for r in s.split:
            place = s.axes.index(r)
            names.append(f"{s.name}.{r}")
            extents.append(s.extents[place])
            cut.append((i, place))
    return GroupModel(group.name, models, anchor, tuple(names), tuple(extents),
                      models[anchor].rank, frozenset(read & made), group.outputs, tuple(cut))


def _stage_model(program, s, orders, extra, lows):
    axes = s.axes + s.raxes
    places = {a: i for i, a in enumerate(axes)}
    extents = tuple(estimate(a.extent) for a in axes)
    written = {o.buffer: o.index for o in s.outputs}
    grouped = {}
    for n in s.loads():
        grouped.setdefault(n.buffer, []).append(n)
    in_fold = {n.buffer for n in walk(s.body) if isinstance(n, Load)} if s.raxes else set()
    reads = tuple(_access(program, b, [n.index for n in loads], places, len(s.axes),
                          lows, orders.get(b), b not in in_fold and _same_place(s, loads, written))
                  for b, loads in grouped.items())
    writes = tuple(_access(program, b, [index], places, len(s.axes), lows, orders.get(b))
                   for b, index in written.items())
    more = extra.get(s.name, Extra())
    per_point = (_operations(s.body) + 1) * more.scale + more.per_point if s.raxes else 0
    per_output = sum(_operations(o.value) for o in s.outputs)
    per_output = max(more.scale > 1, per_output) * more.scale + more.per_output
    contraction = more.scale == 1 and bool(factor_pairs(s.axes, s.raxes, s.fold, s.body))
    return StageModel(s.name, tuple(a.name for a in axes), extents, len(s.axes), reads, writes,
                      tuple(_preimage(s, index) for index in written.values()),
                      per_point, per_output, contraction, more.per_packed,
                      tuple(p for p, a in enumerate(axes) if a.name not in more.rows),
                      tuple(a.name for a in s.raxes if isinstance(s.fold, str)
                            and estimate(a.extent) > 1))


def _same_place(s, loads, written):
    return all(n.index in written.values() for n in loads)


def _operations(e):
    return sum(OP_COST.get(n.op, 1) for n in walk(e) if isinstance(n, (Unary, Binary))
               and DTYPES[n.dtype].kind == "f")


def _access(program, buffer, indices, places, rank, lows, order=None, elementwise=False):
    extents = tuple(estimate(d) for d in program.shape(buffer))
    order = order or range(len(extents))
    forms = {}
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


def _preimage(s, index):
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


def _extent(index):
    """Extent of what an index expression runs over, every axis whole."""
    axes = {a: i for i, a in enumerate(sorted(axes_of(index), key=lambda a: a.name))}
    return _width(to_poly(index), axes)([estimate(a.extent) for a in axes])


def _width(poly, places, spread=0, found=False):
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
        return lambda w, k=affine[0][1]: w[k]
    if not parts:
        base = 1 + spread - sum(c for c, _ in affine)
        return lambda w: base + sum([c * w[k] for c, k in affine])
    return lambda w: 1 + spread + sum(c * (w[k] - 1) for c, k in affine) + sum(
        c * (f(w) - 1) for c, f in parts)


def _atom(atom, places, found):
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
