"""Steps that were built for extents that symbols stand for, as they are for numbers of elements
that data says: see ``frontend/counted/counted_axes.py``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.values import Val
from aotc.ir.expr import (
    Axis,
    Binary,
    Const,
    Expr,
    Guarded,
    Load,
    Shape,
    Sym,
    Unary,
    Where,
    all_hold,
    children,
    compare,
    leaves,
    maximum,
    minimum,
    substitute,
    walk,
    with_children,
)
from aotc.ir.program import Compute, Fold, Loop, Step, neutral_value
from aotc.ir.simplify import are_equal, lower, proves, simplify

ZERO = Const(0)
Ends = tuple[Expr, Expr]  # the least and the most that an expression may be


class Unbounded(Exception):
    """What is no tensor expression of numbers of elements: a text that says what."""


class Written:
    """``numbers``: of elements, by the symbol that stands for them; ``rooms``: the most that each
    may be."""

    def __init__(self, b: Builder, numbers: Mapping[Sym, Expr], rooms: Mapping[Sym, Expr]) -> None:
        self.b, self.numbers, self.rooms = b, numbers, rooms
        # True once some room is not what its expression gives for the rooms of all numbers: an
        # index may then be outside
        self.loose = False

    def used(self, e: Expr) -> bool:
        return not leaves(e).isdisjoint(self.numbers)

    # ---------------------------------------------------------------- extents

    def room(self, e: Expr) -> Expr:
        """The most that an extent may be, 0 or more."""
        if not self.used(e):
            return e
        most = simplify(self.ends(e)[1])
        if not are_equal(most, simplify(substitute(e, self.rooms))):
            self.loose = True
        if not proves(compare("ge", most, ZERO)):
            self.loose = True
            most = simplify(maximum(most, ZERO))
        return most

    def ends(self, e: Expr) -> Ends:
        if not self.used(e):
            return e, e
        if isinstance(e, Sym):
            return ZERO, self.rooms[e]
        if isinstance(e, Unary) and e.op == "neg":
            low, high = self.ends(e.x)
            return Const(0) - high, Const(0) - low
        if isinstance(e, Where):
            (a, c), (d, f) = self.ends(e.a), self.ends(e.b)
            return minimum(a, d), maximum(c, f)
        if isinstance(e, Binary) and e.op in _ENDS:
            found = _ENDS[e.op](self.ends(e.a), self.ends(e.b))
            if found is not None:
                return found
        raise Unbounded(f"an extent that is {e} has no most that is known")

    def shape(self, shape: Shape) -> Shape:
        return tuple(map(self.room, shape))

    # ---------------------------------------------------------------- values

    def val(self, v: Val) -> Val:
        """A Val whose extents are rooms."""
        fn, shape = v.fn, self.shape(v.shape)
        if fn is None:
            return replace(v, shape=shape)
        return replace(v, shape=shape, fn=lambda index: self.value(fn(index)))

    def value(self, e: Expr, axes: Mapping[Axis, Axis] | None = None) -> Expr:
        """An expression with the numbers of elements; ``axes``: what axes are now."""
        return _Value(self, axes or {}).of(e, False)

    def steps(self, steps: Iterable[Step]) -> list[Step]:
        """The steps, which see the elements that there are; buffers have room for the most."""
        steps = list(steps)
        for step in steps:
            if not isinstance(step, Compute) and not self._rounds(step) and any(
                    map(self.used, _held(self, step))):
                raise Unbounded("it is no tensor expression along such an axis")
            if isinstance(getattr(step, "fold", ""), Fold) and any(
                    self.used(a.extent) for a in getattr(step, "raxes", ())):
                raise Unbounded("it is a fold of several states along such an axis")
        for step in steps:  # before the first load, which may be outside then
            for out in step.outs:
                buffer = self.b.buffers[out]
                self.b.buffers[out] = replace(buffer, shape=self.shape(buffer.shape))
            for a in getattr(step, "raxes", ()):
                self.room(a.extent)
        return list(map(self.step, steps))

    def _rounds(self, step: Step) -> bool:
        """True for a loop that runs once for each element that there is, and of which nothing else
        depends on how many there are."""
        if not isinstance(step, Loop) or step.count or step.ran or not isinstance(
                step.trip, Sym) or any(e.backward for e in (*step.slices, *step.stacks)):
            return False
        along = {e.whole for e in (*step.slices, *step.stacks)}
        shapes = [self.b.buffers[o].shape for o in (*step.inputs, *step.outs) if o not in along]
        shapes += [self.b.buffers[o].shape[1:] for o in along]
        inner = _held_by(step)
        return not any(map(self.used, [*(d for s in shapes for d in s), *inner]))

    def step(self, step: Step) -> Step:
        if isinstance(step, Loop) and isinstance(step.trip, Sym) and self.used(step.trip):
            number = self.numbers[step.trip]
            assert isinstance(number, Load), number
            return replace(step, trip=self.room(step.trip), count=number.buffer)
        if not isinstance(step, Compute):
            return step
        axes = {a: Axis(a.name, self.room(a.extent)) for a in (*step.axes, *step.raxes)}
        counted = [a for a in step.raxes if self.used(a.extent)]
        body, fold = self.value(step.body, axes), step.fold
        if any(isinstance(n, Guarded) for n in walk(step.body)):  # which nobody is to check
            body = self.there(body, step.axes, axes, Const(
                False if body.dtype == "bool" else 0, body.dtype))
        if isinstance(fold, Fold):
            fold = replace(fold, update=tuple(substitute(e, axes) for e in fold.update))
        elif counted:
            body = self.there(body, counted, axes, neutral_value(fold, body.dtype))
        return replace(step, axes=tuple(axes[a] for a in step.axes), fold=fold,
                       raxes=tuple(axes[a] for a in step.raxes), body=simplify(body))

    def there(self, e: Expr, axes: Sequence[Axis], now: Mapping[Axis, Axis], none: Expr) -> Expr:
        """``e`` where the axes run over elements that there are, else ``none``."""
        held = all_hold(compare("lt", now[a], self.value(a.extent)) for a in axes
                        if self.used(a.extent))
        return e if held is None else Where(held, e, none)


class _Value:
    """Expressions rewritten from their roots: a load must stay inside its buffer where its index,
    or a condition around it, depends on a number of elements."""

    def __init__(self, written: Written, axes: Mapping[Axis, Axis]) -> None:
        self.written, self.axes = written, axes
        self.memo: dict[tuple[Expr, bool], Expr] = {}

    def of(self, e: Expr, guarded: bool) -> Expr:
        key = (e, guarded)
        if key not in self.memo:
            self.memo[key] = self.made(e, guarded)
        return self.memo[key]

    def made(self, e: Expr, guarded: bool) -> Expr:
        if isinstance(e, Sym):
            return self.written.numbers.get(e, e)
        if isinstance(e, Axis):
            return self.axes.get(e, e)
        if isinstance(e, Where):
            inside = guarded or self.written.used(e.cond)
            return Where(self.of(e.cond, guarded), self.of(e.a, inside), self.of(e.b, inside))
        kids = [self.of(k, guarded) for k in children(e)]
        if not isinstance(e, Load):
            return with_children(e, kids) if kids else e
        return self.inside(e, kids, guarded)

    def inside(self, e: Load, kids: list[Expr], guarded: bool) -> Expr:
        extents = self.written.shape(self.written.b.buffers[e.buffer].shape)
        empty = []
        for k, (old, extent) in enumerate(zip(e.index, extents)):
            if not (guarded or self.written.loose or self.written.used(old)):
                continue
            if _within(kids[k], extent):
                continue
            kids[k] = maximum(minimum(kids[k], extent - 1), ZERO)
            empty += [] if (lower(extent) or 0) > 0 else [compare("gt", extent, ZERO)]
        load = Load(e.buffer, tuple(map(simplify, kids)), e.dtype)
        some = all_hold(empty)
        none = Const(False if e.dtype == "bool" else 0, e.dtype)
        return load if some is None else Where(some, load, none)


def _within(index: Expr, extent: Expr) -> bool:
    return proves(compare("ge", index, ZERO)) and proves(compare("lt", index, extent))


def _held(written: Written, step: Step) -> list[Expr]:
    """The extents of all that a step that is no Compute reads and makes."""
    buffers = written.b.buffers
    found = [d for o in (*step.inputs, *step.outs) for d in buffers[o].shape]
    return [*found, *_held_by(step), *filter(None, [getattr(step, "trip", None)])]


def _held_by(step: Step) -> list[Expr]:
    """What bodies of a step compute, and the extents of that."""
    found: list[Expr] = []
    for body in getattr(step, "bodies", ()):
        found += [d for x in body.buffers.values() for d in x.shape]
        for s in body.steps:
            found += [s.body] if isinstance(s, Compute) else _held_by(s)
    return found


def _product(a: Ends, b: Ends) -> Ends | None:
    for x, y in ((a, b), (b, a)):
        if are_equal(*x):
            sign = x[0]
            if proves(compare("ge", sign, ZERO)):
                return sign * y[0], sign * y[1]
            if proves(compare("le", sign, ZERO)):
                return sign * y[1], sign * y[0]
    if all(proves(compare("ge", x[0], ZERO)) for x in (a, b)):
        return a[0] * b[0], a[1] * b[1]
    return None


def _quotient(a: Ends, b: Ends) -> Ends | None:
    if not are_equal(*b) or not proves(compare("gt", b[0], ZERO)):
        return None
    return a[0] // b[0], a[1] // b[0]


def _remainder(a: Ends, b: Ends) -> Ends | None:
    if not are_equal(*b) or not proves(compare("gt", b[0], ZERO)):
        return None
    return ZERO, b[0] - 1


_ENDS = {"add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
         "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
         "min": lambda a, b: (minimum(a[0], b[0]), minimum(a[1], b[1])),
         "max": lambda a, b: (maximum(a[0], b[0]), maximum(a[1], b[1])),
         "mul": _product, "floordiv": _quotient, "mod": _remainder}


__all__ = ["Unbounded", "Written"]
