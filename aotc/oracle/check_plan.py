"""The last check of a Plan: every element that a kernel stores or loads lies inside its buffer.

Proved from the ranges of loops, the values of a kernel's names, the conditions around an access
and the sizes of register tiles, whatever data there is: what cannot be proved is a fault.  Where
symbols decide, what is not proved is one if a point at which it fails is found
(``may_be_negative``).  Vectors are as their ranges: a last one that is cut stores what there is.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from aotc.ir.access import is_multiple, volume
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import (
    Axis,
    Binary,
    Const,
    Expr,
    Shape,
    Var,
    as_expr,
    maximum,
    minimum,
    substitute,
    walk,
)
from aotc.ir.kernel.operands import Operand, Slices
from aotc.ir.kernel.plan_kernels import LoweredKernel, Steps
from aotc.ir.kernel.plan_stages import (
    Bindings,
    Call,
    Contract,
    HeldRows,
    Nest,
    Stream,
    Unrolled,
)
from aotc.ir.library import LIBRARY, item
from aotc.ir.numbers.byte_panels import group_room
from aotc.ir.plan import Place, Plan
from aotc.ir.read_boxes import Facts, conditions, guarded_loads
from aotc.ir.simplify import are_equal, simplify, to_poly
from aotc.ir.statements import NEXT, STEP, TILE, Copy, Let, Put, Range
from aotc.ir.tile_statements import slice_start
from aotc.oracle.points import How
from aotc.oracle.prove import ProofScope, is_never_negative, may_be_negative


def plan_faults(plan: Plan) -> list[str]:
    """Texts of what is not proved to stay inside its buffer; [] for a Plan that does."""
    facts = tuple(f for c in plan.checks for f in conditions(c.cond, True))
    tables = {n: (int(a.min()), int(a.max())) for n, a in plan.weights
              if a.dtype.kind in "iu" and a.size}
    faults = [f for p in plan.places for f in _place(plan, p)]
    for k in plan.kernels:
        faults += _Kernel(plan, k.lowered, facts, tables).faults()
    return faults


def _place(plan: Plan, place: Place) -> list[str]:
    """Faults of where a buffer lies: in the arena, from its slot on."""
    size, room = place.elements * DTYPES[place.dtype].size, as_expr(0)
    if place.memory:  # of every holder the same part of its memory
        size = place.room * DTYPES[place.dtype].size + (place.holders - 1) * place.stride
    for slot in plan.slots[place.slot:] if place.storage == "arena" else ():
        room = room + slot
        if not may_be_negative(room - place.offset - size, ProofScope()):
            return []
    return [] if place.storage != "arena" else [f"{place}: {simplify(size)} bytes end behind it"]


class _Kernel:
    """The check of one kernel; ``found`` collects its faults."""

    def __init__(self, plan: Plan, kernel: LoweredKernel, facts: Facts,
                 tables: Mapping[str, tuple[int, int]]) -> None:
        self.kernel, self.name = kernel, f"kernel {kernel.name} ({kernel.about.title})"
        self.units = dict(plan.units)
        self.homes = {p.name: p.memory for p in plan.places} | {
            s.name: s.memory for s in kernel.scratch}
        self.found: list[str] = []
        self.done: set[object] = set()
        self.shapes = {p.name: p.shape for p in plan.places}
        self.sizes = {p.name: p.elements for p in plan.places} | {
            s.name: as_expr(s.elements) for s in kernel.scratch}
        self.scope = self.bound(ProofScope({TILE: ("range", Const(0), simplify(kernel.tiles - 1))},
                                           facts, tables, tuple(c.cond for c in plan.checks)),
                                kernel.let, "let")
        if kernel.steps is not None:
            steps = {STEP: ("range", Const(0), simplify(kernel.steps.count - 1))}
            ends, rest = kernel.steps.let[:2], kernel.steps.let[2:]
            self.scope = self.bound(self.scope.inside(steps), ends, "let of a step")
            self.scope = self.scope.inside(_carried(kernel.steps))
            self.scope = self.bound(self.scope, rest, "let of a step")

    def faults(self) -> list[str]:
        for number, stage in enumerate(self.kernel.stages):
            self.where = f"{self.name}, stage {number}, {stage.row}"
            _STAGES[type(stage)](self, stage)
        for c in (c for _, body in self.kernel.around for c in body):
            if isinstance(c, Copy):
                self.where = f"{self.name}, {c.lines()[0]}"
                self.copy(c)
        self.ahead()
        for v, e in self.kernel.carried:
            self.where = self.name
            self.known(self.scope, e, f"next {v}")
            self.within(self.scope, e, v.extent, f"next {v} = {e}")
        return self.found

    def ahead(self) -> None:
        """The copies of what is copied ahead, for any step."""
        own, scope = self.kernel.steps, self.scope
        if own is None or own.ahead is None:
            return
        of = own.ahead
        steps = self.scope.inside({NEXT: ("range", Const(0), simplify(own.count - 1))})
        for body, inside in ((of.once, scope), *((c, self.bound(
                steps, of.lets, "let of a next step")) for c in of.copies)):
            self.scope = inside
            for c in body:
                if isinstance(c, Copy):
                    self.where = f"{self.name}, {c.lines()[0]}"
                    self.copy(c)
        self.scope = scope

    def fault(self, text: str) -> None:
        self.found.append(f"{self.where}: {text}")

    def bound(self, scope: ProofScope, lets: Bindings, what: str) -> ProofScope:
        """The Scope with the names ``lets`` bound; each lies in the extent that it claims."""
        self.where = self.name
        for v, e in lets:
            self.known(scope, e, f"{what} {v}")
            if not scope.symbolic(e):  # a box may be empty: its last index is -1 then
                self.within(scope, e, v.extent, f"{what} {v} = {e}")
            scope = scope.inside({v: ("value", e)})
        return scope

    def loops(self, scope: ProofScope, ranges: Iterable[Range]) -> ProofScope:
        """The Scope inside loops; each stays in the extent of its axis."""
        for r in ranges:
            last, empty = simplify(r.hi - 1), simplify(r.lo - r.hi)
            self.known(scope, r.lo + r.hi, f"range {r}")
            runs = (simplify(last - r.lo),)
            if may_be_negative(r.lo, scope, runs) or may_be_negative(r.axis.extent - r.hi, scope,
                                                                     runs):
                if not is_never_negative(empty, scope):
                    self.fault(f"{r} leaves 0..{r.axis.extent}")
            scope = scope.inside({r.axis: ("range", r.lo, last)},
                                 runs if self.kernel.carried else ())
        return scope

    def ends(self, scope: ProofScope, ends: Bindings) -> ProofScope:
        """The Scope with names of ends that data says; all that is known of them is that they stay
        inside of their axes, which is proved."""
        inside = scope
        for v, e in ends:
            last = simplify(v.extent - 1)
            self.known(scope, e, f"end {v}")
            self.loads(scope, e)
            for gap, text in ((e, "below 0"), (last - e, f"past its {last} steps")):
                if not is_never_negative(simplify(gap), scope):
                    self.fault(f"end {v} = {e}: may be {text}")
            inside = inside.inside({v: ("range", Const(0), last)})
        return inside

    def known(self, scope: ProofScope, e: Expr, what: str, also: Collection[Expr] = ()) -> None:
        """A fault if an expression uses a name that nothing binds; ``also``: further names."""
        names = scope.unknown(e, also)
        if names:
            self.fault(f"{what} uses {', '.join(names)}, which nothing before it binds")

    def within(self, scope: ProofScope, e: Expr, size: Expr, what: str, facts: Facts = ()) -> None:
        """A fault unless 0 <= e < size."""
        e = simplify(e)
        key = e, size, facts, scope
        if key in self.done:
            return
        self.done.add(key)
        for gap, text in ((e, "below 0"), (size - 1 - e, f"past its {size} elements")):
            if may_be_negative(gap, scope, facts, what.startswith("load")):
                self.fault(f"{what}: may be {text}")

    def size(self, buffer: str) -> Expr | None:
        """Elements of a buffer or scratch; None and a fault for one that is not there."""
        if buffer not in self.sizes:
            self.fault(f"no buffer {buffer}")
        return self.sizes.get(buffer)

    def access(self, scope: ProofScope, buffer: str, at: Expr, what: str,
               facts: Facts = ()) -> None:
        """Faults of one access to a buffer."""
        size = self.size(buffer)
        if size is None:
            return
        self.within(scope, at, size, what, facts)

    def loads(self, scope: ProofScope, e: Expr, facts: Facts = ()) -> None:
        """Faults of the loads in an expression."""
        for load, known in guarded_loads(e, tuple(facts)):
            self.access(scope, load.buffer, load.index[0], f"load of {load}", known)

    def put(self, scope: ProofScope, p: Put, names: Collection[Expr] = (),
            flags: Mapping[Var, Expr] | None = None) -> None:
        guard = () if p.guard is None else conditions(substitute(p.guard, flags or {}), True)
        for e in (p.offset, p.value):
            self.known(scope, e, f"store {p}", names)
        self.access(scope, p.buffer, p.offset, f"store {p}", guard)
        self.loads(scope, p.value, guard)
        self.loads(scope, p.offset, guard)

    # ------------------------------------------------------------ stages

    def nest(self, nest: Nest) -> None:
        scope = self.loops(self.scope, nest.ranges)
        if nest.fold != "none":
            inner = self.loops(self.ends(scope, nest.ends), nest.reduce)
            parts = () if isinstance(nest.fold, str) else nest.fold.init + nest.fold.update
            element = Var("x", nest.body.dtype)
            for e in (nest.body, *parts):
                self.known(inner, e, f"fold of {e}", () if e is nest.body else (
                    *nest.acc, element))
                self.loads(inner, e)
        for p in nest.puts:
            self.put(scope, p, nest.acc)

    def held_rows(self, s: HeldRows) -> None:
        """Every nest; what they make for each other only has the size that it would have."""
        sizes = self.sizes
        self.sizes = sizes | {b: as_expr(n) for b, _, n in s.own}
        for n in s.nests:
            self.nest(n)
        self.sizes = sizes

    def unrolled(self, stage: Unrolled) -> None:
        scope, flags = self.loops(self.scope, stage.ranges), dict(stage.flags)
        names: set[Expr] = set(flags)
        for s in stage.body:
            if isinstance(s, Let):
                self.known(scope, s.value, str(s), names)
                self.loads(scope, substitute(s.value, flags))
                names.add(s.var)
            else:
                self.put(scope, s, names, flags)

    def call(self, call: Call) -> None:
        """Items of a library kernel: the C function stays inside one, whose extents it is told."""
        row = LIBRARY.get(call.kernel)
        if row is None:
            self.fault(f"{call.lines()[0]}: no library kernel has that name")
            return
        shapes: list[Shape] = []
        for place, inner in zip(call.operands, row.inner):
            buffer, at = place.buffer, place.offset
            size, shape = self.size(buffer), self.shapes.get(buffer)
            if size is None or shape is None:
                return
            shapes.append(shape)
            many, one = item(shape, inner)
            last = at + volume(one) * (call.numbers[0] if many and row.rows > 1 else 1)
            if may_be_negative(at, self.scope) or may_be_negative(size - last, self.scope):
                self.fault(f"{call.lines()[0]}: an item of {buffer} may lie outside of it")
        told = row.extents(shapes)
        if not all(are_equal(a, b) for a, b in zip(call.numbers[row.rows > 1:], told)):
            self.fault(f"{call.lines()[0]}: other extents than its tensors have")

    def copy(self, c: Copy, scope: ProofScope | None = None) -> None:
        """Both boxes of a copy: their ends, where it copies anything, and always the place where
        they begin, which an engine is told, of a tensor that has elements."""
        scope = scope or self.scope
        runs = tuple(f for n in c.extents for f in _copies_some(n))
        for box in (c.to, c.source):
            last = box.offset
            for n, step in zip(c.extents, box.strides):
                last = last + (n - 1) * step
            self.known(scope, last, "a box")
            size = self.size(box.buffer)
            if size not in (None, Const(0)):
                self.within(scope, box.offset, size, f"first of {box}", (size - 1,))
            self.access(scope, box.buffer, last, f"last of {box}", runs)

    def contract(self, c: Contract) -> None:
        outer = self.loops(self.scope, c.outer)
        rows = self.loops(outer, c.m)
        points = self.loops(rows, (c.n,))
        sums = c.sums
        if c.slices and c.slices.fed:
            sums = self.slices(c, c.slices, outer)
        self.tiles(c)
        for p in c.puts:
            self.put(points, p, (c.acc,))
        self.operand(c, c.a, self.loops(rows, sums), "A")
        if c.placed:
            self.placed(c, *c.placed)
        self.operand(c, c.b, self.loops(self.loops(outer, (c.n,)), sums), "B")
        self.kept(c, outer)

    def placed(self, c: Contract, by: int, terms: int) -> None:
        """Whole tiles of rows that are multiplied where they lie, whole steps of each."""
        first = substitute(c.a.offset, {r.axis: r.lo for r in c.m})
        tiles = (c.end_row - c.first_row + (c.micro.mr - 1)) // c.micro.mr
        last = first + (c.first_row + tiles * c.micro.mr - 1) * by + terms - 1
        for at in (first, last):
            self.access(self.scope, c.a.buffer, simplify(at), "tiles of A in place")

    def stream(self, s: Stream) -> None:
        """Both products, whose rows are the same; the values' A is what lies between."""
        self.contract(s.scores)
        scope = self.loops(self.loops(self.scope, s.scores.outer), (*s.scores.m, s.values.k))
        self.known(scope, s.element, "element", (s.score,))
        self.loads(scope, s.element)
        c = s.values
        outer = self.loops(self.scope, c.outer)
        points = self.loops(self.loops(outer, c.m), (c.n,))
        self.tiles(c)
        for p in c.puts:
            self.put(points, p, (c.acc, s.total))
        for p in s.states:
            self.put(self.loops(outer, c.m), p, (s.greatest, s.total))
        self.operand(c, c.b, self.loops(self.loops(outer, (c.n,)), c.sums), "B")

    def slices(self, c: Contract, slices: Slices, scope: ProofScope) -> tuple[Range, ...]:
        """The loops of a sum whose slices engines copy, whose copies are checked."""
        first = slice_start(c.k.axis)
        begin = Range(first, Const(0), c.k.hi)
        inside = self.loops(scope, (begin,))
        for s in slices.fed:
            if isinstance(s, Copy):
                self.copy(s, inside)
        return (begin, *c.taps, Range(c.k.axis, first, minimum(first + slices.steps, c.k.hi)))

    def tiles(self, c: Contract) -> None:
        """What a Contract says of its register tiles holds."""
        nr = c.micro.nr
        values: dict[Expr, Expr] = dict(self.kernel.lets)
        columns = c.n.hi - c.n.lo
        rows = simplify(c.end_row - c.first_row)
        for what, count, by in (("rows", rows, c.micro.mr), ("columns", columns, nr)):
            if what in c.whole and not is_multiple(count, by, values):
                self.fault(f"{what} are not whole: {simplify(count)} of them in tiles of {by}")
        if c.b.mode in ("panel", "expanded") and not is_multiple(c.n.lo, nr, values):
            self.fault(f"columns {c.n} begin inside a panel of {nr}")

    def operand(self, c: Contract, o: Operand, scope: ProofScope, name: str) -> None:
        nr, total = c.micro.nr, volume([r.axis.extent for r in c.sums])
        guard = () if o.guard is None else conditions(o.guard, True)
        step, grouping = c.micro.step, c.micro.grouping
        depth = simplify((total + (step - 1)) // step * step)
        for e in (o.offset, o.stride, o.guard, o.value):
            if e is not None:
                self.known(scope, e, f"operand {name}")
        if o.guard is not None:
            self.loads(scope, o.guard)
        memory = self.units.get(c.micro.unit)
        if memory and self.homes.get(o.buffer) != memory:
            self.fault(f"{name} is {o.buffer}, which is not in {memory}")
        if o.mode == "packed":
            if o.value is not None:
                self.loads(scope, o.value, guard)
            if o.buffer:
                self.room(scope, o.buffer, depth * (c.micro.mr if name == "A" else nr))
            return
        k, what = c.k.axis, f"load of {name}"
        if o.mode == "expanded":
            steps = Const(c.slices.steps) if c.slices else total
            if c.micro.dtypes.b == "u8" and grouping is not None:
                steps = (total + (grouping.size - 1)) // grouping.size * group_room(grouping, step)
            self.room(scope, o.pad, simplify(steps * nr))
        if o.mode in ("panel", "expanded"):
            if grouping is not None:
                depth = simplify((total + grouping.size - 1) // grouping.size * grouping.rows)
            self.access(scope, o.buffer, o.offset, f"{what}, {o.buffer}[{o.offset}]")
            end = o.offset + depth * (nr if grouping is None else o.stride) - 1
            self.access(scope, o.buffer, end, f"{what}, a panel of {o.buffer}")
            return
        at = o.offset + k * o.stride + (c.n.axis if o.mode == "direct" else Const(0))
        tap = o.tap or Const(0)
        if o.mode == "columns":
            at, tap = o.offset + c.n.axis * o.stride + k, k.extent
        for r in reversed(c.taps):
            at, tap = at + r.axis * tap, tap * r.axis.extent
        self.access(scope, o.buffer, at, f"{what}, {o.buffer}[{simplify(at)}]", guard)
        if o.guard is not None and o.stride != Const(1) and not c.micro.unit:
            self.fault(f"{what}: zeros instead of {o.buffer} are read with a step")
        if o.pad:  # the row that is read in place of padding
            self.room(scope, o.pad, k.extent)

    def kept(self, c: Contract, scope: ProofScope) -> None:
        """Scratch for sums in slices, and for results that are turned."""
        nr = c.micro.nr
        if c.slices:
            panels = (c.n.hi - c.n.lo + (nr - 1)) // nr
            blocks = (c.row_count + (c.micro.mr - 1)) // c.micro.mr
            size = self.size(c.slices.scratch)
            if not (isinstance(size, Const) and _product_fits(
                    int(size.value) // (c.micro.mr * nr), blocks, panels, scope)):
                self.room(scope, c.slices.scratch, blocks * panels * (c.micro.mr * nr))
        if c.turned:
            self.room(scope, c.turned.scratch, Const(c.turned.rows * nr))
            if c.turned.rows % c.micro.mr:
                self.fault(f"{c.turned.rows} turned rows are no whole tiles of {c.micro.mr}")

    def room(self, scope: ProofScope, buffer: str, elements: Expr) -> None:
        """A fault unless a buffer holds so many elements."""
        size = self.size(buffer)
        if size is not None and may_be_negative(size - elements, scope):
            self.fault(f"{buffer} of {size} elements holds {simplify(elements)}")


def _product_fits(room: int, a: Expr, b: Expr, scope: ProofScope) -> bool:
    """True if counts ``a * b`` are proved to be at most ``room``, together or one after the other:
    together, two rounded counts of ragged tiles are not."""
    if is_never_negative(room - a * b, scope):
        return True
    most = bisect_left(range(1, room + 1), True, key=lambda n: is_never_negative(n - b, scope)) + 1
    return most <= room and is_never_negative(room // most - a, scope)


_STAGES: dict[type, Callable[[_Kernel, Any], None]] = {
    Nest: _Kernel.nest, HeldRows: _Kernel.held_rows, Unrolled: _Kernel.unrolled, Call: _Kernel.call,
    Contract: _Kernel.contract, Stream: _Kernel.stream}


def _copies_some(extent: Expr) -> Iterator[Expr]:
    """What is >= 0 where an extent is not 0: of max(x, 0) in it that x - 1 is; of min(x, y) in
    that both are."""
    yield simplify(extent - 1)
    for n in walk(extent):
        if isinstance(n, Binary) and n.op == "max" and Const(0) in (n.a, n.b):
            todo = [n.b if n.a == Const(0) else n.a]
            while todo:
                x = todo.pop()
                least = next((m for m in walk(x) if isinstance(m, Binary) and m.op == "min"), None)
                if least is None:
                    yield simplify(x - 1)
                else:
                    todo += [substitute(x, {least: least.a}), substitute(x, {least: least.b})]


def _carried(steps: Steps) -> dict[Axis, How]:
    """How names that a step leaves to the next one are bound: 0 in a first step; else as the step
    before left them, which ended where this one begins.  As many steps are followed back as stages
    slide, since each may begin where the one after it has been before; what is older is
    anything."""
    if not steps.carried:
        return {}
    (lo, start), (hi, _) = steps.let[:2]
    size = to_poly(start).get((STEP,), 0)
    begins: list[tuple[Axis, How]] = []
    names: list[tuple[Axis, How]] = []
    now, end = {v: v for v, _ in steps.carried}, lo
    for back in range(1, len(steps.carried) // 2 + 1):
        begin = Axis(f"{lo.name}_{back}_before", lo.extent)
        older = {v: Axis(f"{v.name}_{back}_before", v.extent) for v in now}
        values: dict[Axis, Expr] = {lo: begin, hi: end, **older}
        for v, e in steps.let[2:]:
            values[v] = simplify(substitute(e, values))
        left = {now[v]: simplify(substitute(e, values)) for v, e in steps.carried}
        begins.append((begin, ("range", maximum(end - size, Const(0)), simplify(end - 1))))
        names = [*((v, ("before", left)) for v in left), *names]
        now, end = older, begin
    oldest: list[tuple[Axis, How]] = [
        (v, ("range", Const(0), simplify(v.extent - 1))) for v in now.values()]
    return dict(begins + oldest + names)


__all__ = ["plan_faults"]
